"""Every collective by every algorithm on the ranks of the job, against NumPy. Rank r's data are known to all."""

from __future__ import annotations

import itertools
import sys
import time
import weakref

import numpy as np
from mpi4py import MPI

import hpckit as hp
from hpckit.collectives.axis import axis_of
from hpckit.collectives.buffers import even_slots
from hpckit.collectives.rank_program import program_of
from hpckit.collectives.reduction import reduction_of
from hpckit.collectives.request import MessageRun, Request
from hpckit.collectives.runner import Runner
from hpckit.comm.simulated_gpu import SimulatedGpu
from hpckit.errors import InputError
from hpckit.plan.blocks import block
from hpckit.plan.collective.algorithms import ALGORITHMS
from hpckit.plan.collective.plan import CollectivePlan, messages

COMM = MPI.COMM_WORLD
P, RANK = COMM.size, COMM.rank
COUNTS = (0, 1, P - 1, P, 37, 1003)
checks = 0


def same(ours, expected, what):
    global checks
    assert (ours.dtype, ours.shape) == (expected.dtype, expected.shape), (what, ours.dtype, ours.shape)
    assert np.array_equal(ours, expected, equal_nan=ours.dtype.kind == "f"), (what, ours, expected)
    checks += 1


def given(rank, count, dtype=np.float64):
    """Whole numbers, so that sums are exact in any order; every rank's and every element's are different."""
    values = (np.arange(count) * 7 + rank * 31) % 61 - 20 * (np.dtype(dtype).kind != "u")
    return values.astype(dtype)


def every(count, dtype=np.float64):
    return np.stack([given(rank, count, dtype) for rank in range(P)])


def reductions(op, count, dtype):
    stack = every(count, dtype)
    if op == "average":
        weights = np.arange(1.0, P + 1)
        return (stack * weights[:, None].astype(dtype)).sum(0, dtype=dtype) / stack.dtype.type(weights.sum())
    return {
        "sum": stack.sum,
        "prod": lambda axis: stack.prod(axis, dtype=dtype),
        "max": stack.max,
        "min": stack.min,
        "mean": lambda axis: stack.sum(axis, dtype=dtype) / stack.dtype.type(P),
    }[op](0)


def options_of(operation, algorithm):
    """The options with which an algorithm is tried."""
    takes = ALGORITHMS[operation].get(algorithm, (None, ()))[1]
    tried = [{}]
    if "segments" in takes:
        tried.append({"segments": 3})
    if "node_size" in takes:
        tried.append({"node_size": 2})
    if "servers" in takes:
        tried.append({"servers": P})
    return tried


def check_all_reduce(mesh):
    in_node = ("flat", "staged") if P > 1 else ()
    for algorithm in [*ALGORITHMS["all_reduce"], "ordered", "mpi", "auto", *in_node]:
        for count, options in itertools.product(COUNTS, options_of("all_reduce", algorithm)):
            x = given(RANK, count)
            work = hp.all_reduce(x, mesh["dp"], "sum", algorithm, **options)
            assert work.wait() is x
            same(x, every(count).sum(0), (algorithm, count, options))


def check_operations_and_dtypes(mesh):
    dtypes = (np.float32, np.float64, np.int8, np.int32, np.int64, np.uint16, np.complex128)
    for dtype, op in itertools.product(dtypes, ("sum", "prod", "max", "min", "mean", "average")):
        kind = np.dtype(dtype).kind
        if (op in ("mean", "average") and kind in "iu") or (op in ("max", "min") and kind == "c"):
            continue
        for algorithm in ("ring", "ordered", "halving_doubling"):
            x = given(RANK, 37, dtype).reshape(37, 1)
            weight = RANK + 1.0 if op == "average" else None
            hp.all_reduce(x, mesh, op, algorithm, weight=weight).wait()
            expected = reductions(op, 37, dtype).astype(dtype)
            same(x.reshape(-1), expected, (algorithm, dtype, op))


