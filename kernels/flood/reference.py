"""Shallow water with shocks and dry land, finite volumes, NumPy: definition and test oracle of the compiled forms.

Depth h and momenta hu, hv over a bottom b, at cell centers:

    dh/dt  + d(hu)/dx + d(hv)/dy = 0
    dhu/dt + d(hu u + g h h / 2)/dx + d(hu v)/dy = -g h db/dx + f hv - k |hu| hu
    dhv/dt + d(hv u)/dx + d(hv v + g h h / 2)/dy = -g h db/dy - f hu - k |hu| hv,   k = (g n**2 / h**(1/3) + c) / h**2

with Manning's n (s/m**(1/3)), a quadratic drag coefficient c (1) and the Coriolis parameter f (1/s). In each direction
depth, surface h + b and velocities are linear in a cell (monotonized central limiter). Faces use the hydrostatic
reconstruction of Audusse et al. (2004, SIAM J. Sci. Comput. 25, 2050-2065, second-order form of section 4) and the HLL
flux; the mass flux carries the tangential momentum (as in HLLC). A lake stays at rest over any bottom, islands
included; the depth stays non-negative if `rate` times dt is at most 1/2; smooth flow is second order.

State: float64[3, ny + 4, nx + 4] (m, m2/s, m2/s), halo of 2 cells filled before a stage; bottom: of the same cells (m).
A time step is SSP-RK2 (Heun's): `stage` with weight 1, the halo, `stage` with weight 1/2.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.flood.constants import HALO, HU, HV, ROUNDING, H, Physics
from hpckit.kernels.parts import INNER

OWNED = (..., slice(HALO, -HALO), slice(HALO, -HALO))
Side = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # depth, surface, velocity across and along


@np.errstate(all="ignore")  # `diagnose` reports non-finite cells
def stage(
    new: np.ndarray,
    now: np.ndarray,
    start: np.ndarray,
    bottom: np.ndarray,
    weight: float,
    dt: float,
    physics: Physics,
    found: np.ndarray,
    part: int,
) -> None:
    """Set new = (1 - weight) start + weight (now + dt tendency(now)), with friction, in the owned cells of `new`.

    new must not alias now or start. dt (s). found: receives the rate that limits dt, the maximum of (wave speed)/dx +
    (wave speed)/dy over the faces of a cell (1/s), and the minimum depth in `new` (m); `dispatch.ends` reads both after
    all parts; here float64[1, 2]. part: of `kernels.parts`.
    """
    if part == INNER:
        return
    gravity, dx, dy, coriolis, manning, drag, dry = physics
    velocity = now[HU:] * _per_depth(now[H], dry)
    change = np.zeros_like(now)
    rate = np.zeros_like(now[H])
    for dim, spacing in ((1, dx), (0, dy)):
        across, along = (HU, HV) if dim else (HV, HU)
        values = (now[H], now[H] + bottom, velocity[across - 1], velocity[along - 1])
        slopes = [_half_slope(value, dim) for value in values]
        low = tuple(value - slope for value, slope in zip(values, slopes, strict=True))
        high = tuple(value + slope for value, slope in zip(values, slopes, strict=True))
        before = tuple(np.roll(value, 1, dim) for value in high)
        mass, from_low, from_high, sideways, speed = _face_flux(before, low, gravity)
        # The pressures of both faces and the bottom slope combine to the slope of the surface.
        push = 0.5 * gravity * (low[0] + high[0]) * (high[1] - low[1])
        change[H] -= (np.roll(mass, -1, dim) - mass) / spacing
        change[across] -= (np.roll(from_low, -1, dim) - from_high + push) / spacing
        change[along] -= (np.roll(sideways, -1, dim) - sideways) / spacing
        rate += np.maximum(speed, np.roll(speed, -1, dim)) / spacing
    change[HU] += coriolis * now[HV]
    change[HV] -= coriolis * now[HU]
    ahead = now + dt * change
    if manning or drag:
        ahead[HU:] *= _rub(ahead, dt, gravity * manning**2, drag)
    result = (1 - weight) * start + weight * ahead
    result[H][(result[H] < 0) & (result[H] > -ROUNDING * dry)] = 0.0
    thin = result[H] < dry
    result[HU:, thin] *= (result[H] * _per_depth(result[H], dry))[thin]
    new[OWNED] = result[OWNED]
    found[0] = rate[OWNED].max(), result[H][OWNED].min()


@np.errstate(all="ignore")
def diagnose(state: np.ndarray, bottom: np.ndarray, physics: Physics) -> np.ndarray:
    """Diagnostics of the owned cells: float64[6].

    Sums over cells of h (m) and of the energy h (u u + v v) / 2 + g h (h / 2 + b) (m3/s2); the maximum speed (m/s) and
    depth (m); the number of cells deeper than `dry`, and of cells that are not finite or below 0 deep (excluded from
    all else).
    """
    gravity, dry = physics.gravity, physics.dry
    depth, level = state[H][OWNED], bottom[OWNED]
    velocity = state[HU:][OWNED] * _per_depth(depth, dry)
    square = velocity[0] ** 2 + velocity[1] ** 2
    energy = depth * (0.5 * square + gravity * (0.5 * depth + level))
    good = np.isfinite(energy) & np.isfinite(state[OWNED]).all(axis=0) & (depth >= 0)
    if not good.any():
        return np.array([0.0] * 5 + [good.size])
    return np.array([
        depth[good].sum(), energy[good].sum(), np.sqrt(square[good].max()), depth[good].max(),
        np.count_nonzero(depth[good] > dry), good.size - np.count_nonzero(good),
    ])  # fmt: skip


def _per_depth(h: np.ndarray, dry: float) -> np.ndarray:
    return 2 * h / (h * h + np.maximum(h * h, dry * dry))


def _half_slope(values: np.ndarray, dim: int) -> np.ndarray:
    below, above = values - np.roll(values, 1, dim), np.roll(values, -1, dim) - values
    size = np.minimum(0.25 * np.abs(below + above), np.minimum(np.abs(below), np.abs(above)))
    return np.where(below * above > 0, np.copysign(size, below), 0.0)


def _face_flux(left: Side, right: Side, gravity: float) -> tuple[np.ndarray, ...]:
    """See `numerics.face_flux`: the momentum flux minus the pressure of the left, and of the right, side."""
    (h_l, level_l, u_l, v_l), (h_r, level_r, u_r, v_r) = left, right
    bottom = np.maximum(level_l - h_l, level_r - h_r)
    h_l, h_r = np.maximum(level_l - bottom, 0), np.maximum(level_r - bottom, 0)
    c_l, c_r = np.sqrt(gravity * h_l), np.sqrt(gravity * h_r)
    u_mid, c_mid = (u_l + u_r) / 2 + c_l - c_r, (c_l + c_r) / 2 + (u_l - u_r) / 4
    slow, fast = np.minimum(u_l - c_l, u_mid - c_mid), np.maximum(u_r + c_r, u_mid + c_mid)
    slow, fast = np.where(h_l > 0, slow, u_r - 2 * c_r), np.where(h_l > 0, fast, u_r + c_r)
    slow, fast = np.where(h_r > 0, slow, u_l - c_l), np.where(h_r > 0, fast, u_l + 2 * c_l)
    slow, fast = np.minimum(slow, 0), np.maximum(fast, 0)
    span = np.where(fast > slow, fast - slow, 1.0)
    p_l, p_r = 0.5 * gravity * h_l**2, 0.5 * gravity * h_r**2
    mass = (fast * h_l * u_l - slow * h_r * u_r + slow * fast * (h_r - h_l)) / span
    momentum = fast * (h_l * u_l**2 + p_l) - slow * (h_r * u_r**2 + p_r) + slow * fast * (h_r * u_r - h_l * u_l)
    momentum = np.where(fast > slow, momentum / span, p_l)
    along = mass * np.where(mass > 0, v_l, v_r)
    return mass, momentum - p_l, momentum - p_r, along, np.maximum(fast, -slow)


def _rub(ahead: np.ndarray, dt: float, per_cube_root: float, drag: float) -> np.ndarray:
    """See `numerics.rub`."""
    h, size = ahead[H], np.hypot(ahead[HU], ahead[HV])
    k = (per_cube_root / np.cbrt(h) + drag) / h**2
    return np.where(h > 0, 2 / (1 + np.sqrt(1 + 4 * dt * k * size)), 0.0)
