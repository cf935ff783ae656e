"""Steps of training on this machine beside the planner's times: the machine is calibrated in the same job.

Calibration knows no mesh: with as many ranks at once it times a product of matrices, a pass over memory, sums over the
ranks, and a step of each rank for itself, which gives the efficiency. Probes and steps take turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import Any

from hpckit.bench.planner.published import HeldFigure
from hpckit.bench.planner.ranks import CALLS, COLUMNS, INNER, LARGE, PASSED, ROWS, SMALL
from hpckit.bench.ranks import run_ranks
from hpckit.plan.machine.machine import Compute, Level, Machine
from hpckit.plan.training.cost import step_cost
from hpckit.plan.training.model import LanguageModel
from hpckit.plan.training.strategy import SINGLE, Strategy, require

SHAPE = {"layers": 4, "width": 384, "heads": 8, "context": 128}
BATCH, VOCAB = 8, 256
MESHES: dict[int, list[dict[str, Any]]] = {
    2: [
        {"dp": 2},
        {"dp": 2, "sharding": 1},
        {"tp": 2},
        {"cp": 2},
        {"pp": 2, "microbatches": 4},
        {"pp": 2, "microbatches": 8},
        {"pp": 2, "microbatches": 4, "schedule": "gpipe"},
        {"pp": 2, "microbatches": 4, "schedule": "zb_h1"},
    ],
    4: [
        {"dp": 4},
        {"dp": 4, "sharding": 1},
        {"tp": 4},
        {"dp": 2, "tp": 2},
        {"dp": 2, "cp": 2},
        {"dp": 2, "pp": 2, "microbatches": 4},
        {"pp": 2, "tp": 2, "microbatches": 4},
        {"pp": 4, "microbatches": 8},
    ],
}


def model() -> LanguageModel:
    """The GPT of the steps, as the planner sees it."""
    it = SHAPE
    head = it["width"] // it["heads"]
    return LanguageModel(
        "GPT",
        it["layers"],
        it["width"],
        it["heads"],
        it["heads"],
        4 * it["width"],
        VOCAB,
        it["context"],
        head,
        head,
        gated=False,
        positions=it["context"],
        biases=True,
    )


def strategy(mesh: dict[str, Any], batch: int = BATCH) -> Strategy:
    """A mesh as the planner has it."""
    axes = {axis: mesh.get(axis, 1) for axis in ("dp", "pp", "cp", "tp")}
    microbatch = batch // (axes["dp"] * mesh.get("microbatches", 1))
    return Strategy(
        batch,
        SHAPE["context"],
        **axes,
        microbatch=microbatch,
        schedule=mesh.get("schedule", "1f1b"),
        sharding=mesh.get("sharding", 0),
        precision=SINGLE,
        overlap=False,
    )


def calibrated(ranks: int, times: dict[str, float]) -> Machine:
    """A machine of ranks that all work at once, from the seconds of the probes."""
    peak = 2.0 * ROWS * INNER * COLUMNS * CALLS / times["product"]
    passes = 8.0 * PASSED * CALLS / times["pass"]
    steps, part = 2 * (ranks - 1), 2 * (ranks - 1) / ranks
    small, large = times["small sum"] / CALLS, times["large sum"] / CALLS
    bandwidth = part * 4.0 * (LARGE - SMALL) / max(large - small, 1e-9)
    latency = small / steps
    nominal = Compute(peak, 1e12, passes)
    machine = Machine("this node", (Level("node", 0, latency, bandwidth),), 0.0, passes, compute=nominal)
    alone = strategy({"dp": 1}, BATCH // ranks)
    share = step_cost(model(), alone, machine).seconds / times["apart"]
    return replace(machine, compute=Compute(peak * share, 1e12, passes * share))


def steps(rounds: int) -> Iterator[HeldFigure]:
    """A row a mesh, in ms."""
    for ranks, meshes in MESHES.items():
        found = run_ranks("hpckit.bench.planner.ranks", ranks, ((SHAPE, BATCH, meshes, rounds),))[0]["times"]
        times = {name: median(each) for name, each in found.items()}
        machine = calibrated(ranks, times)
        for number, mesh in enumerate(meshes):
            it = strategy(mesh)
            require(model(), it, ranks)
            name = " ".join(f"{key}={value}" for key, value in mesh.items())
            planned = 1e3 * step_cost(model(), it, machine).seconds
            yield HeldFigure(f"measured on {ranks} ranks", name, 1e3 * times[str(number)], planned, "ms")
