"""The split dynamics over terrain, CUDA: a thread a cell, or a column where implicit, as the flat kernels."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.compile.cuda.jit import blocks, cuda
from hpckit.kernels.compile.cuda.pieces import typed_kernel
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.device_array import empty
from hpckit.kernels.euler.constants import GAMMA, GRAVITY
from hpckit.kernels.euler.hevi import cuda as flat
from hpckit.kernels.euler.hevi.constants import ABOVE, BELOW, HALO, PER_FACE, LargeStage, Substep
from hpckit.kernels.euler.hevi.cuda import FIRST, THREADS, eliminate, explicit_part, settle, settled
from hpckit.kernels.euler.hevi.terrain.constants import (
    EXCESS,
    J_U,
    J_V,
    PER_W,
    SLOPE_U,
    SLOPE_V,
    SLOPE_X,
    SLOPE_Y,
    STEEP,
    Ground,
)
from hpckit.kernels.euler.numerics import power


def prepare(state: Any, water: Any, ground: Ground, levels: Any, work: Any) -> None:
    nz, tall, wide = state.shape[1:]
    grid = (blocks(wide - 2 * FIRST + 1, THREADS), tall - 2 * FIRST + 1, nz)
    typed_kernel(_prepare, state.dtype)[grid, THREADS](state, water, ground.base, work)
    typed_kernel(_rise, state.dtype)[grid, THREADS](state, ground.base, ground.metric, levels, work)


def tendencies(
    state: Any, work: Any, ground: Ground, column: Any, levels: Any, weights: Any, stage: LargeStage, slow: Any
) -> None:
    nz, tall, wide = state.shape[1:]
    real, base, metric = state.dtype.type, ground.base, ground.metric
    plain = LargeStage(stage.dx, stage.dy, 0.0, False)
    flat.tendencies(state, work, column, levels, column, weights, plain, slow)  # without a calm: no Coriolis force
    grid = (blocks(wide - 2 * HALO + 1, THREADS), tall - 2 * HALO + 1, nz)
    if stage.coriolis:
        typed_kernel(_turn, state.dtype)[grid, THREADS](state, base, ground.wind, real(stage.coriolis), slow)
    typed_kernel(_sloped, state.dtype)[grid, THREADS](metric, levels, slow)
    rates = real(1 / stage.dx), real(1 / stage.dy)
    typed_kernel(_forces, state.dtype)[grid, THREADS](
        state, work, metric, ground.tilt, levels, rates, state.dtype.type(stage.wet), slow
    )


def substep(
    old: Any, new: Any, work: Any, ground: Ground, slow: Any, pressure: Any, levels: Any, flux_x: Any, flux_y: Any,
    flux_z: Any, numbers: Substep,
) -> None:  # fmt: skip
    nz, tall, wide = new.shape[1:]
    ny, nx = tall - 2 * HALO, wide - 2 * HALO
    real, metric = new.dtype.type, ground.metric
    rates = tuple(
        real(each)
        for each in (1 / numbers.dx, 1 / numbers.dy, numbers.dt, numbers.implicit, numbers.damping, numbers.share)
    )
    scratch = empty((6, nz + 1, ny, nx), new)
    grid = (blocks(nx + 1, THREADS), ny + 1, nz)
    typed_kernel(_push, new.dtype)[grid, THREADS](
        old, new, work, metric, ground.tilt, slow, pressure, levels, flux_x, flux_y, rates, scratch
    )
    plane = (blocks(nx, THREADS), ny)
    typed_kernel(_columns, new.dtype)[plane, THREADS](
        old, new, work, metric, slow, pressure, levels, flux_z, rates, scratch
    )


def relax(state: Any, ground: Ground, levels: Any, lid: Any, dt: float) -> None:
    nz, tall, wide = state.shape[1:]
    grid = (blocks(wide - 2 * HALO, THREADS), tall - 2 * HALO, nz)
    typed_kernel(_relax, state.dtype)[grid, THREADS](
        state, ground.base, ground.metric, ground.wind, levels, lid, state.dtype.type(dt)
    )


def _prepare(state, water, base, work):
    i, j, k = cuda.grid(1) + FIRST, cuda.blockIdx.y + FIRST, cuda.blockIdx.z
    if i <= state.shape[3] - FIRST:
        rho = state[0, k, j, i] + base[0, k, j, i]
        heat = state[4, k, j, i] + base[1, k, j, i]
        work[0, k, j, i] = state[1, k, j, i] / (0.5 * ((state[0, k, j, i - 1] + base[0, k, j, i - 1]) + rho))
        work[1, k, j, i] = state[2, k, j, i] / (0.5 * ((state[0, k, j - 1, i] + base[0, k, j - 1, i]) + rho))
        work[3, k, j, i] = heat / rho
        excess = base[2, k, j, i] * power(state[4, k, j, i] / base[1, k, j, i], True)
        stiff = GAMMA * (base[2, k, j, i] + excess) / heat
        work[EXCESS, k, j, i] = excess - stiff * state[4, k, j, i]
        work[5, k, j, i] = stiff
        work[4, k, j, i] = 0.0
        total = water[k, j, i] if water.shape[0] > 0 else 0.0
        work[6, k, j, i] = 1.0 / (1.0 + total)
        work[7, k, j, i] = state[0, k, j, i]
        if water.shape[0] > 0:
            work[7, k, j, i] = state[0, k, j, i] * (1.0 + total) + base[0, k, j, i] * (total - base[3, k, j, i])


@inlined
def at_w(a, levels, dim, k, j, i):
    """The mean of what stands at faces across a dim, at the low face of a level."""
    low, step_y, step_x = max(k - 1, 0), 1 if dim == 1 else 0, 1 if dim == 2 else 0
    return levels[BELOW, k] * (0.5 * (a[low, j, i] + a[low, j + step_y, i + step_x])) + levels[ABOVE, k] * (
        0.5 * (a[k, j, i] + a[k, j + step_y, i + step_x])
    )


def _rise(state, base, metric, levels, work):
    i, j, k = cuda.grid(1) + FIRST, cuda.blockIdx.y + FIRST, cuda.blockIdx.z
    if i < state.shape[3] - FIRST and j < state.shape[2] - FIRST:
        low = max(k - 1, 0)
        density = levels[BELOW, k] * (state[0, low, j, i] + base[0, low, j, i])
        density += levels[ABOVE, k] * (state[0, k, j, i] + base[0, k, j, i])
        flow = metric[SLOPE_X, k, j, i] * at_w(work[0], levels, 2, k, j, i)
        flow += metric[SLOPE_Y, k, j, i] * at_w(work[1], levels, 1, k, j, i)
        work[2, k, j, i] = state[3, k, j, i] / (metric[PER_W, k, j, i] * density) + flow


def _turn(state, base, wind, coriolis, slow):
    """The Coriolis force on what the base state's wind leaves of the momenta."""
    i, j, k = cuda.grid(1) + HALO, cuda.blockIdx.y + HALO, cuda.blockIdx.z
    rho, more = base[0], state[0]
    if i <= state.shape[3] - HALO and j < state.shape[2] - HALO:
        turn = 0.0
        for north in range(2):
            for west in range(2):
                y, x = j + north, i - 1 + west
                here = (rho[k, y - 1, x] + more[k, y - 1, x]) + (rho[k, y, x] + more[k, y, x])
                turn += state[2, k, y, x] - 0.5 * here * wind[1, k, y, x]
        slow[1, k, j, i] += coriolis * (0.25 * turn)
    if i < state.shape[3] - HALO and j <= state.shape[2] - HALO:
        turn = 0.0
        for east in range(2):
            for south in range(2):
                y, x = j - 1 + south, i + east
                here = (rho[k, y, x - 1] + more[k, y, x - 1]) + (rho[k, y, x] + more[k, y, x])
                turn += state[1, k, y, x] - 0.5 * here * wind[0, k, y, x]
        slow[2, k, j, i] -= coriolis * (0.25 * turn)


