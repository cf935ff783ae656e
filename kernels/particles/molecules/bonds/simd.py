"""Bonds, Numba. What the functions compute is said in `reference`.

A particle has one or two, too few for a loop over them to be quick: the vectors of the bonds of some slots are put side
by side first, then forces along these are computed in a loop that vectorizes, and added to the slots.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile.intrinsics import numbers
from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.particles.molecules.bonds.forms import FORMS, NAMES
from hpckit.kernels.particles.pair.reference import TALLY

STAGE = 256  # slots, whose entries stay in the first-level cache
BLOCK = 64  # bonds, always computed whole: the bits of one then depend on itself alone


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
    both, count, wide = FORMS[name], len(NAMES[name]), np.uint64(BLOCK)
    row = np.uint64(count * BLOCK)
    of_block = numbers(count, BLOCK)

    def bonds(slots, positions, bounds, partners, kinds, parameters, forces, tallies):
        most, several = BLOCK, len(parameters) > 1
        for first in range(0, slots, STAGE):
            most = max(most, bounds[min(slots, first + STAGE)] - bounds[first] + BLOCK)
        xs, ys, zs, pulls, energies = np.ones(most), np.ones(most), np.ones(most), np.ones(most), np.ones(most)
        given = np.empty((most // BLOCK + 1) * count * BLOCK)  # parameters of each bond: [block, parameter, bond]
        for k in range(len(given)):
            given[k] = parameters[0, k // BLOCK % count]
        for first in range(0, slots, STAGE):
            stop, begin = min(slots, first + STAGE), bounds[first]
            # A signed index may be negative: the test for that takes a tenth of the time.
            for s in range(np.uint64(first), np.uint64(stop)):
                x, y, z = positions[s, 0], positions[s, 1], positions[s, 2]
                for k in range(np.uint64(bounds[s]), np.uint64(bounds[s + np.uint64(1)])):
                    j, at = np.uint64(partners[k]), k - np.uint64(begin)
                    xs[at], ys[at], zs[at] = x - positions[j, 0], y - positions[j, 1], z - positions[j, 2]
                    if several:
                        own = parameters[kinds[k]]
                        for each in range(np.uint64(count)):
                            given[at // wide * row + each * wide + at % wide] = own[each]
            for block in range(np.uint64(0), np.uint64(bounds[stop] - begin), wide):
                for lane in range(wide):
                    x, y, z = xs[block + lane], ys[block + lane], zs[block + lane]
                    energy, f = both(x * x + (y * y + z * z), of_block(given, np.int64(block // wide * row + lane)))
                    pulls[block + lane] = f
                    if measure:
                        energies[block + lane] = energy
            for s in range(np.uint64(first), np.uint64(stop)):
                if bounds[s] == bounds[s + np.uint64(1)]:
                    continue
                fx, fy, fz, total = 0.0, 0.0, 0.0, 0.0
                xx, yy, zz, xy, xz, yz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
                for k in range(np.uint64(bounds[s]), np.uint64(bounds[s + np.uint64(1)])):
                    at = k - np.uint64(begin)
                    dx, dy, dz, f = xs[at], ys[at], zs[at], pulls[at]
                    gx, gy, gz = f * dx, f * dy, f * dz
                    fx, fy, fz = fx + gx, fy + gy, fz + gz
                    if measure:
                        total += energies[at]
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
