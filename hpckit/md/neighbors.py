"""The neighbor list of a rank: particles sorted into columns and clusters, ghosts beside them, and who is in reach."""

from __future__ import annotations

import math

import numpy as np

from hpckit.errors import BlowUpError
from hpckit.kernels.particles.cells.constants import CLUSTER, RECORD
from hpckit.kernels.particles.cells.dispatch import (
    assign_columns,
    corners,
    ghost_slots,
    list_builder,
    pack_tiles,
    place,
    sort_columns,
    split_clusters,
)
from hpckit.kernels.particles.records.dispatch import type_words
from hpckit.particles.ghosts import GhostExchange
from hpckit.particles.particles import Particles
from hpckit.plan.particles.domain import Bricks

WIDTH = 1.18  # of a column, over the edge of a cube that holds a cluster
ZONES = 3  # of ghosts: below, beside and above the brick, so that no cluster spans two faces
PARTS = 4  # of the inner clusters, between which messages under way are looked after
FLOAT32_STEP = float(np.finfo(np.float32).eps)
ROOM = 1.1  # how much more is reserved than is needed now


class NeighborList:
    """Who is within `reach` of each own particle: `start`, `entries` for the kernels of `kernels.particles.pair`.

    entries: record offsets (4 x slot), for slot s those from start[s] to start[s + 1], padded to whole vectors with an
    empty slot. `inner` are the clusters whose neighbors are own particles and their images, `outer` the others;
    `inner_parts` are the former in pieces.
    """

    def __init__(self, bricks: Bricks, rank: int, reach: float, isa: str, padding: int) -> None:
        self.bricks, self.rank, self.reach, self.isa, self.padding = bricks, rank, reach, isa, padding
        self.start, self.entries = np.zeros(1, np.int64), np.empty(0, np.int32)
        self.clusters = self.ghost_clusters = 0
        self.slots = 0  # own, ghosts and the one that lists are padded with
        self.built = np.empty((0, RECORD))  # positions at the rebuild
        self._planned: Bricks | None = None

    def rebuild(self, particles: Particles, ghosts: GhostExchange) -> None:
        """Collective: sort, exchange ghosts, list. Particles are wrapped and at home.

        Raises `BlowUpError` on the rank that has a particle far beyond the box.
        """
        count = particles.count
        self._plan()
        self._grid(count)
        order = self._sort_own(particles)
        particles.reorder(order, self.clusters * CLUSTER)
        if particles.count != count:
            raise lost(self.rank)
        records = ghosts.rebuild(self.bricks, particles, self.reach)
        self._place_ghosts(particles, ghosts, records)
        self._list(particles)
        if len(self.built) < particles.slots:
            self.built = np.empty((particles.capacity, RECORD))
        self.built[: particles.slots] = particles.positions[: particles.slots]

    def _plan(self) -> None:
        """Where this rank's brick is: as long as the bricks stay. Inner clusters keep away from sides that are cuts."""
        if self.bricks is self._planned:
            return
        self._planned = self.bricks
        self._low, self._high = self.bricks.bounds(self.rank)
        self.center = 0.5 * (self._low + self._high)
        cut = np.array(self.bricks.topology.sizes) > 1
        lower, upper = self.bricks.owned(self.rank)
        self._inside = np.where(cut, lower, -np.inf), np.where(cut, upper, np.inf)
        self._parts = PARTS if cut.any() else 1

    def _grid(self, count: int) -> None:
        """Columns over the brick; the ghosts' columns are as wide and go on beyond it."""
        low, high = self._low, self._high
        density = max(count, 1) / float(np.prod(high - low))
        width = WIDTH * (CLUSTER / density) ** (1 / 3)
        if self.reach > 0.75 * width:  # a part of the reach is searched with fewer columns
            width = self.reach / max(1, round(self.reach / width))
        shape = np.maximum(1, np.rint((high - low)[:2] / width)).astype(np.int64)
        self._scale = shape / (high - low)[:2]
        beyond = np.ceil(self.reach * self._scale).astype(np.int64)
        self._shape, self._ghost_shape = shape, shape + 2 * beyond
        self._ghost_lower = low[:2] - beyond / self._scale

    def _sort_own(self, particles: Particles) -> np.ndarray:
        count = particles.slots
        columns, sizes = np.empty(count, np.int64), np.zeros(math.prod(self._shape), np.int64)
        z_ends = self._low[2], self._high[2]
        assign_columns(particles.positions, count, self._low, self._scale, self._shape, *z_ends, 1, columns, sizes)
        self._columns = _starts(sizes)
        self.clusters = int(self._columns[-1])
        order = np.empty(self.clusters * CLUSTER, np.int64)
        sort_columns(particles.positions, count, columns, sizes, self._columns, order)
        return order

    def _place_ghosts(self, particles: Particles, ghosts: GhostExchange, records: np.ndarray) -> None:
        count = len(records)
        columns, sizes = np.empty(count, np.int64), np.zeros(ZONES * math.prod(self._ghost_shape), np.int64)
        z_ends = self._low[2], self._high[2]
        grid = self._ghost_lower, self._scale, self._ghost_shape
        assign_columns(records, count, *grid, *z_ends, ZONES, columns, sizes)
        self._ghost_columns = _starts(sizes)
        self.ghost_clusters = int(self._ghost_columns[-1])
        own, slots = self.clusters * CLUSTER, self.ghost_clusters * CLUSTER
        order = np.empty(slots, np.int64)
        sort_columns(records, count, columns, sizes, self._ghost_columns, order)
        particles.reserve(own + slots + CLUSTER)
        place(records, order, slots, own, particles.positions)
        particles.ghost_slots, self.slots = slots, own + slots + CLUSTER
        where = np.empty(count, np.int64)
        ghost_slots(order, slots, own, where)
        ghosts.settle(where)

    def _list(self, particles: Particles) -> None:
        positions, clusters = particles.positions, self.clusters + self.ghost_clusters
        tiles, boxes = np.empty((clusters, 3, CLUSTER), np.float32), np.empty((clusters, 6))
        pack_tiles(positions, 0, clusters, self.center, tiles, boxes)
        lowest, highest = self._low.copy(), self._high.copy()
        corners(boxes, lowest, highest)
        self._place_padding(positions, highest[0])
        if len(self.start) < self.clusters * CLUSTER + 1:
            self.start = np.empty(int(ROOM * self.clusters * CLUSTER) + 1, np.int64)
        found = np.empty(clusters + 1, np.int32)
        grid = (self._low[:2], self._scale, self._shape, self._ghost_lower, self._ghost_shape, self._low, self._high)
        pad_entry = np.int32(RECORD * (self.slots - CLUSTER))
        reach, build = self._list_reach(lowest, highest), list_builder(self.isa)
        while True:
            columns = self._columns, self._ghost_columns
            where = self.start, self.entries, found
            count = build(self.clusters, tiles, boxes, reach, self.padding, pad_entry, *columns, grid, *where)
            if count >= 0:
                break
            self.entries = np.empty(int(ROOM * -count) + 1000, np.int32)
        self.length = count
        self._split(boxes)

    def _place_padding(self, positions: np.ndarray, farthest: float) -> None:
        """An empty slot for the ends of lists, out of reach and near enough for squares to stay moderate."""
        first = self.slots - CLUSTER
        positions[first : self.slots] = self.center[0]
        positions[first : self.slots, 0] = farthest + 3 * self.reach
        positions[first : self.slots, 3] = type_words(np.zeros(CLUSTER, np.int64))

    def _list_reach(self, lowest: np.ndarray, highest: np.ndarray) -> float:
        """The reach plus what float32 may round away: two coordinates, each by half a unit, and their difference."""
        largest = float(max((self.center - lowest).max(), (highest - self.center).max()))
        return self.reach * (1 + 1e-6) + 4 * FLOAT32_STEP * largest

    def _split(self, boxes: np.ndarray) -> None:
        """Clusters that need no other rank's particles, and those that do."""
        inner, outer = np.empty(self.clusters, np.int32), np.empty(self.clusters, np.int32)
        count = split_clusters(boxes, self.clusters, *self._inside, self.reach, inner, outer)
        self.inner, self.outer = inner[:count], outer[: self.clusters - count]
        size = max(1, -(-count // self._parts))
        self.inner_parts = [self.inner[first : first + size] for first in range(0, count, size)]


def lost(rank: int) -> BlowUpError:
    """The error for particles that are nowhere near the box, or at no place at all."""
    return BlowUpError(
        "a particle is lost: it is far beyond the box, or its position is no longer a number",
        where=f"rank {rank}",
        likely="two particles that came too close: a time step too long, or overlaps at the start",
        do="lower time.dt, start from particles that do not overlap, or minimize first (dynamics.kind=fire)",
    )


def _starts(sizes: np.ndarray) -> np.ndarray:
    """The first cluster of each column of so many particles, and the number of all."""
    return np.concatenate([[0], np.cumsum(-(-sizes // CLUSTER))])
