"""Split-explicit, vertically implicit dynamics of a box, CUDA: a thread a cell, or a column where implicit."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.compile.cuda.jit import blocks, cuda, threads
from hpckit.kernels.compile.cuda.pieces import typed_kernel
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.device_array import empty
from hpckit.kernels.euler.constants import GAMMA, GRAVITY
from hpckit.kernels.euler.hevi.constants import (
    ABOVE,
    BELOW,
    FACES_BACK,
    HALO,
    PER_CELL,
    PER_FACE,
    SMALLEST,
    WATER,
    LargeStage,
    Substep,
)
from hpckit.kernels.euler.hevi.numerics import carried, swept, weno
from hpckit.kernels.euler.numerics import power

THREADS = threads(128)
FIRST = HALO - FACES_BACK


def prepare(state: Any, water: Any, column: Any, levels: Any, work: Any, sounds: bool = True) -> None:
    nz, tall, wide = state.shape[1:]
    grid = (blocks(wide - 2 * FIRST + 1, THREADS), tall - 2 * FIRST + 1, nz)
    typed_kernel(_prepare, state.dtype)[grid, THREADS](state, water, column, levels, work, sounds)


def tendencies(
    state: Any, work: Any, column: Any, levels: Any, wind: Any, weights: Any, stage: LargeStage, slow: Any
) -> None:
    nz, tall, wide = state.shape[1:]
    real = state.dtype.type
    grid = (blocks(wide - 2 * HALO + 1, THREADS), tall - 2 * HALO + 1, nz)
    numbers = real(1 / stage.dx), real(1 / stage.dy), real(stage.coriolis), real(stage.wet)
    for part in (_warm, _along_x, _along_y, _upward):
        typed_kernel(part, state.dtype)[grid, THREADS](state, work, column, levels, wind, weights, numbers, slow)


def linearize(
    state: Any, water: Any, column: Any, levels: Any, work: Any, wind: Any, weights: Any, stage: LargeStage, slow: Any,
    start: Any, pressure: Any,
) -> None:  # fmt: skip
    prepare(state, water, column, levels, work)
    tendencies(state, work, column, levels, wind, weights, stage, slow)
    begin(start, work, pressure)


def begin(start: Any, work: Any, pressure: Any) -> None:
    nz, tall, wide = pressure.shape
    grid = (blocks(wide, THREADS), tall, nz)
    typed_kernel(_begin, start.dtype)[grid, THREADS](start, work, pressure)


def substep(
    old: Any, new: Any, work: Any, slow: Any, pressure: Any, levels: Any, flux_x: Any, flux_y: Any, flux_z: Any,
    numbers: Substep,
) -> None:  # fmt: skip
    nz, tall, wide = new.shape[1:]
    ny, nx = tall - 2 * HALO, wide - 2 * HALO
    real = new.dtype.type
    rates = tuple(
        real(each)
        for each in (1 / numbers.dx, 1 / numbers.dy, numbers.dt, numbers.implicit, numbers.damping, numbers.share)
    )
    scratch = empty((5, nz + 1, ny, nx), new)
    grid = (blocks(nx + 1, THREADS), ny + 1, nz)
    typed_kernel(_push, new.dtype)[grid, THREADS](old, new, work, slow, pressure, flux_x, flux_y, rates)
    plane = (blocks(nx, THREADS), ny)
    typed_kernel(_columns, new.dtype)[plane, THREADS](old, new, work, slow, pressure, levels, flux_z, rates, scratch)


def _prepare(state, water, column, levels, work, sounds):
    i, j, k = cuda.grid(1) + FIRST, cuda.blockIdx.y + FIRST, cuda.blockIdx.z
    if i <= state.shape[3] - FIRST:
        base_rho, base_heat, base_p = column[0, k], column[1, k], column[2, k]
        rho, low = state[0, k, j, i] + base_rho, max(k - 1, 0)
        heat = state[4, k, j, i] + base_heat
        under = levels[BELOW, k] * (state[0, low, j, i] + column[0, low]) + levels[ABOVE, k] * rho
        work[0, k, j, i] = state[1, k, j, i] / (0.5 * ((state[0, k, j, i - 1] + base_rho) + rho))
        work[1, k, j, i] = state[2, k, j, i] / (0.5 * ((state[0, k, j - 1, i] + base_rho) + rho))
        work[2, k, j, i] = state[3, k, j, i] / under if k > 0 else 0.0
        work[3, k, j, i] = heat / rho
        total, base_total = 0.0, 0.0
        if water.shape[0] > 0:
            total, base_total = water[k, j, i], levels[WATER, k]
        work[6, k, j, i] = 1.0 / (1.0 + total)
        if sounds:
            excess = base_p * power(state[4, k, j, i] / base_heat, True)
            stiff = GAMMA * (base_p + excess) / heat
            work[4, k, j, i] = excess - stiff * state[4, k, j, i]
            work[5, k, j, i] = stiff
            work[7, k, j, i] = state[0, k, j, i] * (1.0 + total) + base_rho * (total - base_total)


@inlined
def passed(flux, a, b, c, d, e, f, row):
    """What a mass flux carries through the face in the middle of six cells, with a row of `upwind_weights`."""
    value = carried(flux, a, b, c, d, e, f, row[0], row[1], row[2], row[3], row[4], row[5])
    if row[6] != 0.0:
        value = weno(flux, a, b, c, d, e, f)
    return value


@inlined
def across(flux, q, row, k, j, i):
    """What passes between the cells i - 1 and i of a row of q."""
    return passed(
        flux, q[k, j, i - 3], q[k, j, i - 2], q[k, j, i - 1], q[k, j, i], q[k, j, i + 1], q[k, j, i + 2],
        row,
    )  # fmt: skip


@inlined
def along(flux, q, row, k, j, i):
    """What passes between the rows j - 1 and j of q."""
    return passed(
        flux, q[k, j - 3, i], q[k, j - 2, i], q[k, j - 1, i], q[k, j, i], q[k, j + 1, i], q[k, j + 2, i],
        row,
    )  # fmt: skip


@inlined
def upward(flux, q, weights, k, j, i):
    """What passes between the levels k - 1 and k of q, at a face that is not ground or lid."""
    top = q.shape[0] - 1
    row = weights[min(k - 1, top - k, 2)]
    return passed(
        flux, q[max(k - 3, 0), j, i], q[max(k - 2, 0), j, i], q[k - 1, j, i], q[k, j, i], q[min(k + 1, top), j, i],
        q[min(k + 2, top), j, i], row,
    )  # fmt: skip


@inlined
def theta_face(theta, levels, k, y, x):
    """Theta at the face below level k."""
    nz = theta.shape[0]
    return levels[BELOW, k] * theta[max(k - 1, 0), y, x] + levels[ABOVE, k] * theta[min(k, nz - 1), y, x]


def _warm(state, work, column, levels, wind, weights, numbers, slow):
    """Rho theta: of fluxes what means of theta leave to it."""
    i, j, k = cuda.grid(1) + HALO, cuda.blockIdx.y + HALO, cuda.blockIdx.z
    if i < state.shape[3] - HALO and j < state.shape[2] - HALO:
        u, v, w, theta, row = state[1], state[2], state[3], work[3], weights[2]
        top = state.shape[1] - 1
        w_top = w[k + 1, j, i] if k < top else 0.0
        here = theta[k, j, i]
        x = across(u[k, j, i + 1], theta, row, k, j, i + 1) - u[k, j, i + 1] * (0.5 * (here + theta[k, j, i + 1]))
        x -= across(u[k, j, i], theta, row, k, j, i) - u[k, j, i] * (0.5 * (theta[k, j, i - 1] + here))
        y = along(v[k, j + 1, i], theta, row, k, j + 1, i) - v[k, j + 1, i] * (0.5 * (here + theta[k, j + 1, i]))
        y -= along(v[k, j, i], theta, row, k, j, i) - v[k, j, i] * (0.5 * (theta[k, j - 1, i] + here))
        high, low = 0.0, 0.0
        if k < top:
            high = upward(w_top, theta, weights, k + 1, j, i) - w_top * theta_face(theta, levels, k + 1, j, i)
        if k > 0:
            low = upward(w[k, j, i], theta, weights, k, j, i) - w[k, j, i] * theta_face(theta, levels, k, j, i)
        slow[4, k, j, i] = -(x * numbers[0] + y * numbers[1] + (high - low) * levels[PER_CELL, k])


@inlined
def beside_x(rho, k, j, i):
    """Eight times the mean of rho' at the four faces of v around a face of u."""
    near = (rho[k, j - 1, i - 1] + rho[k, j - 1, i]) + (rho[k, j + 1, i - 1] + rho[k, j + 1, i])
    return near + 2.0 * (rho[k, j, i - 1] + rho[k, j, i])


