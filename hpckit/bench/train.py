"""Training: GPT and MLP steps on one core against PyTorch eager, from the same initial weights.

A step is forward, loss, backward and AdamW in float32, one BLAS thread. PyTorch runs with its fused AdamW. The losses
of the first steps are compared before anything is timed, then steps of both run in turn. The ratios are times, ours
over PyTorch's: below 1 is better for hpckit.
"""

from __future__ import annotations

import importlib.util
from statistics import median
from typing import Any

from hpckit.bench.job import run_ranks
from hpckit.bench.measure import machine, ratio

# Key -> case of `train_steps` and its rounds, all and with --quick.
CASES = {
    "gpt_vs_torch": ("gpt", {"layers": 4, "width": 256, "heads": 8}, 41, 15),
    "gpt512_vs_torch": ("gpt", {"layers": 4, "width": 512, "heads": 8}, 21, 7),
    "mlp_vs_torch": ("mlp", {"sizes": [784, 1024, 1024, 10]}, 101, 41),
}


def add_options(it: Any) -> tuple[str, ...]:
    """The option of this benchmark."""
    it.add_argument("--only", choices=list(CASES), help="measure one case")
    return ("only",)


def run(quick: bool = False, only: str | None = None) -> dict[str, Any]:
    """Measure all, or one case; return rows and ratios. Without PyTorch it says so, and measures nothing."""
    rows: list[dict[str, Any]] = []
    ratios: dict[str, dict[str, float]] = {}
    if importlib.util.find_spec("torch") is None:
        rows.append({"note": "PyTorch is not installed (pip install torch): nothing to compare with"})
    else:
        for key in [only] if only else CASES:
            kind, shape, rounds, few = CASES[key]
            found = run_ranks("hpckit.bench.train_steps", 1, ((kind, shape, few if quick else rounds),))[0]
            times = found["times"]
            rows += [_row(key, name, seconds, found) for name, seconds in times.items()]
            ratios[key] = ratio(times["hpckit"], times["torch"])
    return {"bench": "train", "machine": machine(), "results": rows, "ratios": ratios}


def _row(key: str, name: str, seconds: list[float], found: dict[str, Any]) -> dict[str, Any]:
    middle = median(seconds)
    return {
        "case": key.removesuffix("_vs_torch"),
        "candidate": name,
        "milliseconds": round(middle * 1e3, 2),
        "samples_per_s": round(found["samples"] / middle),
        "GFLOP_per_s": round(found["flops"] / middle / 1e9, 1),
        "rounds": len(seconds),
        "loss": found["losses"][name],
    }
