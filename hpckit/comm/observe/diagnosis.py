"""The diagnosis of a stall: from the state of every rank of a node to the sentence that names the culprit.

Pure functions of the data read from the table, standard library only: the watcher runs them in a process of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

RUNNING, LEFT, DEAD = "running", "left", "dead"
STOPPED = "stopped"  # by a signal or a debugger: of a process, and of the stall that it causes
SHOWN = 3  # frames of the stack of a late rank
MOST_SHOWN = 8  # late ranks in the text of the report; the file has all


@dataclass(frozen=True)
class Call:
    """An operation that a rank entered, and where: `group` is a key of the communicator, equal on all its ranks."""

    operation: str
    axis: str
    dtype: str
    count: int
    root: int
    group: str
    members: tuple[int, ...]
    number: int
    file: str
    line: int
    function: str
    inside: bool
    sequence: int = 0  # its number among all calls of the rank

    @property
    def message(self) -> bool:
        """Whether it is a message: it waits for one rank, `root` (-1: any, -2: none), and has no number in common."""
        return self.number == 0

    def what(self) -> str:
        """Operation, elements and axis."""
        amount = f" of {self.count} {self.dtype}" if self.count >= 0 else ""
        whom = ("with" if self.message else "with root") + f" {'rank ' * self.message}{self.root}"
        return f"{self.operation}{amount}{' ' + whom if self.root >= 0 else ''} on {self.axis}"

    def where(self) -> str:
        """File, line and function of the call site."""
        return f"{os.path.basename(self.file)}:{self.line} ({self.function})"

    def same(self, other: Call) -> bool:
        """Whether both are the same operation in all that ranks must agree on and both have reported."""
        mine, yours = (self.operation, self.root), (other.operation, other.root)
        told = self.count >= 0 and other.count >= 0
        return mine == yours and (not told or (self.dtype, self.count) == (other.dtype, other.count))


@dataclass(frozen=True)
class Rank:
    """The state of a rank in the table. still: s since its last change; doing: computing, asleep or stopped;
    numbers: of its latest operation on each group; stack: `file:line (function)`, innermost first.
    """

    rank: int
    pid: int
    life: str
    last: Call | None
    numbers: Mapping[str, int]
    still: float
    doing: str = ""
    stack: tuple[str, ...] = ()

    @property
    def inside(self) -> bool:
        """Whether the rank is in an operation."""
        return self.life == RUNNING and self.last is not None and self.last.inside

    def text(self) -> str:
        """The state of the rank in a line."""
        after = f" {self.last.what()} at {self.last.where()}" if self.last else ""
        if self.inside:
            return f"rank {self.rank} is {'stopped ' * (self.doing == STOPPED)}in{after}"
        where = f", at {' in '.join(self.stack[:SHOWN])}" if self.stack else ""
        since = f" after{after}" if after else " before its first operation"
        doing = {RUNNING: self.doing or "outside any operation", LEFT: "through", DEAD: "dead"}[self.life]
        return f"rank {self.rank} is {doing}{where},{since}"


@dataclass(frozen=True)
class Stall:
    """Ranks that wait in vain. kind: `late` (the culprit is outside any operation), `left` (its program has ended),
    `dead`, `stopped` (its process is stopped inside an operation), `differ` (ranks called different operations),
    `crossed` (ranks wait for one another on different axes), `together` (all are in the operation and it does not end),
    `elsewhere` (the late ranks are on other nodes), `idle` (no rank is in an operation, and none makes progress),
    `differed` (ranks called different operations, and went on).
    """

    kind: str
    seconds: float
    culprits: tuple[int, ...]
    waiting: tuple[int, ...]
    ranks: Mapping[int, Rank] = field(repr=False)
    did: Mapping[int, Call] = field(
        default_factory=dict, repr=False
    )  # the calls of the culprits, if these are the fault
    due: Call | None = None  # the call that they should have made
    others: tuple[int, ...] = ()  # the ranks that made it

    @property
    def hopeless(self) -> bool:
        """Whether the stall cannot resolve itself."""
        return self.kind in ("left", "dead", "differ", "crossed")

    def text(self) -> str:
        """The report: a line with the fault, then the ranks and their places."""
        if self.did and self.due is not None:
            lines = [f"{self._since()}{line}" for line in self._odd_lines()]
        else:
            lines = [f"{self._since()}{self._headline()}"]
        for rank in self.culprits[:MOST_SHOWN]:
            if rank in self.ranks:
                lines.append(f"  {self.ranks[rank].text()}")
        if self.kind not in ("differ", "together") and (self.kind != "crossed" or self.culprits != self.waiting):
            lines += [f"  {who} in {what}" for who, what in self._by_place("wait", "waits")]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        ranks = [asdict(it) for _, it in sorted(self.ranks.items())]
        return {
            "kind": self.kind,
            "seconds": self.seconds,
            "culprits": list(self.culprits),
            "waiting": list(self.waiting),
            "calls": {rank: asdict(call) for rank, call in sorted(self.did.items())},
            "due": asdict(due) if (due := self.due or self._due()) else None,
            "text": self.text(),
            "ranks": ranks,
        }

    def _since(self) -> str:
        return f"stalled for {self.seconds:.3g} s: " if self.kind != "differed" else ""

    def _odd_lines(self) -> list[str]:
        """A line for each odd call, with the call of the other ranks in its place."""
        assert self.due is not None
        places: dict[str, list[int]] = {}
        for rank, call in self.did.items():
            places.setdefault(f"{call.what()} at {call.where()}", []).append(rank)
        due, number = self.due, "" if self.due.message or self.kind == "differed" else f" (number {self.due.number})"
        there = f"where {ranks_text(self.others)} called {due.what()} at {due.where()}{number}"
        return [f"{ranks_text(ranks)} called {what}, {there}" for what, ranks in places.items()]

    def _headline(self) -> str:
        who, due = ranks_text(self.culprits), self._due()
        if self.kind == "differed":
            calls = "; ".join(f"rank {rank}: {call.what()} at {call.where()}" for rank, call in self.did.items())
            return f"ranks called different operations on one axis some time ago, without a stall: {calls or who}"
        if self.kind == "differ":
            return f"{who} called different operations as number {due.number if due else '?'} on one axis"
        if self.kind == STOPPED:
            return f"the process of {who} is stopped, by a signal or a debugger"
        if self.kind == "crossed":
            if self.culprits == self.waiting:
                return f"{who} wait for one another"
            return f"{who} {'is' if len(self.culprits) == 1 else 'are'} elsewhere than the others, and all wait"
        if self.kind == "together":
            return f"all of {who} are in {due.what() if due else 'an operation'}, and it does not end"
        has, is_over = ("has", "is") if len(self.culprits) == 1 else ("have", "are")
        what = f"{due.what()}{'' if due.message else f' (number {due.number})'}" if due else "an operation"
        if self.kind == "elsewhere":
            return f"the ranks of this node are all in {what}; what holds them is among {who}, on other nodes"
        if self.kind == "idle":
            return f"{who} {has} begun no operation and reported no step"
        why = {"late": "", "left": f", and {is_over} through with the program", "dead": f", and {is_over} dead"}
        come = "answered" if due and due.message else "come to"
        return f"{who} {has} not {come} {what}{why[self.kind]}"

    def _due(self) -> Call | None:
        waiting = [self.ranks[rank].last for rank in self.waiting]
        mine = set(self.culprits)
        direct = [call for call in waiting if call and mine & ({call.root} if call.message else set(call.members))]
        return next(iter(direct), waiting[0] if waiting else None)

    def _by_place(self, several: str, one: str) -> list[tuple[str, str]]:
        places: dict[str, list[int]] = {}
        for rank in self.waiting:
            call = self.ranks[rank].last
            if call is not None and not (self.kind == "crossed" and rank in self.culprits):
                places.setdefault(f"{call.what()} at {call.where()}", []).append(rank)
        return [(f"{ranks_text(who)} {several if len(who) > 1 else one}", what) for what, who in places.items()]


def diagnose(ranks: Iterable[Rank], limit: float) -> Stall | None:
    """The stall among these ranks of a node, or None.

    A rank stalls when it has been in an operation for `limit` s without a change, and the ranks that it waits for,
    directly or through others, have not changed for that long either. A rank that goes on with other operations, or
    calls `beat`, is slow but not a culprit.
    """
    seen = {it.rank: it for it in ranks}
    stuck = sorted(rank for rank, it in seen.items() if it.inside and it.still > limit)
    if not stuck:
        return None
    seconds = max(seen[rank].still for rank in stuck)
    differing = _differing(seen, stuck)
    if differing:
        return Stall("differ", seconds, differing, tuple(stuck), seen)
    stopped = tuple(rank for rank in stuck if seen[rank].doing == STOPPED)
    if stopped:
        return Stall(STOPPED, seconds, stopped, tuple(rank for rank in stuck if rank not in stopped), seen)
    reached, away = _reached(seen, stuck)
    if not reached and not away:
        together = sorted({member for rank in stuck for member in _call(seen[rank]).members})
        if all(seen[rank].still > limit for rank in together if rank in seen):
            return Stall("together", seconds, tuple(together), tuple(stuck), seen)
        return None
    out = [rank for rank in reached if not seen[rank].inside]
    for kind, life in (("dead", DEAD), ("left", LEFT), ("late", RUNNING)):
        guilty = [rank for rank in out if seen[rank].life == life and (life != RUNNING or seen[rank].still > limit)]
        if guilty:
            return Stall(kind, seconds, tuple(guilty), _waiting_for(seen, guilty), seen)
    if out:
        return None  # they are on their way
    if away:
        return Stall("elsewhere", seconds, tuple(sorted(away)), tuple(stuck), seen)
    circle = sorted({*reached, *stuck})
    if all(seen[rank].still > limit for rank in circle):
        return Stall("crossed", seconds, _odd(seen, circle), tuple(circle), seen)
    return None


def _odd(seen: Mapping[int, Rank], circle: list[int]) -> tuple[int, ...]:
    """The ranks that are not in the operation of most ranks of a circle; all, if no operation has more than half."""
    where: dict[tuple[str, int], list[int]] = {}
    for rank in circle:
        call = _call(seen[rank])
        if not call.message:
            where.setdefault((call.group, call.number), []).append(rank)
    most = max(where.values(), key=len, default=[])
    return tuple(rank for rank in circle if rank not in most) if 2 * len(most) > len(circle) else tuple(circle)


def diagnose_idle(ranks: Iterable[Rank], limit: float) -> Stall | None:
    """The stall of a node where every rank is outside of any operation and none has changed for `limit` s."""
    seen = {it.rank: it for it in ranks}
    running = [it for it in seen.values() if it.life == RUNNING]
    if not running or any(it.inside or it.still <= limit for it in running):
        return None
    return Stall("idle", min(it.still for it in running), tuple(sorted(it.rank for it in running)), (), seen)


def ranks_text(ranks: Iterable[int]) -> str:
    """`rank 3`, or `ranks 0, 2-5`."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    words = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"rank{'s' if len(runs) > 1 or (runs and runs[0][0] != runs[0][1]) else ''} {words}"


