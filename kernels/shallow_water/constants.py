"""Numbers that all forms of the shallow-water kernels share."""

from __future__ import annotations

from typing import NamedTuple

HALO = 3  # one cell for each stage of a step
AT_ONCE = 2  # steps that cores take in one pass over memory, with a halo as many times as wide
CALM = 2.0**-400  # m/s; velocities below some 1e-136 are 0
# What the rows of `rows` and of `columns` hold; see `reference`.
WATER, FACE, CORNER, F, STRESS = range(5)
MASS, ENERGY, ENSTROPHY, SPEED, COURANT_SPEED, DEPTH_MIN, BROKEN = range(7)  # of what `diagnose` returns


class Physics(NamedTuple):
    """The numbers of a run."""

    gravity: float  # m/s2
    dx: float  # m, of the cells
    dy: float
    viscosity: float = 0.0  # m2/s
    drag: float = 0.0  # 1/s
    drag_quadratic: float = 0.0  # 1
