"""Charged pairs on a GPU: one thread a particle over its full list, as of `pair.cuda`. What the functions compute is
said in `reference`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda_jit import Kernel, blocks, cuda, kernel, threads
from hpckit.kernels.particles.cells.reference import Lists
from hpckit.kernels.particles.charged.screening import REACH2, count_of, functions
from hpckit.kernels.particles.cuda_records import load_record, loader, single
from hpckit.kernels.particles.pair.cuda import functions_of, lookup_of
from hpckit.kernels.particles.pair.potential import CUTOFF2, SHIFT, Form, Potential
from hpckit.kernels.particles.pair.reference import TALLY

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

    @kernel
    def forces(
        records, slots, entries, stride, lengths, table, types, charges, constants, forces, tallies, energies
    ):  # fmt: skip
        i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
        if i < u8(slots):
            x, y, z, w = load_record(records, i * u8(4))
            c, charge, row = load_constants(constants, u8(0)), charges[i], row_of(w, types) * parameters
            p = load_parameters(table, row)
            fx, fy, fz = 0.0, 0.0, 0.0
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
                    f += force(r2, p, table)
                if r2 < c[REACH2]:
                    f += charge * charges[other] * charge_force(r2, c)
                fx += np.float64(f * dx)
                fy += np.float64(f * dy)
                fz += np.float64(f * dz)
            own = i * u8(4)
            forces[own], forces[own + u8(1)], forces[own + u8(2)] = fx, fy, fz

    @kernel
    def measure(
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
                    e, g = energy_and_force(r2, p, table)
                    energy += np.float64(e - p[SHIFT])
                    f += g
                if r2 < c[REACH2]:
                    product = charge * charges[other]
                    e, g = charge_both(r2, c)
                    of_charges += np.float64(product * e)
                    f += product * g
                gx, gy, gz = np.float64(f * dx), np.float64(f * dy), np.float64(f * dz)
                fx, fy, fz = fx + gx, fy + gy, fz + gz
                xx, yy, zz = xx + gx * dx, yy + gy * dy, zz + gz * dz
                xy, xz, yz = xy + gx * dy, xz + gx * dz, yz + gy * dz
            own, tally = i * u8(4), i * u8(TALLY)
            forces[own], forces[own + u8(1)], forces[own + u8(2)] = fx, fy, fz
            energies[i] = of_charges
            tallies[tally], tallies[tally + u8(1)] = energy + of_charges, xx
            tallies[tally + u8(2)], tallies[tally + u8(3)] = yy, zz
            tallies[tally + u8(4)], tallies[tally + u8(5)] = xy, xz
            tallies[tally + u8(6)] = yz

    return measure if form.measure else forces


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
