"""What the kernels of terrain pass around."""

from __future__ import annotations

from typing import Any, NamedTuple

from hpckit.kernels.euler.hevi.constants import WORKS as FLAT_WORKS

EXCESS = FLAT_WORKS  # row of `work` with the rest of p'; the row of the flat kernels is 0: they add no force
WORKS = FLAT_WORKS + 1
J_U, J_V, SLOPE_U, SLOPE_V, STEEP, PER_W, SLOPE_X, SLOPE_Y, SIZE = range(9)  # rows of `metric`
METRICS = 9
FACES_KEPT = 4  # of a substep, whose gradients along y are kept: two that rows hand on, and one at either rim


class Ground(NamedTuple):
    """Terrain and base state on a rank's cells with their halo; see `reference`."""

    base: Any  # J rho, J rho theta, p and q_t of the base state, float64[4, nz, ny + 8, nx + 8]
    metric: Any  # float64[9, nz, ny + 8, nx + 8]
    wind: Any  # u and v of the base state at their faces, m/s, float64[2, nz, ny + 8, nx + 8]
    tilt: Any  # weights of a vertical gradient in the middle of a level, 1/m, float64[2, nz]
