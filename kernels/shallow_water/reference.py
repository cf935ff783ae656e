"""Nonlinear shallow water on an Arakawa C-grid, NumPy: definition and test oracle of the compiled forms.

Vector-invariant equations with potential vorticity q, for the thickness h of the layer over a bottom b:

    dh/dt = -d(h u)/dx - d(h v)/dy
    du/dt = +q h v - dB/dx + nu (dD/dx - dzeta/dy) - r u - c |u| u / h + tau / h
    dv/dt = -q h u - dB/dy + nu (dD/dy + dzeta/dx) - r v - c |u| v / h
    q = (f + zeta) / h,  zeta = dv/dx - du/dy,  D = du/dx + dv/dy,  B = g (h + b) + (u u + v v) / 2

h and b are at cell centers, u on low faces in x, v on low faces in y, q and zeta at low corners. Averages and the
products q h u are those of the energy-conserving scheme of Sadourny (1975, J. Atmos. Sci. 32,
680-689, eq. 6): without friction and forcing the tendencies conserve mass and energy exactly. Time: the three stages of
SSP-RK3 (Shu and Osher 1988, J. Comput. Phys. 77, 439-471).

State: h float64[ny + 6, nx + 6] (m); u and v (m/s) of the same shape or, if a dim ends at walls, with one face more in
it. The halo of 3 cells is filled before a step, and stale after it. Walls and the cells beyond them are given by
factors, rows[k, ny + 6] and columns[k, nx + 6], where k is

- WATER   1 for cells inside, 0 beyond a wall
- FACE    1 for low faces inside, 0 on and beyond a wall
- CORNER  1 for low corners inside, 0 beyond a wall; on it 0 (free slip: no vorticity there) or 2 (no slip)
- F       rows only: Coriolis parameter of the low corners, 1/s
- STRESS  rows only: wind stress along x over the density of water, m2/s2

Velocities on and beyond walls stay 0, and the thickness beyond them does not change, so no mass passes. Velocities
below about 1e-136 m/s become 0 at the end of a step: their squares would be subnormal, which is slow to compute.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.parts import INNER
from hpckit.kernels.shallow_water.constants import CALM, CORNER, FACE, HALO, STRESS, WATER, F, Physics

STAGES = ((0.0, 1.0), (0.75, 0.25), (1 / 3, 2 / 3))  # weights of the start of the step and of the previous stage
Fields = tuple[np.ndarray, np.ndarray, np.ndarray]


@np.errstate(all="ignore")  # `diagnose` reports non-finite cells
def step(
    fields: Fields,
    out: Fields,
    bottom: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    physics: Physics,
    dt: float,
    steps: int,
    part: int,
) -> None:
    """Advance h, u and v by `steps` steps of dt (s); each needs three halo cells, and leaves them stale.

    fields: h, u, v. out: three such arrays that receive the owned values of the result; may be the fields, except on a
    GPU. bottom: height b (m), float64[ny + 6, nx + 6], halo filled. rows: float64[5, ny + 6]; columns:
    float64[3, nx + 6]. steps: up to AT_ONCE, on a GPU 1. part: of `kernels.parts`.
    """
    if part == INNER:
        return
    h = fields[0]
    whole = np.array([field[: h.shape[0], : h.shape[1]] for field in fields])
    mask = np.ones_like(whole)
    mask[1] = rows[WATER][:, None] * columns[FACE]
    mask[2] = rows[FACE][:, None] * columns[WATER]
    for _ in range(steps):
        now = whole
        for old_weight, weight in STAGES:
            tendency = _tendency(now, bottom, rows, columns, physics)
            now = now + old_weight * (whole - now) + weight * dt * tendency
            now *= mask
        now[1:] = (now[1:] + CALM) - CALM
        whole = now
    halo = steps * HALO
    for target, new in zip(out, whole, strict=True):
        owned = slice(halo, h.shape[0] - halo), slice(halo, h.shape[1] - halo)
        target[owned] = new[owned]


def step_free(fields: Fields, out: Fields, f: np.ndarray, physics: Physics, dt: float, steps: int, part: int) -> None:
    """`step` over a flat bottom, without walls, friction and forcing. f: at low corners by rows, float64[ny + 6]."""
    shape = fields[0].shape
    rows, columns = np.ones((5, shape[0])), np.ones((3, shape[1]))
    rows[F], rows[STRESS] = f, 0.0
    physics = Physics(physics.gravity, physics.dx, physics.dy)
    step(fields, out, np.zeros(shape), rows, columns, physics, dt, steps, part)


@np.errstate(all="ignore")
def diagnose(fields: Fields, bottom: np.ndarray, f: np.ndarray, physics: Physics, halo: int) -> np.ndarray:
    """Diagnostics of the cells inside a filled halo of `halo` cells: float64[7].

    Sums over cells of h (m), of the energy h (u u + v v) / 2 + g h (h / 2 + b) (m3/s2) and, over low corners, of the
    potential enstrophy q q h / 2 (1/(m s2)); the maximum speed and the maximum speed plus sqrt(g h) (m/s); the minimum
    h (m); the number of cells that are not finite or dry (excluded from all else). bottom: [0, 0] if flat.
    """
    (h, u, v), (gravity, dx, dy, *_) = fields, physics
    owned, low = slice(halo, -halo), slice(halo - 1, -halo - 1)
    inside, low_x, low_y = (owned, owned), (owned, low), (low, owned)
    u, v = u[: h.shape[0], : h.shape[1]], v[: h.shape[0], : h.shape[1]]
    east, north = np.roll(u, -1, 1)[inside], np.roll(v, -1, 0)[inside]
    depth, level = h[inside], bottom[inside] if bottom.size else 0.0
    kinetic = 0.25 * (u[inside] ** 2 + east**2 + v[inside] ** 2 + north**2)
    corner = 0.25 * (depth + h[low_x] + h[low_y] + h[low, low])
    absolute = f[owned, None] + (v[inside] - v[low_x]) / dx - (u[inside] - u[low_y]) / dy
    energy, enstrophy = depth * (kinetic + gravity * (0.5 * depth + level)), 0.5 * absolute**2 / corner
    speed = np.sqrt(2 * kinetic)
    good = np.isfinite(energy + enstrophy) & (depth > 0)
    if not good.any():
        return np.array([0.0] * 5 + [np.inf, good.size])
    return np.array([
        depth[good].sum(), energy[good].sum(), enstrophy[good].sum(), speed[good].max(),
        (speed + np.sqrt(gravity * depth))[good].max(), depth[good].min(), good.size - np.count_nonzero(good),
    ])  # fmt: skip


def _tendency(
    now: np.ndarray, bottom: np.ndarray, rows: np.ndarray, columns: np.ndarray, physics: Physics
) -> np.ndarray:
    """Tendencies of h, u, v, float64[3, ny + 6, nx + 6]; the outermost cells are undefined."""
    gravity, dx, dy, viscosity, drag, drag_quadratic = physics
    h, u, v = now

    def west(a: np.ndarray) -> np.ndarray:
        return np.roll(a, 1, 1)

    def east(a: np.ndarray) -> np.ndarray:
        return np.roll(a, -1, 1)

    def south(a: np.ndarray) -> np.ndarray:
        return np.roll(a, 1, 0)

    def north(a: np.ndarray) -> np.ndarray:
        return np.roll(a, -1, 0)

    depth_u, depth_v = 0.5 * (h + west(h)), 0.5 * (h + south(h))
    flux_u, flux_v = depth_u * u, depth_v * v
    zeta = rows[CORNER][:, None] * columns[CORNER] * ((v - west(v)) / dx - (u - south(u)) / dy)
    q = (rows[F][:, None] + zeta) / (0.5 * (depth_u + south(depth_u)))
    divergence = (east(u) - u) / dx + (north(v) - v) / dy
    bernoulli = gravity * (h + bottom) + 0.25 * (u**2 + east(u) ** 2 + v**2 + north(v) ** 2) - viscosity * divergence
    q_flux_v, q_flux_u = q * (flux_v + west(flux_v)), q * (flux_u + south(flux_u))
    speed_u = np.hypot(u, 0.25 * (v + west(v) + north(v) + north(west(v))))
    speed_v = np.hypot(v, 0.25 * (u + east(u) + south(u) + south(east(u))))
    du = 0.25 * (q_flux_v + north(q_flux_v)) - (bernoulli - west(bernoulli)) / dx
    du += -viscosity * (north(zeta) - zeta) / dy - drag * u
    du += (rows[STRESS][:, None] - drag_quadratic * speed_u * u) / depth_u
    dv = -0.25 * (q_flux_u + east(q_flux_u)) - (bernoulli - south(bernoulli)) / dy
    dv += viscosity * (east(zeta) - zeta) / dx - drag * v - drag_quadratic * speed_v * v / depth_v
    dh = -(east(flux_u) - flux_u) / dx - (north(flux_v) - flux_v) / dy
    return np.array([dh, du, dv])
