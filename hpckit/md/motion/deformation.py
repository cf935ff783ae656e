"""A box that changes by a program: edges and tilts as functions of the time; particles are taken along, or stay.

The cell changes at the end of a step, as by `fix deform … remap x` and `remap v` of LAMMPS: the forces of the step are
those of the cell before, and the figures that follow it have the volume after.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hpckit.errors import InputError
from hpckit.plan.particles.cell import SPANS, TILTS, Cell

if TYPE_CHECKING:  # settings name changes of a box, and need no kernels
    from hpckit.md.motion.dynamics import Dynamics
    from hpckit.md.system import System
    from hpckit.particles.flow import Flow

EDGES = ("x", "y", "z")
STYLES = {  # style: how many numbers, for an edge and for a tilt; 0: not for it
    "final": (2, 1),
    "delta": (2, 1),
    "scale": (1, 0),
    "vel": (1, 1),
    "erate": (1, 1),
    "trate": (1, 1),
    "wiggle": (2, 2),
    "volume": (0, 0),
}


@dataclass(frozen=True)
class Change:
    """How an edge (x, y, z) or a tilt (xy, xz, yz) changes over a run.

    final: the ends, or the tilt, at its end; delta: what is added until then; scale: the factor of an edge; vel: the
    speed at which it grows; erate: the same as a share of the first edge, of a tilt of the edge that leans, in a unit
    of time; trate: the share of what is there at the time; wiggle: amplitude and period of an oscillation; volume: an
    edge that keeps the volume, alone or with another one. Raises `InputError` for what is none of these.
    """

    of: str
    style: str
    values: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        known = self.of in (*EDGES, *TILTS) and self.style in STYLES
        wanted = STYLES[self.style][self.of in TILTS] if known else 0
        if not known or (self.style in ("scale", "volume") and self.of in TILTS):
            styles = f"an edge x, y, z by {', '.join(STYLES)}, or a tilt xy, xz, yz by these but scale and volume"
            raise InputError(f"a box changes {styles}, not {self.of!r} by {self.style!r}")
        if len(self.values) != wanted or not all(map(math.isfinite, self.values)):
            raise InputError(f"{self.style} of {self.of} takes {wanted} numbers, not {list(self.values)}")
        if self.style == "wiggle" and not self.values[1] > 0:
            raise InputError(f"wiggle of {self.of} takes an amplitude and a period above 0, not {list(self.values)}")


def named(changes: Sequence[Change]) -> dict[str, Change]:
    """The changes, each by its edge or tilt. Raises `InputError` for the same edge twice, and if all of them keep the
    volume.
    """
    found = {each.of: each for each in changes}
    if len(found) < len(changes):
        raise InputError("the box changes an edge or a tilt in two ways", do="name each once")
    if all(change.style == "volume" for change in changes):
        raise InputError("all changes of the box have the style volume, and none says what the volume follows")
    return found


def changed(cell: Cell, changes: Sequence[Change]) -> Cell:
    """The cell at the end of these changes. Raises the errors of `Deformation`."""
    from hpckit.md.motion.dynamics import NVE

    program = Deformation(NVE(), changes, 1.0)
    program.require_sound(cell)
    return program._cell(1.0, cell)


class Deformation:
    """A dynamics in a box that changes: `changes` over a time `duration`, in which final, delta and scale are reached.

    Edges grow about their middle. every: steps between two changes. carries: particles are taken along; else they stay,
    have velocities in which the flow of the box is counted (`System.flow`), and one that crosses an end of the box gets
    the velocity there: a fluid that is sheared, whose thermostat is `Sllod`. Raises `InputError` for the same edge
    twice, for a tilt that leans where the box is open, for an edge that would vanish, and for one that keeps the volume
    while particles stay.
    """

    def __init__(
        self, inner: Dynamics, changes: Sequence[Change], duration: float, every: int = 1, carries: bool = True
    ) -> None:
        self.inner, self.changes, self.duration, self.every = inner, named(changes), duration, every
        self.carries = carries
        if not carries and any(each.style == "volume" for each in changes):
            raise InputError("an edge that keeps the volume needs a box that takes its particles along")
        if every < 1 or not duration > 0:
            raise InputError(f"a box changes every 1 or more steps in a time above 0, not {every} and {duration:g}")
        self._first: Cell | None = None
        self.number = 0

    def step(self, system: System, dt: float, measure: bool) -> None:
        """Collective: one step of the dynamics, then the change of the box."""
        self.begin(system, dt)
        self.inner.step(system, dt, measure)
        self.number += 1
        if self.number % self.every == 0:
            system.reshape(self.cell_at(self.number * dt, system.domains.cell), self.carries)
            self.begin(system, dt)

    def begin(self, system: System, dt: float) -> None:
        """Give the system the flow of its box, before the first step and after each change."""
        if self._first is None:
            self._first = system.domains.cell
            self.require_sound(self._first, system.domains.periodic)
        if not self.carries:
            system.flow = self.flow_at(self.number // self.every * self.every * dt, system.domains.cell)

    def flow_at(self, time: float, now: Cell) -> Flow:
        """How the points of the box move at a time."""
        from hpckit.particles.flow import Flow

        assert self._first is not None
        first = self._beside(self._first, now)
        ends = np.array([self._end_speeds(dim, time, first) for dim in range(3)])
        edges = np.diag(ends[:, 1] - ends[:, 0])
        for name, tilt, (dim, edge) in zip(TILTS, first.tilt, SPANS, strict=True):
            if change := self.changes.get(name):
                edges[dim, edge] = self._speed(change.style, change.values, time, float(first.lengths[edge]), tilt)
        return Flow(edges @ self._cell(time, first).inverse.T, np.array(now.lower), ends[:, 0])

    def cell_at(self, time: float, now: Cell) -> Cell:
        """The cell at a time, with tilts in the image nearest to those of `now`."""
        assert self._first is not None
        cell = self._cell(time, self._beside(self._first, now))
        (lx, ly, _), (xy, xz, yz) = cell.lengths.tolist(), cell.tilt
        turns = round((now.tilt[2] - yz) / ly)
        xz, yz = xz + turns * xy, yz + turns * ly  # c + b leads to an image, too
        xy, xz = (tilt + lx * round((there - tilt) / lx) for tilt, there in ((xy, now.tilt[0]), (xz, now.tilt[1])))
        return replace(cell, tilt=(xy, xz, yz))

    def _beside(self, first: Cell, now: Cell) -> Cell:
        """The first cell, with the edges and tilts that are left to a barostat as they are now."""
        low, high, tilt = list(first.lower), list(first.upper), list(first.tilt)
        for dim, name in enumerate(EDGES):
            if name not in self.changes:
                low[dim], high[dim] = now.lower[dim], now.upper[dim]
        for place, name in enumerate(TILTS):
            if name not in self.changes:
                tilt[place] = now.tilt[place]
        return Cell.of(low, high, tilt)

    def _cell(self, time: float, first: Cell) -> Cell:
        """The first cell, deformed up to a time."""
        ends = [self._edge(dim, time, first) for dim in range(3)]
        kept = [dim for dim, name in enumerate(EDGES) if self._style(name) == "volume"]
        if kept:
            wanted = first.volume / math.prod(ends[dim][1] - ends[dim][0] for dim in range(3) if dim not in kept)
            share = (wanted / math.prod(first.lengths[kept])) ** (1 / len(kept))
            for dim in kept:
                middle, length = 0.5 * (first.lower[dim] + first.upper[dim]), share * first.lengths[dim]
                ends[dim] = middle - 0.5 * length, middle + 0.5 * length
        return Cell.of([low for low, _ in ends], [high for _, high in ends], self._tilts(time, first))

    def saved(self) -> dict[str, Any]:
        """The first cell, the steps since, and the state of the dynamics."""
        first = self._first
        cell = [] if first is None else [list(first.lower), list(first.upper), list(first.tilt)]
        return {"first": cell, "number": self.number, "inner": self.inner.saved()}

    def restore(self, values: dict[str, Any]) -> None:
        """Continue from the saved state."""
        self._first = Cell.of(*values["first"]) if values["first"] else None
        self.number = values["number"]
        self.inner.restore(values["inner"])

    def _style(self, name: str) -> str:
        return self.changes[name].style if name in self.changes else ""

    def _edge(self, dim: int, time: float, first: Cell) -> tuple[float, float]:
        """The ends of an edge; of one that keeps the volume the first ones."""
        low, high = first.lower[dim], first.upper[dim]
        change, length = self.changes.get(EDGES[dim]), high - low
        if change is None or change.style == "volume":
            return low, high
        one, two, *_ = (*change.values, 0.0, 0.0)
        share = time / self.duration
        if change.style == "final":
            return low + share * (one - low), high + share * (two - high)
        if change.style == "delta":
            return low + share * one, high + share * two
        grown = {
            "scale": share * (one - 1) * length,
            "vel": one * time,
            "erate": one * time * length,
            "trate": (math.exp(one * time) - 1) * length,
            "wiggle": one * math.sin(2 * math.pi * time / two) if two else 0.0,
        }[change.style]
        return low - 0.5 * grown, high + 0.5 * grown

    def _tilts(self, time: float, first: Cell) -> list[float]:
        """The tilts; those that are not named stay, as in LAMMPS."""
        found = []
        for name, tilt, (_, edge) in zip(TILTS, first.tilt, SPANS, strict=True):
            change = self.changes.get(name)
            if change is not None:
                one, two, *_ = (*change.values, 0.0, 0.0)
                tilt = {
                    "final": tilt + time / self.duration * (one - tilt),
                    "delta": tilt + time / self.duration * one,
                    "vel": tilt + one * time,
                    "erate": tilt + one * time * float(first.lengths[edge]),
                    "trate": tilt * math.exp(one * time),
                    "wiggle": tilt + one * math.sin(2 * math.pi * time / two) if two else tilt,
                }[change.style]
            found.append(tilt)
        return found

    def _end_speeds(self, dim: int, time: float, first: Cell) -> tuple[float, float]:
        """How fast the ends of an edge move."""
        change, low, high = self.changes.get(EDGES[dim]), first.lower[dim], first.upper[dim]
        if change is None:
            return 0.0, 0.0
        if change.style in ("final", "delta"):
            one, two = change.values
            return self._speed(change.style, (one,), time, 0.0, low), self._speed(change.style, (two,), time, 0.0, high)
        grown = self._speed(change.style, change.values, time, high - low, high - low)
        return -0.5 * grown, 0.5 * grown

    def _speed(self, style: str, values: tuple[float, ...], time: float, length: float, start: float) -> float:
        """How fast an end, a length or a tilt grows that was `start` first, of an edge that had this length."""
        one, two, *_ = (*values, 0.0, 0.0)
        return {
            "final": lambda: (one - start) / self.duration,
            "delta": lambda: one / self.duration,
            "scale": lambda: (one - 1) * length / self.duration,
            "vel": lambda: one,
            "erate": lambda: one * length,
            "trate": lambda: one * start * math.exp(one * time),
            "wiggle": lambda: one * 2 * math.pi / two * math.cos(2 * math.pi * time / two),
        }[style]()

    def require_sound(self, first: Cell, periodic: Sequence[bool] | np.ndarray = (True, True, True)) -> None:
        """Raise `InputError` for a change that a box of this cell cannot have."""
        for name in self.changes:
            dim = EDGES.index(name) if name in EDGES else SPANS[TILTS.index(name)][1]
            if not periodic[dim]:
                raise InputError(
                    f"the box would change its {name}, but is open along {EDGES[dim]}", do=f"make {EDGES[dim]} periodic"
                )
        for share in np.linspace(0, 1, 101):
            try:
                lengths = self._cell(float(share) * self.duration, first).lengths
            except (OverflowError, ZeroDivisionError):
                lengths = np.zeros(3)
            if not (lengths > 0).all():
                raise InputError(
                    f"the box would have edges of {lengths.tolist()} during the run", do="give other changes of the box"
                )
