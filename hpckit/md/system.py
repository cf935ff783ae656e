"""A system of particles on a mesh of ranks: who is where, and the forces between them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI

from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import InputError
from hpckit.kernels.particles.cells.constants import FAR, RECORD
from hpckit.kernels.particles.integrate.dispatch import kinetic, largest_move, powers, wrap
from hpckit.kernels.particles.records.dispatch import types_of, weigh
from hpckit.md.balance import imbalance, moved_cuts
from hpckit.md.forces import Forces
from hpckit.md.interaction import Interaction
from hpckit.md.neighbors import NeighborList, lost
from hpckit.md.sums import add_ranks
from hpckit.md.units import UNITS, Units
from hpckit.particles.ghosts import GhostExchange
from hpckit.particles.migration import audit, exchange, migrate
from hpckit.particles.particles import TRAVELER, Particles, make_travelers
from hpckit.plan.particles.domain import Bricks
from hpckit.plan.particles.snapshot import Snapshot


@dataclass(frozen=True)
class Rebuilds:
    """When neighbor lists are made anew: looked at every `every` steps, at the earliest `delay` steps after the last
    time; with `check`, only if a particle has moved more than half the skin since.
    """

    every: int = 1
    delay: int = 0
    check: bool = True


class External(Protocol):
    """What adds to the forces of pairs: `hpckit.md.external`."""

    def add(self, system: System, measure: bool) -> None:
        """Add to `system.particles.forces`, and with `measure` to the energies, of this rank."""


class System:
    """Particles in a box, cut into bricks over the ranks of `mesh` (axes x, y, z), with their forces.

    masses: of each type. skin: how much farther than the cutoff lists reach. balance_every: steps between two moves of
    the cuts by measured force time, 0 for none. Made on every rank alike; `load` brings the particles. `particles` has
    the arrays of this rank, `snapshot` all particles in the order of their ids.
    """

    def __init__(
        self,
        mesh: Mesh,
        bricks: Bricks,
        masses: np.ndarray,
        interaction: Interaction,
        *,
        skin: float = 0.3,
        units: Units = UNITS["lj"],
        rebuilds: Rebuilds | None = None,
        precision: str = "double",
        repro: bool = False,
        isa: str | None = None,
        balance_every: int = 0,
        timer: PhaseTimer | None = None,
    ) -> None:
        self.mesh, self.bricks, self.units, self.skin = mesh, bricks, units, skin
        self.masses = np.asarray(masses, np.float64)
        if len(self.masses) != interaction.types:
            raise InputError(f"{len(self.masses)} masses for {interaction.types} types of particles")
        self.interaction, self.rebuilds = interaction, rebuilds or Rebuilds()
        self.forces = Forces(interaction, precision, repro, isa)
        self.reach = interaction.cutoff + skin
        self.particles, self.ghosts = Particles(), GhostExchange(mesh)
        self.timer = timer or PhaseTimer()
        self.external: External | None = None  # what adds to the forces of pairs
        self.count = 0  # particles of all ranks
        self.builds = self.missed = 0  # rebuilds; those that came later than half the skin
        self.balance_every = balance_every
        self.imbalance = 1.0  # largest load of a rank over the mean, at the last balance
        self._since = self._steps = 0
        self._load = 0.0  # seconds of forces since the last balance
        self._make_neighbors()

    def _make_neighbors(self) -> None:
        isa, padding = self.forces.form.isa, self.forces.form.lanes
        self.neighbors = NeighborList(self.bricks, self.mesh.rank, self.reach, isa, padding)

    def load(self, travelers: np.ndarray) -> None:
        """Collective: take up particles (`make_travelers`), each given by one rank, whichever; ids 0 to n - 1.

        Raises `InputError` for one that is nowhere near a box, and for types without a mass.
        """
        box = self.bricks.lower, self.bricks.upper, self.bricks.periodic
        positions, images = np.ascontiguousarray(travelers["position"]), np.ascontiguousarray(travelers["image"])
        far = np.flatnonzero(~(np.abs(positions[:, :3]).max(axis=1, initial=0.0) < 0.5 * FAR))
        if far.size:
            raise InputError(
                f"particle {travelers['id'][far[0]] + 1} is at {positions[far[0], :3].tolist()}",
                do=f"give coordinates below {0.5 * FAR:g}",
            )
        wrap(positions, images, len(travelers), *box)
        travelers = travelers.copy()
        travelers["position"], travelers["image"] = positions, images
        homes = self.bricks.owners(positions[:, :3])
        travelers = travelers[np.argsort(homes, kind="stable")]
        arrived = exchange(self.mesh, travelers, np.bincount(homes, minlength=self.mesh.size))
        self.particles = Particles()
        self.particles.append(arrived[np.argsort(arrived["position"][:, 2], kind="stable")])
        self.count = self.total(self.particles.count)
        audit(self.mesh, self.particles, self.count)
        types = types_of(travelers["position"])
        highest = np.array(types.max(initial=0))
        self.mesh.comm.Allreduce(MPI.IN_PLACE, highest, op=MPI.MAX)
        if highest >= len(self.masses):
            raise InputError(f"there are particles of type {highest + 1}, but masses of {len(self.masses)} types only")
        self.type_counts = np.bincount(types, minlength=len(self.masses))
        self.mesh.comm.Allreduce(MPI.IN_PLACE, self.type_counts, op=MPI.SUM)

    def rebuild(self) -> None:
        """Collective: wrap, migrate, sort, exchange ghosts, list neighbors."""
        particles = self.particles
        box = self.bricks.lower, self.bricks.upper, self.bricks.periodic
        if wrap(particles.positions, particles.images, particles.slots, *box):
            raise lost(self.mesh.rank)
        migrate(self.mesh, self.bricks, particles)
        self.neighbors.rebuild(particles, self.ghosts)
        self.slot_masses, self.inverse_masses = np.empty(particles.slots), np.empty(particles.slots)
        each = self.slot_masses, self.inverse_masses
        weigh(particles.positions, particles.ids, particles.slots, self.masses, self.units.acceleration, *each)
        self.builds += 1
        self._since = 0
        if self.forces.mixed:
            self.forces.prepare(particles, self.neighbors, 0, self.neighbors.slots)

    def update(self, measure: bool = False) -> None:
        """Collective: forces at the positions as they are, after one step's motion; rebuilds where it is time."""
        self._steps += 1
        if self.balance_every and self._steps % self.balance_every == 0:
            with self.timer("balance"):
                self.balance()
            self.compute(measure)
        elif self._is_time():
            with self.timer("neighbor"):
                self.rebuild()
            self.compute(measure)
        else:
            self._compute_with_exchange(measure)

    def balance(self) -> None:
        """Collective: move the cuts by the work measured since the last time, and rebuild.

        It rebuilds also where the cuts stay: what happens at a step must not depend on times that were measured.
        """
        self.imbalance = imbalance(self.mesh.comm, self._load)
        if self.mesh.size > 1:
            self.bricks = moved_cuts(self.mesh.comm, self.bricks, self._own_places(), self._load, self.reach)
            self.neighbors.bricks = self.bricks
        self._load = 0.0
        self.rebuild()

    def compute(self, measure: bool = False) -> None:
        """Forces where ghosts are up to date, as after `rebuild`."""
        for clusters in (self.neighbors.inner, self.neighbors.outer):
            self._add_pairs(clusters, measure)
        self._add_external(measure)

    def _add_pairs(self, clusters: np.ndarray, measure: bool) -> None:
        """Forces of some clusters; the processor time that they take is the rank's load, where cuts move by it."""
        with self.timer("force"):
            begin = time.process_time() if self.balance_every else 0.0
            self.forces.compute(self.particles, self.neighbors, clusters, measure)
            if self.balance_every:
                self._load += time.process_time() - begin

    def _add_external(self, measure: bool) -> None:
        if self.external is not None:
            self.external.add(self, measure)

    def _compute_with_exchange(self, measure: bool) -> None:
        particles, neighbors, forces = self.particles, self.neighbors, self.forces
        with self.timer("exchange"):
            self.ghosts.start(particles)
            # Images of own particles are in place, those of other ranks not yet: inner clusters do not look at these.
            forces.prepare(particles, neighbors, 0, neighbors.slots)
        # Only messages under way want looking after; each part more costs some microseconds.
        for part in neighbors.inner_parts if self.ghosts.under_way else (neighbors.inner,):
            self._add_pairs(part, measure)
            self.ghosts.advance()
        if len(neighbors.outer) or self.mesh.size > 1:
            with self.timer("exchange"):
                self.ghosts.finish(particles)
                if self.mesh.size > 1:
                    forces.prepare(particles, neighbors, particles.slots, neighbors.slots)
            self._add_pairs(neighbors.outer, measure)
        self._add_external(measure)

    def warm_up(self) -> None:
        """Collective: compile, or load, the kernels that steps need; changes nothing. Forces are there already."""
        largest_move(self.particles.positions, self.neighbors.built, 0)
        self._compute_with_exchange(False)
        self.compute(True)

    def _is_time(self) -> bool:
        self._since += 1
        due = self._since >= self.rebuilds.delay and self._since % self.rebuilds.every == 0
        if not due or not self.rebuilds.check:
            return due
        particles = self.particles
        with self.timer("neighbor"):
            moved = np.array(largest_move(particles.positions, self.neighbors.built, particles.slots))
            if self.mesh.size > 1:
                self.mesh.comm.Allreduce(MPI.IN_PLACE, moved, op=MPI.MAX)
        late = not moved <= (0.5 * self.skin) ** 2
        if late and self._since == max(1, self.rebuilds.delay, self.rebuilds.every):
            self.missed += self._since > 1
        return bool(late)

    keeps_lists = True  # a checkpoint can take up the lists of the last rebuild

    def built_positions(self) -> np.ndarray:
        """Where particles were at the last rebuild, by slot, in the host's memory."""
        return self.neighbors.built

    @property
    def clock(self) -> dict[str, int]:
        """Steps since the last rebuild, and all steps: what says when the next rebuild is."""
        return {"since": self._since, "steps": self._steps}

    @clock.setter
    def clock(self, values: dict[str, int]) -> None:
        self._since, self._steps = values["since"], values["steps"]

    def refresh(self, measure: bool = False) -> None:
        """Collective: forces at the positions as they are, with the lists as they are."""
        self._compute_with_exchange(measure)

    def total(self, value: float | int) -> int:
        """Collective: the sum of a whole number over the ranks."""
        number = np.array(value, np.int64)
        self.mesh.comm.Allreduce(MPI.IN_PLACE, number, op=MPI.SUM)
        return int(number)

    def kinetic_energy(self) -> float:
        """Collective: of all particles, the same number on every rank."""
        particles, slots = self.particles, self.particles.slots
        if self.forces.exact:
            squares = (particles.velocities[:slots, :3] ** 2).sum(axis=1) * self.slot_masses
            columns = np.where(particles.ids[:slots] >= 0, squares, 0.0)[:, None]
        else:
            columns = np.array([[self.kinetic()[:3].sum()]])
        count = max(8 * self.count, self.mesh.size)
        total = add_ranks(self.mesh.comm, columns, count, self.forces.exact)
        self.mesh.comm.Bcast(total, root=0)
        return 0.5 * self.units.energy * float(total[0])

    @property
    def freedom(self) -> int:
        """Degrees of freedom: three a particle, less those of the whole."""
        return max(3 * self.count - 3, 1)

    def kinetic(self) -> np.ndarray:
        """The sums of m v_a v_b of this rank, as xx, yy, zz, xy, xz, yz."""
        return self._sums(kinetic, 6, self.particles.velocities, self.slot_masses, self.particles.ids)

    def powers(self) -> np.ndarray:
        """The sums of F v, F F and v v of this rank, and the largest |component| of a force."""
        return self._sums(powers, 4, self.particles.velocities, self.particles.forces, self.particles.ids)

    def _sums(self, kernel: Callable[..., None], count: int, *arrays: Any) -> np.ndarray:
        """What a kernel finds over the slots of this rank."""
        sums = np.empty(count)
        kernel(*arrays, self.particles.slots, sums)
        return sums

    def _own_places(self) -> np.ndarray:
        """The positions [n, 3] of this rank's particles, in the host's memory."""
        return self.particles.positions[self.particles.own, :3]

    def make_records(self) -> Any:
        """Room for a record a slot, where the particles are."""
        return np.empty((self.particles.capacity, RECORD))

    def tally_sums(self) -> np.ndarray:
        """The sums over this rank of what forces were computed with: energy, virial xx, yy, zz, xy, xz, yz; doubled."""
        return self.forces.tallies[: self.particles.slots, :7].sum(axis=0)

    def on_host(self) -> Particles:
        """The particles of this rank in the host's memory; not to be changed."""
        return self.particles

    def tails(self) -> tuple[float, float]:
        """Energy and virial of the pairs beyond the cutoff, as if particles were spread evenly."""
        counts, volume = self.type_counts.astype(float), float(np.prod(self.bricks.lengths))
        found = []
        for tail in (self.interaction.tail_energy, self.interaction.tail_virial):
            found.append(0.0 if tail is None else float(0.5 * counts @ tail @ counts / volume))
        return found[0], found[1]

    def snapshot(self, step: int = 0, time: float = 0.0, forces: bool = False) -> Snapshot | None:
        """Collective: all particles in the order of their ids, on rank 0; None elsewhere.

        Positions are wrapped into the box, with the images that say how often they went around; ids count from 1.
        """
        each = self._own_records()
        counts = np.zeros(self.mesh.size, np.int64)
        counts[0] = len(each)
        every = exchange(self.mesh, each, counts)
        return None if self.mesh.rank else self._snapshot_of(every, step, time, forces)

    def frame(self, step: int = 0, time: float = 0.0) -> Snapshot:
        """Collective: as `snapshot`, on every rank: what observables take. 88 bytes and more a particle everywhere."""
        each, comm = self._own_records(), self.mesh.comm
        counts = np.empty(comm.size, np.int64)
        comm.Allgather(np.array([len(each)], np.int64), counts)
        every = np.empty(int(counts.sum()), each.dtype)
        record = MPI.BYTE.Create_contiguous(each.dtype.itemsize).Commit()
        starts = np.cumsum(counts) - counts
        comm.Allgatherv([each, len(each), record], [every, (counts, starts), record])
        record.Free()
        return self._snapshot_of(every, step, time, forces=False)

    def _own_records(self) -> np.ndarray:
        """The particles of this rank with their forces, to send."""
        particles = self.on_host()
        slots = particles.own
        each = np.zeros(len(slots), np.dtype([("traveler", TRAVELER), ("force", "f8", 4)]))
        each["traveler"], each["force"] = particles.travelers(slots), particles.forces[slots]
        return each

    def _snapshot_of(self, every: np.ndarray, step: int, time: float, forces: bool) -> Snapshot:
        every = every[np.argsort(every["traveler"]["id"])]
        travelers = every["traveler"]
        closed = self.bricks.periodic
        positions, images = np.ascontiguousarray(travelers["position"]), np.ascontiguousarray(travelers["image"])
        wrap(positions, images, len(every), self.bricks.lower, self.bricks.upper, self.bricks.periodic)
        return Snapshot(
            lower=self.bricks.lower,
            upper=self.bricks.upper,
            periodic=(bool(closed[0]), bool(closed[1]), bool(closed[2])),
            ids=travelers["id"] + 1,
            types=types_of(positions),
            positions=np.ascontiguousarray(positions[:, :3]),
            images=images,
            velocities=np.ascontiguousarray(travelers["velocity"][:, :3]),
            forces=np.ascontiguousarray(every["force"][:, :3]) if forces else None,
            masses=self.masses,
            step=step,
            time=time,
        )

    def load_snapshot(self, snapshot: Snapshot | None) -> None:
        """Collective: take up the particles of a snapshot given by rank 0; None elsewhere. Ids become 0, 1, …."""
        travelers = np.zeros(0, TRAVELER)
        if snapshot is not None:
            n = snapshot.count
            velocities = np.zeros((n, 3)) if snapshot.velocities is None else snapshot.velocities
            travelers = make_travelers(np.arange(n), snapshot.positions, velocities, snapshot.types, snapshot.images)
        self.load(travelers)
