"""Mixing of a staggered box, CUDA: a thread a cell, which takes the stresses at all faces of its quantities."""

from __future__ import annotations

import math
from typing import Any

from hpckit.kernels.compile.cuda.jit import blocks, cuda, threads
from hpckit.kernels.compile.cuda.pieces import typed_kernel
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.euler.constants import GRAVITY, REACH
from hpckit.kernels.euler.hevi.constants import DRY, HALO, PER_CELL, PER_FACE
from hpckit.kernels.euler.hevi.stress.numerics import (
    carried_change,
    four_xy,
    four_xz,
    four_yz,
    shears_xy,
    shears_xz,
    shears_yz,
)

THREADS = threads(128)


def viscosity(
    state: Any, work: Any, column: Any, levels: Any, spacing: tuple[float, float], coefficient: float, prandtl: float,
    share: float, mu: Any,
) -> Any:  # fmt: skip
    nz, tall, wide = mu.shape
    real = state.dtype.type
    grid = (blocks(wide - 2 * HALO + 2, THREADS), tall - 2 * HALO + 2, nz)
    numbers = tuple(map(real, (*spacing, coefficient * coefficient, 1 / prandtl, share)))
    typed_kernel(_viscosity, state.dtype)[grid, THREADS](state, work, column, levels, numbers, mu)
    inner = (slice(None), slice(HALO, -HALO), slice(HALO, -HALO))
    return (mu[inner] / (state[0][inner] + column[0][:, None, None])).max()


def mix(
    state: Any, work: Any, mu: Any, rest: Any, levels: Any, spacing: tuple[float, float], dt: float, prandtl: float,
    cross: float,
) -> None:  # fmt: skip
    nz, tall, wide = mu.shape
    real = state.dtype.type
    grid = (blocks(wide - 2 * HALO, THREADS), tall - 2 * HALO, nz)
    numbers = tuple(map(real, (*spacing, dt, 1 / prandtl, cross)))
    typed_kernel(_mix, state.dtype)[grid, THREADS](state, work, mu, rest, levels, numbers)


def mix_carried(
    q: Any, out: Any, state: Any, mu: Any, column: Any, levels: Any, spacing: tuple[float, float], dt: float
) -> None:
    nz, tall, wide = q.shape[1:]
    numbers = tuple(map(state.dtype.type, (*spacing, dt)))
    launch = typed_kernel(_mix_carried, state.dtype)[(blocks(wide - 2 * REACH, THREADS), tall - 2 * REACH, nz), THREADS]
    for each, result in zip(q, out, strict=True):
        launch(each, result, state, mu, column, levels, numbers)


@inlined
def square_xy(work, dx, dy, k, j, i):
    """The squared deformation at the low corner in x and y."""
    u_y, v_x = shears_xy(work, 1.0 / dx, 1.0 / dy, k, j, i)
    return (u_y + v_x) * (u_y + v_x)


@inlined
def square_xz(work, levels, dx, k, j, i):
    """The same at the low edge in x and z; 0 at ground and lid."""
    if k == 0 or k == work.shape[1]:
        return 0.0
    u_z = (work[0, k, j, i] - work[0, k - 1, j, i]) * levels[PER_FACE, k]
    both = u_z + (work[2, k, j, i] - work[2, k, j, i - 1]) / dx
    return both * both


@inlined
def square_yz(work, levels, dy, k, j, i):
    """The same at the low edge in y and z."""
    if k == 0 or k == work.shape[1]:
        return 0.0
    v_z = (work[1, k, j, i] - work[1, k - 1, j, i]) * levels[PER_FACE, k]
    both = v_z + (work[2, k, j, i] - work[2, k, j - 1, i]) / dy
    return both * both


@inlined
def stretch_z(work, levels, k, j, i):
    """dw/dz of a cell."""
    top = work[2, k + 1, j, i] if k + 1 < work.shape[1] else 0.0
    return (top - work[2, k, j, i]) * levels[PER_CELL, k]