def check_in_node(mesh):
    """Flat, staged and symmetric; the same buffer again and again; sums in rank order."""
    if P == 1:
        refused("do not share any", lambda: hp.all_reduce(np.ones(1), mesh, algorithm="flat"))
        return
    shared = hp.empty_shared(mesh["dp"], 1003, np.float32).array
    small = np.empty(300, np.float32)
    large = np.empty(200_003, np.float32)
    for turn, (x, algorithm) in itertools.product(
        range(3),
        ((shared, "symmetric"), (shared, "auto"), (small, "flat"), (small, "auto"), (large, "staged"), (large, "auto")),
    ):
        stack = np.stack([np.random.default_rng(r + turn).normal(size=x.size).astype(np.float32) for r in range(P)])
        expected = stack[0].copy()
        for r in range(1, P):
            expected += stack[r]
        x[...] = stack[RANK]
        assert hp.all_reduce(x, mesh["dp"], algorithm=algorithm).wait() is x
        same(x, expected, (algorithm, turn))
    refused("not made by empty_shared", lambda: hp.all_reduce(small, mesh["dp"], algorithm="symmetric"))
    refused("for small buffers", lambda: hp.all_reduce(large, mesh["dp"], algorithm="flat"))
    refused("no options", lambda: hp.all_reduce(small, mesh["dp"], algorithm="flat", segments=2))
    first, second = np.ones(3), np.ones(3)
    held = hp.all_reduce(first, mesh["dp"])
    held.wait()
    again = hp.all_reduce(first, mesh["dp"])
    assert held.test()
    again.wait()
    works = [hp.all_reduce(first, mesh["dp"]), hp.all_reduce(second, mesh["dp"])]
    for work in works[::-1]:
        work.wait()
    same(first, np.full(3, float(P**3)), "held")
    gone = np.empty(100_000)
    known = weakref.ref(gone)
    hp.all_reduce(gone, mesh["dp"]).wait()
    del gone
    assert known() is None, "a large buffer is kept alive"
    for size in (3, 5, 4):  # arrays that come and go at one address
        x = np.full(size, RANK + 1.0)
        same(hp.all_reduce(x, mesh["dp"]).wait(), np.full(size, P * (P + 1) / 2), "come and go")
        del x


def check_moves_in_node(mesh):
    """The other operations in shared memory, of private and of symmetric buffers, with blocks of unequal size."""
    for count in (0, 1, 37, 200_003) if P > 1 else ():
        for counts, sizes in sizes_of(count):
            own = slice(int(sizes[:RANK].sum()), int(sizes[: RANK + 1].sum()))
            symmetric = hp.empty_shared(mesh["dp"], count, np.float64).array
            for x, algorithm in ((np.empty(count), "staged"), (symmetric, "symmetric")):
                for out in (None, np.empty(sizes[RANK])):
                    x[...] = given(RANK, count)
                    got = hp.reduce_scatter(x, mesh["dp"], "sum", out, algorithm, counts=counts).wait()
                    same(got, every(count).sum(0)[own], ("reduce_scatter", algorithm, count))
                    assert out is None or got is out
                x[...] = given(RANK, count)
                hp.broadcast(x, mesh["dp"], P - 1, algorithm).wait()
                same(x, given(P - 1, count), ("broadcast", algorithm, count))
                whole = np.empty(count)
                hp.all_gather(x[own], mesh["dp"], whole, algorithm, counts=counts).wait()
                same(whole, x, ("all_gather", algorithm, count))
    if P > 1:
        x = np.arange(3 * P) + 1000 * RANK
        expected = np.concatenate([np.arange(3) + 3 * RANK + 1000 * q for q in range(P)])
        same(hp.all_to_all(x, mesh, algorithm="staged").wait(), expected, "all_to_all staged")
        refused("needs to know the sizes", lambda: hp.all_gather(x, mesh, algorithm="staged"))


def check_a_rank_that_needs_messages_first(mesh):
    """A rank that waits for a collective looks after its messages: the others may need them to come to it."""
    large = np.full(1 << 20, RANK * 1.0)
    x = np.ones(3)
    if RANK == 0:
        sends = [COMM.Isend(large, rank, 7) for rank in range(1, P)]
        hp.all_reduce(x, mesh).wait()
        MPI.Request.Waitall(sends)
    else:
        begun = hp.all_reduce(x, mesh)
        COMM.Recv(large, 0, 7)
        begun.wait()
        assert (large == 0).all()
    same(x, np.full(3, float(P)), "with messages")


