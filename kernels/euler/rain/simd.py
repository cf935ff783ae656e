"""Kessler's warm rain, Numba: columns of a row at once, level by level."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import jit
from hpckit.kernels.euler.box.constants import RHO, RHO_THETA
from hpckit.kernels.euler.constants import HALO, RD, REACH
from hpckit.kernels.euler.rain.constants import RV, WATER_DENSITY
from hpckit.kernels.euler.rain.numerics import collected, evaporated, fall_speed, saturation, warming


@jit
def air_of(state, deviation, column, carried, air, water):
    _, nz, ny, nx = air.shape
    for k in range(nz):
        for j in range(ny):
            for i in range(nx):
                row, cell = j + HALO, i + HALO
                rho, heat = state[RHO, k, row, cell] + column[0, k], state[RHO_THETA, k, row, cell] + column[1, k]
                pressure, vapor = deviation[k, row, cell] + column[2, k], carried[0, k, j + REACH, i + REACH]
                air[0, k, j, i] = heat / (rho * (1.0 + RV / RD * vapor))
                air[1, k, j, i] = rho
                air[2, k, j, i] = pressure / (RD * heat)
                air[3, k, j, i] = pressure
                for part in range(3):
                    water[part, k, j, i] = carried[part, k, j + REACH, i + REACH]


@jit
def put_back(air, water, column, state, carried):
    _, nz, ny, nx = air.shape
    for k in range(nz):
        for j in range(ny):
            for i in range(nx):
                moist = air[1, k, j, i] * air[0, k, j, i] * (1.0 + RV / RD * water[0, k, j, i])
                state[RHO_THETA, k, j + HALO, i + HALO] = moist - column[1, k]
                for part in range(3):
                    carried[part, k, j + REACH, i + REACH] = water[part, k, j, i]


@jit
def kessler(theta, water, rho, exner, pressure, thickness, dt, rained):
    nz, ny, nx = theta.shape
    fall = np.zeros(nz + 1)
    for j in range(ny):
        for i in range(nx):
            longest = dt
            for k in range(nz):
                light = np.sqrt(rho[0, j, i] / rho[k, j, i])
                fall[k] = fall_speed(water[2, k, j, i], 0.001 * rho[k, j, i], light)
                if k < nz - 1 and fall[k] > 0.0:
                    longest = min(longest, 0.8 * thickness[k] / fall[k])
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
                    settled = short * (above - flux) / (grams * thickness[k])
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
