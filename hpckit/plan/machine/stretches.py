"""Stretches of alike steps, priced whole once their clocks move on evenly."""

from __future__ import annotations

import numpy as np

from hpckit.plan.machine.clocks import Clocks
from hpckit.plan.machine.costs import PreparedFlight
from hpckit.plan.protocol import Floats

# A stretch of alike steps counts as steady once its clocks move on by equal amounts, to this relative accuracy.
STEADY = 1e-9


def repeated(clocks: Clocks, period: list[PreparedFlight], times: int) -> Clocks:
    """The clocks after a stretch of alike steps, `period` flown so many times.

    Once one period has moved all clocks as the one before it, the rest is taken whole. Where the machine and the
    messages look the same from every unit of its largest level, as in a ring, one unit is walked for all.
    """
    for flight in period:
        clocks.count(flight, times)
    unit = clocks.machine.largest_unit()
    whole = clocks.ranks
    folded = unit and whole > unit and whole % unit == 0 and all(flight.repeats(unit, whole) for flight in period)
    if folded and clocks.repeats(unit):
        clocks, period = clocks.folded(unit), [flight.folded(unit) for flight in period]
    # Where latencies rule, the pace of a rank repeats only after the messages have passed a whole unit.
    watches, done = [Steady(clocks, stride) for stride in {1, max(unit, 1)}], 0
    while done < times:
        for flight in period:
            clocks.fly(flight)
        done += 1
        for watch in watches:
            done += watch.jump(clocks, done, times)
    return clocks.tiled(whole)


class Steady:
    """Sees whether every so many periods move all clocks by equal amounts, and takes the rest of them whole."""

    def __init__(self, clocks: Clocks, stride: int) -> None:
        self._stride = stride
        self._before = clocks.state.copy()
        self._moved: Floats | None = None

    def jump(self, clocks: Clocks, done: int, times: int) -> int:
        """Look at the clocks after `done` of `times` periods; return how many were taken whole, mostly 0."""
        if done % self._stride:
            return 0
        step = clocks.state - self._before
        moved, self._moved = self._moved, step[..., 0]
        jumps = 0
        if moved is not None and _level(step[0, :, 0]) and np.allclose(step[..., 0], moved, rtol=STEADY, atol=0.0):
            jumps = (times - done) // self._stride
            clocks.move_on(step, jumps)
        self._before[...] = clocks.state
        return jumps * self._stride


def _level(values: Floats) -> bool:
    """Whether all that moved has moved alike."""
    moved = values[values > 0]
    return bool(moved.size and np.ptp(moved) <= STEADY * moved.max())
