"""Angles, dihedrals and impropers, Numba: plain loops over terms. What the functions compute is said in `reference`."""

from __future__ import annotations

from functools import cache
from typing import Any

from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.particles.molecules.bonds.simd import nearest_slot
from hpckit.kernels.particles.molecules.terms.forms import bending, turning
from hpckit.kernels.particles.pair.reference import VIRIAL


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


@inlined
def apart(positions, i, j):
    """The way from particle j to particle i."""
    return positions[i, 0] - positions[j, 0], positions[i, 1] - positions[j, 1], positions[i, 2] - positions[j, 2]


@inlined
def _sums_with(sums, weight, virial):
    """Six sums, and a virial times a weight."""
    return (
        sums[0] + weight * virial[0],
        sums[1] + weight * virial[1],
        sums[2] + weight * virial[2],
        sums[3] + weight * virial[3],
        sums[4] + weight * virial[4],
        sums[5] + weight * virial[5],
    )


@cache
def term_kernel(name: str, kind: str, of_each: bool) -> Any:
    """The kernel (own, positions, found, kinds, parameters, forces, tallies, energies, measure), which adds the forces
    of terms; see `reference.forces_of_terms`. of_each: tallies and energies of each slot, too; without, the virial of
    all is added to the tallies of the first slot where `measure` is set.
    """
    forces_of = bending(kind) if name == "angles" else turning(name, kind)

    def give(s, own, share, energy, fx, fy, fz, virial, forces, tallies, energies):
        if s < own:
            forces[s, 0] += fx
            forces[s, 1] += fy
            forces[s, 2] += fz
            if of_each:
                part = share * energy
                tallies[s, 0] += part
                tallies[s, 7] += part
                energies[s] += part
                for column in range(6):
                    tallies[s, 1 + column] += share * virial[column]
            return 1.0
        return 0.0

    give = jit(give, key=("give", of_each), borrowed=True)

    def bend(own, positions, found, kinds, parameters, forces, tallies, energies, measure):
        out, sums = (forces, tallies, energies), (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        for k in range(len(found)):
            i, j, m, p = found[k, 0], found[k, 1], found[k, 2], parameters[kinds[k]]
            ax, ay, az = apart(positions, i, j)
            bx, by, bz = apart(positions, m, j)
            energy, fx, fy, fz, hx, hy, hz = forces_of(ax, ay, az, bx, by, bz, p)
            virial = (
                ax * fx + bx * hx,
                ay * fy + by * hy,
                az * fz + bz * hz,
                ax * fy + bx * hy,
                ax * fz + bx * hz,
                ay * fz + by * hz,
            )
            mine = give(i, own, 2.0 / 3.0, energy, fx, fy, fz, virial, *out)
            mine += give(j, own, 2.0 / 3.0, energy, -(fx + hx), -(fy + hy), -(fz + hz), virial, *out)
            mine += give(m, own, 2.0 / 3.0, energy, hx, hy, hz, virial, *out)
            if not of_each:
                sums = _sums_with(sums, mine * (2.0 / 3.0), virial)
        if measure and not of_each and own > 0:
            for column in range(6):
                tallies[0, 1 + column] += sums[column]

    def turn(own, positions, found, kinds, parameters, forces, tallies, energies, measure):
        out, sums = (forces, tallies, energies), (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        for k in range(len(found)):
            i, j, m, n = found[k, 0], found[k, 1], found[k, 2], found[k, 3]
            ux, uy, uz = apart(positions, i, j)
            gx, gy, gz = apart(positions, j, m)
            hx, hy, hz = apart(positions, n, m)
            found_there = forces_of(ux, uy, uz, gx, gy, gz, hx, hy, hz, parameters[kinds[k]])
            energy, fx, fy, fz, cx, cy, cz, mx, my, mz, lx, ly, lz = found_there
            ex, ey, ez = hx - gx, hy - gy, hz - gz
            virial = (
                ux * fx - gx * mx + ex * lx,
                uy * fy - gy * my + ey * ly,
                uz * fz - gz * mz + ez * lz,
                ux * fy - gx * my + ex * ly,
                ux * fz - gx * mz + ex * lz,
                uy * fz - gy * mz + ey * lz,
            )
            mine = give(i, own, 0.5, energy, fx, fy, fz, virial, *out)
            mine += give(j, own, 0.5, energy, cx - fx, cy - fy, cz - fz, virial, *out)
            mine += give(m, own, 0.5, energy, mx, my, mz, virial, *out)
            mine += give(n, own, 0.5, energy, lx, ly, lz, virial, *out)
            if not of_each:
                sums = _sums_with(sums, 0.5 * mine, virial)
        if measure and not of_each and own > 0:
            for column in range(6):
                tallies[0, 1 + column] += sums[column]

    return jit(bend if name == "angles" else turn, key=("terms", name, kind, of_each), borrowed=True)


def add_terms(  # type: ignore[no-untyped-def]
    name, kind, measure, own, positions, bounds, found, kinds, parameters, forces, tallies, energies
) -> None:
    """See `reference.add_terms`."""
    kernel = term_kernel(name, kind, bool(measure) and measure != VIRIAL)
    kernel(own, positions, found, kinds, parameters, forces, tallies, energies, bool(measure))
