"""Passive tracers, Numba: face by face along rows of x, in each direction with the same arithmetic.

Without fused operations: mirrored air carries mirrored bits, and a face has the same value on both sides of a cut.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import STRICT, jit
from hpckit.kernels.euler.constants import HALO, REACH
from hpckit.kernels.euler.tracers.numerics import between, edge, linear, slope

u8 = np.uint64
ROWS = 8  # of a transport along z at a time


@jit(math=STRICT)
def transport(tracers, out, old, state, column, mass_flux, dim, rate, bounded):
    # Of some rows for all tracers: what each carries through two rows of faces, slopes of two rows of cells, values at
    # three rows of edges; of one row the share that passes. A slope or an edge serves all faces around it.
    many, wide = (ROWS if dim == 0 else 1) * tracers.shape[0], tracers.shape[3]
    carried, slopes, edges = np.zeros((many, 2, wide)), np.zeros((many, 2, wide)), np.zeros((many, 3, wide))
    _transport(tracers, out, old, state, column, mass_flux, dim, rate, bounded, carried, slopes, edges, np.empty(wide))


@jit(math=STRICT, borrowed=True)
def _transport(tracers, out, old, state, column, mass_flux, dim, rate, bounded, carried, slopes, edges, share):
    levels, rows, cells = tracers.shape[1], tracers.shape[2] - 2 * REACH, tracers.shape[3] - 2 * REACH
    wide, tall = state.shape[3], state.shape[2]  # of the state's rows and planes
    row_q, plane_q = tracers.shape[3], tracers.shape[2] * tracers.shape[3]
    flux, before, after = mass_flux.reshape(-1), old.reshape(-1), state[0].reshape(-1)
    along, top = levels if dim == 0 else rows, levels - 1
    many = ROWS if dim == 0 else 1  # rows at a time: memory is read in longer pieces than rows
    for outer in range((rows + many - 1) // many if dim == 0 else levels):
        for turn in range((along if dim == 2 else along + 1) * many):
            step, beside = turn // many, turn % many
            level, row = (step, outer * many + beside) if dim == 0 else (outer, step)
            if dim == 0 and row >= rows:
                continue
            at_q = level * plane_q + (row + REACH) * row_q + REACH
            at_rho = (level * tall + row + HALO) * wide + HALO
            base, this, last = column[0, min(level, top)], step & 1, 1 - (step & 1)
            count = cells
            if dim == 2:
                face, count = (level * rows + row) * (cells + 1), cells + 1
                _shares(flux, face, before, at_rho - 1, at_rho, base, base, rate, count, share)
                left, right, back_q, back_rho = at_q - 1, at_q, 0, 0
            elif dim == 1:
                face = (level * (rows + 1) + row) * cells
                _shares(flux, face, before, at_rho - wide, at_rho, base, base, rate, count, share)
                left, right, back_q, back_rho = at_q - row_q, at_q, row_q, wide
            else:
                face, low, high = (level * rows + row) * cells, max(level - 1, 0), min(level, top)
                below, above = at_rho + (low - level) * tall * wide, at_rho + (high - level) * tall * wide
                _shares(flux, face, before, below, above, column[0, low], column[0, high], rate, count, share)
                left, right, back_q, back_rho = (
                    at_q + (low - level) * plane_q,
                    at_q + (high - level) * plane_q,
                    plane_q,
                    tall * wide,
                )
                base = column[0, low]
            for tracer in range(tracers.shape[0]):
                q, new = tracers[tracer].reshape(-1), out[tracer].reshape(-1)
                number = beside * tracers.shape[0] + tracer
                passes, bent, value = carried[number], slopes[number], edges[number].reshape(-1)
                if not bounded:
                    if dim == 0:
                        line = at_q - level * plane_q
                        a, b, c = line + max(level - 3, 0) * plane_q, line + max(level - 2, 0) * plane_q, left
                        d, e = line + min(level + 1, top) * plane_q, line + min(level + 2, top) * plane_q
                    else:
                        next_q = row_q if dim == 1 else 1
                        a, b, c, d, e = right - 3 * next_q, right - 2 * next_q, left, right + next_q, right + 2 * next_q
                    _linear(q, a, b, c, right, d, e, flux, face, share, count, passes[this])
                    if dim == 2:
                        _update_along(q, new, at_q, before, after, at_rho, base, rate, cells, passes[this])
                    elif step:
                        _update_across(
                            q, new, at_q - back_q, before, after, at_rho - back_rho, base, rate, cells,
                            passes[last], passes[this],
                        )  # fmt: skip
                    continue
                if dim == 2:
                    _slopes(q, at_q - 3, at_q - 2, at_q - 1, cells + 4, bent[0])
                    _edges(q, at_q - 2, at_q - 1, bent[0], bent[0, 1:], cells + 3, value)
                    _faces(q, left, right, flux, face, share, value, 0, 1, 2, count, passes[this])
                    _update_along(q, new, at_q, before, after, at_rho, base, rate, cells, passes[this])
                    continue
                for m in range(step + 1 if step else -2, step + 2):  # of the rows of cells that come in sight
                    if dim == 1:
                        a, b, c = (
                            at_q + (m - 1 - step) * row_q,
                            at_q + (m - step) * row_q,
                            at_q + (m + 1 - step) * row_q,
                        )
                    else:
                        line = at_q - level * plane_q
                        a, b, c = (
                            line + min(max(m - 1, 0), top) * plane_q, line + min(max(m, 0), top) * plane_q,
                            line + min(max(m + 1, 0), top) * plane_q,
                        )  # fmt: skip
                    _slopes(q, a, b, c, cells, bent[m % 2])
                    if m > -2:
                        _edges(q, a, b, bent[(m - 1) % 2], bent[m % 2], cells, edges[number, m % 3])
                _faces(
                    q, left, right, flux, face, share, value, (step - 1) % 3 * row_q, step % 3 * row_q,
                    (step + 1) % 3 * row_q, count, passes[this],
                )  # fmt: skip
                if step:
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


@jit(math=STRICT)
def borrow(tracers, density):
    kinds, nz, tall, wide = tracers.shape
    for part in range(kinds):
        for turn in range(2 * nz - 2):
            k = nz - 1 - turn if turn < nz - 1 else turn - nz + 1
            other = k - 1 if turn < nz - 1 else k + 1
            for j in range(REACH, tall - REACH):
                row = j + HALO - REACH
                for i in range(REACH, wide - REACH):
                    lack = min(tracers[part, k, j, i], 0.0)
                    share = density[0, k, row, i + HALO - REACH] / density[0, other, row, i + HALO - REACH]
                    tracers[part, other, j, i] += lack * share
                    tracers[part, k, j, i] -= lack
        for j in range(REACH, tall - REACH):
            row = j + HALO - REACH
            for i in range(REACH, wide - REACH):
                lack = min(tracers[part, nz - 1, j, i], 0.0)
                share = density[0, nz - 1, row, i + HALO - REACH] / density[0, 0, row, i + HALO - REACH]
                tracers[part, nz - 1, j, i] -= lack
                tracers[0, 0, j, i] += lack * share


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
        wind, below, above = flux[at + i], rho[left + i] + base_low, rho[right + i] + base_high
        share[i] = abs(wind) * rate / (below if wind > 0.0 else above)


@jit(noalias=True, math=STRICT)
def _slopes(q, low, here, high, count, out):
    """Limited slopes of a row of cells."""
    a, b, c = u8(low), u8(here), u8(high)
    for i in range(u8(count)):
        out[i] = slope(q[a + i], q[b + i], q[c + i])


@jit(noalias=True, math=STRICT)
def _edges(q, low, high, slope_low, slope_high, count, out):
    """Values at a row of edges between cells."""
    a, b = u8(low), u8(high)
    for i in range(u8(count)):
        out[i] = edge(q[a + i], q[b + i], slope_low[i], slope_high[i])


@jit(noalias=True, math=STRICT)
def _faces(q, low, high, flux, face, share, edges, before, here, after, count, carried):
    """Tracer flux at a row of faces between the cells low and high; before, here, after: places of edges."""
    a, b, at, e, f, g = u8(low), u8(high), u8(face), u8(before), u8(here), u8(after)
    for i in range(u8(count)):
        wind, below, above, far_below, far_above = flux[at + i], q[a + i], q[b + i], edges[e + i], edges[g + i]
        forward = wind > 0.0
        far, here = far_below if forward else far_above, below if forward else above
        carried[i] = wind * between(far, here, edges[f + i], share[i])


@jit(noalias=True, math=STRICT)
def _linear(q, first, second, third, fourth, fifth, sixth, flux, face, share, count, carried):
    """Tracer flux at a row of faces in the middle of six cells, by unlimited parabolas."""
    a, b, c, d, e, f, at = u8(first), u8(second), u8(third), u8(fourth), u8(fifth), u8(sixth), u8(face)
    for i in range(u8(count)):
        wind = flux[at + i]
        forward = wind > 0.0
        # All six are read, then chosen among: reads that depend on the wind would keep the loop from vector lanes.
        ahead, behind = (q[a + i], q[b + i], q[c + i]), (q[f + i], q[e + i], q[d + i])
        q0, q1 = ahead[0] if forward else behind[0], ahead[1] if forward else behind[1]
        q2, q3 = ahead[2] if forward else behind[2], behind[2] if forward else ahead[2]
        q4 = behind[1] if forward else ahead[1]
        carried[i] = wind * linear(q0, q1, q2, q3, q4, share[i])


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
