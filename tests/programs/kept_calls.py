"""Calls in shared memory that an axis keeps for buffers that come again: what may change between two calls, by name."""

from __future__ import annotations

import contextlib
import gc
import itertools
import weakref

import numpy as np
from checks import run_checks
from mpi4py import MPI

import hpckit as hp
from hpckit.collectives import node
from hpckit.collectives.axis import axis_of
from hpckit.collectives.table import Entry
from hpckit.comm.observe.observer import Listener
from hpckit.comm.shared.compiled import constants as c
from hpckit.errors import InputError, MismatchError, RankLostError, StallError
from hpckit.plan.blocks import block

COMM = MPI.COMM_WORLD
P, RANK = COMM.size, COMM.rank
LARGE = 50_001  # elements whose buffers are known weakly


def given(count, dtype, turn, rank=RANK):
    """Whole numbers that say whose they are, and when; few bits, so that sums are exact."""
    return ((np.arange(count) * 3 + rank * 5 + turn * 7) % 11 + 1).astype(dtype)


def even(count):
    return np.array([block(count, P, rank)[1] for rank in range(P)])


def own_of(sizes):
    begin = int(sizes[:RANK].sum())
    return slice(begin, begin + int(sizes[RANK]))


def same(ours, expected, what):
    assert ours.dtype == expected.dtype, (RANK, what)
    assert np.array_equal(ours, expected), (RANK, what, ours, expected)


def refused(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), (text, str(error))
    else:
        raise AssertionError(f"not refused: {text}")


def test_the_same_buffers_again_hold_what_they_must():
    for count, dtype in itertools.product(
        (0, 1, 7, 1003, LARGE), (np.float32, np.float64, np.int16, np.uint8, np.complex64, "M8[s]", bool)
    ):
        sizes = even(count)
        own, dtype = own_of(sizes), np.dtype(dtype)
        x, whole, part = np.empty(count, dtype), np.empty(count, dtype), np.empty(sizes[RANK], dtype)
        sent = np.full(P, count)
        blocks, taken = np.empty(P * count, dtype), np.empty(P * count, dtype)
        for turn in range(4):
            root = turn % P
            x[...] = given(count, dtype, turn)
            assert hp.broadcast(x, COMM, root).wait() is x
            same(x, given(count, dtype, turn, root), "broadcast")
            part[...] = x[own]
            whole[...] = given(count, dtype, 99)
            assert hp.all_gather(part, COMM, whole).wait() is whole
            same(whole, given(count, dtype, turn, root), "all_gather")
            for rank in range(P):
                blocks[rank * count : (rank + 1) * count] = given(count, dtype, turn + rank)
            assert hp.all_to_all(blocks, COMM, taken, counts=np.tile(sent, (P, 1))).wait() is taken
            expected = [given(count, dtype, turn + RANK, rank) for rank in range(P)]
            same(taken, np.concatenate(expected), "all_to_all")
            if dtype.kind in "Mb":
                continue
            x[...] = given(count, dtype, turn)
            total = sum(given(count, dtype, turn, rank).astype(object) for rank in range(P))
            assert hp.reduce_scatter(x, COMM, "sum", part).wait() is part
            same(part, total[own].astype(dtype), "reduce_scatter")
            same(x, given(count, dtype, turn), "reduce_scatter keeps its input")
            view = hp.reduce_scatter(x, COMM, "sum").wait()
            same(view, total[own].astype(dtype), "reduce_scatter in place")
            assert count < P or np.shares_memory(view, x)


def test_what_else_is_given_tells_calls_apart():
    """The same buffer with another result, other counts, roots, ways to combine, axes, algorithms."""
    for count in (12, LARGE):
        x, outs = np.empty(count), [np.empty(count), np.empty(count)]
        first = np.zeros(P, int)
        first[0] = count
        ways = [even(count), first, first[::-1].copy()]
        half = COMM.Split(RANK % 2, RANK)
        draw = np.random.default_rng(count)  # the same on all ranks
        for turn in range(60):
            which, sizes = draw.integers(2), ways[draw.integers(3)]
            own = own_of(sizes)
            out, root = outs[which], int(draw.integers(P))
            algorithm = ("auto", "staged")[draw.integers(2)] if P > 1 else "auto"
            kind = draw.integers(4)
            x[...] = given(count, float, turn)
            every = [given(count, float, turn, rank) for rank in range(P)]
            if kind == 0:
                side = given(count, float, turn, RANK % 2)
                same(hp.broadcast(x, half).wait(), side, "broadcast on another axis")
                x[...] = every[RANK]
                same(hp.broadcast(x, COMM, root, algorithm).wait(), every[root], "broadcast")
            elif kind == 1:
                op = ("sum", "max")[draw.integers(2)]
                wanted = (np.sum if op == "sum" else np.max)(every, 0)[own]
                target = out[own] if which else None
                same(hp.reduce_scatter(x, COMM, op, target, algorithm, counts=sizes).wait(), wanted, op)
            elif kind == 2:
                parts = [every[rank][int(sizes[:rank].sum()) :][: sizes[rank]] for rank in range(P)]
                same(
                    hp.all_gather(x[own], COMM, out, algorithm, counts=sizes).wait(),
                    np.concatenate(parts),
                    "all_gather",
                )
            else:
                hp.all_reduce(x, half).wait()
                hp.all_reduce(x, COMM, "max").wait()
                of = [sum(every[rank] for rank in range(side, P, 2)) for side in range(min(P, 2))]
                same(x, np.max(of, 0), "all_reduce on two axes")
        half.Free()


