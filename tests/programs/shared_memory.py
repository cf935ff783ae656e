"""Collectives on shared memory against the reduction in NumPy, on any number of ranks of a node."""

from __future__ import annotations

import gc
import os
import tempfile
import time
import weakref

import numpy as np
from checks import run_checks
from mpi4py import MPI

from hpckit.comm.shared import memory as segments
from hpckit.comm.shared.calls import barrier, bind, takes
from hpckit.comm.shared.compiled import constants as c
from hpckit.comm.shared.compiled import reference
from hpckit.comm.shared.symmetric import empty_shared, node_group
from hpckit.comm.shared.transport import Largest
from hpckit.errors import InputError, MismatchError, RankLostError, StallError
from hpckit.plan.blocks import block_starts

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size
GROUP = node_group(COMM)
COUNTS = sorted({0, 1, 2, SIZE - 1, SIZE, SIZE + 1, 37, 5003})


def run(group, operation, buffer, second=None, **options):
    """One collective. second: `op` or `root` of those in place, `out` of the others."""
    if second is not None:
        options[{"all_reduce": "op", "broadcast": "root"}.get(operation, "out")] = second
    bind(group, operation, buffer, **options)()


def random_parts(count, dtype, seed=0):
    """What each rank starts with, known to all: sums of these depend on their order."""
    rng = np.random.default_rng([seed, count])
    if np.dtype(dtype).kind in "iu":
        return [rng.integers(0, 1000, count).astype(dtype) for _ in range(SIZE)]
    return [(rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)).astype(dtype) for _ in range(SIZE)]


def place(algorithm, values):
    """The values in a buffer of the kind that the algorithm takes."""
    if algorithm != "symmetric":
        return values.copy()
    array = empty_shared(COMM, values.shape, values.dtype).array
    array[...] = values
    return array


def test_all_reduce_in_the_order_of_the_ranks():
    cases = [("float32", "sum"), ("float64", "max"), ("float16", "mean"), ("int32", "sum")]
    for (dtype, op), count in ((case, count) for case in cases for count in (*COUNTS, 80_021)):
        parts = random_parts(count, dtype)
        expected = reference.fold(parts, op)
        for algorithm in ("flat", "staged", "symmetric", "direct"):
            if algorithm == "direct" and not GROUP.reads:
                continue
            if not takes(GROUP, "all_reduce", algorithm, dtype, parts[0].nbytes) and algorithm == "flat":
                continue
            array = place(algorithm, parts[RANK])
            call = bind(GROUP, "all_reduce", array, op=op, algorithm=algorithm)
            for _ in range(2):
                array[...] = parts[RANK]
                barrier(GROUP)
                call()
                assert array.tobytes() == expected.tobytes(), (dtype, op, count, algorithm)
                barrier(GROUP)


def test_cutting_does_not_change_a_bit():
    parts = random_parts(30_011, "float32", 3)
    expected = reference.fold(parts, "sum")
    whole = int(GROUP.record[c.STAGE_BYTES])
    for stage in (256, 1024, 20_480, whole):
        GROUP.record[c.STAGE_BYTES] = stage
        array = parts[RANK].copy()
        run(GROUP, "all_reduce", array, algorithm="staged")
        assert array.tobytes() == expected.tobytes(), stage
        if stage >= 8 * SIZE:
            starts = block_starts(array.size, SIZE)
            out = np.empty(starts[RANK + 1] - starts[RANK], np.float32)
            run(GROUP, "reduce_scatter", parts[RANK], out)
            assert out.tobytes() == expected[starts[RANK] : starts[RANK + 1]].tobytes(), stage
    GROUP.record[c.STAGE_BYTES] = whole


