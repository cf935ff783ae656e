"""The initial particles: on a lattice, singly or as molecules of water, or from a file."""

from __future__ import annotations

import copy

import numpy as np
from mpi4py import MPI

from hpckit.apps.md.config import Config
from hpckit.apps.md.lammps import script
from hpckit.apps.md.lammps.making import velocities as lammps_velocities
from hpckit.apps.md.lammps.making.making import SHRINKS
from hpckit.apps.md.molecules.water import RIGID, water, without_vibration
from hpckit.apps.md.potentials import masses_of
from hpckit.errors import InputError
from hpckit.io.particles.frames import read_frame
from hpckit.io.particles.topologies import is_topology
from hpckit.kernels.noise.dispatch import normals, uniforms
from hpckit.md.thermo import add_ranks
from hpckit.md.units import UNITS
from hpckit.particles.particles import pack_particles
from hpckit.plan.blocks import block
from hpckit.plan.particles.cell import Cell
from hpckit.plan.particles.snapshot import BOUND, Snapshot

BASES = {
    "sc": [[0.0, 0.0, 0.0]],
    "bcc": [[0.0, 0.0, 0.0], [0.5, 0.5, 0.5]],
    "fcc": [[0.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.5, 0.5]],
    "diamond": [
        *([0.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]),
        *([0.25, 0.25, 0.25], [0.25, 0.75, 0.75], [0.75, 0.25, 0.75], [0.75, 0.75, 0.25]),
    ],
}
ON_SIDE = 1e-6  # of an edge: what counts as on a side of a tilted box, of which only the lower one is in it
NEAR = 0.1  # masses that are the same, as LAMMPS has it
VELOCITIES, TYPES = 1, 2  # streams of random numbers


