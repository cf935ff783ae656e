"""Passive tracers, Numba: face by face along rows of x, in each direction with the same arithmetic.

Without fused operations: mirrored air carries mirrored bits, and a face has the same value on both sides of a cut.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import STRICT, inlined, jit
from hpckit.kernels.euler.constants import REACH
from hpckit.kernels.euler.tracers.numerics import between, edge, linear, slope

u8 = np.uint64
ROWS = 8  # of a transport along z at a time: memory is read in longer pieces than rows


@jit(math=STRICT)
def transport(tracers, out, old, new, column, mass_flux, dim, rates, bounded, thins):
    kinds, levels, tall, wide = tracers.shape
    rows, cells, many = tall - 2 * REACH, wide - 2 * REACH, ROWS if dim == 0 else 1
    # Of each row and tracer: slopes of a row of cells, values at two rows of edges, what passes a row of faces.
    size = many * kinds * wide
    bent, behind, near, carried, share = np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(wide)
    q, result, flux, before, after = (
        tracers.reshape(-1), out.reshape(-1), mass_flux.reshape(-1), old.reshape(-1), new.reshape(-1)
    )  # fmt: skip
    halo = REACH + (new.shape[2] - tracers.shape[3]) // 2
    rest = (q, result, before, after, column[0], flux, rates, bounded, thins, kinds, levels, rows, cells, halo)
    if dim == 2:
        _along(*rest, bent, near, carried, share)
    else:
        _across(*rest, dim == 0, many, bent, behind, near, carried, share)


@jit(noalias=True, borrowed=True, math=STRICT)
def _along(
    q, out, before, after, base, flux, rates, bounded, thins, kinds, levels, rows, cells, halo, bent, edges, carried,
    share,
):  # fmt: skip
    """Along x, row by row."""
    wide, wide_q, one, two = cells + 2 * halo, cells + 2 * REACH, u8(1), u8(2)
    for level in range(levels):
        rho, rate = base[level], rates[level]
        for row in range(rows):
            face = u8((level * rows + row) * (cells + 1))
            c = u8((level * (rows + 2 * halo) + row + halo) * wide + halo)
            start = (level * (rows + 2 * REACH) + row + REACH) * wide_q + REACH
            if thins:
                for i in range(u8(cells)):
                    after[c + i] = before[c + i] - rate * (flux[face + one + i] - flux[face + i])
            for i in range(u8(cells + 1)):
                # Both are read, then chosen among, here and below: a choice among places would be a gather, many times
                # as slow.
                wind, low, high = flux[face + i], before[c - one + i] + rho, before[c + i] + rho
                share[i] = abs(wind) * rate / (low if wind > 0.0 else high)
            for tracer in range(kinds):
                at = u8(start + tracer * levels * (rows + 2 * REACH) * wide_q)
                a, b = at - u8(REACH), at - two
                if bounded:
                    for i in range(u8(cells + 4)):
                        bent[i] = slope(q[a + i], q[b + i], q[b + one + i])
                    for i in range(u8(cells + 3)):
                        edges[i] = edge(q[b + i], q[b + one + i], bent[i], bent[i + one])
                    for i in range(u8(cells + 1)):
                        wind, low, high = flux[face + i], q[at - one + i], q[at + i]
                        forward, far_low, far_high = wind > 0.0, edges[i], edges[i + two]
                        far, here = far_low if forward else far_high, low if forward else high
                        carried[i] = wind * between(far, here, edges[i + one], share[i])
                else:
                    for i in range(u8(cells + 1)):
                        q0, q1, q2, q3, q4, q5 = (
                            q[a + i], q[b + i], q[at - one + i], q[at + i], q[at + one + i], q[at + two + i]
                        )  # fmt: skip
                        carried[i] = _passes(q0, q1, q2, q3, q4, q5, flux[face + i], share[i])
                for i in range(u8(cells)):
                    change = rate * (carried[i + one] - carried[i])
                    out[at + i] = ((before[c + i] + rho) * q[at + i] - change) / (after[c + i] + rho)


@jit(noalias=True, borrowed=True, math=STRICT)
def _across(
    q, out, before, after, base, flux, rates, bounded, thins, kinds, levels, rows, cells, halo, up, many, bent, behind,
    near, carried, share,
):  # fmt: skip
    """Along y, or up, from one row of faces to the next, `many` rows of a level at a time.

    Each row of faces takes the row of cells behind it with it. The first has none: what it writes into the first row of
    cells, the second writes over.
    """
    wide, wide_q = cells + 2 * halo, cells + 2 * REACH
    plane, plane_q = (rows + 2 * halo) * wide, (rows + 2 * REACH) * wide_q
    # From a row to the next, and the first and last rows there are: beyond ground and lid the level next to the wall.
    next_q, next_rho, next_face = (plane_q, plane, rows * cells) if up else (wide_q, wide, cells)
    steps, groups, first, last = (
        (levels, (rows + many - 1) // many, 0, levels - 1) if up else (rows, levels, -REACH, rows + REACH - 1)
    )
    for group in range(groups):
        at_q = REACH * wide_q + REACH + group * (many * wide_q if up else plane_q)
        at_rho = halo * wide + halo + group * (many * wide if up else plane)
        at_face = group * (many * cells if up else (rows + 1) * cells)
        for step in range(steps + 1):
            home = max(step - 1, 0)  # the row of cells between this row of faces and the last
            low, high = min(max(step - 1, first), last), min(step, last)
            rate_low, rate_high = (rates[low], rates[high]) if up else (rates[group], rates[group])
            base_low, base_high = (base[low], base[high]) if up else (base[group], base[group])
            for beside in range(min(many, rows - group * many) if up else 1):
                face = u8(at_face + beside * cells + step * next_face)
                last_face = face - u8(next_face) if step else face
                row, row_q = at_rho + beside * wide, at_q + beside * wide_q
                c, lower, upper = u8(row + home * next_rho), u8(row + low * next_rho), u8(row + high * next_rho)
                if thins:
                    for i in range(u8(cells)):
                        after[c + i] = before[c + i] - rate_low * (flux[face + i] - flux[last_face + i])
                for i in range(u8(cells)):
                    wind, below, above = flux[face + i], before[lower + i] + base_low, before[upper + i] + base_high
                    forward = wind > 0.0
                    share[i] = abs(wind) * (rate_low if forward else rate_high) / (below if forward else above)
                for tracer in range(kinds):
                    start, s = row_q + tracer * levels * plane_q, u8((beside * kinds + tracer) * wide_q)
                    for m in range(-2, 1 if step == 0 and bounded else -2):
                        x, y, z = (
                            u8(start + min(max(m - 1, first), last) * next_q),
                            u8(start + min(max(m, first), last) * next_q),
                            u8(start + min(max(m + 1, first), last) * next_q),
                        )
                        for i in range(u8(cells)):
                            new = slope(q[x + i], q[y + i], q[z + i])
                            behind[s + i] = near[s + i]
                            near[s + i] = edge(q[x + i], q[y + i], bent[s + i], new)
                            bent[s + i] = new
                    b, d, at = u8(start + low * next_q), u8(start + high * next_q), u8(start + home * next_q)
                    e, f = u8(start + min(step + 1, last) * next_q), u8(start + min(step + 2, last) * next_q)
                    if bounded:
                        for i in range(u8(cells)):
                            under, over, ahead, wind = q[b + i], q[d + i], q[e + i], flux[face + i]
                            new = slope(over, ahead, q[f + i])
                            far_low, middle, far_high = behind[s + i], near[s + i], edge(over, ahead, bent[s + i], new)
                            bent[s + i] = new
                            behind[s + i] = middle
                            near[s + i] = far_high
                            forward = wind > 0.0
                            far, here = far_low if forward else far_high, under if forward else over
                            now = wind * between(far, here, middle, share[i])
                            change = rate_low * (now - carried[s + i])
                            carried[s + i] = now
                            out[at + i] = ((before[c + i] + base_low) * q[at + i] - change) / (after[c + i] + base_low)
                    else:
                        x, y = (u8(start + max(step - 3, first) * next_q), u8(start + max(step - 2, first) * next_q))
                        for i in range(u8(cells)):
                            now = _passes(
                                q[x + i], q[y + i], q[b + i], q[d + i], q[e + i], q[f + i], flux[face + i], share[i]
                            )
                            change = rate_low * (now - carried[s + i])
                            carried[s + i] = now
                            out[at + i] = ((before[c + i] + base_low) * q[at + i] - change) / (after[c + i] + base_low)


@inlined(math=STRICT)
def _passes(q0, q1, q2, q3, q4, q5, wind, share):
    """What passes a face in the middle of six cells, by an unlimited parabola."""
    forward = wind > 0.0
    a, b, c = q0 if forward else q5, q1 if forward else q4, q2 if forward else q3
    d, e = q3 if forward else q2, q4 if forward else q1
    return wind * linear(a, b, c, d, e, share)


@jit(math=STRICT)
def borrow(tracers, density):
    kinds, nz, tall, wide = tracers.shape
    halo = REACH + (density.shape[3] - tracers.shape[3]) // 2
    for part in range(kinds):
        for turn in range(2 * nz - 2):
            k = nz - 1 - turn if turn < nz - 1 else turn - nz + 1
            other = k - 1 if turn < nz - 1 else k + 1
            for j in range(REACH, tall - REACH):
                row = j + halo - REACH
                for i in range(REACH, wide - REACH):
                    lack = min(tracers[part, k, j, i], 0.0)
                    share = density[0, k, row, i + halo - REACH] / density[0, other, row, i + halo - REACH]
                    tracers[part, other, j, i] += lack * share
                    tracers[part, k, j, i] -= lack
        for j in range(REACH, tall - REACH):
            row = j + halo - REACH
            for i in range(REACH, wide - REACH):
                lack = min(tracers[part, nz - 1, j, i], 0.0)
                share = density[0, nz - 1, row, i + halo - REACH] / density[0, 0, row, i + halo - REACH]
                tracers[part, nz - 1, j, i] -= lack
                tracers[0, 0, j, i] += lack * share
