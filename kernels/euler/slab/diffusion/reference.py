"""Diffusion with a constant coefficient in the slab, NumPy: the oracle, and the documentation of what `simd` computes.

    d(rho phi)/dt = d(rho K dphi'/dx)/dx + d(rho K dphi'/dz)/dz     for phi = u, w, theta

phi' is the deviation from the base state, so that an atmosphere at rest stays as it is. Nothing passes the walls but w:
it is 0 there, so the row beyond a wall holds -w (free slip: u has no gradient there). Second order, one explicit step.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.euler.constants import HALO, RHO, RHO_THETA, RHO_W

OWNED = slice(HALO, -HALO)


@np.errstate(all="ignore")  # a lost solution is told by the sweeps
def diffuse(
    state: np.ndarray, column: np.ndarray, base: np.ndarray, dx: float, dz: float, amount: float, work: np.ndarray
) -> None:
    """Diffuse u, w and theta by `amount` (m2, K dt) in place.

    state float64[4, nz, nx + 12], column float64[3, nz]: as in `slab.reference`. base: u, w (0) and theta of
    the base state by rows, float64[3, nz]. work: scratch like the state. Needs one cell of halo in x. Stable while
    amount (1/dx2 + 1/dz2) <= 1/2.
    """
    work[RHO] = state[RHO] + column[0, :, None]
    work[1:] = state[1:] / work[RHO] - base[:, :, None]
    work[RHO_THETA] += column[1, :, None] / work[RHO]
    across = work[:, :, HALO - 1 : -HALO + 1]
    flux = (across[RHO, :, 1:] + across[RHO, :, :-1]) * np.diff(across[1:], axis=2)
    change = np.diff(flux, axis=2) / (2 * dx * dx)
    upward = np.pad(work[:, :, OWNED], ((0, 0), (1, 1), (0, 0)), mode="edge")
    upward[RHO_W, [0, -1]] *= -1
    flux = (upward[RHO, 1:] + upward[RHO, :-1]) * np.diff(upward[1:], axis=1)
    state[1:, :, OWNED] += amount * (change + np.diff(flux, axis=1) / (2 * dz * dz))
