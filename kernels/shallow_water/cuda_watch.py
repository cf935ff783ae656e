"""What a run of shallow water watches, CUDA."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda_watch import watch
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.shallow_water.constants import HALO
from hpckit.kernels.shallow_water.numerics import kinetic_energy, vorticity

u8 = np.uint64


def diagnose(
    h: Any, u: Any, v: Any, bottom: Any, f: Any, gravity: float, dx: float, dy: float, halo: int = HALO
) -> np.ndarray:
    """As `reference.diagnose`; waits for the device."""
    width = h.shape[1] - 2 * halo
    cells = (h.shape[0] - 2 * halo) * width
    topography = (bottom.size > 0) * 1.0
    arrays = (h, u, v, bottom if bottom.size else h, f)
    found = watch(_add_cell, 4, 3, cells, arrays, (width, halo), (gravity, 1.0 / dx, 1.0 / dy, topography))
    mass, energy, enstrophy, broken, speed, courant_speed, depth_min = found
    if broken == cells:
        speed = courant_speed = 0.0
    return np.array([mass, energy, enstrophy, speed, courant_speed, -depth_min, broken])


@inlined
def _add_cell(own, index, h, u, v, bottom, f, layout, numbers):
    """Sums of depth, energy, enstrophy and lost cells; speed, that plus the waves', and the depth less than nothing."""
    gravity, per_dx, per_dy, topography = numbers
    r, c, one = u8(index // layout[0] + layout[1]), u8(index % layout[0] + layout[1]), u8(1)
    depth = h[r, c]
    kinetic = kinetic_energy(u[r, c], u[r, c + one], v[r, c], v[r + one, c])
    corner = 0.25 * ((h[r - one, c - one] + h[r, c - one]) + (h[r - one, c] + depth))
    absolute = f[r] + vorticity(u[r - one, c], u[r, c], v[r, c - one], v[r, c], per_dx, per_dy)
    level = bottom[r, c] if topography > 0.0 else 0.0
    total, square = depth * (kinetic + gravity * (0.5 * depth + level)), 0.5 * absolute * absolute / corner
    if math.isfinite(total + square) and depth > 0.0:
        speed = math.sqrt(2.0 * kinetic)
        own[0] += depth
        own[1] += total
        own[2] += square
        own[4] = max(own[4], speed)
        own[5] = max(own[5], speed + math.sqrt(gravity * depth))
        own[6] = max(own[6], -depth)
    else:
        own[3] += 1.0
