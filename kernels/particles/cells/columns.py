"""Particles of the host sorted into columns of clusters, and the lists of their neighbors: what `simd` is called for.

`grid_over`, `sort` and `list_neighbors` are those of `cuda` for NumPy arrays. Columns stand over a domain in x and y;
those of the ghosts are as wide and go on beyond it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from hpckit.kernels.particles.cells.constants import CLUSTER, RECORD
from hpckit.kernels.particles.cells.reference import Lists
from hpckit.kernels.particles.cells.simd import (
    assign_columns,
    corners,
    ghost_slots,
    list_builder,
    pack_places,
    place,
    sort_columns,
    split_clusters,
)
from hpckit.kernels.particles.records.reference import type_words

__all__ = ["ghost_slots", "grid_over", "list_neighbors", "place", "sort"]

WIDTH = 1.18  # of a column, over the edge of a cube that holds a cluster
ZONES = 3  # of ghosts: below, beside and above the domain, so that no cluster spans two faces
PARTS = 4  # of the inner clusters, between which messages under way are looked after
FLOAT32_STEP = float(np.finfo(np.float32).eps)
TYPE_0 = float(type_words(np.zeros(1, np.int64))[0])
ROOM = 1.1  # how much more is reserved than is needed now


class CellColumns(NamedTuple):
    """Columns over the domain from `low` to `high`: `scale` of them per length, `shape` in x and y; and the ghosts'.
    clear: corners between which no ghost lies.
    """

    low: np.ndarray
    high: np.ndarray
    reach: float
    scale: np.ndarray
    shape: np.ndarray
    ghost_low: np.ndarray
    ghost_shape: np.ndarray
    clear: tuple[np.ndarray, np.ndarray]


def grid_over(
    positions: np.ndarray,
    count: int,
    low: np.ndarray,
    high: np.ndarray,
    reach: float,
    clear: tuple[np.ndarray, np.ndarray] | None = None,
) -> CellColumns:
    """Columns for so many particles in a domain, and for the ghosts within `reach` around it.

    clear: corners between which no ghost lies; None: those of the domain.
    """
    edges = (high - low).tolist()  # plain numbers: each operation on arrays of two costs a microsecond and more
    density = max(count, 1) / math.prod(edges)
    width = WIDTH * (CLUSTER / density) ** (1 / 3)
    if reach > 0.75 * width:  # a part of the reach is searched with fewer columns
        width = reach / max(1, round(reach / width))
    shape = [max(1, round(edge / width)) for edge in edges[:2]]
    scale = [number / edge for number, edge in zip(shape, edges[:2], strict=True)]
    beyond = [math.ceil(reach * each) for each in scale]
    ghost_low = [corner - more / each for corner, more, each in zip(low[:2].tolist(), beyond, scale, strict=True)]
    ghost_shape = [number + 2 * more for number, more in zip(shape, beyond, strict=True)]
    whole = np.array([shape, ghost_shape])
    parts = np.array([scale, ghost_low])
    return CellColumns(low, high, reach, parts[0], whole[0], parts[1], whole[1], clear or (low, high))


def sort(records: np.ndarray, count: int, grid: CellColumns, ghosts: bool) -> tuple[np.ndarray, np.ndarray]:
    """The order of `count` own particles, or ghosts: order[slot] is a particle, -1 for none; and where columns start.

    Slots that hold no particle are left out.
    """
    zones, low, shape = (ZONES, grid.ghost_low, grid.ghost_shape) if ghosts else (1, grid.low, grid.shape)
    nx, ny = shape.tolist()
    columns, sizes, starts = (
        np.empty(count, np.int64),
        np.empty(zones * nx * ny, np.int64),
        np.empty(zones * nx * ny + 1, np.int64),
    )
    z_ends = grid.low[2], grid.high[2]
    clusters = assign_columns(records, count, low, grid.scale, shape, *z_ends, zones, columns, sizes, starts)
    order = np.empty(clusters * CLUSTER, np.int64)
    sort_columns(records, count, columns, sizes, starts, order)
    return order, starts


def list_neighbors(
    positions: np.ndarray,
    own: int,
    ghosts: int,
    grid: CellColumns,
    starts: tuple[np.ndarray, np.ndarray],
    inside: tuple[np.ndarray, np.ndarray],
    isa: str,
    padding: int,
    nearer: np.ndarray,
    excluded: tuple[np.ndarray, np.ndarray] | None,
    held: Lists | None,
) -> Lists:
    """The neighbors of the `own` first slots among these and the `ghosts` slots behind them.

    starts: of the columns of own particles and of ghosts. inside: within these corners no other rank's particle is near
    (inf where the domain ends at no other). isa, padding: of the force kernel; the slots behind the ghosts become what
    lists are padded with. nearer: distances in growing order; neighbors up to each come before others. excluded: slot s
    has no neighbors among excluded[1][excluded[0][s] : excluded[0][s + 1]]. held: the lists before, whose memory is
    used again.
    """
    own_clusters = own // CLUSTER
    search = searched(positions, own + ghosts, grid)
    _place_padding(positions, own + ghosts, 0.5 * (grid.low + grid.high)[0], search.highest + 3 * grid.reach)
    none = np.zeros(1, np.int64)
    bounds, entries, near_ends = (
        (held.bounds, held.entries, held.near_ends) if held is not None else (none, np.empty(0, np.int32), none[None])
    )
    if len(bounds) < own + 1 or len(near_ends) != len(nearer):
        room = int(ROOM * own)
        bounds, near_ends = np.empty(room + 1, np.int64), np.empty((len(nearer), room), np.int64)
    pad_entry = np.int32(RECORD * (own + ghosts))
    build = list_builder(isa)
    parts = search.reach - (grid.reach - nearer)
    given = search.places, search.boxes, search.reach, parts, padding, pad_entry, *starts, search.where
    left_out = excluded or (none, np.empty(0, np.int32))
    while True:
        count = build(own_clusters, *given, *left_out, bounds, near_ends, entries)
        if count >= 0:
            break
        entries = np.empty(int(ROOM * -count) + 1000, np.int32)
    every = np.arange(own_clusters, dtype=np.int32)
    return Lists(entries, bounds, *parts_of(search.boxes, own_clusters, inside, grid.reach), near_ends, every)


class Search(NamedTuple):
    """Clusters as a search for neighbors takes them: places and boxes (`reference.pack_places`), a reach that is longer
    by what float32 rounds away, where the columns are, and the highest x.
    """

    places: np.ndarray
    boxes: np.ndarray
    reach: float
    where: tuple[np.ndarray, ...]
    highest: float


def searched(positions: np.ndarray, slots: int, grid: CellColumns) -> Search:
    """What a search for neighbors among so many slots needs."""
    center, clusters = 0.5 * (grid.low + grid.high), slots // CLUSTER
    places, boxes = np.empty((3, slots + CLUSTER), np.float32), np.empty((clusters, 6))
    pack_places(positions, clusters, center, places, boxes)
    lowest, highest = grid.low.copy(), grid.high.copy()
    corners(boxes, lowest, highest)
    # What float32 may round away: two coordinates, each by half a unit, and their difference.
    ends = zip(lowest.tolist(), center.tolist(), highest.tolist(), strict=True)
    largest = max(max(middle - first, last - middle) for first, middle, last in ends)
    reach = grid.reach * (1 + 1e-6) + 4 * FLOAT32_STEP * largest
    where = (grid.low[:2], grid.scale, grid.shape, grid.ghost_low, grid.ghost_shape, *grid.clear)
    return Search(places, boxes, reach, where, float(highest[0]))


def parts_of(
    boxes: np.ndarray, clusters: int, inside: tuple[np.ndarray, np.ndarray], reach: float
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """The inner and the outer own clusters, and the inner ones in pieces: see `Lists`."""
    inner, outer = np.empty(clusters, np.int32), np.empty(clusters, np.int32)
    count_in = split_clusters(boxes, clusters, *inside, reach, inner, outer)
    inner, outer = inner[:count_in], outer[: clusters - count_in]
    alone = all(map(math.isinf, (*inside[0].tolist(), *inside[1].tolist())))
    size = max(1, -(-count_in // (1 if alone else PARTS)))
    return inner, outer, [inner[i : i + size] for i in range(0, count_in, size)]


def _place_padding(positions: np.ndarray, first: int, middle: float, farthest: float) -> None:
    """Empty slots for the ends of lists, out of reach and near enough for squares to stay moderate."""
    positions[first : first + CLUSTER] = (farthest, middle, middle, TYPE_0)