def test_average_bfloat16_complex_and_truth():
    weights = np.arange(SIZE) + 0.5
    bits = [(part.view(np.uint32) >> 16).astype(np.uint16) for part in random_parts(131, "float32")]
    mine = bits[RANK].copy()
    run(GROUP, "all_reduce", mine, "average", kind="bfloat16", weight=weights[RANK])
    expected = reference.fold(bits, "average", weights / weights.cumsum()[-1], "bfloat16")
    assert np.array_equal(mine, expected)
    array = random_parts(5, "float64")[RANK] * (1 + 2j)
    run(GROUP, "all_reduce", array)
    assert np.array_equal(array, reference.fold(random_parts(5, "float64"), "sum") * (1 + 2j))
    some = np.array([RANK == 0, False, True])
    run(GROUP, "all_reduce", some, "max")
    assert some.tolist() == [True, False, True]
    refused(InputError, "not above 0", lambda: run(GROUP, "all_reduce", np.ones(3), "average", weight=0.0))


def test_views_and_dropped_buffers_stay_symmetric():
    array = empty_shared(COMM, (SIZE + 2, 50), np.float32).array  # the SharedBuffer itself is gone
    gc.collect()
    parts = random_parts(50, "float32", 5)
    row = array[RANK + 1]  # at another offset on each rank
    row[:] = parts[RANK]
    run(GROUP, "all_reduce", row, algorithm="symmetric")
    assert np.array_equal(row, reference.fold(parts, "sum"))
    assert not array[: RANK + 1].any()
    assert not array[RANK + 2 :].any()
    buffer = empty_shared(COMM, 3, np.int64)
    buffer.array[:] = RANK
    barrier(GROUP)
    assert [int(part[1]) for part in buffer.parts] == list(range(SIZE))
    barrier(GROUP)
    where = buffer.array.ctypes.data
    memory = weakref.ref(buffer)
    del buffer
    gc.collect()
    assert memory() is None
    assert where not in GROUP.places._places
    assert GROUP.record[c.PLACE_COUNT] == len(GROUP.places._places)


def test_movement():
    for count, dtype in ((count, dtype) for count in COUNTS for dtype in ("float32", "int16")):
        parts = random_parts(count, dtype, 7)
        sizes = np.diff(block_starts(count, SIZE))
        uneven = np.roll(np.r_[count, np.zeros(SIZE - 1, int)], 1)  # everything is one rank's
        for algorithm in ("staged", "symmetric"):
            for counts in (sizes, uneven):
                move(parts, counts, algorithm)
            array = place(algorithm, parts[RANK])
            run(GROUP, "broadcast", array, SIZE - 1, algorithm=algorithm)
            assert np.array_equal(array, parts[SIZE - 1])
            barrier(GROUP)


def move(parts, counts, algorithm):
    """Reduce-scatter, all-gather and all-to-all of blocks of the sizes `counts`."""
    starts = np.r_[0, np.cumsum(counts)]
    own = slice(starts[RANK], starts[RANK + 1])
    options = {"algorithm": algorithm, "counts": counts}
    array = place(algorithm, parts[RANK])
    out = np.full(counts[RANK], 99, array.dtype)
    run(GROUP, "reduce_scatter", array, out, **options)
    assert np.array_equal(out, reference.fold(parts, "sum")[own])
    gathered = np.full_like(array, 99)
    run(GROUP, "all_gather", array[own], gathered, **options)
    expected = np.concatenate([part[a:b] for part, a, b in zip(parts, starts[:-1], starts[1:], strict=True)])
    assert np.array_equal(gathered, expected)
    # what rank q sends to this one: its block of the number of this rank
    taken = np.full(SIZE * counts[RANK], 99, array.dtype)
    run(GROUP, "all_to_all", array, taken, **options)
    assert np.array_equal(taken, np.concatenate([part[own] for part in parts]))
    barrier(GROUP)
    run(GROUP, "reduce_scatter", array, array[own], **options)  # in place
    assert np.array_equal(array[own], reference.fold(parts, "sum")[own])
    barrier(GROUP)
    run(GROUP, "all_gather", array[own], array, **options)
    assert np.array_equal(array, reference.fold(parts, "sum"))
    barrier(GROUP)


