"""The neighbor list of a rank: own particles sorted in space, ghosts, and pairs in reach; and when to rebuild it."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpckit.comm.device import Device
from hpckit.comm.mesh import Mesh
from hpckit.errors import BlowUpError
from hpckit.kernels.particles.cells.constants import CLUSTER, RECORD
from hpckit.kernels.particles.cells.dispatch import Lists, ghost_slots, grid_over, list_neighbors, place, sort
from hpckit.kernels.particles.charged.clusters.dispatch import GROUP, ClusterPairs, list_pairs
from hpckit.kernels.particles.integrate.cell.dispatch import deform
from hpckit.kernels.particles.integrate.dispatch import dilate, largest_move
from hpckit.kernels.particles.pair.potential import Form
from hpckit.particles.ghosts import GhostExchange
from hpckit.particles.particles import Particles
from hpckit.plan.particles.cell import Cell
from hpckit.plan.particles.domain import DomainDecomposition


@dataclass(frozen=True)
class Rebuilds:
    """When to rebuild neighbor lists: every `every` steps, but not within `delay` steps after the last rebuild; with
    `check`, only if a particle has moved more than half the skin since.
    """

    every: int = 1
    delay: int = 0
    check: bool = True


SPARE, SPARE_OF_FEW = 1.4, 2.0  # of the skin: how far lists may reach, and those of few neighbors
FEW = 2  # vectors, one more of which costs a step less than it saves rebuilds
ONE_BEFORE, FOUR_BEFORE = np.array([1.0, 0.0]), np.array([2.0, 1.5, 1.0, 0.5, 0.0])  # vectors: where parts of lists end
SPREAD = 0.025  # of the neighbors: by how much most particles have more than the mean
AS_BUILT = np.ones(3)
LANES = {"d": 8, "f": 16}  # of the longest vectors, whatever this rank's processor has


class NeighborList:
    """The neighbors within the cutoff plus `skin` of each own particle: `lists` for the force kernels of `form`, or
    pairs of `clusters` where `by_clusters` is set.

    `skin` and `reach` are those of the last rebuild. by_distance: lists, which are padded to whole vectors, reach
    farther than they have to where these would be partly empty at the mean density, or where they are short, and are
    rebuilt less often; nearer neighbors come first, and `ends` leaves the others out as long as no move since then can
    have brought them within the cutoff.

    `builds` counts the rebuilds, `missed` the rebuilds that came after a particle had moved more than half the skin,
    `since` the steps after the last one; `built` has the positions at that time, by slot.
    """

    def __init__(
        self,
        mesh: Mesh,
        cutoff: float,
        skin: float,
        rebuilds: Rebuilds,
        form: Form,
        device: Device,
        by_clusters: bool = False,
        by_distance: bool = False,
    ) -> None:
        self.mesh, self.skin, self.reach, self.rebuilds = mesh, skin, cutoff + skin, rebuilds
        self._cutoff, self._least = cutoff, skin
        self._form, self._device, self._by_clusters, self._by_distance = form, device, by_clusters, by_distance
        self.slots = 0  # own, ghosts and padding
        self.built = device.zeros((0, RECORD))
        self.builds = self.missed = self.since = 0
        self.lists: Lists | None = None
        self.clusters: ClusterPairs | None = None
        self._planned: DomainDecomposition | None = None
        self._reach_for: tuple[Any, ...] = ()  # what the reach was found for
        self._clear: tuple[np.ndarray, np.ndarray] | None = None  # corners between which no ghost lies, if not a domain
        self.stretch = AS_BUILT  # of the box since the last rebuild: factors of its edges, or a map [3, 3] of places
        self.next_skin: float | None = None  # of the next rebuild, where it is known
        self.keeps_skin = False  # whether lists reach no farther than asked, so that steps of rebuilds are known
        self.extent = 0.0  # over which molecules reach: ghosts come from as far away, beside the skin
        self.nearer = np.zeros(0)  # up to where neighbors come before others in lists
        self.moved2 = math.inf  # the square of the largest move since the rebuild, while it is known

    def place(
        self, domains: DomainDecomposition, particles: Particles, ghosts: GhostExchange, total: int, excluded: float
    ) -> None:
        """Collective, the first part of a rebuild: sort, and exchange ghosts. Particles, `total` on all ranks, of whose
        neighbors so many are left out on average, must be wrapped and at home. Waits for a GPU.

        Raises `BlowUpError` on the rank that has a particle far beyond the box.
        """
        count = particles.count
        self._set_reach(domains, total, excluded)
        self._plan(domains)
        beyond = max(self.reach, self.extent + self._least)
        where = self._low, self._high, beyond, self._clear
        grid = grid_over(particles.positions, round(count * self._room), *where)
        self._grid = grid._replace(reach=self.reach)
        order, own_starts = sort(particles.positions, particles.slots, grid, ghosts=False)
        particles.reorder(order, len(order))
        if particles.count != count:
            raise lost(self.mesh.rank, particles)
        records = ghosts.rebuild(domains, particles, beyond)
        order, ghost_starts = sort(records, len(records), grid, ghosts=True)
        self._place_ghosts(particles, ghosts, records, order)
        self._starts = own_starts, ghost_starts

    def list_pairs(self, particles: Particles, ghosts: GhostExchange, excluded: tuple[Any, Any] | None) -> None:
        """Collective, the second part: list pairs, without those `excluded` (on the host): slot s has the partners
        excluded[1][excluded[0][s] : excluded[0][s + 1]].
        """
        what = particles.positions, particles.slots, particles.ghost_slots, self._grid, self._starts
        if self._by_clusters:
            taken = ghosts.ahead(self.slots - CLUSTER)
            self.clusters = list_pairs(*what, taken, self._inside, self._form.isa, self.clusters)
        else:
            how = self._inside, self._form.isa, self._form.lanes, self.nearer, excluded
            self.lists = list_neighbors(*what, *how, self.lists)
        if len(self.built) < particles.slots:
            self.built = self._device.zeros((particles.capacity, RECORD))
        self.built[: particles.slots] = particles.positions[: particles.slots]
        self.builds += 1
        self.since = 0
        self.stretch = AS_BUILT

    def dilate(self, slots: int, factors: np.ndarray, point: np.ndarray) -> None:
        """Take the places of the last rebuild along with a box that changes its edges."""
        dilate(self.built, slots, factors, point)
        self.stretch = self.stretch * factors

    def deform(self, slots: int, matrix: np.ndarray, center: np.ndarray, target: np.ndarray) -> None:
        """Take the places of the last rebuild along with a cell that changes its shape."""
        deform(self.built, slots, matrix, center, target)
        self.stretch = matrix @ (self.stretch if self.stretch.ndim == 2 else np.diag(self.stretch))

    @property
    def _least_stretch(self) -> float:
        """The least factor of a distance by the change of the box since the last rebuild."""
        if self.stretch.ndim == 1:
            return float(self.stretch.min())
        return float(np.linalg.svd(self.stretch, compute_uv=False)[-1])

    def is_due(self, particles: Particles, ghosts: GhostExchange) -> bool:
        """Collective, once per step: whether to rebuild the lists. If it checks moves, it waits for a GPU."""
        self.since += 1
        rebuilds = self.rebuilds
        due = self.since >= rebuilds.delay and self.since % rebuilds.every == 0
        if not due or not rebuilds.check:
            return due
        self.moved2 = ghosts.largest(largest_move(particles.positions, self.built, particles.slots))
        spare = self.skin
        if self.stretch is not AS_BUILT:  # particles that were out of reach have come closer with a box that shrank
            spare -= (1 - min(1.0, self._least_stretch)) * self.reach
        late = not (spare > 0 and self.moved2 <= (0.5 * spare) ** 2)
        if late and self.since == max(1, rebuilds.delay, rebuilds.every):
            self.missed += self.since > 1
        return bool(late)

    @property
    def parts(self) -> Lists | ClusterPairs:
        """What names the `inner` and the `outer` clusters."""
        found = self.clusters if self._by_clusters else self.lists
        assert found is not None
        return found

    @property
    def pairs(self) -> int:
        """The number of pairs in the lists, in both orders and including padding; waits for a GPU."""
        if self.clusters is not None:
            return 2 * CLUSTER * GROUP * int(self.clusters.bounds[self._own // GROUP])
        if self.lists is None:
            return 0
        bounds = self.lists.bounds
        return int(bounds[: self._own].sum() if self._device.is_gpu else bounds[self._own])

    @property
    def ends(self) -> Any:
        """Where lists end: before the pairs that no move since the rebuild can have brought within the cutoff."""
        assert self.lists is not None
        if self.lists.near_ends is not None and self.stretch is AS_BUILT:
            for near, ends in zip(self.nearer, self.lists.near_ends, strict=True):
                if 2.0 * math.sqrt(self.moved2) < near - self._cutoff:
                    return ends
        return self.lists.bounds[1:]

    def _set_reach(self, domains: DomainDecomposition, total: int, excluded: float) -> None:
        """Set skin and reach such that the last vectors of lists are filled at this density, and `nearer`, up to where
        neighbors fill fewer; the same on all ranks.
        """
        given = domains, total, excluded, self.keeps_skin, self.rebuilds, self.next_skin
        if given == self._reach_for:
            return
        self._reach_for = given
        per_cube = 4.0 / 3.0 * math.pi * total / math.prod(domains.lengths.tolist())
        filled, beyond = self._filled_at(per_cube, excluded)
        self.skin, self.next_skin = self.next_skin or filled, None
        self.reach = self._cutoff + self.skin
        parted = (beyond > 0.0) & (beyond < self.skin) & self.rebuilds.check
        self.nearer = self._cutoff + beyond[parted]

    def _filled_at(self, per_cube: float, excluded: float) -> tuple[float, np.ndarray]:
        """A skin with which vectors are filled, and how far beyond the cutoff parts of lists may end. per_cube:
        particles in a sphere over the cube of its radius.
        """
        lanes, least = LANES[self._form.kind], self._cutoff + self._least
        skin, nearer = self._least, np.zeros(0)
        if self._by_distance and not self._device.is_gpu and per_cube and not self.keeps_skin:
            vectors, spare, before = math.ceil(max(1.0, per_cube * least**3 - excluded) / lanes), SPARE, ONE_BEFORE
            if self.rebuilds.check and vectors <= FEW:
                vectors, spare, before = vectors + 1, SPARE_OF_FEW, FOUR_BEFORE
            filled = lanes * (vectors - before)
            counts = np.maximum(0.0, filled - SPREAD * (filled + excluded) - 1.0) + excluded
            beyond = (counts / per_cube) ** (1 / 3) - self._cutoff
            skin = min(max(self._least, float(beyond[-1])), spare * self._least)
            nearer = beyond[:-1]
        return skin, nearer

    def _plan(self, domains: DomainDecomposition) -> None:
        """Set this rank's domain, valid while the domains stay. Inner clusters keep away from sides that are cuts."""
        if domains is self._planned:
            return
        self._planned = domains
        low, high = domains.bounds(self.mesh.rank)
        self._low, self._high, self._room, self._clear = low, high, 1.0, None
        cut = np.array(domains.topology.sizes) > 1
        lower, upper = domains.owned(self.mesh.rank)
        self._inside = np.where(cut, lower, -np.inf), np.where(cut, upper, np.inf)
        if any(domains.tilt):
            corners = domains.cell.leaning(np.array([*itertools.product(*zip(low, high, strict=True))]))
            self._low, self._high = corners.min(axis=0), corners.max(axis=0)
            self._room = float(np.prod((self._high - self._low) / (high - low)))  # around the domain, over its volume
            self._clear = self._upright(domains.cell, low, high, 0.0)
            self._inside = self._upright(domains.cell, *self._inside, self.reach)
        self.center = 0.5 * (self._low + self._high)

    def _upright(self, cell: Cell, lower: np.ndarray, upper: np.ndarray, reach: float) -> tuple[np.ndarray, np.ndarray]:
        """The largest upright corners that lie between these straight ones, for all y and z within `reach` of this
        rank's domain.
        """
        low, high = lower.copy(), upper.copy()
        first, last = self._low - reach - cell.lower, self._high + reach - cell.lower
        xy, xz, yz = cell.slopes
        over_y = np.array([yz * z for z in (first[2], last[2])])
        over_x = np.array([xy * (y - yz * z) + xz * z for y in (first[1], last[1]) for z in (first[2], last[2])])
        for dim, over in ((0, over_x), (1, over_y)):
            low[dim], high[dim] = low[dim] + over.max(), high[dim] + over.min()
        return low, high

    def _place_ghosts(self, particles: Particles, ghosts: GhostExchange, records: Any, order: Any) -> None:
        own, slots = particles.slots, len(order)
        self._own = own
        particles.reserve(own + slots + CLUSTER)
        place(records, order, slots, own, particles.positions)
        particles.ghost_slots, self.slots = slots, own + slots + CLUSTER
        where = self._device.zeros((len(records),), np.int64)
        ghost_slots(order, slots, own, where)
        ghosts.settle(where)


def lost(rank: int, particles: Particles) -> BlowUpError:
    """The error for particles that are far beyond the box or have a non-finite position; it names one of them."""
    held = particles.on_host()
    slots = held.own
    away = np.abs(held.positions[slots, :3]).max(axis=1, initial=0.0)
    named = f", particle {held.ids[slots[np.argmax(away)]] + 1}" if len(slots) else ""  # of NaN the first
    return BlowUpError(
        "a particle is lost: it is far beyond the box, or its position is no longer a number",
        where=f"rank {rank}{named}",
        likely="two particles that came too close: a time step too long, or overlaps at the start",
        do="lower time.dt, start from particles that do not overlap, or minimize first (dynamics.kind=fire)",
    )
