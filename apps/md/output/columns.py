"""The columns of the thermo table that a run asks for, with the names and the values that LAMMPS has for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np

from hpckit.apps.md.motion.dynamics import group_of, within, within_region
from hpckit.apps.md.output.averages import Averages
from hpckit.apps.md.output.of_particles import (
    Binned,
    OfParticles,
    counted,
    distances,
    finished,
    heat_flux,
    of_group,
    reduced,
    sample,
)
from hpckit.apps.md.potentials import reaches
from hpckit.apps.md.settings.averages import Average, Histogram, Profile, Sampled
from hpckit.apps.md.settings.formulas import value_of
from hpckit.apps.md.settings.table import (
    AVERAGED,
    COMPUTED,
    ENERGIES,
    FROM_START,
    TAKEN,
    TITLES,
    WHOLE,
    Computed,
    GroupValue,
    group_value,
)
from hpckit.apps.md.start import Start
from hpckit.comm.agree import max_of_ranks, share_numbers
from hpckit.io.checkpoint.state import Piece, Restored
from hpckit.md.external.groups import ParticleGroup, Some, Warmth, center_of, unwrapped, weighted_sums
from hpckit.md.saved import rows_block, rows_by_id
from hpckit.md.system import System
from hpckit.md.thermo import Thermo, add_ranks, mass_density, tail_energy

PIECE = "displaced_"  # of checkpoints, before the name of what is computed from a start


class TableColumns:
    """The columns of a stage. References of displacements and velocities last from stage to stage, and in
    checkpoints.
    """

    def __init__(self, config: Any, start: Start, system: System) -> None:
        self.system, self.table = system, config.table
        self.group: Callable[[str], ParticleGroup | None] = cache(partial(group_of, start))  # by its name
        self.references: dict[str, np.ndarray] = {}  # unwrapped places from which particles move, or velocities
        self.kept: dict[str, float] = {}  # formulas that stay what they were at the start of a stage
        self.last: tuple[Thermo, int, int, float] | None = None  # what the last values were made of
        self.averages = Averages()
        self.enter(config, 0)

    def enter(self, config: Any, step: int) -> None:
        """Collective: the columns of a stage that begins after a step, with the particles as they are."""
        self.config, self.table = config, config.table
        per_particle = self.table.per_particle
        self.share = config.system.units == "lj" if per_particle is None else per_particle
        self.computed = self.table.known
        self.groups = {name: self.group(each.group) for name, each in self.computed.items()}
        self.groups |= {f"{name} partners": self.group(each.partners) for name, each in self.computed.items()}
        self.baths = {each.name for each in (config.dynamics, *config.dynamics.also)}
        self.formulas = {f"v_{each.name}": each.formula for each in self.table.formulas}
        self.at_start = [f"v_{each.name}" for each in self.table.formulas if each.at_start]
        self.averages.enter(self.table, self.table.number(step, 0))
        known, since = self.references, {k: each.kind for k, each in self.computed.items() if each.kind in FROM_START}
        rows = {"msd": self._places, "vacf": self._velocities}
        self.references = {name: known[name] if name in known else rows[kind]() for name, kind in since.items()}
        if self.last is not None:  # what was measured at the end of the stage before
            self._keep(self._value(*self.last))

    @property
    def header(self) -> str:
        """The titles of the columns."""
        return " ".join(f"{TITLES.get(name, name):^14}" for name in self.table.columns)

    def row(self, values: dict[str, float]) -> str:
        """A line of the table."""
        return " ".join(
            f"{int(value):10d}    " if name in WHOLE else f"{'-' if value < 0 else ' '}{abs(value):<13.8g}"
            for name, value in values.items()
        )

    def values(self, thermo: Thermo, step: int, done: int, time: float) -> dict[str, float]:
        """Collective: the columns after a step, of which `done` are in this stage. A division by zero is nan."""
        self.last = thermo, step, done, time
        value = self._value(*self.last)
        self._keep(value)
        return {name: value(name, divides=True) for name in self.table.columns}

    def _keep(self, value: Callable[..., Any]) -> None:
        """Collective: keep the values of formulas that stay from now on."""
        self.kept |= {name: value(name) for name in self.at_start if name not in self.kept}

    def samples(self, step: int, done: int) -> bool:
        """Whether a mean has a sample after a step, of which `done` are in this stage."""
        return bool(self.averages.due(self.table.number(step, done)))

    def result(self, given: Sampled) -> tuple[list[list[float]], list[float]]:
        """The rows of the last result of what is sampled, and what LAMMPS tells beside their number."""
        return self.averages.result(given.name)

    def sample(self, thermo: Thermo, step: int, done: int, time: float) -> Iterator[Sampled]:
        """Collective: take the samples of a step; what has a new result now."""
        value = self._value(thermo, step, done, time)

        @cache
        def of(group: str) -> OfParticles:
            return self._of_particles(self.group(group), value)

        def evaluate(given: Sampled) -> list[float]:
            if isinstance(given, Profile):
                state, domains = self.averages.states[given.name], self.system.domains
                state.box = state.box if state.sums else [domains.lower.tolist(), domains.upper.tolist()]
                bins = Binned(given.bins, self.system, state.box)
                return sample(given, of(given.group), bins)
            if isinstance(given, Histogram):
                each = {name: not self.table.unknown_of_particles(name) for name in given.columns}
                return counted(given, of(given.group), {k: None if own else value(k) for k, own in each.items()})
            if isinstance(given, Average) and given.has_rows:
                return [each for name in given.columns for each in self._rows(name, value)]
            return [value(name) for name in given.columns]

        def finish(given: Average, sums: list[float]) -> list[float]:
            if isinstance(given, Profile):
                return finished(given, sums, Binned(given.bins, self.system, self.averages.states[given.name].box))
            return [value / given.repeat for value in sums]

        yield from self.averages.sample(self.table.number(step, done), evaluate, finish)

    def _value(self, thermo: Thermo, step: int, done: int, time: float) -> Callable[..., Any]:
        """Collective: the value of a column by its name at a step; divides: energies of all that is computed, for each
        particle; whole: a computed vector, or table [rows, columns].
        """
        known = self._known(thermo, step, done, time)
        count = self.system.count if self.share else 1

        @cache
        def computed(name: str) -> Any:
            given = self.computed[name]
            if given.kind == "reduce":
                return reduced(given, self._of_particles(within(self.groups[name], given.within), named))
            if given.kind == "heat/flux":
                return heat_flux(given, self._of_particles(self.groups[name], named))
            return self._table(given) if given.width else self._vector(given, self.groups[name], thermo)

        @cache
        def named(name: str, divides: bool = False, whole: bool = False) -> Any:
            if whole:
                return computed(name)
            if name[2:] in self.table.exchanged and name.startswith("f_"):
                share = count if divides and name[2:] in self.baths else 1
                return self.system.given.get(name[2:], 0.0) / share
            if match := AVERAGED.match(name):
                row, part = int(match[2] or 1), int(match[3] or 0)
                given = self.averages.named(match[1])
                extensive = isinstance(given, Average) and self._is_averaged_energy(given, row, part)
                return self.averages.value(match[1], row, part) / (count if extensive and divides else 1)
            if value := group_value(name):
                return of_group(self.system, self._part(value), value.what, value.axis, value.end)
            if match := TAKEN.match(name):
                return self.averages.of_all(match[2], int(match[3] or 1), match[1])
            if name == "PI":
                return math.pi
            if name in known:
                found = known[name]
                return (found() if callable(found) else found) / (count if name in ENERGIES else 1)
            if match := COMPUTED.match(name):
                row, part, values = int(match[2] or 0), int(match[3] or 0), computed(match[1])
                if part:
                    return float(values[row - 1, part - 1])
                return values[row] / (count if divides and self._is_extensive(name) else 1)
            if name in self.kept:
                return self.kept[name]
            try:
                return value_of(self.formulas[name], named)
            except (ArithmeticError, ValueError):
                return math.nan

        return named

    def _rows(self, name: str, value: Callable[..., Any]) -> list[float]:
        """Collective: the rows of a vector, or of a column of a table."""
        match = COMPUTED.match(name)
        if match is None:
            return []
        found = value(match[1], whole=True)
        rows: list[float] = found[:, int(match[2]) - 1].tolist() if match[2] else [*found[1:]]
        return rows

    def _of_particles(self, group: Some, scalar: Callable[[str], float]) -> OfParticles:
        """The numbers of the particles of a group on this rank."""
        return OfParticles(self.system, group, self.computed, self.groups, self.formulas, scalar)

    def _is_averaged_energy(self, given: Average, row: int, part: int) -> bool:
        """Whether a mean is of energies of all that they are computed from."""
        if isinstance(given, Profile | Histogram):
            return False
        if not given.has_rows:
            return self._is_extensive(given.columns[row - 1])
        return self._is_extensive(f"{given.columns[max(part, 1) - 1]}[1]")

    def _is_extensive(self, name: str) -> bool:
        """Whether a column c_NAME is an energy of all that it is computed from."""
        match = COMPUTED.match(name)
        if match is None:
            return False
        given = self.computed[match[1]]
        if given.kind == "reduce":
            return given.how.startswith("sum")
        return given.kind in ("ke", "pe", "erotate/sphere", "heat/flux") or (
            given.kind.startswith("temp") and bool(match[2])
        )

    def _known(self, thermo: Thermo, step: int, done: int, time: float) -> dict[str, float | Callable[[], float]]:
        """The quantities by name, of all particles; functions of those that need the ranks, or all particles."""
        system, box = self.system, self.system.domains
        lower, upper = np.array(box.lower), np.array(box.upper)
        pairs = thermo.potential - thermo.bonded
        total = thermo.potential + thermo.kinetic
        bonds = thermo.bonded - thermo.angles - thermo.dihedrals - thermo.impropers
        return {
            "step": self.table.number(step, done),
            "elapsed": done,
            "dt": self.config.time.dt,
            "time": (done * self.config.time.dt if self.table.counts == "stage" else time) + self.table.first_time,
            "atoms": system.count,
            "temp": thermo.temperature,
            "press": thermo.pressure,
            "vol": thermo.volume,
            "pe": thermo.potential,
            "ke": thermo.kinetic,
            "etotal": total,
            "epair": pairs,
            "enthalpy": total + thermo.pressure * thermo.volume / system.units.pressure,
            "evdwl": pairs - thermo.coulomb - thermo.long_range,
            "ecoul": thermo.coulomb,
            "elong": thermo.long_range,
            "emol": thermo.bonded,
            "ebond": bonds,
            "eangle": thermo.angles,
            "edihed": thermo.dihedrals,
            "eimp": thermo.impropers,
            **{f"l{axis}": float(length) for axis, length in zip("xyz", upper - lower, strict=True)},
            **{f"{axis}lo": float(end) for axis, end in zip("xyz", lower, strict=True)},
            **{f"{axis}hi": float(end) for axis, end in zip("xyz", upper, strict=True)},
            **dict(zip(("xy", "xz", "yz"), map(float, box.tilt), strict=True)),
            **dict(zip(("pxx", "pyy", "pzz", "pxy", "pxz", "pyz"), thermo.tensor, strict=True)),
            "density": lambda: mass_density(system),
            "etail": lambda: tail_energy(system),
            "fmax": self._largest_force,
            "fnorm": self._all_force,
        }

    def _vector(self, given: Computed, group: ParticleGroup | None, thermo: Thermo) -> tuple[float, ...]:
        """Collective: what is computed: its one value, and those of the vector; nan for one that it has not."""
        system = self.system
        if given.kind in ("temp", "temp/deform", "ke"):
            x, y, z = (axis in given.along for axis in "xyz")
            warmth = Warmth(within(group, given.within), (x, y, z), given.kind == "temp/deform")
            motion = warmth.motion(system)
            if given.kind == "ke":
                return (0.5 * float(motion[:3].sum()),)
            degrees = warmth.freedom(system) * system.units.boltzmann
            return (float(motion[:3].sum()) / degrees if degrees else 0.0, *motion.tolist())
        if given.kind == "pe":
            return (thermo.potential,)
        if given.kind == "erotate/sphere":
            return (thermo.rotational,)
        if given.kind == "pressure":
            return (thermo.pressure, *thermo.tensor)
        if given.kind == "com":
            return (math.nan, *center_of(system, group)[0].tolist())
        if given.kind == "gyration":
            return self._gyration(group)
        return self._correlation(given, group) if given.kind == "vacf" else self._displacement(given, group)

    def _table(self, given: Computed) -> np.ndarray:
        """Collective: distances between particles: the middles of bins, and of each pair of types g(r) and the number
        of neighbors so far.
        """
        reach = given.reach or max(reaches(self.config))
        return distances(given, reach, self.system, self.group(given.group))

    def _part(self, value: GroupValue) -> Some:
        """The group of a function, or what of it is in a region."""
        group = self.group(value.group)
        region = next((each for each in self.table.regions if each.name == value.region), None)
        return group if region is None else within_region(group, region)

    def _gyration(self, group: ParticleGroup | None) -> tuple[float, ...]:
        """Collective: the radius of gyration, and its tensor."""
        center, mass = center_of(self.system, group)
        away = unwrapped(self.system) - self.system.device.to_device(center)
        pairs = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))
        each = self.system.device.xp.stack([away[:, a] * away[:, b] for a, b in pairs], axis=1)
        tensor = weighted_sums(self.system, group, self.system.slot_masses[:, None] * each) / mass
        return (math.sqrt(max(float(tensor[:3].sum()), 0.0)), *tensor.tolist())

    def _displacement(self, given: Computed, group: ParticleGroup | None) -> tuple[float, ...]:
        """Collective: mean square displacements along x, y, z, and all."""
        system = self.system
        first, count = rows_block(system)
        moved = self._places() - self.references[given.name]
        here = np.ones(count, bool) if group is None else group.members[first : first + count]
        masses = rows_by_id(system, system.device.xp.repeat(system.slot_masses[:, None], 3, axis=1))[here, :1]
        if given.centered:
            sums = self._added(np.concatenate([masses * moved[here], masses], axis=1))
            moved = moved - sums[:3] / sums[3]
        sums = self._added(np.concatenate([moved[here] ** 2, np.ones((len(masses), 1))], axis=1))
        x, y, z = (sums[:3] / sums[3]).tolist()
        return math.nan, x, y, z, x + y + z

    def _correlation(self, given: Computed, group: ParticleGroup | None) -> tuple[float, ...]:
        """Collective: mean products of velocities with those of the start along x, y, z, and all."""
        first, count = rows_block(self.system)
        here = np.ones(count, bool) if group is None else group.members[first : first + count]
        products = (self._velocities() * self.references[given.name])[here]
        sums = self._added(np.concatenate([products, np.ones((len(products), 1))], axis=1))
        x, y, z = (sums[:3] / sums[3]).tolist()
        return math.nan, x, y, z, x + y + z

    def _added(self, columns: np.ndarray) -> np.ndarray:
        """Collective: the sums of columns over all ranks, with the same bits on any number of ranks."""
        return share_numbers(self.system.mesh.comm, add_ranks(self.system.mesh.comm, columns, self.system.count, True))

    def _places(self) -> np.ndarray:
        """Collective: where particles would be in a box without ends, in the order of their ids: rows of this rank."""
        return rows_by_id(self.system, unwrapped(self.system))

    def _velocities(self) -> np.ndarray:
        """Collective: velocities in that order."""
        return rows_by_id(self.system, self.system.particles.velocities[:, :3])

    def _largest_force(self) -> float:
        """Collective: the largest component of a force."""
        particles = self.system.particles
        here = particles.ids[: particles.slots] >= 0
        own = self.system.device.to_host(abs(particles.forces[: particles.slots, :3])[here])
        largest = np.array([own.max(initial=0.0)])
        max_of_ranks(self.system.mesh.comm, largest)
        return float(largest[0])

    def _all_force(self) -> float:
        """Collective: the length of all forces as one vector."""
        forces = self.system.particles.forces[: self.system.particles.slots, :3]
        return math.sqrt(float(weighted_sums(self.system, None, forces * forces).sum()))

    def pieces(self) -> list[Piece]:
        """What a checkpoint holds of it."""
        first, _ = rows_block(self.system)
        shape = (self.system.count, 3)
        return [Piece(PIECE + name, shape, (first, 0), rows) for name, rows in self.references.items()]

    def saved(self) -> dict[str, Any]:
        """The state of the averages, and values that stay, for a checkpoint."""
        return {"averages": self.averages.saved(), "kept": self.kept}

    def restore(self, kept: Restored, config: Any, step: int) -> None:
        """Collective: take up the stage, the averages and the references of a checkpoint of that step."""
        values = kept.values.get("columns", {})
        self.averages.restore(values.get("averages", {}), config.table)
        self.kept = dict(values.get("kept", {}))
        first, count = rows_block(self.system)
        names = [each.name for each in config.table.computed if each.kind in FROM_START]
        self.references = {name: kept.read(PIECE + name, (first, 0), (count, 3)) for name in names}
        self.enter(config, step)
