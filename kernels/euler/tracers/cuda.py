"""Passive tracers, CUDA: a thread a cell, which takes what passes its two faces."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.compile.cuda.jit import blocks, cuda, threads
from hpckit.kernels.compile.cuda.pieces import typed_kernel
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.euler.constants import REACH
from hpckit.kernels.euler.tracers.numerics import linear, passing

THREADS = threads(128)


def transport(
    tracers: Any, out: Any, old: Any, new: Any, column: Any, mass_flux: Any, dim: int, rates: Any, bounded: bool,
    thins: bool,
) -> None:  # fmt: skip
    levels, height, width = new.shape
    halo = REACH + (new.shape[2] - tracers.shape[3]) // 2
    grid = (blocks(width - 2 * halo, THREADS), height - 2 * halo, levels)
    if thins:
        steps = dim == 0, dim == 1, dim == 2  # from a face to the next
        typed_kernel(_thin, new.dtype)[grid, THREADS](old, new, mass_flux, rates, *map(int, steps), halo)
    launch = typed_kernel((_along_z, _along_y, _along_x)[dim], new.dtype)[grid, THREADS]
    for tracer in range(len(tracers)):
        launch(tracers[tracer], out[tracer], old, new, column, mass_flux, rates, bounded, halo)


def borrow(tracers: Any, density: Any) -> None:
    tall, wide = tracers.shape[2:]
    launch = typed_kernel(_borrow, density.dtype)[(blocks(wide - 2 * REACH, THREADS), tall - 2 * REACH), THREADS]
    for each in tracers:
        launch(each, tracers[0], density, REACH + (density.shape[3] - tracers.shape[3]) // 2)


def _borrow(q, vapor, density, halo):
    i, j = cuda.grid(1) + REACH, cuda.blockIdx.y + REACH
    nz = q.shape[0]
    if i < q.shape[2] - REACH:
        y, x = j + halo - REACH, i + halo - REACH
        for turn in range(2 * nz - 2):
            k = nz - 1 - turn if turn < nz - 1 else turn - nz + 1
            other = k - 1 if turn < nz - 1 else k + 1
            lack = min(q[k, j, i], 0.0)
            q[other, j, i] += lack * density[0, k, y, x] / density[0, other, y, x]
            q[k, j, i] -= lack
        lack = min(q[nz - 1, j, i], 0.0)
        q[nz - 1, j, i] -= lack
        vapor[0, j, i] += lack * density[0, nz - 1, y, x] / density[0, 0, y, x]


def _thin(old, new, mass_flux, rates, up, north, east, halo):
    i, j, k = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    if i < new.shape[2] - 2 * halo:
        passed = mass_flux[k + up, j + north, i + east] - mass_flux[k, j, i]
        new[k, j + halo, i + halo] = old[k, j + halo, i + halo] - rates[k] * passed


def _along_x(q, out, old, new, column, mass_flux, rates, bounded, halo):
    i, j, k = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    if i < q.shape[2] - 2 * REACH:
        y, x, base, rate = j + REACH, i + REACH, column[0, k], rates[k]
        before, here = old[k, j + halo, i + halo] + base, q[k, y, x]
        low = crossing(
            q[k, y, x - 3], q[k, y, x - 2], q[k, y, x - 1], here, q[k, y, x + 1], q[k, y, x + 2], mass_flux[k, j, i],
            old[k, j + halo, i + halo - 1] + base, before, rate, rate, bounded,
        )  # fmt: skip
        high = crossing(
            q[k, y, x - 2], q[k, y, x - 1], here, q[k, y, x + 1], q[k, y, x + 2], q[k, y, x + 3],
            mass_flux[k, j, i + 1], before, old[k, j + halo, i + halo + 1] + base, rate, rate, bounded,
        )  # fmt: skip
        out[k, y, x] = (before * here - rate * (high - low)) / (new[k, j + halo, i + halo] + base)


def _along_y(q, out, old, new, column, mass_flux, rates, bounded, halo):
    i, j, k = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    if i < q.shape[2] - 2 * REACH:
        y, x, base, rate = j + REACH, i + REACH, column[0, k], rates[k]
        before, here = old[k, j + halo, i + halo] + base, q[k, y, x]
        low = crossing(
            q[k, y - 3, x], q[k, y - 2, x], q[k, y - 1, x], here, q[k, y + 1, x], q[k, y + 2, x], mass_flux[k, j, i],
            old[k, j + halo - 1, i + halo] + base, before, rate, rate, bounded,
        )  # fmt: skip
        high = crossing(
            q[k, y - 2, x], q[k, y - 1, x], here, q[k, y + 1, x], q[k, y + 2, x], q[k, y + 3, x],
            mass_flux[k, j + 1, i], before, old[k, j + halo + 1, i + halo] + base, rate, rate, bounded,
        )  # fmt: skip
        out[k, y, x] = (before * here - rate * (high - low)) / (new[k, j + halo, i + halo] + base)


def _along_z(q, out, old, new, column, mass_flux, rates, bounded, halo):
    """Beyond ground and lid stands the level next to the wall."""
    i, j, k = cuda.grid(1), cuda.blockIdx.y, cuda.blockIdx.z
    if i < q.shape[2] - 2 * REACH:
        y, x, top = j + REACH, i + REACH, q.shape[0] - 1
        a, b, c = max(k - 3, 0), max(k - 2, 0), max(k - 1, 0)
        d, e, f = min(k + 1, top), min(k + 2, top), min(k + 3, top)
        row, cell = j + halo, i + halo
        before, here = old[k, row, cell] + column[0, k], q[k, y, x]
        low = crossing(
            q[a, y, x], q[b, y, x], q[c, y, x], here, q[d, y, x], q[e, y, x], mass_flux[k, j, i],
            old[c, row, cell] + column[0, c], before, rates[c], rates[k], bounded,
        )  # fmt: skip
        high = crossing(
            q[b, y, x], q[c, y, x], here, q[d, y, x], q[e, y, x], q[f, y, x], mass_flux[k + 1, j, i],
            before, old[d, row, cell] + column[0, d], rates[k], rates[d], bounded,
        )  # fmt: skip
        out[k, y, x] = (before * here - rates[k] * (high - low)) / (new[k, row, cell] + column[0, k])


@inlined
def crossing(q0, q1, q2, q3, q4, q5, wind, rho_low, rho_high, rate_low, rate_high, bounded):
    """Tracer flux at the face between the third and the fourth of six cells."""
    forward = wind > 0.0
    a, b, c = q0 if forward else q5, q1 if forward else q4, q2 if forward else q3
    d, e = q3 if forward else q2, q4 if forward else q1
    share = abs(wind) * (rate_low if forward else rate_high) / (rho_low if forward else rho_high)
    return wind * (passing(a, b, c, d, e, share) if bounded else linear(a, b, c, d, e, share))
