"""Kessler's warm rain, Numba: columns of a row at once, level by level."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import jit
from hpckit.kernels.euler.box.constants import RHO, RHO_THETA
from hpckit.kernels.euler.constants import HALO, RD, REACH
from hpckit.kernels.euler.hevi.constants import ABOVE, BELOW, PER_CELL
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


@jit
def _row_of(cells, level, row, out):
    """The owned cells of a row, of rows by cell with their halo, or of one cell a level."""
    for i in range(len(out)):
        out[i] = cells[level, 0, 0] if cells.shape[2] == 1 else cells[level, row, i + HALO]


@jit
def air_of(state, deviation, stiff, column, size, carried, air, water):
    _, nz, ny, nx = air.shape
    base_rho, base_heat, base_pressure, sizes = np.empty(nx), np.empty(nx), np.empty(nx), np.empty(nx)
    for k in range(nz):
        for j in range(ny):
            row = j + HALO
            if j == 0 or size.shape[2] > 1:
                _row_of(column[0], k, row, base_rho)
                _row_of(column[1], k, row, base_heat)
                _row_of(column[2], k, row, base_pressure)
                _row_of(size, k, row, sizes)
                for i in range(nx):
                    sizes[i] = 1.0 / sizes[i]
            for i in range(nx):
                cell = i + HALO
                rho = (state[RHO, k, row, cell] + base_rho[i]) * sizes[i]
                heat = (state[RHO_THETA, k, row, cell] + base_heat[i]) * sizes[i]
                excess = deviation[k, row, cell] + stiff[k, row, cell] * state[RHO_THETA, k, row, cell]
                pressure, vapor = excess + base_pressure[i], carried[0, k, j + REACH, i + REACH]
                air[0, k, j, i] = heat / (rho * (1.0 + RV / RD * vapor))
                air[1, k, j, i] = rho
                air[2, k, j, i] = pressure / (RD * heat)
                air[3, k, j, i] = pressure
            for part in range(len(water)):
                for i in range(nx):
                    water[part, k, j, i] = carried[part, k, j + REACH, i + REACH]


@jit
def put_back(air, water, column, size, state, carried):
    _, nz, ny, nx = air.shape
    base_heat, sizes = np.empty(nx), np.empty(nx)
    for k in range(nz):
        for j in range(ny):
            if j == 0 or size.shape[2] > 1:
                _row_of(column[1], k, j + HALO, base_heat)
                _row_of(size, k, j + HALO, sizes)
            for i in range(nx):
                moist = air[1, k, j, i] * air[0, k, j, i] * (1.0 + RV / RD * water[0, k, j, i])
                state[RHO_THETA, k, j + HALO, i + HALO] = sizes[i] * moist - base_heat[i]
            for part in range(len(water)):
                for i in range(nx):
                    carried[part, k, j + REACH, i + REACH] = water[part, k, j, i]


@jit
def kessler(theta, water, rho, exner, pressure, thickness, dt, rained):
    nz, ny, nx = theta.shape
    fall, layers = np.zeros(nz + 1), np.zeros(nz)
    for j in range(ny):
        for i in range(nx):
            longest = dt
            if thickness.shape[2] > 1 or i + j == 0:
                for k in range(nz):
                    layers[k] = thickness[k, j, i]
            for k in range(nz):
                light = np.sqrt(rho[0, j, i] / rho[k, j, i])
                fall[k] = fall_speed(water[2, k, j, i], 0.001 * rho[k, j, i], light)
                if k < nz - 1 and fall[k] > 0.0:
                    longest = min(longest, 0.8 * layers[k] / fall[k])
            steps = int(np.ceil(dt / longest))
            short, ground = dt / steps, 0.0
            for step in range(steps):
                ground += rho[0, j, i] * water[2, 0, j, i] * fall[0] / WATER_DENSITY
                flux = 0.001 * rho[0, j, i] * water[2, 0, j, i] * fall[0]  # out of the level
                for k in range(nz):
                    grams, scale = 0.001 * rho[k, j, i], 380.0 / pressure[k, j, i]
                    vapor, cloud, rain = water[0, k, j, i], water[1, k, j, i], water[2, k, j, i]
                    above = 0.0
                    if k + 1 < nz:
                        above = 0.001 * rho[k + 1, j, i] * water[2, k + 1, j, i] * fall[k + 1]
                    settled = short * (above - flux) / (grams * layers[k])
                    flux = above
                    made = collected(cloud, rain, short)
                    cloud = max(cloud - made, 0.0)
                    rain = max(rain + made + settled, 0.0)
                    limit, divisor = saturation(exner[k, j, i] * theta[k, j, i], scale)
                    change = (vapor - limit) / divisor
                    dried = evaporated(vapor, rain, grams, limit, scale, short)
                    dried = min(min(dried, max(-change - cloud, 0.0)), rain)
                    change = max(change, -cloud)
                    theta[k, j, i] += warming(exner[k, j, i]) * (change - dried)
                    water[0, k, j, i] = max(vapor - change + dried, 0.0)
                    water[1, k, j, i] = cloud + change
                    water[2, k, j, i] = rain - dried
                if step + 1 < steps:
                    for k in range(nz):
                        light = np.sqrt(rho[0, j, i] / rho[k, j, i])
                        fall[k] = fall_speed(water[2, k, j, i], 0.001 * rho[k, j, i], light)
            rained[j, i] += dt * (ground / steps)


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
