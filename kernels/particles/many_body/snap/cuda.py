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
from hpckit.kernels.particles.many_body.snap.simd import _backward, _derivatives, _linearized, _recursion, _repulsion

THREADS = threads(64)
ROWS = 10  # of a particle: U, y, derivatives and u of a neighbor in two parts each, B and its coefficients
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
        twice_j, blocks_of, roots, halves, products, coupling, shares, direct, triples, cutoff, width, work, pushed,
        tallies,
    ):  # fmt: skip
        i = int(cuda.blockIdx.x) * int(cuda.blockDim.x) + int(cuda.threadIdx.x)
        if i < slots:
            size, n, types = blocks_of[twice_j + 1], len(triples), len(radii)
            row = ROWS * i * width
            sr, si = work[row : row + size], work[row + width : row + width + size]
            row += 2 * width
            yr, yi = work[row : row + size], work[row + width : row + width + size]
            row += 2 * width
            gr, gi = work[row : row + size], work[row + width : row + width + size]
            row += 2 * width
            ur, ui = work[row : row + size], work[row + width : row + width + size]
            row += 2 * width
            b, beta = work[row : row + n], work[row + width : row + width + n]
            x, y, z, word = load_record(records, u8(4 * i))
            own = min(int(type_of_double(word)), types - 1)
            for k in range(size):
                sr[k], si[k] = 0.0, 0.0
            for j in range(twice_j + 1):
                for m in range(j + 1):
                    sr[blocks_of[j] + m * (j + 2)] = 1.0
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
                for k in range(size):
                    sr[k] += share * ur[k]
                    si[k] += share * ui[k]
            given = own, coefficients, triples, from_zero, blocks_of, products, direct, coupling, halves
            energy = _linearized(*given, sr, si, b, beta)
            _derivatives(blocks_of, products, coupling, shares, beta, sr, si, yr, yi)
            third = 0.0
            for k in range(size):
                yr[k] *= halves[k]
                yi[k] *= halves[k]
                third += yr[k] * sr[k] + yi[k] * si[k]
            if coefficients.shape[1] == n + 1:
                energy += third / 3.0
                if from_zero:
                    for k in range(n):
                        energy -= beta[k] * (triples[k, 2] + 1)
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
                    seen = 0.0
                    for k in range(size):
                        seen += yr[k] * ur[k] + yi[k] * ui[k]
                        gr[k], gi[k] = share * yr[k], share * yi[k]
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
        it = tables(given.twice_j)
        width = max(int(it.blocks[-1]), len(it.triples))
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
    made[blocks(max(1, slots), THREADS), THREADS](
        records.reshape(-1), slots, lists.entries.reshape(-1), lists.entries.shape[1], lists.bounds, *given, it.twice_j,
        *room.tables, room.cutoff, room.width, room.work, pushed.reshape(-1), tallies.reshape(-1),
    )  # fmt: skip
