"""Relaxation of a box's state toward its base state and mean wind, NumPy: definition and test oracle.

Two absorbing layers, each a field of rates r (1/s). A step multiplies a deviation by 1 / (1 + r dt), the implicit step
of d(phi)/dt = -r phi, stable for any r:

- below the lid a Rayleigh sponge (Durran and Klemp 1983, MWR 111, 2341-2361): u, v, w and theta relax toward those of
  the base state at unchanged density, which conserves mass;
- beside open sides a relaxation zone (Davies 1976, QJRMS 102, 405-418): all five fields relax toward the base
  state, density and pressure too, which anchors them where waves leave and air enters.

State, column and base wind as in `kernels.euler.box.reference`.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.euler.box.constants import RHO, RHO_THETA, RHO_U, RHO_V, RHO_W
from hpckit.kernels.euler.constants import HALO

OWNED = slice(HALO, -HALO)


def relax(
    state: np.ndarray,
    column: np.ndarray,
    base: np.ndarray,
    side_x: np.ndarray,
    side_y: np.ndarray,
    lid: np.ndarray,
    dt: float,
) -> float:
    """Relax the owned cells over dt (s) in place; returns the change of the sum of rho' over them (kg m-3).

    base: u, v, w (0) and theta of the base state by rows, float64[4, nz]. side_x, side_y: rates (1/s) of the zones
    beside open sides by column and by row, float64[nx] and float64[ny], of which the greater applies. lid: rates of the
    sponge by level, float64[nz].
    """
    owned = state[:, :, OWNED, OWNED]
    base_rho, base_rho_theta = column[0, :, None, None], column[1, :, None, None]
    rho = owned[RHO] + base_rho
    keep = 1 / (1 + dt * lid[:, None, None])
    for field, target in zip((RHO_U, RHO_V, RHO_W), base, strict=False):
        goal = rho * target[:, None, None]
        owned[field] = goal + keep * (owned[field] - goal)
    goal = rho * base[3][:, None, None] - base_rho_theta
    owned[RHO_THETA] = goal + keep * (owned[RHO_THETA] - goal)
    keep = 1 / (1 + dt * np.maximum(side_x[None, None, :], side_y[None, :, None]))
    before = owned[RHO].copy()
    owned[RHO] *= keep
    owned[RHO_THETA] *= keep
    for field, target in zip((RHO_U, RHO_V, RHO_W), base, strict=False):
        goal = base_rho * target[:, None, None]
        owned[field] = goal + keep * (owned[field] - goal)
    return float((owned[RHO] - before).sum())
