"""Proofs of plans: all ranks are executed symbolically, without MPI.

In place of field values a cell holds the number of its global point, so that a wrong peer, side, offset, extent or
order shows as a wrong number and is named. Only cells within two halo widths of an end are kept, with one for all
between: the cost of a rank does not depend on its block, and thousands of ranks take a second or so. Plans that do the
same along every line of ranks are executed on one line a dim (`halo_lines.py`): a million ranks take no longer.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from hpckit.errors import InputError, PlanError
from hpckit.plan.collective.gossip import GossipPlan, GossipProof, prove_gossip
from hpckit.plan.collective.plan import CollectivePlan
from hpckit.plan.collective.prove import CollectiveProof, prove_collective
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.halo import HaloPlan, HaloStep
from hpckit.plan.grid.halo_lines import Phases, lines_of
from hpckit.plan.pipeline.program import Program
from hpckit.plan.pipeline.prove import ScheduleProof, prove_program, prove_schedule
from hpckit.plan.pipeline.schedule import Schedule

Ints = npt.NDArray[np.int64]
NOTHING = -1


@dataclass(frozen=True)
class Proof:
    """What was proved: so many messages between ranks and copies within one, for so many ranks."""

    ranks: int
    phases: int
    messages: int
    copies: int


@functools.singledispatch
def prove(plan: object) -> Proof | CollectiveProof | GossipProof | ScheduleProof:
    """Execute a plan on all ranks symbolically; raise `PlanError` unless it does exactly what it promises.

    Takes a `HaloPlan` (`prove_halo`), a `CollectivePlan` (`prove_collective`), a `GossipPlan` (`prove_gossip`), the
    `Schedule` of a pipeline (`prove_schedule`) or the `Program` made from it (`prove_program`).
    """
    raise InputError(
        f"a halo plan or a collective plan, a pipeline's schedule or its program can be proved, "
        f"not {type(plan).__name__}"
    )


@prove.register
def prove_halo(plan: HaloPlan) -> Proof:
    """Raise `PlanError` unless the plan fills every halo cell of every rank that has a global point, corners included.

    Checked for all ranks: each send is met by one receive of the same extent; no two messages between a pair share a
    tag in a phase; messages of a phase touch no cells of each other on a rank, so each cell is written once; owned
    cells are never written; each halo cell ends with the value of its global point (wrapped where periodic); halo
    beyond a wall stays as it was. Since every receive of a phase can be posted before its sends, matching within phases
    also excludes deadlock.
    """
    dec = plan.decomposition
    phases: Phases = list(plan.phases())
    lines = lines_of(dec, phases)
    try:
        for decomposition, steps in lines or [(dec, phases)]:
            execute_halo(decomposition, steps)
    except PlanError:
        if lines is None:
            raise
        execute_halo(dec, phases)  # it names the fault by its rank
    return _counted(dec, phases)


def _counted(dec: Decomposition, phases: Sequence[Sequence[HaloStep]]) -> Proof:
    ranks = np.arange(dec.topology.size)
    sends = [step.send_to for steps in phases for step in steps]
    copies = sum(int((to == ranks).sum()) for to in sends)
    return Proof(len(ranks), len(phases), sum(int((to >= 0).sum()) for to in sends) - copies, copies)


def execute_halo(dec: Decomposition, phases: Sequence[Sequence[HaloStep]]) -> None:
    """Move the numbers of points as the phases say, rank by rank, and look at what each holds in the end."""
    ranks = range(dec.topology.size)
    kept = [[_kept(n, width) for n, width in zip(dec.local_shape(r), dec.halo, strict=True)] for r in ranks]
    expected = [_point_numbers(dec, r, kept[r]) for r in ranks]
    held = [_owned_only(dec, r, kept[r], expected[r]) for r in ranks]
    for steps in phases:
        if len({step.tag for step in steps}) < len(steps):
            raise PlanError(f"phase of dim {steps[0].dim}: its messages share the tag {steps[0].tag}")
        in_flight = []
        for step in steps:
            _check_matching(step, dec)
            for sender in map(int, np.flatnonzero(step.send_to >= 0)):
                box = _box(step.dim, step.send, sender, kept[sender])
                in_flight.append((step, sender, int(step.send_to[sender]), held[sender][box].copy()))
        _check_apart(steps, dec)
        for step, sender, receiver, values in in_flight:
            box = _box(step.dim, step.recv, receiver, kept[receiver])
            target = held[receiver][box]
            if target.shape != values.shape:
                raise PlanError(
                    f"{_name(step, dec)}: rank {sender} sends a box like {values.shape}, "
                    f"rank {receiver} takes one like {target.shape}"
                )
            target[...] = values
    for rank in ranks:
        _check_result(dec, rank, kept[rank], held[rank], expected[rank])


prove.register(CollectivePlan, prove_collective)
prove.register(GossipPlan, prove_gossip)
prove.register(Schedule, prove_schedule)
prove.register(Program, prove_program)


def _kept(n: int, width: int) -> Ints:
    """The local indices that stand for a dim of n: both ends, two halo widths deep, and one between."""
    edge = 2 * width
    if n <= 2 * edge + 1:
        return np.arange(n)
    return np.concatenate([np.arange(edge), [n // 2], np.arange(n - edge, n)])


def _point_numbers(dec: Decomposition, rank: int, kept: list[Ints]) -> Ints:
    """The number of the global point of each kept local cell, `NOTHING` beyond walls."""
    number = np.zeros((1,) * dec.ndim, np.int64)
    valid = np.ones((1,) * dec.ndim, bool)
    for d, start in enumerate(dec.start(rank)):
        n = dec.global_shape[d]
        point = kept[d] - dec.halo[d] + start
        along = [1] * dec.ndim
        along[d] = len(point)
        number = number * n + (point % n).reshape(along)
        if not dec.periodic[d]:
            valid = valid & ((point >= 0) & (point < n)).reshape(along)
    return np.where(valid, number, NOTHING)


def _owned_only(dec: Decomposition, rank: int, kept: list[Ints], numbers: Ints) -> Ints:
    """The state before the exchange: owned cells hold their numbers, the halo nothing."""
    held = np.full_like(numbers, NOTHING)
    box = tuple(slice(*np.searchsorted(k, (w, w + n))) for k, w, n in zip(kept, dec.halo, dec.owned(rank), strict=True))
    held[box] = numbers[box]
    return held


def _box(dim: int, bounds: tuple[Ints, Ints], rank: int, kept: list[Ints]) -> tuple[slice, ...]:
    """The part of the kept cells that a message moves."""
    along = slice(*np.searchsorted(kept[dim], (bounds[0][rank], bounds[1][rank])))
    return tuple(along if d == dim else slice(None) for d in range(len(kept)))


def _name(step: HaloStep, dec: Decomposition) -> str:
    return f"phase {dec.topology.names[step.dim]}, leaving {'low' if step.side < 0 else 'high'}"


def _check_matching(step: HaloStep, dec: Decomposition) -> None:
    """Each send has its receive and the other way round, of the same extent, and into the halo only."""
    name, ranks = _name(step, dec), np.arange(dec.topology.size)
    for what, there, back in (
        ("sends to", step.send_to, step.recv_from),
        ("receives from", step.recv_from, step.send_to),
    ):
        if (there >= len(ranks)).any():
            rank = int(np.argmax(there >= len(ranks)))
            raise PlanError(f"{name}: rank {rank} {what} rank {there[rank]}, there are {len(ranks)} ranks")
        active = ranks[there >= 0]
        unmet = active[back[there[active]] != active]
        if unmet.size:
            rank = int(unmet[0])
            answer = int(back[there[rank]])
            raise PlanError(
                f"{name}: rank {rank} {what} rank {there[rank]}, whose side of it is "
                + (f"with rank {answer}" if answer >= 0 else "with nobody")
            )
    sizes = [high - low for low, high in (step.send, step.recv)]
    senders = ranks[step.send_to >= 0]
    unequal = senders[sizes[0][senders] != sizes[1][step.send_to[senders]]]
    if unequal.size:
        rank = int(unequal[0])
        peer = int(step.send_to[rank])
        raise PlanError(f"{name}: rank {rank} sends {sizes[0][rank]} layers, rank {peer} takes {sizes[1][peer]}")
    width, owned = dec.halo[step.dim], dec.all_owned()[step.dim]
    into_owned = (step.recv[0] < width + owned) & (step.recv[1] > width) & (step.recv_from >= 0)
    if into_owned.any():
        raise PlanError(f"{name}: rank {int(np.argmax(into_owned))} receives into cells that it owns")


def _check_apart(steps: Sequence[HaloStep], dec: Decomposition) -> None:
    """No rank stores a message of a phase where it stores another one, or in what it sends meanwhile."""
    taken = [("receives", step, step.recv, step.recv_from >= 0) for step in steps]
    sent = [("sends", step, step.send, step.send_to >= 0) for step in steps]
    pairs = [*combinations(taken, 2), *((one, other) for one in taken for other in sent)]
    for (_, step, (low, high), active), (verb, other, (first, last), also) in pairs:
        both = active & also & (low < last) & (first < high)
        if step.dim == other.dim and both.any():
            rank = int(np.argmax(both))
            raise PlanError(f"{_name(step, dec)}: rank {rank} receives into cells that it {verb} {_name(other, dec)}")


def _check_result(dec: Decomposition, rank: int, kept: list[Ints], held: Ints, expected: Ints) -> None:
    wrong = np.argwhere(held != expected)
    if not wrong.size:
        return
    cell = tuple(int(kept[d][i]) for d, i in enumerate(wrong[0]))
    got, wanted = int(held[tuple(wrong[0])]), int(expected[tuple(wrong[0])])

    def point(number: int) -> str:
        if number == NOTHING:
            return "nothing"
        return "the point " + str(tuple(int(i) for i in np.unravel_index(number, dec.global_shape)))

    raise PlanError(
        f"rank {rank} ends with {point(got)} in the local cell {cell}, which must hold {point(wanted)} "
        f"({len(wrong)} wrong cells on this rank)"
    )
