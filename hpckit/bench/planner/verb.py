"""The planner of training: errors against published steps and memories, and the time of its largest search.

Ratios are relative errors: `published_*` of the TFLOP/s of Megatron-LM 2021 and Llama 3 405B, `korthikanti_*` of
Korthikanti et al. 2022, `measured_*` of steps on 2 and 4 ranks of this machine, which is calibrated in the same job.
`llama_seconds` is the time of a search of all legal meshes.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median
from typing import Any

from hpckit.bench.command import add_only
from hpckit.bench.measure import Ratios, Rows, result, seconds_of, spread
from hpckit.bench.planner import measured
from hpckit.bench.planner.published import (
    HeldFigure,
    korthikanti_left,
    korthikanti_memory,
    korthikanti_times,
    steps,
)
from hpckit.plan.machine.machine import machine_of
from hpckit.plan.training.model import language_model
from hpckit.plan.training.search import search

PARTS = ("published", "measured", "llama")
ROUNDS, QUICK_ROUNDS = 5, 2
RANKS, BATCH, CONTEXT = 16384, 2048, 8192


def add_options(it: Any) -> tuple[str, ...]:
    """The option of this benchmark, and its name for `run`."""
    return add_only(it, PARTS, "PART")


def run(quick: bool = False, only: Sequence[str] | None = None) -> dict[str, Any]:
    """All parts, or those in `only`; with `quick` measured steps take turns fewer times."""
    rows: Rows = []
    ratios: Ratios = {}
    parts = only or PARTS
    tables: dict[str, list[HeldFigure]] = {}
    if "published" in parts:
        tables |= {
            "published": list(steps()),
            "korthikanti_time": list(korthikanti_times()),
            "korthikanti_memory": list(korthikanti_memory()),
            "korthikanti_left": list(korthikanti_left()),
        }
    if "measured" in parts:
        tables["measured"] = list(measured.steps(QUICK_ROUNDS if quick else ROUNDS))
    for key, held in tables.items():
        rows += [_row(each) for each in held]
        errors = [abs(each.error) for each in held]
        for name, of in (("median", median), ("mean", mean), ("worst", max)):
            ratios[f"{key}_{name}"] = spread([of(errors)], len(errors))
    if "llama" in parts:
        model, machine = language_model("llama3-405b"), machine_of("llama3")
        seconds = seconds_of(lambda: search(model, RANKS, machine, BATCH, CONTEXT))
        ratios["llama_seconds"] = spread([seconds])
    return result("planner", rows, ratios)


def _row(it: HeldFigure) -> dict[str, Any]:
    return {
        "table": it.table,
        "row": it.row,
        "published": it.published,
        "planned": round(it.planned, 4),
        "unit": it.unit,
        "error_percent": round(100 * it.error, 2),
    }
