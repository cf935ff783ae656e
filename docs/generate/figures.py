"""The tables of the performance page, made from docs/figures (`hpckit bench NAME --json`) and the README's words."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from pieces import code, table

from hpckit.bench import BENCHMARKS

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures"
# What tests measure: what it is, and the command, in a checkout.
MEASURED = {
    "cluster": (
        "Jobs on a real Slurm on this machine: requeue to the same bits, killed drivers of task graphs, the first run",
        "python -m tests.slurm",
    ),
    "first_run": (
        "Seconds from a clone with nothing installed to the report of a run on 2 ranks, and what takes them",
        "python -m tests.first_run",
    ),
}
# The order of the page; others follow by their names.
FIRST = ("weather", "md", "halo", "shallow_water", "stencil", "adjoint", "collectives", "train", "torch", "serving")
# Rows of the README's table in the chart of ratios: those against a rival.
CHART = (
    "weather_vs_c",
    "euler3d_vs_c",
    "hevi_vs_c",
    "shallow_water_vs_jax",
    "md_32k_vs_opt",
    "md_2ranks_vs_opt",
    "rhodo_vs_lammps",
    "gradient_vs_jax",
    "halo_64",
    "symmetric_64m_vs_mpi",
    "gpt_vs_torch",
    "tp_vs_torch",
    "pp_vs_torch",
)
MOST_ROWS = 120  # of one benchmark's results on the page; the file has all
# Keys that the README's table has no row for. Times are ours over theirs: below 1 is better.
WORDS = {
    "heat3d_two_steps_vs_copy": "heat equation 640^3, coefficient field, two steps a pass: t_eff of a plain copy",
    "heat3d_const_vs_copy": "heat equation 640^3, constant coefficient: t_eff of a plain copy",
    "heat3d_vs_c": "heat equation 640^3: the same loop in C, -O3 -march=native",
    "star4_vs_c": "star stencil of radius 4, 4000^2: C, -ffast-math",
    "star2_vs_c": "star stencil of radius 2, 4000^2: C, -ffast-math",
    "halo_128": "halo exchange, 128^3: Sendrecv with NumPy slices",
    "halo_256": "halo exchange, 256^3: Sendrecv with NumPy slices",
    "halo_32x5": "halo exchange, five fields of 32^3: Sendrecv with NumPy slices",
    "halo_256_vs_mpiarray": "halo exchange, 256^3: mpiarray's update_halos",
    "halo_64_vs_mpiarray": "halo exchange, 64^3: mpiarray's update_halos",
    "halo_128_vs_mpiarray": "halo exchange, 128^3: mpiarray's update_halos",
    "weather_big_vs_c": "weather slab 2000 x 1000, 1 core: plain C",
    "weather_2ranks_big": "weather slab 2000 x 1000: 2 ranks over 1",
    "shallow_water_vs_copy": "shallow water 2048^2, two steps in one pass: t_eff of a plain copy",
    "md_32k_vs_lj": "Lennard-Jones melt, 32 000 atoms, 1 core: LAMMPS `lj/cut`",
    "md_mixed": "mixed precision: ours in double",
    "md_user_vs_builtin": "a potential as Python function of the energy: ours built in",
    "symmetric_64m_vs_gloo": "64 MB in a symmetric buffer: torch's gloo",
    "symmetric_1m_vs_mpi": "1 MB in a symmetric buffer: MPI_Allreduce",
    "ring_64m_vs_mpi": "64 MB, ring plan over point-to-point messages: MPI_Allreduce",
    "symmetric_64m_4ranks_vs_mpi": "64 MB, 4 ranks on 2 cores, symmetric: MPI_Allreduce",
    "ring_64m_vs_gloo": "64 MB, ring plan: torch's gloo",
    "staged_64m_vs_mpi": "64 MB, any buffer, through shared memory: MPI_Allreduce",
    "staged_64m_vs_gloo": "the same: torch's gloo",
    "auto_min_vs_mpi": "any size, default choice, least ratio: MPI_Allreduce",
    "flat_8b_vs_mpi": "8 bytes, by `flat`: MPI_Allreduce",
    "md_avx2_vs_opt": "the AVX2 form: LAMMPS `lj/cut/opt`",
    "md_avx512_vs_opt": "the AVX-512 form: LAMMPS `lj/cut/opt`",
    "md_scalar_vs_opt": "the plain loop: LAMMPS `lj/cut/opt`",
    "md_types": "two types, time over that of one",
    "md_repro": "`--repro`, time over that without",
    "md_morse": "Morse, time over that of Lennard-Jones",
    "md_morse_vs_opt": "Morse: LAMMPS `morse/opt`",
    "md_2ranks_eff": "efficiency of 2 ranks",
    "md_2ranks_ceiling": "the same of two independent runs of half the atoms",
    "md_256k_vs_lj": "256 000 atoms, 1 core: LAMMPS `lj/cut`",
    "md_256k_vs_opt": "the same: LAMMPS `lj/cut/opt`",
    "gpt_vs_torch": "GPT of width 256, time over PyTorch's",
    "gpt512_vs_torch": "GPT of width 512, time over PyTorch's",
    "mlp_vs_torch": "MLP, time over PyTorch's",
    "tile_vs_blas_1": "products in a fixed order, float32, 1 row: NumPy's BLAS",
    "tile_vs_blas_4": "the same, 4 rows",
    "tile_vs_blas_32": "the same, 32 rows",
    "tile_vs_blas_512": "the same, 512 rows",
    "dp_eff": "data parallel, efficiency of 2 ranks",
    "dp_ceiling": "the same of two ranks that do not communicate",
    "dp_vs_torch": "data parallel, time over that of PyTorch DDP",
    "torch_eff": "efficiency of PyTorch DDP on 2 ranks",
    "zb_speedup": "ZB-H1 on 2 ranks: 1 rank",
    "pp_ceiling": "the same of two ranks that each do a whole step",
    "zb_vs_sim": "the speed-up of ZB-H1 over the simulated one",
    "zb_vs_1f1b": "ZB-H1, time over that of 1F1B",
    "1f1b_vs_gpipe": "1F1B, time over that of GPipe",
    "pp_vs_torch": "pipeline, time over that of torch.distributed.pipelining's best schedule",
    "weather_2ranks_small": "weather slab 400 x 200: 2 ranks over 1",
    "weather_2ranks_small_ceiling": "the same of two independent runs",
    "weather_2ranks_big_ceiling": "2000 x 1000, two independent runs: one",
    "euler3d_2ranks_ceiling": "box, two independent runs: one",
    "hevi_gain": "supercell, 1000 m x 500 m: large steps (HEVI) over explicit ones, simulated seconds a second",
    "hevi_gain_thin": "the same on levels of 100 m",
    "hevi_gain_shallow": "the same on 100 m x 40 m",
    "hevi_2ranks": "large steps: 2 ranks over 1",
    "hevi_2ranks_ceiling": "the same of two independent runs",
    "moist_time": "a moist supercell step with turbulence and rain, time over that of its dry dynamics",
    "tracer_time": "large steps, each of four tracers, time over that of the dry dynamics",
    "sphere_vs_plane": "shallow water on the cubed sphere, time a cell over that on the plane",
    "eam_vs_opt": "copper (`in.eam`), 1 core: LAMMPS `eam/opt`",
    "sw_vs_omp": "silicon (Stillinger-Weber), 1 core: LAMMPS `sw/omp`",
    "tersoff_vs_omp": "silicon carbide (Tersoff), 1 core: LAMMPS `tersoff/omp`",
    "chain_vs_lammps": "chains (`in.chain`), 1 core: LAMMPS, its fastest",
    "chute_vs_lammps": "a granular flow (`in.chute`), 1 core: LAMMPS, its fastest",
    "rhodo_mixed_vs_lammps": "rhodopsin, pairs in single precision: LAMMPS in double",
    "spce_vs_lammps": "SPC/E water, 1 core: LAMMPS, its fastest",
    "pppm_vs_lammps": "SPC/E water, the mesh of charges alone: LAMMPS",
    "fft_2ranks_vs_scipy": "Fourier transform on 2 ranks: scipy on 1",
    "fft_2ranks_vs_scipy_ceiling": "the same, two of scipy's at once: what the machine allows",
    **{
        f"{part}_2ranks{ending}": f"{what}: {run}"
        for ending, run in (("", "2 ranks over 1"), ("_ceiling", "two independent runs at once over one"))
        for part, what in {
            "eam": "copper",
            "sw": "silicon",
            "tersoff": "silicon carbide",
            "chain": "chains",
            "chute": "granular flow",
            "rhodo": "rhodopsin",
            "spce": "water",
        }.items()
    },
    **{
        f"gpu_{key}{ending}_vs_copy": f"{what}{more}: t_eff of a copy"
        for key, what in {
            "heat3d_const": "H100: heat equation 320^3, constant coefficient",
            "heat3d_var": "H100: heat equation 320^3, coefficient field",
            "euler2d": "H100: weather slab 2000 x 1000",
            "euler2d_small": "H100: weather slab 400 x 200",
            "euler3d": "H100: weather box 128^3",
            "euler3d_big": "H100: weather box 256^3",
            "shallow_water": "H100: shallow water 2048^2",
            "shallow_water_all_terms": "H100: shallow water 2048^2, all terms",
            "flood": "H100: flood 2048^2",
        }.items()
        for ending, more in (("", ""), ("_float32", ", single precision"))
    },
    "gpt_vs_torch_compiled": "GPT of width 256, time over that of `torch.compile`",
    "gpt_float32_vs_bfloat16": "GPT in float32, time over that in bfloat16",
    "moe_vs_dense_loop": "2 of 8 experts: a dense layer for each expert in turn",
    "ep_speedup": "experts on 2 ranks: 1 rank",
    "ep_ceiling": "the same of two ranks that exchange nothing",
    "zero1_vs_dp": "ZeRO-1 on 2 ranks, time over that of whole replicas",
    "zero2_vs_dp": "ZeRO-2, time over that of whole replicas",
    "zero3_vs_dp": "ZeRO-3, time over that of whole replicas",
    **{
        f"{kind}_memory_of_formula": f"bytes that a rank holds over their formula, {what}"
        for kind, what in {"whole": "whole replicas", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3"}.items()
    },
    **{
        f"torch_{key}{ending}": f"PyTorch's modules, {tokens} tokens a rank, {what}"
        for ending, tokens in (("", 128), ("_long", 512))
        for key, what in {
            "ddp_vs_gloo": "hpckit.torch's DDP, time over PyTorch's on gloo",
            "fsdp_vs_gloo": "hpckit.torch's shards, time over PyTorch's `fully_shard` on gloo",
            "zero1_vs_ddp": "ZeRO-1, time over our DDP",
            "ddp_vs_apart": "our DDP, time over steps that exchange nothing",
        }.items()
    },
    "tp_speedup": "tensor parallel, GPT of width 1024, 2 ranks: 1 rank",
    "tp_ceiling": "the same of two halves without messages",
    "tp_of_ceiling": "tensor parallel: that ceiling",
    "tp_vs_torch": "tensor parallel, time over that of torch's DTensor over gloo",
    "cp_speedup": "attention of a long text on 2 ranks: 1 rank",
    "zigzag_vs_plain_4": "ring of 4 ranks, zigzag chunks: one stretch of tokens a rank",
    "zigzag_of_price_4": "that gain over the predicted one",
    "fixed_tree_cost": "a step whose parts are added in a fixed tree, time over that without",
    "fixed_tree_vs_microbatches": "the same, time over that with a microbatch for each part",
    "fixed_layers_cost": "the same with fixed parts in layers too, time over that without",
    "traced_vs_hand": "a traced step of Burgers' equation: the loop written by hand",
    "gradient_forwards": "gradient of 50 steps at 1024^2, time over that of the steps",
    "gradient_vs_jax": "the same gradient: jitted JAX, double precision, one core",
    "ensemble32_vs_calls": "32 members in vector lanes: 32 calls",
    "ensemble32_vs_vmap": "32 members: `jax.vmap`, one core",
    "npbench_hdiff": "NPBench's hdiff with its gradient: JAX, one core",
    "npbench_jacobi_2d": "NPBench's jacobi_2d with its gradient: JAX",
    "npbench_heat_3d": "NPBench's heat_3d with its gradient: JAX",
    "npbench_fdtd_2d": "NPBench's fdtd_2d with its gradient, of three fields on faces: JAX",
    "adjoint_2ranks_eff": "efficiency of the gradient on 2 ranks over that of the steps",
    "ensemble_one_message": "32 members on 2 ranks, a message for all: one for each",
    "assimilation_error": "error of the state after 4D-Var over that before, 1 % observed",
    "decode_of_bandwidth_f32": "decoding, batch of 1, float32: a plain read of the same bytes",
    "decode_of_bandwidth_bf16": "the same in bfloat16",
    "decode_of_bandwidth_q8": "the same in Q8_0",
    "decode_vs_transformers_bf16": "decoding in bfloat16: transformers",
    "decode_vs_transformers_f32": "decoding in float32: transformers",
    "decode_vs_xllamacpp_f32": "decoding in float32: llama.cpp (xllamacpp's wheel)",
    "decode_vs_xllamacpp_bf16": "the same in bfloat16",
    "decode_vs_xllamacpp_q8": "the same in Q8_0",
    "batch32_vs_transformers": "32 texts of 16 to 128 tokens, float32: transformers",
    "batch32_vs_xllamacpp": "32 texts of 16 to 128 tokens: llama.cpp",
    "prefill_q8_vs_xllamacpp": "a prompt of 512 tokens in Q8_0: llama.cpp",
    "prefill_bf16_vs_torch": "a prompt of 512 tokens in bfloat16: PyTorch",
    "one_answer_cost_1": "one answer whatever the batch, 1 row, time over that of BLAS",
    "one_answer_cost_32": "the same, 32 rows",
    "one_answer_cost_512": "the same, 512 rows",
    "prefix_ttft": "first token, 1,008 of 1,024 tokens known: none known",
    "speculation_of_formula": "speculation: the gain that its formula gives",
    "scheduler_overhead": "32 requests over HTTP, time over that of the bare steps",
    "tp2_decode": "decoding on 2 ranks: 1 rank",
    "tp2_decode_ceiling": "the same of two independent runs of half the layers each",
    "decode_vs_openvino_q8": "decoding in Q8_0: OpenVINO",
    **{
        f"decode_vs_{key}_{kind}_over_read": f"{rival}, a token in {what}, time over a plain read of our weights"
        for key, rival in {"xllamacpp": "llama.cpp", "openvino": "OpenVINO"}.items()
        for kind, what in {"f32": "float32", "bf16": "bfloat16", "q8": "Q8_0"}.items()
    },
    "prefill_f32_vs_xllamacpp": "a prompt of 512 tokens in float32: llama.cpp",
    "prefill_bf16_vs_xllamacpp": "the same in bfloat16",
    "prefill_f32_vs_torch": "a prompt of 512 tokens in float32: PyTorch",
    "prefill_q8_vs_openvino": "a prompt of 512 tokens in Q8_0: OpenVINO",
    "prefill_vs_transformers_f32": "a prompt of 512 tokens in float32: transformers",
    "prefill_vs_transformers_bf16": "the same in bfloat16",
    "speculation_where_it_fails": "a text whose guesses are all wrong, its speed: without guesses",
    "plan_error_decode": "price of a token of one text: relative error",
    "plan_error_first_token": "price of the first token after 512: relative error",
    **{
        f"perplexity_{kind}": f"perplexity of a model trained here, in {kind}: in float32"
        for kind in ("bfloat16", "bfloat16_dot", "q8_0", "q4_0")
    },
    "price_all_reduce_median": "price of an all-reduce, 8 bytes to 64 MB: relative error",
    "price_halo_median": "price of a halo exchange, 64^3 and 256^3: relative error",
    "published_median": "steps of published trainings: relative error of the planner",
    "measured_median": "steps on 2 and 4 ranks of this machine: relative error of the planner",
    "llama_seconds": "seconds of the planner's search for 405 billion parameters on 16,384 ranks",
    "shallow_water_2ranks": "shallow water: 2 ranks over 1",
    "shallow_water_2ranks_ceiling": "the same of two independent runs",
    "table_cost": "heat3d, 64^3 on 2 ranks: the notes of the table of waits, part of a step",
    "trace_cost": "the same: the notes of a timeline",
    "table_cost_96": "96^3: the notes of the table of waits, part of a step",
    "trace_cost_96": "the same: the notes of a timeline",
    "euler3d_time_with_turbulence": "box, 1 core, Smagorinsky's eddy viscosity: time over that of the dynamics alone",
    "euler3d_time_with_a_tracer": "the same with a tracer",
    "euler3d_time_with_four_tracers": "the same with four tracers",
    "requeue_bitwise": "a run over three time limits of a real Slurm has the bits of the unbroken one: 1",
    "limit_bitwise": "runs that Slurm itself warned and ended at a limit have: 1",
    "graph_kills": "part of 50 killed drivers of task graphs that end with the same hashes",
    "first_run_s": "seconds from a fresh clone to a finished report with 2 ranks",
}


def filled(text: str) -> str:
    """A page with every `<!-- figures -->` replaced by the tables of all benchmarks that have figures, and every
    `<!-- ratios -->` by the chart of ratios.
    """
    if "<!-- figures -->" in text:
        names = [path.stem for path in FIGURES.glob("*.json")]
        order = [*(name for name in FIRST if name in names), *sorted({*names} - {*FIRST})]
        text = text.replace("<!-- figures -->", "\n".join(_benchmark(FIGURES / f"{name}.json") for name in order))
    return text.replace("<!-- ratios -->", chart()) if "<!-- ratios -->" in text else text


def chart() -> str:
    """Bars of the ratios against rivals, on a logarithmic scale that begins at 1, in the page's own colors."""
    rows, bars = readme_rows(), []
    longest = math.log(max(float(rows[key][1]) for key in CHART))
    for key in CHART:
        what, ratio, bench = rows[key]
        width = 100 * max(0.0, math.log(float(ratio))) / longest
        what = re.sub(r"`(.*?)`", r"<code>\1</code>", what)
        bar = f'<span>{what}</span><i style="width: {width:.1f}%"></i><b>{ratio}</b>'
        bars.append(f'<li title="hpckit bench {bench}">{bar}</li>')
    return f'<ul class="ratios">{"".join(bars)}</ul>'