def _viscosity(state, work, column, levels, numbers, mu):
    i, j, k = cuda.grid(1) + HALO - 1, cuda.blockIdx.y + HALO - 1, cuda.blockIdx.z
    nz = work.shape[1]
    if i < mu.shape[2] - HALO + 1:
        dx, dy, per_cell, high, low = numbers[0], numbers[1], levels[PER_CELL, k], min(k + 1, nz - 1), max(k - 1, 0)
        u_x = (work[0, k, j, i + 1] - work[0, k, j, i]) / dx
        v_y = (work[1, k, j + 1, i] - work[1, k, j, i]) / dy
        w_z = stretch_z(work, levels, k, j, i)
        square = 2.0 * ((u_x * u_x + v_y * v_y) + w_z * w_z)
        square += 0.25 * (
            (square_xy(work, dx, dy, k, j, i) + square_xy(work, dx, dy, k, j, i + 1))
            + (square_xy(work, dx, dy, k, j + 1, i) + square_xy(work, dx, dy, k, j + 1, i + 1))
        )
        square += 0.25 * (
            (square_xz(work, levels, dx, k, j, i) + square_xz(work, levels, dx, k, j, i + 1))
            + (square_xz(work, levels, dx, k + 1, j, i) + square_xz(work, levels, dx, k + 1, j, i + 1))
        )
        square += 0.25 * (
            (square_yz(work, levels, dy, k, j, i) + square_yz(work, levels, dy, k, j + 1, i))
            + (square_yz(work, levels, dy, k + 1, j, i) + square_yz(work, levels, dy, k + 1, j + 1, i))
        )
        gap = (1.0 / levels[PER_FACE, k] if k > 0 else 0.0) + (1.0 / levels[PER_FACE, k + 1] if k + 1 < nz else 0.0)
        theta = work[3, k, j, i] * work[DRY, k, j, i]  # of density
        theta_z = (work[3, high, j, i] * work[DRY, high, j, i] - work[3, low, j, i] * work[DRY, low, j, i]) / gap
        length = (dx * dy / per_cell) ** (1.0 / 3.0)
        stable = GRAVITY * theta_z / theta * numbers[3]
        mixing = numbers[2] * length * length * math.sqrt(max(square - stable, 0.0))
        limit = numbers[4] / (1.0 / (dx * dx) + 1.0 / (dy * dy) + per_cell * per_cell)
        mu[k, j, i] = (state[0, k, j, i] + column[0, k]) * min(mixing, limit)


@inlined
def stress_xz(work, mu, rest, levels, dx, part, cross, k, j, i):
    """At the low edge in x and z: on u (part 0) or on w (part 1); none at ground and lid."""
    if k == 0 or k == work.shape[1]:
        return 0.0
    u_z, w_x = shears_xz(work, rest, levels, 1.0 / dx, k, j, i)
    return four_xz(mu, k, j, i) * (u_z + cross * w_x if part == 0 else w_x + cross * u_z)


@inlined
def stress_yz(work, mu, rest, levels, dy, part, cross, k, j, i):
    """At the low edge in y and z: on v (part 0) or on w (part 1)."""
    if k == 0 or k == work.shape[1]:
        return 0.0
    v_z, w_y = shears_yz(work, rest, levels, 1.0 / dy, k, j, i)
    return four_yz(mu, k, j, i) * (v_z + cross * w_y if part == 0 else w_y + cross * v_z)


@inlined
def stress_xy(work, mu, dx, dy, part, cross, k, j, i):
    """At the low corner in x and y: on u (part 0) or on v (part 1)."""
    u_y, v_x = shears_xy(work, 1.0 / dx, 1.0 / dy, k, j, i)
    return four_xy(mu, k, j, i) * (u_y + cross * v_x if part == 0 else v_x + cross * u_y)


