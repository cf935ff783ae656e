"""Spheres that touch: forces and torques of their contacts, which remember how far the surfaces have slid.

Each rank computes its own side of every contact, so what a contact remembers lies with the particle that owns the side,
goes with it to another rank, and finds its place in the new lists by the ids of both. Ghosts get velocities and spins
of each step between the two stages of the forces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hpckit.comm.device import HOST, Device
from hpckit.comm.mesh import Mesh
from hpckit.errors import InputError
from hpckit.kernels.particles.cells.constants import CLUSTER, RECORD
from hpckit.kernels.particles.granular.reference import INERTIA, PARTS, Contact
from hpckit.kernels.particles.granular.simd import (
    contact_kernel,
    known_contacts,
    near_kernel,
    place_contacts,
    roll,
    take_motion,
    work_of,
)
from hpckit.kernels.particles.records.dispatch import types_of
from hpckit.md.forces import Forces
from hpckit.md.neighbors import NeighborList
from hpckit.particles.ghosts import GhostExchange
from hpckit.particles.migration import send_to
from hpckit.particles.particles import Particles
from hpckit.plan.particles.domain import DomainDecomposition

SPIN = np.dtype([("id", "i8"), ("spin", "f8", 3)])
SIDE = np.dtype([("id", "i8"), ("other", "i8"), ("slid", "f8", 3)])  # of a contact, what its particle remembers
LAWS = ("hooke", "hertz")


@dataclass(frozen=True, eq=False)
class Spheres:
    """Spheres of each type with these diameters and densities, and their contacts; types in `still` (from 0) do not
    move.

    law: "hooke", or "hertz"; memory: whether friction has a spring beside its damper. See
    `kernels.particles.granular.reference`. Raises `InputError` for numbers that make no contact.
    """

    contact: Contact
    diameters: np.ndarray
    densities: np.ndarray
    law: str = "hooke"
    memory: bool = True
    still: Sequence[int] = field(default=())
    tail_energy = tail_virial = None

    def __post_init__(self) -> None:
        it = self.contact
        if not (np.isfinite(it).all() and min(it) >= 0 and it.normal > 0 and (it.tangent > 0 or not self.memory)):
            raise InputError(f"no contact of spheres: {it._asdict()}", do="give stiffness above 0, and no number below")
        if self.law not in LAWS or (self.law == "hertz" and not self.memory):
            raise InputError(f"contacts are hooke, or hertz with memory, not {self.law} with memory = {self.memory}")
        if len(self.diameters) != len(self.densities) or not min(*self.diameters, *self.densities) > 0:
            raise InputError("spheres need a diameter and a density above 0 for each type")
        if not set(self.still) <= set(range(self.types)):
            raise InputError(f"types that do not move are {[k + 1 for k in self.still]}, of {self.types}")

    @property
    def types(self) -> int:
        """The number of types."""
        return len(self.diameters)

    @property
    def sizes(self) -> np.ndarray:
        """Diameter and density of each type: [types, 2]."""
        return np.stack([self.diameters, self.densities], axis=1)

    @property
    def radii(self) -> np.ndarray:
        """The radius of each type."""
        return 0.5 * np.asarray(self.diameters, np.float64)

    @property
    def masses(self) -> np.ndarray:
        """The mass of each type."""
        r = self.radii
        return np.asarray(4.0 * np.pi / 3.0 * r * r * r * self.densities)

    @property
    def cutoff(self) -> float:
        """The largest diameter: beyond it there is no force."""
        return float(max(self.diameters))


class SphereForces(Forces):
    """The forces of contacts; see `Forces`. First the near neighbors, then forces and `torques`, [slots, 4].

    dt: the time that contacts slide on with the next forces: 0, or for the forces of a step its length
    (`hpckit.md.granular.rolling`). spins: [slots, 4], angular velocities, and 1 / mass.
    """

    stages, values_each = 2, 4 * PARTS

    def __init__(
        self,
        interaction: Spheres,
        precision: str = "double",
        exact: bool = False,
        isa: str | None = None,
        device: Device = HOST,
    ) -> None:
        if device.is_gpu:
            raise InputError("contacts of spheres run on the CPU only", do="leave --gpu out")
        super().__init__(interaction.types, True, precision, exact, isa, device)
        if self.mixed:
            raise InputError("contacts of spheres are computed in double precision", do="omit precision")
        it = interaction
        self.interaction, self.still, self.dt = it, tuple(it.still), 0.0
        self._near_kernel = near_kernel(replace(self.form, measure=False))
        self._kernels = {
            measure: contact_kernel(replace(self.form, measure=measure), it.law, it.memory) for measure in (False, True)
        }
        self._motion, self.torques = device.zeros((PARTS, 0, RECORD)), device.zeros((0, RECORD))
        self._owners = self._others = self._counts = np.zeros(0, np.int32)  # pairs near enough to touch
        self._inverse_inertia, self._work = np.zeros(0), device.zeros((0,))
        self._slid = [device.zeros((0,)) for _ in range(3)]
        self._scratch = np.zeros(0, np.int32), np.zeros(0)
        self._bounds = np.zeros(1, np.int64)
        self._ids = np.zeros(0, np.int64)  # of all slots since the last rebuild, -1 for none
        self._carried = np.zeros(0, SPIN), np.zeros(0, SIDE)

    @property
    def values(self) -> Any:
        """Velocities and spins, with radius and 1 / mass."""
        return self._motion

    @property
    def spins(self) -> Any:
        """See the class; for own slots, in place."""
        return self._motion[1]

    def forget(self) -> None:
        """Nothing turns, and no contact remembers anything."""
        self._ids, self._carried = np.zeros(0, np.int64), (np.zeros(0, SPIN), np.zeros(0, SIDE))

    def leave(self, mesh: Mesh, domains: DomainDecomposition, particles: Particles, neighbors: NeighborList) -> None:
        """Collective, before particles go to their new ranks: send spins and contacts after them.

        Raises `InputError` for a box in which ids do not tell two neighbors apart.
        """
        edges = domains.cell.widths[np.array(domains.periodic, bool)]
        if (edges < 2 * neighbors.reach).any():
            raise InputError(
                f"a periodic box of {edges.min():g} is too short for spheres: two images of one may be near",
                do=f"make it longer than twice the diameter and the skin, {2 * neighbors.reach:g}",
            )
        own = particles.own
        if not len(self._ids):
            own = own[:0]  # the first rebuild
        spins, sides = np.zeros(len(own), SPIN), self.sides(particles) if len(own) else np.zeros(0, SIDE)
        spins["id"], spins["spin"] = particles.ids[own], self._motion[1, own, :3]
        if mesh.size > 1:
            homes = np.zeros(particles.slots, np.int64)  # of each slot
            if len(own):
                homes[own] = domains.owners(particles.positions[own, :3])
            of_sides = homes[self.slots_of(particles, sides["id"])] if len(sides) else homes[:0]
            spins, sides = send_to(mesh, spins, homes[own]), send_to(mesh, sides, of_sides)
        self._carried = spins, sides

    def meet(self, particles: Particles, neighbors: NeighborList, ghosts: GhostExchange) -> None:
        """Collective: give spins and contacts their places in the new slots and lists."""
        slots, capacity, it = particles.slots, particles.capacity, self.interaction
        if self._motion.shape[1] < neighbors.slots or len(self.torques) < slots:
            self._motion, self.torques = (self.device.zeros((*n, capacity, RECORD)) for n in ((PARTS,), ()))
        motion, own = self._motion, particles.own
        motion[...] = 0.0
        motion[0, own, 0] = particles.ids[own] + 1  # on the way to the ghosts
        ghosts.start_values(motion)
        ghosts.finish_values(motion)
        self._ids = motion[0, : neighbors.slots, 0].astype(np.int64) - 1
        motion[...] = 0.0
        kinds = types_of(particles.positions[own])
        motion[0, own, 3] = it.radii[kinds]
        motion[1, own, 3] = np.where(np.isin(kinds, self.still), 0.0, 1.0 / it.masses[kinds])
        self._inverse_inertia = np.zeros(slots)
        self._inverse_inertia[own] = motion[1, own, 3] / (INERTIA * it.radii[kinds] ** 2)
        spins, sides = self._carried
        if len(spins):
            motion[1, self.slots_of(particles, spins["id"]), :3] = spins["spin"]
        self._reserve(neighbors, slots)
        self.place_sides(particles, neighbors, sides)
        self._carried = np.zeros(0, SPIN), np.zeros(0, SIDE)

    def _reserve(self, neighbors: NeighborList, slots: int) -> None:
        """Room for the pairs near enough to touch, and what their contacts remember; without any at first."""
        lists = neighbors.lists
        assert lists is not None
        room = len(lists.entries) + CLUSTER
        if len(self._others) < room:
            self._owners, self._others = np.zeros(room, np.int32), np.zeros(room, np.int32)
            self._slid = [self.device.zeros((room,)) for _ in range(3)]
        self._counts = np.zeros(slots // CLUSTER, np.int32)
        longest = int(np.diff(lists.bounds[: slots + 1 : CLUSTER]).max(initial=0)) + 2 * CLUSTER
        if len(self._scratch[1]) < 3 * longest:
            self._scratch = np.zeros(2 * longest, np.int32), np.zeros(3 * longest)
            self._work = self.device.zeros((work_of(longest),))

    def slots_of(self, particles: Particles, ids: np.ndarray) -> np.ndarray:
        """The slots of own particles with these ids, all of which are here."""
        own = particles.own
        there = particles.ids[own]
        span = int(there.max(initial=0)) + 1
        if span < 4 * len(own):  # all ids, or most of them, are here
            places = np.empty(span, np.int64)
            places[there] = own
            return np.asarray(places[ids])
        order = np.argsort(there)
        return np.asarray(own[order][np.searchsorted(there[order], ids)])

    def sides(self, particles: Particles) -> np.ndarray:
        """What contacts of own particles remember (`SIDE`), where it is not 0, as of the last forces."""
        found = np.zeros(int(self._counts.sum()), SIDE)
        first, second = np.zeros(len(found), np.int64), np.zeros(len(found), np.int64)
        slid = np.zeros((len(found), 3))
        held = self._bounds, *self._pairs, *self._slid
        count = known_contacts(len(self._counts), *held, self._ids, first, second, slid)
        found["id"], found["other"], found["slid"] = first, second, slid
        return found[:count]

    def place_sides(self, particles: Particles, neighbors: NeighborList, sides: np.ndarray) -> None:
        """Give what contacts remember its places in the lists; all else is forgotten."""
        lists = neighbors.lists
        assert lists is not None
        self._bounds = lists.bounds
        self._counts[:] = 0
        if len(sides):
            places = self.slots_of(particles, sides["id"])
            what = places, np.ascontiguousarray(sides["other"]), np.ascontiguousarray(sides["slid"])
            held = self._ids, *self._pairs, *self._slid
            place_contacts(*what, lists.bounds, lists.entries, *held)

    @property
    def _pairs(self) -> tuple[np.ndarray, ...]:
        return self._owners, self._others, self._counts

    def begin(self, particles: Particles, measure: int) -> None:
        """Take up the velocities of now."""
        take_motion(particles.velocities, particles.slots, self._motion[0])

    def compute(self, particles: Particles, neighbors: NeighborList, part: Any, measure: int, stage: int = 0) -> None:
        """Near neighbors, or forces and torques, of the slots of a part of the lists; see `Forces.compute`."""
        lists, it = neighbors.lists, self.interaction
        assert lists is not None
        moving, spins = (each.reshape(-1) for each in self._motion)
        flat = part, particles.positions.reshape(-1), lists.bounds
        held = self._pairs
        if stage == 0:
            pad = np.int32(RECORD * (neighbors.slots - CLUSTER))
            self._near_kernel(*flat, lists.entries, pad, it.cutoff, spins, *held, *self._slid, *self._scratch)
            return
        if measure:
            self.reserve_tallies(particles)
        out = particles.forces.reshape(-1), self.torques.reshape(-1), self.tallies.reshape(-1), self._work
        self._kernels[bool(measure)](*flat, *held, it.contact, self.dt, moving, spins, *self._slid, *out)

    def turn(self, particles: Particles, half: float) -> None:
        """Add half a step of the torques to the spins."""
        roll(self.spins, self.torques, self._inverse_inertia, particles.slots, half)

    def rotations(self, slots: int) -> np.ndarray:
        """Twice the energy of rotation of each own slot; 0 of what does not move."""
        radius, spins = self._motion[0, :slots, 3], self._motion[1, :slots]
        inertia = np.divide(INERTIA * radius**2, spins[:, 3], out=np.zeros(slots), where=spins[:, 3] > 0)
        return np.asarray(inertia * (spins[:, :3] ** 2).sum(axis=1))
