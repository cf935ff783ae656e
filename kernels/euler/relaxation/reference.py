"""Relaxation of a box's state toward its base state and mean wind, NumPy: definition and test oracle.

Two absorbing layers, each a field of rates r (1/s). A step multiplies a deviation by 1 / (1 + r dt), the implicit step
of d(phi)/dt = -r phi, stable for any r:

- below the lid a Rayleigh sponge (Durran and Klemp 1983, MWR 111, 2341-2361): u, v, w and theta relax toward those of
  the base state at unchanged density, which conserves mass;
- beside open sides a relaxation zone (Davies 1976, QJRMS 102, 405-418): all five fields relax toward the base
  state, density and pressure too, which anchors them where waves leave and air enters.

State, column and base wind as in `kernels.euler.box.reference`, or on Arakawa's C grid as in `kernels.euler.hevi`.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.euler.box.constants import RHO, RHO_THETA, RHO_U, RHO_V, RHO_W


def relax(
    state: np.ndarray,
    column: np.ndarray,
    base: np.ndarray,
    side_x: np.ndarray,
    side_y: np.ndarray,
    lid: np.ndarray,
    dt: float,
    back: int,
) -> float:
    """Relax the owned cells over dt (s) in place; returns the change of the sum of rho' over them (kg m-3).

    base: u, v, w (0) and theta of the base state by rows, float64[4, nz]. side_x, side_y: rates (1/s) of the zones
    beside open sides by column and by row, in the cells and where the momentum normal to the side stands, float64[2,
    nx] and float64[2, ny]; of both axes the greater applies. lid: rates of the sponge by level, float64[nz]. back: 0 if
    momenta stand in the cells, 1 if they stand at their low faces; the halo's density is then read below the lid.
    """
    halo = (state.shape[3] - side_x.shape[1]) // 2
    inner = slice(halo, -halo)
    owned = state[:, :, inner, inner]
    base_rho, base_rho_theta = column[0, :, None, None], column[1, :, None, None]
    whole = state[RHO] + base_rho
    rho = whole[:, inner, inner]
    there = {
        RHO_U: 0.5 * (np.roll(whole, back, 2) + whole)[:, inner, inner],
        RHO_V: 0.5 * (np.roll(whole, back, 1) + whole)[:, inner, inner],
        RHO_W: rho,  # relaxes toward 0
    }
    keep = 1 / (1 + dt * lid[:, None, None])
    for (field, density), target in zip(there.items(), base, strict=False):
        goal = density * target[:, None, None]
        owned[field] = goal + keep * (owned[field] - goal)
    goal = rho * base[3][:, None, None] - base_rho_theta
    owned[RHO_THETA] = goal + keep * (owned[RHO_THETA] - goal)
    rates = {RHO: (0, 0), RHO_THETA: (0, 0), RHO_U: (1, 0), RHO_V: (0, 1), RHO_W: (0, 0)}
    before = owned[RHO].copy()
    for field, (x, y) in rates.items():
        rate = dt * np.maximum(side_x[x][None, None, :], side_y[y][None, :, None])
        goal = base_rho * base[field - RHO_U][:, None, None] if field in there else 0.0
        owned[field] -= rate / (1 + rate) * (owned[field] - goal)
    return float((owned[RHO] - before).sum())
