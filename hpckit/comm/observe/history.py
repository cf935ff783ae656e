"""Find the rank that left the common path: compare the last calls of all ranks.

Pure functions, standard library only, since the watcher runs them.
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
    """Calls that differ but must not. did: rank -> call, of the ranks that left the path, or of all ranks if these are
    not known; due: the call that they should have made, None if not known.
    """

    did: Mapping[int, Call]
    due: Call | None
    others: tuple[int, ...] = ()

    @property
    def culprits(self) -> tuple[int, ...]:
        """The ranks that left the path."""
        return tuple(sorted(self.did))


def differing(history: History) -> Odd | None:
    """The first collective operation in which the calls of the ranks differ; None if all known calls agree."""
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
    """The calls at one moment that left the common path: those reached by a step from line to line that no rank had
    made before; if there are none, the calls of the minority; if there is no minority, all.
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
    """Rank -> an operation on a communicator of all ranks that it called and most ranks never did."""
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
    """The call of the other ranks in the place of the odd calls, and these ranks; None if no rank made one."""
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
    axis = call.group.rpartition(" (")[0]  # the key without the members: equal on all lines of an axis
    return call.file, call.line, call.operation, axis


def _step(past: Sequence[Call], call: Call) -> tuple[Place, Place] | None:
    """The step from the place of the previous call to the place of this one."""
    before = [it for it in past if it.sequence < call.sequence]
    return (_place(before[-1]), _place(call)) if before else None
