"""Mixing of a staggered box (`kernels.euler.hevi`) by turbulence or a constant diffusivity, NumPy: definition, oracle.

The stress rho K (du_i/dx_j + cross du_j/dx_i) acts on the momenta, where they stand; theta is diffused with K / Pr. Of
vertical shear and theta the base state's is left out, so it stays as it is. cross is 1 for Smagorinsky's symmetric
stress and 0 for the Laplacian of a constant diffusivity. Ground and lid are free-slip, nothing else passes them.

K = (Cs Delta)**2 sqrt(max(0, D**2 - N**2 / Pr)) with Delta = (dx dy dz)**(1/3), N**2 = g d(ln theta_rho)/dz and D**2
= 2 (u_x**2 + v_y**2 + w_z**2) + the means of (u_y + v_x)**2, (u_z + w_x)**2 and (v_z + w_y)**2 of the four edges of the
cell around it (Smagorinsky 1963; Lilly 1962; Skamarock et al. 2021, NCAR/TN-556, section 4.2). theta_rho = theta / (1 +
q_t), of density: the moist theta alone has the buoyancy of vapor without its weight.

work, levels: those of `kernels.euler.hevi.reference`. spacing: dx, dy (m). mu: rho K, float64[nz, ny + 8, nx + 8].
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.euler.box.constants import RHO, RHO_THETA, RHO_U, RHO_V, RHO_W
from hpckit.kernels.euler.constants import GRAVITY, REACH
from hpckit.kernels.euler.hevi.constants import DRY, HALO, PER_CELL, PER_FACE, THETA, W

OWNED = (slice(None), slice(HALO, -HALO), slice(HALO, -HALO))
AROUND = (slice(None), slice(HALO - 1, 1 - HALO), slice(HALO - 1, 1 - HALO))
Spacing = tuple[float, float]


def viscosity(
    state: np.ndarray,
    work: np.ndarray,
    column: np.ndarray,
    levels: np.ndarray,
    spacing: Spacing,
    coefficient: float,
    prandtl: float,
    share: float,
    mu: np.ndarray,
) -> float:
    """Fill mu = rho K in the owned cells and one around them; returns the greatest K of the owned cells (m2/s).

    share: K (1/dx2 + 1/dy2 + 1/dz2) is at most this (1/s), so that an explicit step is stable.
    """
    (dx, dy), (u, v, w), theta = spacing, work[: W + 1], work[THETA] * work[DRY]
    per_cell = levels[PER_CELL, :-1, None, None]
    xy, xz, yz = _shears(u, v, w, levels, spacing, np.zeros((3, len(per_cell))), 1.0)
    w_lid = np.concatenate([w, np.zeros_like(w[:1])])
    square = 2 * (
        ((np.roll(u, -1, 2) - u) / dx) ** 2
        + ((np.roll(v, -1, 1) - v) / dy) ** 2
        + (np.diff(w_lid, axis=0) * per_cell) ** 2
    )
    edges = xy[0] ** 2
    square += 0.25 * ((edges + np.roll(edges, -1, 2)) + np.roll(edges + np.roll(edges, -1, 2), -1, 1))
    for edges, dim in ((xz[0] ** 2, 2), (yz[0] ** 2, 1)):
        both = edges + np.roll(edges, -1, dim)
        square += 0.25 * (both[:-1] + both[1:])
    gap = np.zeros(len(levels[0]))  # between middles, m; 0 at ground and lid
    gap[1:-1] = 1 / levels[PER_FACE, 1:-1]
    high, low = np.concatenate([theta[1:], theta[-1:]]), np.concatenate([theta[:1], theta[:-1]])
    theta_z = (high - low) / (gap[1:] + gap[:-1])[:, None, None]
    length = coefficient * (dx * dy / per_cell) ** (1 / 3)
    mixing = length**2 * np.sqrt(np.maximum(square - GRAVITY * theta_z / theta / prandtl, 0.0))
    mixing = np.minimum(mixing, share / (1 / dx**2 + 1 / dy**2 + per_cell**2))
    mu[AROUND] = ((state[RHO] + column[RHO, :, None, None]) * mixing)[AROUND]
    return float(mixing[OWNED].max())


def mix(
    state: np.ndarray,
    work: np.ndarray,
    mu: np.ndarray,
    rest: np.ndarray,
    levels: np.ndarray,
    spacing: Spacing,
    dt: float,
    prandtl: float,
    cross: float,
) -> None:
    """Add what the stress and the flux of theta bring over dt (s) to the owned cells of a state.

    mu: of the owned cells and one around them. rest: u, v, w and theta of the base state, float64[4, nz].
    """
    (dx, dy), (u, v, w, theta) = spacing, work[:4]
    per_cell, per_face = levels[PER_CELL, :-1, None, None], levels[PER_FACE, :, None, None]
    xy, xz, yz = _shears(u, v, w, levels, spacing, rest, cross)
    corner = 0.25 * ((np.roll(mu, 1, 2) + mu) + np.roll(np.roll(mu, 1, 2) + mu, 1, 1))
    padded = np.pad(mu, ((1, 1), (0, 0), (0, 0)))  # walls have no stress
    upright = padded[1:] + padded[:-1]
    upright[[0, -1]] = 0.0
    across, along = 0.25 * (np.roll(upright, 1, 2) + upright), 0.25 * (np.roll(upright, 1, 1) + upright)
    w_lid = np.concatenate([w, np.zeros_like(w[:1])])
    normal = [
        (1 + cross) * mu * each
        for each in (
            (np.roll(u, -1, 2) - u) / dx,
            (np.roll(v, -1, 1) - v) / dy,
            np.diff(w_lid, axis=0) * per_cell,
        )
    ]
    change = np.zeros_like(state)
    stress = corner * xy[0]
    change[RHO_U] = (normal[0] - np.roll(normal[0], 1, 2)) / dx + (np.roll(stress, -1, 1) - stress) / dy
    change[RHO_U] += np.diff(across * xz[0], axis=0) * per_cell
    stress = corner * xy[1]
    change[RHO_V] = (np.roll(stress, -1, 2) - stress) / dx + (normal[1] - np.roll(normal[1], 1, 1)) / dy
    change[RHO_V] += np.diff(along * yz[0], axis=0) * per_cell
    stress_x, stress_y = (across * xz[1])[:-1], (along * yz[1])[:-1]
    change[RHO_W] = (np.roll(stress_x, -1, 2) - stress_x) / dx + (np.roll(stress_y, -1, 1) - stress_y) / dy
    change[RHO_W, 1:] += np.diff(normal[2], axis=0) * per_face[1:-1]
    change[RHO_W, 0] = 0.0
    flux_x = 0.5 * (np.roll(mu, 1, 2) + mu) * (theta - np.roll(theta, 1, 2)) / dx
    flux_y = 0.5 * (np.roll(mu, 1, 1) + mu) * (theta - np.roll(theta, 1, 1)) / dy
    flux_z = np.zeros_like(w_lid)
    warmer = theta - rest[3][:, None, None]
    flux_z[1:-1] = 0.5 * upright[1:-1] * np.diff(warmer, axis=0) * per_face[1:-1]
    warmth = (np.roll(flux_x, -1, 2) - flux_x) / dx + (np.roll(flux_y, -1, 1) - flux_y) / dy
    change[RHO_THETA] = (warmth + np.diff(flux_z, axis=0) * per_cell) / prandtl
    state[(slice(None), *OWNED)] += dt * change[(slice(None), *OWNED)]


def mix_carried(
    q: np.ndarray,
    out: np.ndarray,
    state: np.ndarray,
    mu: np.ndarray,
    column: np.ndarray,
    levels: np.ndarray,
    spacing: Spacing,
    dt: float,
) -> None:
    """Diffuse mixing ratios, float64[n, nz, ny + 6, nx + 6], with rho K over dt (s) into the owned cells of `out`."""
    (dx, dy), inner, near = spacing, slice(REACH, -REACH), slice(REACH - 1, 1 - REACH)
    mu_near, rho = mu[AROUND], (state[RHO] + column[RHO, :, None, None])[OWNED]
    for each, result in zip(q, out, strict=True):
        seen = each[:, near, near]
        x = 0.5 * (mu_near[:, 1:-1, 1:] + mu_near[:, 1:-1, :-1]) * np.diff(seen[:, 1:-1], axis=2) / dx
        y = 0.5 * (mu_near[:, 1:, 1:-1] + mu_near[:, :-1, 1:-1]) * np.diff(seen[:, :, 1:-1], axis=1) / dy
        z = np.zeros((len(each) + 1, *rho.shape[1:]))
        z[1:-1] = 0.5 * (mu[OWNED][1:] + mu[OWNED][:-1]) * np.diff(each[:, inner, inner], axis=0)
        z *= levels[PER_FACE, :, None, None]
        change = np.diff(x, axis=2) / dx + np.diff(y, axis=1) / dy
        change += np.diff(z, axis=0) * levels[PER_CELL, :-1, None, None]
        result[:, inner, inner] = each[:, inner, inner] + dt * change / rho


def _shears(
    u: np.ndarray, v: np.ndarray, w: np.ndarray, levels: np.ndarray, spacing: Spacing, rest: np.ndarray, cross: float
) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Shears as u (v) and as v (w) feel them: at vertical edges (x, y), and at the nz + 1 edges (x, z) and (y, z)."""
    dx, dy = spacing
    per_face = levels[PER_FACE, :, None, None]
    u_y, v_x = (u - np.roll(u, 1, 1)) / dy, (v - np.roll(v, 1, 2)) / dx
    w_lid = np.concatenate([w, np.zeros_like(w[:1])])
    w_x, w_y = (w_lid - np.roll(w_lid, 1, 2)) / dx, (w_lid - np.roll(w_lid, 1, 1)) / dy
    u_z, v_z = np.zeros_like(w_x), np.zeros_like(w_x)
    u_z[1:-1] = np.diff(u - rest[0][:, None, None], axis=0) * per_face[1:-1]
    v_z[1:-1] = np.diff(v - rest[1][:, None, None], axis=0) * per_face[1:-1]
    return (
        (u_y + cross * v_x, v_x + cross * u_y),
        (u_z + cross * w_x, w_x + cross * u_z),
        (v_z + cross * w_y, w_y + cross * v_z),
    )
