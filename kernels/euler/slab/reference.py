"""Compressible Euler equations about a hydrostatic base state in a vertical slab, NumPy: definition and test
oracle of the compiled forms.

The state holds deviations from the base state (bars, functions of z) and momenta, in flux form:

    d(rho')/dt        + d(rho u)/dx       + d(rho w)/dz            = 0
    d(rho u)/dt       + d(rho u u + p')/dx + d(rho w u)/dz         = 0
    d(rho w)/dt       + d(rho u w)/dx     + d(rho w w + p')/dz     = -rho' g + source
    d((rho theta)')/dt + d(rho u theta)/dx + d(rho w theta)/dz     = 0
    p' = pbar ((1 + e)**gamma - 1),   e = (rho theta)' / (rho theta)bar,   pbar = C0 ((rho theta)bar)**gamma

Finite volumes: at an interface between cells b and c of a row a b c d (cell means) the fields are interpolated to
fourth order, 7/12 (b + c) - 1/12 (a + d), and each flux gets a hyperviscosity, beta dx / (16 dt) times the third
difference d - 3 c + 3 b - a. Each direction is a separate sweep (Strang splitting, by alternating their order) of three
Runge-Kutta stages, each from the start of the sweep: q1 = q0 + dt/3 T(q0), q2 = q0 + dt/2 T(q1),
q = q0 + dt T(q2) (Wicker and Skamarock 2002, MWR 130, 2088-2097, eq. 3). Scheme and constants are those of the
miniWeather mini-app (M. Norman, Oak Ridge National Laboratory).

A state is float64[4, nz, nx + 12]: rho' (kg m-3), rho u, rho w (kg m-2 s-1), (rho theta)' (K kg m-3), with a halo of 6
cells in x, two for each stage, filled before `sweep_x`. Afterwards the halo is stale. A base state is given by rows:

- column  float64[3, nz]      at cells: rho (kg m-3), rho theta (K kg m-3), pressure (Pa)
- faces   float64[4, nz + 1]  at interfaces: the same three, and the third difference of the base's rho u in z, on
                              which the hyperviscosity does not act
- ghost   float64[4]          base density of the two rows below the ground and of the two above the top, the outermost
                              first below and last above, over that of the row next to the wall
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hpckit.kernels.euler.constants import (
    CV,
    GAMMA,
    GRAVITY,
    HALO,
    NOT_FINITE,
    OUT_OF_RANGE,
    RD,
    RHO,
    RHO_THETA,
    RHO_U,
    RHO_W,
    SERIES_RANGE,
    Sweep,
)
from hpckit.kernels.euler.status import note
from hpckit.kernels.parts import INNER


@np.errstate(all="ignore")  # the status reports a lost solution
def sweep_x(
    state: np.ndarray,
    out: np.ndarray,
    column: np.ndarray,
    source: np.ndarray,
    inflow: np.ndarray,
    at_left: bool,
    at_right: bool,
    sweep: Sweep,
    status: np.ndarray,
    part: int,
    seams: np.ndarray,
) -> None:
    """Advance the x direction by dt (s): periodic, or with inflow at the domain's left edge in some rows.

    state, column: as above. out: receives the owned cells of the result; may be the state, except on a GPU. source:
    tendency of rho w (kg m-2 s-2), float64[nz, nx + 12] with its halo, or [0, 0]. inflow: u (m s-1) and theta (K) by
    rows, float64[2, nz], theta 0 in periodic rows, or [2, 0]. at_left, at_right: whether this block's left (right)
    edge is the domain's.

    Inflow replaces rho u and (rho theta)' of the two cells before the domain's left edge, in every stage, as seen by
    the cells inside that edge; rho' and rho w are those of the domain's last cells, which themselves see an
    undisturbed periodic neighbor.

    status: int32[2] of `status.new_status`, receives OUT_OF_RANGE and NOT_FINITE, also of halo cells. NOT_FINITE may be
    missing if only the tangential momentum is lost, which this sweep carries but does not use.

    part: of `kernels.parts`. seams: scratch that INNER leaves for OUTER if `out` is the state, float64[nz, 4, 2, 6];
    of size 0 for WHOLE and on a GPU.
    """
    if part == INNER:
        return
    edges = [edge for edge, there in ((HALO, at_left), (state.shape[2] - HALO, at_right)) if there and inflow.size]
    dx, dt, beta, _ = sweep
    start, stage = state.copy(), state
    for lost, fraction in ((0, 1 / 3), (2, 1 / 2), (4, 1.0)):  # invalid cells at either end so far, share of dt
        nu = beta * dx / (16 * dt * fraction)
        tendency, seen = _tendency_x(stage, column, dx, nu)
        for edge in edges:
            seen |= _behind_inflow(tendency, stage, edge - lost, column, dx, nu, inflow)
        note(status, seen, sweep.step)
        window = slice(lost + 2, state.shape[2] - lost - 2)
        if source.size:
            tendency[RHO_W] += source[:, window]
        stage = start[:, :, window] + dt * fraction * tendency
    out[:, :, HALO:-HALO] = stage


@np.errstate(all="ignore")  # the status reports a lost solution
def sweep_z(
    state: np.ndarray,
    out: np.ndarray,
    faces: np.ndarray,
    ghost: np.ndarray,
    source: np.ndarray,
    sweep: Sweep,
    status: np.ndarray,
    lines: tuple[int, int],
) -> None:
    """Advance the z direction by dt (s), between rigid free-slip walls at the ground and at the top.

    state, faces, ghost: as above. out, source, status: as in `sweep_x`. lines: the half-open range of owned columns to
    sweep; all of them on a GPU.

    The rows outside the walls repeat rho', (rho theta)' and u of the row next to the wall (so rho u scales with the
    base density), with rho w = 0; no mass passes a wall.
    """
    columns = slice(HALO + lines[0], HALO + lines[1])
    start, (dz, dt, beta, _) = state[:, :, columns].copy(), sweep
    stage = start
    for fraction in (1 / 3, 1 / 2, 1.0):
        rows = np.pad(stage, ((0, 0), (2, 2), (0, 0)), mode="edge")
        rows[RHO_W, [0, 1, -2, -1]] = 0.0
        rows[RHO_U, [0, 1, -2, -1]] *= ghost[:, None]
        quad = tuple(rows[:, first : first + stage.shape[1] + 1] for first in range(4))
        shear = faces[3][:, None]
        flux, seen = fluxes(
            quad, RHO_W, faces[:, :, None], beta * dz / (16 * dt * fraction), {RHO_U: shear}, walls=True
        )
        note(status, seen, sweep.step)
        tendency = -np.diff(flux, axis=1) / dz
        tendency[RHO_W] -= GRAVITY * stage[RHO]
        if source.size:
            tendency[RHO_W] += source[:, columns]
        stage = start + dt * fraction * tendency
    out[:, :, columns] = stage


@np.errstate(all="ignore")  # the sweeps report a lost solution
def diffuse(
    state: np.ndarray, column: np.ndarray, base: np.ndarray, dx: float, dz: float, amount: float, work: np.ndarray
) -> None:
    """Diffuse u, w and theta with a constant coefficient by `amount` (m2, K dt) in place: second order, explicit.

        d(rho phi)/dt = d(rho K dphi'/dx)/dx + d(rho K dphi'/dz)/dz     for phi = u, w, theta

    phi' is the deviation from the base state, so an atmosphere at rest stays at rest. The flux through a wall is 0
    but for w, which is 0 there: the row beyond a wall holds -w (free slip: u has no gradient there).

    base: u, w (0) and theta of the base state by rows, float64[3, nz]. work: scratch like the state. Needs one halo
    cell in x. Stable while amount (1/dx2 + 1/dz2) <= 1/2.
    """
    work[RHO] = state[RHO] + column[0, :, None]
    work[1:] = state[1:] / work[RHO] - base[:, :, None]
    work[RHO_THETA] += column[1, :, None] / work[RHO]
    across = work[:, :, HALO - 1 : -HALO + 1]
    flux = (across[RHO, :, 1:] + across[RHO, :, :-1]) * np.diff(across[1:], axis=2)
    change = np.diff(flux, axis=2) / (2 * dx * dx)
    upward = np.pad(work[:, :, HALO:-HALO], ((0, 0), (1, 1), (0, 0)), mode="edge")
    upward[RHO_W, [0, -1]] *= -1
    flux = (upward[RHO, 1:] + upward[RHO, :-1]) * np.diff(upward[1:], axis=1)
    state[1:, :, HALO:-HALO] += amount * (change + np.diff(flux, axis=1) / (2 * dz * dz))


@np.errstate(all="ignore")
def diagnose(state: np.ndarray, column: np.ndarray, height: np.ndarray) -> np.ndarray:
    """Diagnostics of the cells without the halo: float64[10].

    Sums over cells of rho' (kg m-3) and of the densities of kinetic, internal and potential energy (J m-3); the
    maximum |u| + c and |w| + c, with the speed of sound c (m s-1); the maximum |w| (m s-1); the minimum and the
    maximum deviation of theta from the base state (K); the number of cells that are not finite (excluded from all
    else).
    state, column: as above; height: z of the cells (m), float64[nz].
    """
    rho, rho_u, rho_w, rho_theta = state[:, :, HALO:-HALO]
    base_rho, base_rho_theta, base_pressure = column[:, :, None]
    total = rho + base_rho
    u, w = rho_u / total, rho_w / total
    theta = (rho_theta + base_rho_theta) / total - base_rho_theta / base_rho
    pressure = base_pressure * (1 + rho_theta / base_rho_theta) ** GAMMA
    sound = np.sqrt(GAMMA * pressure / total)
    finite = np.isfinite(u + w + theta + sound)
    if not finite.any():
        return np.array([0.0] * 9 + [finite.size])
    kinetic, internal, potential = 0.5 * total * (u * u + w * w), CV / RD * pressure, GRAVITY * height[:, None] * total
    sums = [field[finite].sum() for field in (rho, kinetic, internal, potential)]
    most = [(speed + sound)[finite].max() for speed in (np.abs(u), np.abs(w))]
    ends = [np.abs(w[finite]).max(), theta[finite].min(), theta[finite].max()]
    return np.array([*sums, *most, *ends, finite.size - np.count_nonzero(finite)])


def _tendency_x(stage: np.ndarray, column: np.ndarray, dx: float, nu: float) -> tuple[np.ndarray, int]:
    """Tendency [4, rows, n - 4] of a stage [4, rows, n], and a status."""
    quad = tuple(stage[:, :, first : first + stage.shape[2] - 3] for first in range(4))
    flux, status = fluxes(quad, RHO_U, column[:, :, None], nu, {})
    return -np.diff(flux, axis=2) / dx, status


def _behind_inflow(
    tendency: np.ndarray,
    stage: np.ndarray,
    edge: int,
    column: np.ndarray,
    dx: float,
    nu: float,
    inflow: np.ndarray,
) -> int:
    """Replace the tendency of the first two cells inside the domain's left edge, which see inflow; return a status."""
    rows = np.flatnonzero(inflow[1])
    near = stage[:, rows, edge - 2 : edge + 4].copy()
    if near.shape[2] < 6:  # the last stage does not need the cells inside the edge
        return 0
    rho = near[RHO, :, :2] + column[0, rows, None]
    near[RHO_U, :, :2] = rho * inflow[0, rows, None]
    near[RHO_THETA, :, :2] = rho * inflow[1, rows, None] - column[1, rows, None]
    tendency[:, rows, edge - 2 : edge], status = _tendency_x(near, column[:, rows], dx, nu)
    return status


