"""A rank's own program of a collective plan: its moves in order, and what each must wait for."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from itertools import groupby, zip_longest
from typing import NamedTuple

from hpckit.plan.collective.algorithms import collective_plan
from hpckit.plan.collective.plan import CollectivePlan
from hpckit.plan.protocol import NOBODY, Ends, Step

Range = tuple[int, int]
NOTHING = (0, 0)


class RankStep(NamedTuple):
    """What a rank does in one step: slots that it sends, slots that arrive, each first to end (excluded).

    Counts of earlier moves tell what must be over first. send_after: receives that complete what is sent. take_after:
    sends that read what the arriving message overwrites; receives_before: receives into the same slots.
    """

    send_to: int
    send: Range
    recv_from: int
    recv: Range
    reduce: bool
    send_after: int
    take_after: int
    receives_before: int


class RankProgram(NamedTuple):
    """The moves of one rank; `slots` and `lag` as in the plan."""

    moves: tuple[RankStep, ...]
    slots: int
    lag: int


@functools.lru_cache(maxsize=256)
def rank_program(
    operation: str, algorithm: str, ranks: int, rank: int, options: tuple[tuple[str, int | tuple[int, int]], ...] = ()
) -> RankProgram:
    """The program of `rank` of `collective_plan(operation, algorithm, ranks, **options)`."""
    return program_of(collective_plan(operation, algorithm, ranks, **dict(options)), rank)


def program_of(plan: CollectivePlan, rank: int) -> RankProgram:
    """The program of `rank` of a plan by messages."""
    return _program(plan.steps(), rank, plan.slots, plan.lag)


def _program(steps: Iterable[Step], rank: int, slots: int, lag: int) -> RankProgram:
    moves: list[RankStep] = []
    last_send, last_recv = [0] * slots, [0] * slots
    for step in steps:
        for send_to, send, recv_from, recv in _parts(step, rank, slots):
            number = len(moves) + 1
            send_after = max(last_recv[slice(*send)], default=0)
            take_after = max(last_send[slice(*recv)], default=0)
            if step.add and send[0] < recv[1] and recv[0] < send[1]:
                take_after = number  # it adds to what it sends itself
            receives_before = max(last_recv[slice(*recv)], default=0)
            moves.append(RankStep(send_to, send, recv_from, recv, step.add, send_after, take_after, receives_before))
            last_send[slice(*send)] = [number] * (send[1] - send[0])
            last_recv[slice(*recv)] = [number] * (recv[1] - recv[0])
    return RankProgram(tuple(moves), slots, lag)


class RankPhase(NamedTuple):
    """Steps of a rank that follow each other in one place, messages or the shared memory of its node.

    block: in memory, the slots that the rank adds up (`add`) or shows to the others. program: of messages.
    """

    add: bool
    block: Range
    program: RankProgram | None


@functools.lru_cache(maxsize=64)
def phases_over_nodes(ranks: int, node_size: int, across: str, segments: int, rank: int) -> tuple[RankPhase, ...]:
    """What a rank does in the plan "nodes" of an all-reduce."""
    plan = collective_plan("all_reduce", "nodes", ranks, node_size=node_size, across=across, segments=segments)
    return tuple(
        _phase(list(steps), plan, rank, node_size, segments)
        for _, steps in groupby(plan.steps(), lambda step: step.place)
    )


def _phase(steps: list[Step], plan: CollectivePlan, rank: int, node_size: int, lag: int) -> RankPhase:
    if steps[0].place == "messages":
        program = _program(steps, rank, plan.slots, lag)
        # Messages go between ranks of the same place in their nodes, who know each other by the numbers of these.
        moves = (
            move._replace(send_to=_node(move.send_to, node_size), recv_from=_node(move.recv_from, node_size))
            for move in program.moves
        )
        return RankPhase(False, NOTHING, program._replace(moves=tuple(moves)))
    adding = [step for step in steps if step.add]
    ends = adding[0].receives if adding else steps[0].sends
    entry = ends.of(rank)[0]
    return RankPhase(bool(adding), (int(ends.first[entry]), int(ends.last[entry])), None)


def _node(rank: int, node_size: int) -> int:
    return rank if rank == NOBODY else rank // node_size


def _parts(step: Step, rank: int, slots: int) -> list[tuple[int, Range, int, Range]]:
    """The messages of a rank in a step; two of them where a range goes on at the first slot."""
    send_to, recv_from = int(step.sends.peer[rank]), int(step.receives.peer[rank])
    sent = _unwrapped(step.sends, rank, slots) if send_to != NOBODY else []
    taken = _unwrapped(step.receives, rank, slots) if recv_from != NOBODY else []
    return [
        (send_to if send else NOBODY, send or NOTHING, recv_from if recv else NOBODY, recv or NOTHING)
        for send, recv in zip_longest(sent, taken)
    ]


def _unwrapped(ends: Ends, rank: int, slots: int) -> list[Range]:
    first, last = int(ends.first[rank]), int(ends.last[rank])
    if first >= slots:
        first, last = first - slots, last - slots
    return [(first, last)] if last <= slots else [(first, slots), (0, last - slots)]
