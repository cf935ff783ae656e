"""Kessler's warm rain, CUDA: a thread a column; saturation adjustment: a thread a cell."""

from __future__ import annotations

import math
from typing import Any

from hpckit.kernels.compile.cuda.jit import blocks, cuda, threads
from hpckit.kernels.compile.cuda.pieces import typed_kernel
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.device_array import empty
from hpckit.kernels.euler.box.constants import RHO, RHO_THETA
from hpckit.kernels.euler.constants import RD, REACH
from hpckit.kernels.euler.hevi.constants import ABOVE, BELOW, HALO, PER_CELL
from hpckit.kernels.euler.numerics import power
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

THREADS = threads(128)


def total(carried: Any, kinds: int, out: Any) -> None:
    nz, tall, wide = carried.shape[1:]
    typed_kernel(_total, out.dtype)[(blocks(wide, THREADS), tall, nz), THREADS](carried, kinds, out)


def _total(carried, kinds, out):
    i, j, k = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    if i < carried.shape[3]:
        whole = carried[0, k, j, i] + carried[1, k, j, i]
        for part in range(2, kinds):
            whole += carried[part, k, j, i]
        out[k, j + HALO - REACH, i + HALO - REACH] = whole


def rain(
    state: Any, column: Any, size: Any, carried: Any, air: Any, water: Any, thickness: Any, dt: float, rained: Any
) -> None:
    air_of(state, column, size, carried, air, water)
    kessler(air[0], water, air[1], air[2], air[3], thickness, dt, rained)
    put_back(air, water, column, size, state, carried)


def air_of(state: Any, column: Any, size: Any, carried: Any, air: Any, water: Any) -> None:
    _, nz, ny, nx = air.shape
    launch = typed_kernel(_air_of, air.dtype)[(blocks(nx, THREADS), ny, nz), THREADS]
    launch(state, column, size, carried, air, water)


def put_back(air: Any, water: Any, column: Any, size: Any, state: Any, carried: Any) -> None:
    _, nz, ny, nx = air.shape
    launch = typed_kernel(_put_back, air.dtype)[(blocks(nx, THREADS), ny, nz), THREADS]
    launch(air, water, column, size, state, carried)


@inlined
def place(cells, j, i):
    """Where a cell's value stands in rows by cell; all cells of a level have that of (0, 0) in rows of levels."""
    y = 0 if cells.shape[2] == 1 else j
    x = 0 if cells.shape[2] == 1 else i
    return y, x


def _air_of(state, column, size, carried, air, water):
    i, j, k = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    if i < air.shape[3]:
        row, cell = j + HALO, i + HALO
        y, x = place(size, row, cell)
        rho = (state[RHO, k, row, cell] + column[0, k, y, x]) / size[k, y, x]
        heat = (state[RHO_THETA, k, row, cell] + column[1, k, y, x]) / size[k, y, x]
        excess = power(state[RHO_THETA, k, row, cell] / column[1, k, y, x], True)
        pressure, vapor = column[2, k, y, x] * (1.0 + excess), carried[0, k, j + REACH, i + REACH]
        air[0, k, j, i] = heat / (rho * (1.0 + RV / RD * vapor))
        air[1, k, j, i] = rho
        air[2, k, j, i] = pressure / (RD * heat)
        air[3, k, j, i] = pressure
        for part in range(water.shape[0]):
            water[part, k, j, i] = carried[part, k, j + REACH, i + REACH]


def _put_back(air, water, column, size, state, carried):
    i, j, k = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    if i < air.shape[3]:
        moist = air[1, k, j, i] * air[0, k, j, i] * (1.0 + RV / RD * water[0, k, j, i])
        y, x = place(size, j + HALO, i + HALO)
        state[RHO_THETA, k, j + HALO, i + HALO] = size[k, y, x] * moist - column[1, k, y, x]
        for part in range(water.shape[0]):
            carried[part, k, j + REACH, i + REACH] = water[part, k, j, i]


def kessler(
    theta: Any, water: Any, rho: Any, exner: Any, pressure: Any, thickness: Any, dt: float, rained: Any
) -> None:
    ny, nx = theta.shape[1:]
    fall = empty(theta.shape, theta)
    launch = typed_kernel(_kessler, theta.dtype)[(blocks(nx, THREADS), ny), THREADS]
    launch(theta, water, rho, exner, pressure, thickness, theta.dtype.type(dt), rained, fall)


def saturate(theta: Any, water: Any, exner: Any, pressure: Any) -> None:
    nz, ny, nx = theta.shape
    typed_kernel(_saturate, theta.dtype)[(blocks(nx, THREADS), ny, nz), THREADS](theta, water, exner, pressure)