def test_all_to_all_of_blocks_that_differ_by_rank():
    sent = [[(sender + 2 * taker) % 4 for taker in range(SIZE)] for sender in range(SIZE)]
    array = np.concatenate([np.full(n, 10 * RANK + taker, np.int64) for taker, n in enumerate(sent[RANK])])
    taken = [sent[sender][RANK] for sender in range(SIZE)]
    out = np.zeros(sum(taken), np.int64)
    run(GROUP, "all_to_all", array, out, counts=sent[RANK], out_counts=taken)
    assert np.array_equal(out, np.concatenate([np.full(n, 10 * q + RANK, np.int64) for q, n in enumerate(taken)]))
    if SIZE > 1:
        wrong = [n + (RANK == 1 and q == 0) for q, n in enumerate(taken)]
        out = np.zeros(sum(wrong), np.int64)
        refused(
            MismatchError,
            "block sizes",
            lambda: run(GROUP, "all_to_all", array, out, counts=sent[RANK], out_counts=wrong),
        )


def refused(error, text, action):
    """The action raises the error on this rank, with the text in it."""
    try:
        action()
    except error as problem:
        assert text in problem.report(), problem.report()
    else:
        raise AssertionError(f"no {error.__name__}")


def test_refusals():
    values = np.ones(6)
    for text, action in (
        ("no collective", lambda: bind(GROUP, "scan", values)),
        ("no algorithm 'flat'", lambda: run(GROUP, "broadcast", values, algorithm="flat")),
        ("not symmetric", lambda: run(GROUP, "all_reduce", values, algorithm="symmetric")),
        ("C-contiguous", lambda: run(GROUP, "all_reduce", values[::2])),
        ("not a NumPy array", lambda: run(GROUP, "all_reduce", [1.0])),
        ("cannot reduce", lambda: run(GROUP, "all_reduce", np.array(["a"]))),
        ("use sum", lambda: run(GROUP, "all_reduce", np.ones(3, int), "mean")),
        ("up to 65536 bytes", lambda: run(GROUP, "all_reduce", np.ones(10_000), algorithm="flat")),
        ("has 6 elements on rank", lambda: run(GROUP, "all_gather", values, np.ones(5 * SIZE))),
        ("overlap", lambda: run(GROUP, "all_to_all", values[:SIZE], values[:SIZE])),
        ("the root", lambda: run(GROUP, "broadcast", values, root=SIZE)),
        ("above 0", lambda: setattr(GROUP, "deadline", 0)),
    ):
        refused(InputError, text, action)


def test_a_mismatch_is_told_on_every_rank_and_harms_nothing():
    if SIZE == 1:
        return
    odd = RANK == SIZE - 1
    refused(MismatchError, f"rank {SIZE - 1} called", lambda: run(GROUP, "all_reduce", np.ones(5 + odd)))
    refused(
        MismatchError, f"rank {SIZE - 1} called", lambda: run(GROUP, "all_reduce", np.ones(5), "max" if odd else "sum")
    )
    refused(
        MismatchError,
        "rank 0 called barrier",
        lambda: barrier(GROUP) if not RANK else run(GROUP, "all_reduce", np.ones(1)),
    )
    both = [empty_shared(COMM, 5), empty_shared(COMM, 5)]
    refused(
        MismatchError, "different symmetric", lambda: run(GROUP, "all_reduce", both[odd].array, algorithm="symmetric")
    )
    counts = [5, *[1] * (SIZE - 2), 6] if odd else [6, *[1] * (SIZE - 2), 5]
    whole, out = np.ones(SIZE + 9), np.ones(counts[RANK])
    refused(MismatchError, "other sizes of blocks", lambda: run(GROUP, "reduce_scatter", whole, out, counts=counts))
    array = np.array([float(RANK)])
    run(GROUP, "all_reduce", array)
    assert array[0] == SIZE * (SIZE - 1) / 2


def test_a_deadline_names_the_late_rank():
    if SIZE == 1:
        return
    comm = COMM.Dup()
    group = node_group(comm)
    group.deadline = 0.3
    late_rank = SIZE - 1
    if late_rank == RANK:  # comes when the others have given up: were they to wait for it, all would wait for ever
        for rank in range(late_rank):
            COMM.Recv(np.empty(0), rank)
        refused(StallError, "has given up waiting", lambda: run(group, "all_reduce", np.ones(3)))
    else:
        refused(StallError, "", lambda: run(group, "all_reduce", np.ones(3)))
        COMM.Send(np.empty(0), late_rank)
    if RANK == 0 and SIZE == 2:
        refused(StallError, "given up", lambda: barrier(group))
    COMM.Barrier()
    comm.Free()