def test_arrays_that_come_and_go_at_one_address():
    for size in (3, 5, 4, LARGE, LARGE, LARGE - 1, 3):
        for turn in range(3):
            x, out = given(size, float, turn), np.empty(P * size)
            hp.broadcast(x, COMM, P - 1).wait()
            same(x, given(size, float, turn, P - 1), "come and go")
            hp.all_gather(x, COMM, out).wait()
            same(out, np.tile(x, P), "come and go")
            del x, out


def test_an_array_that_is_not_what_it_was():
    """Its dtype, and whether it may be written to, can be changed in place; its size cannot, while a call is kept."""
    if P == 1:
        return
    for count in (8, 2 * LARGE):
        for call in (
            lambda x: hp.all_reduce(x, COMM),
            lambda x: hp.reduce_scatter(x, COMM, counts=[x.size] + [0] * (P - 1)),
        ):
            x = np.full(count, 2**62, np.int64) // P
            call(x).wait()
            x.dtype = np.float64
            x[...] = RANK + 0.5
            call(x).wait()
            assert RANK or (x == P * P / 2).all(), x
        x, out = np.ones(count), np.ones(count * P)
        for _ in range(2):
            hp.broadcast(x, COMM).wait()
            hp.all_gather(x, COMM, out).wait()
        x.flags.writeable = out.flags.writeable = False
        if RANK:
            refused(InputError, "cannot be written", lambda x=x: hp.broadcast(x, COMM))
        refused(InputError, "cannot be written", lambda x=x, out=out: hp.all_gather(x, COMM, out))
        refused(InputError, "cannot be written", lambda x=x: hp.reduce_scatter(x, COMM))
        x.flags.writeable = True
        hp.broadcast(x, COMM).wait()
        with contextlib.suppress(ValueError):
            x.resize(3, refcheck=False)
        hp.broadcast(x, COMM).wait()


def test_no_large_memory_is_kept_alive():
    large, parent, out = np.empty(LARGE), np.empty(LARGE), np.empty(P * LARGE)
    known = [weakref.ref(array) for array in (large, parent, out)]
    for _ in range(2):
        hp.all_gather(large, COMM, out).wait()
        hp.broadcast(parent[:3], COMM).wait()
        hp.all_reduce(parent[:5], COMM).wait()
        view = parent[5:9]
        hp.reduce_scatter(view, COMM).wait()
    del large, parent, out, view
    assert [one() is None for one in known] == [True] * 3


def test_a_work_keeps_its_buffers():
    """Those of a large one, that the caller lets go while it is under way."""
    whole = np.empty(P * LARGE)
    for _ in range(2):
        block = given(LARGE, float, 5)
        begun = hp.all_gather(block, COMM, whole)
        del block
        filler = [np.full(LARGE, -1.0) for _ in range(4)]
        begun.wait()
        same(whole, np.concatenate([given(LARGE, float, 5, rank) for rank in range(P)]), "let go")
        del filler


def test_only_so_many_are_kept_and_none_of_a_freed_communicator():
    line = COMM.Dup()
    buffers = [np.full(4 + i, float(RANK + i)) for i in range(2 * node.MOST)]
    for turn in range(2):
        for i, x in enumerate(buffers):
            x[...] = RANK + i + turn
            hp.broadcast(x, line).wait()
            assert (x == i + turn).all()
    calls = axis_of(line).calls
    assert len(calls) <= node.MOST
    assert P == 1 or len(calls) > 1
    known = weakref.ref(axis_of(line))
    del calls
    line.Free()
    with hp.Mesh(COMM, dp=0) as mesh:
        axis = mesh["dp"]
        hp.broadcast(buffers[0], axis).wait()
        hp.all_reduce(buffers[0], axis).wait()
    gc.collect()
    assert known() is None
    refused(InputError, "not on COMM_NULL", lambda: hp.all_reduce(buffers[0], axis))
    with hp.Mesh(COMM, dp=0) as mesh:
        x = buffers[0]
        x[...] = RANK + 3
        same(hp.broadcast(x, mesh["dp"], P - 1).wait(), np.full(4, P + 2.0), "a new mesh")


