"""Angles, dihedrals and impropers, Numba: eight terms at a time, each in a lane. What the functions compute is said in
`reference`.

Forces are added term by term in their order, so it does not matter which terms are computed together.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import hpckit.kernels.compile.functions  # noqa: F401  (functions of vectors)
from hpckit.kernels.compile import intrinsics
from hpckit.kernels.compile import lanes as vectors
from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.particles.molecules.bonds.simd import nearest_slot
from hpckit.kernels.particles.molecules.terms.forms import bending, maxima, turning
from hpckit.kernels.particles.pair.reference import VIRIAL

LANES = 8
MANY, ONE = vectors.lanes("w", LANES), vectors.lanes("w", 4)  # numbers of terms, and a record


@jit
def find_terms(positions, ids, slots, own, starts, which, rows, head, following, found, numbers):
    """See `reference.find_terms`."""
    count, size = 0, rows.shape[1] - 1
    for s in range(own):
        g = int(ids[s])
        if g < 0:
            continue
        x, y, z = positions[s, 0], positions[s, 1], positions[s, 2]
        for k in range(starts[g], starts[g + 1]):
            first = -1
            for place in range(size):
                other = rows[which[k], 1 + place]
                nearest = s if other == g else nearest_slot(positions, x, y, z, head[other], following)
                if nearest < 0:
                    return -1 - g
                found[count, place] = nearest
                if first < 0 and nearest < own:
                    first = nearest
                    if first != s:  # it is found from there
                        break
            if first == s:
                numbers[count] = which[k]
                count += 1
    return count


@jit
def order_terms(count, found, numbers, after, found_sorted, numbers_sorted):
    """See `reference.order_terms`."""
    after[:] = 0
    for k in range(count):
        after[numbers[k] + 1] += 1
    for term in range(len(after) - 1):
        after[term + 1] += after[term]
    for k in range(count):
        place = after[numbers[k]]
        after[numbers[k]] += 1
        numbers_sorted[place] = numbers[k]
        for member in range(found.shape[1]):
            found_sorted[place, member] = found[k, member]


@cache
def term_kernel(name: str, kind: str, of_each: bool) -> Any:
    """The kernel (own, positions, found, kinds, parameters, most, forces, tallies, energies, measure), which adds the
    forces of terms; see `reference.forces_of_terms`. Arrays are flat; most: of `forms.maxima`. of_each: tallies and
    energies of each slot, too; without, the virial of all is added to the tallies of the first slot where `measure` is
    set.
    """
    n, size = LANES, 3 if name == "angles" else 4
    share, block = 2.0 / size, 4 * LANES
    load_records, load_row, load, store = MANY.load_records, MANY.load_records_w, MANY.load, intrinsics.store
    load_record, store_records, total = ONE.load, MANY.store_records, intrinsics.sum_lanes
    forces_of = bending(kind) if size == 3 else turning(name, kind)

    @inlined
    def bend(positions, places, p, most, pushes, parts):
        ix, iy, iz = load_records(positions, places, 0)
        jx, jy, jz = load_records(positions, places, n)
        mx, my, mz = load_records(positions, places, 2 * n)
        ax, ay, az, bx, by, bz = ix - jx, iy - jy, iz - jz, mx - jx, my - jy, mz - jz
        energy, fx, fy, fz, hx, hy, hz = forces_of(ax, ay, az, bx, by, bz, p, most)
        store_records(pushes, 0, fx, fy, fz)
        store_records(pushes, block, -(fx + hx), -(fy + hy), -(fz + hz))
        store_records(pushes, 2 * block, hx, hy, hz)
        store(parts, 0, energy)
        store(parts, n, ax * fx + bx * hx)
        store(parts, 2 * n, ay * fy + by * hy)
        store(parts, 3 * n, az * fz + bz * hz)
        store(parts, 4 * n, ax * fy + bx * hy)
        store(parts, 5 * n, ax * fz + bx * hz)
        store(parts, 6 * n, ay * fz + by * hz)

    @inlined
    def turn(positions, places, p, most, pushes, parts):
        ix, iy, iz = load_records(positions, places, 0)
        jx, jy, jz = load_records(positions, places, n)
        mx, my, mz = load_records(positions, places, 2 * n)
        nx, ny, nz = load_records(positions, places, 3 * n)
        ux, uy, uz, gx, gy, gz = ix - jx, iy - jy, iz - jz, jx - mx, jy - my, jz - mz
        hx, hy, hz = nx - mx, ny - my, nz - mz
        there = forces_of(ux, uy, uz, gx, gy, gz, hx, hy, hz, p, most)
        energy, fx, fy, fz, cx, cy, cz, px, py, pz, lx, ly, lz = there
        store_records(pushes, 0, fx, fy, fz)
        store_records(pushes, block, cx - fx, cy - fy, cz - fz)
        store_records(pushes, 2 * block, px, py, pz)
        store_records(pushes, 3 * block, lx, ly, lz)
        ex, ey, ez = hx - gx, hy - gy, hz - gz
        store(parts, 0, energy)
        store(parts, n, ux * fx - gx * px + ex * lx)
        store(parts, 2 * n, uy * fy - gy * py + ey * ly)
        store(parts, 3 * n, uz * fz - gz * pz + ez * lz)
        store(parts, 4 * n, ux * fy - gx * py + ex * ly)
        store(parts, 5 * n, ux * fz - gx * pz + ex * lz)
        store(parts, 6 * n, uy * fz - gy * pz + ey * lz)

    compute = bend if size == 3 else turn

    def terms(own, positions, found, kinds, parameters, most, forces, tallies, energies, measure):
        places, rows, weights = np.empty(size * n, np.int32), np.empty(n, np.int32), np.empty(n)
        # Of eight terms: forces, each term's at place, 4 lane + dim; energies and virials; and the sums of these.
        pushes, parts, sums = np.empty(size * block), np.empty(7 * n), np.zeros(7 * n)
        for first in range(0, len(kinds), n):
            count = min(n, len(kinds) - first)
            for lane in range(n):  # the last term fills up the lanes
                k, there = first + min(lane, count - 1), 0
                for place in range(size):
                    slot = found[size * k + place]
                    places[n * place + lane] = 4 * slot
                    there += slot < own
                rows[lane] = 4 * kinds[k]
                weights[lane] = share * there if lane < count else 0.0
            compute(positions, places, load_row(parameters, rows, 0), most, pushes, parts)
            for lane in range(count):
                for place in range(size):
                    at = places[n * place + lane]
                    if at < 4 * own:
                        store(forces, at, load_record(forces, at) + load_record(pushes, block * place + 4 * lane))
                        if of_each:
                            energies[at // 4] += share * parts[lane]
                            tallies[2 * at + 7] += share * parts[lane]
                            for row in range(7):
                                tallies[2 * at + row] += share * parts[n * row + lane]
            if measure and not of_each:
                for row in range(1, 7):
                    store(sums, n * row, load(sums, n * row) + load(weights, 0) * load(parts, n * row))
        if measure and not of_each and own > 0:
            for row in range(1, 7):
                tallies[row] += total(load(sums, n * row))

    return jit(terms, key=("terms", name, kind, of_each))


def add_terms(  # type: ignore[no-untyped-def]
    name, kind, measure, own, positions, bounds, found, kinds, parameters, forces, tallies, energies
) -> None:
    """See `reference.add_terms`."""
    kernel = term_kernel(name, kind, bool(measure) and measure != VIRIAL)
    given = positions.reshape(-1), found.reshape(-1), kinds, parameters.reshape(-1), maxima(name, kind, parameters)
    kernel(own, *given, forces.reshape(-1), tallies.reshape(-1), energies, bool(measure))
