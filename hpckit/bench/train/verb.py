"""Training: GPT and MLP steps on one core against PyTorch eager, from the same initial weights.

A step is forward, loss, backward and AdamW in float32, one BLAS thread. PyTorch runs with its fused AdamW. The losses
of the first steps are compared before anything is timed, then steps of all run in turn. The ratios are times, ours
over PyTorch's, eager or compiled: below 1 is better for hpckit. Ours in float32 over ours in bfloat16: above 1 where
conversions cost less than they save.

Products in a fixed order against NumPy's BLAS, for several numbers of rows, and experts against a loop of each over all
tokens: ratios above 1 are better for hpckit. On 2 ranks: experts, data-parallel steps, pipelines, layers in parts and
long samples, against one rank and against PyTorch's DDP, its best schedule and its DTensor. On one rank: fixed parts of
a batch against none.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from hpckit.bench.command import add_only
from hpckit.bench.measure import SELDOM, Ratios, Rows, Times, by_round, interval, ratio, result, spread, timed
from hpckit.bench.ranks import run_ranks
from hpckit.plan.training.context import PLAIN

# Key -> case of `train_steps` and its rounds, all and with --quick. The ratio: the first candidate to the last.
CASES: dict[str, tuple[str, dict[str, Any], int, int]] = {
    "gpt_vs_torch": ("gpt", {"layers": 4, "width": 256, "heads": 8}, 41, 15),
    "gpt_vs_torch_compiled": (
        "gpt",
        {"layers": 4, "width": 256, "heads": 8, "rivals": ["torch", "torch_compiled"]},
        21,
        9,
    ),
    "gpt512_vs_torch": ("gpt", {"layers": 4, "width": 512, "heads": 8}, 21, 7),
    "mlp_vs_torch": ("mlp", {"sizes": [784, 1024, 1024, 10]}, 101, 41),
}
MIXED = {"gpt_float32_vs_bfloat16": ("gpt", {"layers": 4, "width": 256, "heads": 8, "rivals": ["bfloat16"]}, 21, 9)}
# Key -> rows of a product, its rounds, all and with --quick.
TILES = {
    "tile_vs_blas_1": (1, 41, 15),
    "tile_vs_blas_4": (4, 41, 15),
    "tile_vs_blas_32": (32, 21, 9),
    "tile_vs_blas_512": (512, 9, 5),
}
MOE = "moe_vs_dense_loop"
TOKENS = 512  # of a pass through experts
SHARED = "ep_speedup"  # experts on 2 ranks against one
SHARED_TOKENS = 2048
KINDS = ("float32", "bfloat16", "q8_0", "q4_0")  # of weights, all against float32 by BLAS

# Part of `train_ranks`, its title, its ranks, its rounds, all and with --quick.
PARTS = {
    "data": ("data parallel, 2 ranks", 2, 21, 7),
    "sharding": ("replicas in shards, 2 ranks", 2, 31, 11),
    "pipeline": ("pipeline, 2 ranks", 2, 37, 13),
    "tensor": ("layers on 2 ranks", 2, 9, 5),
    "context": ("8192 tokens on 2 ranks", 2, 5, 3),
    "zigzag": ("attention of 4096 tokens in a ring of 4 ranks, processor time of the slowest", 4, 9, 3),
    "parts": ("fixed parts, 1 rank", 1, 31, 11),
}


def add_options(it: Any) -> tuple[str, ...]:
    """The option of this benchmark, and its name for `run`."""
    return add_only(it, [*CASES, *MIXED, *TILES, MOE, SHARED, *PARTS], "CASE")


def run(quick: bool = False, only: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure all, or the cases in `only`: rows and ratios. Without PyTorch only what needs none, and it says so."""
    rows: Rows = []
    ratios: Ratios = {}
    with_torch = importlib.util.find_spec("torch") is not None
    if not with_torch:
        rows.append({"note": "PyTorch is not installed (pip install torch): all that is compared with it is left out"})
    for key in only or [*CASES, *MIXED, *TILES, MOE, SHARED, *PARTS]:
        if key == MOE:
            found = run_ranks("hpckit.bench.train.experts", 1, ((TOKENS, 11 if quick else 31),))[0]
            rows += [timed(f"2 of 8 experts, {TOKENS} tokens", name, each) for name, each in found["times"].items()]
            ratios[key] = ratio(found["times"]["dense loop"], found["times"]["experts"])
        elif key == SHARED:
            found = run_ranks("hpckit.bench.train.experts", 2, ((SHARED_TOKENS, 9 if quick else 25),))[0]
            rows += [timed(f"2 of 8 experts, {SHARED_TOKENS} tokens", k, each) for k, each in found["times"].items()]
            ratios[key] = _sure(found["times"]["one"], found["times"]["experts"])
            ratios["ep_ceiling"] = _sure(found["times"]["one"], found["times"]["apart"])
        elif key in TILES:
            count, rounds, few = TILES[key]
            found = run_ranks("hpckit.bench.train.tile", 1, ((count, KINDS, few if quick else rounds),))[0]
            for name, seconds in found["times"].items():
                rate = round(found["flops"] / median(seconds) / 1e9, 1)
                rows.append(timed(f"tile, {count} row{'s' * (count > 1)}", name, seconds, GFLOP_per_s=rate))
            ratios[key] = ratio(found["times"]["blas"], found["times"]["float32"])
        elif key in PARTS:
            title, ranks, rounds, few = PARTS[key]
            found = run_ranks("hpckit.bench.train.ranks", ranks, ((key, few if quick else rounds, with_torch),))[0]
            rows += [timed(title, name, seconds) for name, seconds in found["times"].items()]
            ratios |= RATIOS[key](**found)
        elif key in MIXED or with_torch:
            kind, shape, rounds, few = {**CASES, **MIXED}[key]
            found = run_ranks("hpckit.bench.train.steps", 1, ((kind, shape, few if quick else rounds),))[0]
            times = found["times"]
            rows += [_row(key, name, seconds, found) for name, seconds in times.items()]
            ratios[key] = ratio(times["hpckit"], times[list(times)[-1]])
    return result("train", rows, ratios)


