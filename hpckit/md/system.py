"""A system of particles on a mesh of ranks: their domains, and the forces between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpckit.comm.agree import max_of_ranks, sum_of_ranks
from hpckit.comm.device import HOST, Device
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import InputError
from hpckit.kernels.particles.cells.constants import FAR
from hpckit.kernels.particles.integrate.cell.dispatch import deform
from hpckit.kernels.particles.integrate.dispatch import dilate
from hpckit.kernels.particles.records.dispatch import types_of, weigh
from hpckit.md.bridges.ase_potential import AseForces, AsePotential
from hpckit.md.bridges.brick import BrickForces, BrickPotential
from hpckit.md.external.contributions import Biased, Chosen, External
from hpckit.md.forces import Forces, PairForces
from hpckit.md.granular.contacts import SphereForces, Spheres
from hpckit.md.interaction import Interaction
from hpckit.md.many_body.embedded import EmbeddedAtoms, EmbeddedForces
from hpckit.md.many_body.snap import SnapForces, SnapPotential
from hpckit.md.many_body.stillinger_weber import StillingerWeber, StillingerWeberForces
from hpckit.md.many_body.tersoff import TersoffBonds, TersoffForces
from hpckit.md.molecules.charges import Charged, ChargedForces
from hpckit.md.molecules.contributions import BondForces, Excluded, Held, LongRange, MoleculeTerms, span
from hpckit.md.molecules.slots import MoleculeSlots
from hpckit.md.neighbors import NeighborList, Rebuilds, lost
from hpckit.md.units import UNITS, Units
from hpckit.particles.balance import LoadBalance
from hpckit.particles.flow import Flow, wrap_within
from hpckit.particles.ghosts import GhostExchange
from hpckit.particles.migration import audit, migrate, rows_between, send_to, wrap
from hpckit.particles.particles import Particles
from hpckit.plan.particles.cell import Cell
from hpckit.plan.particles.domain import DomainDecomposition

FORCES: dict[type, Any] = {
    Interaction: PairForces,
    EmbeddedAtoms: EmbeddedForces,
    StillingerWeber: StillingerWeberForces,
    TersoffBonds: TersoffForces,
    SnapPotential: SnapForces,
    BrickPotential: BrickForces,
    AsePotential: AseForces,
    Charged: ChargedForces,
    Spheres: SphereForces,
}


class System:
    """Particles in a box, cut into domains over the ranks of `mesh` (axes x, y, z), with the forces between them.

    masses: of each type. skin: the reach of the lists beyond the cutoff. rebuilds: when to rebuild the lists.
    precision: "double", or "mixed" (pairs in float32, sums in float64). repro: forces are added without rounding, so
    that no bit depends on the number of ranks. balance_every: steps between two moves of the cuts by measured work, 0
    for none. bonds: forces of bonds beside those of pairs; exclusions: the share of the pair forces that partners in a
    molecule keep; long_range: a sum over all images of the charges; terms: angles, dihedrals, impropers; constraints:
    distances that stay. inner: how many times in a step the forces of bonds and terms act (r-RESPA), while all others
    act once; then `fast` has these forces, and `slow` the others. device: a GPU holds particles, lists and forces.
    Between rebuilds a single rank never waits for it, unless `Rebuilds.check` asks for the largest move; with several
    ranks each step waits for the packed messages.

    Make it with the same arguments on every rank. `load` (or `load_snapshot`) sets the particles, `rebuild` and
    `compute` their forces; each step of a dynamics calls `update`. `particles` has the arrays of this rank, on the
    device; `snapshot(system)` all particles in the order of their ids, `measure(system)` temperature, energies and
    pressure. Raises `InputError` unless there is one mass per type, and for unsupported options.
    """

    def __init__(
        self,
        mesh: Mesh,
        domains: DomainDecomposition,
        masses: np.ndarray,
        interaction: Interaction | EmbeddedAtoms | StillingerWeber | Charged | Spheres,
        *,
        skin: float = 0.3,
        units: Units = UNITS["lj"],
        rebuilds: Rebuilds | None = None,
        precision: str = "double",
        repro: bool = False,
        isa: str | None = None,
        balance_every: int = 0,
        timer: PhaseTimer | None = None,
        device: Device = HOST,
        bonds: BondForces | None = None,
        exclusions: Excluded | None = None,
        long_range: LongRange | None = None,
        terms: Sequence[MoleculeTerms] = (),
        constraints: Held | None = None,
        inner: int = 1,
    ) -> None:
        self.mesh, self.domains, self.units, self.device = mesh, domains, units, device
        self.masses = np.asarray(masses, np.float64)
        if len(self.masses) != interaction.types:
            raise InputError(f"{len(self.masses)} masses for {interaction.types} types of particles")
        self._how, self._listed = (precision, repro, isa, device), (skin, rebuilds or Rebuilds())
        self._take(interaction, FORCES[type(interaction)](interaction, *self._how))
        self.particles = Particles(device)
        self.ghosts = GhostExchange(mesh, device, values=self.forces.values_each)
        self._between = rows_between(mesh, device)
        self.balance = LoadBalance(balance_every)
        self.timer = timer or PhaseTimer()
        self.exclusions, self.long_range = exclusions, long_range
        self.fast, self.slow = np.zeros((0, 4)), np.zeros((0, 4))
        self.within_step = False  # whether velocities are half a step behind the positions
        self.bind(bonds, terms, constraints, inner)
        if exclusions is not None:
            exclusions.require_fit(interaction)
        self.molecules = MoleculeSlots()
        self.external: External | None = None  # adds to the forces of pairs
        self.dims = 3  # 2: all particles are in a plane of constant z
        self.margins: dict[int, float] = {}  # open dims whose ends are so far from the outermost particles
        self.extent = np.array(domains.lengths)  # of box and particles at the last rebuild, for the volume
        self.moving: Chosen | None = None  # the particles that move; None: all
        self.still: Any = None  # after a rebuild, the slots of those that do not
        self.counted: Any = None  # what measured temperatures count; None: all (`….external.groups.Warmth`)
        self.biases: Biased | None = None  # of collective variables
        self.flow: Flow | None = None  # of a box that changes while its particles stay
        self.count = 0  # particles of all ranks
        self.steps = 0  # updates of the forces
        self.given: dict[str, float] = {}  # what corrections have exchanged, by their names
        self.reshaped = False  # whether the cell or places have changed since the last forces
        self.measured = False  # whether the last forces came with energies and virials
        self._pairs: float | None = None  # in the list of a GPU, which are its load

    def require_fit(self, interaction: Any) -> Forces:
        """The forces of an interaction, in the precision of this system and on its device. Raises `InputError` for one
        that does not go with these, or with the molecules.
        """
        for each in (self.bonds, *self.terms, self.exclusions):
            if each is not None:
                each.require_fit(interaction)
        found: Forces = FORCES[type(interaction)](interaction, *self._how)
        return found

    def _take(self, interaction: Any, forces: Forces) -> None:
        """The forces between pairs, and the lists that they need."""
        self.interaction, self.forces = interaction, forces
        what = self.mesh, interaction.cutoff, *self._listed
        self.neighbors = NeighborList(*what, forces.form, self.device, forces.by_clusters, forces.by_distance)

    def interact(self, interaction: Any) -> None:
        """Replace the forces between particles, which have no charges and are not spheres; `rebuild` must follow.
        Raises `InputError` for what does not go together.
        """
        forces = self.require_fit(interaction)
        lists, values, waited = self.neighbors, self.forces.values_each, self.ghosts.wait_seconds
        self._take(interaction, forces)
        self.neighbors.builds, self.neighbors.missed = lists.builds, lists.missed
        self.neighbors.keeps_skin = lists.keeps_skin
        if self.forces.values_each != values:
            self.ghosts = GhostExchange(self.mesh, self.device, values=self.forces.values_each)
            self.ghosts.wait_seconds = waited
        self.neighbors.extent = span(self.bonds, self.terms, self.exclusions)

    def bind(
        self, bonds: BondForces | None, terms: Sequence[MoleculeTerms], constraints: Held | None, inner: int = 1
    ) -> None:
        """Replace bonds, terms and constraints; `rebuild` must follow. Raises `InputError` for what does not go
        together.
        """
        self.bonds, self.terms, self.constraints, self.inner = bonds, tuple(terms), constraints, inner
        if inner > 1 and constraints is not None:
            raise InputError("inner steps of bonds do not work with constraints", do="set dynamics.inner = 1")
        for each in (*([bonds] if bonds is not None else []), *terms):
            each.require_fit(self.interaction)
        self.neighbors.extent = span(self.bonds, self.terms, self.exclusions)

    def split(self, interaction: Charged, long_range: LongRange) -> None:
        """Split the charges between pairs and the sum over all images anew; `rebuild` must follow. The pairs stay."""
        assert isinstance(self.forces, ChargedForces)
        self.interaction, self.long_range = interaction, long_range
        self.forces.screen(interaction)

    def load(self, packed: np.ndarray) -> None:
        """Collective: load particles (`pack_particles`), each given by any one rank; ids 0 to n - 1.

        Raises `InputError` for positions far beyond the box, and for types without a mass.
        """
        positions, images = np.ascontiguousarray(packed["position"]), np.ascontiguousarray(packed["image"])
        far = np.flatnonzero(~(np.abs(positions[:, :3]).max(axis=1, initial=0.0) < 0.5 * FAR))
        if far.size:
            raise InputError(
                f"particle {packed['id'][far[0]] + 1} is at {positions[far[0], :3].tolist()}",
                do=f"give coordinates below {0.5 * FAR:g}",
            )
        wrap(self.domains, positions, images, len(packed))
        packed = packed.copy()
        packed["position"], packed["image"] = positions, images
        arrived = send_to(self.mesh, packed, self.domains.owners(positions[:, :3]))
        self.forces.forget()
        self.particles = Particles(self.device)
        self.particles.append(arrived[np.argsort(arrived["position"][:, 2], kind="stable")])
        self.count = int(sum_of_ranks(self.mesh.comm, np.array(len(arrived), np.int64)))
        audit(self.mesh, self.particles, self.count)
        types = types_of(packed["position"])
        highest = max_of_ranks(self.mesh.comm, np.array(types.max(initial=0)))
        if highest >= len(self.masses):
            raise InputError(f"there are particles of type {highest + 1}, but masses of {len(self.masses)} types only")
        self.type_counts = sum_of_ranks(self.mesh.comm, np.bincount(types, minlength=len(self.masses)))
        self._masses = self.device.to_device(self.masses)

    def rebuild(self) -> None:
        """Collective: wrap, migrate, sort, exchange ghosts, list neighbors."""
        particles, zeros = self.particles, self.device.zeros
        slots = particles.slots
        here = particles.positions[:slots], particles.velocities[:slots], particles.images[:slots]
        if wrap_within(self.flow, self.domains, *here, self.device):
            raise lost(self.mesh.rank, particles)
        self._follow()
        self.forces.leave(self.mesh, self.domains, particles, self.neighbors)
        migrate(self.mesh, self.domains, particles, self._between)
        exclusions = self.exclusions
        self.neighbors.place(
            self.domains, particles, self.ghosts, self.count, exclusions.each if exclusions is not None else 0.0
        )
        slots = particles.slots
        self.slot_masses, self.inverse_masses = zeros((slots,)), zeros((slots,))
        each = self.slot_masses, self.inverse_masses
        weigh(particles.positions, particles.ids, slots, self._masses, self.units.acceleration, *each)
        if self.forces.still:
            self.inverse_masses[np.isin(types_of(particles.positions[:slots]), self.forces.still)] = 0.0
        self.still = None
        if self.moving is not None:
            self.still = self.device.xp.flatnonzero(~self.moving.slots(self) & (particles.ids[:slots] >= 0))
            self.inverse_masses[self.still] = 0.0
        molecular = [each for each in (self.bonds, *self.terms, exclusions, self.constraints) if each is not None]
        if molecular:
            self.molecules.number(particles, self.ghosts, self.neighbors.slots, self.count)
        self.neighbors.list_pairs(particles, self.ghosts, exclusions.find(self) if exclusions is not None else None)
        if self.balance.every and self.device.is_gpu:
            self._pairs = float(self.neighbors.pairs)
        self.forces.prepare(particles, self.neighbors, 0, self.neighbors.slots)
        self.forces.meet(particles, self.neighbors, self.ghosts)
        for one in (*molecular, *([self.biases] if self.biases is not None else [])):
            one.attach(self)
        if self.long_range is not None:
            self.long_range.meet(self)

    def _follow(self) -> None:
        """Collective: take up how far the particles reach along open dims whose ends follow them."""
        if not self.margins:
            return
        particles, xp = self.particles, self.device.xp
        own, dims = particles.own, [*self.margins]
        ends = np.full(2 * len(dims), -np.inf)
        if len(own):
            places = particles.positions[own][:, dims]
            ends[:] = self.device.to_host(xp.concatenate([-places.min(axis=0), places.max(axis=0)]))
        max_of_ranks(self.mesh.comm, ends)
        for k, dim in enumerate(dims):
            self.extent[dim] = ends[k + len(dims)] + self.margins[dim] - (-ends[k] - self.margins[dim])

    @property
    def charged(self) -> bool:
        """Whether the forces depend on charges."""
        return isinstance(self.forces, ChargedForces)

    def stretch(self, factors: np.ndarray) -> None:
        """Change the edges of the box by factors, and take all particles along; the middle stays. An edge that leans
        keeps its angle in its own dims: xy changes with ly, xz and yz with lz, as in LAMMPS.

        `update` or `refresh` must follow: the ghosts are those of the old box until then.
        """
        if any(self.domains.tilt):
            cell, (_, y, z) = self.domains.cell, factors
            self.reshape(cell.grown(factors, cell.tilt * np.array([y, z, z])))
            return
        particles, point = self.particles, self.domains.cell.rests(factors)
        with self.timer("integrate"):
            dilate(particles.positions, particles.slots, factors, point)
            self.neighbors.dilate(particles.slots, factors, point)
        self.domains = self.domains.stretched(factors)
        self.ghosts.reshape(self.domains.cell)

    def reshape(self, cell: Cell, carries: bool = True) -> None:
        """Change the cell of the box, and take all particles along with it, if it `carries` them; cuts keep their
        shares.

        `update` or `refresh` must follow: the ghosts are those of the old box until then.
        """
        particles, old = self.particles, self.domains.cell
        matrix, low, high = old.map_to(cell), np.array(old.lower), np.array(cell.lower)
        if carries:
            with self.timer("integrate"):
                deform(particles.positions, particles.slots, matrix, low, high)
        self.domains, self.reshaped = self.domains.reshaped(cell), True
        if self.neighbors.builds:
            self.neighbors.deform(particles.slots, matrix, low, high)
            self.ghosts.reshape(cell)

    def _flip(self) -> None:
        """Take the cell of the same lattice that leans least; particles stay where they are."""
        cell, change = self.domains.cell.flipped()
        self.domains = self.domains.reshaped(cell)
        images = self.particles.images[: self.particles.slots]
        images[...] = images @ self.device.to_device(change)

    def update(self, measure: int = False) -> None:
        """Collective: forces at the current positions, after one step's motion; rebuilds if it is due."""
        self.within_step = True
        try:
            self._update(measure)
        finally:
            self.within_step = False

    def _update(self, measure: int) -> None:
        self.steps += 1
        if self.external is not None:
            self.external.reflect(self)
        if self.balance.is_due(self.steps):
            # It rebuilds even if the cuts stay: the steps of a run must not depend on measured times.
            with self.timer("balance"):
                particles = self.particles
                places = self.device.to_host(particles.positions[particles.own])[:, :3]
                self.domains = self.balance.moved(self.mesh, self.domains, places, self.neighbors.reach)
                self.rebuild()
            self.compute(measure)
            return
        with self.timer("neighbor"):
            due = self.neighbors.is_due(self.particles, self.ghosts)
            if any(self.domains.tilt) and self.domains.cell.skewed:
                due = True
                self._flip()
            if due:
                self.rebuild()
                self.neighbors.moved2 = 0.0
        if due:
            self.compute(measure)
        else:
            self.refresh(measure)
        self.neighbors.moved2 = math.inf  # whatever moves next

    def compute(self, measure: int = False) -> None:
        """Compute the forces; ghosts must be up to date, as after `rebuild`."""
        measure = self._what(measure)
        self.forces.begin(self.particles, measure)
        if self.long_range is not None:
            self.long_range.start(self)
        for part in self.forces.whole(self.neighbors):
            self._add_pairs(part, measure)
        for stage in range(1, self.forces.stages):
            self._later_stage(stage, measure)
        self._add_others(measure)

    def settle(self) -> None:
        """Collective, before the first step: bring constrained distances to their lengths. Forces and energies are
        those of the positions before, constraint forces those of the positions after, as with `fix shake` of LAMMPS.
        Without constraints: `compute`.
        """
        held, self.constraints = self.constraints, None
        try:
            self.compute(measure=True)
        finally:
            self.constraints = held
        if held is None:
            return
        held.correct(self)
        self.ghosts.start(self.particles)
        self.ghosts.finish(self.particles)
        held.add(self, True)

    def refresh(self, measure: int = False) -> None:
        """Collective: update the ghosts; compute forces at the current positions, with the current lists."""
        particles, neighbors, forces, lists = self.particles, self.neighbors, self.forces, self.neighbors.parts
        measure = self._what(measure)
        forces.begin(particles, measure)
        # Where the ranks have just agreed how far particles moved, ghosts through shared memory come at this moment.
        agreed = forces.by_distance and neighbors.moved2 < math.inf
        at_once = agreed and self.long_range is None and self.ghosts.come_at_once
        with self.timer("exchange"):
            if at_once:
                self.ghosts.swap(particles)
            else:
                self.ghosts.start(particles)
        if self.long_range is not None:
            self.long_range.start(self)
        # Ghosts that came through shared memory while charges were spread are there: all is converted once.
        spread = self.long_range is not None and not (self.ghosts.under_way or self.device.is_gpu)
        at_hand = at_once or spread
        with self.timer("exchange"):
            if spread:
                self.ghosts.finish(particles)
            # Else only images of own particles are in place: inner clusters read no ghosts of other ranks.
            forces.prepare(particles, neighbors, 0, neighbors.slots)
        # Only messages under way need progress; each further part costs some microseconds.
        first = lists.inner_parts if self.ghosts.under_way else (lists.inner,)
        for part in forces.whole(neighbors) if at_hand else first:
            self._add_pairs(part, measure)
            self.ghosts.advance()
        if not at_hand and (len(lists.outer) or self.mesh.size > 1):
            with self.timer("exchange"):
                self.ghosts.finish(particles)
                if self.mesh.size > 1:
                    forces.prepare(particles, neighbors, particles.slots, neighbors.slots)
            self._add_pairs(lists.outer, measure)
        for stage in range(1, forces.stages):
            self._later_stage(stage, measure)
        self._add_others(measure)

    def refresh_fast(self) -> None:
        """Collective: update the ghosts; `fast`, the forces of bonds and terms, at the current positions."""
        forces, own = self.particles.forces, self.particles.slots
        with self.timer("exchange"):
            self.ghosts.start(self.particles)
            self.ghosts.finish(self.particles)
        forces[:own] = 0.0
        for each in (self.bonds, *self.terms):
            if each is not None:
                each.add(self, False)
        self.fast = forces[:own].copy()

    def _what(self, measure: int) -> int:
        """`VIRIAL` is for forces that find virials by themselves."""
        return measure if self.forces.by_clusters else bool(measure)

    def _add_others(self, measure: int) -> None:
        """Collective: add the forces of bonds, of all images, and from outside."""
        self.measured, self.reshaped = bool(measure), False
        with self.timer("force"):
            self.forces.finish(self.particles, self.neighbors, measure)
        forces, own = self.particles.forces, self.particles.slots
        if self.inner > 1:
            self._complete()
            self.slow = forces[:own].copy()
            forces[:own] = 0.0
        for each in (self.bonds, *self.terms):
            if each is not None:
                each.add(self, measure)
        if self.inner > 1:
            self.fast = forces[:own].copy()
            forces[:own] = self.slow
        if self.exclusions is not None:
            self.exclusions.add(self, measure)
        if self.long_range is not None:
            self.long_range.add(self, bool(measure))
        if self.inner == 1:
            self._complete()
        if self.external is not None:
            self.external.add(self, bool(measure))
        if self.biases is not None:
            self.biases.add(self, bool(measure))
        if self.inner > 1:
            self.slow = forces[:own].copy()
            forces[:own] += self.fast
        if self.constraints is not None:
            self.constraints.add(self, measure)

    def _complete(self) -> None:
        """Collective: add the forces that ghosts elsewhere felt."""
        with self.timer("force"):
            self.forces.complete(self.particles)

    def _later_stage(self, stage: int, measure: int) -> None:
        """Collective: bring the ghosts what their owners computed, and do the stage that needs it."""
        values, lists = self.forces.values, self.neighbors.parts
        with self.timer("exchange"):
            self.ghosts.start_values(values)
        for part in lists.inner_parts if self.ghosts.under_way else (lists.inner,):
            self._add_pairs(part, measure, stage)
            self.ghosts.advance()
        with self.timer("exchange"):
            self.ghosts.finish_values(values)
        self._add_pairs(lists.outer, measure, stage)

    def _add_pairs(self, part: Any, measure: int, stage: int = 0) -> None:
        """Compute the forces of a part of the lists."""
        if not len(part):
            return
        with self.timer("force"):
            self.balance.begin()
            self.forces.compute(self.particles, self.neighbors, part, measure, stage)
            self.balance.end(self._pairs)
