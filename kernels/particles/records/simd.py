"""Records of particles, Numba: taken from slots, put to slots, and turned into float32."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.particles.cells.constants import FAR, FAR_STEP, RECORD
from hpckit.kernels.particles.records.reference import HIGH_SINGLE


@jit
def take_all(positions, chosen, segments, shifts, count, out):
    """See `reference.take_all`."""
    with_type = out.shape[1] == RECORD
    for k in range(np.uint64(count)):
        s, shift = np.uint64(chosen[k]), np.uint64(segments[k])
        for d in range(3):
            out[k, d] = positions[s, d] + shifts[shift, d]
        if with_type:
            out[k, RECORD - 1] = positions[s, RECORD - 1]


@jit
def put(values, positions, slots, first, stop):
    """See `reference.put`."""
    for k in range(np.uint64(stop - first)):
        s = np.uint64(slots[np.uint64(first) + k])
        for d in range(3):
            positions[s, d] = values[k, d]


@jit
def copy_all(positions, chosen, segments, shifts, count, target):
    """See `reference.copy_all`."""
    for k in range(np.uint64(count)):
        s, t, shift = np.uint64(chosen[k]), np.uint64(target[k]), np.uint64(segments[k])
        for d in range(3):
            positions[t, d] = positions[s, d] + shifts[shift, d]


def _rows(move):
    """The function (values, what) that calls `move` with parts and width of values [parts, slots, width].

    A row of known length is moved at once, two or three times as fast as number by number: those of forces, and three
    numbers of each slot that lie apart, go at every step.
    """

    @inlined
    def rows(values, what):
        parts, _, width = values.shape
        if parts == 1 and width == RECORD:
            move(values, what, 1, RECORD)
        elif parts == 3 and width == 1:
            move(values, what, 3, 1)
        else:
            move(values, what, parts, width)

    return rows


@_rows
@inlined
def _take(values, what, parts, width):
    chosen, count, out = what
    for k in range(np.uint64(count)):
        s = np.uint64(chosen[k])
        for part in range(parts):
            for d in range(width):
                out[k, part * width + d] = values[part, s, d]


@_rows
@inlined
def _put(values, what, parts, width):
    given, slots, first, stop = what
    for k in range(np.uint64(stop - first)):
        s = np.uint64(slots[np.uint64(first) + k])
        for part in range(parts):
            for d in range(width):
                values[part, s, d] = given[k, part * width + d]


@_rows
@inlined
def _copy(values, what, parts, width):
    chosen, count, target = what
    for k in range(np.uint64(count)):
        s, t = np.uint64(chosen[k]), np.uint64(target[k])
        for part in range(parts):
            for d in range(width):
                values[part, t, d] = values[part, s, d]


@_rows
@inlined
def _add(values, what, parts, width):
    given, slots, first, stop = what
    for k in range(np.uint64(stop - first)):
        s = np.uint64(slots[np.uint64(first) + k])
        for part in range(parts):
            for d in range(width):
                values[part, s, d] += given[k, part * width + d]


@_rows
@inlined
def _add_own(values, what, parts, width):
    chosen, count, target = what
    for k in range(np.uint64(count)):
        s, t = np.uint64(chosen[k]), np.uint64(target[k])
        for part in range(parts):
            for d in range(width):
                values[part, s, d] += values[part, t, d]


@jit
def take_values(values, chosen, count, out):
    """See `reference.take_values`."""
    _take(values, (chosen, count, out))


@jit
def put_values(given, values, slots, first, stop):
    """See `reference.put_values`."""
    _put(values, (given, slots, first, stop))


@jit
def copy_values(values, chosen, count, target):
    """See `reference.copy_values`."""
    _copy(values, (chosen, count, target))


@jit
def add_values(given, values, slots, first, stop):
    """See `reference.add_values`."""
    _add(values, (given, slots, first, stop))


@jit
def add_copies(values, chosen, count, target):
    """See `reference.add_copies`."""
    _add_own(values, (chosen, count, target))


@inlined
def _empty(s, positions, velocities, ids):
    """Make a slot one without a particle."""
    ids[s] = -1
    for d in range(RECORD):
        positions[s, d], velocities[s, d] = FAR, 0.0
    positions[s, 0] = FAR + FAR_STEP * s


@jit
def pack(chosen, count, leave, positions, velocities, ids, images, charges, rows):
    """See `reference.pack`."""
    words, halves = rows.view(np.int64), rows.view(np.int32)
    for k in range(np.uint64(count)):
        s = np.uint64(chosen[k])
        for d in range(RECORD):
            rows[k, d], rows[k, RECORD + d] = positions[s, d], velocities[s, d]
        words[k, 8], rows[k, 9] = ids[s], charges[s]
        for d in range(3):
            halves[k, 20 + d] = images[s, d]
        if leave:
            _empty(s, positions, velocities, ids)
            charges[s] = 0.0


@jit
def unpack(rows, first, positions, velocities, ids, images, charges):
    """See `reference.unpack`."""
    words, halves = rows.view(np.int64), rows.view(np.int32)
    for k in range(np.uint64(len(rows))):
        s = np.uint64(first) + k
        for d in range(RECORD):
            positions[s, d], velocities[s, d] = rows[k, d], rows[k, RECORD + d]
        ids[s], charges[s] = words[k, 8], rows[k, 9]
        for d in range(3):
            images[s, d] = halves[k, 20 + d]


@jit
def weigh(positions, ids, slots, masses, factor, slot_masses, inverse_masses):
    """See `reference.weigh`."""
    last = len(masses) - 1
    for s in range(slots):
        if ids[s] >= 0:
            mass = masses[min((np.float64(positions[s, RECORD - 1]).view(np.int64) & 0xFFFFFFFF) >> 1, last)]
            slot_masses[s], inverse_masses[s] = mass, factor / mass
        else:
            slot_masses[s], inverse_masses[s] = masses[0], 0.0


@jit
def to_single(positions, first, stop, center, out):
    """Records in float32, relative to `center`; w is 0x3F800000 + type."""
    words, x, y, z = out.view(np.int32), center[0], center[1], center[2]
    for s in range(np.uint64(first), np.uint64(stop)):
        out[s, 0] = positions[s, 0] - x
        out[s, 1] = positions[s, 1] - y
        out[s, 2] = positions[s, 2] - z
        words[s, RECORD - 1] = HIGH_SINGLE | ((np.float64(positions[s, 3]).view(np.int64) & 0xFFFFFFFF) >> 1)


@jit
def choose_pairs(positions, slots, low, high, number, inner_low, inner_high, counts, found):
    """Segments and slots (see `reference.choose`), as many as fit, in the order of the slots; returns how many there
    are, and adds those of each segment to `counts`.
    """
    total = 0
    for s in range(slots):
        x, y, z = positions[s, 0], positions[s, 1], positions[s, 2]
        if x > 0.5 * FAR:
            continue
        if (
            inner_low[0] <= x < inner_high[0]
            and inner_low[1] <= y < inner_high[1]
            and inner_low[2] <= z < inner_high[2]
        ):
            continue
        for i in range(number[0]):
            if not low[0, i] <= x < high[0, i]:
                continue
            for j in range(number[1]):
                if not low[1, j] <= y < high[1, j]:
                    continue
                for k in range(number[2]):
                    if low[2, k] <= z < high[2, k] and i + j + k > 0:
                        segment = (i * number[1] + j) * number[2] + k
                        counts[segment] += 1
                        if total < len(found):
                            found[total, 0], found[total, 1] = segment, s
                        total += 1
    return total


@jit
def sort_by_taker(found, total, counts, taker, chosen, segments, sent):
    """The `total` pairs of segments and slots by taker, segment and slot; sent: how many each taker gets."""
    starts, first = np.empty_like(counts), 0
    for each in range(len(sent)):
        sent[each] = 0
        for segment in range(len(counts)):
            if taker[segment] == each:
                starts[segment] = first
                sent[each] += counts[segment]
                segments[first : first + counts[segment]] = segment
                first += counts[segment]
    for n in range(total):
        segment = found[n, 0]
        chosen[starts[segment]] = found[n, 1]
        starts[segment] += 1


@jit
def permute(order, slots, positions, velocities, ids, images, to_positions, to_velocities, to_ids, to_images):
    """Slot s of the second four = slot order[s] of the first; where that is -1, a slot without a particle (id -1)."""
    for s in range(slots):
        i = order[s]
        if i >= 0:
            to_ids[s] = ids[i]
            for d in range(RECORD):
                to_positions[s, d], to_velocities[s, d] = positions[i, d], velocities[i, d]
            for d in range(3):
                to_images[s, d] = images[i, d]
        else:
            _empty(s, to_positions, to_velocities, to_ids)
            for d in range(3):
                to_images[s, d] = 0


def choose_ghosts(
    positions: np.ndarray, slots: int, limits: tuple[np.ndarray, ...], taker: np.ndarray, takers: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """See `reference.choose_ghosts`; the order is by taker, segment and slot."""
    counts, found = np.zeros(len(taker), np.int64), np.empty((slots, 2), np.int32)
    total = choose_pairs(positions, slots, *limits, counts, found)
    if total > len(found):  # of domains thinner than the reach
        counts[:], found = 0, np.empty((total, 2), np.int32)
        choose_pairs(positions, slots, *limits, counts, found)
    chosen, segments, sent = np.empty(max(1, total), np.int64), np.empty(total, np.int32), np.empty(takers, np.int64)
    sort_by_taker(found, total, counts, taker, chosen, segments, sent)
    return chosen, segments, sent