def readme_rows() -> dict[str, tuple[str, str, str]]:
    """Key -> (what is measured, the ratio as printed, benchmark) of each row of the README's table, in its order."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| ([\d.]+) \| (?:1 / )?`(\w+)` \| `hpckit bench (\w+)` \|$", readme, re.M)
    return {key: (words, ratio, bench) for words, ratio, key, bench in rows}


def ratios(bench: str) -> dict[str, dict[str, float]]:
    """The ratios of a benchmark's figures; empty where it has none."""
    path = FIGURES / f"{bench}.json"
    return json.loads(path.read_text(encoding="utf-8"))["ratios"] if path.exists() else {}


def _benchmark(path: Path) -> str:
    """Ratios, and below a fold the whole output, of one benchmark."""
    found = json.loads(path.read_text(encoding="utf-8"))
    name = found["bench"]
    machine = ", ".join(f"{key} {value}" for key, value in found["machine"].items())
    measures, command = MEASURED.get(name) or (BENCHMARKS[name].measures, f"hpckit bench {name}")
    text = f"## {name}\n\n{measures[:1].upper()}{measures[1:]}. `{command}`, on {machine}.\n\n"
    if found["ratios"]:
        head = ("what: against what", "median", "low", "high", "rounds", "key")
        text += table(head, (_ratio(key, found["ratios"][key]) for key in _ordered(found["ratios"])))
    rows = found["results"][:MOST_ROWS]
    if rows:
        columns = list(dict.fromkeys(column for row in rows for column in row))
        body = table(
            (column.replace("_", " ") for column in columns), ([_cell(row.get(c)) for c in columns] for row in rows)
        )
        note = f", the first {MOST_ROWS} of {len(found['results'])}" if len(found["results"]) > MOST_ROWS else ""
        text += f'\n<details markdown="1"><summary>All that was printed{note}</summary>\n\n{body}\n</details>\n'
    return text


def _ordered(ratios: dict[str, Any]) -> list[str]:
    """The README's rows first."""
    known = [key for key in readme_rows() if key in ratios and key not in WORDS]
    return [*known, *(key for key in ratios if key not in known)]


def _ratio(key: str, ratio: dict[str, Any]) -> list[str]:
    words = WORDS.get(key) or readme_rows().get(key, ("",))[0]
    return [words, *(_cell(ratio.get(name)) for name in ("median", "low", "high", "rounds")), code(key)]


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return "" if value is None else str(value)