def test_symmetric_buffers_beside_private_ones():
    """Of one size and dtype: each is reduced where it is, and memory that takes the place of a freed one is private."""
    for count in (5, 3000):
        shared = [hp.empty_shared(COMM, count).array for _ in range(2)]
        every = [*shared, np.empty(count), np.empty(count)]
        for turn in range(4):
            for x in every:
                x[...] = given(count, float, turn)
                total = sum(given(count, float, turn, rank) for rank in range(P))
                same(hp.all_reduce(x, COMM).wait(), total, "symmetric and private")
        del x, every, shared
        gc.collect()
        for turn in range(4):
            y = np.empty((count + 4095) // 4096 * 4096)[:count]
            y[...] = given(count, float, turn)
            same(hp.all_reduce(y, COMM).wait(), sum(given(count, float, turn, r) for r in range(P)), "after symmetric")


def test_requests_that_a_program_keeps():
    for count in (0, 3, LARGE):
        sizes = even(count)
        own = own_of(sizes)
        x, y, whole, part = np.empty(count), np.empty(count), np.empty(count), np.empty(sizes[RANK])
        blocks, taken = np.empty(P * count), np.empty(P * count)
        requests = [
            hp.all_reduce_init(x, COMM),
            hp.all_reduce_init(y, COMM, "average", "ring", weight=1.0),
            hp.all_gather_init(part, COMM, whole),
            hp.all_to_all_init(blocks, COMM, taken),
            hp.broadcast_init(part if RANK == 0 else np.empty(sizes[0]), COMM),
        ]
        scattered = hp.reduce_scatter_init(x, COMM)
        for turn in range(3):
            x[...] = given(count, float, turn)
            y[...] = x
            part[...] = x[own]
            for rank in range(P):
                blocks[rank * count : (rank + 1) * count] = given(count, float, turn + rank)
            for request in requests:
                assert request.start() is request
            results = [requests[i].wait() for i in np.random.default_rng(RANK + turn).permutation(5)]
            assert len(results) == 5
            total = sum(given(count, float, turn, rank) for rank in range(P))
            same(x, total, "all_reduce_init")
            same(y, total / P, "all_reduce_init by messages")
            every = [given(count, float, turn, rank)[int(sizes[:rank].sum()) :][: sizes[rank]] for rank in range(P)]
            same(whole, np.concatenate(every), "all_gather_init")
            same(
                taken, np.concatenate([given(count, float, turn + RANK, rank) for rank in range(P)]), "all_to_all_init"
            )
            same(requests[4].wait(), every[0], "broadcast_init")
            same(scattered.start().wait(), P * total[own], "reduce_scatter_init")
    refused(InputError, "not started", hp.all_reduce_init(x, COMM).wait)
    begun = hp.all_reduce_init(x, COMM, algorithm="ring").start() if P > 1 else None
    if begun is not None and not begun.done:
        refused(InputError, "under way", begun.start)
    if begun is not None:
        begun.wait()


def test_many_in_flight_in_any_order():
    for count, turn in itertools.product((5, LARGE), range(6)):
        x, y = given(count, float, turn), given(count, float, turn + 1)
        whole, taken, part = np.empty(P * count), np.empty(P * count), np.empty(even(count)[RANK])
        blocks = np.concatenate([given(count, float, turn + rank) for rank in range(P)])
        total = sum(given(count, float, turn + 1, rank) for rank in range(P))
        works = [
            hp.all_gather(x, COMM, whole),
            hp.all_to_all(blocks, COMM, taken),
            hp.all_reduce(y.copy(), COMM, algorithm="ring"),
            hp.reduce_scatter(y, COMM, "sum", part),
            hp.broadcast(x, COMM, P - 1),
            hp.broadcast(x, COMM, 0),
        ]
        for i in np.random.default_rng(RANK * 100 + turn).permutation(len(works)):
            works[i].wait()
        assert not axis_of(COMM).progress.runs
        same(whole, np.concatenate([given(count, float, turn, rank) for rank in range(P)]), "gathered in flight")
        same(taken, np.concatenate([given(count, float, turn + RANK, rank) for rank in range(P)]), "in flight")
        same(works[2].wait(), total, "reduced in flight")
        same(part, total[own_of(even(count))], "scattered in flight")
        same(x, given(count, float, turn, P - 1), "broadcast in flight")


def test_results_that_lie_over_what_is_sent():
    """In the place of the own block, as it may be, and elsewhere."""
    for count in (3, LARGE):
        total = sum(given(P * count, float, 1, rank) for rank in range(P))
        for begin, turn in itertools.product((0, count * RANK, count * (P - 1)), range(2)):
            x = given(P * count, float, 1)
            out = x[begin : begin + count]
            hp.reduce_scatter(x, COMM, "sum", out).wait()
            same(out, total[count * RANK : count * (RANK + 1)], ("reduce_scatter", begin, turn))
            whole = np.zeros(P * count)
            block = whole[begin : begin + count]
            for turn in range(2):
                whole[...] = -1
                block[...] = given(count, float, turn)
                hp.all_gather(block, COMM, whole).wait()
                same(whole, np.concatenate([given(count, float, turn, rank) for rank in range(P)]), "all_gather")


def test_all_ranks_choose_alike():
    """By sizes that all ranks know: what one rank sends to the others may be more than what another one does."""
    axis = axis_of(COMM)
    shipped, axis.table = (
        axis.table,
        (Entry("all_to_all", 2, "node", "host", ((800, ("staged",)), (None, ("pairwise",)))),),
    )
    try:
        for scale in (10, 100, 1000):
            matrix = np.outer(np.arange(P) * scale, np.ones(P, int))
            sent = np.full(matrix[RANK].sum(), float(RANK))
            taken = hp.all_to_all(sent, COMM, counts=matrix).wait()
            same(taken, np.repeat(np.arange(P, dtype=float), np.arange(P) * scale), "all_to_all")
    finally:
        axis.table = shipped


def test_wrong_sizes_are_told_by_a_kept_call_too():
    if P == 1:
        return
    line = COMM.Dup()
    x = np.ones(6 * P)
    y, out = np.ones(4 * P), np.ones(6 * P)
    for _ in range(2):
        hp.broadcast(x, line).wait()
        hp.all_to_all(x, line, out).wait()
        hp.broadcast(y, line).wait()
    refused(MismatchError, "rank 0 called broadcast", lambda: hp.broadcast(x if RANK else y, line).wait())
    refused(
        MismatchError,
        "rank 0 called broadcast",
        lambda: (hp.all_to_all(x, line, out) if RANK else hp.broadcast(x, line)).wait(),
    )
    matrix = np.full((P, P), 6)
    hp.all_to_all(x, line, out, counts=matrix).wait()
    refused(InputError, "counts", lambda: hp.all_to_all(x, line, out, counts=matrix.reshape(-1)))
    assert not axis_of(COMM).progress.runs
    same(hp.broadcast(x, line).wait(), np.ones(6 * P), "after a refusal")
    line.Free()


def test_a_call_that_is_observed_is_heard_of():
    class Heard(Listener):
        def __init__(self):
            self.heard = []

        def begun(self, operation):
            self.heard.append((operation.name[0], operation.count, operation.root))

        def ended(self, operation, note, result, waited):
            self.heard.append(operation.name[0])

    x, out, listener = np.ones(5), np.ones(5 * P), Heard()
    for turn in range(3):
        if turn == 1:
            axis_of(COMM).observer.listen(listener)
        hp.all_gather(x, COMM, out).wait()
        hp.broadcast(x, COMM).wait()
        hp.all_reduce(x, COMM, algorithm="ring").wait()
        if turn == 1:
            axis_of(COMM).observer.forget(listener)
    told = [("all_gather", -1, -1), "all_gather", ("broadcast", 5, 0), "broadcast", ("all_reduce", 5, -1), "all_reduce"]
    assert listener.heard == told


def test_a_rank_that_does_not_come_or_is_gone_is_told():
    if P == 1:
        return
    for trouble, count in itertools.product((StallError, RankLostError), (3, LARGE)):
        line = COMM.Dup()
        group = axis_of(line).group
        x = np.ones(count)
        for _ in range(2):
            hp.broadcast(x, line).wait()
        COMM.Barrier()
        if RANK == 0:
            if trouble is StallError:
                group.deadline = 0.3
            else:
                start = int(group.record[c.PROCESSES]) - group._segment.address
                group._segment.memory[start:][: 8 * P].view(np.int64)[P - 1] = 2**22 + 1  # more than there ever are
            refused(
                trouble,
                f"rank {P - 1}" if trouble is RankLostError else "did not come",
                lambda x=x, line=line: hp.broadcast(x, line).wait(),
            )
            assert not axis_of(COMM).progress.runs
        COMM.Barrier()
        line.Free()


if __name__ == "__main__":
    run_checks(globals())
