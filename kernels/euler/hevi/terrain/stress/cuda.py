"""Mixing over terrain, CUDA: a thread a cell, the arithmetic from `numerics`."""

from __future__ import annotations

import math
from typing import Any

from hpckit.kernels.compile.cuda.jit import blocks, cuda, threads
from hpckit.kernels.compile.cuda.pieces import typed_kernel
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.euler.constants import GRAVITY, REACH
from hpckit.kernels.euler.hevi.constants import ABOVE, BELOW, DRY, HALO, PER_CELL, PER_FACE
from hpckit.kernels.euler.hevi.terrain.constants import SIZE, Ground
from hpckit.kernels.euler.hevi.terrain.cuda import _sloped
from hpckit.kernels.euler.hevi.terrain.stress.numerics import (
    across_u,
    across_v,
    across_w,
    along_x,
    along_y,
    corners,
    edges_xz,
    edges_yz,
    middles,
    per_gap_of,
    squares,
    stability,
    steepness,
    upward,
    upward_u,
    upward_v,
    upward_w,
)

THREADS = threads(128)
NEAR = HALO - 1
Spacing = tuple[float, float]


def viscosity(
    state: Any, work: Any, ground: Ground, levels: Any, spacing: Spacing, coefficient: float, prandtl: float,
    share: float, rows: Any, mu: Any,
) -> Any:  # fmt: skip
    nz, tall, wide = mu.shape
    real, metric = state.dtype.type, ground.metric
    grid = (blocks(wide - 2 * NEAR + 1, THREADS), tall - 2 * NEAR + 1, nz)
    rates = real(1 / spacing[0]), real(1 / spacing[1])
    typed_kernel(_gradients, state.dtype)[grid, THREADS](work, metric, levels, rates, rows)
    numbers = tuple(map(real, (spacing[0] * spacing[1], coefficient * coefficient, 1 / prandtl, share)))
    flat = real(1 / spacing[0] ** 2 + 1 / spacing[1] ** 2)
    kernel = typed_kernel(_viscosity, state.dtype)[grid, THREADS]
    kernel(state[0], work[3], work[DRY], ground.base[0], metric, levels, numbers, flat, rows, mu)
    inner = (slice(None), slice(HALO, -HALO), slice(HALO, -HALO))
    return (mu[inner] * metric[SIZE][inner] / (state[0][inner] + ground.base[0][inner])).max()


def mix(
    state: Any, work: Any, mu: Any, ground: Ground, levels: Any, spacing: Spacing, dt: float, prandtl: float,
    cross: float, rows: Any, slow: Any,
) -> None:  # fmt: skip
    nz, tall, wide = mu.shape
    real, metric = state.dtype.type, ground.metric
    rates = real(1 / spacing[0]), real(1 / spacing[1])
    wider = (blocks(wide - 2 * NEAR + 4, THREADS), tall - 2 * NEAR + 4, nz)
    typed_kernel(_deviations, state.dtype)[wider, THREADS](work, ground.base, ground.wind, rows)
    grid = (blocks(wide - 2 * NEAR + 1, THREADS), tall - 2 * NEAR + 1, nz)
    typed_kernel(_gradients, state.dtype)[grid, THREADS](rows[9:12], metric, levels, rates, rows)
    typed_kernel(_stresses, state.dtype)[grid, THREADS](mu, real(cross), rows)
    faces = (blocks(wide - 2 * HALO + 1, THREADS), tall - 2 * HALO + 1, nz)
    typed_kernel(_momenta, state.dtype)[faces, THREADS](rows, metric, levels, rates, slow)
    typed_kernel(_sloped, state.dtype)[faces, THREADS](metric, levels, slow)
    owned = (blocks(wide - 2 * HALO, THREADS), tall - 2 * HALO, nz)
    kernel = typed_kernel(_add, state.dtype)[owned, THREADS]
    kernel(slow, rows[12], mu, metric, levels, rates, real(dt), real(1 / prandtl), state)


def mix_carried(
    q: Any, out: Any, state: Any, mu: Any, ground: Ground, levels: Any, spacing: Spacing, dt: float
) -> None:
    nz, tall, wide = q.shape[1:]
    real = state.dtype.type
    rates = real(1 / spacing[0]), real(1 / spacing[1])
    launch = typed_kernel(_mix_carried, state.dtype)[(blocks(wide - 2 * REACH, THREADS), tall - 2 * REACH, nz), THREADS]
    for each, result in zip(q, out, strict=True):
        launch(each, result, state, mu, ground.base, ground.metric, levels, rates, real(dt))