class Start:
    """The box and the initial particles; the same on every rank.

    lower, upper, tilt: of the box (`Cell`); masses of the types; count of particles. Raises `InputError` for a file
    that cannot be used.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.file: Snapshot | None = None  # all particles, of a file or of molecules on a lattice
        self.made = False  # whether a script makes them
        self._single: Snapshot | None = None  # those of a file without its copies
        self.notes: list[str] = []  # notes about the file for the user
        self._members: dict[str, np.ndarray] = {}  # of groups, those that were asked for
        self.periodic = config.system.periodic
        if config.system.file:
            self._from_file()
        else:
            self._from_lattice()

    def with_settings(self, config: Config) -> Start:
        """The same particles under the settings of a later stage."""
        found = copy.copy(self)
        found.config = config
        return found

    def drawn_anew(
        self, config: Config, comm: MPI.Comm, ids: np.ndarray, places: np.ndarray, types: np.ndarray, away: np.ndarray
    ) -> np.ndarray:
        """Collective: velocities of these particles of each rank, all of them together, as the settings draw them;
        away: from their places to where they would be had they not been put back into the box.
        """
        return self.with_settings(config)._velocities(comm, ids, places, self.masses[types], away, anew=True)

    def _from_file(self) -> None:
        system = self.config.system
        x, y, z = (axis in self.periodic for axis in "xyz")
        self.made = system.file is not None and script.reads(system.file) and not is_topology(system.file)
        if self.made:
            how = masses_of(self.config), UNITS[system.units], system.dims
            self.file = script.particles_of(system.file, (x, y, z), *how)
        else:
            self.file = read_frame(system.file, system.frame, (x, y, z), system.style or None)
        self._single = self.file
        if system.replicate != (1, 1, 1):
            self.file = self.file.replicated(system.replicate)
        self.lower, self.upper, self.count = self.file.lower, self.file.upper, self.file.count
        self.tilt = self.file.tilt
        spheres, masses = self.config.interaction.kind == "granular", self.file.masses
        self.masses = masses_of(self.config) if masses is None or spheres or system.masses else masses
        highest = int(self.file.types.max(initial=0)) + 1
        if highest > len(self.masses):
            raise InputError(
                f"{system.file} has particles of {highest} types and no masses",
                do=f"give system.masses of {highest} types",
            )
        if spheres:
            self._require_spheres(self.file)
        for name in BOUND:
            asked, there = getattr(self.config, name).kind != "none", bool(len(self.file.terms.get(name, ())))
            if there != asked:
                what = (
                    f"has no {name}, and {name}.kind asks for them" if asked else f"has {name}, and {name}.kind is none"
                )
                raise InputError(
                    f"{system.file} {what}",
                    do=f"set {name}.kind and {name}.parameters as the file needs them (zero: no forces)",
                )
        self.notes = [f"{system.file} {note}" for note in self._notes_on(self.file, (x, y, z))]

    def _require_spheres(self, file: Snapshot) -> None:
        """Raise `InputError` for particles whose size or density is not that of their type."""
        given = self.config.granular
        still, velocities = np.isin(file.types + 1, given.still), file.velocities
        moving = still & velocities.any(axis=1) if velocities is not None else still & False
        if moving.any():
            raise InputError(
                f"particle {file.ids[np.argmax(moving)]} in {self.config.system.file} has a velocity, and its type does"
                " not move",
                do="set granular.still otherwise, or the velocity to 0",
            )
        if file.spheres is None:
            return
        wanted = np.stack([given.diameters, given.densities], axis=1)[file.types]
        strange = np.flatnonzero((file.spheres != wanted).any(axis=1))
        if len(strange):
            k = strange[0]
            (diameter, density), (right, heavy) = file.spheres[k], wanted[k]
            raise InputError(
                f"particle {file.ids[k]} in {self.config.system.file} is of type {file.types[k] + 1} and has diameter"
                f" {diameter:g} and density {density:g}; those of its type are {right:g} and {heavy:g}",
                do="set granular.diameters and densities, and give each kind of sphere a type of its own",
            )

    def _notes_on(self, file: Snapshot, periodic: tuple[bool, bool, bool]) -> list[str]:
        """Notes on differences between file and settings, and on unused data of the file."""
        system, notes = self.config.system, []
        if file.periodic != periodic:
            theirs, ours = (
                " ".join(axis for axis, wraps in zip("xyz", each, strict=True) if wraps) or "no dim"
                for each in (file.periodic, periodic)
            )
            notes.append(f"is periodic along {theirs}, this run along {ours} (system.periodic)")
        if file.units and file.units != system.units:
            notes.append(f"says that its units are {file.units}, this run's are {system.units} (system.units)")
        if file.velocities is None and system.velocities == "file":
            notes.append("has no velocities: particles start at rest (system.velocities=draw draws them)")
        charged = file.charges is not None and file.charges.any()
        if charged and self.config.coulomb.kind == "none":
            notes.append("has charges, which are ignored: coulomb.kind is none")
        if file.passed_over:
            there = ", ".join(file.passed_over)
            notes.append(
                f"has {there}: the run takes pair forces from [interaction], where an input script copies them"
            )
        return notes

    def _from_lattice(self) -> None:
        system = self.config.system
        basis = np.array(BASES[system.lattice])
        self.edge = system.edge or (len(basis) / system.density) ** (1 / 3)
        self.lower, self.upper = np.zeros(3), np.array(system.cells) * self.edge
        self.tilt = np.array(system.tilt)
        self.masses = masses_of(self.config)
        if system.kind == "water":
            sites = self._sites_of(np.arange(int(np.prod(system.cells)) * len(basis)))
            self.file = water(self.config, sites, self.upper)
            self.count = self.file.count
            return
        if len(self.masses) != len(system.fractions):
            raise InputError(
                f"the potential has {len(self.masses)} types, and system.fractions {len(system.fractions)}",
                do="give system.fractions, one for each type, or interaction.elements",
            )
        self._places = self._droplet() if system.droplet else self._tilted() if self.tilt.any() else None
        self.count = int(np.prod(system.cells)) * len(basis) if self._places is None else len(self._places)

    def _droplet(self) -> np.ndarray:
        """Lattice sites within the droplet, and sites of a less dense lattice outside."""
        system, middle = self.config.system, 0.5 * (self.lower + self.upper)
        spacing = system.vapor ** (-1 / 3)
        liquid = _sites(np.array(BASES[system.lattice]), np.array(system.cells)) * self.edge
        cells = np.maximum(1, np.floor(self.upper / spacing)).astype(np.int64)
        vapor = (_sites(np.zeros((1, 3)), cells) + 0.5) * (self.upper / cells)
        inside = np.linalg.norm(liquid - middle, axis=1) < system.droplet
        outside = np.linalg.norm(vapor - middle, axis=1) > system.droplet + 1.0
        return np.concatenate([liquid[inside], vapor[outside]])

    def _tilted(self) -> np.ndarray:
        """The lattice sites within a tilted box, in the order that LAMMPS makes them: x runs fastest."""
        cell = self.cell
        first, last = (np.floor(cell.bounds[0] / self.edge) - 1).astype(int), np.ceil(cell.bounds[1] / self.edge) + 1
        corners = [np.arange(a, b) for a, b in zip(first, last.astype(int), strict=True)]
        z, y, x = np.meshgrid(*corners[::-1], indexing="ij")
        sites = np.stack([x, y, z], axis=-1).reshape(-1, 1, 3) + np.array(BASES[self.config.system.lattice])
        places = sites.reshape(-1, 3) * self.edge
        shares = (cell.straight(places) - cell.lower) / cell.lengths
        return np.ascontiguousarray(places[((shares >= -ON_SIDE) & (shares < 1 - ON_SIDE)).all(axis=1)])

    @property
    def cell(self) -> Cell:
        """The cell of the box."""
        return Cell.of(self.lower, self.upper, self.tilt)

    def members(self, name: str) -> np.ndarray:
        """Which particles are in a group of the settings, bool[count]. Raises `InputError` for one without any."""
        if name not in self._members:
            given = next(each for each in self.config.groups if each.name == name)
            found = np.ones(self.count, bool)
            if not given.is_given:
                found = self._of_script(name)
            if given.types:
                found &= np.isin((self._types() if self.file is None else self.file.types) + 1, given.types)
            if given.ids:
                number, some = np.arange(1, self.count + 1) if self.file is None else self.file.ids, np.zeros(1, bool)
                for each in given.ids:
                    first, _, last = each.partition(":")
                    some = some | ((number >= int(first)) & (number <= int(last or first)))
                found &= some
            if given.block is not None:
                places, low, high = self.places(), np.array(given.block[::2]), np.array(given.block[1::2])
                found &= ((places >= low) & (places <= high)).all(axis=1)
            if not found.any():
                raise InputError(f"the group {name} has no particles", do="give it types, ids or a block that has some")
            self._members[name] = found
        return self._members[name]

    def _of_script(self, name: str) -> np.ndarray:
        found = None if self.file is None else self.file.groups.get(name)
        if found is None:
            raise InputError(
                f"nothing says which particles are in the group {name}",
                do="give it types, ids or a block, or a script as system.file that has it",
            )
        return found.copy()

    @property
    def margins(self) -> dict[int, float]:
        """How far the ends of dims that follow the particles are from the outermost of these."""
        lengths = self.upper - self.lower
        if self.made:
            lengths = lengths / (1 + 2 * SHRINKS)  # a script has made the box wider
        return {"xyz".index(axis): float(SHRINKS * lengths["xyz".index(axis)]) for axis in self.config.system.follows}

    def places(self) -> np.ndarray:
        """Where all particles start: float64[count, 3]."""
        if self.file is not None:
            return self.file.positions
        return self._sites_of(np.arange(self.count)) if self._places is None else self._places

    def places_read(self, places: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Where LAMMPS has particles, which are at these places, as it has read or made them, to the last bit."""
        if self._single is None or self.made:
            return places
        return lammps_velocities.places_copied(self._single, self.config.system.replicate)[ids]

    def unwrapped(self) -> np.ndarray:
        """Where they would be had they not been put back into the box: float64[count, 3]."""
        return self.places() if self.file is None else self.file.unwrapped

    def packed(self, comm: MPI.Comm) -> np.ndarray:
        """Collective: some of the particles on each rank, all of them together."""
        if self.file is not None:
            return self._file_particles(comm)
        first, count = block(self.count, comm.size, comm.rank)
        ids = np.arange(first, first + count)
        places = self._sites_of(ids) if self._places is None else self._places[first : first + count]
        types = self._types()[first : first + count]
        velocities = self._velocities(comm, ids, places, self.masses[types])
        return pack_particles(ids, places, velocities, types, charges=self._charges_of(types))

    def bound(self, name: str) -> np.ndarray | None:
        """The bonds, angles, dihedrals or impropers of the file or of water, type and ids from 0; None without."""
        rows = None if self.file is None else self.file.terms.get(name)
        return rows if rows is not None and len(rows) else None

    def held_bonds(self) -> np.ndarray:
        """Which bonds constraints hold."""
        given, rows, file = self.config.constraints, self.bound("bonds"), self.file
        if rows is None or file is None:
            return np.zeros(0, bool)
        near = np.abs(np.subtract.outer(self.masses, given.masses)) <= NEAR
        kinds = near.any(axis=1) | np.isin(np.arange(len(self.masses)) + 1, given.types)
        return np.isin(rows[:, 0] + 1, given.bonds) | kinds[file.types[rows[:, 1:]]].any(axis=1)

    def held_angles(self) -> np.ndarray:
        """Which angles constraints hold: of the types given, between two bonds that are held."""
        rows, bonds = self.bound("angles"), self.bound("bonds")
        if rows is None:
            return np.zeros(0, bool)
        held = np.isin(rows[:, 0] + 1, self.config.constraints.angles)
        if bonds is None or not held.any():
            return held & False
        ends = bonds[self.held_bonds()][:, 1:]
        keys = np.unique(np.concatenate([ends, ends[:, ::-1]]) @ [self.count, 1])
        sides = [np.isin(rows[:, 2] * self.count + rows[:, end], keys) for end in (1, 3)]
        return held & sides[0] & sides[1]

    def charges(self) -> np.ndarray | None:
        """The charge of every particle; None without charges. Raises `InputError` where they are missing."""
        if self.config.coulomb.kind == "none":
            return None
        if self.file is not None and self.file.charges is not None and not self.config.coulomb.charges:
            return self.file.charges
        return self._charges_of(self._types() if self.file is None else self.file.types)

    def _charges_of(self, types: np.ndarray) -> np.ndarray | None:
        """The charges of particles of these types by the settings."""
        given = self.config.coulomb
        if given.kind == "none":
            return None
        if len(given.charges) != len(self.masses):
            raise InputError(
                f"coulomb.charges has {len(given.charges)} types, but there are {len(self.masses)}",
                do="give one for every type, or a file of particles that has charges",
            )
        return np.array(given.charges)[types]

    def _file_particles(self, comm: MPI.Comm) -> np.ndarray:
        assert self.file is not None
        file, chosen = self.file, slice(None) if comm.rank == 0 else slice(0)
        ids, types = np.arange(file.count)[chosen], file.types[chosen]
        if self.config.system.velocities == "draw" or self.config.system.kind == "water":
            away = file.unwrapped[chosen] - file.positions[chosen]
            velocities = self._velocities(comm, ids, file.positions[chosen], self.masses[types], away)
        else:
            velocities = np.zeros((len(ids), 3)) if file.velocities is None else file.velocities[chosen]
        charges = self.charges()
        charges = charges[chosen] if charges is not None else None
        return pack_particles(ids, file.positions[chosen], velocities, types, file.images[chosen], charges)

    def _sites_of(self, ids: np.ndarray) -> np.ndarray:
        system = self.config.system
        basis = np.array(BASES[system.lattice])
        cell, site = np.divmod(ids, len(basis))
        x, rest = np.divmod(cell, system.cells[1] * system.cells[2])
        # Along open dims the sites are centered between the ends.
        inset = [0.0 if axis in self.periodic else 0.5 * (1 - basis[:, d].max()) for d, axis in enumerate("xyz")]
        return (np.stack([x, *np.divmod(rest, system.cells[2])], axis=1) + basis[site] + inset) * self.edge

    def _lammps_order(self, ids: np.ndarray) -> np.ndarray:
        """The places of particles in the order that LAMMPS makes them: of a lattice x runs fastest."""
        system = self.config.system
        if self.file is not None or self._places is not None:
            return ids
        cell, site = np.divmod(ids, len(BASES[system.lattice]))
        x, rest = np.divmod(cell, system.cells[1] * system.cells[2])
        y, z = np.divmod(rest, system.cells[2])
        return np.asarray(((z * system.cells[1] + y) * system.cells[0] + x) * len(BASES[system.lattice]) + site)

    def _types(self) -> np.ndarray:
        """The type of every particle, in the given fractions and random order."""
        system = self.config.system
        if len(system.fractions) == 1:
            return np.zeros(self.count, np.int64)
        drawn = np.empty((self.count, 4))
        uniforms(system.seed, 0, np.arange(self.count), TYPES, drawn)
        ends = np.rint(np.cumsum(system.fractions) * self.count).astype(np.int64)
        types = np.empty(self.count, np.int64)
        types[np.argsort(drawn[:, 0], kind="stable")] = np.searchsorted(ends, np.arange(self.count), side="right")
        return types

    def _velocities(
        self,
        comm: MPI.Comm,
        ids: np.ndarray,
        places: np.ndarray,
        masses: np.ndarray,
        away: np.ndarray | float = 0.0,
        anew: bool = False,
    ) -> np.ndarray:
        """Random velocities at the temperature with zero total momentum: the same bits on any number of ranks. anew:
        places are no longer those of the start.
        """
        system, units = self.config.system, UNITS[self.config.system.units]
        if system.draw == "normal":
            drawn = np.empty((len(ids), 4))
            normals(system.seed, 0, ids, VELOCITIES, drawn)
        elif system.draw == "lammps":
            drawn = lammps_velocities.in_order(system.seed, self._lammps_order(ids))
        elif system.draw == "lammps_gaussian":
            drawn = lammps_velocities.normal_in_order(system.seed, self._lammps_order(ids), self.count)
        else:
            by_place = lammps_velocities.by_place, lammps_velocities.normal_by_place
            read = places if anew else self.places_read(places, ids)
            drawn = by_place[system.draw == "lammps_geom_gaussian"](system.seed, read)
        if system.dims == 2:
            drawn[:, 2] = 0.0
        v, held = drawn[:, :3] / np.sqrt(masses)[:, None], int(self.held_bonds().sum() + self.held_angles().sum())
        if system.kind == "water":
            v = without_vibration(v, places, masses)
            fixed = self.config.constraints
            held = self.count // 3 * RIGID if fixed.bonds or fixed.bodies else 0
        held = 0 if system.all_freedom else held
        if "momentum" in system.remove:
            v = without_momentum(comm, v, masses, self.count)
        if "rotation" in system.remove:
            v = self._without_rotation(comm, v, places + away, masses)
        squares = add_ranks(comm, (masses[:, None] * v * v).sum(axis=1)[:, None], self.count, exact=True)[0]
        kinetic = 0.5 * units.energy * squares
        wanted = 0.5 * max(system.dims * (self.count - 1) - held, 1) * units.boltzmann * system.temperature
        return v * np.sqrt(wanted / kinetic) if kinetic > 0 else v

    def _without_rotation(self, comm: MPI.Comm, v: np.ndarray, places: np.ndarray, masses: np.ndarray) -> np.ndarray:
        """Collective: velocities without the angular momentum about the center of mass, as of a rigid body."""
        sums = add_ranks(comm, np.column_stack([masses[:, None] * places, masses]), self.count, exact=True)
        arms = places - sums[:3] / sums[3]
        spins = masses[:, None] * np.cross(arms, v)
        moments = masses[:, None, None] * arms[:, :, None] * arms[:, None, :]
        found = add_ranks(comm, np.column_stack([spins, moments.reshape(-1, 9)]), self.count, exact=True)
        spread = found[3:].reshape(3, 3)
        inertia = np.trace(spread) * np.eye(3) - spread
        return v - np.cross(np.linalg.solve(inertia, found[:3]), arms)


def _sites(basis: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """The sites of a lattice in units of its edge: [sites, 3]."""
    corners = np.stack(np.meshgrid(*map(np.arange, cells), indexing="ij"), axis=-1).reshape(-1, 1, 3)
    return (corners + basis).reshape(-1, 3)


def without_momentum(comm: MPI.Comm, v: np.ndarray, masses: np.ndarray, count: int) -> np.ndarray:
    """Collective: velocities, float64[n, 3], of each rank's of `count` particles, without their mean by mass."""
    momentum = add_ranks(comm, np.column_stack([masses[:, None] * v, masses]), count, exact=True)
    return np.asarray(v - momentum[:3] / momentum[3])