@inlined
def beside_y(rho, k, j, i):
    """Eight times the mean of rho' at the four faces of u around a face of v."""
    near = (rho[k, j - 1, i - 1] + rho[k, j, i - 1]) + (rho[k, j - 1, i + 1] + rho[k, j, i + 1])
    return near + 2.0 * (rho[k, j - 1, i] + rho[k, j, i])


def _along_x(state, work, column, levels, wind, weights, numbers, slow):
    """Rho u."""
    i, j, k = cuda.grid(1) + HALO, cuda.blockIdx.y + HALO, cuda.blockIdx.z
    if i <= state.shape[3] - HALO and j < state.shape[2] - HALO:
        u, v, w, speed, p, dry, row = state[1], state[2], state[3], work[0], work[4], work[6], weights[2]
        top = state.shape[1] - 1
        x = across(0.5 * (u[k, j, i] + u[k, j, i + 1]), speed, row, k, j, i + 1) - across(
            0.5 * (u[k, j, i - 1] + u[k, j, i]), speed, row, k, j, i
        )
        y = along(0.5 * (v[k, j + 1, i - 1] + v[k, j + 1, i]), speed, row, k, j + 1, i) - along(
            0.5 * (v[k, j, i - 1] + v[k, j, i]), speed, row, k, j, i
        )
        high = upward(0.5 * (w[k + 1, j, i - 1] + w[k + 1, j, i]), speed, weights, k + 1, j, i) if k < top else 0.0
        low = upward(0.5 * (w[k, j, i - 1] + w[k, j, i]), speed, weights, k, j, i) if k > 0 else 0.0
        force = 0.5 * (dry[k, j, i - 1] + dry[k, j, i]) * ((p[k, j, i] - p[k, j, i - 1]) * numbers[0])
        around = 0.25 * ((v[k, j, i - 1] + v[k, j, i]) + (v[k, j + 1, i - 1] + v[k, j + 1, i]))
        turn = numbers[2] * (around - (column[0, k] + 0.125 * beside_x(state[0], k, j, i)) * wind[1, k])
        slow[1, k, j, i] = turn - (x * numbers[0] + y * numbers[1] + (high - low) * levels[PER_CELL, k]) - force