def check_device_arrays(mesh):
    """Arrays of a simulated GPU: staged through the host, in order with what was asked of the device before."""
    device = SimulatedGpu()
    x = device.zeros((5, 7), np.float32)
    x[...] = device.to_device(given(RANK, 35, np.float32).reshape(5, 7))
    x += 1
    for algorithm in ("auto", "ring"):
        assert hp.all_reduce(x, mesh, algorithm=algorithm).wait() is x
    same(device.to_host(x), P * (every(35, np.float32) + 1).sum(0).reshape(5, 7), "device all_reduce")
    block = device.to_device(np.full(3, RANK, np.int64))
    whole = hp.all_gather(block, mesh).wait()
    assert type(whole) is type(block)
    same(device.to_host(whole), np.repeat(np.arange(P), 3), "device all_gather")
    out = device.zeros((3,), np.int64)
    hp.scatter(whole, mesh, out, P - 1).wait()
    same(device.to_host(out), np.full(3, RANK), "device scatter")
    same(device.to_host(hp.reduce_scatter(whole, mesh).wait()), np.full(3, P * RANK), "device reduce_scatter")
    refused("on a GPU and the other", lambda: hp.all_gather(block, mesh, np.empty(3 * P, np.int64)))


def check_watched():
    """With a watch that compares: no false alarm, whether works are waited for or tested."""
    with hp.Watch(COMM, limit=60, check=True), hp.Mesh(COMM, dp=0) as mesh:
        x = np.ones(5)
        works = [hp.all_reduce(x, mesh["dp"], algorithm="ring"), hp.all_gather(x[:RANK], mesh["dp"])]
        for work in works[::-1]:
            work.wait()
        last = hp.broadcast(x, mesh["dp"], P - 1)
        while not last.test():
            pass
        same(x, np.full(5, float(P)), "watched")


def check_halves(mesh):
    """float16 and bfloat16: exact in float32, rounded once to the nearest even."""
    for algorithm in ("ring", "tree", "ordered", "auto"):
        for op in ("sum", "max", "mean") if algorithm != "auto" else ("sum",):
            stack = np.stack([np.linspace(-3, 3, 53) * (r + 1) for r in range(P)]).astype(np.float16)
            x = stack[RANK].copy()
            hp.all_reduce(x, mesh, op, algorithm).wait()
            wide = stack.astype(np.float32)
            expected = {"sum": wide.sum(0), "max": wide.max(0), "mean": wide.sum(0) / np.float32(P)}[op]
            same(x, expected.astype(np.float16), (algorithm, op))
    brain = np.stack([(np.arange(64) + 3 * r).astype(np.float32).view(np.uint32) >> 16 for r in range(P)]).astype(
        np.uint16
    )
    wide = (brain.astype(np.uint32) << 16).view(np.float32)
    for algorithm in ("ring", "ordered"):
        x = brain[RANK].copy()
        hp.all_reduce(x, mesh, "sum", algorithm, kind="bfloat16").wait()
        total = wide.sum(0)
        ours = (x.astype(np.uint32) << 16).view(np.float32)
        assert (np.abs(ours - total) <= np.abs(total) * 2.0**-8).all()
        low = total.view(np.uint32) & 0xFFFF
        exact = low == 0
        assert np.array_equal(ours[exact], total[exact])
    x = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    bits = (x.view(np.uint32) >> 16).astype(np.uint16)
    hp.all_reduce(bits, mesh, "max", "ring", kind="bfloat16").wait()
    same((bits.astype(np.uint32) << 16).view(np.float32), x, "nan and inf")


def check_deterministic(mesh):
    """Any cut of the buffer gives the same bits, which are those of the sum in rank order."""
    count = 10007
    stack = np.stack(
        [np.random.default_rng(r).normal(size=count).astype(np.float32) * 10.0 ** (r % 5) for r in range(P)]
    )
    expected = stack[0].copy()
    for r in range(1, P):
        expected += stack[r]
    for cut in (count, 1, 5003, 997):
        x = stack[RANK].copy()
        parts = [x[i : i + cut] for i in range(0, min(count, 20 * cut), cut)]
        works = [hp.all_reduce(part, mesh["dp"], deterministic=True) for part in parts]
        for work in works[::-1]:
            work.wait()
        done = sum(part.size for part in parts)
        same(x[:done], expected[:done], ("deterministic", cut))
    x = stack[RANK].copy()
    out = np.empty(block(count, P, RANK)[1], np.float32)
    hp.reduce_scatter(x, mesh["dp"], out=out, deterministic=True).wait()
    begin, size = block(count, P, RANK)
    same(out, expected[begin : begin + size], "deterministic reduce_scatter")
    same(x, stack[RANK], "reduce_scatter keeps its input")
    hp.reduce(x, mesh["dp"], root=P - 1, deterministic=True).wait()
    same(x, expected if RANK == P - 1 else stack[RANK], "deterministic reduce")


