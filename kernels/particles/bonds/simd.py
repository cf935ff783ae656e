"""Bonds, Numba: plain loops, since a particle has one or two. What the functions compute is said in `reference`."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile.jit import jit
from hpckit.kernels.particles.bonds.forms import FORMS
from hpckit.kernels.particles.pair.reference import TALLY


@jit
def attach(positions, ids, slots, own, starts, others, kinds, head, following, bounds, partners, partner_kinds):
    """See `reference.attach`."""
    head[:] = -1
    for s in range(slots):
        g = int(ids[s])
        if g >= 0:
            following[s] = head[g]
            head[g] = s
    count = 0
    for s in range(own):
        bounds[s] = count
        g = int(ids[s])
        if g < 0:
            continue
        for k in range(starts[g], starts[g + 1]):
            nearest, gap = -1, np.inf
            t = head[others[k]]
            while t >= 0:
                dx, dy = positions[t, 0] - positions[s, 0], positions[t, 1] - positions[s, 1]
                dz = positions[t, 2] - positions[s, 2]
                r2 = dx * dx + dy * dy + dz * dz
                if r2 < gap:
                    nearest, gap = t, r2
                t = following[t]
            if nearest < 0:
                return g
            partners[count], partner_kinds[count] = nearest, kinds[k]
            count += 1
    bounds[own] = count
    return -1


@cache
def bond_kernel(name: str, measure: bool) -> Any:
    """The kernel (slots, positions, bounds, partners, kinds, parameters, forces, tallies), which adds the forces of
    bonds of a form; see `reference.forces_of_bonds`. measure: tallies too.
    """
    both = FORMS[name]

    def bonds(slots, positions, bounds, partners, kinds, parameters, forces, tallies):
        for s in range(slots):
            if bounds[s] == bounds[s + 1]:
                continue
            x, y, z = positions[s, 0], positions[s, 1], positions[s, 2]
            fx, fy, fz, total = 0.0, 0.0, 0.0, 0.0
            xx, yy, zz, xy, xz, yz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for k in range(bounds[s], bounds[s + 1]):
                j = partners[k]
                dx, dy, dz = x - positions[j, 0], y - positions[j, 1], z - positions[j, 2]
                r2 = dx * dx + (dy * dy + dz * dz)
                energy, f = both(r2, parameters[kinds[k]])
                gx, gy, gz = f * dx, f * dy, f * dz
                fx, fy, fz = fx + gx, fy + gy, fz + gz
                if measure:
                    total += energy
                    xx, yy, zz = xx + gx * dx, yy + gy * dy, zz + gz * dz
                    xy, xz, yz = xy + gx * dy, xz + gx * dz, yz + gy * dz
            forces[s, 0] += fx
            forces[s, 1] += fy
            forces[s, 2] += fz
            if measure:
                sums = total, xx, yy, zz, xy, xz, yz, total
                for column in range(TALLY):
                    tallies[s, column] += sums[column]

    return jit(bonds, key=("bonds", name, measure))
