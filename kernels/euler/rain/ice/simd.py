"""Six kinds of water, Numba: level by level from the lid down, the columns of a row in lanes."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import jit
from hpckit.kernels.euler.rain.constants import HEAT, WARMED, WATER_DENSITY
from hpckit.kernels.euler.rain.ice.constants import FUSION
from hpckit.kernels.euler.rain.ice.numerics import changed, fall_speeds

u8 = np.uint64


@jit
def microphysics(theta, water, rho, exner, pressure, thickness, dt, fallen, heated):
    nz, ny, nx = theta.shape
    came, above = np.zeros((4, nx)), np.zeros((4, nx))
    light, kelvin, thick = np.zeros(nx), np.zeros(nx), np.zeros(nx)
    for j in range(ny):
        came[...] = 0.0
        above[...] = 0.0
        for level in range(nz):
            k = nz - 1 - level
            r, i, s, g = water[2, k, j], water[3, k, j], water[4, k, j], water[5, k, j]
            for at in range(nx):
                light[at] = np.sqrt(rho[0, j, at] / rho[k, j, at])
                kelvin[at] = exner[k, j, at] * theta[k, j, at]
                thick[at] = thickness[k, 0, 0] if thickness.shape[2] == 1 else thickness[k, j, at]
            _settle(
                r, i, s, g, rho[k, j], kelvin, light, thick, dt, came[0], came[1], came[2], came[3],
                above[0], above[1], above[2], above[3],
            )  # fmt: skip
            _change(
                water[0, k, j], water[1, k, j], r, i, s, g, kelvin, theta[k, j], exner[k, j], rho[k, j],
                pressure[k, j], light, thick, dt, heated[0, j], heated[1, j],
            )  # fmt: skip
        for at in range(nx):
            fallen[0, j, at] += dt / WATER_DENSITY * came[0, at]
            fallen[1, j, at] += dt / WATER_DENSITY * (came[1, at] + came[2, at])
            fallen[2, j, at] += dt / WATER_DENSITY * came[3, at]


@jit(noalias=True, borrowed=True)
def _settle(
    rain, ice, snow, graupel, rho, kelvin, light, thick, dt, came_r, came_i, came_s, came_g, over_r, over_i, over_s,
    over_g,
):  # fmt: skip
    for at in range(u8(len(rain))):
        dense = rho[at]
        r, i = max(dense * rain[at], 0.0), max(dense * ice[at], 0.0)
        s, g = max(dense * snow[at], 0.0), max(dense * graupel[at], 0.0)
        fast_r, fast_i, fast_s, fast_g = fall_speeds(
            max(r, over_r[at]), max(i, over_i[at]), max(s, over_s[at]), max(g, over_g[at]), kelvin[at], light[at]
        )
        deep = thick[at]
        r = (r * deep + dt * came_r[at]) / (deep + dt * fast_r)
        i = (i * deep + dt * came_i[at]) / (deep + dt * fast_i)
        s = (s * deep + dt * came_s[at]) / (deep + dt * fast_s)
        g = (g * deep + dt * came_g[at]) / (deep + dt * fast_g)
        came_r[at], came_i[at], came_s[at], came_g[at] = fast_r * r, fast_i * i, fast_s * s, fast_g * g
        over_r[at], over_i[at], over_s[at], over_g[at] = r, i, s, g
        rain[at], ice[at], snow[at], graupel[at] = r / dense, i / dense, s / dense, g / dense


@jit(noalias=True, borrowed=True)
def _change(
    vapor, cloud, rain, ice, snow, graupel, kelvin, theta, exner, rho, pressure, light, thick, dt, warmed, released
):  # fmt: skip
    for at in range(u8(len(vapor))):
        v, solid, start = vapor[at], ice[at] + snow[at] + graupel[at], kelvin[at]
        new_v, c, r, i, s, g, end = changed(
            v, cloud[at], rain[at], ice[at], snow[at], graupel[at], start, pressure[at], rho[at], light[at], dt
        )
        vapor[at], cloud[at], rain[at], ice[at], snow[at], graupel[at] = new_v, c, r, i, s, g
        theta[at] = end / exner[at]
        mass = rho[at] * thick[at]
        warmed[at] += mass * (WARMED * (end - start))
        released[at] += mass * (HEAT * (v - new_v) + FUSION * (i + s + g - solid))
