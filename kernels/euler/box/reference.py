"""Compressible Euler equations about a hydrostatic base state in a box, NumPy: definition and test oracle of
the compiled forms.

The equations and the scheme of the slab (`kernels.euler.slab.reference`) with a second horizontal direction, in
deviations from the base state (bars, functions of z) and flux form:

    d(rho')/dt         + div(rho v)               = 0
    d(rho u)/dt        + div(rho u v) + dp'/dx    =  f (rho v)'
    d(rho v)/dt        + div(rho v v) + dp'/dy    = -f (rho u)'
    d(rho w)/dt        + div(rho w v) + dp'/dz    = -rho' g
    d((rho theta)')/dt + div(rho theta v)         = 0

Each direction is a separate sweep of three Runge-Kutta stages. The Coriolis force rotates the deviation of the
horizontal momentum from the base wind by the angle f dt, exact in time: the base wind is assumed geostrophic.
Diffusion with a constant coefficient K, div(rho K grad phi) for u, v, w and theta, acts on deviations from the base.

A state is float64[5, nz, ny + 12, nx + 12]: rho' (kg m-3), rho u, rho v, rho w (kg m-2 s-1), (rho theta)' (K kg m-3),
with a halo of 6 cells in y and in x, two for each stage. Fill it in the direction of the next sweep: `sweep_x` reads it
in x, `sweep_y` in y, neither reads corners. Afterwards the halo is stale. A base state is given by rows:

- column  float64[3, nz]      at cells: rho (kg m-3), rho theta (K kg m-3), pressure (Pa)
- faces   float64[5, nz + 1]  at interfaces: the same three, and the third differences of the base's rho u and rho v in
                              z, on which the hyperviscosity does not act
- ghost   float64[4]          base density of the rows outside the walls over that of the row next to the wall, as in
                              the slab
- wind    float64[2, nz]      base u and v of the cells (m/s)
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.euler.box.constants import RHO, RHO_THETA, RHO_U, RHO_V, RHO_W
from hpckit.kernels.euler.constants import CLOSED, CV, GAMMA, GRAVITY, HALO, RD, Sweep
from hpckit.kernels.euler.slab.reference import fluxes
from hpckit.kernels.euler.status import note
from hpckit.kernels.parts import INNER

OWNED = slice(HALO, -HALO)


def sweep_x(
    state: np.ndarray,
    out: np.ndarray,
    column: np.ndarray,
    mass_flux: np.ndarray,
    sweep: Sweep,
    status: np.ndarray,
    lines: tuple[int, int],
    part: int,
    seams: np.ndarray,
) -> None:
    """Advance the x direction by dt (s).

    out: receives the owned cells of the result; may be the state, except on a GPU. mass_flux: receives the mass flux of
    the last stage (kg m-2 s-1), which changed the density, at the low faces of the owned cells and the high face of the
    last one, float64[nz, ny, nx + 1]; ignored if of size 0.

    status: int32[2] of `euler.status.new_status`, receives OUT_OF_RANGE and NOT_FINITE, also of halo cells. NOT_FINITE
    may be missing if only a tangential momentum is lost, which the sweep carries but does not use.

    lines: the half-open range of owned rows of y to sweep; all of them on a GPU. part: of `kernels.parts`, or CLOSED:
    everything, for rows that are periodic and whole and need no halo (not on a GPU). seams: scratch that INNER leaves
    for OUTER if `out` is the state, float64[nz, ny, 5, 2, 6]; of size 0 for other parts and on a GPU.
    """
    if part == INNER:
        return
    rows = slice(HALO + lines[0], HALO + lines[1])
    row = state[:, :, rows]
    if part == CLOSED:
        row = np.pad(row[..., OWNED], ((0, 0), (0, 0), (0, 0), (HALO, HALO)), mode="wrap")
    out[:, :, rows, OWNED], flux = _horizontal(row, RHO_U, column, sweep, status)
    if mass_flux.size:
        mass_flux[:, slice(*lines)] = flux


def sweep_y(
    state: np.ndarray,
    out: np.ndarray,
    column: np.ndarray,
    mass_flux: np.ndarray,
    sweep: Sweep,
    status: np.ndarray,
    lines: tuple[int, int],
    part: int,
) -> None:
    """Advance the y direction by dt (s); as `sweep_x`, with a mass_flux of [nz, ny + 1, nx], columns of x as lines."""
    if part == INNER:
        return
    columns = slice(HALO + lines[0], HALO + lines[1])
    stage, flux = _horizontal(state[..., columns].swapaxes(2, 3), RHO_V, column, sweep, status)
    out[:, :, OWNED, columns] = stage.swapaxes(2, 3)
    if mass_flux.size:
        mass_flux[..., slice(*lines)] = flux.swapaxes(1, 2)


@np.errstate(all="ignore")  # the status reports a lost solution
def sweep_z(
    state: np.ndarray,
    out: np.ndarray,
    faces: np.ndarray,
    ghost: np.ndarray,
    mass_flux: np.ndarray,
    sweep: Sweep,
    status: np.ndarray,
    lines: tuple[int, int],
) -> None:
    """Advance the z direction, with gravity, by dt (s), between rigid free-slip walls at ground and top.

    The rows outside the walls repeat rho', (rho theta)', u and v of the row next to the wall (so their momenta scale
    with the base density), with rho w = 0; no mass passes a wall. The other arguments are those of
    `sweep_x`; mass_flux is [nz + 1, ny, nx].
    """
    own = slice(HALO + lines[0], HALO + lines[1])
    start, (dz, dt, beta, _) = state[:, :, own, OWNED].copy(), sweep
    stage = start
    base = faces[:3, :, None, None]
    shear = {RHO_U: faces[3, :, None, None], RHO_V: faces[4, :, None, None]}
    for fraction in (1 / 3, 1 / 2, 1.0):
        rows = np.pad(stage, ((0, 0), (2, 2), (0, 0), (0, 0)), mode="edge")
        rows[RHO_W, [0, 1, -2, -1]] = 0.0
        for field in shear:
            rows[field, [0, 1, -2, -1]] *= ghost[:, None, None]
        quad = [rows[:, first : first + stage.shape[1] + 1] for first in range(4)]
        flux, seen = fluxes(quad, RHO_W, base, beta * dz / (16 * dt * fraction), shear, walls=True)
        note(status, seen, sweep.step)
        tendency = -np.diff(flux, axis=1) / dz
        tendency[RHO_W] -= GRAVITY * stage[RHO]
        stage = start + dt * fraction * tendency
    out[:, :, own, OWNED] = stage
    if mass_flux.size:
        mass_flux[:, slice(*lines)] = flux[RHO]


def turn(state: np.ndarray, column: np.ndarray, wind: np.ndarray, angle: float) -> None:
    """Rotate the deviation of the horizontal momentum from the base wind clockwise by `angle` (rad, f dt), in place."""
    owned = state[:, :, OWNED, OWNED]
    rho = owned[RHO] + column[0, :, None, None]
    base_u, base_v = rho * wind[0, :, None, None], rho * wind[1, :, None, None]
    u, v = owned[RHO_U] - base_u, owned[RHO_V] - base_v
    owned[RHO_U] = base_u + (np.cos(angle) * u + np.sin(angle) * v)
    owned[RHO_V] = base_v + (np.cos(angle) * v - np.sin(angle) * u)


@np.errstate(all="ignore")  # the sweeps report a lost solution
def diffuse(
    state: np.ndarray,
    column: np.ndarray,
    base: np.ndarray,
    spacing: tuple[float, float, float],
    amount: float,
    work: np.ndarray,
) -> None:
    """Diffuse u, v, w and theta by `amount` (m2, K dt) in place: second order, explicit.

    At ground and top w is 0, and the flux of the others is 0.

    base: u, v, w (0) and theta of the base state by rows, float64[4, nz]. spacing: dx, dy, dz (m). work: scratch like
    the state. Needs one halo cell in x and in y. Stable while amount (1/dx2 + 1/dy2 + 1/dz2) <= 1/2.
    """
    work[RHO] = state[RHO] + column[0, :, None, None]
    work[1:] = state[1:] / work[RHO] - base[:, :, None, None]
    work[RHO_THETA] += column[1, :, None, None] / work[RHO]
    seen = work[:, :, HALO - 1 : -HALO + 1, HALO - 1 : -HALO + 1]
    for dim, width in ((3, spacing[0]), (2, spacing[1]), (1, spacing[2])):
        near = np.moveaxis(seen, dim, 0)
        flux = (near[1:, 0] + near[:-1, 0])[:, None] * np.diff(near[:, 1:], axis=0)
        if dim == 1:
            flux = np.pad(flux, ((1, 1), *[(0, 0)] * 3))
            # Beyond a wall w is odd.
            flux[0, RHO_W - 1], flux[-1, RHO_W - 1] = (
                4 * near[0, 0] * near[0, RHO_W],
                -4 * near[-1, 0] * near[-1, RHO_W],
            )
        change = np.moveaxis(np.diff(flux, axis=0), 0, dim)
        inside = tuple(slice(None) if d in (1, dim) else slice(1, -1) for d in (1, 2, 3))
        state[1:, :, OWNED, OWNED] += amount / (2 * width * width) * change[(slice(None), *inside)]


@np.errstate(all="ignore")
def diagnose(state: np.ndarray, column: np.ndarray, height: np.ndarray) -> np.ndarray:
    """Diagnostics of the cells without the halo: float64[11].

    Sums over cells of rho' (kg m-3) and of the densities of kinetic, internal and potential energy (J m-3); the
    maximum |u| + c, |v| + c and |w| + c, with the speed of sound c (m s-1); the maximum |w| (m s-1); the minimum and
    the maximum deviation of theta from the base state (K); the number of cells that are not finite (excluded from all
    else).
    state, column: as above; height: z of the cells (m), float64[nz].
    """
    rho, *momentum, rho_theta = state[:, :, OWNED, OWNED]
    base_rho, base_rho_theta, base_pressure = column[:, :, None, None]
    total = rho + base_rho
    velocity = [each / total for each in momentum]
    theta = (rho_theta + base_rho_theta) / total - base_rho_theta / base_rho
    pressure = base_pressure * (1 + rho_theta / base_rho_theta) ** GAMMA
    sound = np.sqrt(GAMMA * pressure / total)
    finite = np.isfinite(sum(velocity) + theta + sound)
    if not finite.any():
        return np.array([0.0] * 10 + [finite.size])
    kinetic = 0.5 * total * sum(each * each for each in velocity)
    potential = GRAVITY * height[:, None, None] * total
    sums = [field[finite].sum() for field in (rho, kinetic, CV / RD * pressure, potential)]
    most = [(np.abs(each) + sound)[finite].max() for each in velocity]
    ends = [np.abs(velocity[2][finite]).max(), theta[finite].min(), theta[finite].max()]
    return np.array([*sums, *most, *ends, finite.size - np.count_nonzero(finite)])


@np.errstate(all="ignore")  # the status reports a lost solution
def _horizontal(
    lines: np.ndarray, normal: int, column: np.ndarray, sweep: Sweep, status: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Advance lines [5, nz, m, n + 12] along the last dim: the owned cells, [5, nz, m, n], and the mass flux at their
    faces in the last stage, [nz, m, n + 1].
    """
    stage, (spacing, dt, beta, _) = lines, sweep
    for lost, fraction in ((2, 1 / 3), (4, 1 / 2), (6, 1.0)):  # cells lost at either end after the stage, share of dt
        quad = [stage[..., first : first + stage.shape[3] - 3] for first in range(4)]
        flux, seen = fluxes(quad, normal, column[:, :, None, None], beta * spacing / (16 * dt * fraction), {})
        note(status, seen, sweep.step)
        start = lines[..., lost : lines.shape[3] - lost]
        stage = start - dt * fraction / spacing * np.diff(flux, axis=3)
    return stage, flux[RHO]