def data_ratios(times: Times) -> Ratios:
    """Of 2 ranks to one: efficiencies (above 1 is better), and our time over PyTorch's DDP (below 1 is better).

    dp_ceiling: what the machine allows, two ranks without communication. torch_eff: the efficiency of DDP.
    """
    ratios = {
        "dp_eff": ratio(times["one"], times["data_parallel"]),
        "dp_ceiling": ratio(times["one"], times["apart"]),
    }
    if "torch_ddp" in times:
        ratios["dp_vs_torch"] = ratio(times["data_parallel"], times["torch_ddp"])
        ratios["torch_eff"] = ratio(times["torch_one"], times["torch_ddp"])
    return ratios


def sharding_ratios(times: Times, memory: dict[str, dict[str, float]]) -> Ratios:
    """Of a step with shards to one of whole replicas, in time; of the bytes that a rank holds to their formula.

    The formula counts parameters, gradients and two moments, each whole or by its part, and the gradients of a layer.
    """
    names = [name for name in times if name != "whole"]
    ratios: Ratios = {f"{name}_vs_dp": _sure(times[name], times["whole"]) for name in names}
    return ratios | {f"{name}_memory_of_formula": spread([it["held"] / it["formula"]]) for name, it in memory.items()}


def pipeline_ratios(times: Times, simulated: float) -> Ratios:
    """Of schedules to each other, to one rank, and to PyTorch's best; ratios of times but for the two of speed-ups.

    simulated: the speed-up of ZB-H1 over one rank for the measured times of the layers. zb_vs_sim: the measured one
    over it. pp_ceiling: what the machine allows, two ranks at once without communication. Each has the `interval` of
    its median. PyTorch's schedules ran in every `SELDOM`th round.
    """
    ratios = {
        "zb_speedup": _sure(times["one"], times["zb_h1"]),
        "pp_ceiling": _sure(times["one"], times["apart"]),
        "zb_vs_sim": _sure(times["one"], times["zb_h1"], 1 / simulated),
        "zb_vs_1f1b": _sure(times["zb_h1"], times["1f1b"]),
        "1f1b_vs_gpipe": _sure(times["1f1b"], times["gpipe"]),
    }
    theirs = [name for name in times if name.startswith("torch")]
    if theirs:
        best = min(theirs, key=lambda name: median(times[name]))
        ratios["pp_vs_torch"] = _sure(times["zb_h1"][::SELDOM], times[best])
    return ratios


def tensor_ratios(times: Times) -> Ratios:
    """Of 2 ranks that share each layer to one (above 1 is better), and our time over that of PyTorch's DTensor.

    tp_ceiling: what the machine allows, both halves at once without messages.
    """
    ratios = {"tp_speedup": _sure(times["one"], times["tensor"]), "tp_ceiling": _sure(times["one"], times["apart"])}
    ratios["tp_of_ceiling"] = _sure(times["apart"], times["tensor"])
    if "torch_dtensor" in times:
        ratios["tp_vs_torch"] = _sure(times["tensor"], times["torch_dtensor"])
    return ratios


def context_ratios(times: Times) -> Ratios:
    """Of 2 ranks that share a sample's tokens to one (above 1 is better), by what is priced as quickest; and of the
    times of the ways in which attention meets all keys, a ring's and Ulysses' over gathered keys' (below 1: quicker).
    """
    ratios = {"cp_speedup": _sure(times["one"], times["auto"])}
    return ratios | {f"cp_{kind}_vs_gather": _sure(times[kind], times["gather"]) for kind in ("ring", "ulysses")}


def zigzag_ratios(times: Times, priced: float) -> Ratios:
    """What zigzag chunks gain over a stretch of tokens a rank (above 1 is better), and that over what is priced."""
    gain = {"zigzag_vs_plain_4": _sure(times[PLAIN], times["ring"])}
    return gain | {"zigzag_of_price_4": _sure(times[PLAIN], times["ring"], 1 / priced)}


def parts_ratios(times: Times) -> Ratios:
    """Of the time of a step with fixed parts of the batch to one without, and to one in as many microbatches; and with
    fixed parts of the layers, too, to one without any.
    """
    return {
        "fixed_tree_cost": _sure(times["parts"], times["whole"]),
        "fixed_tree_vs_microbatches": _sure(times["parts"], times["microbatches"]),
        "fixed_layers_cost": _sure(times["layer_parts"], times["whole"]),
    }


RATIOS: dict[str, Callable[..., Ratios]] = {
    "data": data_ratios,
    "sharding": sharding_ratios,
    "pipeline": pipeline_ratios,
    "tensor": tensor_ratios,
    "context": context_ratios,
    "parts": parts_ratios,
    "zigzag": zigzag_ratios,
}


def _sure(slower: list[float], faster: list[float], scale: float = 1.0) -> dict[str, Any]:
    """A `ratio`, and where its median lies."""
    each = by_round(slower, faster, scale)
    return {**spread(each), "interval": interval(each)}


def _row(key: str, name: str, seconds: list[float], found: dict[str, Any]) -> dict[str, Any]:
    middle = median(seconds)
    rates = {"samples_per_s": round(found["samples"] / middle), "GFLOP_per_s": round(found["flops"] / middle / 1e9, 1)}
    return timed(key.partition("_vs_")[0], name, seconds, **rates, loss=found["losses"][name])
