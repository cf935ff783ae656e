"""Which rank left the path that all take: from the last calls of every rank to the one that is odd.

Pure functions, standard library only, as of the watcher.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hpckit.comm.observe.diagnosis import Call

History = Mapping[int, Sequence[Call]]  # rank -> its last calls, the latest last
Place = tuple[str, int, str, str]  # file, line, operation, axis


@dataclass(frozen=True)
class Odd:
    """Calls that differ where they must not. did: rank -> call, of the ranks that left the path, or of all where that
    cannot be told; due: what they should have called, None where that cannot be told.
    """

    did: Mapping[int, Call]
    due: Call | None
    others: tuple[int, ...] = ()

    @property
    def culprits(self) -> tuple[int, ...]:
        """The ranks that left the path."""
        return tuple(sorted(self.did))


def differing(history: History) -> Odd | None:
    """The first collective operation that ranks called differently, None where all that is known agrees."""
    calls: dict[tuple[str, int], dict[int, Call]] = {}
    for rank, past in history.items():
        for call in past:
            if not call.message:
                calls.setdefault((call.group, call.number), {})[rank] = call
    unlike = [them for them in calls.values() if not _alike(list(them.values()))]
    if not unlike:
        return None
    return odd_one(history, min(unlike, key=lambda them: min(call.sequence for call in them.values())))


def odd_one(history: History, calls: Mapping[int, Call]) -> Odd:
    """Of calls at one moment, those that left the path: steps from line to line that no rank had made before; else
    those of the fewer ranks; else all.
    """
    groups: list[dict[int, Call]] = []
    for rank, call in calls.items():
        for group in groups:
            first = next(iter(group.values()))
            if first.same(call) and _place(first) == _place(call):
                group[rank] = call
                break
        else:
            groups.append({rank: call})
    known: set[tuple[Place, Place]] = set()
    for rank, call in calls.items():
        before = [_place(past) for past in history[rank] if past.sequence < call.sequence]
        known.update(pairwise(before))
    new = [group for group in groups if not any(_step(history[rank], call) in known for rank, call in group.items())]
    if not 0 < len(new) < len(groups):
        most = max(len(group) for group in groups)
        new = [group for group in groups if len(group) < most]
    if not new:
        return Odd(dict(calls), None)
    did = {rank: call for group in new for rank, call in group.items()}
    rest = {rank: call for rank, call in calls.items() if rank not in did}
    return Odd(did, next(iter(rest.values())), tuple(sorted(rest)))


def rare(sites: Mapping[int, Sequence[Call]]) -> dict[int, Call]:
    """Of all operations that ranks ever called on communicators of them all: rank -> one that most never did."""
    callers: dict[tuple[str, str, int], dict[int, Call]] = {}
    for rank, calls in sites.items():
        for call in calls:
            if not call.message:
                callers.setdefault((call.group, call.operation, call.root), {})[rank] = call
    found: dict[int, Call] = {}
    for who in callers.values():
        members = next(iter(who.values())).members
        if len(who) <= len(members) // 2 and all(rank in sites for rank in members):
            for rank, call in who.items():
                found.setdefault(rank, call)
    return found


def due_there(sites: Mapping[int, Sequence[Call]], odd: Mapping[int, Call]) -> tuple[Call | None, tuple[int, ...]]:
    """What the other ranks called at the places of calls that are odd, and who they are; None where nobody did."""
    places = {_place(call): call for call in odd.values()}
    found = {
        rank: call
        for rank, calls in sites.items()
        if rank not in odd
        for call in calls
        if _place(call) in places and call.root != places[_place(call)].root
    }
    return next(iter(found.values()), None), tuple(sorted(found))


def _alike(calls: Sequence[Call]) -> bool:
    return all(call.same(calls[0]) for call in calls[1:])


def _place(call: Call) -> Place:
    axis = call.group.rpartition(" (")[0]  # the key without the members: alike on all lines of an axis
    return call.file, call.line, call.operation, axis


def _step(past: Sequence[Call], call: Call) -> tuple[Place, Place] | None:
    """From the line of the call before to that of this one."""
    before = [it for it in past if it.sequence < call.sequence]
    return (_place(before[-1]), _place(call)) if before else None