def check_rooted(mesh):
    for operation in ("broadcast", "reduce"):
        for algorithm in [*ALGORITHMS[operation], "auto"]:
            for count, root, options in itertools.product(COUNTS, {0, P - 1, P // 2}, options_of(operation, algorithm)):
                x = given(RANK, count)
                if operation == "broadcast":
                    hp.broadcast(x, mesh, root, algorithm, **options).wait()
                    same(x, given(root, count), (operation, algorithm, count, root))
                else:
                    hp.reduce(x, mesh, "sum", root, algorithm, **options).wait()
                    same(x, every(count).sum(0) if root == RANK else given(RANK, count), (operation, algorithm, count))


def sizes_of(count):
    """Blocks by the block rule, and unequal ones with empty ones between."""
    even = np.array([block(count, P, r)[1] for r in range(P)])
    odd = np.zeros(P, int)
    odd[P // 2] = count
    return [(None, even), (even, even), (odd, odd)]


def check_blocks(mesh):
    for count in COUNTS:
        for counts, sizes in sizes_of(count):
            begin = int(sizes[:RANK].sum())
            own = slice(begin, begin + int(sizes[RANK]))
            for algorithm in [*ALGORITHMS["reduce_scatter"], "ordered", "auto"]:
                x = given(RANK, count)
                view = hp.reduce_scatter(x, mesh, "sum", None, algorithm, counts=counts).wait()
                same(view, every(count).sum(0)[own], ("reduce_scatter", algorithm, count))
                out, x = np.empty(sizes[RANK]), given(RANK, count)
                assert hp.reduce_scatter(x, mesh, "mean", out, algorithm, counts=counts).wait() is out
                same(out, (every(count).sum(0) / P)[own], ("reduce_scatter into", algorithm, count))
                same(x, given(RANK, count), "input kept")
            whole = np.arange(count, dtype=np.int32)
            for algorithm in [*ALGORITHMS["all_gather"], "auto"]:
                same(
                    hp.all_gather(whole[own], mesh, None, algorithm, counts=counts).wait(),
                    whole,
                    ("all_gather", algorithm),
                )
                out = np.full(count, -1, np.int32)
                out[own] = whole[own]
                hp.all_gather(out[own], mesh, out, algorithm, counts=counts).wait()
                same(out, whole, ("all_gather in place", algorithm, count))
            for root in {0, P - 1}:
                for algorithm in [*ALGORITHMS["gather"], "auto"]:
                    got = hp.gather(whole[own], mesh, None, root, algorithm, counts=counts).wait()
                    assert (got is None) == (root != RANK)
                    if got is not None:
                        same(got, whole, ("gather", algorithm, count))
                    out = np.empty(sizes[RANK], np.int32)
                    hp.scatter(whole if root == RANK else None, mesh, out, root, algorithm, counts=counts).wait()
                    same(out, whole[own], ("scatter", algorithm, count, root))


def check_all_to_all(mesh):
    matrix = (np.arange(P)[:, None] * 3 + np.arange(P) * 5) % 4
    sent = [np.full(matrix[RANK, q], 100 * RANK + q, np.int16) for q in range(P)]
    expected = np.concatenate([np.full(matrix[q, RANK], 100 * q + RANK, np.int16) for q in range(P)])
    for counts in (matrix, matrix[RANK]):
        same(hp.all_to_all(np.concatenate(sent), mesh, counts=counts).wait(), expected, "all_to_all")
        out = np.empty(expected.size, np.int16)
        hp.all_to_all(np.concatenate(sent), mesh, out, counts=counts).wait()
        same(out, expected, "all_to_all into")
    x = np.arange(3 * P) + 1000 * RANK
    same(hp.all_to_all(x, mesh).wait(), np.concatenate([np.arange(3) + 3 * RANK + 1000 * q for q in range(P)]), "even")


def check_many_in_flight(mesh):
    """Works of both kinds, on two axes, waited for in another order on every rank."""
    buffers = [given(RANK, n) for n in (5, 1003, 0, 64, 200_003, 7, 70_001)]
    works = [
        hp.all_reduce(x, mesh["dp"] if i % 2 else mesh, algorithm=a)
        for i, (x, a) in enumerate(
            zip(buffers, ("ring", "ordered", "tree", "mpi", "halving_doubling", "auto", "auto"), strict=True)
        )
    ]
    works.append(hp.all_gather(np.array([RANK]), mesh))
    order = np.random.default_rng(RANK).permutation(len(works))
    while not works[order[0]].test():
        pass
    for i in order:
        works[i].wait()
        assert works[i].test()
    for x in buffers:
        same(x, every(x.size).sum(0), "in flight")
    same(works[-1].wait(), np.arange(P), "gathered in flight")


def check_the_library_is_called_in_one_order(mesh):
    """An average asks for weights first, and some ranks go on with it before they start what comes next."""
    for algorithm in ("mpi", "ring"):
        first, second = np.full(3, RANK + 1.0), np.full(3, 100.0)
        average = hp.all_reduce(first, mesh, "average", algorithm, weight=1.0)
        for _ in range(100 if RANK == P - 1 else 0):
            average.test()
            time.sleep(1e-4)
        total = hp.all_reduce(second, mesh, "sum", "mpi")
        average.wait()
        total.wait()
        same(first, np.full(3, (P + 1) / 2), ("an average beside a sum", algorithm))
        same(second, np.full(3, 100.0 * P), ("a sum beside an average", algorithm))


def check_a_rank_adds_to_itself():
    """A step that adds is a sum too where a rank sends to itself."""
    plan = CollectivePlan(
        "all_reduce", "itself", 1, 2, 1, lambda _: messages(*[np.array([i]) for i in (0, 0, 1)], np.array([1]), True)
    )
    values, axis = np.array([3.0, 4.0]), axis_of(MPI.COMM_SELF)
    steps = Runner(
        axis, axis.tag(), program_of(plan, 0), even_slots(values, 2), reduction_of(values.dtype, "sum").combine
    ).steps()
    Request.of(MessageRun(axis.progress, steps, lambda: None)).wait()
    same(values, np.array([3.0, 7.0]), "a rank that adds to itself")


def check_communicators():
    """A freed communicator takes what collectives keep for it along; the caller's messages are never mixed in."""
    for _ in range(3):
        line = COMM.Split(RANK % 2, RANK)
        x = np.ones(7)
        pending = COMM.Irecv(np.empty(1), (RANK - 1) % P, 1)
        hp.all_reduce(x, line).wait()
        COMM.Send(np.ones(1), (RANK + 1) % P, 1)
        pending.Wait()
        assert (x == line.size).all()
        line.Free()


def refused(text, call):
    try:
        call()
    except InputError as error:
        assert text in f"{error.message} {error.do}", (text, error.message, error.do)
    else:
        raise AssertionError(f"not refused: {text}")


def check_nan(mesh):
    """Max and min are nan on every rank where any number is, as of NumPy, by every algorithm."""
    in_node = ("flat", "staged") if P > 1 else ()
    dtypes = (np.float64,) if sys.argv[1:] == ["brief"] else (np.float64, np.float32, np.float16)
    for algorithm in [*ALGORITHMS["all_reduce"], "ordered", "mpi", "auto", *in_node]:
        for dtype, op, where in itertools.product(dtypes, ("max", "min"), {0, P - 1}):
            x = np.array([RANK, np.nan if where == RANK else 3, -RANK], dtype)
            hp.all_reduce(x, mesh["dp"], op, algorithm).wait()
            edge = dtype(P - 1)
            same(x, np.array([edge, np.nan, 0] if op == "max" else [0, np.nan, -edge], dtype), ("nan", algorithm, op))
    for algorithm in [*ALGORITHMS["reduce"], *ALGORITHMS["reduce_scatter"], "ordered"]:
        x = np.full(P, np.nan if RANK == P - 1 else 1.0)
        if algorithm in ALGORITHMS["reduce"]:
            hp.reduce(x, mesh["dp"], "max", algorithm=algorithm).wait()
            assert RANK or np.isnan(x).all(), (algorithm, x)
        else:
            assert np.isnan(hp.reduce_scatter(x, mesh["dp"], "min", algorithm=algorithm).wait()).all(), algorithm


def check_read_only(mesh):
    """What may no longer be written to is refused when a request is started again, and stays as it is."""
    for algorithm in ("ring", "auto", "mpi"):
        x, whole = np.full(3, 1.0), np.zeros(3 * P)
        requests = [
            hp.all_reduce_init(x, mesh, algorithm=algorithm),
            hp.broadcast_init(x, mesh, (RANK + 1) % P if P == 1 else 0),
            hp.all_gather_init(np.ones(3), mesh, whole, "ring"),
            hp.all_to_all_init(np.ones(3 * P), mesh, whole),
        ]
        for request in requests:
            request.start().wait()
        kept = x.copy()
        x.flags.writeable = whole.flags.writeable = False
        for request in requests[: 1 if RANK == 0 else 2] + requests[2:]:
            refused("writ", lambda request=request: request.start().wait())
        same(x, kept, "read only")
        if P == 1:
            continue
        for request in requests:
            x.flags.writeable = whole.flags.writeable = True
            request.start().wait()


def check_refusals(mesh):
    x = np.ones(8)
    refused("not contiguous", lambda: hp.all_reduce(x[::2], mesh))
    refused("not a NumPy", lambda: hp.all_reduce([1.0], mesh))
    refused("not on 'dp'", lambda: hp.all_reduce(x, "dp"))
    refused("dq", lambda: hp.all_reduce(x, mesh["dq"]))
    refused("'summ'", lambda: hp.all_reduce(x, mesh, "summ"))
    refused("'ring'", lambda: hp.all_reduce(x, mesh, algorithm="rimg"))
    refused("no option", lambda: hp.all_reduce(x, mesh, algorithm="naive", segments=2))
    refused("segments is a whole number", lambda: hp.all_reduce(x, mesh, algorithm="ring", segments="3"))
    refused("x.filled(0)", lambda: hp.all_reduce(np.ma.ones(3), mesh))
    refused("belong to a plan", lambda: hp.all_reduce(x, mesh, segments=2))
    refused("not deterministic", lambda: hp.all_reduce(x, mesh, algorithm="ring", deterministic=True))
    refused("is not int64", lambda: hp.all_reduce(np.ones(3, np.int64), mesh, "mean"))
    refused("means nothing", lambda: hp.all_reduce(np.array(["a"]), mesh))
    refused("byte order", lambda: hp.all_reduce(np.ones(3, ">f8"), mesh))
    refused("cannot be written", lambda: hp.all_reduce(np.frombuffer(bytes(8)), mesh))
    refused("weight of this rank", lambda: hp.all_reduce(x, mesh, "average"))
    refused("belongs to", lambda: hp.all_reduce(x, mesh, "sum", weight=1.0))
    refused("one of the", lambda: hp.broadcast(x, mesh, P))
    refused("add up to", lambda: hp.reduce_scatter(x, mesh, counts=[1] * (P - 1) + [0]))
    refused("counts are", lambda: hp.all_gather(x, mesh, counts=[-8] * P))
    refused("out holds", lambda: hp.reduce_scatter(x, mesh, out=np.ones(99)))
    refused("must be alike", lambda: hp.all_gather(x, mesh, np.ones(8 * P, np.float32)))
    refused("overlaps", lambda: hp.all_to_all(x, mesh, x))
    refused("bfloat16 is given as", lambda: hp.all_reduce(x, mesh, kind="bfloat16"))
    out = np.empty(1)
    refused(
        "all blocks together", lambda: hp.scatter(x[: P + 1] if RANK == 0 else None, mesh, out).wait()
    ) if P < 8 else None
    y = np.ones(3)
    hp.all_reduce(y, mesh).wait()
    assert (y == P).all(), "a refusal left a message behind"


def main():
    with hp.Mesh(COMM, dp=0) as mesh:
        check_all_reduce(mesh)
        check_operations_and_dtypes(mesh)
        check_in_node(mesh)
        check_moves_in_node(mesh)
        check_a_rank_that_needs_messages_first(mesh)
        check_device_arrays(mesh)
        check_halves(mesh)
        check_deterministic(mesh)
        check_rooted(mesh)
        check_blocks(mesh)
        check_all_to_all(mesh)
        check_many_in_flight(mesh)
        check_the_library_is_called_in_one_order(mesh)
        check_nan(mesh)
        check_read_only(mesh)
        check_refusals(mesh)
    check_a_rank_adds_to_itself()
    check_communicators()
    check_watched()
    hp.print_root(f"checks {checks}")


if __name__ == "__main__":
    main()
