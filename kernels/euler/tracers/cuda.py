"""Passive tracers, CUDA: a thread a cell, which takes what passes its two faces."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.compile.cuda.jit import blocks, cuda, threads
from hpckit.kernels.compile.cuda.pieces import typed_kernel
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.euler.constants import HALO, REACH
from hpckit.kernels.euler.tracers.numerics import linear, passing

THREADS = threads(128)


def transport(
    tracers: Any, out: Any, old: Any, state: Any, column: Any, mass_flux: Any, dim: int, rate: float, bounded: bool
) -> None:
    levels, height, width = state.shape[1:]
    grid = (blocks(width - 2 * HALO, THREADS), height - 2 * HALO, levels)
    launch = typed_kernel((_along_z, _along_y, _along_x)[dim], state.dtype)[grid, THREADS]
    for tracer in range(len(tracers)):
        launch(tracers[tracer], out[tracer], old, state, column, mass_flux, state.dtype.type(rate), bounded)


def thin(density: Any, old: Any, mass_flux: Any, thickness: Any, dim: int, rate: float) -> None:
    levels, height, width = density.shape[1:]
    if dim:
        grid = blocks(mass_flux.shape[2], THREADS), mass_flux.shape[1], levels
        typed_kernel(_weigh, density.dtype)[grid, THREADS](mass_flux, thickness)
    grid = blocks(width, THREADS), height, levels
    launch = typed_kernel((_thin_z, _thin_y, _thin_x)[dim], density.dtype)[grid, THREADS]
    launch(density, old, mass_flux, density.dtype.type(rate))


def borrow(tracers: Any, density: Any) -> None:
    tall, wide = tracers.shape[2:]
    launch = typed_kernel(_borrow, density.dtype)[(blocks(wide - 2 * REACH, THREADS), tall - 2 * REACH), THREADS]
    for each in tracers:
        launch(each, tracers[0], density)


def _borrow(q, vapor, density):
    i, j = cuda.grid(1) + REACH, cuda.blockIdx.y + REACH
    nz = q.shape[0]
    if i < q.shape[2] - REACH:
        y, x = j + HALO - REACH, i + HALO - REACH
        for turn in range(2 * nz - 2):
            k = nz - 1 - turn if turn < nz - 1 else turn - nz + 1
            other = k - 1 if turn < nz - 1 else k + 1
            lack = min(q[k, j, i], 0.0)
            q[other, j, i] += lack * density[0, k, y, x] / density[0, other, y, x]
            q[k, j, i] -= lack
        lack = min(q[nz - 1, j, i], 0.0)
        q[nz - 1, j, i] -= lack
        vapor[0, j, i] += lack * density[0, nz - 1, y, x] / density[0, 0, y, x]


def _weigh(mass_flux, thickness):
    i, j, k = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    if i < mass_flux.shape[2]:
        mass_flux[k, j, i] *= thickness[k]


def _thin_x(density, old, mass_flux, rate):
    i, j, k = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    if i < old.shape[2]:
        old[k, j, i] = density[0, k, j, i]
        y, x = j - HALO, i - HALO
        if y >= 0 and y < old.shape[1] - 2 * HALO and x >= 0 and x < old.shape[2] - 2 * HALO:
            density[0, k, j, i] -= rate * (mass_flux[k, y, x + 1] - mass_flux[k, y, x])


def _thin_y(density, old, mass_flux, rate):
    i, j, k = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    if i < old.shape[2]:
        old[k, j, i] = density[0, k, j, i]
        y, x = j - HALO, i - HALO
        if y >= 0 and y < old.shape[1] - 2 * HALO and x >= 0 and x < old.shape[2] - 2 * HALO:
            density[0, k, j, i] -= rate * (mass_flux[k, y + 1, x] - mass_flux[k, y, x])


def _thin_z(density, old, mass_flux, rate):
    i, j, k = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    if i < old.shape[2]:
        old[k, j, i] = density[0, k, j, i]
        y, x = j - HALO, i - HALO
        if y >= 0 and y < old.shape[1] - 2 * HALO and x >= 0 and x < old.shape[2] - 2 * HALO:
            density[0, k, j, i] -= rate * (mass_flux[k + 1, y, x] - mass_flux[k, y, x])


def _along_x(q, out, old, state, column, mass_flux, rate, bounded):
    i, j, k = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    if i < q.shape[2] - 2 * REACH:
        y, x, base = j + REACH, i + REACH, column[0, k]
        before, here = old[k, j + HALO, i + HALO] + base, q[k, y, x]
        low = crossing(
            q[k, y, x - 3], q[k, y, x - 2], q[k, y, x - 1], here, q[k, y, x + 1], q[k, y, x + 2], mass_flux[k, j, i],
            old[k, j + HALO, i + HALO - 1] + base, before, rate, bounded,
        )  # fmt: skip
        high = crossing(
            q[k, y, x - 2], q[k, y, x - 1], here, q[k, y, x + 1], q[k, y, x + 2], q[k, y, x + 3],
            mass_flux[k, j, i + 1], before, old[k, j + HALO, i + HALO + 1] + base, rate, bounded,
        )  # fmt: skip
        out[k, y, x] = (before * here - rate * (high - low)) / (state[0, k, j + HALO, i + HALO] + base)


def _along_y(q, out, old, state, column, mass_flux, rate, bounded):
    i, j, k = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    if i < q.shape[2] - 2 * REACH:
        y, x, base = j + REACH, i + REACH, column[0, k]
        before, here = old[k, j + HALO, i + HALO] + base, q[k, y, x]
        low = crossing(
            q[k, y - 3, x], q[k, y - 2, x], q[k, y - 1, x], here, q[k, y + 1, x], q[k, y + 2, x], mass_flux[k, j, i],
            old[k, j + HALO - 1, i + HALO] + base, before, rate, bounded,
        )  # fmt: skip
        high = crossing(
            q[k, y - 2, x], q[k, y - 1, x], here, q[k, y + 1, x], q[k, y + 2, x], q[k, y + 3, x],
            mass_flux[k, j + 1, i], before, old[k, j + HALO + 1, i + HALO] + base, rate, bounded,
        )  # fmt: skip
        out[k, y, x] = (before * here - rate * (high - low)) / (state[0, k, j + HALO, i + HALO] + base)


def _along_z(q, out, old, state, column, mass_flux, rate, bounded):
    """Beyond ground and lid stands the level next to the wall."""
    i, j, k = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    if i < q.shape[2] - 2 * REACH:
        y, x, top = j + REACH, i + REACH, q.shape[0] - 1
        a, b, c = max(k - 3, 0), max(k - 2, 0), max(k - 1, 0)
        d, e, f = min(k + 1, top), min(k + 2, top), min(k + 3, top)
        row, cell = j + HALO, i + HALO
        before, here = old[k, row, cell] + column[0, k], q[k, y, x]
        low = crossing(
            q[a, y, x], q[b, y, x], q[c, y, x], here, q[d, y, x], q[e, y, x], mass_flux[k, j, i],
            old[c, row, cell] + column[0, c], before, rate, bounded,
        )  # fmt: skip
        high = crossing(
            q[b, y, x], q[c, y, x], here, q[d, y, x], q[e, y, x], q[f, y, x], mass_flux[k + 1, j, i],
            before, old[d, row, cell] + column[0, d], rate, bounded,
        )  # fmt: skip
        out[k, y, x] = (before * here - rate * (high - low)) / (state[0, k, row, cell] + column[0, k])


@inlined
def crossing(q0, q1, q2, q3, q4, q5, wind, rho_low, rho_high, rate, bounded):
    """Tracer flux at the face between the third and the fourth of six cells."""
    forward = wind > 0.0
    a, b, c = q0 if forward else q5, q1 if forward else q4, q2 if forward else q3
    d, e = q3 if forward else q2, q4 if forward else q1
    share = abs(wind) * rate / (rho_low if forward else rho_high)
    return wind * (passing(a, b, c, d, e, share) if bounded else linear(a, b, c, d, e, share))
