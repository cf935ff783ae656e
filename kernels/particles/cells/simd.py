"""Cells and neighbor lists, Numba. What the functions compute is said in `reference`.

The list is built in float32 with a reach that is longer by the rounding (`list_reach`): the particles near the box of a
cluster are put side by side first, and then each particle of the cluster is compared with sixteen of them at a time.
That the list then holds a few pairs beyond the reach does no harm, since forces look at the distance again; none within
it is missed.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile import intrinsics
from hpckit.kernels.compile import lanes as vectors
from hpckit.kernels.compile.compress import LANES, compressing
from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.particles.cells.constants import CLUSTER, FAR, FAR_STEP, RECORD

NOWHERE = np.float32(1e18)  # the square is finite, and beyond every reach
MOST_PADDING = 16  # entries that a list is padded with, a power of 2
u8 = np.uint64  # an index that may be negative is tested for that


@jit
def assign_columns(positions, count, lower, scale, shape, z_low, z_high, zones, columns, sizes, column_start):
    """See `reference.assign_columns`; sizes[c] are the particles of column c."""
    nx, ny = shape[0], shape[1]
    sizes[:] = 0
    for i in range(count):
        if positions[i, 0] > 0.5 * FAR:
            columns[i] = -1
            continue
        ix = min(max(int((positions[i, 0] - lower[0]) * scale[0]), 0), nx - 1)
        iy = min(max(int((positions[i, 1] - lower[1]) * scale[1]), 0), ny - 1)
        zone = 0
        if zones == 3:
            zone = 0 if positions[i, 2] < z_low else (2 if positions[i, 2] >= z_high else 1)
        c = (zone * ny + iy) * nx + ix
        columns[i] = c
        sizes[c] += 1
    column_start[0] = 0
    for c in range(len(sizes)):
        column_start[c + 1] = column_start[c] + (sizes[c] + CLUSTER - 1) // CLUSTER
    return column_start[len(sizes)]


@jit
def sort_columns(positions, count, columns, sizes, column_start, order):
    """See `reference.sort_columns`: insertion into each column, quick where particles come nearly in order."""
    slots = column_start[-1] * CLUSTER
    filled = np.empty(len(sizes), np.int64)
    for c in range(len(sizes)):
        filled[c] = column_start[c] * CLUSTER
    heights = np.empty(slots)
    order[:slots] = -1
    for i in range(count):
        c = columns[i]
        if c < 0:
            continue
        first, place, z = column_start[c] * CLUSTER, filled[c], positions[i, 2]
        while place > first and heights[place - 1] > z:
            heights[place] = heights[place - 1]
            order[place] = order[place - 1]
            place -= 1
        heights[place] = z
        order[place] = i
        filled[c] += 1


@jit
def place(source, order, slots, first, target):
    """target[first + s] = source[order[s]]; slots without a particle get a place far away, each its own."""
    for s in range(slots):
        i = order[s]
        for d in range(RECORD):
            target[first + s, d] = source[i, d] if i >= 0 else FAR
        if i < 0:
            target[first + s, 0] = FAR + FAR_STEP * (first + s)


@jit
def ghost_slots(order, slots, first, where):
    """See `reference.ghost_slots`."""
    for s in range(slots):
        if order[s] >= 0:
            where[order[s]] = first + s


@jit
def pack_places(positions, clusters, center, places, boxes):
    """See `reference.pack_places`."""
    places[:, clusters * CLUSTER :] = FAR
    for c in range(clusters):
        for d in range(3):
            low, high = np.inf, -np.inf
            for slot in range(c * CLUSTER, (c + 1) * CLUSTER):
                x = positions[slot, d]
                places[d, slot] = x - center[d]
                if positions[slot, 0] < 0.5 * FAR:
                    low, high = min(low, x), max(high, x)
            boxes[c, d], boxes[c, 3 + d] = low, high


@jit
def corners(boxes, lowest, highest):
    """See `reference.corners`."""
    for c in range(len(boxes)):
        for d in range(3):
            lowest[d], highest[d] = min(lowest[d], boxes[c, d]), max(highest[d], boxes[c, 3 + d])


@inlined
def near(own, boxes, reach, column_start, first, lower, scale, shape, zones, found, t):
    """Append to `found` the clusters, numbered from `first`, whose box is within reach of box `own`; not `own`."""
    low_x, low_y, low_z = boxes[own, 0], boxes[own, 1], boxes[own, 2]
    high_x, high_y, high_z = boxes[own, 3], boxes[own, 4], boxes[own, 5]
    nx, ny = shape[0], shape[1]
    left = min(max(int((low_x - reach - lower[0]) * scale[0]), 0), nx - 1)
    right = min(max(int((high_x + reach - lower[0]) * scale[0]), 0), nx - 1)
    front = min(max(int((low_y - reach - lower[1]) * scale[1]), 0), ny - 1)
    back = min(max(int((high_y + reach - lower[1]) * scale[1]), 0), ny - 1)
    for zone in range(zones):
        for iy in range(front, back + 1):
            for ix in range(left, right + 1):
                column = (zone * ny + iy) * nx + ix
                begin, end = column_start[column] + first, column_start[column + 1] + first
                low, high = begin, end
                while low < high:  # the first cluster that is not wholly below
                    middle = (low + high) // 2
                    if boxes[middle, 5] < low_z - reach:
                        low = middle + 1
                    else:
                        high = middle
                for c in range(low, end):
                    above = boxes[c, 2] - high_z
                    if above > reach:
                        break
                    dz = max(0.0, max(above, low_z - boxes[c, 5]))
                    dx = max(0.0, max(boxes[c, 0] - high_x, low_x - boxes[c, 3]))
                    dy = max(0.0, max(boxes[c, 1] - high_y, low_y - boxes[c, 4]))
                    if dx * dx + dy * dy + dz * dz < reach * reach and c != own:
                        found[t] = c
                        t += 1
    return t


@inlined
def is_near_ends(own, boxes, reach, low, high):
    """Whether ghosts may be within reach: all of them lie outside the brick."""
    near = False
    for d in range(3):
        near |= boxes[own, d] - reach < low[d] or boxes[own, 3 + d] + reach >= high[d]
    return near


@inlined
def pad(entries, first, m, padding, pad_entry):
    """Pad a list that goes from `first` to m to whole vectors; where it ends then."""
    for k in range(np.uint64(MOST_PADDING)):
        entries[np.uint64(m) + k] = pad_entry
    return first + ((m - first + padding - 1) & -padding)


@cache
def list_builder(isa: str) -> Any:
    """The kernel `build_list` for an instruction set."""
    if isa == "scalar":
        return _build_list_scalar
    n, (append, keep, keep_lanes, unlike) = LANES[isa], compressing(isa)
    load, broadcast = vectors.lanes("f", n).load, vectors.lanes("f", n).broadcast
    bits, count_ones, mask_of, minimum, store = (
        intrinsics.bits,
        intrinsics.count_ones,
        intrinsics.mask_of(n),
        intrinsics.minimum,
        intrinsics.store,
    )

    @inlined
    def beyond(x, low, high):
        """By how much x misses low <= x <= high, negative."""
        return minimum(minimum(x - low, high - x), broadcast(np.float32(0.0)))

    def comparing(unlike_all):
        @inlined
        def compare(x, y, z, within, near, t, unwanted, found, squares):
            """Put side by side which of t entries `near` a particle are within its reach and not `unwanted`, and the
            squares of their distances; how many there are.
            """
            near_x, near_y, near_z, near_entries = near
            count = 0
            for k in range(0, t, n):
                dx, dy, dz = x - load(near_x, k), y - load(near_y, k), z - load(near_z, k)
                r2 = dx * dx + (dy * dy + dz * dz)
                mask = unlike_all(near_entries, k, unwanted, r2 < within)
                keep(found, count, near_entries, k, mask)
                keep_lanes(squares, count, r2, mask)
                count += count_ones(bits(mask))
            return count

        return compare

    @inlined
    def append_near(x, y, z, within, near, t, itself, out, m):
        """Append to `out` which of t entries `near` a particle are within its reach; where they end."""
        near_x, near_y, near_z, near_entries = near
        for k in range(0, t, n):
            dx, dy, dz = x - load(near_x, k), y - load(near_y, k), z - load(near_z, k)
            mask = unlike(near_entries, k, itself, dx * dx + (dy * dy + dz * dz) < within)
            keep(out, m, near_entries, k, mask)
            m += count_ones(bits(mask))
        return m

    @inlined
    def collect(own, flat, boxes, reach, corners, longest2, grid, held, out, q):
        """Append to `out` the particles of some columns near box `own`.

        grid: corner, columns per length, columns along x and y, and how many such layers. held: where columns start,
        the number of the first cluster, and `begins`: of each column the first cluster that was not wholly below the
        box that was asked for before, which the search goes on from.
        """
        lower, scale, shape, zones = grid
        columns, first, begins = held
        out_x, out_y, out_z, out_entries = out
        low_x, low_y, low_z, high_x, high_y, high_z = corners
        bottom, top = boxes[own, 2] - reach, boxes[own, 5] + reach
        nx, ny, slots = shape[0], shape[1], len(flat) // 3
        left = min(max(int((boxes[own, 0] - reach - lower[0]) * scale[0]), 0), nx - 1)
        right = min(max(int((boxes[own, 3] + reach - lower[0]) * scale[0]), 0), nx - 1)
        front = min(max(int((boxes[own, 1] - reach - lower[1]) * scale[1]), 0), ny - 1)
        back = min(max(int((boxes[own, 4] + reach - lower[1]) * scale[1]), 0), ny - 1)
        for zone in range(zones):
            for iy in range(front, back + 1):
                row = (zone * ny + iy) * nx
                for column in range(u8(row + left), u8(row + right + 1)):
                    begin, end = u8(columns[column] + first), u8(columns[column + u8(1)] + first)
                    c = u8(begins[column] + first)
                    if c > begin and boxes[c - u8(1), 5] >= bottom:
                        c = begin
                    while c < end and boxes[c, 5] < bottom:
                        c += u8(1)
                    begins[column] = np.int64(c) - first
                    while c < end and boxes[c, 2] <= top:
                        s = np.int64(CLUSTER) * np.int64(c)
                        x, y, z = load(flat, s), load(flat, slots + s), load(flat, 2 * slots + s)
                        dx, dy, dz = beyond(x, low_x, high_x), beyond(y, low_y, high_y), beyond(z, low_z, high_z)
                        mask = dx * dx + (dy * dy + dz * dz) < longest2
                        if c + u8(n // CLUSTER) > end:
                            mask = mask_of(np.int64(bits(mask)) & 0xFF)
                        keep_lanes(out_x, q, x, mask)
                        keep_lanes(out_y, q, y, mask)
                        keep_lanes(out_z, q, z, mask)
                        append(out_entries, q, np.int32(RECORD * s), mask)
                        q += count_ones(bits(mask))
                        c += u8(n // CLUSTER)
        return q

    @inlined
    def unlike_one(array, k, unwanted, mask):
        return unlike(array, k, unwanted[0], mask)

    @inlined
    def unlike_three(array, k, unwanted, mask):
        itself, one, other = unwanted
        return unlike(array, k, itself, unlike(array, k, one, unlike(array, k, other, mask)))

    compare, compare_bound = comparing(unlike_one), comparing(unlike_three)

    @jit(key=("build_list", isa))
    def build_list(
        clusters, places, boxes, reach, nearer, padding, pad_entry, own_columns, ghost_columns, grid,
        excluded_starts, excluded, start, near_ends, entries,
    ):  # fmt: skip
        """See `reference.neighbors`; returns the entries written, or -1 - (an estimate) where `entries` is short.

        nearer: distances in growing order; near_ends[k, s] is where the part of a list ends that has all neighbors up
        to nearer[k].
        """
        lower, scale, shape, ghost_lower, ghost_shape, brick_low, brick_high = grid
        flat, slots, within = places.reshape(-1), places.shape[1], broadcast(np.float32(reach * reach))
        excludes = len(excluded) > 0
        simple = len(nearer) == 0 and not excludes
        longest2 = broadcast(np.float32(reach * reach * 1.00001))  # of distances from a box, which round otherwise
        near_x, near_y = np.empty(slots + n, np.float32), np.empty(slots + n, np.float32)
        near_z, near_entries = np.empty(slots + n, np.float32), np.empty(slots + n, np.int32)
        near, found = (near_x, near_y, near_z, near_entries), np.empty(slots + 2 * n, np.int32)
        squares = np.empty(slots + 2 * n, np.float32)  # of the distances of what was found
        begins, ghost_begins = own_columns.copy(), ghost_columns.copy()
        m = most = 0
        for own in range(clusters):
            base = CLUSTER * own
            low_x, low_y, low_z = np.float32(np.inf), np.float32(np.inf), np.float32(np.inf)
            high_x, high_y, high_z = -low_x, -low_y, -low_z
            for i in range(base, base + CLUSTER):
                x, y, z = flat[i], flat[slots + i], flat[2 * slots + i]
                if x < np.float32(0.25 * FAR):
                    low_x, low_y, low_z = min(low_x, x), min(low_y, y), min(low_z, z)
                    high_x, high_y, high_z = max(high_x, x), max(high_y, y), max(high_z, z)
            lowest = broadcast(low_x), broadcast(low_y), broadcast(low_z)
            corners = (*lowest, broadcast(high_x), broadcast(high_y), broadcast(high_z))
            where, held = (lower, scale, shape, 1), (own_columns, 0, begins)
            t = collect(own, flat, boxes, reach, corners, longest2, where, held, near, 0)
            if is_near_ends(own, boxes, reach, brick_low, brick_high):
                where, held = (ghost_lower, scale, ghost_shape, 3), (ghost_columns, clusters, ghost_begins)
                t = collect(own, flat, boxes, reach, corners, longest2, where, held, near, t)
            store(near_x, t, broadcast(NOWHERE))
            if m + CLUSTER * (t + 2 * MOST_PADDING) > len(entries):
                return -1 - int((m + CLUSTER * (t + 2 * MOST_PADDING)) * (clusters / (own + 1.0)))
            for i in range(base, base + CLUSTER):
                start[i] = first = m
                if flat[i] > np.float32(0.25 * FAR):
                    near_ends[:, i] = m
                    continue
                x, y, z = broadcast(flat[i]), broadcast(flat[slots + i]), broadcast(flat[2 * slots + i])
                itself = np.int32(RECORD * i)
                if simple:
                    m = append_near(x, y, z, within, near, t, itself, entries, m)
                    m = pad(entries, first, m, padding, pad_entry)
                    continue
                bound = excluded_starts[i + 1] - excluded_starts[i] if excludes else 0
                if 1 <= bound <= 2:  # most of chains
                    one, other = excluded[excluded_starts[i]], excluded[excluded_starts[i + 1] - 1]
                    unwanted = itself, np.int32(RECORD * one), np.int32(RECORD * other)
                    count = compare_bound(x, y, z, within, near, t, unwanted, found, squares)
                else:
                    count = compare(x, y, z, within, near, t, (itself,), found, squares)
                if bound > 2:
                    kept = 0
                    for k in range(0, count, n):
                        r2, mask = load(squares, k), mask_of((1 << min(n, count - k)) - 1)
                        for partner in range(excluded_starts[i], excluded_starts[i + 1]):
                            mask = unlike(found, k, np.int32(RECORD * excluded[partner]), mask)
                        keep(found, kept, found, k, mask)
                        keep_lanes(squares, kept, r2, mask)
                        kept += count_ones(bits(mask))
                    count = kept
                most = max(count, most - 1)  # loops as long as before, whose ends are guessed right
                for k in range(count, most + n, n):
                    store(squares, k, broadcast(NOWHERE))
                beyond2 = broadcast(np.float32(0.0))
                for part in range(len(nearer)):
                    closer2 = broadcast(np.float32(nearer[part] * nearer[part]))
                    for k in range(0, most, n):
                        r2 = load(squares, k)
                        mask = (r2 < closer2) & (r2 >= beyond2)
                        keep(entries, m, found, k, mask)
                        m += count_ones(bits(mask))
                    near_ends[part, i] = first + ((m - first + padding - 1) & -padding)
                    beyond2 = closer2
                for k in range(0, most, n):
                    r2 = load(squares, k)
                    mask = (r2 < within) & (r2 >= beyond2)
                    keep(entries, m, found, k, mask)
                    m += count_ones(bits(mask))
                m = pad(entries, first, m, padding, pad_entry)
        start[clusters * CLUSTER] = m
        return m

    return build_list


@jit
def _build_list_scalar(
    clusters, places, boxes, reach, nearer, padding, pad_entry, own_columns, ghost_columns, grid,
    excluded_starts, excluded, start, near_ends, entries,
):  # fmt: skip
    """`build_list` without vectors, whose lists have no parts by distance."""
    lower, scale, shape, ghost_lower, ghost_shape, brick_low, brick_high = grid
    flat, y_at, z_at = places.reshape(-1), np.uint64(places.shape[1]), np.uint64(2 * places.shape[1])
    found = np.empty(len(boxes) + 1, np.int32)
    squares, within = np.empty(CLUSTER, np.float32), np.float32(reach * reach)
    m = 0
    for own in range(clusters):
        found[0] = own
        t = near(own, boxes, reach, own_columns, 0, lower, scale, shape, 1, found, 1)
        if is_near_ends(own, boxes, reach, brick_low, brick_high):
            t = near(own, boxes, reach, ghost_columns, clusters, ghost_lower, scale, ghost_shape, 3, found, t)
        if m + CLUSTER * (CLUSTER * t + padding + CLUSTER) > len(entries):
            return -1 - int((m + CLUSTER * (CLUSTER * t + padding + CLUSTER)) * (clusters / (own + 1.0)))
        for lane in range(CLUSTER):
            i = own * CLUSTER + lane
            start[i], near_ends[:, i] = m, m
            x, y, z = places[0, i], places[1, i], places[2, i]
            if x > np.float32(0.25 * FAR):
                continue
            for k in range(t):
                base = np.uint64(CLUSTER) * np.uint64(found[k])
                for other in range(np.uint64(CLUSTER)):  # eight distances at once, where the compiler has vectors
                    dx, dy = x - flat[base + other], y - flat[y_at + base + other]
                    dz = z - flat[z_at + base + other]
                    squares[other] = dx * dx + dy * dy + dz * dz
                if k == 0:
                    squares[lane] = 2 * within
                first = np.int32(CLUSTER * RECORD * found[k])
                for other in range(CLUSTER):
                    entries[np.uint64(m)] = first + np.int32(RECORD * other)
                    m += 1 if squares[other] < within else 0
            if len(excluded) > 0 and excluded_starts[i] < excluded_starts[i + 1]:
                stop, m = m, start[i]
                for k in range(start[i], stop):
                    kept = True
                    for other in range(excluded_starts[i], excluded_starts[i + 1]):
                        kept &= entries[k] != RECORD * excluded[other]
                    entries[m] = entries[k]
                    m += 1 if kept else 0
            while (m - start[i]) & (padding - 1):
                entries[m] = pad_entry
                m += 1
            near_ends[:, i] = m
    start[clusters * CLUSTER] = m
    return m


@jit
def split_clusters(boxes, clusters, lower, upper, reach, inner, outer):
    """See `reference.split_clusters`: how many went to `inner`; the others, in `outer`, are the rest of `clusters`."""
    count_in, count_out = 0, 0
    for c in range(clusters):
        inside = True
        for d in range(3):
            inside &= boxes[c, d] - reach >= lower[d] and boxes[c, 3 + d] + reach < upper[d]
        if inside:
            inner[count_in] = c
            count_in += 1
        else:
            outer[count_out] = c
            count_out += 1
    return count_in