def _along_y(state, work, column, levels, wind, weights, numbers, slow):
    """Rho v."""
    i, j, k = cuda.grid(1) + HALO, cuda.blockIdx.y + HALO, cuda.blockIdx.z
    if i < state.shape[3] - HALO and j <= state.shape[2] - HALO:
        u, v, w, speed, p, dry, row = state[1], state[2], state[3], work[1], work[4], work[6], weights[2]
        top = state.shape[1] - 1
        x = across(0.5 * (u[k, j - 1, i + 1] + u[k, j, i + 1]), speed, row, k, j, i + 1) - across(
            0.5 * (u[k, j - 1, i] + u[k, j, i]), speed, row, k, j, i
        )
        y = along(0.5 * (v[k, j, i] + v[k, j + 1, i]), speed, row, k, j + 1, i) - along(
            0.5 * (v[k, j - 1, i] + v[k, j, i]), speed, row, k, j, i
        )
        high = upward(0.5 * (w[k + 1, j - 1, i] + w[k + 1, j, i]), speed, weights, k + 1, j, i) if k < top else 0.0
        low = upward(0.5 * (w[k, j - 1, i] + w[k, j, i]), speed, weights, k, j, i) if k > 0 else 0.0
        force = 0.5 * (dry[k, j - 1, i] + dry[k, j, i]) * ((p[k, j, i] - p[k, j - 1, i]) * numbers[1])
        around = 0.25 * ((u[k, j - 1, i] + u[k, j, i]) + (u[k, j - 1, i + 1] + u[k, j, i + 1]))
        turn = -numbers[2] * (around - (column[0, k] + 0.125 * beside_y(state[0], k, j, i)) * wind[0, k])
        slow[2, k, j, i] = turn - (x * numbers[0] + y * numbers[1] + (high - low) * levels[PER_CELL, k]) - force


@inlined
def at_level(w, k, j, i):
    """A value at the face below level k, 0 at the lid."""
    return w[k, j, i] if k < w.shape[0] else 0.0