def fluxes(
    quad: Sequence[np.ndarray],
    normal: int,
    base: np.ndarray,
    nu: float,
    shear: Mapping[int, np.ndarray | float],
    walls: bool = False,
) -> tuple[np.ndarray, int]:
    """Fluxes [fields, …] at the interfaces between the second and the third of four neighbors, and a status.

    Four fields of the slab or five of the box: rho' comes first and (rho theta)' last. normal: index of the momentum
    normal to the interface. base: rho, rho theta, pressure there. nu: the hyperviscosity. shear: the base's part of the
    third difference, by field. walls: no mass passes the first and the last row of interfaces.
    """
    a, b, c, d = quad
    value = 7 / 12 * (b + c) - 1 / 12 * (a + d)
    third = 3 * (b - c) + (d - a)
    for field, part in shear.items():
        third[field] -= part
    if walls:
        value[normal, [0, -1]] = 0.0
        third[RHO, [0, -1]] = 0.0
    velocity = value[normal] / (value[RHO] + base[0])
    excess = value[-1] / base[1]
    flux = value * velocity + nu * third
    flux[RHO] = value[normal] + nu * third[RHO]
    flux[normal] += base[2] * ((1 + excess) ** GAMMA - 1)
    flux[-1] += base[1] * velocity
    in_range = np.abs(excess) <= SERIES_RANGE
    return flux, (0 if in_range.all() else OUT_OF_RANGE) | (0 if np.isfinite(flux).all() else NOT_FINITE)
