"""Kessler's warm rain, Numba: columns of a row at once, level by level."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import jit
from hpckit.kernels.euler.box.constants import RHO, RHO_THETA
from hpckit.kernels.euler.constants import RD, REACH
from hpckit.kernels.euler.hevi.constants import ABOVE, BELOW, HALO, PER_CELL
from hpckit.kernels.euler.numerics import outside, power
from hpckit.kernels.euler.rain.constants import CL, CVV, LATENT, RV, WATER_DENSITY
from hpckit.kernels.euler.rain.numerics import (
    capacity,
    collected,
    evaporated,
    fall_speed,
    saturation,
    stiffening,
    theta_of,
    vapor_at_saturation,
    warming,
)

u8 = np.uint64


@jit
def _row_of(cells, level, row, out):
    """The owned cells of a row, of rows by cell with their halo, or of one cell a level."""
    for i in range(len(out)):
        out[i] = cells[level, 0, 0] if cells.shape[2] == 1 else cells[level, row, i + HALO]


@jit
def total(carried, kinds, out):
    _total(carried, kinds, out)


@jit(noalias=True, borrowed=True)
def _total(carried, kinds, out):
    nz, tall, wide = carried.shape[1:]
    beyond, count = HALO - REACH, u8(wide)
    for level in range(nz):
        for j in range(tall):
            k, row, own, first = u8(level), u8(j), u8(j + beyond), u8(beyond)
            for i in range(count):
                out[k, own, first + i] = carried[u8(0), k, row, i] + carried[u8(1), k, row, i]
            for part in range(u8(2), u8(kinds)):
                for i in range(count):
                    out[k, own, first + i] += carried[part, k, row, i]


@jit
def air_of(state, column, size, carried, air, water):
    rows = np.empty((4, air.shape[3]))
    _air_of(
        state[RHO], state[RHO_THETA], column, size, carried, air[0], air[1], air[2], air[3], water, rows[0], rows[1],
        rows[2], rows[3], 0, air.shape[2],
    )  # fmt: skip


@jit(noalias=True, borrowed=True)
def _air_of(
    density, heat, column, size, carried, theta, rho, exner, pressure, water, base_rho, base_heat, base_pressure,
    per_size, start, rows,
):  # fmt: skip
    """Of so many owned rows from `start` on, which are the first ones of theta to water."""
    nz, _, nx = theta.shape
    first, first_q, count = u8(HALO), u8(REACH), u8(nx)
    for level in range(nz):
        for j in range(rows):
            k, row, own, row_q = u8(level), u8(start + j + HALO), u8(j), u8(start + j + REACH)
            if j == 0 or size.shape[2] > 1:
                _row_of(column[0], level, start + j + HALO, base_rho)
                _row_of(column[1], level, start + j + HALO, base_heat)
                _row_of(column[2], level, start + j + HALO, base_pressure)
                _row_of(size, level, start + j + HALO, per_size)
                for i in range(count):
                    per_size[i] = 1.0 / per_size[i]
            far = 0
            for i in range(count):
                e = heat[k, row, first + i] / base_heat[i]
                far |= outside(e)
                pressure[k, own, i] = base_pressure[i] * power(e, False)
            if far:
                for i in range(count):
                    pressure[k, own, i] = base_pressure[i] * power(heat[k, row, first + i] / base_heat[i], True)
            for i in range(count):
                dense = (density[k, row, first + i] + base_rho[i]) * per_size[i]
                warm = (heat[k, row, first + i] + base_heat[i]) * per_size[i]
                p = pressure[k, own, i] + base_pressure[i]
                theta[k, own, i] = warm / (dense * (1.0 + RV / RD * carried[u8(0), k, row_q, first_q + i]))
                rho[k, own, i] = dense
                exner[k, own, i] = p / (RD * warm)
                pressure[k, own, i] = p
            for part in range(u8(len(water))):
                for i in range(count):
                    water[part, k, own, i] = carried[part, k, row_q, first_q + i]


@jit
def put_back(air, water, column, size, state, carried):
    rows = np.empty((2, air.shape[3]))
    _put_back(air, water, column[1], size, state[RHO_THETA], carried, rows[0], rows[1], 0, air.shape[2])


@jit(noalias=True, borrowed=True)
def _put_back(air, water, column, size, heat, carried, base_heat, sizes, start, rows):
    nz, _, nx = air.shape[1:]
    first, first_q, count = u8(HALO), u8(REACH), u8(nx)
    for level in range(nz):
        for j in range(rows):
            k, row, own, row_q = u8(level), u8(start + j + HALO), u8(j), u8(start + j + REACH)
            if j == 0 or size.shape[2] > 1:
                _row_of(column, level, start + j + HALO, base_heat)
                _row_of(size, level, start + j + HALO, sizes)
            for i in range(count):
                moist = air[u8(1), k, own, i] * air[u8(0), k, own, i] * (1.0 + RV / RD * water[u8(0), k, own, i])
                heat[k, row, first + i] = sizes[i] * moist - base_heat[i]
            for part in range(u8(len(water))):
                for i in range(count):
                    carried[part, k, row_q, first_q + i] = water[part, k, own, i]


@jit
def rain(state, column, size, carried, air, water, thickness, dt, rained):
    nz, at_once, nx = air.shape[1:]
    fall, rows = np.zeros((nz, nx)), np.zeros((8, nx))
    theta, rho, exner, pressure = air[0], air[1], air[2], air[3]
    for start in range(0, len(rained), at_once):
        count = min(at_once, len(rained) - start)
        _air_of(
            state[RHO], state[RHO_THETA], column, size, carried, theta, rho, exner, pressure, water, rows[0], rows[1],
            rows[2], rows[3], start, count,
        )  # fmt: skip
        for j in range(count):
            _columns(
                theta, water[0], water[1], water[2], rho, exner, pressure, thickness, dt, rained, j, start + j, fall,
                rows[0], rows[1], rows[2], rows[3], rows[4], rows[5], rows[6], rows[7],
            )  # fmt: skip
        _put_back(air, water, column[1], size, state[RHO_THETA], carried, rows[0], rows[1], start, count)


@jit
def kessler(theta, water, rho, exner, pressure, thickness, dt, rained):
    nz, ny, nx = theta.shape
    fall, rows = np.zeros((nz, nx)), np.zeros((8, nx))
    for j in range(ny):
        _columns(
            theta, water[0], water[1], water[2], rho, exner, pressure, thickness, dt, rained, j, j, fall, rows[0],
            rows[1], rows[2], rows[3], rows[4], rows[5], rows[6], rows[7],
        )  # fmt: skip


@jit(noalias=True, borrowed=True)
def _columns(
    theta, vapor, cloud, rain, rho, exner, pressure, thickness, dt, rained, row, ground, fall, come, layer, short,
    steps, flux, limits, divisors, fallen,
):  # fmt: skip
    """The columns of a row, level by level from the ground up; ground: this row among those of thickness and rained.

    Where nothing rains or condenses in a row, less is computed. A cell has the same bits there: what is left out is 0.
    """
    nz, j, count, most = theta.shape[0], u8(row), u8(theta.shape[2]), 1
    sloping = thickness.shape[2] > 1
    for i in range(count):
        short[i] = dt
        steps[i] = 1.0
        fallen[i] = 0.0
    for level in range(nz):
        k, falls = u8(level), 0
        for i in range(count):
            fall[k, i] = 0.0
            falls |= 1 if rain[k, j, i] > 0.0 else 0
        if falls:
            _thick(thickness, sloping, level, ground, layer)
            for i in range(count):
                speed = fall_speed(rain[k, j, i], 0.001 * rho[k, j, i], np.sqrt(rho[u8(0), j, i] / rho[k, j, i]))
                fall[k, i] = speed
                longest = 0.8 * layer[i] / (speed if speed > 0.0 else 1.0)
                longest = longest if speed > 0.0 and level < nz - 1 else dt
                short[i] = longest if longest < short[i] else short[i]
    for i in range(count):
        steps[i] = np.ceil(dt / short[i])
        short[i] = dt / steps[i]
        most = max(most, int(steps[i]))
    for step in range(most):
        for i in range(count):
            flux[i] = 0.001 * rho[u8(0), j, i] * rain[u8(0), j, i] * fall[u8(0), i]  # out of the level
            fallen[i] += 1000.0 / WATER_DENSITY * flux[i] if step < steps[i] else 0.0
        for level in range(nz):
            k, next_one = u8(level), u8(min(level + 1, nz - 1))
            gate = 1.0 if level + 1 < nz else 0.0
            rains, changes = 0, 0
            for i in range(count):
                scale, v, c = 380.0 / pressure[k, j, i], vapor[k, j, i], cloud[k, j, i]
                limit, divisor = saturation(exner[k, j, i] * theta[k, j, i], scale)
                above = gate * (0.001 * rho[next_one, j, i] * rain[next_one, j, i] * fall[next_one, i])
                come[i] = above
                limits[i] = limit
                divisors[i] = divisor
                rains |= 1 if rain[k, j, i] != 0.0 or above > 0.0 or c > 0.001 else 0
                changes |= 1 if v > limit or v < 0.0 or c != 0.0 else 0
            if rains:
                _thick(thickness, sloping, level, ground, layer)
                for i in range(count):
                    on, grams, scale = step < steps[i], 0.001 * rho[k, j, i], 380.0 / pressure[k, j, i]
                    v, c, r, limit = vapor[k, j, i], cloud[k, j, i], rain[k, j, i], limits[i]
                    settled = short[i] * (come[i] - flux[i]) / (grams * layer[i])
                    flux[i] = come[i]
                    made = collected(c, r, short[i])
                    new_c, new_r = c - made, r + made + settled
                    new_c, new_r = new_c if new_c > 0.0 else 0.0, new_r if new_r > 0.0 else 0.0
                    change = (v - limit) / divisors[i]
                    dried = evaporated(v, new_r, grams, limit, scale, short[i])
                    most_dried = -change - new_c
                    most_dried = most_dried if most_dried > 0.0 else 0.0
                    dried = most_dried if most_dried < dried else dried
                    dried = new_r if new_r < dried else dried
                    change = -new_c if -new_c > change else change
                    new_v = v - change + dried
                    new_v = new_v if new_v > 0.0 else 0.0
                    warmer = theta[k, j, i] + warming(exner[k, j, i]) * (change - dried)
                    theta[k, j, i] = warmer if on else theta[k, j, i]
                    vapor[k, j, i] = new_v if on else v
                    cloud[k, j, i] = new_c + change if on else c
                    rain[k, j, i] = new_r - dried if on else r
            elif changes:
                for i in range(count):
                    on, v, c = step < steps[i], vapor[k, j, i], cloud[k, j, i]
                    flux[i] = 0.0
                    new_c = c if c > 0.0 else 0.0
                    change = (v - limits[i]) / divisors[i]
                    change = -new_c if -new_c > change else change
                    new_v = v - change
                    new_v = new_v if new_v > 0.0 else 0.0
                    warmer = theta[k, j, i] + warming(exner[k, j, i]) * change
                    theta[k, j, i] = warmer if on else theta[k, j, i]
                    vapor[k, j, i] = new_v if on else v
                    cloud[k, j, i] = new_c + change if on else c
            else:
                for i in range(count):
                    flux[i] = 0.0
        if step + 1 < most:
            for level in range(nz):
                k = u8(level)
                for i in range(count):
                    light = np.sqrt(rho[u8(0), j, i] / rho[k, j, i])
                    fall[k, i] = fall_speed(rain[k, j, i], 0.001 * rho[k, j, i], light)
    for i in range(count):
        rained[u8(ground), i] += dt * (fallen[i] / steps[i])


@jit
def _thick(thickness, sloping, level, row, out):
    """Thickness of the cells of a row."""
    for i in range(len(out)):
        out[i] = thickness[level, row, i] if sloping else thickness[level, 0, 0]


@jit
def saturate(theta, water, exner, pressure):
    nz, ny, nx = theta.shape
    for k in range(nz):
        for j in range(ny):
            for i in range(nx):
                for _ in range(4):
                    limit, divisor = saturation(exner[k, j, i] * theta[k, j, i], 380.0 / pressure[k, j, i])
                    change = max((water[0, k, j, i] - limit) / divisor, -water[1, k, j, i])
                    theta[k, j, i] += warming(exner[k, j, i]) * change
                    water[0, k, j, i] -= change
                    water[1, k, j, i] += change


@jit
def compress(state, start, carried, column, levels, flux_x, flux_y, flux_z, spacing, dt):
    nz, ny, nx = state.shape[1], state.shape[2] - 2 * HALO, state.shape[3] - 2 * HALO
    dx, dy = spacing
    for k in range(nz):
        base, low, high = column[0, k], max(k - 1, 0), min(k + 1, nz - 1)
        for j in range(ny):
            for i in range(nx):
                row, cell = j + HALO, i + HALO
                here = start[0, k, row, cell] + base
                west, east = start[0, k, row, cell - 1] + base, start[0, k, row, cell + 1] + base
                south, north = start[0, k, row - 1, cell] + base, start[0, k, row + 1, cell] + base
                under = levels[BELOW, k] * (start[0, low, row, cell] + column[0, low]) + levels[ABOVE, k] * here
                over = levels[BELOW, k + 1] * here + levels[ABOVE, k + 1] * (
                    start[0, high, row, cell] + column[0, high]
                )
                along_x = flux_x[k, j, i + 1] / (0.5 * (here + east)) - flux_x[k, j, i] / (0.5 * (west + here))
                along_y = flux_y[k, j + 1, i] / (0.5 * (here + north)) - flux_y[k, j, i] / (0.5 * (south + here))
                w_low = flux_z[k, j, i] / under if k > 0 else 0.0
                w_high = flux_z[k + 1, j, i] / over if k + 1 < nz else 0.0
                divergence = along_x / dx + along_y / dy + (w_high - w_low) * levels[PER_CELL, k]
                q_row, q_cell = j + REACH, i + REACH
                liquid = carried[1, k, q_row, q_cell] + carried[2, k, q_row, q_cell]
                change = -stiffening(carried[0, k, q_row, q_cell], liquid) * divergence * dt
                heat = state[RHO_THETA, k, row, cell]
                state[RHO_THETA, k, row, cell] = heat + (heat + column[1, k]) * np.expm1(change)


@jit
def condense(theta, water, rho, exner, pressure):
    nz, ny, nx = theta.shape
    for k in range(nz):
        for j in range(ny):
            for i in range(nx):
                vapor, cloud, rain = water[0, k, j, i], water[1, k, j, i], water[2, k, j, i]
                total, before = vapor + cloud, exner[k, j, i] * theta[k, j, i]
                energy = capacity(vapor, cloud + rain) * before - LATENT * cloud
                after = energy / capacity(total, rain)
                left = total
                if vapor_at_saturation(after, rho[k, j, i])[0] < total:
                    after = before
                    for _ in range(6):
                        limit, slope = vapor_at_saturation(after, rho[k, j, i])
                        heat = capacity(limit, total - limit + rain)
                        excess = heat * after - LATENT * (total - limit) - energy
                        after -= excess / (heat + slope * (LATENT - (CL - CVV) * after))
                    left = vapor_at_saturation(after, rho[k, j, i])[0]
                elif cloud == 0.0:
                    continue
                theta[k, j, i] = theta_of(theta[k, j, i], before, after, RD + RV * vapor, RD + RV * left)
                water[0, k, j, i] = left
                water[1, k, j, i] = total - left
