"""All-reduces over several nodes, as if two or three ranks shared one, against NumPy: alone and several at once."""

import numpy as np
from mpi4py import MPI

import hpckit as hp
import hpckit.collectives.axis as axes
from hpckit.collectives.nodes import Nodes
from hpckit.comm.shared import group

comm = MPI.COMM_WORLD
CASES = (
    ("float64", "sum"),
    ("float32", "mean"),
    ("int32", "max"),
    ("float16", "min"),
    ("float64", "average"),
    ("float64", "prod"),
)


def in_nodes_of(count: int) -> MPI.Intracomm:
    """A communicator of all ranks, `count` of which share a node in what hpckit asks."""
    group._split_by_node = lambda given: given if count == given.size else given.Split(given.rank // count, given.rank)
    axes._node_size = lambda given: count
    return comm.Dup()


def values_of(rank: int, count: int, dtype: str) -> np.ndarray:
    """Whole numbers, whose sums are exact."""
    return ((np.arange(count) * 7 + 13 * rank) % 50).astype(dtype)


def expected(count: int, dtype: str, op: str) -> np.ndarray:
    """What all ranks must have."""
    every = np.array([values_of(rank, count, dtype) for rank in range(comm.size)])
    wide = every.astype(np.float64)
    weights = np.arange(comm.size) + 1.0
    found = {"sum": wide.sum(0), "max": wide.max(0), "min": wide.min(0), "mean": wide.mean(0), "prod": wide.prod(0)}
    found["average"] = (wide * weights[:, None]).sum(0) / weights.sum()
    return found[op].astype(dtype)


good = 0
for per_node in (n for n in (1, 2, 3) if comm.size % n == 0 and n < comm.size):
    both = in_nodes_of(per_node)
    axis = axes.axis_of(both)
    for count in (0, 1, 5, 1003, 600_001):
        for dtype, op in CASES:
            x = values_of(comm.rank, count, dtype)
            options = {"weight": comm.rank + 1.0} if op == "average" else {}
            assert hp.all_reduce(x, both, op, "hierarchical", **options).wait() is x
            np.testing.assert_allclose(x, expected(count, dtype, op), rtol=1e-6 if op in ("mean", "average") else 0)
            good += 1
    assert isinstance(axis.nodes[0], Nodes) == (per_node > 1)
    # Several at once, which wait for different things first, and are waited for in another order.
    many = [values_of(comm.rank, 100 + 70_000 * k, "float64") for k in range(4)]
    ops = ("average", "sum", "average", "max")
    works = [
        hp.all_reduce(x, both, op, "hierarchical", **({"weight": comm.rank + 1.0} if op == "average" else {}))
        for x, op in zip(many, ops, strict=True)
    ]
    for k in np.random.default_rng(comm.rank).permutation(4):
        works[k].wait()
    for x, op in zip(many, ops, strict=True):
        np.testing.assert_allclose(x, expected(len(x), "float64", op), rtol=1e-12)
    x = np.ones(2**19)  # what is chosen by itself for several nodes
    hp.all_reduce(x, both).wait()
    assert (x == comm.size).all()
    both.Free()
    good += 1
if comm.rank == 0:
    print("all good", good)
