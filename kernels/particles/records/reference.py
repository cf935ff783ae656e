"""Records of particles, NumPy. A record is x, y, z, w; the bits of w carry the type.

The low word of w (float64) is 2 t and the high one 0x3FF00000 + 2 t + 1 for type t: a number just above 1, harmless in
arithmetic, whose words are also the positions of t's two halves in a register of doubles viewed as words
(`lanes.LaneIntrinsics.lookup_row`). In float32 records, w is 0x3F800000 + t.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.particles.cells.constants import FAR, FAR_STEP

HIGH, HIGH_SINGLE = 0x3FF00000, 0x3F800000
PIECE = 12  # float64 of a particle in one piece


def type_words(types: np.ndarray) -> np.ndarray:
    """The w of each type (from 0): float64."""
    types = np.asarray(types, np.int64)
    return (((HIGH + 2 * types + 1) << 32) | (2 * types)).view(np.float64)


def types_of(positions: np.ndarray) -> np.ndarray:
    """The types of records [slots, 4], int64; 0 for empty slots."""
    return (np.ascontiguousarray(positions[:, 3]).view(np.int64) & 0xFFFFFFFF) >> 1


def take_all(positions, chosen, segments, shifts, count, out) -> None:  # type: ignore[no-untyped-def]
    """out[k] = the record of slot chosen[k], moved by shifts[segments[k]]; out: [n, 4], or [n, 3] without the type."""
    out[:count] = positions[chosen[:count], : out.shape[1]]
    out[:count, :3] += shifts[segments[:count]]


def put(values, positions, slots, first, stop) -> None:  # type: ignore[no-untyped-def]
    """x, y, z of the slots first to stop - 1 of the list = the rows of `values` [n, 3]."""
    positions[slots[first:stop], :3] = values[: stop - first]


def copy_all(positions, chosen, segments, shifts, count, target) -> None:  # type: ignore[no-untyped-def]
    """x, y, z of slot target[k] = those of slot chosen[k], moved by shifts[segments[k]]: images."""
    positions[target[:count], :3] = positions[chosen[:count], :3] + shifts[segments[:count]]


def take_values(values, chosen, count, out) -> None:  # type: ignore[no-untyped-def]
    """out[k] = the values of slot chosen[k], one part after the other; values: [parts, slots, w], out: [n, parts w]."""
    out[:count] = values[:, chosen[:count]].transpose(1, 0, 2).reshape(count, -1)


def put_values(given, values, slots, first, stop) -> None:  # type: ignore[no-untyped-def]
    """The values of the slots first to stop - 1 of the list = the rows of `given` [n, parts w]."""
    parts, _, width = values.shape
    values[:, slots[first:stop]] = given[: stop - first].reshape(-1, parts, width).transpose(1, 0, 2)


def copy_values(values, chosen, count, target) -> None:  # type: ignore[no-untyped-def]
    """The values of slot target[k] = those of slot chosen[k]: images."""
    values[:, target[:count]] = values[:, chosen[:count]]


def add_values(given, values, slots, first, stop) -> None:  # type: ignore[no-untyped-def]
    """The rows of `given` [n, parts w] are added to the values of slots first to stop - 1 of the list; some may be the
    same.
    """
    parts, _, width = values.shape
    for part, rows in zip(values, given[: stop - first].reshape(-1, parts, width).transpose(1, 0, 2), strict=True):
        np.add.at(part, slots[first:stop], rows)


def add_copies(values, chosen, count, target) -> None:  # type: ignore[no-untyped-def]
    """The values of slot target[k] are added to those of slot chosen[k]: what images have goes to their particles."""
    for part in values:
        np.add.at(part, chosen[:count], part[target[:count]])


def pack(chosen, count, leave, positions, velocities, ids, images, charges, rows) -> None:  # type: ignore[no-untyped-def]
    """rows[k] = the particle of slot chosen[k] in one piece, float64[n, PIECE] that is 0: its record, its velocity, the
    bits of its id, its charge, and its images as int32. With `leave` the slots are empty afterwards.
    """
    slots = chosen[:count]
    whole = rows[:count]
    whole[:, :4], whole[:, 4:8], whole[:, 9] = positions[slots], velocities[slots], charges[slots]
    whole.view(np.int64)[:, 8], whole.view(np.int32)[:, 20:23] = ids[slots], images[slots]
    if leave:
        ids[slots], velocities[slots], charges[slots], positions[slots] = -1, 0.0, 0.0, FAR
        positions[slots, 0] = FAR + FAR_STEP * slots


def unpack(rows, first, positions, velocities, ids, images, charges) -> None:  # type: ignore[no-untyped-def]
    """The slots from `first` on = the particles of `pack`."""
    slots = slice(first, first + len(rows))
    positions[slots], velocities[slots], charges[slots] = rows[:, :4], rows[:, 4:8], rows[:, 9]
    ids[slots], images[slots] = rows.view(np.int64)[:, 8], rows.view(np.int32)[:, 20:23]


def weigh(positions, ids, slots, masses, factor, slot_masses, inverse_masses) -> None:  # type: ignore[no-untyped-def]
    """The mass of each slot by its type, and factor / mass; for empty slots, the first mass and 0."""
    filled = ids[:slots] >= 0
    slot_masses[:slots] = masses[np.where(filled, np.minimum(types_of(positions[:slots]), len(masses) - 1), 0)]
    inverse_masses[:slots] = np.where(filled, factor / slot_masses[:slots], 0.0)


def to_single(positions, first, stop, center, out) -> None:  # type: ignore[no-untyped-def]
    """Records in float32, relative to `center`; w is 0x3F800000 + type."""
    out[first:stop, :3] = positions[first:stop, :3] - center
    out.view(np.int32)[first:stop, 3] = HIGH_SINGLE | types_of(positions[first:stop])


def choose(positions, slots, low, high, number, inner_low, inner_high, cursor, chosen) -> None:  # type: ignore[no-untyped-def]
    """For each combination (i, j, k) of one interval per dim but the first, the slots of the particles in all three.

    low, high: [3, most], of which number[d] are used along d. `cursor[segment]`, which advances, is the place in
    `chosen` of the next slot of a combination; an empty `chosen` only counts. Particles between inner_low and
    inner_high are in none.
    """
    x = positions[:slots, :3]
    for segment in range(1, int(np.prod(number))):
        which = np.unravel_index(segment, tuple(number))
        inside = (x[:, 0] < 0.5 * FAR) & np.all(
            [(x[:, d] >= low[d, i]) & (x[:, d] < high[d, i]) for d, i in enumerate(which)], axis=0
        )
        found = np.flatnonzero(inside)
        if len(chosen):
            chosen[cursor[segment] : cursor[segment] + len(found)] = found
        cursor[segment] += len(found)


def choose_ghosts(positions, slots, limits, taker, takers):  # type: ignore[no-untyped-def]
    """The slots and segments (see `choose`) of all ghosts that this rank sends, and their number per receiver.

    limits: low, high, number, inner_low and inner_high of `choose`, NumPy arrays. taker[segment]: the receiver of a
    segment, below `takers`. Ghosts are grouped by receiver, in their order. int[n], int32[n], int64[takers].
    """
    counts, none = np.zeros(len(taker), np.int64), np.empty(0, np.int64)
    low, high, number, inner_low, inner_high = limits
    where = low, high, number, inner_low, inner_high
    choose(positions, slots, *where, counts, none)
    cursor = np.cumsum(counts) - counts
    chosen, segments = np.empty(counts.sum(), np.int64), np.repeat(np.arange(len(taker), dtype=np.int32), counts)
    if len(chosen):
        choose(positions, slots, *where, cursor, chosen)
    order = np.argsort(taker[segments], kind="stable")
    return chosen[order], segments[order], np.bincount(taker[segments], minlength=takers)
