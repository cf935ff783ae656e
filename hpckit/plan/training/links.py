"""Messages of a mesh axis on a machine: how long its collectives take, as rings over the levels that it spans."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hpckit.plan.machine.machine import Compute, Level, Machine


@dataclass(frozen=True)
class Line:
    """A line of `size` ranks, `stride` ranks of the machine apart, on its links.

    inner: of its ranks share a unit of the innermost level. bandwidth: bytes/s of a ring over all of it, where the
    ranks of a unit lend each other their links outward. latency: s of a hop out of a unit; around: of all hops of a
    ring. near, far: bytes/s of a message within a unit, and out of it.
    """

    size: int
    inner: int
    bandwidth: float
    latency: float
    around: float
    near: float
    far: float

    def gather(self, nbytes: float) -> float:
        """Seconds of an all-gather of so many bytes in all, or of a reduce-scatter."""
        if self.size == 1:
            return 0.0
        return (self.size - 1) / self.size * nbytes / self.bandwidth + self.around

    def exchange(self, nbytes: float, copies: float = 1.0) -> float:
        """Seconds of an all-to-all in which a rank sends so many bytes in all, its own part included.

        copies: of the bytes that leave the unit, the share that is sent, if what several ranks of another unit need is
        sent there once.
        """
        if self.size == 1:
            return 0.0
        part = nbytes / self.size
        out = (self.size - self.inner) * part * copies / self.far
        return max(out, (self.inner - 1) * part / self.near) + math.log2(self.size) * self.latency

    def message(self, nbytes: float) -> float:
        """Seconds of a message to the next rank of the line, which may stand in the next unit."""
        return nbytes / (self.near if self.inner >= self.size else self.far) + self.latency


def line(machine: Machine, size: int, stride: int) -> Line:
    """The line of a mesh axis whose neighbors stand `stride` ranks apart."""
    efficiency = compute_of(machine).efficiency
    span = (size - 1) * stride + 1
    level, below = _level(machine.levels, span)
    node = machine.levels[0].ranks or span
    inner = min(size, max(node // stride, 1)) if len(machine.levels) > 1 else size
    near = machine.levels[0].bandwidth if inner > 1 or size == 1 else level.bandwidth
    far = level.bandwidth
    if below is not None and below.uplink and below.ranks:
        far = min(far, below.uplink / below.ranks)
    bandwidth = near if inner == size else min(near, far * inner) if inner > 1 else far
    hop, step = level.latency + machine.overhead, machine.levels[0].latency + machine.overhead
    units = -(-size // inner)
    around = (size - 1) * step if inner == size else units * hop + (size - units) * (step if inner > 1 else hop)
    return Line(size, inner, bandwidth * efficiency, hop, around, near * efficiency, far * efficiency)


def compute_of(machine: Machine) -> Compute:
    """What its ranks compute with; the callers have checked that the machine says it."""
    assert machine.compute is not None
    return machine.compute


def _level(levels: tuple[Level, ...], span: int) -> tuple[Level, Level | None]:
    """The innermost level that holds so many ranks, and the one below it."""
    below = None
    for level in levels[:-1]:
        if span <= level.ranks:
            return level, below
        below = level
    return levels[-1], below
