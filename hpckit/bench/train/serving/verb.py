"""Serving: a Llama shape of 200 million random parameters, one thread a rank: decoding against the bandwidth of memory
and against transformers, 32 texts at once, shared beginnings, 2 ranks against one, and what the one answer costs.

Outputs are compared before anything is timed. `one_answer_cost_…` and `scheduler_overhead` are times, ours over those
without: below 1 is better. `plan_error_…`: |predicted / measured - 1| of `hpckit plan serve`, below 0.2 is good.
`speculation_of_formula`: the gain by guesses of which 7 in 10 are right over what the formula of Leviathan et al. makes
of them; `speculation_where_it_fails`: a text without guesses over one whose guesses are all wrong.
`perplexity_…`: that of a format of the weights over float32's, of a model that is trained for 200 steps; 1 is best.
`decode_vs_xllamacpp_…_over_read`: its time over that of a plain read of our packed weights. Without transformers,
xllamacpp (whose wheel has no AVX-512) or openvino-genai what is compared with it is left out.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from statistics import median
from typing import Any

from hpckit.bench.command import add_only
from hpckit.bench.measure import Ratios, Rows, ratio, result, speed_up, spread, timed
from hpckit.bench.ranks import run_ranks

LAYERS, FEW_LAYERS = 12, 2
# Key -> case, its ranks, its rounds (all, and with --quick), what else it takes (all, and with --quick).
CASES: dict[str, tuple[str, int, tuple[int, int], tuple[Any, ...], tuple[Any, ...]]] = {
    "decode_of_bandwidth_f32": ("decode", 1, (15, 5), ("float32",), ("float32",)),
    "decode_of_bandwidth_bf16": ("decode", 1, (15, 5), ("bfloat16",), ("bfloat16",)),
    "decode_of_bandwidth_q8": ("decode", 1, (15, 5), ("q8_0",), ("q8_0",)),
    "decode_vs_transformers_bf16": ("theirs", 1, (7, 3), ("bfloat16", 8), ("bfloat16", 4)),
    "decode_vs_transformers_f32": ("theirs", 1, (7, 3), ("float32", 8), ("float32", 4)),
    "batch32_vs_transformers": ("batch", 1, (3, 2), (128,), (16,)),
    "decode_vs_xllamacpp_f32": ("llama_cpp", 1, (7, 3), ("float32", 8), ("float32", 4)),
    "decode_vs_xllamacpp_bf16": ("llama_cpp", 1, (7, 3), ("bfloat16", 8), ("bfloat16", 4)),
    "decode_vs_xllamacpp_q8": ("llama_cpp", 1, (7, 3), ("q8_0", 8), ("q8_0", 4)),
    "decode_vs_openvino_q8": ("openvino", 1, (7, 3), ("q8_0", 8), ("q8_0", 4)),
    "batch32_vs_xllamacpp": ("llama_cpp_batch", 1, (3, 2), (128,), (16,)),
    "speculation_of_formula": ("speculation", 1, (7, 3), ("bfloat16_dot", 96), ("bfloat16_dot", 32)),
    "prefix_ttft": ("prefix", 1, (7, 3), (), ()),
    "one_answer_cost_1": ("promise", 1, (15, 5), (1,), (1,)),
    "one_answer_cost_32": ("promise", 1, (11, 5), (32,), (32,)),
    "one_answer_cost_512": ("promise", 1, (5, 3), (512,), (512,)),
    "scheduler_overhead": ("overhead", 1, (21, 7), (32,), (32,)),
    "plan_error": ("plan", 1, (7, 3), ("bfloat16",), ("bfloat16",)),
    "perplexity": ("perplexity", 1, (1, 1), (200,), (10,)),
    "tp2_decode": ("ranks", 2, (11, 5), ("bfloat16",), ("bfloat16",)),
}
# Cases and the packages that they compare with.
NEEDS = {
    "overhead": ("starlette", "uvicorn"),
    **dict.fromkeys(("theirs", "batch"), ("torch", "transformers")),
    **dict.fromkeys(("llama_cpp", "llama_cpp_batch"), ("xllamacpp", "gguf")),
    "openvino": ("openvino_genai", "gguf"),
}


def add_options(it: Any) -> tuple[str, ...]:
    """The option of this benchmark, and its name for `run`."""
    return add_only(it, list(CASES), "CASE")


def run(quick: bool = False, only: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure all, or the cases in `only`: rows and ratios; with `quick` on a model of 2 layers."""
    rows: Rows = []
    found_ratios: Ratios = {}
    for key in only or CASES:
        name, ranks, rounds, every, few = CASES[key]
        missing = [each for each in NEEDS.get(name, ()) if importlib.util.find_spec(each) is None]
        if missing:
            rows.append({"case": key, "note": f"left out: {' and '.join(missing)} is not installed"})
            continue
        given = (name, FEW_LAYERS if quick else LAYERS, rounds[quick], *(few if quick else every))
        found = run_ranks("hpckit.bench.train.serving.cases", ranks, (given,))[0]
        for kind, value in found.get("perplexity", {}).items():
            rows.append({"case": key, "candidate": kind, "perplexity": round(value, 4)})
        times = found.get("times", {})
        for candidate, seconds in times.items():
            more = {}
            if "bytes" in found and not candidate.endswith("prompt"):
                more["GB_per_s"] = round(found["bytes"] / median(seconds) / 1e9, 1)
            if "tokens" in found:
                more["tokens_per_s"] = round(found["tokens"] / median(seconds), 1)
            rows.append(timed(key, candidate, seconds, **more))
        found_ratios |= ratios(key, name, times, found)
    return result("serving", rows, found_ratios)


def ratios(key: str, name: str, times: dict[str, list[float]], found: dict[str, Any]) -> Ratios:
    """The ratios of a case from its times and what else it found."""
    if name == "perplexity":
        each = found["perplexity"]
        return {f"{key}_{kind}": spread([value / each["float32"]]) for kind, value in each.items() if kind != "float32"}
    if name == "speculation":
        each_round = zip(times["plain"], times["right"], found["gain"], strict=True)
        gains = [plain / own / gain for plain, own, gain in each_round]
        return {key: spread(gains), "speculation_where_it_fails": ratio(times["plain"], times["wrong"])}
    if name == "decode":
        return {key: ratio(times["read"], times["token"])}
    if name == "prefix":
        return {key: ratio(times["cold"], times["found"])}
    if name == "promise":
        return {key: ratio(times["tile"], times["library"])}
    if name == "overhead":
        return {key: ratio(times["step"], times["bare"])}
    if name == "plan":
        errors = {
            part: [abs(told / real - 1) for told, real in zip(times[f"{part}, predicted"], times[part], strict=True)]
            for part in ("decode", "first token")
        }
        return {f"{key}_{part.replace(' ', '_')}": spread(each) for part, each in errors.items()}
    if name == "ranks":
        return speed_up(key, times, 2)
    every = {key: ratio(times["theirs"], times["ours"])}
    if "read" in times:
        every[f"{key}_over_read"] = ratio(times["theirs"], times["read"])
    if "our_prompt" in times:
        prefill = ratio(times["their_prompt"], times["our_prompt"])
        kind = key.rpartition("_")[2]
        rival = {"llama_cpp": "xllamacpp", "openvino": "openvino"}.get(name, "torch")
        every[f"prefill_{kind}_vs_{rival}"] = prefill
        if name == "theirs":
            every[f"prefill_vs_transformers_{kind}"] = prefill
    return every
