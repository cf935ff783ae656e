"""All that a plan does on the time axis, for drawings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hpckit.plan.machine.machine import Machine
from hpckit.plan.machine.walk import Walk
from hpckit.plan.protocol import NOBODY, Claim, Ints, Plan, Step, require_plan


@dataclass(frozen=True)
class MessageTime:
    """One message on the time axis, s: under way from begin to end (the adding included); number: of its step.

    first: its first cell. text: what the plan says of it. Work of a rank has itself as sender and receiver.
    """

    number: int
    sender: int
    receiver: int
    first: int
    begin: float
    end: float
    add: bool
    text: str
    work: bool = False


def timeline(
    plan: Plan, machine: Machine | None, nbytes: float = 0.0, itemsize: float = 8, shown: Ints | None = None
) -> Iterator[MessageTime]:
    """All that a plan does with its times, step by step, for drawings of a few ranks; without a machine a step takes
    a unit of time. shown: the ranks whose work and whose sent messages are asked for; None: all.
    """
    require_plan(plan)
    walk = None if machine is None else Walk(plan, machine, nbytes, itemsize)
    chosen = np.full(plan.ranks, shown is None)
    chosen[[] if shown is None else shown] = True
    for number, step in enumerate(plan.steps()):
        ends, ranks = step.sends, step.sends.ranks()
        entries = np.flatnonzero(ends.peer != NOBODY)
        unit = np.full(len(entries), float(number)), np.full(len(entries), number + 0.9)
        found, worked = ([(entries, *unit)], None) if walk is None else walk.take(step)
        work = step.work
        texts = step.texts() if step.texts is not None and not (work and not len(entries)) else None
        if work is not None:
            begin, end = worked or (np.full(len(work.rank), float(number)), np.full(len(work.rank), number + 0.9))
            for m in np.flatnonzero(chosen[work.rank]).tolist():
                rank, name = int(work.rank[m]), work.names[m] if len(work.names) else "computes"
                yield MessageTime(number, rank, rank, 0, float(begin[m]), float(end[m]), False, name, True)
        for entry, begin, end in found:
            asked = chosen[ranks[entry]]
            for m, start, stop in zip(entry[asked].tolist(), begin[asked], end[asked], strict=True):
                text = texts[m] if texts is not None else _range(step, m, plan)
                yield MessageTime(
                    number,
                    int(ranks[m]),
                    int(ends.peer[m]),
                    int(ends.first[m]),
                    float(start),
                    float(stop),
                    step.add,
                    text,
                )


def _range(step: Step, entry: int, plan: Plan) -> str:
    """The cells of a message, in words."""
    first, last = int(step.sends.first[entry]), int(step.sends.last[entry]) - 1
    if step.wraps:
        claim = plan.claim()
        last %= claim.start.shape[1] if isinstance(claim, Claim) else last + 1
    return str(first) if first == last else f"{first}-{last}"
