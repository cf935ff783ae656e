"""Plans for SimGrid: time-independent traces of all ranks, and a machine as a platform, for `smpirun -replay`.

SimGrid (Casanova et al. 2014) shares the links of all flows by a solver of its own: an outside check of `price`. A
trace has the posts of a rank in the order of its executor: receives ahead of their sends, a message when its data is
there. Two things are as in `price` by intent: a rank's sends leave one after the other, as an adapter serves its queue
(SimGrid would let them share the link, and all end late), and a computation stops nothing that is under way.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hpckit.errors import InputError
from hpckit.plan.machine.flights import messages
from hpckit.plan.machine.machine import Machine
from hpckit.plan.protocol import NOBODY, NOTHING, Plan, Step, require_plan

SPEED = 1e9  # flop/s of a host: a computation of s seconds is one of s * SPEED flops
AHEAD = 4  # steps of which receives are posted ahead, as the runner of collectives does at most
MOST_RANKS = 65536
LARGEST, PIECES = 1 << 30, 16  # bytes of a message of the trace, and how many may stand for one
UNLIMITED = 1e15  # bytes/s
REPLAY = (
    "smpirun -replay list -np {ranks} -platform platform.xml -hostfile hosts --cfg=network/model:CM02 "
    "--cfg=network/latency-factor:1.0 --cfg=network/bandwidth-factor:1.0 --cfg=network/weight-S:0 "
    "--cfg=network/TCP-gamma:1000000000000 --cfg=network/crosstraffic:no --cfg=smpi/async-small-thresh:0 "
    "--cfg=smpi/send-is-detached-thresh:0"
)


class Post(NamedTuple):
    """A message or a computation of a rank. step: its number. key: distinguishes messages between two ranks."""

    step: int
    peer: int
    key: int
    nbytes: float
    first: int
    last: int
    add: bool
    lag: int


def export_trace(plan: Plan, folder: str | Path, machine: Machine, nbytes: float = 0.0, itemsize: float = 8) -> str:
    """Write a plan's trace and the machine's platform into a folder; returns the command that replays them there.

    Raises `InputError` for steps in shared memory, more than two levels, or a folder that cannot be written.
    """
    require_plan(plan)
    if plan.ranks > MOST_RANKS:
        raise InputError(f"a trace of {plan.ranks} ranks", do=f"give at most {MOST_RANKS}")
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / "platform.xml").write_text("\n".join(platform(machine, plan.ranks)) + "\n", encoding="utf-8")
        names = [f"h{rank}" for rank in range(plan.ranks)]
        (path / "hosts").write_text("\n".join(names) + "\n", encoding="utf-8")
        for rank, lines in enumerate(trace(plan, machine, nbytes, itemsize)):
            text = "\n".join(f"{rank} {line}" for line in ["init", *lines, "finalize"])
            (path / f"rank{rank}").write_text(text + "\n", encoding="utf-8")
        listed = [str((path / f"rank{rank}").absolute()) for rank in range(plan.ranks)]
        (path / "list").write_text("\n".join(listed) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"the trace cannot be written to {folder}: {error.strerror}", do="give another folder"
        ) from None
    return REPLAY.format(ranks=plan.ranks)


def trace(plan: Plan, machine: Machine, nbytes: float = 0.0, itemsize: float = 8) -> list[list[str]]:
    """The lines of each rank, without its number, init and finalize."""
    ranks = [_Rank(rank, machine, plan.ranks) for rank in range(plan.ranks)]
    depth = 0
    for number, step in enumerate(plan.steps()):
        if step.place == "memory":
            raise InputError("SimGrid replays messages, not steps in shared memory", do="take an algorithm of messages")
        _read(ranks, number, step, nbytes, itemsize)
        depth = max(depth, step.lag)
    return [rank.lines(min(depth, AHEAD)) for rank in ranks]


def _read(ranks: list[_Rank], number: int, step: Step, nbytes: float, itemsize: float) -> None:
    """Deal a step to its ranks."""
    work = step.work
    if work is not None:
        for m, rank in enumerate(work.rank):
            wanted = work.reads[m][work.needs[m] != NOTHING] if work.needs.size else []
            ranks[rank].works.append((number, float(work.seconds[m]), [int(cell) for cell in wanted]))
    cells = _cells(step)
    turns: dict[tuple[int, int], int] = defaultdict(int)
    flight = messages(step, nbytes, itemsize)
    for m in range(len(flight.sender)):
        s, d, entry = int(flight.sender[m]), int(flight.receiver[m]), int(flight.entry[m])
        amount = float(flight.nbytes[m])
        first, last = int(step.sends.first[entry]), int(step.sends.last[entry])
        if s == d:
            ranks[s].copies.append((number, amount))
            continue
        turn = turns[s, d]
        turns[s, d] += 1
        into = cells.get((s, d), [(0, 0)])[min(turn, len(cells.get((s, d), [0])) - 1)]
        key = number * 64 + turn
        ranks[s].sends.append(Post(number, d, key, amount, first, last, step.add, step.lag))
        ranks[d].receives.append(Post(number, s, key, amount, *into, step.add, step.lag))


def _cells(step: Step) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Of each pair of ranks the cells that its messages go into, in their order."""
    ends = step.receives
    found: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    rank = ends.ranks()
    for m in np.flatnonzero(ends.peer != NOBODY):
        found[int(ends.peer[m]), int(rank[m])].append((int(ends.first[m]), int(ends.last[m])))
    return found


