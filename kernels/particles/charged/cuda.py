"""Charged pairs on a GPU: one thread a particle over its full list, as of `pair.cuda`. What the functions compute is
said in `reference`.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import Kernel, blocks, cuda, kernel, threads
from hpckit.kernels.particles.cells.reference import Lists
from hpckit.kernels.particles.charged.screening import REACH2, count_of, functions
from hpckit.kernels.particles.cuda_records import (
    add_force,
    add_tallies,
    load_record,
    loader,
    put,
    put_tallies,
    single,
    type_of_double,
)
from hpckit.kernels.particles.pair.cuda import functions_of, lookup_of
from hpckit.kernels.particles.pair.potential import CUTOFF2, SHIFT, Form, Potential

THREADS = threads(128)
u8 = np.uint64


@cache
def force_kernel(potential: Potential, form: Form, kind: tuple) -> Kernel:
    """The kernel (records, slots, entries, stride, lengths, table, types, charges, constants, forces, tallies,
    energies), all arrays flat; see `run`. Without `measure` it writes forces alone.
    """
    force, energy_and_force = functions_of(potential, form)
    charge_force, charge_both = functions(*kind)
    if form.kind == "f":
        charge_force, charge_both = single(charge_force), single(charge_both)
    load_parameters, load_constants = loader(potential.parameters), loader(count_of(*kind))
    parameters = np.uint64(potential.parameters)
    row_of, parameters_of = lookup_of(potential, form)
    nothing = np.float32(0.0) if form.kind == "f" else 0.0
    measure = form.measure

    @kernel
    def forces(
        records, slots, entries, stride, lengths, table, types, charges, constants, forces, tallies, energies
    ):  # fmt: skip
        i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
        if i < u8(slots):
            x, y, z, w = load_record(records, i * u8(4))
            c, charge, row = load_constants(constants, u8(0)), charges[i], row_of(w, types) * parameters
            p = load_parameters(table, row)
            fx, fy, fz, energy, of_charges = 0.0, 0.0, 0.0, 0.0, 0.0
            xx, yy, zz, xy, xz, yz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            at = i
            for _ in range(lengths[i]):
                other = u8(entries[at])
                other_x, other_y, other_z, other_w = load_record(records, other * u8(4))
                at += u8(stride)
                dx, dy, dz = x - other_x, y - other_y, z - other_z
                r2 = dx * dx + (dy * dy + dz * dz)
                p = parameters_of(p, table, row, other_w)
                f = nothing
                if r2 < p[CUTOFF2]:
                    if measure:
                        e, g = energy_and_force(r2, p, table)
                        energy += np.float64(e - p[SHIFT])
                        f += g
                    else:
                        f += force(r2, p, table)
                if r2 < c[REACH2]:
                    product = charge * charges[other]
                    if measure:
                        e, g = charge_both(r2, c)
                        of_charges += np.float64(product * e)
                        f += product * g
                    else:
                        f += product * charge_force(r2, c)
                gx, gy, gz = np.float64(f * dx), np.float64(f * dy), np.float64(f * dz)
                fx, fy, fz = fx + gx, fy + gy, fz + gz
                if measure:
                    xx, yy, zz = xx + gx * dx, yy + gy * dy, zz + gz * dz
                    xy, xz, yz = xy + gx * dy, xz + gx * dz, yz + gy * dz
            put(forces, i, fx, fy, fz)
            if measure:
                energies[i] = of_charges
                put_tallies(tallies, i, energy + of_charges, xx, yy, zz, xy, xz, yz)

    return forces


def run(
    made: Kernel,
    records: Any,
    slots: int,
    lists: Lists,
    table: Any,
    charges: Any,
    constants: Any,
    types: int,
    out: Any,
    tallies: Any,
    energies: Any,
) -> None:
    """Launch a kernel of `force_kernel`; arrays as of `pair.cuda.run`, charges and constants of its precision."""
    flat = out.reshape(-1), tallies.reshape(-1), energies
    entries, own = lists.entries, (table, types, charges, constants)
    launch = made[blocks(max(1, slots), THREADS), THREADS]
    launch(records.reshape(-1), slots, entries.reshape(-1), entries.shape[1], lists.bounds, *own, *flat)


@kernel
def _leave_out(bounds, entries, stride, starts, partners, slots):
    s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if s < u8(slots) and starts[s] < starts[s + u8(1)]:
        kept, at = s, s
        count = 0
        for _ in range(bounds[s]):
            j = entries[at]
            at += u8(stride)
            there = False
            for m in range(starts[s], starts[s + u8(1)]):
                there = there or partners[m] == j
            if not there:
                entries[kept] = j
                kept += u8(stride)
                count += 1
        bounds[s] = count


def leave_out(bounds: Any, entries: Any, starts: Any, partners: Any, slots: int) -> None:
    """Take the partners of each slot out of its list, which gets shorter and keeps its order.

    bounds, entries: of lists of a GPU (`cells.reference.Lists`); slot s has partners[starts[s] : starts[s + 1]].
    """
    launch = _leave_out[blocks(max(1, slots), THREADS), THREADS]
    launch(bounds, entries.reshape(-1), entries.shape[1], starts, partners, slots)


@cache
def partner_kernel(potential: Potential, kind: tuple) -> Kernel:
    """The kernel (slots, positions, starts, partners, kinds, table, types, charges, constants, shares, forces, tallies,
    energies, measure), of which positions, table, shares, forces and tallies are flat; see `add_partners`.
    """
    _, pair_both = functions_of(potential, Form("cuda"))
    _, charge_both = functions(*kind)
    load_parameters, load_constants = loader(potential.parameters), loader(count_of(*kind))
    parameters = np.uint64(potential.parameters)

    @kernel
    def partners_of(
        slots, positions, starts, partners, kinds, table, types, charges, constants, shares,
        forces, tallies, energies, measure,
    ):  # fmt: skip
        s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
        if s < u8(slots) and starts[s] < starts[s + u8(1)]:
            x, y, z, w = load_record(positions, s * u8(4))
            c, row = load_constants(constants, u8(0)), u8(type_of_double(w)) * u8(types)
            fx, fy, fz, energy, of_charges = 0.0, 0.0, 0.0, 0.0, 0.0
            xx, yy, zz, xy, xz, yz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for k in range(starts[s], starts[s + u8(1)]):
                j, own = u8(partners[k]), u8(kinds[k]) * u8(2)
                other_x, other_y, other_z, other_w = load_record(positions, j * u8(4))
                dx, dy, dz = x - other_x, y - other_y, z - other_z
                r2 = dx * dx + (dy * dy + dz * dz)
                share, f = shares[own], 0.0
                if share != 0.0:
                    p = load_parameters(table, (row + u8(type_of_double(other_w))) * parameters)
                    if r2 < p[CUTOFF2]:
                        e, g = pair_both(r2, p, table)
                        energy += share * (e - p[SHIFT])
                        f += share * g
                if r2 < c[REACH2]:
                    e, g = charge_both(r2, c)
                    product, whole = charges[s] * charges[j], (1.0 - shares[own + u8(1)]) / math.sqrt(r2)
                    of_charges += product * (e - whole)
                    f += product * (g - whole / r2)
                gx, gy, gz = f * dx, f * dy, f * dz
                fx, fy, fz = fx + gx, fy + gy, fz + gz
                xx, yy, zz = xx + gx * dx, yy + gy * dy, zz + gz * dz
                xy, xz, yz = xy + gx * dy, xz + gx * dz, yz + gy * dz
            add_force(forces, s, fx, fy, fz)
            if measure:
                energies[s] += of_charges
                add_tallies(tallies, s, energy + of_charges, xx, yy, zz, xy, xz, yz, 0.0)

    return partners_of


def add_partners(
    potential: Potential,
    kind: tuple,
    slots: int,
    positions: Any,
    starts: Any,
    partners: Any,
    kinds: Any,
    table: Any,
    charges: Any,
    constants: Any,
    shares: Any,
    forces: Any,
    tallies: Any,
    energies: Any,
    measure: bool,
    once: bool,
) -> None:
    """See `reference.add_partners`; each slot sums what its own partners have, whatever `once` is."""
    launch = partner_kernel(potential, kind)[blocks(max(1, slots), THREADS), THREADS]
    given = table.reshape(-1), len(table), charges, constants, shares.reshape(-1)
    flat = forces.reshape(-1), tallies.reshape(-1), energies
    launch(slots, positions.reshape(-1), starts, partners, kinds, *given, *flat, measure)
