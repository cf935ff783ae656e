"""Six kinds of water, CUDA: a thread a column, from the lid down."""

from __future__ import annotations

import math
from typing import Any

from hpckit.kernels.compile.cuda.jit import blocks, cuda, threads
from hpckit.kernels.compile.cuda.pieces import typed_kernel
from hpckit.kernels.euler.rain.constants import HEAT, WARMED, WATER_DENSITY
from hpckit.kernels.euler.rain.cuda import place
from hpckit.kernels.euler.rain.ice.constants import FUSION
from hpckit.kernels.euler.rain.ice.numerics import changed, fall_speeds

THREADS = threads(64)


def microphysics(
    theta: Any, water: Any, rho: Any, exner: Any, pressure: Any, thickness: Any, dt: float, fallen: Any, heated: Any
) -> None:
    ny, nx = theta.shape[1:]
    launch = typed_kernel(_microphysics, theta.dtype)[(blocks(nx, THREADS), ny), THREADS]
    launch(theta, water, rho, exner, pressure, thickness, theta.dtype.type(dt), fallen, heated)


def _microphysics(theta, water, rho, exner, pressure, thickness, dt, fallen, heated):
    at, j = cuda.grid(1), cuda.blockIdx.y
    nz = theta.shape[0]
    if at < theta.shape[2]:
        came_r, came_i, came_s, came_g = 0.0, 0.0, 0.0, 0.0
        over_r, over_i, over_s, over_g = 0.0, 0.0, 0.0, 0.0
        warmed, released = 0.0, 0.0
        y, x = place(thickness, j, at)
        for level in range(nz):
            k = nz - 1 - level
            dense, thick, start = rho[k, j, at], thickness[k, y, x], exner[k, j, at] * theta[k, j, at]
            light = math.sqrt(rho[0, j, at] / dense)
            r, i = max(dense * water[2, k, j, at], 0.0), max(dense * water[3, k, j, at], 0.0)
            s, g = max(dense * water[4, k, j, at], 0.0), max(dense * water[5, k, j, at], 0.0)
            fast_r, fast_i, fast_s, fast_g = fall_speeds(
                max(r, over_r), max(i, over_i), max(s, over_s), max(g, over_g), start, light
            )
            over_r = (r * thick + dt * came_r) / (thick + dt * fast_r)
            over_i = (i * thick + dt * came_i) / (thick + dt * fast_i)
            over_s = (s * thick + dt * came_s) / (thick + dt * fast_s)
            over_g = (g * thick + dt * came_g) / (thick + dt * fast_g)
            came_r, came_i, came_s, came_g = fast_r * over_r, fast_i * over_i, fast_s * over_s, fast_g * over_g
            r, i, s, g = over_r / dense, over_i / dense, over_s / dense, over_g / dense
            vapor, solid = water[0, k, j, at], i + s + g
            v, c, r, i, s, g, end = changed(
                vapor, water[1, k, j, at], r, i, s, g, start, pressure[k, j, at], dense, light, dt
            )
            water[0, k, j, at] = v
            water[1, k, j, at] = c
            water[2, k, j, at] = r
            water[3, k, j, at] = i
            water[4, k, j, at] = s
            water[5, k, j, at] = g
            theta[k, j, at] = end / exner[k, j, at]
            warmed += dense * thick * (WARMED * (end - start))
            released += dense * thick * (HEAT * (vapor - v) + FUSION * (i + s + g - solid))
        fallen[0, j, at] += dt / WATER_DENSITY * came_r
        fallen[1, j, at] += dt / WATER_DENSITY * (came_i + came_s)
        fallen[2, j, at] += dt / WATER_DENSITY * came_g
        heated[0, j, at] += warmed
        heated[1, j, at] += released
