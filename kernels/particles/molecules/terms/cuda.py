"""Angles, dihedrals and impropers on a GPU: one thread a particle. What the functions compute is said in `reference`.

A term is computed for each of its particles: each thread adds up its own force in the order of the terms, so there are
no atomics, and a force has the same bits in every run.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import Kernel, blocks, cuda, kernel, threads
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.device_array import empty
from hpckit.kernels.particles.cuda_records import add_force, add_tallies, load_record
from hpckit.kernels.particles.molecules.bonds.cuda import first_lost, nearest_slot, spread
from hpckit.kernels.particles.molecules.terms.forms import NAMES, bending, turning

THREADS = threads(128)
u8, i8 = np.uint64, np.int64


@kernel
def _attach(positions, ids, own, starts, which, rows, head, following, bounds, found, numbers):
    s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if s < u8(own):
        x, y, z, _ = load_record(positions, s * u8(4))
        g, at = i8(ids[s]), bounds[s]
        first = starts[g]
        for k in range(bounds[s + u8(1)] - at):
            term = which[first + k]
            numbers[at + k] = term
            for place in range(found.shape[1]):
                other = rows[term, place + 1]
                if other == g:
                    found[at + k, place] = s
                else:
                    found[at + k, place] = nearest_slot(positions, x, y, z, head[other], following)


def attach_terms(
    positions: Any,
    ids: Any,
    slots: int,
    own: int,
    starts: Any,
    which: Any,
    rows: Any,
    head: Any,
    following: Any,
    bounds: Any,
    found: Any,
    numbers: Any,
) -> int:
    """See `reference.attach_terms`; waits for the GPU."""
    spread(ids, own, starts, bounds)
    launch = _attach[blocks(max(1, own), THREADS), THREADS]
    launch(positions.reshape(-1), ids, own, starts, which, rows, head, following, bounds, found, numbers)
    return first_lost(ids, found.shape[1] * bounds, found.reshape(-1))


@kernel
def _first(own, bounds, found, kept):
    s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if s < u8(own):
        for k in range(bounds[s], bounds[s + u8(1)]):
            first = i8(-1)
            for place in range(found.shape[1]):
                if first < 0 and found[k, place] < own:
                    first = found[k, place]
            kept[k] = first == i8(s)


def once(own: int, bounds: Any, found: Any, numbers: Any) -> tuple[Any, Any]:
    """Of the terms of `attach_terms`, each set of images once, as of `reference.find_terms`: slots and numbers."""
    kept = empty(len(numbers), numbers, np.bool_)
    _first[blocks(max(1, own), THREADS), THREADS](own, bounds, found, kept)
    return found[kept], numbers[kept]


@inlined
def apart(positions, i, j):
    """The way from particle j to particle i, of a flat array."""
    x, y, z, _ = load_record(positions, u8(i) * u8(4))
    other_x, other_y, other_z, _ = load_record(positions, u8(j) * u8(4))
    return x - other_x, y - other_y, z - other_z


@cache
def term_kernel(name: str, kind: str, measure: bool) -> Kernel:
    """The kernel (own, positions, bounds, found, kinds, parameters, forces, tallies, energies), of which positions,
    forces and tallies are flat.
    """
    forces_of = bending(kind) if name == "angles" else turning(name, kind)
    repeated = NAMES[name][kind].index("n") if "n" in NAMES[name][kind] else -1

    @inlined
    def most(p):
        return i8(p[repeated]) if repeated >= 0 else i8(1)

    @inlined
    def bend(positions, slots, s, p):
        i, j, m = slots[0], slots[1], slots[2]
        ax, ay, az = apart(positions, i, j)
        bx, by, bz = apart(positions, m, j)
        energy, fx, fy, fz, hx, hy, hz = forces_of(ax, ay, az, bx, by, bz, p, most(p))
        mine = -(fx + hx), -(fy + hy), -(fz + hz)
        if i == s:
            mine = fx, fy, fz
        elif m == s:
            mine = hx, hy, hz
        straight = ax * fx + bx * hx, ay * fy + by * hy, az * fz + bz * hz
        return energy, mine, straight, (ax * fy + bx * hy, ax * fz + bx * hz, ay * fz + by * hz)

    @inlined
    def turn(positions, slots, s, p):
        i, j, m, n = slots[0], slots[1], slots[2], slots[3]
        ux, uy, uz = apart(positions, i, j)
        gx, gy, gz = apart(positions, j, m)
        hx, hy, hz = apart(positions, n, m)
        found = forces_of(ux, uy, uz, gx, gy, gz, hx, hy, hz, p, most(p))
        energy, fx, fy, fz, cx, cy, cz, mx, my, mz, lx, ly, lz = found
        mine = cx - fx, cy - fy, cz - fz
        if i == s:
            mine = fx, fy, fz
        elif m == s:
            mine = mx, my, mz
        elif n == s:
            mine = lx, ly, lz
        ex, ey, ez = hx - gx, hy - gy, hz - gz
        straight = ux * fx - gx * mx + ex * lx, uy * fy - gy * my + ey * ly, uz * fz - gz * mz + ez * lz
        sheared = ux * fy - gx * my + ex * ly, ux * fz - gx * mz + ex * lz, uy * fz - gy * mz + ey * lz
        return energy, mine, straight, sheared

    each, share = (bend, 2.0 / 3.0) if name == "angles" else (turn, 0.5)

    @kernel
    def terms(own, positions, bounds, found, kinds, parameters, forces, tallies, energies):
        s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
        if s < u8(own) and bounds[s] < bounds[s + u8(1)]:
            fx, fy, fz, total = 0.0, 0.0, 0.0, 0.0
            xx, yy, zz, xy, xz, yz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for k in range(bounds[s], bounds[s + u8(1)]):
                energy, mine, straight, sheared = each(positions, found[k], i8(s), parameters[kinds[k]])
                fx, fy, fz = fx + mine[0], fy + mine[1], fz + mine[2]
                if measure:
                    total += share * energy
                    xx, yy, zz = xx + share * straight[0], yy + share * straight[1], zz + share * straight[2]
                    xy, xz, yz = xy + share * sheared[0], xz + share * sheared[1], yz + share * sheared[2]
            add_force(forces, s, fx, fy, fz)
            if measure:
                energies[s] += total
                add_tallies(tallies, s, total, xx, yy, zz, xy, xz, yz, total)

    return terms


def add_terms(
    name: str,
    kind: str,
    measure: bool,
    own: int,
    positions: Any,
    bounds: Any,
    found: Any,
    kinds: Any,
    parameters: Any,
    forces: Any,
    tallies: Any,
    energies: Any,
) -> None:
    """See `reference.add_terms`; terms of `attach_terms`."""
    launch = term_kernel(name, kind, measure)[blocks(max(1, own), THREADS), THREADS]
    out = forces.reshape(-1), tallies.reshape(-1), energies
    launch(own, positions.reshape(-1), bounds, found, kinds, parameters, *out)
