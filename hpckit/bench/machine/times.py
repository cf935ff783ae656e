"""Seconds of collectives on ranks, in turn: the data to fit a machine model, and to test it.

For the fit: probes, the smallest plans, with one message at once, half as many as ranks, or all. Each is a chain of
steps, each of which begins when the previous one is over. With `+` arriving data is added.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hpckit.bench.ranks import answer, run_ranks
from hpckit.plan.collective.memory import IN_MEMORY
from hpckit.plan.collective.plan import CollectivePlan, messages
from hpckit.plan.protocol import NOBODY, Step

if TYPE_CHECKING:
    from hpckit.grid.field import Field

PROBES = ("one", "pairs", "exchange")
COPY = "copy"  # a probe without messages
STEPS = 4
LONG = "*3"  # marks a chain three times as long
PROBE = "probe"  # the operation of the plans below
AUTO = "auto"  # the algorithm that runs by default
HALO = "halo"  # the operation of halo exchanges of cubes of so many cells a rank, along some dims or in whole
# A call of a program meets ranks and caches as the call before left them. A single call after a barrier took up to
# twice as long; so calls of up to `IN_A_ROW` bytes in all follow each other.
IN_A_ROW = 2**18
MOST_IN_A_ROW = 50
MOST_ROUNDS = 50  # of a pass
# Over all sizes. A disturbance of seconds meets all of them alike, and the quiet rest has rounds of all of them: with
# four passes, whatever was timed first in a pass was once 1.4 times as long as what came last.
PASSES = 16
MODULE = "hpckit.bench.machine.times"
Case = tuple[str, str, int]  # operation, algorithm, bytes of the whole buffer
Call = Callable[[], object]


@dataclass(frozen=True)
class CollectiveTimes:
    """seconds: of each case, round by round, on the slowest rank; cases of one size share their rounds. options: those
    of each case's plan.
    """

    seconds: dict[Case, list[float]]
    options: dict[Case, dict[str, Any]]

    def undisturbed(self) -> dict[Case, float]:
        """The lowest tenth of each case: other programs make rounds longer, never shorter."""
        return {case: float(np.quantile(each, 0.1)) for case, each in self.seconds.items()}


def measured(ranks: int, cases: list[Case], seconds: float) -> CollectiveTimes:
    """The times of cases on so many ranks, in about `seconds` in all."""
    row = run_ranks(MODULE, ranks, ((cases, seconds),))[0]
    return CollectiveTimes(dict(zip(cases, row["seconds"], strict=True)), dict(zip(cases, row["options"], strict=True)))


def at_once(probe: str, ranks: int) -> int:
    """How many messages a step has."""
    return {"one": 1, "pairs": ranks // 2, "exchange": ranks}[probe]


def share(probe: str) -> float:
    """The part of the buffer in a message."""
    return 0.5 if probe.startswith(("exchange", COPY)) else 1.0


def probe_plan(probe: str, ranks: int) -> CollectivePlan:
    """one: the buffer goes from rank to rank. pairs: so do two or more at once, half as many as ranks. exchange:
    every rank sends one half to the next and takes the other half, which it passes on in the next step. copy: every
    rank copies one half to the other.
    """
    name, reduce = probe.removesuffix(LONG).rstrip("+"), "+" in probe
    length = 3 * STEPS if probe.endswith(LONG) else STEPS
    rank, none, one = np.arange(ranks), np.zeros(ranks, np.int64), np.ones(ranks, np.int64)
    steps: dict[str, Callable[[int], Step]] = {
        "one": lambda i: messages(np.where(rank == i % ranks, (rank + 1) % ranks, NOBODY), none, one, reduce=reduce),
        "pairs": lambda i: messages(np.where(rank % 2 == i % 2, (rank + 1) % ranks, NOBODY), none, one, reduce=reduce),
        "exchange": lambda i: messages(
            (rank + 1) % ranks, none + i % 2, one + i % 2, into=none + (i + 1) % 2, reduce=reduce
        ),
        COPY: lambda i: messages(rank, none + i % 2, one + i % 2, into=none + (i + 1) % 2),
    }
    slots = 2 if name in ("exchange", COPY) else 1
    return CollectivePlan("all_reduce", probe, ranks, slots, length, steps[name])


def _case(cases: list[Case], seconds: float) -> dict[str, Any]:
    """Cases of one size take turns until their share of the time is up, a round a pass at least; buffers are
    rewritten by their owner before each call.
    """
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    sizes = list(dict.fromkeys(nbytes for _, _, nbytes in cases))
    alike = {size: [(operation, name, nbytes) for operation, name, nbytes in cases if nbytes == size] for size in sizes}
    calls = {size: _calls(comm, each, size) for size, each in alike.items()}
    in_a_row = {size: max(1, min(MOST_IN_A_ROW, IN_A_ROW // size)) for size in sizes}
    found: dict[Case, list[float]] = {}
    for _ in range(PASSES):
        for size in sizes:
            rounds = _rounds(comm, calls[size], in_a_row[size], seconds / (PASSES * len(sizes)))
            for case, each in zip(alike[size], rounds, strict=True):
                found.setdefault(case, []).extend(each)
    return {
        "seconds": [found[case[0], case[1], case[2]] for case in cases],
        "options": [_options(comm, *case) for case in cases],
    }


def _options(comm: Any, operation: str, algorithm: str, nbytes: int) -> dict[str, Any]:
    """The options of the plan of a collective."""
    from hpckit.collectives.axis import axis_of
    from hpckit.collectives.buffers import Buffer
    from hpckit.collectives.choice import choose

    if operation == HALO:
        return {"within_node": axis_of(comm).group is not None}
    if operation == PROBE or algorithm in IN_MEMORY.get(operation, {}):
        return {}
    given = Buffer(_buffer(comm, nbytes), "the buffer")
    choice = choose(operation, algorithm, axis_of(comm), given.nbytes, {}, given=given)
    return dict(choice.options) | ({"algorithm": choice.algorithm} if algorithm == AUTO else {})


def _rounds(comm: Any, calls: list[tuple[Call, Call]], in_a_row: int, seconds: float) -> list[list[float]]:
    """Seconds of each call, one of so many in a row, round by round; each round has its own order, as the previous call
    affects the next.
    """
    times: list[list[float]] = [[] for _ in calls]
    begin = time.perf_counter()
    going = np.array(1)
    order = np.random.default_rng(1)  # the same on all ranks
    while going:
        for number in order.permutation(len(calls)).tolist():
            prepare, call = calls[number]
            prepare()
            comm.Barrier()
            start = time.perf_counter()
            for _ in range(in_a_row):
                call()
            times[number].append((time.perf_counter() - start) / in_a_row)
        going[...] = time.perf_counter() - begin < seconds and len(times[0]) < MOST_ROUNDS
        comm.Bcast(going)
    own = np.array(times)
    every = np.empty((comm.size, *own.shape))
    comm.Allgather(own, every)
    return every.max(axis=0).tolist()


def _calls(comm: Any, cases: list[Case], nbytes: int) -> list[tuple[Call, Call]]:
    """For each case of one size the call that rewrites the common buffer, and the timed call; all warmed up."""
    buffer = _buffer(comm, nbytes)
    field = _field(comm, nbytes) if any(operation == HALO for operation, _, _ in cases) else None

    def rewrite() -> None:
        buffer.fill(1.0 + comm.rank)

    calls: list[tuple[Call, Call]] = [
        (rewrite, _call(comm, operation, name, buffer, field)) for operation, name, _ in cases
    ]
    for prepare, call in calls:  # communicators, columns, scratch memory
        prepare()
        call()
    return calls


def _buffer(comm: Any, nbytes: int) -> np.ndarray:
    return np.ones(max(nbytes // 4, comm.size), np.float32)


def _field(comm: Any, n: int) -> Field:
    """A field of n^3 cells a rank."""
    from hpckit.comm.mesh import Mesh
    from hpckit.grid.field import Field
    from hpckit.plan.grid.decomposition import Decomposition

    mesh = Mesh(comm, z=0, y=1, x=1, periodic=("z", "y", "x"))
    return Field.zeros(mesh, Decomposition((n * mesh.size, n, n), mesh.topology, halo=1))


def _call(comm: Any, operation: str, algorithm: str, buffer: np.ndarray, field: Field | None) -> Call:
    """The timed call; of an exchange in whole, or its phases along some dims, as `yx`."""
    from hpckit import collectives
    from hpckit.collectives.axis import axis_of
    from hpckit.collectives.buffers import even_slots
    from hpckit.collectives.rank_program import program_of
    from hpckit.collectives.reduction import Reduction
    from hpckit.collectives.request import MessageRun
    from hpckit.collectives.runner import Runner
    from hpckit.grid.exchange import HaloExchange

    if field is not None and operation == HALO:
        exchange = HaloExchange(field.mesh, [field], axes=None if algorithm == "exchange" else list(algorithm))
        return lambda: exchange([field])
    if operation == PROBE:
        axis = axis_of(comm)
        program = program_of(probe_plan(algorithm, comm.size), comm.rank)
        slots = even_slots(buffer, program.slots)
        add = Reduction(buffer.dtype, "sum").combine
        return lambda: MessageRun(
            axis.progress, Runner(axis, axis.tag(), program, slots, add).steps(), lambda: buffer
        ).wait()
    run = getattr(collectives, operation)
    return lambda: run(buffer, comm, algorithm=algorithm).wait()


if __name__ == "__main__":
    answer(sys.argv[1:], _case)
