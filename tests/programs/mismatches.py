"""Calls that differ between ranks, planted on every path: each ends as `MismatchError` on all ranks, and the axis goes
on. At the end, calls that nobody waits for.
"""

from __future__ import annotations

import itertools
import sys

import numpy as np

import hpckit as hp
from hpckit.collectives.axis import axis_of
from hpckit.comm.call_order import MESSAGES, OrderedCall
from hpckit.errors import InputError, MismatchError

COMM = hp.world()
P, RANK = COMM.size, COMM.rank
# Arguments: "all" takes every path, else a few.
EVERY = sys.argv[1:] == ["all"]
PATHS = ("auto", "flat", "staged", "ring", "tree", "mpi", "ordered") if EVERY else ("auto", "ring", "mpi")


def differs(comm, mine, *said):
    """The call of each rank raises on all of them; then the axis can be used."""
    try:
        mine()
    except MismatchError as error:
        assert all(text in str(error) for text in said), str(error)
    else:
        raise AssertionError(f"rank {RANK}: no mismatch was seen, {said}")
    for algorithm in ("ring", "mpi", "auto"):
        x = np.full(5, RANK + 1.0)
        hp.all_reduce(x, comm, algorithm=algorithm).wait()
        assert (x == P * (P + 1) / 2).all(), x


def plant(comm, odd, **options):
    """Each argument in turn is another one on the odd rank."""
    x, y = np.ones(8), np.ones(9)

    def pair(one, other, *said):
        differs(comm, other if odd == RANK else one, *said)

    for path in PATHS:
        reduce = lambda x, op="sum", path=path: hp.all_reduce(x, comm, op, path).wait()  # noqa: E731
        pair(lambda f=reduce: f(x), lambda f=reduce: f(x.astype("f4")), "float64", "float32")
        pair(lambda f=reduce: f(x), lambda f=reduce: f(y), "of 8", "of 9")
        pair(lambda f=reduce: f(x), lambda f=reduce: f(x, "max"), "sum", "max")
        pair(lambda f=reduce: f(x), lambda: hp.broadcast(x, comm).wait(), "all_reduce", "broadcast")
    for one, other in itertools.permutations(
        ("flat", "staged", "ring", "tree", "mpi") if EVERY else ("flat", "ring"), 2
    ):
        pair(
            lambda name=one: hp.all_reduce(x, comm, algorithm=name).wait(),
            lambda name=other: hp.all_reduce(x, comm, algorithm=name).wait(),
            one,
            other,
        )
    for path in ("staged", "tree", "naive"):
        pair(lambda p=path: hp.broadcast(x, comm, 0, p).wait(), lambda p=path: hp.broadcast(x, comm, 1, p).wait())
        pair(lambda p=path: hp.broadcast(x, comm, 0, p).wait(), lambda p=path: hp.broadcast(y, comm, 0, p).wait())
    for operation in (hp.reduce, hp.gather):
        pair(lambda f=operation: f(x, comm, root=0).wait(), lambda f=operation: f(x, comm, root=1).wait(), "root 1")
    out = np.ones(8)
    pair(lambda: hp.scatter(x, comm, out, 0).wait(), lambda: hp.scatter(x, comm, out, 1).wait(), "root 0")
    whole, even, skewed = np.ones(4 * P), [4] * P, [4] * P
    skewed[odd], skewed[(odd + 1) % P] = 3, 5
    for path in ("staged", "ring"):

        def scattered(counts, path=path):
            return hp.reduce_scatter(whole.copy(), comm, "sum", None, path, counts=counts).wait()

        pair(lambda f=scattered: f(even), lambda f=scattered: f(skewed))

        def gathered(counts, path=path):
            return hp.all_gather(np.ones(counts[RANK]), comm, whole, path, counts=counts).wait()

        pair(lambda f=gathered: f(even), lambda f=gathered: f(skewed))
    exchanged(comm, odd)


def exchanged(comm, odd):
    """All-to-all with counts: a matrix that differs, also between calls that were compared before; one kind of counts
    on some ranks and another on others; an `out` that is too small, which fails on its rank alone.
    """
    square = np.full((P, P), 2)
    more = square + np.eye(P, dtype=int)[odd][:, None] * np.eye(P, dtype=int)[(odd + 1) % P]

    def call(counts, path="ring", size=None):
        sent = (
            np.asarray(counts)[RANK].sum() if np.ndim(counts) == 2 else np.sum(counts) if counts is not None else 2 * P
        )
        out = None if size is None else np.zeros(size)
        return hp.all_to_all(np.full(sent, RANK + 1.0), comm, out, path, counts=counts).wait()

    for path in ("pairwise", "staged"):
        for _ in range(3):  # new, then known
            differs(
                comm,
                lambda p=path: call(
                    more if odd == RANK else square, p, size=(more if odd == RANK else square)[:, RANK].sum()
                ),
                "all_to_all",
            )
            for counts in (square, more):
                expected = np.repeat(np.arange(P) + 1.0, counts[:, RANK])
                assert np.array_equal(call(counts, path, counts[:, RANK].sum()), expected)
    differs(comm, lambda: call([2] * P if odd == RANK else square, "pairwise"), "all_to_all")
    differs(comm, lambda: call(None if odd == RANK else square, "pairwise"), "all_to_all")
    for odds in (3, 1):
        try:
            got = call([odds] * P, "pairwise", 2 * P if odd == RANK else odds * P)
        except InputError as error:
            assert odd == RANK, error
            assert str(odds * P) in str(error), error
        else:
            assert odd != RANK
            assert np.array_equal(got, np.repeat(np.arange(P) + 1.0, odds))
    x = np.full(5, RANK + 1.0)
    hp.all_reduce(x, comm, algorithm="ring").wait()
    assert (x == P * (P + 1) / 2).all(), x