class _Rank:
    """The program of a rank."""

    def __init__(self, rank: int, machine: Machine, ranks: int) -> None:
        self.rank, self._machine, self._ranks = rank, machine, ranks
        self.sends: list[Post] = []
        self.receives: list[Post] = []
        self.works: list[tuple[int, float, list[int]]] = []
        self.copies: list[tuple[int, float]] = []

    def lines(self, window: int) -> list[str]:
        """Its posts. window: how many steps ahead receives are posted."""
        out: list[str] = []
        by_cells = bool(self.works)
        filled: dict[int, int] = {}  # cell -> the receive that fills it
        posted, taken = 0, [False] * len(self.receives)
        done = 0
        leaving: list[Post] = []
        taken_then = 0
        steps = sorted({each[0] for group in (self.sends, self.receives, self.works, self.copies) for each in group})
        sends, works, copies = _by_step(self.sends), _by_step(self.works), _by_step(self.copies)

        def take(number: int) -> None:
            if taken[number]:
                return
            taken[number] = True
            post = self.receives[number]
            out.extend(f"wait {post.peer} {self.rank} {key}" for key, _ in _pieces(post))
            if post.add:
                out.append(f"compute {post.nbytes / self._machine.reduction * SPEED:.6g}")

        for place, step in enumerate(steps):
            ahead = steps[min(place + (AHEAD if by_cells else window), len(steps) - 1)]
            while posted < len(self.receives) and self.receives[posted].step <= ahead:
                post = self.receives[posted]
                out += [f"irecv {post.peer} {key} {nbytes}" for key, nbytes in _pieces(post)]
                posted += 1
            if by_cells:
                while done < len(self.receives) and self.receives[done].step < step:
                    for cell in range(self.receives[done].first, self.receives[done].last):
                        filled[cell] = done
                    done += 1
            for _, seconds, cells in works.get(step, ()):
                for cell in cells:
                    if cell in filled:
                        take(filled[cell])
                if seconds > 0:
                    out.append(f"compute {seconds * SPEED:.6g}")
            for _, amount in copies.get(step, ()):
                seconds = float(self._machine.copying(self._ranks, np.array([amount]))[0])
                out.append(f"compute {seconds * SPEED:.6g}")
            for post in sends.get(step, ()):
                if by_cells:
                    for cell in range(post.first, post.last):
                        if cell in filled:
                            take(filled[cell])
                else:
                    while done < len(self.receives) and self.receives[done].step <= step - post.lag:
                        take(done)
                        done += 1
                # In order: unless both may be under way together, or a receive was between them.
                if leaving and leaving[-1].step <= step - post.lag and taken_then == sum(taken):
                    out += self._left(leaving)
                out += [f"isend {post.peer} {key} {nbytes}" for key, nbytes in _pieces(post)]
                leaving.append(post)
                taken_then = sum(taken)
        for number in range(len(self.receives)):
            take(number)
        return out + self._left(leaving)

    def _left(self, leaving: list[Post]) -> list[str]:
        """Wait for the sends that are under way."""
        lines = [f"wait {self.rank} {post.peer} {key}" for post in leaving for key, _ in _pieces(post)]
        leaving.clear()
        return lines


