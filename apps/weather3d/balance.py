"""A jet in balance with the grid's own operators: pressure against the Coriolis force, density against the pressure."""

from __future__ import annotations

import numpy as np

from hpckit.apps.atmosphere.base import BaseState
from hpckit.kernels.euler.constants import GAMMA, GRAVITY

ROUNDS = 60
SMALL = 1e-15  # of the density: what the last round may still change


def balanced_flow(
    u: np.ndarray, base: BaseState, dy: float, dz: float, coriolis: float
) -> tuple[np.ndarray, np.ndarray]:
    """Deviations rho' and (rho theta)', float64[nz, ny], that hold u' (m/s, [nz, ny]) between walls in y.

    With v = w = 0 the box's sweeps (`kernels.euler.box.reference`) then give, but for their hyperviscosity,

        -(p'_north - p'_south) / dy = f (rho u)'     and     -(p'_above - p'_below) / dz = g rho'

    in each cell, with the pressures p' interpolated to the faces from (rho theta)' as the sweeps do it, mirrored beyond
    the walls and repeated beyond ground and lid. The first is solved for (rho theta)' level by level, up to a constant,
    which makes the mean of p' at the faces 0; the second is rho'. Thermal wind follows. The grid's two-cell wave has no
    pressure at faces: that part of f rho u, none of a jet that is resolved, remains (least squares).
    """
    nz, ny = u.shape
    rho_bar, rho_theta_bar, pressure_bar = base.column[:, :, None]
    level_rho_theta, level_pressure = base.faces_3d[1][:, None], base.faces_3d[2][:, None]
    north = _interpolation(ny, "symmetric").T
    south_to_cells = np.linalg.pinv(north)
    upward = _interpolation(nz, "edge")
    rho = np.zeros((nz, ny))
    for _ in range(ROUNDS):
        pressure = np.zeros((nz, ny + 1))
        np.cumsum(-coriolis * dy * (rho_bar + rho) * u, axis=1, out=pressure[:, 1:])
        pressure -= pressure.mean(axis=1, keepdims=True)
        excess = np.expm1(np.log1p(pressure / pressure_bar) / GAMMA)
        rho_theta = rho_theta_bar * (excess @ south_to_cells)
        lifted = np.expm1(GAMMA * np.log1p(upward @ rho_theta / level_rho_theta)) * level_pressure
        new = -np.diff(lifted, axis=0) / (GRAVITY * dz)
        change, rho = np.abs(new - rho).max(), new
        if change <= SMALL:
            break
    return rho, rho_theta


def _interpolation(n: int, beyond: str) -> np.ndarray:
    """Values at the n + 1 faces from n cells, fourth order, with two rows beyond either end made as `beyond` says."""
    rows = np.pad(np.eye(n), ((2, 2), (0, 0)), mode=beyond)  # type: ignore[call-overload]
    return 7 / 12 * (rows[1:-2] + rows[2:-1]) - 1 / 12 * (rows[:-3] + rows[3:])