@inlined
def through_middle(w, speed, weights, k, j, i):
    """What rho w carries of w through the middle of level k."""
    top = w.shape[0] - 1
    row = weights[min(k, top - k, 2)]
    return passed(
        0.5 * (w[k, j, i] + at_level(w, k + 1, j, i)), speed[max(k - 2, 0), j, i], speed[max(k - 1, 0), j, i],
        speed[k, j, i], at_level(speed, k + 1, j, i), at_level(speed, k + 2, j, i), at_level(speed, k + 3, j, i),
        row,
    )  # fmt: skip


def _upward(state, work, column, levels, wind, weights, numbers, slow):
    """Rho w."""
    i, j, k = cuda.grid(1) + HALO, cuda.blockIdx.y + HALO, cuda.blockIdx.z
    if i < state.shape[3] - HALO and j < state.shape[2] - HALO:
        if k == 0:
            slow[3, k, j, i] = 0.0
        else:
            u, v, w, speed, p, dry, weight = state[1], state[2], state[3], work[2], work[4], work[6], work[7]
            below, above, per_face, row = levels[BELOW, k], levels[ABOVE, k], levels[PER_FACE, k], weights[2]
            x = across(below * u[k - 1, j, i + 1] + above * u[k, j, i + 1], speed, row, k, j, i + 1) - across(
                below * u[k - 1, j, i] + above * u[k, j, i], speed, row, k, j, i
            )
            y = along(below * v[k - 1, j + 1, i] + above * v[k, j + 1, i], speed, row, k, j + 1, i) - along(
                below * v[k - 1, j, i] + above * v[k, j, i], speed, row, k, j, i
            )
            z = through_middle(w, speed, weights, k, j, i) - through_middle(w, speed, weights, k - 1, j, i)
            force = (p[k, j, i] - p[k - 1, j, i]) * per_face
            change = -(x * numbers[0] + y * numbers[1] + z * per_face)
            if numbers[3] != 0.0:
                force += GRAVITY * (below * weight[k - 1, j, i] + above * weight[k, j, i])
                change += GRAVITY * (below * state[0, k - 1, j, i] + above * state[0, k, j, i])
            share = below * dry[k - 1, j, i] + above * dry[k, j, i]
            slow[3, k, j, i] = change - share * force


def _begin(start, work, pressure):
    i, j, k = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    if i < pressure.shape[2]:
        y, x = j + HALO - 1, i + HALO - 1
        pressure[k, j, i] = work[5, k, y, x] * start[4, k, y, x]


@inlined
def settled(value):
    """What is too small to matter is 0."""
    return 0.0 if abs(value) < SMALLEST else value


def _push(old, new, work, slow, pressure, flux_x, flux_y, rates):
    i, j, k = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    nx, ny = pressure.shape[2] - 2, pressure.shape[1] - 2
    y, x, dt, share = j + HALO, i + HALO, rates[2], rates[5]
    dry = work[6]
    if i <= nx and j < ny:
        gradient = (pressure[k, j + 1, i + 1] - pressure[k, j + 1, i]) * rates[0]
        force = slow[1, k, y, x] - 0.5 * (dry[k, y, x - 1] + dry[k, y, x]) * gradient
        new[1, k, y, x] = settled(old[1, k, y, x] + dt * force)
        if share != 0.0:
            flux_x[k, j, i] += share * new[1, k, y, x]
    if i < nx and j <= ny:
        gradient = (pressure[k, j + 1, i + 1] - pressure[k, j, i + 1]) * rates[1]
        force = slow[2, k, y, x] - 0.5 * (dry[k, y - 1, x] + dry[k, y, x]) * gradient
        new[2, k, y, x] = settled(old[2, k, y, x] + dt * force)
        if share != 0.0:
            flux_y[k, j, i] += share * new[2, k, y, x]


@inlined
def explicit_part(old, new, work, slow, levels, rates, scratch, k, j, i):
    """Rho' and Theta of a cell but for the new W, and the pressure of them and the old ones: scratch 2 to 4."""
    y, x, dt, implicit = j + HALO, i + HALO, rates[2], rates[3]
    explicit, theta, u, v, w = 1.0 - implicit, work[3], new[1], new[2], old[3]
    here, lower, upper = theta[k, y, x], w[k, y, x], at_level(w, k + 1, y, x)
    per_cell = levels[PER_CELL, k]
    div = (u[k, y, x + 1] - u[k, y, x]) * rates[0] + (v[k, y + 1, x] - v[k, y, x]) * rates[1]
    div += explicit * ((upper - lower) * per_cell)
    scratch[2, k, j, i] = old[0, k, y, x] - dt * div
    warm_x = u[k, y, x + 1] * (0.5 * (here + theta[k, y, x + 1])) - u[k, y, x] * (0.5 * (theta[k, y, x - 1] + here))
    warm_y = v[k, y + 1, x] * (0.5 * (here + theta[k, y + 1, x])) - v[k, y, x] * (0.5 * (theta[k, y - 1, x] + here))
    warm_z = theta_face(theta, levels, k + 1, y, x) * upper - theta_face(theta, levels, k, y, x) * lower
    carry = warm_x * rates[0] + warm_y * rates[1] + explicit * (warm_z * per_cell)
    heat = old[4, k, y, x] + dt * (slow[4, k, y, x] - carry)
    scratch[3, k, j, i] = heat
    scratch[4, k, j, i] = work[5, k, y, x] * (implicit * heat + explicit * old[4, k, y, x])


