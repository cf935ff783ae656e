"""The neighbor list of a rank on a GPU: particles sorted into cells, ghosts beside them, and who is in reach."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.comm.device import Device
from hpckit.comm.mesh import Mesh
from hpckit.kernels.particles.cells.constants import RECORD
from hpckit.kernels.particles.cells.cuda import assign_cells, build_list, cell_starts
from hpckit.md.device_ghosts import DeviceGhostExchange
from hpckit.md.device_particles import ROOM, DeviceParticles
from hpckit.particles.migration import exchange
from hpckit.plan.particles.domain import Bricks

WARP = 32
EVERYWHERE = (*(-np.inf,) * 3, *(np.inf,) * 3)
MOST_CELLS = 4  # a particle, in systems that are mostly empty
FIRST_CAPACITY = 64  # neighbors, before the first list says how many


class DeviceNeighborList:
    """Who is within `reach` of each own particle: `entries` [capacity, stride] and `lengths`, see `cells.cuda`.

    A rebuild waits for the GPU to learn how many ghosts there are and whether the lists fit; with several ranks, also
    for the particles that leave.
    """

    def __init__(self, bricks: Bricks, mesh: Mesh, reach: float, device: Device) -> None:
        self.bricks, self.mesh, self.reach, self.device = bricks, mesh, reach, device
        self.slots = 0  # own and ghosts
        self.capacity = FIRST_CAPACITY
        self.built = device.zeros((0, RECORD))  # positions at the rebuild
        self.entries, self.lengths = device.zeros((0, 0), np.int32), device.zeros((0,), np.int32)
        low, high = bricks.bounds(mesh.rank)
        self.center = 0.5 * (low + high)

    def rebuild(self, particles: DeviceParticles, ghosts: DeviceGhostExchange) -> None:
        """Collective: migrate, sort, exchange ghosts, list. Particles are wrapped."""
        self._make_grid(particles.slots)
        own_starts = self._sort_own(particles)
        records = ghosts.rebuild(self.bricks, particles, self.reach)
        ghost_starts = self._place_ghosts(particles, ghosts, records)
        self._list(particles, own_starts, ghost_starts)
        if len(self.built) < particles.slots:
            self.built = self.device.zeros((particles.capacity, RECORD))
        self.built[: particles.slots] = particles.positions[: particles.slots]

    def _make_grid(self, count: int) -> None:
        """Cells over the brick and the ghosts around it: half the reach wide, or more where there is little in them."""
        low, high = self.bricks.bounds(self.mesh.rank)
        lengths = high - low + 2 * self.reach
        edge = 0.5 * self.reach * (1 + 1e-9)
        while np.prod(np.ceil(lengths / edge)) > MOST_CELLS * count + 4096:
            edge *= 1.25
        self._around = 2 if edge < self.reach else 1
        nx, ny, nz = (int(n) for n in np.ceil(lengths / edge))
        self._shape, self._cells = (nx, ny, nz), nx * ny * nz
        self._grid = (*map(float, low - self.reach), 1.0 / edge)

    def _assign(self, positions: Any, count: int, owned: tuple[float, ...]) -> Any:
        cells = self.device.zeros((count,), np.int32)
        assign_cells(positions, count, self._grid, self._shape, owned, self._cells, cells)
        return cells

    def _starts(self, sorted_cells: Any, count: int) -> Any:
        starts = self.device.zeros((self._cells + 1,), np.int32)
        cell_starts(sorted_cells, count, starts)
        return starts

    def _sort_own(self, particles: DeviceParticles) -> Any:
        if self.mesh.size == 1:
            cells, staying = self._assign(particles.positions, particles.slots, EVERYWHERE), particles.slots
        else:
            low, high = self.bricks.owned(self.mesh.rank)
            owned = (*map(float, low), *map(float, high))
            cells = self._assign(particles.positions, particles.slots, owned)
            leaving = self.device.xp.flatnonzero(cells == self._cells)  # waits for the GPU
            staying = particles.slots - len(leaving)
            staying += self._migrate(particles, leaving)
            cells = self._assign(particles.positions, particles.slots, owned)
        order = self.device.xp.argsort(cells, kind="stable")
        particles.reorder(order, staying)
        return self._starts(cells[order], staying)

    def _migrate(self, particles: DeviceParticles, leaving: Any) -> int:
        """Collective: send home who left; how many came, which stand behind all others, those who left included."""
        travelers = particles.travelers(leaving)
        homes = self.bricks.owners(travelers["position"][:, :3])
        travelers = travelers[np.argsort(homes, kind="stable")]
        arrived = exchange(self.mesh, travelers, np.bincount(homes, minlength=self.mesh.size))
        particles.append(arrived)
        return len(arrived)

    def _place_ghosts(self, particles: DeviceParticles, ghosts: DeviceGhostExchange, records: Any) -> Any:
        count, first = len(records), particles.slots
        cells = self._assign(records, count, EVERYWHERE)
        order = self.device.xp.argsort(cells, kind="stable")
        particles.reserve(first + count)
        particles.positions[first : first + count] = records[order]
        particles.ghost_slots, self.slots = count, first + count
        places = self.device.xp.argsort(order, kind="stable")  # the inverse of a permutation
        ghosts.settle(places + first)
        return self._starts(cells[order], count)

    def _list(self, particles: DeviceParticles, own_starts: Any, ghost_starts: Any) -> None:
        count, ghosts = particles.slots, particles.ghost_slots
        stride = max(WARP, -(-count // WARP) * WARP)
        if len(self.lengths) < stride:
            self.lengths = self.device.zeros((int(ROOM * stride) // WARP * WARP + WARP,), np.int32)
        cells = self._grid, self._shape, self._around, own_starts, ghost_starts
        while True:
            if self.entries.size < self.capacity * stride:
                self.entries = self.device.zeros((int(ROOM * self.capacity * stride),), np.int32)
            entries = self.entries[: self.capacity * stride].reshape(self.capacity, stride)
            longest = self.device.zeros((1,), np.int32)
            build_list(particles.positions, count, ghosts, *cells, self.reach, entries, self.lengths, longest)
            found = int(self.device.to_host(longest)[0])  # waits for the GPU
            if found == 0:
                self.table = entries
                return
            self.capacity = int(ROOM * found) + 1
