"""Charged pairs, Numba: a loop over full neighbor lists made for a potential, a screening, an instruction set and a
precision. What the functions compute is said in `reference`.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile import intrinsics
from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.particles.cells.constants import CLUSTER, RECORD
from hpckit.kernels.particles.charged.screening import by_inverse, count_of, functions
from hpckit.kernels.particles.loops import AHEAD, REORDERED, pieces, sums, type_of_double
from hpckit.kernels.particles.pair.potential import CUTOFF2, SHIFT, Form, Potential
from hpckit.kernels.particles.pair.reference import TALLY, VIRIAL
from hpckit.kernels.particles.pair.simd import lookup_pieces


@cache
def force_kernel(potential: Potential, form: Form, kind: tuple) -> Any:
    """The kernel forces(clusters, records, start, entries, table, charges, constants, forces, tallies, energies); see
    `reference.forces_of_pairs`.

    All arrays are flat; records, table, charges and constants are float32 where form.kind is "f".
    """
    n, number = form.lanes, np.float32 if form.kind == "f" else np.float64
    load, row_of, parameters_of, broadcast, zero_unless, minimum, prefetch = lookup_pieces(potential, form)
    load_each = pieces(form).load_each
    nothing, add, store, total = sums(form)
    pair_force, pair_both = potential.force, potential.energy_and_force
    charge_force, charge_both = functions(*kind)
    constants_of = intrinsics.numbers(count_of(*kind))
    one_cutoff = form.one_cutoff

    @inlined
    def own_limit(p, common):
        return p[CUTOFF2]

    @inlined
    def common_limit(p, common):
        return common

    limit_of = common_limit if one_cutoff else own_limit

    def forces(clusters, records, start, entries, table, charges, constants, forces, tallies, energies):
        common, c = broadcast(table[CUTOFF2]), constants_of(constants, 0)
        reach2 = broadcast(c[0])
        for cluster in clusters:
            for i in range(CLUSTER * cluster, CLUSTER * cluster + CLUSTER):
                own = RECORD * i
                x, y, z = broadcast(records[own]), broadcast(records[own + 1]), broadcast(records[own + 2])
                charge, row = broadcast(charges[i]), row_of(table, records, own)
                fx, fy, fz = nothing(), nothing(), nothing()
                for k in range(start[i], start[i + 1], n):
                    prefetch(entries, k + AHEAD)
                    other_x, other_y, other_z, w = load(records, entries, k)
                    product = charge * load_each(charges, entries, k)
                    dx, dy, dz = x - other_x, y - other_y, z - other_z
                    r2 = dx * dx + (dy * dy + dz * dz)
                    p = parameters_of(table, row, w)
                    limit = limit_of(p, common)
                    f = zero_unless(r2 < limit, pair_force(minimum(r2, limit), p))
                    f = f + zero_unless(r2 < reach2, product * charge_force(minimum(r2, reach2), c))
                    fx, fy, fz = add(fx, f, dx), add(fy, f, dy), add(fz, f, dz)
                store(forces, own, fx, fy, fz, nothing())

    def measure(clusters, records, start, entries, table, charges, constants, forces, tallies, energies):
        common, c = broadcast(table[CUTOFF2]), constants_of(constants, 0)
        reach2, one = broadcast(c[0]), broadcast(number(1.0))
        for cluster in clusters:
            for i in range(CLUSTER * cluster, CLUSTER * cluster + CLUSTER):
                own = RECORD * i
                x, y, z = broadcast(records[own]), broadcast(records[own + 1]), broadcast(records[own + 2])
                charge, row = broadcast(charges[i]), row_of(table, records, own)
                fx, fy, fz, energy, of_charges = nothing(), nothing(), nothing(), nothing(), nothing()
                xx, yy, zz = nothing(), nothing(), nothing()
                xy, xz, yz = nothing(), nothing(), nothing()
                for k in range(start[i], start[i + 1], n):
                    other_x, other_y, other_z, w = load(records, entries, k)
                    product = charge * load_each(charges, entries, k)
                    dx, dy, dz = x - other_x, y - other_y, z - other_z
                    r2 = dx * dx + (dy * dy + dz * dz)
                    p = parameters_of(table, row, w)
                    limit = limit_of(p, common)
                    e, f = pair_both(minimum(r2, limit), p)
                    within, near = r2 < limit, r2 < reach2
                    e, f = zero_unless(within, e - p[SHIFT]), zero_unless(within, f)
                    u, g = charge_both(minimum(r2, reach2), c)
                    u, f = zero_unless(near, product * u), f + zero_unless(near, product * g)
                    energy, of_charges = add(energy, e, one), add(of_charges, u, one)
                    fx, fy, fz = add(fx, f, dx), add(fy, f, dy), add(fz, f, dz)
                    xx, yy, zz = add(xx, f * dx, dx), add(yy, f * dy, dy), add(zz, f * dz, dz)
                    xy, xz, yz = add(xy, f * dx, dy), add(xz, f * dx, dz), add(yz, f * dy, dz)
                store(forces, own, fx, fy, fz, nothing())
                store(tallies, TALLY * i, energy, xx, yy, zz)
                store(tallies, TALLY * i + 4, xy, xz, yz, nothing())
                energies[i] = total(of_charges)
                tallies[TALLY * i] += energies[i]

    key = None if None in potential.key else ("charged", potential.key, form, kind)
    return jit(measure if form.measure else forces, key=key, math=REORDERED)


@jit
def choose_partners(starts, partners, kinds, wanted, once, chosen_starts, chosen, chosen_kinds):
    """See `reference.choose_partners`."""
    own, count = len(starts) - 1, 0
    for s in range(own):
        chosen_starts[s] = count
        for k in range(starts[s], starts[s + 1]):
            if wanted[kinds[k]] and not (once and partners[k] < s):
                chosen[count], chosen_kinds[count] = partners[k], kinds[k]
                count += 1
    chosen_starts[own] = count


@cache
def partner_kernel(potential: Potential, kind: tuple, of_each: bool) -> Any:
    """The kernel (slots, positions, starts, partners, kinds, table, charges, constants, shares, forces, tallies,
    energies, measure, once), which adds what partners have; see `reference.forces_of_partners`. of_each: tallies and
    energies of each slot, too; without, the virial of all is added to the tallies of the first slot where `measure` is
    set.
    """
    pair_force, pair_both = potential.force, potential.energy_and_force
    charge_force, charge_both = by_inverse(*kind)
    constants_of = intrinsics.numbers(count_of(*kind))
    parameters = intrinsics.numbers(potential.parameters)

    def partners_of(
        slots, positions, starts, partners, kinds, table, charges, constants, shares,
        forces, tallies, energies, measure, once,
    ):  # fmt: skip
        c, types, flat = constants_of(constants, 0), table.shape[0], table.reshape(-1)
        xx, yy, zz, xy, xz, yz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for s in range(slots):
            if starts[s] == starts[s + 1]:
                continue
            fx, fy, fz, own_charge, own_energy = 0.0, 0.0, 0.0, 0.0, 0.0
            if of_each:
                xx, yy, zz, xy, xz, yz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            x, y, z, row = positions[s, 0], positions[s, 1], positions[s, 2], type_of_double(positions[s, 3]) * types
            for k in range(starts[s], starts[s + 1]):
                j, share = partners[k], shares[kinds[k], 0]
                dx, dy, dz = x - positions[j, 0], y - positions[j, 1], z - positions[j, 2]
                r2 = dx * dx + (dy * dy + dz * dz)
                energy, f, of_charge = 0.0, 0.0, 0.0
                if share != 0.0:
                    p = parameters(flat, (row + type_of_double(positions[j, 3])) * table.shape[2])
                    if r2 < p[CUTOFF2]:
                        if of_each:
                            e, g = pair_both(r2, p)
                            energy, f = share * (e - p[SHIFT]), share * g
                        else:
                            f = share * pair_force(r2, p)
                if r2 < c[0]:
                    y1 = 1.0 / math.sqrt(r2)
                    product, whole = charges[s] * charges[j], (1.0 - shares[kinds[k], 1]) * y1
                    if of_each:
                        u, g = charge_both(y1, r2, c)
                        of_charge = product * (u - whole)
                    else:
                        g = charge_force(y1, r2, c)
                    f = f + product * (g - whole * (y1 * y1))
                gx, gy, gz = f * dx, f * dy, f * dz
                fx, fy, fz, both = fx + gx, fy + gy, fz + gz, once and j < slots
                if both:
                    forces[j, 0] -= gx
                    forces[j, 1] -= gy
                    forces[j, 2] -= gz
                ax, ay, az = gx, gy, gz
                if of_each:
                    own_charge, own_energy = own_charge + of_charge, own_energy + (energy + of_charge)
                elif both:
                    ax, ay, az = 2.0 * gx, 2.0 * gy, 2.0 * gz
                xx, yy, zz = xx + ax * dx, yy + ay * dy, zz + az * dz
                xy, xz, yz = xy + ax * dy, xz + ax * dz, yz + ay * dz
                if of_each and both:
                    energies[j] += of_charge
                    parts = energy + of_charge, gx * dx, gy * dy, gz * dz, gx * dy, gx * dz, gy * dz
                    for column in range(7):
                        tallies[j, column] += parts[column]
            forces[s, 0] += fx
            forces[s, 1] += fy
            forces[s, 2] += fz
            if of_each:
                energies[s] += own_charge
                sums = own_energy, xx, yy, zz, xy, xz, yz
                for column in range(7):
                    tallies[s, column] += sums[column]
        if measure and not of_each and slots > 0:
            every = xx, yy, zz, xy, xz, yz
            for column in range(6):
                tallies[0, 1 + column] += every[column]

    key = None if None in potential.key else ("partners", potential.key, kind, of_each)
    return jit(partners_of, key=key, borrowed=True)


def add_partners(  # type: ignore[no-untyped-def]
    potential, kind, slots, positions, starts, partners, kinds, table, charges, constants, shares, forces, tallies,
    energies, measure, once,
) -> None:  # fmt: skip
    """See `reference.add_partners`."""
    given = starts, partners, kinds, table, charges, constants, shares
    kernel = partner_kernel(potential, kind, bool(measure) and measure != VIRIAL)
    kernel(slots, positions, *given, forces, tallies, energies, bool(measure), once)