def _sloped(metric, levels, slow):
    """The tendency of J rho w becomes that of Omega."""
    i, j, k = cuda.grid(1) + HALO, cuda.blockIdx.y + HALO, cuda.blockIdx.z
    if k > 0 and i < slow.shape[3] - HALO and j < slow.shape[2] - HALO:
        mean_u, mean_v = 0.0, 0.0
        for above in range(2):
            at = k - 1 + above
            share = levels[ABOVE, k] if above else levels[BELOW, k]
            east = slow[1, at, j, i] / metric[J_U, at, j, i] + slow[1, at, j, i + 1] / metric[J_U, at, j, i + 1]
            north = slow[2, at, j, i] / metric[J_V, at, j, i] + slow[2, at, j + 1, i] / metric[J_V, at, j + 1, i]
            mean_u += share * (0.5 * east)
            mean_v += share * (0.5 * north)
        sloped = metric[SLOPE_X, k, j, i] * mean_u + metric[SLOPE_Y, k, j, i] * mean_v
        slow[3, k, j, i] = slow[3, k, j, i] * metric[PER_W, k, j, i] - sloped


@inlined
def upright(p, tilt, k, j, i):
    """The vertical gradient in the middle of level k."""
    m = min(max(k - 1, 0), p.shape[0] - 3)
    return tilt[0, k] * (p[m + 1, j, i] - p[m, j, i]) + tilt[1, k] * (p[m + 2, j, i] - p[m + 1, j, i])


