"""The proof of a collective plan: all ranks are executed symbolically, without MPI.

What a rank contributes to a slot is a random 64-bit number, and a sum of contributions is the sum of their numbers: a
contribution that is lost, doubled or misplaced, or data that nobody gave, shows with probability 1 - 2^-64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpckit.errors import PlanError
from hpckit.plan.collective.plan import CollectivePlan, Step, ends_with, extents, slot_owner, starts_with
from hpckit.plan.collective.rows import Ints

# A count that no slot of a plan divides evenly: sizes of slots then differ, and a wrong extent shows.
UNEVEN = 7


@dataclass(frozen=True)
class CollectiveProof:
    """What was proved: so many steps and messages between so many ranks."""

    ranks: int
    steps: int
    messages: int


def prove_collective(plan: CollectivePlan) -> CollectiveProof:
    """Raise `PlanError` unless every rank ends with exactly what the operation promises it.

    Checked for all ranks: every send is met by one receive of the same extent (so the steps, whose receives are posted
    before their sends, cannot deadlock); nothing is stored into a slot that leaves in the same step; what is sent was
    complete `lag` steps before; each promised slot ends with each contribution once.
    """
    p, slots = plan.ranks, plan.slots
    given = np.random.default_rng(p).integers(0, 2**64, (p, slots), np.uint64)
    # Slots without data of their own hold numbers too, so that what was never given shows when it is sent.
    held = np.where(starts_with(plan), given, np.random.default_rng(p + 1).integers(0, 2**64, (p, slots), np.uint64))
    complete = np.full((p, slots), -plan.lag, np.int32)  # the step that completed the slot
    extent = extents(plan, UNEVEN * slots + slots // 2)
    sent = 0
    for number, step in enumerate(plan.steps()):
        _check_matching(plan, number, step, extent(step))
        senders = np.flatnonzero(step.send_to >= 0)
        receivers = step.send_to[senders]
        width = (step.send[1] - step.send[0])[senders]
        out = _cells(senders, step.send[0][senders], width, slots)
        into = _cells(receivers, step.recv[0][receivers], width, slots)
        _check_ready(plan, number, complete, out)
        if not step.reduce:
            _check_untouched(plan, number, out, into)
        values = held[out]
        if step.reduce:
            held[into] += values
        else:
            held[into] = values
        complete[into] = number
        sent += int((senders != receivers).sum())
    _check_result(plan, held, given)
    return CollectiveProof(p, plan.length, sent)


def _cells(ranks: Ints, first: Ints, width: Ints, slots: int) -> tuple[Ints, Ints]:
    """The cells (rank, slot) of all messages one after the other, ranges wrapped around."""
    start = np.cumsum(width) - width
    along = np.arange(int(width.sum())) - np.repeat(start, width)
    return np.repeat(ranks, width), (np.repeat(first, width) + along) % slots


def _check_matching(plan: CollectivePlan, number: int, step: Step, sizes: tuple[Ints, Ints]) -> None:
    """Each send has its receive and the other way round, of as many slots and elements."""
    ranks = np.arange(plan.ranks)
    for what, there, back in (
        ("sends to", step.send_to, step.recv_from),
        ("receives from", step.recv_from, step.send_to),
    ):
        if (there >= plan.ranks).any():
            rank = int(np.argmax(there >= plan.ranks))
            raise _fault(plan, number, f"rank {rank} {what} rank {there[rank]}, there are {plan.ranks} ranks")
        active = ranks[there >= 0]
        unmet = active[back[there[active]] != active]
        if unmet.size:
            rank = int(unmet[0])
            other = int(back[there[rank]])
            whose = f"rank {other}" if other >= 0 else "nobody"
            raise _fault(plan, number, f"rank {rank} {what} rank {there[rank]}, whose side of it is with {whose}")
    senders = ranks[step.send_to >= 0]
    receivers = step.send_to[senders]
    for unit, sends, takes in (
        ("slots", step.send[1] - step.send[0], step.recv[1] - step.recv[0]),
        ("elements", *sizes),
    ):
        unequal = np.flatnonzero(sends[senders] != takes[receivers])
        if unequal.size:
            rank, peer = int(senders[unequal[0]]), int(receivers[unequal[0]])
            first = int(step.send[0][rank])
            raise _fault(
                plan,
                number,
                f"rank {rank} sends {sends[rank]} {unit} from slot {first} on, rank {peer} takes {takes[peer]}",
            )


def _check_ready(plan: CollectivePlan, number: int, complete: np.ndarray, out: tuple[Ints, Ints]) -> None:
    late = np.flatnonzero(complete[out] > number - plan.lag)
    if late.size:
        rank, slot = int(out[0][late[0]]), int(out[1][late[0]])
        raise _fault(
            plan,
            number,
            f"rank {rank} sends slot {slot}, which step {complete[rank, slot]} completed; "
            f"the plan allows what is {plan.lag} steps old",
        )


def _check_untouched(plan: CollectivePlan, number: int, out: tuple[Ints, Ints], into: tuple[Ints, Ints]) -> None:
    """Nothing is stored into what leaves in the same step; a copy within a rank may not overlap itself either."""
    leaving = np.sort(out[0] * plan.slots + out[1])
    arriving = into[0] * plan.slots + into[1]
    at = np.searchsorted(leaving, arriving)
    both = np.flatnonzero(leaving[np.minimum(at, len(leaving) - 1)] == arriving) if leaving.size else at
    if both.size:
        rank, slot = int(into[0][both[0]]), int(into[1][both[0]])
        raise _fault(plan, number, f"rank {rank} stores into slot {slot} while it sends it")


def _check_result(plan: CollectivePlan, held: np.ndarray, given: np.ndarray) -> None:
    wrong = np.argwhere((held != _expected(plan, given)) & ends_with(plan))
    if wrong.size:
        rank, slot = map(int, wrong[0])
        raise PlanError(
            f"{_name(plan)}: rank {rank} ends with a wrong slot {slot} "
            f"({len(wrong)} wrong slots on {len(set(wrong[:, 0].tolist()))} ranks)"
        )


def _expected(plan: CollectivePlan, given: np.ndarray) -> np.ndarray:
    """What each slot must hold where it is promised: uint64[ranks, slots], or one row for all ranks."""
    if plan.operation in ("all_reduce", "reduce", "reduce_scatter"):
        return given.sum(0, dtype=np.uint64)
    if plan.operation in ("broadcast", "scatter"):
        return given[plan.root]
    if plan.operation == "all_to_all":
        return np.concatenate([given[:, : plan.ranks], given[:, : plan.ranks].T], axis=1)
    return given[slot_owner(plan), np.arange(plan.slots)]


def _name(plan: CollectivePlan) -> str:
    return f"{plan.operation} by {plan.algorithm} on {plan.ranks} ranks"


def _fault(plan: CollectivePlan, number: int, what: str) -> PlanError:
    return PlanError(f"{_name(plan)}, step {number}: {what}")
