"""Seconds of collectives on ranks, in turn: what a machine model is made from, and what it is held against."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from hpckit.bench.job import answer, run_ranks
from hpckit.bench.probes import probe_plan

PROBE = "probe"  # the operation of the plans of `hpckit.bench.probes`
MOST_ROUNDS = 200
MODULE = "hpckit.bench.collective_times"
Case = tuple[str, str, int]  # operation, algorithm, bytes of the whole buffer


def measured(ranks: int, cases: list[Case], seconds: float) -> tuple[dict[Case, float], dict[Case, dict[str, Any]]]:
    """Median seconds of each case on so many ranks, the slowest rank of each round, in about `seconds` in all; and the
    options with which its plan ran.
    """
    row = run_ranks(MODULE, ranks, ((cases, seconds),))[0]
    return dict(zip(cases, row["seconds"], strict=True)), dict(zip(cases, row["options"], strict=True))


def _case(cases: list[Case], seconds: float) -> dict[str, Any]:
    """Cases of one size take turns until their share of the time is up, three rounds at least; buffers are rewritten
    by their owner before each call.
    """
    sizes = dict.fromkeys(nbytes for _, _, nbytes in cases)
    found = {}
    for nbytes in sizes:
        alike = [(operation, algorithm, size) for operation, algorithm, size in cases if size == nbytes]
        for case, each in zip(alike, _rounds([_call(*case) for case in alike], seconds / len(sizes)), strict=True):
            found[case] = each
    return {
        "seconds": [found[case[0], case[1], case[2]] for case in cases],
        "options": [_options(*case) for case in cases],
    }


def _options(operation: str, algorithm: str, nbytes: int) -> dict[str, Any]:
    """The options of the plan of a collective."""
    from mpi4py import MPI

    from hpckit.collectives.axis import axis_of
    from hpckit.collectives.choice import choose

    return {} if operation == PROBE else dict(choose(operation, algorithm, axis_of(MPI.COMM_WORLD), nbytes, {}).options)


def _rounds(calls: list[tuple[Callable[[], object], Callable[[], object]]], seconds: float) -> list[float]:
    """Median seconds of each call."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    times: list[list[float]] = [[] for _ in calls]
    for prepare, call in calls:  # warm up: communicators, columns, scratch memory
        prepare()
        call()
    begin = time.perf_counter()
    going = np.array(1)
    while going:
        for (prepare, call), each in zip(calls, times, strict=True):
            prepare()
            comm.Barrier()
            start = time.perf_counter()
            call()
            each.append(time.perf_counter() - start)
        going[...] = (time.perf_counter() - begin < seconds or len(times[0]) < 3) and len(times[0]) < MOST_ROUNDS
        comm.Bcast(going)
    every = np.array(times)
    comm.Allreduce(MPI.IN_PLACE, every, MPI.MAX)
    return [statistics.median(each) for each in every.tolist()]


def _call(operation: str, algorithm: str, nbytes: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """What rewrites the buffers, and what is timed."""
    from mpi4py import MPI

    from hpckit import collectives
    from hpckit.collectives.axis import axis_of
    from hpckit.collectives.column import column_of
    from hpckit.collectives.reduction import Reduction
    from hpckit.collectives.runner import Runner
    from hpckit.collectives.slots import even_slots
    from hpckit.collectives.work import start

    comm = MPI.COMM_WORLD
    count = max(nbytes // 4, comm.size)
    buffer = np.ones(count, np.float32)

    def rewrite() -> None:
        buffer.fill(1.0 + comm.rank)

    if operation == PROBE:
        axis = axis_of(comm)
        column = column_of(probe_plan(algorithm, comm.size), comm.rank)
        slots = even_slots(buffer, column.slots)
        add = Reduction(buffer.dtype, "sum").combine
        return rewrite, lambda: start(Runner(axis, axis.tag(), column, slots, add).steps(), lambda: buffer).wait()
    run = getattr(collectives, operation)
    return rewrite, lambda: run(buffer, comm, algorithm=algorithm).wait()


if __name__ == "__main__":
    answer(sys.argv[1:], _case)