def _gradients(air, metric, levels, rates, rows):
    i, j, k = cuda.grid(1) + NEAR, cuda.blockIdx.y + NEAR, cuda.blockIdx.z
    nz = air.shape[1]
    if i <= air.shape[3] - NEAR:
        low, high, gate = max(k - 1, 0), min(k + 1, nz - 1), 1.0 if k + 1 < nz else 0.0
        per_gap, per_cell = per_gap_of(levels, k, nz), levels[PER_CELL, k]
        u_x, v_y, w_z = middles(air, metric, rates[0], rates[1], per_cell, per_gap, gate, low, k, high, j, i, 1)
        u_y, v_x = corners(air, metric, rates[0], rates[1], per_gap, low, k, high, j, i, 1)
        u_z, w_x, v_z, w_y = 0.0, 0.0, 0.0, 0.0
        if k > 0:
            per_face, per_thick = levels[PER_FACE, k], 1.0 / (1.0 / levels[PER_CELL, k - 1] + 1.0 / per_cell)
            u_z, w_x = edges_xz(air, metric, rates[0], per_face, per_thick, gate, k - 1, k, high, j, i, 1)
            v_z, w_y = edges_yz(air, metric, rates[1], per_face, per_thick, gate, k - 1, k, high, j, i, 1)
        rows[0, k, j, i] = u_x
        rows[1, k, j, i] = v_y
        rows[2, k, j, i] = w_z
        rows[3, k, j, i] = u_y
        rows[4, k, j, i] = v_x
        rows[5, k, j, i] = u_z
        rows[6, k, j, i] = w_x
        rows[7, k, j, i] = v_z
        rows[8, k, j, i] = w_y


def _viscosity(density, theta, dry, base, metric, levels, numbers, flat, rows, mu):
    i, j, k = cuda.grid(1) + NEAR, cuda.blockIdx.y + NEAR, cuda.blockIdx.z
    nz = mu.shape[0]
    if i < mu.shape[2] - NEAR and j < mu.shape[1] - NEAR:
        low, high, gate = max(k - 1, 0), min(k + 1, nz - 1), 1.0 if k + 1 < nz else 0.0
        per_cell, size = levels[PER_CELL, k], metric[SIZE, k, j, i]
        turning = squares(rows, gate, k, high, j, i, 1)
        stable = stability(theta, dry, metric, per_gap_of(levels, k, nz), low, k, high, j, i)
        turning -= GRAVITY * stable * numbers[2]
        length = (numbers[0] / per_cell * size) ** (1.0 / 3.0)
        mixing = numbers[1] * (length * length) * math.sqrt(max(turning, 0.0))
        mixing = min(mixing, numbers[3] / (flat + steepness(metric, per_cell, k, j, i, 1)))
        mu[k, j, i] = (density[k, j, i] + base[k, j, i]) / size * mixing


def _deviations(work, base, wind, rows):
    i, j, k = cuda.grid(1) + NEAR - 2, cuda.blockIdx.y + NEAR - 2, cuda.blockIdx.z
    if i < work.shape[3] - NEAR + 2:
        rows[9, k, j, i] = work[0, k, j, i] - wind[0, k, j, i]
        rows[10, k, j, i] = work[1, k, j, i] - wind[1, k, j, i]
        rows[11, k, j, i] = work[2, k, j, i]
        rows[12, k, j, i] = work[3, k, j, i] - base[1, k, j, i] / base[0, k, j, i]


def _stresses(mu, cross, rows):
    i, j, k = cuda.grid(1) + NEAR, cuda.blockIdx.y + NEAR, cuda.blockIdx.z
    if i < mu.shape[2] - NEAR and j < mu.shape[1] - NEAR:
        b, here, normal = max(k - 1, 0), mu[k, j, i], 1.0 + cross
        under = mu[b, j, i]
        for row in range(3):
            rows[row, k, j, i] *= normal * here
        corner = 0.25 * ((mu[k, j, i - 1] + here) + (mu[k, j - 1, i - 1] + mu[k, j - 1, i]))
        across = 0.25 * ((mu[k, j, i - 1] + mu[b, j, i - 1]) + (here + under))
        along = 0.25 * ((mu[k, j - 1, i] + mu[b, j - 1, i]) + (here + under))
        for pair in range(3):
            four = corner if pair == 0 else across if pair == 1 else along
            first, second = rows[3 + 2 * pair, k, j, i], rows[4 + 2 * pair, k, j, i]
            rows[3 + 2 * pair, k, j, i] = four * (first + cross * second)
            rows[4 + 2 * pair, k, j, i] = four * (second + cross * first)


