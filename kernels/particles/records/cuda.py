"""Records of particles on a GPU. What the functions compute is said in `reference`, but for what is said here.

`count_wanted` and `list_wanted` do what `choose` does in two passes with a sum between them, in which the order of
ghosts depends on their particles alone: by slot, then by segment.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import blocks, cuda, kernel, threads
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.device_array import empty, from_host, to_host
from hpckit.kernels.particles.cells.constants import FAR, FAR_STEP
from hpckit.kernels.particles.cuda_records import load_record, type_of_double
from hpckit.kernels.particles.records.reference import HIGH_SINGLE, PIECE

THREADS = threads(128)
u8, i4, i8 = np.uint64, np.int32, np.int64


@kernel
def _take_all(positions, chosen, segments, shifts, count, width, out):
    k = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if k < u8(count):
        x, y, z, w = load_record(positions, u8(chosen[k]) * u8(4))
        shift, at = u8(segments[k]) * u8(3), k * u8(width)
        out[at] = x + shifts[shift]
        out[at + u8(1)] = y + shifts[shift + u8(1)]
        out[at + u8(2)] = z + shifts[shift + u8(2)]
        if width > 3:
            out[at + u8(3)] = w


@kernel
def _copy_all(positions, chosen, segments, shifts, count, target):
    k = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if k < u8(count):
        x, y, z, _ = load_record(positions, u8(chosen[k]) * u8(4))
        shift, at = u8(segments[k]) * u8(3), u8(target[k]) * u8(4)
        positions[at] = x + shifts[shift]
        positions[at + u8(1)] = y + shifts[shift + u8(1)]
        positions[at + u8(2)] = z + shifts[shift + u8(2)]


@kernel
def _put(values, positions, slots, first, stop):
    k = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if k < u8(stop) - u8(first):
        at = u8(slots[k + u8(first)]) * u8(4)
        for d in range(3):
            positions[at + u8(d)] = values[k * u8(3) + u8(d)]


@kernel
def _take_values(values, chosen, count, out):
    k = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if k < u8(count):
        width = values.shape[2]
        for part in range(values.shape[0]):
            for d in range(width):
                out[k, part * width + d] = values[part, i8(chosen[k]), d]


@kernel
def _put_values(given, values, slots, first, stop):
    k = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if k < u8(stop) - u8(first):
        width = values.shape[2]
        for part in range(values.shape[0]):
            for d in range(width):
                values[part, i8(slots[k + u8(first)]), d] = given[k, part * width + d]


@kernel
def _copy_values(values, chosen, count, target):
    k = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if k < u8(count):
        for part in range(values.shape[0]):
            for d in range(values.shape[2]):
                values[part, i8(target[k]), d] = values[part, i8(chosen[k]), d]


@kernel
def _add_values(given, values, slots, first, stop):
    k = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if k < u8(stop) - u8(first):
        width = values.shape[2]
        for part in range(values.shape[0]):
            for d in range(width):
                cuda.atomic.add(values, (part, i8(slots[k + u8(first)]), d), given[k, part * width + d])


@kernel
def _add_copies(values, chosen, count, target):
    k = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if k < u8(count):
        for part in range(values.shape[0]):
            for d in range(values.shape[2]):
                cuda.atomic.add(values, (part, i8(chosen[k]), d), values[part, i8(target[k]), d])


@kernel
def _to_single(positions, first, stop, center, out, words):
    s = u8(first) + u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if s < u8(stop):
        x, y, z, w = load_record(positions, s * u8(4))
        at = s * u8(4)
        out[at] = np.float32(x - center[0])
        out[at + u8(1)] = np.float32(y - center[1])
        out[at + u8(2)] = np.float32(z - center[2])
        words[at + u8(3)] = i4(HIGH_SINGLE | type_of_double(w))


@kernel
def _weigh(positions, ids, slots, masses, factor, slot_masses, inverse_masses):
    s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if s < u8(slots):
        if ids[s] >= 0:
            _, _, _, w = load_record(positions, s * u8(4))
            mass = masses[min(i8(type_of_double(w)), i8(masses.size) - i8(1))]
            slot_masses[s], inverse_masses[s] = mass, factor / mass
        else:
            slot_masses[s], inverse_masses[s] = masses[0], 0.0


@inlined
def _empty(s, positions, velocities, ids):
    """Make a slot one without a particle."""
    ids[s] = i8(-1)
    for d in range(4):
        positions[s * u8(4) + u8(d)] = FAR
        velocities[s * u8(4) + u8(d)] = 0.0
    positions[s * u8(4)] = FAR + FAR_STEP * s


@kernel
def _pack(chosen, count, leave, positions, velocities, ids, images, charges, rows, words, halves):
    k = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if k < u8(count):
        s, at = u8(chosen[k]), k * u8(PIECE)
        for d in range(4):
            rows[at + u8(d)] = positions[s * u8(4) + u8(d)]
            rows[at + u8(4 + d)] = velocities[s * u8(4) + u8(d)]
        words[at + u8(8)], rows[at + u8(9)] = ids[s], charges[s]
        for d in range(3):
            halves[u8(2) * at + u8(20 + d)] = images[s * u8(3) + u8(d)]
        if leave:
            _empty(s, positions, velocities, ids)
            charges[s] = 0.0


@kernel
def _unpack(rows, words, halves, first, count, positions, velocities, ids, images, charges):
    k = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if k < u8(count):
        s, at = u8(first) + k, k * u8(PIECE)
        for d in range(4):
            positions[s * u8(4) + u8(d)] = rows[at + u8(d)]
            velocities[s * u8(4) + u8(d)] = rows[at + u8(4 + d)]
        ids[s], charges[s] = words[at + u8(8)], rows[at + u8(9)]
        for d in range(3):
            images[s * u8(3) + u8(d)] = halves[u8(2) * at + u8(20 + d)]


@kernel
def _permute(order, slots, positions, velocities, ids, images, to_positions, to_velocities, to_ids, to_images):
    s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if s < u8(slots):
        i = i8(order[s])
        if i >= 0:
            to_ids[s] = ids[i]
            for d in range(4):
                to_positions[s * u8(4) + u8(d)] = positions[u8(i) * u8(4) + u8(d)]
                to_velocities[s * u8(4) + u8(d)] = velocities[u8(i) * u8(4) + u8(d)]
            for d in range(3):
                to_images[s * u8(3) + u8(d)] = images[u8(i) * u8(3) + u8(d)]
        else:
            _empty(s, to_positions, to_velocities, to_ids)
            for d in range(3):
                to_images[s * u8(3) + u8(d)] = 0


@inlined
def _is_inside(x, y, z, low, high):
    return low[0] <= x < high[0] and low[1] <= y < high[1] and low[2] <= z < high[2]


@kernel
def _wanted(positions, slots, low, high, most, number, inner_low, inner_high, ends, counts, chosen, segments):
    """Counts where `chosen` is empty, else lists, up to ends[s]."""
    s = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if s < u8(slots):
        x, y, z, _ = load_record(positions, s * u8(4))
        found = i8(0)
        listing = chosen.size > 0
        first = i8(ends[s]) - i8(counts[s]) if listing else i8(0)
        if x <= 0.5 * FAR and not _is_inside(x, y, z, inner_low, inner_high):
            for i in range(number[0]):
                if not low[i] <= x < high[i]:
                    continue
                for j in range(number[1]):
                    if not low[most + j] <= y < high[most + j]:
                        continue
                    for k in range(number[2]):
                        if low[2 * most + k] <= z < high[2 * most + k] and i + j + k > 0:
                            if listing:
                                chosen[first + found] = i4(s)
                                segments[first + found] = i4((i * number[1] + j) * number[2] + k)
                            found += i8(1)
        if not listing:
            counts[s] = i4(found)


def take_all(positions: Any, chosen: Any, segments: Any, shifts: Any, count: int, out: Any) -> None:
    """See `reference.take_all`."""
    if count:
        flat = shifts.reshape(-1), count, out.shape[1], out.reshape(-1)
        _take_all[blocks(count, THREADS), THREADS](positions.reshape(-1), chosen, segments, *flat)


def copy_all(positions: Any, chosen: Any, segments: Any, shifts: Any, count: int, target: Any) -> None:
    """See `reference.copy_all`."""
    if count:
        launch = _copy_all[blocks(count, THREADS), THREADS]
        launch(positions.reshape(-1), chosen, segments, shifts.reshape(-1), count, target)


def put(values: Any, positions: Any, slots: Any, first: int, stop: int) -> None:
    """See `reference.put`."""
    if stop > first:
        launch = _put[blocks(stop - first, THREADS), THREADS]
        launch(values.reshape(-1), positions.reshape(-1), slots, first, stop)


def take_values(values: Any, chosen: Any, count: int, out: Any) -> None:
    """See `reference.take_values`."""
    if count:
        _take_values[blocks(count, THREADS), THREADS](values, chosen, count, out)


def put_values(given: Any, values: Any, slots: Any, first: int, stop: int) -> None:
    """See `reference.put_values`."""
    if stop > first:
        _put_values[blocks(stop - first, THREADS), THREADS](given, values, slots, first, stop)


def copy_values(values: Any, chosen: Any, count: int, target: Any) -> None:
    """See `reference.copy_values`."""
    if count:
        _copy_values[blocks(count, THREADS), THREADS](values, chosen, count, target)


def add_values(given: Any, values: Any, slots: Any, first: int, stop: int) -> None:
    """See `reference.add_values`; by atomic additions, in no fixed order."""
    if stop > first:
        _add_values[blocks(stop - first, THREADS), THREADS](given, values, slots, first, stop)


def add_copies(values: Any, chosen: Any, count: int, target: Any) -> None:
    """See `reference.add_copies`; by atomic additions, in no fixed order."""
    if count:
        _add_copies[blocks(count, THREADS), THREADS](values, chosen, count, target)


def to_single(positions: Any, first: int, stop: int, center: Any, out: Any) -> None:
    """See `reference.to_single`; the center comes as a NumPy array."""
    if stop > first:
        flat = out.reshape(-1)
        launch = _to_single[blocks(stop - first, THREADS), THREADS]
        launch(positions.reshape(-1), first, stop, tuple(map(float, center)), flat, flat.view(np.int32))


def weigh(
    positions: Any, ids: Any, slots: int, masses: Any, factor: float, slot_masses: Any, inverse_masses: Any
) -> None:
    """See `reference.weigh`."""
    launch = _weigh[blocks(max(1, slots), THREADS), THREADS]
    launch(positions.reshape(-1), ids, slots, masses, float(factor), slot_masses, inverse_masses)


def pack(
    chosen: Any, count: int, leave: bool, positions: Any, velocities: Any, ids: Any, images: Any, charges: Any,
    rows: Any,
) -> None:  # fmt: skip
    """See `reference.pack`."""
    if count:
        flat = rows.reshape(-1)
        into = flat, flat.view(np.int64), flat.view(np.int32)
        source = positions.reshape(-1), velocities.reshape(-1), ids, images.reshape(-1), charges
        _pack[blocks(count, THREADS), THREADS](chosen, count, leave, *source, *into)


def unpack(rows: Any, first: int, positions: Any, velocities: Any, ids: Any, images: Any, charges: Any) -> None:
    """See `reference.unpack`."""
    if count := len(rows):
        flat = rows.reshape(-1)
        given = flat, flat.view(np.int64), flat.view(np.int32), first, count
        into = positions.reshape(-1), velocities.reshape(-1), ids, images.reshape(-1), charges
        _unpack[blocks(count, THREADS), THREADS](*given, *into)


def permute(
    order: Any, slots: int, positions: Any, velocities: Any, ids: Any, images: Any, to_positions: Any,
    to_velocities: Any, to_ids: Any, to_images: Any,
) -> None:  # fmt: skip
    """See `simd.permute`."""
    old = positions.reshape(-1), velocities.reshape(-1), ids, images.reshape(-1)
    new = to_positions.reshape(-1), to_velocities.reshape(-1), to_ids, to_images.reshape(-1)
    _permute[blocks(max(1, slots), THREADS), THREADS](order, slots, *old, *new)


def count_wanted(
    positions: Any, slots: int, low: Any, high: Any, number: Any, inner_low: Any, inner_high: Any, counts: Any
) -> None:
    """counts[s]: of how many segments the particle of a slot is (`reference.choose`); int32.

    low, high: [3, most] on the device; number, inner_low, inner_high: NumPy arrays.
    """
    none = counts[:0]
    _launch_wanted(positions, slots, low, high, number, inner_low, inner_high, counts, counts, none, none)


def list_wanted(
    positions: Any, slots: int, low: Any, high: Any, number: Any, inner_low: Any, inner_high: Any, ends: Any,
    counts: Any, chosen: Any, segments: Any,
) -> None:  # fmt: skip
    """The slots and the segments that `count_wanted` counted, int32; ends: the sums of `counts` up to each slot."""
    _launch_wanted(positions, slots, low, high, number, inner_low, inner_high, ends, counts, chosen, segments)


def _launch_wanted(
    positions: Any, slots: int, low: Any, high: Any, number: Any, inner_low: Any, inner_high: Any, *arrays: Any
) -> None:
    inner = (tuple(map(float, inner_low)), tuple(map(float, inner_high)))
    options = (low.reshape(-1), high.reshape(-1), low.shape[1], tuple(map(int, number)))
    _wanted[blocks(max(1, slots), THREADS), THREADS](positions.reshape(-1), slots, *options, *inner, *arrays)


def choose_ghosts(
    positions: Any, slots: int, limits: Any, taker: np.ndarray, takers: int
) -> tuple[Any, Any, np.ndarray]:
    """See `reference.choose_ghosts`; the order is by taker, slot and segment. Waits for the GPU."""
    low, high, number, inner_low, inner_high = limits
    where = from_host(low, positions), from_host(high, positions), number, inner_low, inner_high
    counts = empty(slots, positions, np.int32)
    count_wanted(positions, slots, *where, counts)
    ends = counts.cumsum(dtype=np.int64)
    total = int(to_host(ends[-1:]).sum())
    chosen, segments = empty(total, positions, np.int32), empty(total, positions, np.int32)
    if not total:
        return chosen, segments, np.zeros(takers, np.int64)
    list_wanted(positions, slots, *where, ends, counts, chosen, segments)
    if takers == 1:
        return chosen, segments, np.array([total])
    whose = to_host(from_host(taker.astype(np.int32), positions)[segments])
    order = from_host(np.argsort(whose, kind="stable"), positions)
    return chosen[order], segments[order], np.bincount(whose, minlength=takers)
