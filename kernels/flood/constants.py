"""Numbers that all forms of the flood kernels share."""

from __future__ import annotations

from typing import NamedTuple

HALO = 2  # cells that a stage looks to each side: a face knows two cells on both sides
H, HU, HV = range(3)  # what the state holds: depth, momentum along x and y
RATE, DEPTH_MIN = range(2)  # of what `stage` finds
MASS, ENERGY, SPEED, DEPTH_MAX, WET, BROKEN = range(6)  # of what `diagnose` returns
ROUNDING = 1e-9  # depths less than nothing by so little of the dry depth are nothing
STILL = 1e-30  # m/s; slower waves count as none: the reciprocal of a subnormal speed overflows


class Physics(NamedTuple):
    """The numbers of a run."""

    gravity: float  # m/s2
    dx: float  # m, of the cells
    dy: float
    coriolis: float = 0.0  # 1/s
    manning: float = 0.0  # s/m**(1/3)
    drag: float = 0.0  # quadratic drag coefficient, 1
    dry: float = 1e-6  # velocities fade where the water is less deep than this, m