def test_the_deadline_message():
    if SIZE != 2:
        return
    comm = COMM.Dup()
    group = node_group(comm)
    group.deadline = 0.2
    if RANK == 0:
        refused(StallError, "rank 1 did not come to it within 0.2 s", lambda: run(group, "all_reduce", np.ones(3)))
    COMM.Barrier()
    comm.Free()


def test_a_process_that_is_gone_is_named():
    if SIZE == 1:
        return
    comm = COMM.Dup()
    group = node_group(comm)
    if RANK == 0:
        start = int(group.record[c.PROCESSES])
        known = group._segment.memory[start - group._segment.address :][: 8 * SIZE].view(np.int64)
        known[SIZE - 1] = 2**22 + 1  # more than Linux ever gives to a process
        assert group.deadline == 600
        refused(RankLostError, f"rank {SIZE - 1} is gone", lambda: run(group, "all_reduce", np.ones(70_000)))
    COMM.Barrier()
    comm.Free()


def test_attempts_do_not_wait_and_lose_nothing():
    comm = COMM.Dup()
    group = node_group(comm)
    parts = random_parts(40, "float32", 9)
    array = parts[RANK].copy()
    call = bind(group, "all_reduce", array)
    if RANK == SIZE - 1:
        COMM.Barrier()  # the others have tried in vain
        assert call.attempt() or SIZE > 1
    else:
        assert not any([call.attempt() for _ in range(20)])
        assert np.array_equal(array, parts[RANK])
        COMM.Barrier()
    while not np.array_equal(array, reference.fold(parts, "sum")):
        call.attempt()
    barrier(group)
    if SIZE > 1 and RANK == 0:
        group.deadline = 0.2
        refused(StallError, "did not come", lambda: [call.attempt() for _ in range(10**9)])
    COMM.Barrier()
    comm.Free()


def test_memory_without_a_name():
    """In a folder of its own: other jobs of this machine have theirs where it usually is."""
    with tempfile.TemporaryDirectory() as folder:
        anonymous, usual, make = segments._open_anonymous, segments.FOLDER, tempfile.mkstemp
        made = []
        tempfile.mkstemp = lambda **options: made.append(make(**options)) or made[-1]
        buffers = [empty_shared(COMM, 1000)]
        assert not made
        segments._open_anonymous, segments.FOLDER = lambda comm: (None, False), folder
        try:
            buffers.append(empty_shared(COMM, 1000))
        finally:
            segments._open_anonymous, segments.FOLDER, tempfile.mkstemp = anonymous, usual, make
        assert [os.path.dirname(path) for _, path in made] == [folder] * (RANK == 0)
        assert not os.listdir(folder)
    for buffer in buffers:
        buffer.array[:] = RANK
        run(GROUP, "all_reduce", buffer.array, "max", algorithm="symmetric")
        assert (buffer.array == SIZE - 1).all()
        COMM.Barrier()


def test_what_is_no_shape_or_dtype_is_refused():
    for shape, dtype, words in ((3, "flaot", "a dtype"), ("x", "f8", "a shape"), (3, object, "objects")):
        try:
            empty_shared(COMM, shape, dtype)
        except InputError as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"taken: {shape} {dtype}")


def test_the_largest_of_numbers_turn_after_turn():
    largest = Largest(COMM)
    for turn in range(200):
        shown = np.random.default_rng(turn).normal(size=SIZE)
        if turn % 50 == 7:
            shown[turn % SIZE] = np.nan
        elif turn % 50 == 9:
            shown[:] = -np.inf
        if turn % 20 == RANK:
            time.sleep(0.001)  # the others must not take its number of the turn before
        np.testing.assert_equal(largest.of(shown[RANK]), shown.max())


def test_a_freed_communicator_lets_its_group_go():
    comm = COMM.Dup()
    group = weakref.ref(node_group(comm))
    assert node_group(comm) is group()
    comm.Free()
    gc.collect()
    assert group() is None


if __name__ == "__main__":
    run_checks(globals())