def _momenta(rows, metric, levels, rates, slow):
    i, j, k = cuda.grid(1) + HALO, cuda.blockIdx.y + HALO, cuda.blockIdx.z
    nz, wide = slow.shape[1], slow.shape[3]
    if i <= wide - HALO:
        b, high = max(k - 1, 0), min(k + 1, nz - 1)
        under, over = 1.0 if k > 0 else 0.0, 1.0 if k + 1 < nz else 0.0
        rise = over * upward_u(rows, metric, k, high, j, i, 1) - under * upward_u(rows, metric, b, k, j, i, 1)
        slow[1, k, j, i] = across_u(rows, metric, rates[0], rates[1], k, j, i, 1) + rise * levels[PER_CELL, k]
        rise = over * upward_v(rows, metric, k, high, j, i, 1) - under * upward_v(rows, metric, b, k, j, i, 1)
        slow[2, k, j, i] = across_v(rows, metric, rates[0], rates[1], k, j, i, 1) + rise * levels[PER_CELL, k]
        rise = upward_w(rows, metric, over, k, high, j, i, 1) - upward_w(rows, metric, 1.0, b, k, j, i, 1)
        change = across_w(rows, metric, rates[0], rates[1], k, j, i, 1) + rise * levels[PER_FACE, k]
        slow[3, k, j, i] = under * change


@inlined
def spread(q, mu, metric, levels, rates, k, j, i, y, x):
    """What diffusion brings to J rho q of a cell, per s. y, x: of q."""
    nz = mu.shape[0]
    low, high, per_gap = max(k - 1, 0), min(k + 1, nz - 1), per_gap_of(levels, k, nz)
    under, over = 1.0 if k > 0 else 0.0, 1.0 if k + 1 < nz else 0.0
    per_dx, per_dy = rates[0], rates[1]
    across = along_x(q, mu, metric, per_dx, per_gap, low, k, high, j, i + 1, y, x + 1, 1)
    across -= along_x(q, mu, metric, per_dx, per_gap, low, k, high, j, i, y, x, 1)
    along = along_y(q, mu, metric, per_dy, per_gap, low, k, high, j + 1, i, y + 1, x, 1)
    along -= along_y(q, mu, metric, per_dy, per_gap, low, k, high, j, i, y, x, 1)
    rise = over * upward(
        q, mu, metric, per_dx, per_dy, levels[PER_FACE, k + 1], levels[BELOW, k + 1], levels[ABOVE, k + 1], k, high, j,
        i, y, x, 1,
    )  # fmt: skip
    rise -= under * upward(
        q, mu, metric, per_dx, per_dy, levels[PER_FACE, k], levels[BELOW, k], levels[ABOVE, k], low, k, j, i, y, x, 1
    )
    return across * per_dx + along * per_dy + rise * levels[PER_CELL, k]


def _add(slow, theta, mu, metric, levels, rates, dt, per_prandtl, state):
    i, j, k = cuda.grid(1) + HALO, cuda.blockIdx.y + HALO, cuda.blockIdx.z
    if i < state.shape[3] - HALO:
        for field in range(1, 4):
            state[field, k, j, i] += dt * slow[field, k, j, i]
        state[4, k, j, i] += dt * (per_prandtl * spread(theta, mu, metric, levels, rates, k, j, i, j, i))


def _mix_carried(q, out, state, mu, base, metric, levels, rates, dt):
    x, y, k = cuda.grid(1) + REACH, cuda.blockIdx.y + REACH, cuda.blockIdx.z
    if x < q.shape[2] - REACH:
        j, i = y + HALO - REACH, x + HALO - REACH
        change = spread(q, mu, metric, levels, rates, k, j, i, y, x)
        out[k, y, x] = q[k, y, x] + dt * change / (state[0, k, j, i] + base[0, k, j, i])
