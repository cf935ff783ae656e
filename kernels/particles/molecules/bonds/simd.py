"""Bonds, Numba: plain loops, since a particle has one or two. What the functions compute is said in `reference`."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.particles.molecules.bonds.forms import FORMS
from hpckit.kernels.particles.pair.reference import TALLY

STAGE = 256  # slots, whose entries stay in the first-level cache


@jit
def index_slots(ids, slots, head, following):
    """See `reference.index_slots`."""
    head[:] = -1
    for s in range(slots):
        g = int(ids[s])
        if g >= 0:
            following[s] = head[g]
            head[g] = s


@inlined
def nearest_slot(positions, x, y, z, slot, following):
    """Of the slots with the particle of `slot` that nearest to a place; -1 for no slot."""
    if slot < 0 or following[slot] < 0:
        return slot
    nearest, gap = -1, np.inf
    while slot >= 0:
        dx, dy, dz = positions[slot, 0] - x, positions[slot, 1] - y, positions[slot, 2] - z
        r2 = dx * dx + dy * dy + dz * dz
        if r2 < gap:
            nearest, gap = slot, r2
        slot = following[slot]
    return nearest


@jit(noalias=True)
def attach(positions, ids, slots, own, starts, others, kinds, head, following, bounds, partners, partner_kinds):
    """See `reference.attach`; stage by stage for some slots, whose places in memory are then all asked for at once."""
    count = 0
    for first in range(0, own, STAGE):
        stop, begin = min(own, first + STAGE), count
        for s in range(np.uint64(first), np.uint64(stop)):
            bounds[s] = count
            if ids[s] >= 0:
                g = np.uint64(np.int64(ids[s]))
                for k in range(starts[g], starts[g + np.uint64(1)]):
                    partners[np.uint64(count)] = k
                    count += 1
        bounds[stop] = count
        for entry in range(np.uint64(begin), np.uint64(count)):
            given = np.uint64(partners[entry])
            partners[entry], partner_kinds[entry] = others[given], kinds[given]
        for entry in range(np.uint64(begin), np.uint64(count)):
            partners[entry] = head[np.uint64(partners[entry])]
        for s in range(np.uint64(first), np.uint64(stop)):
            for entry in range(np.uint64(bounds[s]), np.uint64(bounds[s + np.uint64(1)])):
                slot = partners[entry]
                if slot < 0:
                    return np.int64(ids[s])
                if following[np.uint64(slot)] >= 0:
                    x, y, z = positions[s, 0], positions[s, 1], positions[s, 2]
                    partners[entry] = nearest_slot(positions, x, y, z, slot, following)
    bounds[own] = count
    return -1


@cache
def bond_kernel(name: str, measure: bool) -> Any:
    """The kernel (slots, positions, bounds, partners, kinds, parameters, forces, tallies), which adds the forces of
    bonds of a form; see `reference.forces_of_bonds`. measure: tallies too.
    """
    both = FORMS[name]

    def bonds(slots, positions, bounds, partners, kinds, parameters, forces, tallies):
        for s in range(np.uint64(slots)):  # a signed index may be negative: the test for it takes a tenth of the time
            first, stop = np.uint64(bounds[s]), np.uint64(bounds[s + np.uint64(1)])
            if first == stop:
                continue
            x, y, z = positions[s, 0], positions[s, 1], positions[s, 2]
            fx, fy, fz, total = 0.0, 0.0, 0.0, 0.0
            xx, yy, zz, xy, xz, yz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for k in range(first, stop):
                j = np.uint64(partners[k])
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


def add_bonds(name, measure, slots, positions, bounds, partners, kinds, parameters, forces, tallies) -> None:  # type: ignore[no-untyped-def]
    """See `reference.add_bonds`."""
    bond_kernel(name, measure)(slots, positions, bounds, partners, kinds, parameters, forces, tallies)