def compress(
    state: Any,
    start: Any,
    carried: Any,
    column: Any,
    levels: Any,
    flux_x: Any,
    flux_y: Any,
    flux_z: Any,
    spacing: tuple[float, float],
    dt: float,
) -> None:
    nz, ny, nx = state.shape[1], *(n - 2 * HALO for n in state.shape[2:])
    number = state.dtype.type
    launch = typed_kernel(_compress, state.dtype)[(blocks(nx, THREADS), ny, nz), THREADS]
    launch(
        state,
        start,
        carried,
        column,
        levels,
        flux_x,
        flux_y,
        flux_z,
        number(spacing[0]),
        number(spacing[1]),
        number(dt),
    )


def condense(theta: Any, water: Any, rho: Any, exner: Any, pressure: Any) -> None:
    nz, ny, nx = theta.shape
    launch = typed_kernel(_condense, theta.dtype)[(blocks(nx, THREADS), ny, nz), THREADS]
    launch(theta, water, rho, exner, pressure)


def _kessler(theta, water, rho, exner, pressure, thickness, dt, rained, fall):
    i, j = cuda.grid(1), cuda.blockIdx.y
    nz = theta.shape[0]
    if i < theta.shape[2]:
        longest = dt
        y, x = place(thickness, j, i)
        for k in range(nz):
            light = math.sqrt(rho[0, j, i] / rho[k, j, i])
            fall[k, j, i] = fall_speed(water[2, k, j, i], 0.001 * rho[k, j, i], light)
            if k < nz - 1 and fall[k, j, i] > 0.0:
                longest = min(longest, 0.8 * thickness[k, y, x] / fall[k, j, i])
        steps = math.ceil(dt / longest)
        short, ground = dt / steps, 0.0
        for step in range(steps):
            ground += rho[0, j, i] * water[2, 0, j, i] * fall[0, j, i] / WATER_DENSITY
            flux = 0.001 * rho[0, j, i] * water[2, 0, j, i] * fall[0, j, i]
            for k in range(nz):
                grams, scale = 0.001 * rho[k, j, i], 380.0 / pressure[k, j, i]
                vapor, cloud, rain = water[0, k, j, i], water[1, k, j, i], water[2, k, j, i]
                above = 0.0
                if k + 1 < nz:
                    above = 0.001 * rho[k + 1, j, i] * water[2, k + 1, j, i] * fall[k + 1, j, i]
                settled = short * (above - flux) / (grams * thickness[k, y, x])
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
                    light = math.sqrt(rho[0, j, i] / rho[k, j, i])
                    fall[k, j, i] = fall_speed(water[2, k, j, i], 0.001 * rho[k, j, i], light)
        rained[j, i] += dt * (ground / steps)


def _saturate(theta, water, exner, pressure):
    i, j, k = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    if i < theta.shape[2]:
        for _ in range(4):
            limit, divisor = saturation(exner[k, j, i] * theta[k, j, i], 380.0 / pressure[k, j, i])
            change = max((water[0, k, j, i] - limit) / divisor, -water[1, k, j, i])
            theta[k, j, i] += warming(exner[k, j, i]) * change
            water[0, k, j, i] -= change
            water[1, k, j, i] += change


def _compress(state, start, carried, column, levels, flux_x, flux_y, flux_z, dx, dy, dt):
    i, j, k = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    nz = state.shape[1]
    if i < state.shape[3] - 2 * HALO:
        base, low, high = column[0, k], max(k - 1, 0), min(k + 1, nz - 1)
        row, cell = j + HALO, i + HALO
        here = start[0, k, row, cell] + base
        west, east = start[0, k, row, cell - 1] + base, start[0, k, row, cell + 1] + base
        south, north = start[0, k, row - 1, cell] + base, start[0, k, row + 1, cell] + base
        under = levels[BELOW, k] * (start[0, low, row, cell] + column[0, low]) + levels[ABOVE, k] * here
        over = levels[BELOW, k + 1] * here + levels[ABOVE, k + 1] * (start[0, high, row, cell] + column[0, high])
        along_x = flux_x[k, j, i + 1] / (0.5 * (here + east)) - flux_x[k, j, i] / (0.5 * (west + here))
        along_y = flux_y[k, j + 1, i] / (0.5 * (here + north)) - flux_y[k, j, i] / (0.5 * (south + here))
        w_low = flux_z[k, j, i] / under if k > 0 else 0.0
        w_high = flux_z[k + 1, j, i] / over if k + 1 < nz else 0.0
        divergence = along_x / dx + along_y / dy + (w_high - w_low) * levels[PER_CELL, k]
        q_row, q_cell = j + REACH, i + REACH
        liquid = carried[1, k, q_row, q_cell] + carried[2, k, q_row, q_cell]
        change = -stiffening(carried[0, k, q_row, q_cell], liquid) * divergence * dt
        heat = state[RHO_THETA, k, row, cell]
        state[RHO_THETA, k, row, cell] = heat + (heat + column[1, k]) * math.expm1(change)


def _condense(theta, water, rho, exner, pressure):
    i, j, k = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    if i < theta.shape[2]:
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
            return
        theta[k, j, i] = theta_of(theta[k, j, i], before, after, RD + RV * vapor, RD + RV * left)
        water[0, k, j, i] = left
        water[1, k, j, i] = total - left