def _pieces(post: Post) -> list[tuple[int, int]]:
    """A message as the replay takes it, whose sizes are 32 bits wide: keys and bytes."""
    parts = min(max(math.ceil(post.nbytes / LARGEST), 1), PIECES)
    return [(post.key * PIECES + number, round(post.nbytes / parts)) for number in range(parts)]


def _by_step(posts: list) -> dict[int, list]:
    found: dict[int, list] = defaultdict(list)
    for each in posts:
        found[each[0]].append(each)
    return found


def platform(machine: Machine, ranks: int) -> Iterator[str]:
    """The machine as a platform of SimGrid: hosts behind a crossbar, with two levels the links of each node.

    A host a rank. A message between nodes crosses the uplinks of both, which all share, and has its level's bandwidth
    alone. The overheads of a message count as latency. Raises `InputError` for more than two levels, and for buses.
    """
    inner = machine.levels[0]
    if len(machine.levels) > 2 or any(level.shared for level in machine.levels) or machine.measured:
        raise InputError(
            f"the machine {machine.name} has more than two levels, buses that all share, or measured tables",
            do="export for a machine of one or two levels with bandwidth, latency and uplink",
        )
    size = inner.ranks if len(machine.levels) == 2 else ranks
    nodes = -(-ranks // size)
    yield "<?xml version='1.0'?>"
    yield '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">'
    yield '<platform version="4.1"><zone id="machine" routing="Full">'
    near = (inner.latency + machine.overhead) / 2
    for node in range(nodes):
        yield (
            f'<cluster id="n{node}" prefix="h" suffix="" radical="{node * size}-{min((node + 1) * size, ranks) - 1}" '
            f'speed="{SPEED:.0f}f" bw="{inner.bandwidth:.0f}Bps" lat="{near * 1e9:.3f}ns" '
            f'sharing_policy="SPLITDUPLEX" router_id="r{node}"/>'
        )
    if nodes > 1:
        outer = machine.levels[1]
        if outer.latency < inner.latency:
            raise InputError("the latency between nodes is less than within them", do="export for another machine")
        far = (outer.latency - inner.latency) / 2
        yield f'<link id="cap" bandwidth="{outer.bandwidth:.0f}Bps" latency="0ns" sharing_policy="FATPIPE"/>'
        shared = inner.uplink or UNLIMITED
        for node in range(nodes):
            for way in "ud":
                yield f'<link id="{way}{node}" bandwidth="{shared:.0f}Bps" latency="{far * 1e9:.3f}ns"/>'
        for a in range(nodes):
            for b in range(nodes):
                if a != b:
                    links = "".join(f'<link_ctn id="{name}"/>' for name in (f"u{a}", "cap", f"d{b}"))
                    gates = f'gw_src="r{a}" gw_dst="r{b}"'
                    yield f'<zoneRoute src="n{a}" dst="n{b}" {gates} symmetrical="NO">{links}</zoneRoute>'
    yield "</zone></platform>"
