"""Cells and neighbor lists, Numba. What the functions compute is said in `reference`.

The list is built in float32 with a reach that is longer by the rounding (`list_reach`), eight distances at a time: one
particle against a cluster of eight. That the list then holds a few pairs beyond the reach does no harm, since forces
look at the distance again; none within it is missed.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile import lanes as vectors
from hpckit.kernels.compile import vectors as simd
from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.particles.cells.constants import CLUSTER, FAR, FAR_STEP, RECORD

TABLE = vectors.lane_table()


@jit
def assign_columns(positions, count, lower, scale, shape, z_low, z_high, zones, columns, sizes):
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
def pack_tiles(positions, first, stop, center, tiles, boxes):
    """See `reference.pack_tiles`, for the clusters first to stop - 1."""
    for c in range(first, stop):
        for d in range(3):
            low, high = np.inf, -np.inf
            for lane in range(CLUSTER):
                x = positions[c * CLUSTER + lane, d]
                tiles[c, d, lane] = x - center[d]
                if positions[c * CLUSTER + lane, 0] < 0.5 * FAR:
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


@cache
def list_builder(isa: str) -> Any:
    """The kernel `build_list` for an instruction set."""
    if isa == "scalar":
        return _build_list_scalar
    eight, append = vectors.lanes("f", 8), vectors.append(isa)
    load, broadcast, bits, count_ones = eight.load, eight.broadcast, simd.bits, simd.count_ones

    @jit(key=("build_list", isa))
    def build_list(
        clusters, tiles, boxes, reach, padding, pad_entry, own_columns, ghost_columns, grid, start, entries, found
    ):
        """See `reference.build_list`; returns the entries written, or -1 - (an estimate) where `entries` is short."""
        lower, scale, shape, ghost_lower, ghost_shape, brick_low, brick_high = grid
        flat = tiles.reshape(-1)
        within = broadcast(np.float32(reach * reach))
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
                start[i] = m
                base = own * 3 * CLUSTER + lane
                if flat[base] > np.float32(0.25 * FAR):
                    continue
                x, y, z = broadcast(flat[base]), broadcast(flat[base + 8]), broadcast(flat[base + 16])
                own_bit = np.int32(1 << lane)
                for k in range(t):
                    c = np.int64(found[k])
                    dx, dy, dz = x - load(flat, 24 * c), y - load(flat, 24 * c + 8), z - load(flat, 24 * c + 16)
                    hits = bits(dx * dx + (dy * dy + dz * dz) < within)
                    if k == 0:
                        hits &= ~own_bit
                    append(entries, m, np.int32(CLUSTER * RECORD * c), hits, TABLE)
                    m += count_ones(hits)
                while (m - start[i]) & (padding - 1):
                    entries[m] = pad_entry
                    m += 1
        start[clusters * CLUSTER] = m
        return m

    return build_list


@jit
def _build_list_scalar(
    clusters, tiles, boxes, reach, padding, pad_entry, own_columns, ghost_columns, grid, start, entries, found
):
    """`build_list` without vectors."""
    lower, scale, shape, ghost_lower, ghost_shape, brick_low, brick_high = grid
    flat, squares, within = tiles.reshape(-1), np.empty(CLUSTER, np.float32), np.float32(reach * reach)
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
            start[i] = m
            x, y, z = tiles[own, 0, lane], tiles[own, 1, lane], tiles[own, 2, lane]
            if x > np.float32(0.25 * FAR):
                continue
            for k in range(t):
                base = np.uint64(3 * CLUSTER) * np.uint64(found[k])
                for other in range(np.uint64(CLUSTER)):  # eight distances at once, where the compiler has vectors
                    dx, dy = x - flat[base + other], y - flat[base + np.uint64(8) + other]
                    dz = z - flat[base + np.uint64(16) + other]
                    squares[other] = dx * dx + dy * dy + dz * dz
                if k == 0:
                    squares[lane] = 2 * within
                first = np.int32(CLUSTER * RECORD * found[k])
                for other in range(CLUSTER):
                    entries[np.uint64(m)] = first + np.int32(RECORD * other)
                    m += 1 if squares[other] < within else 0
            while (m - start[i]) & (padding - 1):
                entries[m] = pad_entry
                m += 1
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
