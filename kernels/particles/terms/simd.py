"""Angles, dihedrals and impropers, Numba: plain loops over terms. What the functions compute is said in `reference`."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.particles.terms.forms import FORMS


@jit
def find_terms(positions, ids, slots, own, starts, which, rows, head, following, found, numbers):
    """See `reference.find_terms`."""
    head[:] = -1
    for s in range(slots):
        g = int(ids[s])
        if g >= 0:
            following[s] = head[g]
            head[g] = s
    count, size = 0, rows.shape[1] - 1
    for s in range(own):
        g = int(ids[s])
        if g < 0:
            continue
        for k in range(starts[g], starts[g + 1]):
            first = -1
            for place in range(size):
                other = rows[which[k], 1 + place]
                nearest, gap = s if other == g else -1, np.inf
                t = head[other] if other != g else -1
                while t >= 0:
                    dx, dy = positions[t, 0] - positions[s, 0], positions[t, 1] - positions[s, 1]
                    dz = positions[t, 2] - positions[s, 2]
                    r2 = dx * dx + dy * dy + dz * dz
                    if r2 < gap:
                        nearest, gap = t, r2
                    t = following[t]
                if nearest < 0:
                    return -1 - g
                found[count, place] = nearest
                if first < 0 and nearest < own:
                    first = nearest
            if first == s:
                numbers[count] = which[k]
                count += 1
    return count


@inlined
def apart(positions, i, j):
    """The way from particle j to particle i."""
    return positions[i, 0] - positions[j, 0], positions[i, 1] - positions[j, 1], positions[i, 2] - positions[j, 2]


@cache
def term_kernel(name: str, kind: str, measure: bool) -> Any:
    """The kernel (own, positions, found, kinds, parameters, forces, tallies, energies), which adds the forces of terms;
    see `reference.forces_of_terms`. measure: tallies and energies too.
    """
    form, urey_bradley = FORMS[name][kind], kind == "charmm"

    def give(s, own, share, energy, fx, fy, fz, virial, forces, tallies, energies):
        if s < own:
            forces[s, 0] += fx
            forces[s, 1] += fy
            forces[s, 2] += fz
            if measure:
                part = share * energy
                tallies[s, 0] += part
                tallies[s, 7] += part
                energies[s] += part
                for column in range(6):
                    tallies[s, 1 + column] += share * virial[column]

    give = jit(give, key=("give", measure), borrowed=True)

    def bend(own, positions, found, kinds, parameters, forces, tallies, energies):
        out = forces, tallies, energies
        for k in range(len(found)):
            i, j, m, p = found[k, 0], found[k, 1], found[k, 2], parameters[kinds[k]]
            ax, ay, az = apart(positions, i, j)
            bx, by, bz = apart(positions, m, j)
            aa, bb = ax * ax + ay * ay + az * az, bx * bx + by * by + bz * bz
            ab = 1.0 / math.sqrt(aa * bb)
            c = min(1.0, max(-1.0, (ax * bx + ay * by + az * bz) * ab))
            energy, slope = form(math.acos(c), p)
            pull = slope / max(math.sqrt(1.0 - c * c), 1e-3)
            across, own_a, own_b = pull * ab, -pull * c / aa, -pull * c / bb
            fx, fy, fz = across * bx + own_a * ax, across * by + own_a * ay, across * bz + own_a * az
            hx, hy, hz = across * ax + own_b * bx, across * ay + own_b * by, across * az + own_b * bz
            if urey_bradley:
                dx, dy, dz = ax - bx, ay - by, az - bz
                r = math.sqrt(dx * dx + dy * dy + dz * dz)
                away = r - p[3]
                energy += p[2] * away * away
                along = -2.0 * p[2] * away / r
                fx, fy, fz = fx + along * dx, fy + along * dy, fz + along * dz
                hx, hy, hz = hx - along * dx, hy - along * dy, hz - along * dz
            virial = (
                ax * fx + bx * hx,
                ay * fy + by * hy,
                az * fz + bz * hz,
                ax * fy + bx * hy,
                ax * fz + bx * hz,
                ay * fz + by * hz,
            )
            give(i, own, 2.0 / 3.0, energy, fx, fy, fz, virial, *out)
            give(j, own, 2.0 / 3.0, energy, -(fx + hx), -(fy + hy), -(fz + hz), virial, *out)
            give(m, own, 2.0 / 3.0, energy, hx, hy, hz, virial, *out)

    def turn(own, positions, found, kinds, parameters, forces, tallies, energies):
        out = forces, tallies, energies
        for k in range(len(found)):
            i, j, m, n = found[k, 0], found[k, 1], found[k, 2], found[k, 3]
            ux, uy, uz = apart(positions, i, j)
            gx, gy, gz = apart(positions, j, m)
            hx, hy, hz = apart(positions, n, m)
            ax, ay, az = uy * gz - uz * gy, uz * gx - ux * gz, ux * gy - uy * gx
            bx, by, bz = hy * gz - hz * gy, hz * gx - hx * gz, hx * gy - hy * gx
            length = math.sqrt(gx * gx + gy * gy + gz * gz)
            shorter = 1.0 / length
            sx, sy, sz = by * az - bz * ay, bz * ax - bx * az, bx * ay - by * ax
            sine, cosine = (sx * gx + sy * gy + sz * gz) * shorter, ax * bx + ay * by + az * bz
            scale = 1.0 / math.sqrt(sine * sine + cosine * cosine)
            energy, slope = form(cosine * scale, sine * scale, parameters[kinds[k]])
            aa, bb = 1.0 / (ax * ax + ay * ay + az * az), 1.0 / (bx * bx + by * by + bz * bz)
            first, last = slope * length * aa, -slope * length * bb
            by_a = -slope * (ux * gx + uy * gy + uz * gz) * shorter * aa
            by_b = slope * (hx * gx + hy * gy + hz * gz) * shorter * bb
            fx, fy, fz = first * ax, first * ay, first * az
            lx, ly, lz = last * bx, last * by, last * bz
            cx, cy, cz = by_a * ax + by_b * bx, by_a * ay + by_b * by, by_a * az + by_b * bz
            mx, my, mz = -lx - cx, -ly - cy, -lz - cz
            ex, ey, ez = hx - gx, hy - gy, hz - gz
            virial = (
                ux * fx - gx * mx + ex * lx,
                uy * fy - gy * my + ey * ly,
                uz * fz - gz * mz + ez * lz,
                ux * fy - gx * my + ex * ly,
                ux * fz - gx * mz + ex * lz,
                uy * fz - gy * mz + ey * lz,
            )
            give(i, own, 0.5, energy, fx, fy, fz, virial, *out)
            give(j, own, 0.5, energy, cx - fx, cy - fy, cz - fz, virial, *out)
            give(m, own, 0.5, energy, mx, my, mz, virial, *out)
            give(n, own, 0.5, energy, lx, ly, lz, virial, *out)

    return jit(bend if name == "angles" else turn, key=("terms", name, kind, measure), borrowed=True)
