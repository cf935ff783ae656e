"""Bonds on a GPU: one thread a particle. What the functions compute is said in `reference`.

A bond is computed at both of its ends: each thread adds up its own force in the order of the partners, without atomics.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import Kernel, blocks, cuda, kernel, threads
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.device_array import argsort, to_host
from hpckit.kernels.particles.cuda_records import add_force, add_tallies, load_record
from hpckit.kernels.particles.molecules.bonds.forms import FORMS

THREADS = threads(128)
u8, i8 = np.uint64, np.int64


@kernel
def _chain(ids, order, slots, head, following):
    k = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if k < u8(slots):
        s = order[k]
        g = i8(ids[s])
        if g >= 0:
            before = order[k - u8(1)] if k > u8(0) else s
            following[s] = before if before != s and i8(ids[before]) == g else -1
            if k + u8(1) == u8(slots) or i8(ids[order[k + u8(1)]]) != g:
                head[g] = s


def index_slots(ids: Any, slots: int, head: Any, following: Any) -> None:
    """See `reference.index_slots`."""
    head[:] = -1
    _chain[blocks(max(1, slots), THREADS), THREADS](ids, argsort(ids[:slots]), slots, head, following)


@inlined
def nearest_slot(positions, x, y, z, slot, following):
    """Of the slots with the particle of `slot` that nearest to a place; -1 for no slot."""
    nearest, gap = i8(-1), np.inf
    while slot >= 0:
        other_x, other_y, other_z, _ = load_record(positions, u8(slot) * u8(4))
        dx, dy, dz = other_x - x, other_y - y, other_z - z
        r2 = dx * dx + (dy * dy + dz * dz)
        if r2 < gap:
            nearest, gap = i8(slot), r2
        slot = following[slot]
    return nearest


def spread(ids: Any, own: int, starts: Any, bounds: Any) -> None:
    """bounds[s] = how many entries the particles of the slots below s have: particle g those from starts[g] to
    starts[g + 1] - 1. Every slot has a particle, as on a GPU after a rebuild.
    """
    mine = ids[:own].astype(np.int64)
    bounds[:1] = 0
    bounds[1:] = (starts[mine + 1] - starts[mine]).cumsum()


def first_lost(ids: Any, bounds: Any, partners: Any) -> int:
    """The id of the first slot with a partner of -1; -1 for none. Waits for the GPU."""
    if not len(partners) or int(partners.min()) >= 0:
        return -1
    first = int((to_host(partners) < 0).argmax())
    return int(to_host(ids)[np.searchsorted(to_host(bounds), first, "right") - 1])


@kernel
def _attach(positions, ids, own, starts, others, kinds, head, following, bounds, partners, partner_kinds):
    s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if s < u8(own):
        x, y, z, _ = load_record(positions, s * u8(4))
        first, at = starts[i8(ids[s])], bounds[s]
        for k in range(bounds[s + u8(1)] - at):
            partners[at + k] = nearest_slot(positions, x, y, z, head[others[first + k]], following)
            partner_kinds[at + k] = kinds[first + k]


def attach(
    positions: Any,
    ids: Any,
    slots: int,
    own: int,
    starts: Any,
    others: Any,
    kinds: Any,
    head: Any,
    following: Any,
    bounds: Any,
    partners: Any,
    partner_kinds: Any,
) -> int:
    """See `reference.attach`; waits for the GPU."""
    spread(ids, own, starts, bounds)
    given = starts, others, kinds, head, following
    launch = _attach[blocks(max(1, own), THREADS), THREADS]
    launch(positions.reshape(-1), ids, own, *given, bounds, partners, partner_kinds)
    return first_lost(ids, bounds, partners)


@cache
def bond_kernel(name: str, measure: bool) -> Kernel:
    """The kernel (slots, positions, bounds, partners, kinds, parameters, forces, tallies), all but parameters flat."""
    both = FORMS[name]

    @kernel
    def bonds(slots, positions, bounds, partners, kinds, parameters, forces, tallies):
        s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
        if s < u8(slots) and bounds[s] < bounds[s + u8(1)]:
            x, y, z, _ = load_record(positions, s * u8(4))
            fx, fy, fz, total = 0.0, 0.0, 0.0, 0.0
            xx, yy, zz, xy, xz, yz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for k in range(bounds[s], bounds[s + u8(1)]):
                other_x, other_y, other_z, _ = load_record(positions, u8(partners[k]) * u8(4))
                dx, dy, dz = x - other_x, y - other_y, z - other_z
                r2 = dx * dx + (dy * dy + dz * dz)
                energy, f = both(r2, parameters[kinds[k]])
                gx, gy, gz = f * dx, f * dy, f * dz
                fx, fy, fz = fx + gx, fy + gy, fz + gz
                if measure:
                    total += energy
                    xx, yy, zz = xx + gx * dx, yy + gy * dy, zz + gz * dz
                    xy, xz, yz = xy + gx * dy, xz + gx * dz, yz + gy * dz
            add_force(forces, s, fx, fy, fz)
            if measure:
                add_tallies(tallies, s, total, xx, yy, zz, xy, xz, yz, total)

    return bonds


def add_bonds(
    name: str,
    measure: bool,
    slots: int,
    positions: Any,
    bounds: Any,
    partners: Any,
    kinds: Any,
    parameters: Any,
    forces: Any,
    tallies: Any,
) -> None:
    """See `reference.add_bonds`."""
    launch = bond_kernel(name, measure)[blocks(max(1, slots), THREADS), THREADS]
    launch(slots, positions.reshape(-1), bounds, partners, kinds, parameters, forces.reshape(-1), tallies.reshape(-1))