@inlined
def dry_at(work, levels, dim, k, j, i):
    """1 / (1 + q_t) at the low face of a cell across a dim (0: z)."""
    if dim == 0:
        return levels[BELOW, k] * work[6, k - 1, j, i] + levels[ABOVE, k] * work[6, k, j, i]
    low = work[6, k, j - 1, i] if dim == 1 else work[6, k, j, i - 1]
    return 0.5 * (low + work[6, k, j, i])


def _forces(state, work, metric, tilt, levels, rates, wet, slow):
    """Of p' and of what weighs on the momenta and on Omega."""
    i, j, k = cuda.grid(1) + HALO, cuda.blockIdx.y + HALO, cuda.blockIdx.z
    p, load, tall, wide = work[EXCESS], work[7], work.shape[2], work.shape[3]
    if i <= wide - HALO and j < tall - HALO:
        rise = 0.5 * (upright(p, tilt, k, j, i - 1) + upright(p, tilt, k, j, i))
        gradient = (p[k, j, i] - p[k, j, i - 1]) * rates[0]
        force = metric[SLOPE_U, k, j, i] * rise - metric[J_U, k, j, i] * gradient
        slow[1, k, j, i] += dry_at(work, levels, 2, k, j, i) * force
    if i < wide - HALO and j <= tall - HALO:
        rise = 0.5 * (upright(p, tilt, k, j - 1, i) + upright(p, tilt, k, j, i))
        gradient = (p[k, j, i] - p[k, j - 1, i]) * rates[1]
        force = metric[SLOPE_V, k, j, i] * rise - metric[J_V, k, j, i] * gradient
        slow[2, k, j, i] += dry_at(work, levels, 1, k, j, i) * force
    if k > 0 and i < wide - HALO and j < tall - HALO:
        below, above = levels[BELOW, k], levels[ABOVE, k]
        across = below * (p[k - 1, j, i + 1] - p[k - 1, j, i - 1]) + above * (p[k, j, i + 1] - p[k, j, i - 1])
        along = below * (p[k - 1, j + 1, i] - p[k - 1, j - 1, i]) + above * (p[k, j + 1, i] - p[k, j - 1, i])
        lift = metric[SLOPE_X, k, j, i] * (across * (0.5 * rates[0]))
        lift += metric[SLOPE_Y, k, j, i] * (along * (0.5 * rates[1]))
        pull = metric[STEEP, k, j, i] * ((p[k, j, i] - p[k - 1, j, i]) * levels[PER_FACE, k])
        if wet != 0.0:
            weight = GRAVITY * metric[PER_W, k, j, i]
            pull += weight * (below * load[k - 1, j, i] + above * load[k, j, i])
            slow[3, k, j, i] += weight * (below * state[0, k - 1, j, i] + above * state[0, k, j, i])
        slow[3, k, j, i] += dry_at(work, levels, 0, k, j, i) * (lift - pull)


