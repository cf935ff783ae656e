"""Kessler's warm rain and saturation adjustment, NumPy: definition and test oracle of the compiled forms.

The scheme of Klemp and Wilhelmson (1978, J. Atmos. Sci. 35, 1070-1096) as the reference program of DCMIP2016 has it
(version 2, rain in substeps): cloud turns into rain above 1 g/kg (2.13a), rain collects cloud (2.13b), falls (2.15) by
upstream differences, evaporates (2.14); vapor condenses and cloud evaporates in one step of Soong and Ogura (1973, J.
Atmos. Sci. 30, 879-893), at constant pressure.

theta (K), water (vapor, cloud and rain, kg per kg of dry air: float64[3, nz, ny, nx]) are changed in place. rho:
density of dry air, kg/m3. exner, pressure (Pa): T / theta and p, kept. thickness: of the layers, m, float64[nz] or,
over terrain, float64[nz, ny, nx]: rain moves between them by mass. The program takes the distance to the middle above;
pass that, and half the last, for its bits.

`compress` and `condense` are the thermodynamics of the complete equations (Bryan and Fritsch 2002, MWR 130, 2917-2928,
set A): vapor and liquid water have heat capacities of their own, latent heat depends on the temperature, and the
internal energy (c_v + c_vv q_v + c_l q_l) T - LATENT q_l is kept to rounding as water condenses at constant volume.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.euler.box.constants import RHO, RHO_THETA
from hpckit.kernels.euler.constants import CP, CV, GAMMA, RD, REACH
from hpckit.kernels.euler.hevi.constants import ABOVE, BELOW, HALO, PER_CELL
from hpckit.kernels.euler.rain.constants import (
    BOLTON,
    BOLTON_SHIFT,
    BOLTON_SLOPE,
    CL,
    CLOUD,
    CVV,
    F2X,
    F5,
    FREEZING,
    HEAT,
    LATENT,
    RAIN,
    RV,
    VAPOR,
    WARMED,
    WATER_DENSITY,
)


def total(carried: np.ndarray, kinds: int, out: np.ndarray) -> None:
    """The sum of the first so many mixing ratios, into the cells of `out` that have them (REACH around, of HALO)."""
    wide = slice(HALO - REACH, REACH - HALO)
    out[:, wide, wide] = carried[0] + carried[1]
    for part in carried[2:kinds]:
        out[:, wide, wide] += part


def air_of(
    state: np.ndarray,
    column: np.ndarray,
    size: np.ndarray,
    carried: np.ndarray,
    air: np.ndarray,
    water: np.ndarray,
) -> None:
    """theta, rho, exner and pressure of the owned cells into air [4, nz, ny, nx], their water into water [kinds, …].

    state: with HALO cells around; carried: mixing ratios, REACH around.
    column, size: base state and the size of cells, by which densities of the state are multiplied, float64[3, nz] and
    [nz]; over terrain (`kernels.euler.hevi.terrain`) by cell as the state.
    """
    inner, within = (slice(None), *[slice(HALO, -HALO)] * 2), (slice(None), *[slice(REACH, -REACH)] * 2)
    (rho, heat, pressure), each = owned(column, 2), owned(size, 1)
    water[...] = carried[(slice(len(water)), *within)]
    air[1] = (state[RHO][inner] + rho) / each
    air[3] = pressure * (1.0 + np.expm1(GAMMA * np.log1p(state[RHO_THETA][inner] / heat)))
    heat = (state[RHO_THETA][inner] + heat) / each
    air[0] = heat / (air[1] * (1.0 + RV / RD * water[VAPOR]))
    air[2] = air[3] / (RD * heat)


def put_back(
    air: np.ndarray, water: np.ndarray, column: np.ndarray, size: np.ndarray, state: np.ndarray, carried: np.ndarray
) -> None:
    """What became of theta and water, into the owned cells of state and mixing ratios."""
    inner, within = (slice(None), *[slice(HALO, -HALO)] * 2), (slice(None), *[slice(REACH, -REACH)] * 2)
    carried[(slice(len(water)), *within)] = water
    heat = air[1] * air[0] * (1.0 + RV / RD * water[VAPOR])
    state[RHO_THETA][inner] = owned(size, 1) * heat - owned(column, 2)[1]


def rain(
    state: np.ndarray, column: np.ndarray, size: np.ndarray, carried: np.ndarray, air: np.ndarray, water: np.ndarray,
    thickness: np.ndarray, dt: float, rained: np.ndarray,
) -> None:  # fmt: skip
    """`air_of`, `kessler` and `put_back` of some rows after the other: as many as air and water have room for."""
    for start in range(0, len(rained), air.shape[2]):
        count = min(air.shape[2], len(rained) - start)
        near, its, wet = slice(start, start + count + 2 * HALO), air[:, :, :count], water[:, :, :count]
        flat = column if column.ndim == 2 else column[:, :, near]
        sizes = size if size.ndim == 1 else size[:, near]
        layers = thickness if thickness.ndim == 1 else thickness[:, start : start + count]
        part, q = state[:, :, near], carried[:, :, start : start + count + 2 * REACH]
        air_of(part, flat, sizes, q, its, wet)
        kessler(its[0], wet, its[1], its[2], its[3], layers, dt, rained[start : start + count])
        put_back(its, wet, flat, sizes, part, q)


def owned(rows: np.ndarray, dims: int) -> np.ndarray:
    """Rows of levels as a view that meets cells, or rows by cell without their halo; dims: of the former."""
    return rows[..., None, None] if rows.ndim == dims else rows[..., HALO:-HALO, HALO:-HALO]


def kessler(
    theta: np.ndarray,
    water: np.ndarray,
    rho: np.ndarray,
    exner: np.ndarray,
    pressure: np.ndarray,
    thickness: np.ndarray,
    dt: float,
    rained: np.ndarray,
) -> None:
    """Rain over dt (s) in place; adds the water that reaches the ground (m) to rained, float64[ny, nx]."""
    layers = thickness if thickness.ndim == 3 else np.broadcast_to(thickness[:, None, None], theta.shape)
    for j, i in np.ndindex(rained.shape):
        column = (slice(None), j, i)
        rained[j, i] += dt * _column(
            theta[column], water[:, :, j, i], rho[column], exner[column], pressure[column], layers[column], dt
        )


def saturate(theta: np.ndarray, water: np.ndarray, exner: np.ndarray, pressure: np.ndarray) -> None:
    """Vapor condenses or cloud evaporates, in place, at constant pressure, until air is saturated or cloudless.

    Four steps of Newton's method, of which Soong and Ogura take one.
    """
    for _ in range(4):
        temperature = exner * theta
        limit = 380.0 / pressure * np.exp(F2X * (temperature - 273.0) / (temperature - 36.0))
        change = (water[VAPOR] - limit) / (1.0 + limit * F5 / (temperature - 36.0) ** 2)
        change = np.maximum(change, -water[CLOUD])
        theta += HEAT / (WARMED * exner) * change
        water[VAPOR] -= change
        water[CLOUD] += change


def compress(
    state: np.ndarray,
    start: np.ndarray,
    carried: np.ndarray,
    column: np.ndarray,
    levels: np.ndarray,
    flux_x: np.ndarray,
    flux_y: np.ndarray,
    flux_z: np.ndarray,
    spacing: tuple[float, float],
    dt: float,
) -> None:
    """What water changes in the heating by compression over dt (s), in (rho theta)' of the owned cells, in place.

    Pressure follows p = C0 (rho theta)**gamma with the moist theta; with gamma_m = c_p / c_v of moist air
    d ln(rho theta) / dt = -(gamma_m / gamma) div v, of which the dynamics do -div v. start: the state before the step,
    with a halo; carried: mixing ratios; flux_x, …: mean mass fluxes of the step, as `hevi.substep` makes them;
    spacing: dx and dy, m; levels as in `hevi`.
    """
    dx, dy = spacing
    wide, across = slice(HALO - 1, 1 - HALO), slice(HALO, -HALO)
    rho = start[RHO] + column[0][:, None, None]
    row, file = rho[:, across, wide], rho[:, wide, across]
    u = flux_x / (0.5 * (row[..., :-1] + row[..., 1:]))
    v = flux_y / (0.5 * (file[:, :-1] + file[:, 1:]))
    inner = rho[:, across, across]
    below, above = (levels[each, 1:-1, None, None] for each in (BELOW, ABOVE))
    w = np.zeros_like(flux_z)
    w[1:-1] = flux_z[1:-1] / (below * inner[:-1] + above * inner[1:])
    divergence = np.diff(u, axis=2) / dx + np.diff(v, axis=1) / dy
    divergence += np.diff(w, axis=0) * levels[PER_CELL, :-1, None, None]
    vapor, liquid, rain = carried[:3, :, REACH:-REACH, REACH:-REACH]
    capacity = CV + CVV * vapor + CL * (liquid + rain)
    stiffening = (capacity + RD + RV * vapor) / (capacity * GAMMA) - 1.0
    heat = state[RHO_THETA, :, across, across]
    heat += (heat + column[1][:, None, None]) * np.expm1(-stiffening * divergence * dt)


def condense(theta: np.ndarray, water: np.ndarray, rho: np.ndarray, exner: np.ndarray, pressure: np.ndarray) -> None:
    """Vapor condenses or cloud evaporates, in place, at constant volume and internal energy.

    Six steps of Newton's method for the temperature. exner and pressure are those before.
    """
    vapor, cloud, rain = water.copy()
    total = vapor + cloud
    temperature = exner * theta

    def saturation(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        above = t - BOLTON_SHIFT
        limit = BOLTON * np.exp(BOLTON_SLOPE * (t - FREEZING) / above) / (rho * RV * t)
        return limit, limit * (BOLTON_SLOPE * (FREEZING - BOLTON_SHIFT) / above**2 - 1 / t)

    energy = (CV + CVV * vapor + CL * (cloud + rain)) * temperature - LATENT * cloud
    clear = energy / (CV + CVV * total + CL * rain)  # if all of it were vapor
    is_clear = saturation(clear)[0] >= total
    new = temperature.copy()
    for _ in range(6):
        limit, slope = saturation(new)
        capacity = CV + CVV * limit + CL * (total - limit + rain)
        excess = capacity * new - LATENT * (total - limit) - energy
        new -= excess / (capacity + slope * (LATENT - (CL - CVV) * new))
    left = np.where(is_clear, total, saturation(new)[0])
    new = np.where(is_clear, clear, new)
    stays = (cloud == 0) & is_clear
    left, new = np.where(stays, vapor, left), np.where(stays, temperature, new)
    ratio = new / temperature
    theta *= ratio * np.exp(-(RD / CP) * np.log(ratio * ((RD + RV * left) / (RD + RV * vapor))))
    water[VAPOR], water[CLOUD] = left, np.where(stays, cloud, total - left)


def _column(
    theta: np.ndarray,
    water: np.ndarray,
    rho: np.ndarray,
    exner: np.ndarray,
    pressure: np.ndarray,
    thickness: np.ndarray,
    dt: float,
) -> float:
    """One column; returns the rain at the ground, m of water per s."""
    grams, light = 0.001 * rho, np.sqrt(rho[0] / rho)
    scale = 380.0 / pressure
    vapor, cloud, rain = water[VAPOR], water[CLOUD], water[RAIN]
    fall = 36.34 * (rain * grams) ** 0.1364 * light
    longest = dt
    for k in range(len(rho) - 1):
        if fall[k] != 0.0:
            longest = min(longest, 0.8 * thickness[k] / fall[k])
    steps = int(np.ceil(dt / longest))
    short, ground = dt / steps, 0.0
    for step in range(steps):
        ground += rho[0] * rain[0] * fall[0] / WATER_DENSITY
        flux = grams * rain * fall
        settled = np.empty_like(flux)
        settled[:-1] = short * (flux[1:] - flux[:-1]) / (grams[:-1] * thickness[:-1])
        settled[-1] = -short * rain[-1] * fall[-1] / thickness[-1]
        made = cloud - (cloud - short * np.maximum(0.001 * (cloud - 0.001), 0.0)) / (1.0 + short * 2.2 * rain**0.875)
        cloud[:] = np.maximum(cloud - made, 0.0)
        rain[:] = np.maximum(rain + made + settled, 0.0)
        temperature = exner * theta
        limit = scale * np.exp(F2X * (temperature - 273.0) / (temperature - 36.0))
        change = (vapor - limit) / (1.0 + limit * F5 / (temperature - 36.0) ** 2)
        wet = grams * rain
        rate = (1.6 + 124.9 * wet**0.2046) * wet**0.525 / (2.55e6 * scale / (3.8 * limit) + 5.4e5)
        dried = short * rate * (np.maximum(limit - vapor, 0.0) / (grams * limit))
        dried = np.minimum(np.minimum(dried, np.maximum(-change - cloud, 0.0)), rain)
        change = np.maximum(change, -cloud)
        theta += HEAT / (WARMED * exner) * (change - dried)
        vapor[:] = np.maximum(vapor - change + dried, 0.0)
        cloud += change
        rain -= dried
        if step + 1 < steps:
            fall = 36.34 * (rain * grams) ** 0.1364 * light
    return ground / steps
