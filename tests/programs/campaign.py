"""Collectives at random, against NumPy: operations, algorithms, dtypes, odd sizes, views, blocks, roots, no length.

All ranks draw the same calls. Arguments: how many, and a seed.
"""

import sys

import numpy as np
from mpi4py import MPI

import hpckit as hp
from hpckit.collectives.choice import NODE_ALGORITHMS
from hpckit.plan.collective.algorithms import ALGORITHMS

COMM = MPI.COMM_WORLD
P, RANK = COMM.size, COMM.rank
DTYPES = ("f8", "f4", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "c8", "c16")
OPERATIONS = ("all_reduce", "reduce", "reduce_scatter", "broadcast", "all_gather", "gather", "scatter", "all_to_all")
UFUNCS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def values(draw, count, dtype):
    """Of all ranks: few bits, so that sums and products are exact; some nan where the dtype has it."""
    every = draw.integers(1, 3, (P, count)).astype(dtype)
    if every.dtype.kind == "f" and count and draw.random() < 0.3:
        every[draw.integers(P), draw.integers(count)] = np.nan
    return every


def placed(array, draw):
    """The same in memory of its own, or as a view into some that is larger."""
    before = int(draw.integers(0, 5))
    room = np.zeros(array.size + before + 3, array.dtype)
    view = room[before : before + array.size]
    view[...] = array
    return view if before else array.copy()


def sizes_of(draw, count):
    """The sizes of blocks, and how they are asked for."""
    cuts = np.sort(draw.integers(0, count + 1, P - 1))
    sizes = np.diff(np.concatenate([[0], cuts, [count]]))
    return sizes


def same(ours, expected, what):
    """The bits, on every rank."""
    assert ours.dtype == expected.dtype, (RANK, what)
    assert np.array_equal(ours, expected, equal_nan=ours.dtype.kind in "fc"), (RANK, what, ours, expected)


def one(draw, mesh):
    """One call."""
    operation, dtype = str(draw.choice(OPERATIONS)), np.dtype(str(draw.choice(DTYPES)))
    count = int(draw.choice([0, 1, 2, P, 7, 37, 1003, 20_011]))
    known = ["auto", *ALGORITHMS[operation]]
    known += (
        ["ordered", "mpi"] if operation == "all_reduce" else ["ordered"] * (operation in ("reduce", "reduce_scatter"))
    )
    op = str(draw.choice(["sum", "prod"] if dtype.kind == "c" else list(UFUNCS)))
    sizes, root = sizes_of(draw, count), int(draw.integers(P))
    own = slice(int(sizes[:RANK].sum()), int(sizes[: RANK + 1].sum()))
    node = NODE_ALGORITHMS.get(operation, ())
    in_node = P > 1 and "staged" in node and not (dtype.kind == "c" and op == "prod")
    algorithm = str(draw.choice(known + ["staged"] * (in_node and operation != "all_to_all")))
    every = values(draw, count, dtype)
    mine, what = placed(every[RANK], draw), (operation, algorithm, dtype.name, count, op, root, sizes.tolist())
    total = every[0].astype("f4") if dtype == np.float16 else every[0].copy()
    for rank in range(1, P):
        total = UFUNCS[op](total, every[rank].astype(total.dtype))
    total = total.astype(dtype)
    if operation == "all_reduce":
        same(hp.all_reduce(mine, mesh, op, algorithm).wait(), total, what)
    elif operation == "reduce":
        hp.reduce(mine, mesh, op, root, algorithm).wait()
        same(mine, total if root == RANK else every[RANK], what)
    elif operation == "reduce_scatter":
        out = np.empty(sizes[RANK], dtype) if draw.random() < 0.5 else None
        same(hp.reduce_scatter(mine, mesh, op, out, algorithm, counts=sizes).wait(), total[own], what)
    elif operation == "broadcast":
        same(hp.broadcast(mine, mesh, root, algorithm).wait(), every[root], what)
    elif operation == "all_gather":
        whole = np.zeros(count, dtype)
        whole[own] = every[0][own]
        block = whole[own] if draw.random() < 0.5 else placed(every[0][own], draw)
        same(hp.all_gather(block, mesh, whole, algorithm, counts=sizes).wait(), every[0], what)
    elif operation == "gather":
        got = hp.gather(placed(every[0][own], draw), mesh, None, root, algorithm, counts=sizes).wait()
        assert (got is None) == (root != RANK)
        if got is not None:
            same(got, every[0], what)
    elif operation == "scatter":
        out = np.empty(sizes[RANK], dtype)
        hp.scatter(mine if root == RANK else None, mesh, out, root, algorithm, counts=sizes).wait()
        same(out, every[root][own], what)
    else:
        matrix = draw.integers(0, 1 + count // P, (P, P))
        sent = [np.full(matrix[RANK, q], (10 * RANK + q) % 100, dtype) for q in range(P)]
        taken = [np.full(matrix[q, RANK], (10 * q + RANK) % 100, dtype) for q in range(P)]
        counts = matrix if draw.random() < 0.5 else matrix[RANK]
        got = hp.all_to_all(np.concatenate(sent), mesh, None, algorithm, counts=counts).wait()
        same(got, np.concatenate(taken), what)


def main():
    draw = np.random.default_rng(int(sys.argv[2]))
    with hp.Mesh(COMM, dp=0) as mesh:
        for _ in range(int(sys.argv[1])):
            one(np.random.default_rng(draw.integers(2**60)), mesh["dp"])
    hp.print_root(f"{sys.argv[1]} calls good")


if __name__ == "__main__":
    main()