@inlined
def warmth_z(work, mu, rest, levels, k, j, i):
    """The flux of theta at the face below level k."""
    if k == 0 or k == work.shape[1]:
        return 0.0
    warmer = (work[3, k, j, i] - work[3, k - 1, j, i]) - (rest[3, k] - rest[3, k - 1])
    return 0.5 * (mu[k, j, i] + mu[k - 1, j, i]) * warmer * levels[PER_FACE, k]


def _mix(state, work, mu, rest, levels, numbers):
    i, j, k = cuda.grid(1) + HALO, cuda.blockIdx.y + HALO, cuda.blockIdx.z
    if i < mu.shape[2] - HALO:
        dx, dy, dt, cross, per_cell = numbers[0], numbers[1], numbers[2], numbers[4], levels[PER_CELL, k]
        normal = 1.0 + cross
        u, v, theta = work[0], work[1], work[3]
        x = (
            normal
            * (mu[k, j, i] * (u[k, j, i + 1] - u[k, j, i]) - mu[k, j, i - 1] * (u[k, j, i] - u[k, j, i - 1]))
            / dx
        )
        y = stress_xy(work, mu, dx, dy, 0, cross, k, j + 1, i) - stress_xy(work, mu, dx, dy, 0, cross, k, j, i)
        z = stress_xz(work, mu, rest, levels, dx, 0, cross, k + 1, j, i) - stress_xz(
            work, mu, rest, levels, dx, 0, cross, k, j, i
        )
        state[1, k, j, i] += dt * (x / dx + y / dy + z * per_cell)
        x = stress_xy(work, mu, dx, dy, 1, cross, k, j, i + 1) - stress_xy(work, mu, dx, dy, 1, cross, k, j, i)
        y = (
            normal
            * (mu[k, j, i] * (v[k, j + 1, i] - v[k, j, i]) - mu[k, j - 1, i] * (v[k, j, i] - v[k, j - 1, i]))
            / dy
        )
        z = stress_yz(work, mu, rest, levels, dy, 0, cross, k + 1, j, i) - stress_yz(
            work, mu, rest, levels, dy, 0, cross, k, j, i
        )
        state[2, k, j, i] += dt * (x / dx + y / dy + z * per_cell)
        if k > 0:
            x = stress_xz(work, mu, rest, levels, dx, 1, cross, k, j, i + 1) - stress_xz(
                work, mu, rest, levels, dx, 1, cross, k, j, i
            )
            y = stress_yz(work, mu, rest, levels, dy, 1, cross, k, j + 1, i) - stress_yz(
                work, mu, rest, levels, dy, 1, cross, k, j, i
            )
            z = normal * (
                mu[k, j, i] * stretch_z(work, levels, k, j, i) - mu[k - 1, j, i] * stretch_z(work, levels, k - 1, j, i)
            )
            state[3, k, j, i] += dt * (x / dx + y / dy + z * levels[PER_FACE, k])
        here = mu[k, j, i]
        x = (mu[k, j, i + 1] + here) * (theta[k, j, i + 1] - theta[k, j, i])
        x -= (here + mu[k, j, i - 1]) * (theta[k, j, i] - theta[k, j, i - 1])
        y = (mu[k, j + 1, i] + here) * (theta[k, j + 1, i] - theta[k, j, i])
        y -= (here + mu[k, j - 1, i]) * (theta[k, j, i] - theta[k, j - 1, i])
        z = warmth_z(work, mu, rest, levels, k + 1, j, i) - warmth_z(work, mu, rest, levels, k, j, i)
        change = 0.5 * x / (dx * dx) + 0.5 * y / (dy * dy) + z * per_cell
        state[4, k, j, i] += dt * numbers[3] * change


def _mix_carried(q, out, state, mu, column, levels, numbers):
    i, j, k = cuda.grid(1) + REACH, cuda.blockIdx.y + REACH, cuda.blockIdx.z
    if i < q.shape[2] - REACH:
        rho = state[0, k, j + HALO - REACH, i + HALO - REACH] + column[0, k]
        change = carried_change(q, mu, levels, numbers[0], numbers[1], k, j, i)
        out[k, j, i] = q[k, j, i] + numbers[2] * change / rho
