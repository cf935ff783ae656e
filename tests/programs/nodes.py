"""All-reduces over several nodes, as if two or three ranks shared one, against NumPy: alone and several at once; and
algorithms of one's own.
"""

import sys
from functools import cache, partial

import numpy as np
from mpi4py import MPI
from refusals import refused

import hpckit as hp
import hpckit.collectives.axis as axes
from hpckit.collectives.choice import choose
from hpckit.collectives.nodes import Nodes
from hpckit.comm.shared import group
from hpckit.plan.collective.algorithms import collective_plan
from hpckit.plan.collective.plan import CollectivePlan, joined

comm = MPI.COMM_WORLD
BRIEF = sys.argv[1:] == ["brief"]  # fewer counts, and with one rank on a node every other operation
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


@cache
def expected(count: int, dtype: str, op: str) -> np.ndarray:
    """What all ranks must have."""
    wide = np.array([values_of(rank, count, dtype) for rank in range(comm.size)]).astype(np.float64)
    if op == "average":
        weights = np.arange(comm.size) + 1.0
        return ((wide * weights[:, None]).sum(0) / weights.sum()).astype(dtype)
    return getattr(np, op)(wide, axis=0).astype(dtype)


good = 0
for per_node in (n for n in (1, 2, 3) if comm.size % n == 0 and n < comm.size):
    both = in_nodes_of(per_node)
    axis = axes.axis_of(both)
    for count in (0, 5, 600_001) if BRIEF else (0, 1, 5, 1003, 600_001):
        for dtype, op in CASES[::2] if BRIEF and per_node == 1 else CASES:
            options = {"weight": comm.rank + 1.0} if op == "average" else {}
            for algorithm in ("hierarchical", *(("nodes",) if per_node > 1 else ())):
                x = values_of(comm.rank, count, dtype)
                assert hp.all_reduce(x, both, op, algorithm, **options).wait() is x
                np.testing.assert_allclose(x, expected(count, dtype, op), rtol=1e-6 if op in ("mean", "average") else 0)
                good += 1
    over = "nodes" if per_node > 1 else "hierarchical"
    assert [type(each) for each in axis.nodes] == ([Nodes] if per_node > 1 else []), "hierarchical goes by messages"
    assert choose("all_reduce", "auto", axis, 2**22, {}).algorithm == (over if per_node > 1 else "ring")
    if per_node == 1:
        refused(partial(hp.all_reduce, np.ones(3), both, algorithm="nodes"), "one rank on a node")
    # Several at once, which wait for different things first, and are waited for in another order.
    many = [values_of(comm.rank, 100 + 70_000 * k, "float64") for k in range(4)]
    ops = ("average", "sum", "average", "max")
    works = [
        hp.all_reduce(x, both, op, over, **({"weight": comm.rank + 1.0} if op == "average" else {}))
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

# An algorithm of one's own is compared over the ranks before it runs.
world = hp.world()


def line(towards: int, ranks: int) -> CollectivePlan:
    """All-reduce to one rank, and back."""
    to_end = collective_plan("reduce", "naive", ranks, root=towards % ranks)
    back = collective_plan("broadcast", "naive", ranks, root=towards % ranks)
    return joined("all_reduce", "line", to_end, back)


hp.plan.add_algorithm("all_reduce", partial(line, 0), name="line")
hp.plan.add_algorithm("all_reduce", partial(line, comm.rank // 2), name="other_lines")
if comm.rank != 1:
    hp.plan.add_algorithm("all_reduce", partial(line, 0), name="lines_of_some")
x = values_of(comm.rank, 11, "float64")
assert (hp.all_reduce(x, world, algorithm="line").wait() == expected(11, "float64", "sum")).all()
refused(partial(hp.all_reduce, x, world, algorithm="other_lines"), "'other_lines' is the plan")
refused(partial(hp.all_reduce, x, world, algorithm="lines_of_some"), "not added on rank 1")
refused(partial(hp.all_reduce, x, world, algorithm="no_lines"), "there is no algorithm 'no_lines'")
if comm.rank == 0:
    print("all good", good)
