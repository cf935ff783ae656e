"""SNAP on a GPU: one thread a particle, with rows of its own in memory; neighbors are pushed by atomic additions, whose
order, and so the last bits, may change from run to run. What is computed is said in `reference` and `simd`.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from hpckit.kernels.compile.cuda.jit import Kernel, blocks, cuda, kernel, threads
from hpckit.kernels.device_array import empty, from_host
from hpckit.kernels.particles.cells.reference import Lists
from hpckit.kernels.particles.cuda_records import load_record, put_tallies, type_of_double
from hpckit.kernels.particles.many_body.snap.reference import Snap, SnapTables, tables
from hpckit.kernels.particles.many_body.snap.simd import (
    _backward,
    _derivatives,
    _from_zero,
    _linearized,
    _recursion,
    _repulsion,
)

THREADS = threads(64)
ROWS = 11  # of a particle: U, y, derivatives and u of a neighbor in two parts each, B, its coefficients, and factors
u8 = np.uint64


class SnapWork(NamedTuple):
    """What the kernel reads and works in, on the GPU: the parameters, what depends on J, rows of `width` numbers."""

    given: Snap
    tables: SnapTables
    cutoff: float
    width: int
    work: Any


@cache
def force_kernel(exact: bool, measure: bool) -> Kernel:
    """The kernel that `run_forces` launches; `exact` is of the CPU alone."""
    assert not exact

    @kernel
    def forces(
        records, slots, entries, stride, lengths, coefficients, radii, weights, angle, least, switched, from_zero, zbl,
        densities, density, wide, twice_j, blocks_of, roots, halves, products, coupling, terms, shares, numbers,
        triples, cutoff, width, work, pushed, tallies,
    ):  # fmt: skip
        i = int(cuda.blockIdx.x) * int(cuda.blockDim.x) + int(cuda.threadIdx.x)
        if i < slots:
            size, types = blocks_of[twice_j + 1], len(radii)
            n, whole = densities * densities * densities * len(triples), densities * size
            row = ROWS * i * width
            sr, si = work[row : row + whole], work[row + width : row + width + whole]
            row += 2 * width
            yr, yi = work[row : row + whole], work[row + width : row + width + whole]
            row += 2 * width
            gr, gi = work[row : row + size], work[row + width : row + width + size]
            row += 2 * width
            ur, ui = work[row : row + size], work[row + width : row + width + size]
            row += 2 * width
            b, beta = work[row : row + n], work[row + width : row + width + n]
            factors = work[row + 2 * width : row + 3 * width]
            x, y, z, word = load_record(records, u8(4 * i))
            own = min(int(type_of_double(word)), types - 1)
            for k in range(whole):
                sr[k], si[k] = 0.0, 0.0
            for e in range(densities):
                for j in range(twice_j + 1 if wide or e == density[own] else 0):
                    for m in range(j + 1):
                        sr[e * size + blocks_of[j] + m * (j + 2)] = 1.0
            for m in range(lengths[i]):
                sx, sy, sz, word = load_record(records, u8(4 * entries[i + m * stride]))
                dx, dy, dz = sx - x, sy - y, sz - z
                kind = min(int(type_of_double(word)), types - 1)
                r, radius = math.sqrt(dx * dx + dy * dy + dz * dz), radii[own] + radii[kind]
                if r >= radius:
                    continue
                z0 = r / math.tan((r - least) * angle * math.pi / (radius - least))
                over = 1.0 / math.sqrt(r * r + z0 * z0)
                _recursion(twice_j, blocks_of, roots, z0 * over, -dz * over, dy * over, -dx * over, ur, ui, 0)
                share = weights[kind]
                if switched and r > least:
                    share *= 0.5 * (math.cos((r - least) * math.pi / (radius - least)) + 1.0)
                into = density[kind] * size
                for k in range(size):
                    sr[into + k] += share * ur[k]
                    si[into + k] += share * ui[k]
            given = own, coefficients, densities, triples, from_zero, blocks_of, products, numbers, coupling, halves
            energy = _linearized(*given, sr, si, b, beta)
            of = densities, size, blocks_of, products, coupling, terms, shares, beta
            _derivatives(*of, factors, sr, si, yr, yi)
            third = 0.0
            for e in range(0, whole, size):
                for k in range(size):
                    yr[e + k] *= halves[k]
                    yi[e + k] *= halves[k]
                    third += yr[e + k] * sr[e + k] + yi[e + k] * si[e + k]
            if coefficients.shape[1] == n + 1:
                energy += third / 3.0
                if from_zero:
                    energy = _from_zero(energy, own, densities, density, wide, triples, beta)
            px, py, pz = 0.0, 0.0, 0.0
            xx, yy, zz, xy, xz, yz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for m in range(lengths[i]):
                s = int(entries[i + m * stride])
                sx, sy, sz, word = load_record(records, u8(4 * s))
                dx, dy, dz = sx - x, sy - y, sz - z
                kind = min(int(type_of_double(word)), types - 1)
                r, radius = math.sqrt(dx * dx + dy * dy + dz * dz), radii[own] + radii[kind]
                if r >= cutoff:
                    continue
                repelled, slope = _repulsion(r, zbl[own, kind])
                energy += 0.5 * repelled
                radial, fx, fy, fz = 0.5 * slope, 0.0, 0.0, 0.0
                if r < radius:
                    scale = angle * math.pi / (radius - least)
                    z0 = r / math.tan((r - least) * scale)
                    over = 1.0 / math.sqrt(r * r + z0 * z0)
                    ar, ai, br, bi = z0 * over, -dz * over, dy * over, -dx * over
                    share, fall = weights[kind], 0.0
                    if switched and r > least:
                        phase = (r - least) * math.pi / (radius - least)
                        fall = -0.5 * share * math.sin(phase) * math.pi / (radius - least)
                        share *= 0.5 * (math.cos(phase) + 1.0)
                    _recursion(twice_j, blocks_of, roots, ar, ai, br, bi, ur, ui, 0)
                    seen, into = 0.0, density[kind] * size
                    for k in range(size):
                        seen += yr[into + k] * ur[k] + yi[into + k] * ui[k]
                        gr[k], gi[k] = share * yr[into + k], share * yi[into + k]
                    dar, dai, dbr, dbi = _backward(twice_j, blocks_of, roots, ar, ai, br, bi, ur, ui, 0, gr, gi)
                    turn = z0 / r - r * scale / (over * over) / (r * r)  # dz0 / dr
                    shrink = -over * over * over * (r + z0 * turn)  # d over / dr
                    radial += dar * (turn * over + z0 * shrink) + (dbr * dy - dai * dz - dbi * dx) * shrink
                    radial += fall * seen
                    fx, fy, fz = dbi * over, -dbr * over, dai * over
                fx, fy, fz = fx - radial * dx / r, fy - radial * dy / r, fz - radial * dz / r
                cuda.atomic.add(pushed, u8(4 * s), fx)
                cuda.atomic.add(pushed, u8(4 * s + 1), fy)
                cuda.atomic.add(pushed, u8(4 * s + 2), fz)
                px, py, pz = px - fx, py - fy, pz - fz
                if measure:
                    xx, yy, zz = xx + 2.0 * fx * dx, yy + 2.0 * fy * dy, zz + 2.0 * fz * dz
                    xy, xz, yz = xy + 2.0 * fx * dy, xz + 2.0 * fx * dz, yz + 2.0 * fy * dz
            cuda.atomic.add(pushed, u8(4 * i), px)
            cuda.atomic.add(pushed, u8(4 * i + 1), py)
            cuda.atomic.add(pushed, u8(4 * i + 2), pz)
            if measure:
                put_tallies(tallies, u8(i), 2.0 * energy, xx, yy, zz, xy, xz, yz)

    return forces


def workspace(given: Snap, lists: Lists, own: int, had: SnapWork | None) -> SnapWork:
    """Parameters and memory on the GPU, for `own` slots; those of before where they suffice."""
    like = lists.entries
    if had is None:
        placed = [from_host(each, like) if isinstance(each, np.ndarray) else each for each in given]
        it = tables(given.twice_j, given.densities)
        width = it.width(given.densities)
        there = SnapTables(*(from_host(each, like) for each in it))
        had = SnapWork(Snap(*placed), there, given.cutoff, width, empty(0, like, np.float64))
    needed = ROWS * had.width * max(own, 1)
    return had if len(had.work) >= needed else had._replace(work=empty(needed + needed // 8, like, np.float64))


def run_forces(made: Kernel, records: Any, slots: int, lists: Lists, room: SnapWork, pushed: Any, tallies: Any) -> None:
    """Launch a kernel of `force_kernel`: forces of the energies of the first `slots` slots are added to `pushed`,
    float64 [all slots, 4], and tallies float64 [slots, 8] are written.
    """
    it = room.given
    given = it.coefficients, it.radii, it.weights, float(it.angle), float(it.least), it.switched, it.from_zero, it.zbl
    more = it.densities, it.density, it.everywhere
    made[blocks(max(1, slots), THREADS), THREADS](
        records.reshape(-1), slots, lists.entries.reshape(-1), lists.entries.shape[1], lists.bounds, *given, *more,
        it.twice_j, *room.tables, room.cutoff, room.width, room.work, pushed.reshape(-1), tallies.reshape(-1),
    )  # fmt: skip
