"""What each rank of `hpckit bench planner --only measured` runs: single kernels and messages, and training steps."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.bench.measure import seconds_of
from hpckit.bench.ranks import answer, slowest
from hpckit.bench.train.ranks import VOCAB, optimized, text, time_in_turn
from hpckit.collectives import all_reduce
from hpckit.comm.mesh import Mesh
from hpckit.nn.gpt import gpt2
from hpckit.nn.loss import CrossEntropy
from hpckit.nn.optimizers import AdamW
from hpckit.plan.pipeline.training import training_plan
from hpckit.training.pipeline.pipeline import Pipeline

ROWS, INNER, COLUMNS = 512, 512, 2048  # of the product that is timed
PASSED = 1 << 22  # numbers of the arrays that are passed over
SMALL, LARGE = 1 << 10, 1 << 21  # numbers of the sums
CALLS = 5  # in a row
ENDS = (0.1, 0.3)  # what embedding and head take, in blocks, for stages that take equally long


def case(shape: dict[str, Any], batch: int, meshes: list[dict[str, Any]], rounds: int) -> dict[str, Any]:
    """Seconds of each probe, and of a step on each mesh; "apart": on every rank, alone, with its share of the batch."""
    comm = MPI.COMM_WORLD
    steps: dict[str, Callable[[], float]] = {name: _again(probe) for name, probe in _probes(comm).items()}
    own = _pipeline(MPI.COMM_SELF, shape, batch // comm.size, {"dp": 1})
    steps["apart"] = _step(own, shape, batch // comm.size)
    for number, mesh in enumerate(meshes):
        pipeline = _pipeline(comm, shape, batch, mesh)
        steps[str(number)] = _step(pipeline, shape, batch // mesh.get("dp", 1))
    return {"times": time_in_turn(steps, (), rounds)}


def _again(probe: Callable[[], Any]) -> Callable[[], float]:
    def calls() -> float:
        return sum(seconds_of(probe) for _ in range(CALLS))

    return calls


def _probes(comm: MPI.Intracomm) -> dict[str, Callable[[], Any]]:
    """A product, a pass over memory, a small and a large sum over the ranks."""
    random = np.random.default_rng(comm.rank)
    a, b = (random.standard_normal(size, np.float32) for size in ((ROWS, INNER), (INNER, COLUMNS)))
    product = np.empty((ROWS, COLUMNS), np.float32)
    x, y = np.ones(PASSED, np.float32), np.ones(PASSED, np.float32)
    small, large = np.ones(SMALL, np.float32), np.ones(LARGE, np.float32)
    return {
        "product": lambda: np.matmul(a, b, out=product),
        "pass": lambda: np.add(x, np.float32(1), out=y),
        "small sum": lambda: all_reduce(small, comm).wait(),
        "large sum": lambda: all_reduce(large, comm).wait(),
        "barrier": lambda: slowest(comm, 0.0),
    }


def _pipeline(comm: MPI.Intracomm, shape: dict[str, Any], batch: int, mesh: dict[str, Any]) -> Pipeline:
    """A GPT on a mesh; the keys of `mesh` are those of `training_plan`, and "sharding"."""
    given = {name: value for name, value in mesh.items() if name != "sharding"}
    net = gpt2(VOCAB, **shape, tied=False)
    costs = [ENDS[0], *[1.0] * shape["layers"], ENDS[1]]
    plan = training_plan(comm.size, len(net.layers), batch=batch, costs=costs, **given)
    axes: dict[str, Any] = plan.mesh
    return Pipeline(Mesh(comm, **axes), net, CrossEntropy(VOCAB), plan, sharding=mesh.get("sharding", 0))


def _step(pipeline: Pipeline, shape: dict[str, Any], samples: int) -> Callable[[], float]:
    pipeline.initialize(0)
    x, targets = text(samples, 0, shape["context"])
    return optimized(pipeline, AdamW(pipeline.parameters), x, targets, targets.size * pipeline.plan.dp)


if __name__ == "__main__":
    answer(sys.argv[1:], case)
