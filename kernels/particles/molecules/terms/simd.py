"""Angles, dihedrals and impropers, Numba: plain loops over terms. What the functions compute is said in `reference`."""

from __future__ import annotations

from functools import cache
from typing import Any

from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.particles.molecules.bonds.simd import nearest_slot
from hpckit.kernels.particles.molecules.terms.forms import bending, turning


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
    forces_of = bending(kind) if name == "angles" else turning(name, kind)

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
            energy, fx, fy, fz, hx, hy, hz = forces_of(ax, ay, az, bx, by, bz, p)
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
            give(i, own, 0.5, energy, fx, fy, fz, virial, *out)
            give(j, own, 0.5, energy, cx - fx, cy - fy, cz - fz, virial, *out)
            give(m, own, 0.5, energy, mx, my, mz, virial, *out)
            give(n, own, 0.5, energy, lx, ly, lz, virial, *out)

    return jit(bend if name == "angles" else turn, key=("terms", name, kind, measure), borrowed=True)


def add_terms(  # type: ignore[no-untyped-def]
    name, kind, measure, own, positions, bounds, found, kinds, parameters, forces, tallies, energies
) -> None:
    """See `reference.add_terms`."""
    term_kernel(name, kind, measure)(own, positions, found, kinds, parameters, forces, tallies, energies)