def _push(old, new, work, metric, tilt, slow, pressure, levels, flux_x, flux_y, rates, scratch):
    """The horizontal momenta, and what horizontal gradients of the pressure do to Omega, into the scratch."""
    i, j, k = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    nx, ny = pressure.shape[2] - 2, pressure.shape[1] - 2
    y, x, dt, share, p = j + HALO, i + HALO, rates[2], rates[5], pressure
    if i <= nx and j < ny:
        rise = 0.5 * (upright(p, tilt, k, j + 1, i) + upright(p, tilt, k, j + 1, i + 1))
        gradient = (p[k, j + 1, i + 1] - p[k, j + 1, i]) * rates[0]
        force = metric[SLOPE_U, k, y, x] * rise - metric[J_U, k, y, x] * gradient
        change = slow[1, k, y, x] + dry_at(work, levels, 2, k, y, x) * force
        new[1, k, y, x] = settled(old[1, k, y, x] + dt * change)
        if share != 0.0:
            flux_x[k, j, i] += share * new[1, k, y, x]
    if i < nx and j <= ny:
        rise = 0.5 * (upright(p, tilt, k, j, i + 1) + upright(p, tilt, k, j + 1, i + 1))
        gradient = (p[k, j + 1, i + 1] - p[k, j, i + 1]) * rates[1]
        force = metric[SLOPE_V, k, y, x] * rise - metric[J_V, k, y, x] * gradient
        change = slow[2, k, y, x] + dry_at(work, levels, 1, k, y, x) * force
        new[2, k, y, x] = settled(old[2, k, y, x] + dt * change)
        if share != 0.0:
            flux_y[k, j, i] += share * new[2, k, y, x]
    if k > 0 and i < nx and j < ny:
        below, above = levels[BELOW, k], levels[ABOVE, k]
        across = below * (p[k - 1, j + 1, i + 2] - p[k - 1, j + 1, i]) + above * (p[k, j + 1, i + 2] - p[k, j + 1, i])
        along = below * (p[k - 1, j + 2, i + 1] - p[k - 1, j, i + 1]) + above * (p[k, j + 2, i + 1] - p[k, j, i + 1])
        lift = metric[SLOPE_X, k, y, x] * (across * (0.5 * rates[0]))
        lift += metric[SLOPE_Y, k, y, x] * (along * (0.5 * rates[1]))
        scratch[5, k, j, i] = dry_at(work, levels, 0, k, y, x) * lift


def _columns(old, new, work, metric, slow, pressure, levels, flux_z, rates, scratch):
    i, j = cuda.grid(1), cuda.blockIdx.y
    nz = pressure.shape[0]
    if i < pressure.shape[2] - 2:
        y, x = j + HALO, i + HALO
        for k in range(nz):
            explicit_part(old, new, work, slow, levels, rates, scratch, k, j, i)
        factor, value, high = 0.0, 0.0, 0.0
        for k in range(1, nz):
            tension = dry_at(work, levels, 0, k, y, x) * (metric[STEEP, k, y, x] * levels[PER_FACE, k])
            gravity = GRAVITY * metric[PER_W, k, y, x]
            lift = scratch[5, k, j, i]
            factor, value = eliminate(
                old, work, slow, levels, rates, scratch, tension, gravity, lift, factor, value, k, j, i
            )
        for k in range(nz - 1, -1, -1):
            high = settle(old, new, work, pressure, levels, flux_z, rates, scratch, high, k, j, i)


def _relax(state, base, metric, wind, levels, lid, dt):
    i, j, k = cuda.grid(1) + HALO, cuda.blockIdx.y + HALO, cuda.blockIdx.z
    if i < state.shape[3] - HALO and lid[k] != 0.0:
        keep, low = 1.0 / (1.0 + dt * lid[k]), max(k - 1, 0)
        here = state[0, k, j, i] + base[0, k, j, i]
        goal = 0.5 * ((state[0, k, j, i - 1] + base[0, k, j, i - 1]) + here) * wind[0, k, j, i]
        state[1, k, j, i] = goal + keep * (state[1, k, j, i] - goal)
        goal = 0.5 * ((state[0, k, j - 1, i] + base[0, k, j - 1, i]) + here) * wind[1, k, j, i]
        state[2, k, j, i] = goal + keep * (state[2, k, j, i] - goal)
        goal = state[0, k, j, i] * (base[1, k, j, i] / base[0, k, j, i])
        state[4, k, j, i] = goal + keep * (state[4, k, j, i] - goal)
        if k > 0:
            flow = metric[SLOPE_X, k, j, i] * at_w(wind[0], levels, 2, k, j, i)
            flow += metric[SLOPE_Y, k, j, i] * at_w(wind[1], levels, 1, k, j, i)
            density = levels[BELOW, k] * (state[0, low, j, i] + base[0, low, j, i]) + levels[ABOVE, k] * here
            goal = -metric[PER_W, k, j, i] * density * flow
            state[3, k, j, i] = goal + keep * (state[3, k, j, i] - goal)