def _call(rank: Rank) -> Call:
    assert rank.last is not None
    return rank.last


def _differing(seen: Mapping[int, Rank], stuck: list[int]) -> tuple[int, ...]:
    """The ranks whose operations differ though they have the same number on the same communicator."""
    for rank in stuck:
        mine = _call(seen[rank])
        if mine.message:
            continue
        there = [
            other
            for other in mine.members
            if other in seen
            and seen[other].inside
            and (_call(seen[other]).group, _call(seen[other]).number) == (mine.group, mine.number)
        ]
        if any(not _call(seen[other]).same(mine) for other in there):
            return tuple(there)
    return ()


def _reached(seen: Mapping[int, Rank], stuck: list[int]) -> tuple[list[int], set[int]]:
    """The ranks that the stuck ranks wait for, directly or through others: on this node, and on other nodes."""
    reached: set[int] = set()
    away: set[int] = set()
    todo = list(stuck)
    while todo:
        for other in _awaited(seen, todo.pop()):
            if other not in seen:
                away.add(other)
            elif other not in reached:
                reached.add(other)
                if seen[other].inside:
                    todo.append(other)
    return sorted(reached), away


def _awaited(seen: Mapping[int, Rank], rank: int) -> list[int]:
    """The members that have not entered the rank's operation; for a message, its peer."""
    call = _call(seen[rank])
    if call.message:
        return [call.root] if call.root >= 0 else [other for other in call.members if other != rank] * (call.root == -1)
    return [
        other
        for other in call.members
        if other != rank and (other not in seen or seen[other].numbers.get(call.group, 0) < call.number)
    ]


def _waiting_for(seen: Mapping[int, Rank], guilty: list[int]) -> tuple[int, ...]:
    """The ranks that wait for the guilty ranks, directly or through others."""
    inside = [rank for rank, it in seen.items() if it.inside]
    return tuple(sorted(rank for rank in inside if set(guilty) & set(_reached(seen, [rank])[0])))