@inlined
def eliminate(old, work, slow, levels, rates, scratch, tension, gravity, lift, factor, value, k, j, i):
    """Factor and value of the tridiagonal system at the face below level k, from those of the face before; kept."""
    y, x, dt, implicit = j + HALO, i + HALO, rates[2], rates[3]
    explicit, theta, stiff = 1.0 - implicit, work[3], work[5]
    below, above, down, up = levels[BELOW, k], levels[ABOVE, k], levels[PER_CELL, k - 1], levels[PER_CELL, k]
    mixed_low = implicit * scratch[2, k - 1, j, i] + explicit * old[0, k - 1, y, x]
    mixed = implicit * scratch[2, k, j, i] + explicit * old[0, k, y, x]
    weight = gravity * (below * mixed_low + above * mixed)
    gradient = tension * (scratch[4, k, j, i] - scratch[4, k - 1, j, i])
    right = old[3, k, y, x] + dt * (slow[3, k, y, x] + lift - gradient - weight)
    new_factor, new_value = swept(
        (dt * implicit) * (dt * implicit), tension, gravity, stiff[k - 1, y, x], stiff[k, y, x], down, up,
        theta_face(theta, levels, k - 1, y, x), theta_face(theta, levels, k, y, x),
        theta_face(theta, levels, k + 1, y, x), below, above, right, factor, value, 1.0,
    )  # fmt: skip
    scratch[0, k, j, i] = new_factor
    scratch[1, k, j, i] = new_value
    return new_factor, new_value


@inlined
def settle(old, new, work, pressure, levels, flux_z, rates, scratch, high, k, j, i):
    """All of a cell, from the new W of the face above; that of the face below is returned."""
    y, x, implicit, damping, share = j + HALO, i + HALO, rates[3], rates[4], rates[5]
    theta, step, per_cell = work[3], rates[2] * rates[3], levels[PER_CELL, k]
    low = scratch[1, k, j, i] - scratch[0, k, j, i] * high if k > 0 else 0.0
    new[0, k, y, x] = settled(scratch[2, k, j, i] - step * ((high - low) * per_cell))
    carry = theta_face(theta, levels, k + 1, y, x) * high - theta_face(theta, levels, k, y, x) * low
    heat = settled(scratch[3, k, j, i] - step * (carry * per_cell))
    pressure[k, j + 1, i + 1] = work[5, k, y, x] * (heat + damping * (heat - old[4, k, y, x]))
    new[4, k, y, x] = heat
    if share != 0.0:
        flux_z[k, j, i] += share * (implicit * low + (1.0 - implicit) * old[3, k, y, x])
    new[3, k, y, x] = settled(low)
    return low


def _columns(old, new, work, slow, pressure, levels, flux_z, rates, scratch):
    i, j = cuda.grid(1), cuda.blockIdx.y
    nz = pressure.shape[0]
    if i < pressure.shape[2] - 2:
        y, x, dry = j + HALO, i + HALO, work[6]
        for k in range(nz):
            explicit_part(old, new, work, slow, levels, rates, scratch, k, j, i)
        factor, value, high = 0.0, 0.0, 0.0
        for k in range(1, nz):
            tension = (levels[BELOW, k] * dry[k - 1, y, x] + levels[ABOVE, k] * dry[k, y, x]) * levels[PER_FACE, k]
            factor, value = eliminate(
                old, work, slow, levels, rates, scratch, tension, GRAVITY, 0.0, factor, value, k, j, i
            )
        for k in range(nz - 1, -1, -1):
            high = settle(old, new, work, pressure, levels, flux_z, rates, scratch, high, k, j, i)