def kept_and_new(comm, odd):
    """A call that was compared before meets another one: by messages, in shared memory, as a request that is kept."""
    x, y = np.ones(8), np.ones(9)
    kept = {path: hp.all_reduce_init(x, comm, algorithm=path) for path in ("ring", "tree", "flat", *["staged"] * EVERY)}
    for request in kept.values():
        for _ in range(2):
            request.start().wait()
    for request in kept.values():
        for other in ("ring", "flat"):
            differs(
                comm,
                (lambda: hp.all_reduce(y, comm, algorithm=other).wait())  # noqa: B023
                if odd == RANK
                else lambda: request.start().wait(),  # noqa: B023
                "of 8",
                "of 9",
            )
            request.start().wait()
    differs(comm, lambda: kept["ring" if odd == RANK else "tree"].start().wait(), "ring", "tree")
    differs(comm, lambda: kept["ring" if odd == RANK else "flat"].start().wait(), "ring", "flat")
    # Of other sizes, both known: neither takes the messages of the other.
    for path in ("ring", "tree"):
        sizes = {n: hp.all_reduce_init(np.zeros(n * P), comm, algorithm=path) for n in (3, 4)}
        for request in sizes.values():
            request.start().wait()
        differs(comm, lambda: sizes[3 + (odd == RANK)].start().wait(), f"of {3 * P}", f"of {4 * P}")  # noqa: B023
        ops = [hp.all_reduce_init(np.zeros(3 * P), comm, op, path) for op in ("sum", "max")]
        for request in ops:
            request.start().wait()
        differs(comm, lambda: ops[odd == RANK].start().wait(), "sum", "max")  # noqa: B023


def by_library(comm, odd):
    """Calls of the MPI library, all compared before, in another order: of one length, of two, and more of them than
    there are communicators for; then in the right order, with the right numbers.
    """

    def calls():
        made = {}
        for op in ("sum", "max", "average"):
            for n in (8, 9, 10, 11):
                x = np.empty(n)
                made[op, n] = x, hp.all_reduce_init(x, comm, op, "mpi", weight=1.0 if op == "average" else None)
        return made

    def right(made):
        for (op, n), (x, request) in made.items():
            x[...] = RANK + 1.0
            request.start().wait()
            expected = {"sum": P * (P + 1) / 2, "max": P, "average": (P + 1) / 2}[op]
            assert np.array_equal(x, np.full(n, expected)), (op, n, x)

    made = calls()
    for one, other in ((("sum", 8), ("max", 8)), (("sum", 8), ("sum", 11)), (("average", 8), ("max", 10))):
        for _ in range(2):
            right(made)
        differs(comm, lambda: made[other if odd == RANK else one][1].start().wait(), *map(str, (one[0], other[0])))  # noqa: B023
    right(made)
    # Several under way: none of them comes to anything.
    keys = list(made) if odd == RANK else list(made)[::-1]
    differs(comm, lambda: [each.wait() for each in [made[key][1].start() for key in keys]])


def notes_that_nobody_heard(odd):
    """A mesh is closed while notes of a rank that waited are on their way: the next communicators, of the same numbers,
    do not get them.
    """
    for spare in range(8):
        with hp.Mesh(COMM, dp=0, tp=1) as mesh:
            order = axis_of(mesh["dp"]).order
            axis_of(mesh["tp"])
            if odd == RANK:
                order._tell(OrderedCall(MESSAGES, 1, 0, 0, 7), [rank for rank in range(P) if rank != odd])
        comms = [COMM.Dup() for _ in range(spare + 1)]
        COMM.Barrier()
        assert not [comm for comm in comms if comm.Iprobe()], "a message that was not sent to it"
        assert COMM.allreduce(RANK) == P * (P - 1) // 2
        for comm in comms:
            comm.Free()


def checked(comm, odd):
    """With a watch that compares, every call, before its first message leaves."""
    x = np.ones(8)
    with hp.Watch(COMM, limit=60, check=True):
        requests = [hp.all_reduce_init(x, comm, op, "tree") for op in ("sum", "max")]
        for request in requests:
            request.start().wait()
        differs(comm, lambda: requests[odd == RANK].start().wait(), "sum", "max")
        x, one, other = np.ones(4 * P), [4] * P, [4] * P
        other[0], other[1] = 3, 5
        cut = [hp.reduce_scatter_init(x, comm, "sum", None, "ring", counts=counts) for counts in (one, other)]
        for request in cut:
            request.start().wait()
        differs(comm, lambda: cut[odd == RANK].start().wait())
        if EVERY:
            plant(comm, odd)


def main():
    with hp.Mesh(COMM, dp=0) as mesh:
        for odd in {0, P - 1} if EVERY else {P - 1}:
            plant(mesh["dp"], odd)
            kept_and_new(mesh["dp"], odd)
            by_library(mesh["dp"], odd)
        checked(mesh["dp"], P - 1)
    notes_that_nobody_heard(P - 1)
    hp.print_root("all good")


if __name__ == "__main__":
    main()
