"""Passive tracers, Numba: face by face along rows of x, in each direction with the same arithmetic.

Without fused operations: mirrored air carries mirrored bits, and a face has the same value on both sides of a cut.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import STRICT, jit
from hpckit.kernels.euler.constants import HALO, REACH
from hpckit.kernels.euler.tracers.numerics import passing

u8 = np.uint64


@jit(math=STRICT)
def transport(tracers, out, old, state, column, mass_flux, dim, rate):
    # Of a row for all tracers: what each carries through two rows of faces, the share that passes.
    carried, share = np.zeros((tracers.shape[0], 2, tracers.shape[3])), np.empty(tracers.shape[3])
    _transport(tracers, out, old, state, column, mass_flux, dim, rate, carried, share)


@jit(math=STRICT, borrowed=True)
def _transport(tracers, out, old, state, column, mass_flux, dim, rate, carried, share):
    levels, rows, cells = tracers.shape[1], tracers.shape[2] - 2 * REACH, tracers.shape[3] - 2 * REACH
    wide, tall = state.shape[3], state.shape[2]  # of the state's rows and planes
    row_q, plane_q = tracers.shape[3], tracers.shape[2] * tracers.shape[3]
    flux, before, after = mass_flux.reshape(-1), old.reshape(-1), state[0].reshape(-1)
    along, top = levels if dim == 0 else rows, levels - 1
    for outer in range(rows if dim == 0 else levels):
        for step in range(along if dim == 2 else along + 1):
            level, row = (step, outer) if dim == 0 else (outer, step)
            at_q = level * plane_q + (row + REACH) * row_q + REACH
            at_rho = (level * tall + row + HALO) * wide + HALO
            base, this, last = column[0, min(level, top)], step & 1, 1 - (step & 1)
            if dim == 2:
                face, count = (level * rows + row) * (cells + 1), cells + 1
                _shares(flux, face, before, at_rho - 1, at_rho, base, base, rate, count, share)
                q0, q1, q2, q3, q4, q5 = at_q - 3, at_q - 2, at_q - 1, at_q, at_q + 1, at_q + 2
                back_q, back_rho = 0, 0
            elif dim == 1:
                face, count = (level * (rows + 1) + row) * cells, cells
                _shares(flux, face, before, at_rho - wide, at_rho, base, base, rate, count, share)
                q0, q1, q2 = at_q - 3 * row_q, at_q - 2 * row_q, at_q - row_q
                q3, q4, q5 = at_q, at_q + row_q, at_q + 2 * row_q
                back_q, back_rho = row_q, wide
            else:
                face, count = (level * rows + row) * cells, cells
                line = at_q - level * plane_q  # of the lowest level
                low, high = max(level - 1, 0), min(level, top)
                below, above = at_rho + (low - level) * tall * wide, at_rho + (high - level) * tall * wide
                _shares(flux, face, before, below, above, column[0, low], column[0, high], rate, count, share)
                q0, q1, q2 = (
                    line + max(level - 3, 0) * plane_q,
                    line + max(level - 2, 0) * plane_q,
                    line + low * plane_q,
                )
                q3, q4, q5 = (
                    line + high * plane_q,
                    line + min(level + 1, top) * plane_q,
                    line + min(level + 2, top) * plane_q,
                )
                back_q, back_rho, base = plane_q, tall * wide, column[0, low]
            for tracer in range(tracers.shape[0]):
                q, new, passes = tracers[tracer].reshape(-1), out[tracer].reshape(-1), carried[tracer]
                _faces(q, q0, q1, q2, q3, q4, q5, flux, face, share, count, passes[this])
                if dim == 2:
                    _update_along(q, new, at_q, before, after, at_rho, base, rate, cells, passes[this])
                elif step:
                    _update_across(
                        q, new, at_q - back_q, before, after, at_rho - back_rho, base, rate, cells,
                        passes[last], passes[this],
                    )  # fmt: skip


@jit(math=STRICT)
def thin(density, old, mass_flux, thickness, dim, rate):
    levels, rows, cells = density.shape[1], density.shape[2] - 2 * HALO, density.shape[3] - 2 * HALO
    lines, count = mass_flux.shape[1], mass_flux.shape[2]
    next_one = (lines * count, count, 1)[dim]
    flux, new = mass_flux.reshape(-1), density[0].reshape(-1)
    if dim:
        for level in range(levels):
            mass_flux[level] *= thickness[level]
    old[:] = density[0]
    for level in range(levels):
        for row in range(rows):
            at = (level * density.shape[2] + row + HALO) * density.shape[3] + HALO
            _thin_row(new, at, flux, (level * lines + row) * count, next_one, rate, cells)


@jit(noalias=True, math=STRICT)
def _thin_row(density, at, flux, face, next_one, rate, count):
    cell, low, high = u8(at), u8(face), u8(face + next_one)
    for i in range(u8(count)):
        density[cell + i] -= rate * (flux[high + i] - flux[low + i])


@jit(noalias=True, math=STRICT)
def _shares(flux, face, rho, low, high, base_low, base_high, rate, count, share):
    """The share of the cell upstream that passes each of a row of faces."""
    at, left, right = u8(face), u8(low), u8(high)
    for i in range(u8(count)):
        wind = flux[at + i]
        share[i] = abs(wind) * rate / (rho[left + i] + base_low if wind > 0.0 else rho[right + i] + base_high)


@jit(noalias=True, math=STRICT)
def _faces(q, q0, q1, q2, q3, q4, q5, flux, face, share, count, carried):
    """Tracer flux at a row of faces; q0 to q5: where its cells stand."""
    a, b, c, d, e, f, at = u8(q0), u8(q1), u8(q2), u8(q3), u8(q4), u8(q5), u8(face)
    for i in range(u8(count)):
        wind = flux[at + i]
        forward = wind > 0.0
        carried[i] = wind * passing(
            q[a + i] if forward else q[f + i],
            q[b + i] if forward else q[e + i],
            q[c + i] if forward else q[d + i],
            q[d + i] if forward else q[c + i],
            q[e + i] if forward else q[b + i],
            share[i],
        )


@jit(noalias=True, math=STRICT)
def _update_along(q, new, at_q, before, after, at_rho, base, rate, count, carried):
    at, rho = u8(at_q), u8(at_rho)
    for i in range(u8(count)):
        change = rate * (carried[i + u8(1)] - carried[i])
        new[at + i] = ((before[rho + i] + base) * q[at + i] - change) / (after[rho + i] + base)


@jit(noalias=True, math=STRICT)
def _update_across(q, new, at_q, before, after, at_rho, base, rate, count, below, above):
    at, rho = u8(at_q), u8(at_rho)
    for i in range(u8(count)):
        change = rate * (above[i] - below[i])
        new[at + i] = ((before[rho + i] + base) * q[at + i] - change) / (after[rho + i] + base)
