"""Settings of the molecular dynamics app: what a run file may hold, and the presets."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from hpckit.apps.md.analysis_settings import Analysis
from hpckit.io.settings import LIMIT, InputFile, OptionalSpan, RelativeToSource, Section
from hpckit.report.settings import Report

SUMMARY = "molecular dynamics: Lennard-Jones liquids and mixtures, droplets, your own pair potentials"
GPU = True  # takes `hpckit run --gpu`
Axis = Literal["x", "y", "z"]
Rule = Literal["lorentz_berthelot", "geometric"]
FunctionPlace = Annotated[str, RelativeToSource()]  # file.py:name


class System(Section):
    """The particles: a lattice, or a file."""

    units: Literal["lj", "metal", "real"] = Field("lj", description="system of units, as in LAMMPS")
    file: InputFile | None = Field(
        None,
        description="to start from: LAMMPS data, or .dump, .lammpstrj, .xyz, .extxyz, .h5, .h5md; left out: a lattice",
    )
    frame: int = Field(-1, description="which frame of a file with many: from 0 on; below 0 from the end")
    velocities: Literal["file", "draw"] = Field(
        "file", description="of particles from a file: its own (at rest where it has none), or drawn at `temperature`"
    )
    lattice: Literal["fcc", "bcc", "sc"] = Field("fcc", description="lattice to start from")
    cells: tuple[int, int, int] = Field((20, 20, 20), description="lattice cells along x, y, z")
    density: float = Field(0.8442, gt=0, description="particles per volume of the lattice")
    droplet: float = Field(
        0.0,
        ge=0,
        description="radius of a droplet in the middle; outside, particles of `vapor` density (0: no droplet)",
    )
    vapor: float = Field(0.02, gt=0, description="particles per volume outside the droplet")
    periodic: tuple[Axis, ...] = Field(("x", "y", "z"), description="dims whose ends meet; the others are open")
    masses: tuple[float, ...] = Field((1.0,), min_length=1, description="mass of each type (of a file: its own count)")
    fractions: tuple[float, ...] = Field((1.0,), min_length=1, description="share of each type in a lattice")
    temperature: float = Field(
        1.44, ge=0, description="of the velocities of a lattice, or of a file with velocities = draw"
    )
    seed: int = Field(87287, ge=0, description="start of the random numbers for velocities and types")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if min(self.cells) < 1:
            raise ValueError(f"cells are {list(self.cells)}: at least 1 along each dim")
        if min(self.masses) <= 0:
            raise ValueError(f"masses are {list(self.masses)}: all must be above 0")
        if not self.file and len(self.fractions) != len(self.masses):
            raise ValueError(f"{len(self.fractions)} fractions for {len(self.masses)} masses: give one of each a type")
        if min(self.fractions) < 0 or abs(sum(self.fractions) - 1) > 1e-9:
            raise ValueError(f"fractions are {list(self.fractions)}: they must be at least 0 and add up to 1")
        return self


class Pair(Section):
    """What two types have in place of their mixed parameters."""

    types: tuple[int, int] = Field(description="the two types, counted from 1")
    epsilon: float | None = Field(None, ge=0, description="depth of the well")
    parameters: tuple[float, ...] | None = Field(None, description="of other potentials than Lennard-Jones")
    sigma: float | None = Field(None, gt=0, description="diameter")
    cutoff: float | None = Field(None, gt=0, description="distance from which on there is no force")
    keyword: str | None = Field(None, description="section of the table file, for kind = table")


class Interaction(Section):
    """Forces between pairs of particles."""

    kind: Literal["lennard_jones", "morse", "buckingham", "yukawa", "table", "python"] = Field(
        "lennard_jones",
        description="the potential; table: numbers from `file`; python: the function that `function` names",
    )
    file: InputFile | None = Field(None, description="LAMMPS table file, for kind = table")
    keyword: str = Field("", description="its section; empty: the only one")
    points: int = Field(1000, ge=2, description="places, in equal steps of r^2, at which the table is interpolated")
    interpolation: Literal["spline", "linear"] = Field(
        "spline", description="between these: as pair_style table spline or linear of LAMMPS"
    )
    parameters: tuple[float, ...] = Field(
        (),
        description="of all pairs without their own: morse: depth, stiffness, distance; buckingham: strength, range,"
        " dispersion; yukawa: strength, screening; python: what your function takes",
    )
    function: FunctionPlace | None = Field(
        None, description="file.py:name of a function energy(r2, parameters) of the squared distance, for kind = python"
    )
    force: FunctionPlace | None = Field(
        None, description="file.py:name of force(r2, parameters) = -dE/dr / r; left out: derived from the energy"
    )
    switch: float = Field(
        0.0, ge=0, description="distance from which on energies fade smoothly to the cutoff; 0: they do not"
    )
    epsilon: tuple[float, ...] = Field((1.0,), min_length=1, description="depth of the well of each type")
    sigma: tuple[float, ...] = Field((1.0,), min_length=1, description="diameter of each type")
    mixing: Rule = Field("lorentz_berthelot", description="parameters of unlike types; always geometric for epsilon")
    cutoff: float = Field(2.5, gt=0, description="distance from which on there is no force")
    shift: bool = Field(False, description="energies are 0 at the cutoff")
    tail: bool = Field(False, description="add what pairs beyond the cutoff have on average to energy and pressure")
    pairs: tuple[Pair, ...] = Field((), description="parameters of single pairs of types")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.epsilon) != len(self.sigma):
            raise ValueError(f"epsilon has {len(self.epsilon)} types and sigma {len(self.sigma)}")
        if self.kind == "python" and ":" not in (self.function or ""):
            raise ValueError("interaction.kind = 'python' needs interaction.function = 'file.py:name'")
        if self.kind == "table" and not self.file:
            raise ValueError("interaction.kind = 'table' needs interaction.file, a LAMMPS table file")
        if self.kind == "table" and (self.switch or self.tail or self.force):
            raise ValueError("a table is taken as it is: interaction.switch, tail and force go with functions")
        if self.switch and (self.shift or self.tail or self.force or self.switch >= self._cutoffs[0]):
            raise ValueError("interaction.switch lies below every cutoff, and leaves out shift, tail and force")
        for pair in self.pairs:
            if min(pair.types) < 1:
                raise ValueError(f"pairs name types {list(pair.types)}: they count from 1")
        return self

    @property
    def _cutoffs(self) -> list[float]:
        """All cutoffs, in growing order."""
        return sorted([self.cutoff, *(pair.cutoff for pair in self.pairs if pair.cutoff is not None)])


class Neighbors(Section):
    """Neighbor lists."""

    skin: float = Field(0.3, gt=0, description="how much farther than the cutoff lists reach")
    every: int = Field(1, ge=1, description="steps between two looks whether lists must be made anew")
    delay: int = Field(0, ge=0, description="steps before the first look after a rebuild")
    check: bool = Field(True, description="rebuild only when a particle moved more than half the skin; false: always")


class WallAt(Section):
    """A half space of Lennard-Jones particles at an end of the box (wall/lj93 of LAMMPS)."""

    dim: Axis = Field(description="the dim that it stands across")
    end: Literal["low", "high", "both"] = Field("both", description="which end of the box")
    epsilon: float = Field(1.0, gt=0, description="strength")
    sigma: float = Field(1.0, gt=0, description="diameter")
    cutoff: float = Field(2.5, gt=0, description="distance from which on there is no force")


class Dynamics(Section):
    """How the particles move."""

    kind: Literal["nve", "langevin", "bussi", "nose_hoover", "fire"] = Field(
        "nve",
        description="nve: constant energy; langevin, bussi, nose_hoover: at a temperature; fire: down to a minimum",
    )
    temperature: float = Field(1.0, ge=0, description="of the thermostats")
    damping: float = Field(1.0, gt=0, description="time in which a thermostat acts: some 100 time steps or more")
    seed: int = Field(4711, ge=0, description="start of the random numbers of langevin and bussi")
    equilibrate: int = Field(
        0, ge=0, description="steps at the start with the thermostat bussi, before the kind begins"
    )
    chain: int = Field(3, ge=1, le=20, description="links of the chain of nose_hoover")
    largest_force: float = Field(1e-6, gt=0, description="fire ends when no component of a force is larger")
    longest: float = Field(0.1, gt=0, description="how far fire may move a particle in a step")
    field: tuple[float, float, float] = Field((0.0, 0.0, 0.0), description="acceleration of all particles")
    walls: tuple[WallAt, ...] = Field((), description="walls across the ends of open dims")


class Time(Section):
    """How long, and in which steps."""

    steps: int = Field(1000, ge=0, description="time steps")
    dt: float = Field(0.005, gt=0, description="time step, in the units of the system")
    thermo: int = Field(100, ge=1, description="steps between two lines of the thermo table")
    limit: OptionalSpan = Field("", description=LIMIT)


class Output(Section):
    """What is written."""

    every: int = Field(0, ge=0, description="steps between two frames of the trajectory; 0: none but the last")
    format: Literal["h5md", "dump"] = Field("h5md", description="trajectory as H5MD file, or as LAMMPS dump")


class Ranks(Section):
    """How the box is cut over the ranks."""

    x: int = Field(0, ge=0, description="ranks along x; 0: chosen")
    y: int = Field(0, ge=0, description="ranks along y; 0: chosen")
    z: int = Field(0, ge=0, description="ranks along z; 0: chosen")
    balance: int = Field(0, ge=0, description="steps between two moves of the cuts by measured force time; 0: none")


class Config(Section):
    """All settings of a run."""

    app: Literal["md"] = "md"
    precision: Literal["double", "mixed"] = Field(
        "double", description="mixed: pairs in single precision, sums and motion in double"
    )
    repro: bool = Field(False, description="forces added without rounding: the same bits on any number of ranks")
    system: System = Field(default_factory=System, description="the particles")
    interaction: Interaction = Field(default_factory=Interaction, description="forces between pairs")
    neighbors: Neighbors = Field(default_factory=Neighbors, description="neighbor lists")
    dynamics: Dynamics = Field(default_factory=Dynamics, description="how the particles move")
    time: Time = Field(default_factory=Time, description="how long, and in which steps")
    output: Output = Field(default_factory=Output, description="what is written")
    analysis: Analysis = Field(default_factory=Analysis, description="what is measured while the run goes on")
    ranks: Ranks = Field(default_factory=Ranks, description="how the box is cut over the ranks")
    report: Report = Field(default_factory=Report, description="what the report shows")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        checks = getattr(self, "checks", None)  # a section of all apps, added to these
        if checks is not None and checks.replay and not self.repro:
            raise ValueError("checks.replay compares bits, which forces have again only with repro = true (--repro)")
        if self.dynamics.kind == "fire" and self.dynamics.equilibrate:
            raise ValueError("dynamics.equilibrate goes before motion in time, and fire is none")
        for wall in self.dynamics.walls:
            if wall.dim in self.system.periodic:
                raise ValueError(f"dynamics.walls stand across open dims, and {wall.dim} is in system.periodic")
        types, given = len(self.system.masses), self.interaction
        if not self.system.file and given.kind == "lennard_jones" and types != len(given.epsilon):
            raise ValueError(f"interaction has {len(given.epsilon)} types of particles and system.masses {types}")
        if not self.system.file and any(max(pair.types) > types for pair in given.pairs):
            raise ValueError(f"interaction.pairs name types that are not there: there are 1 to {types}")
        if self.interaction.shift and self.interaction.tail:
            raise ValueError("interaction.tail corrects a potential that is cut off, not one that is shifted")
        if self.repro and self.precision == "mixed":
            raise ValueError("repro adds forces in double precision: set precision to double")
        return self


PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "melt": (
        "a Lennard-Jones crystal melts: the benchmark of LAMMPS, 32 000 atoms",
        {
            "neighbors": {"every": 20, "check": False},
            "time": {"steps": 1000},
        },
    ),
    "argon": (
        "liquid argon at 94.4 K, 864 atoms, as Rahman had it in 1964",
        {
            "system": {
                "units": "real",
                "cells": (6, 6, 6),
                "density": 0.020539,  # the box of the paper, 10.229 diameters
                "masses": (39.95,),
                "temperature": 180.5,  # half of it goes into melting the lattice
            },
            "interaction": {"epsilon": (0.238465,), "sigma": (3.4,), "cutoff": 7.65},
            "neighbors": {"skin": 1.2},
            "time": {"steps": 5000, "dt": 5.0},
            "output": {"every": 100},
            "analysis": {
                "every": 50,
                "motion_every": 8,
                "after": 1000,
                "reach": 17.0,
                "k_max": 5.0,
                "lags": 125,
                "spacing": 5,
            },
        },
    ),
    "droplet": (
        "a droplet in its vapor: most of the work is in the middle",
        {
            "system": {"cells": (24, 24, 24), "density": 0.8, "droplet": 10.0, "temperature": 0.7},
            "ranks": {"balance": 100},
            "time": {"steps": 2000},
            "output": {"every": 200},
            "analysis": {"every": 50, "after": 500, "axis": "r", "slabs": 40},
        },
    ),
    "mixture": (
        "the glass former of Kob and Andersen: 80 % of A, 20 % of B, which attract each other most",
        {
            "system": {
                "cells": (10, 10, 10),
                "density": 1.2,
                "masses": (1.0, 1.0),
                "fractions": (0.8, 0.2),
                "temperature": 2.0,
            },
            "interaction": {
                "epsilon": (1.0, 0.5),
                "sigma": (1.0, 0.88),
                "shift": True,
                "pairs": (
                    {"types": (1, 2), "epsilon": 1.5, "sigma": 0.8, "cutoff": 2.0},
                    {"types": (2, 2), "cutoff": 2.2},
                ),
            },
            "time": {"steps": 2000, "dt": 0.004},
            "output": {"every": 200},
            "analysis": {"every": 50, "motion_every": 10, "after": 500, "k_max": 15.0, "lags": 100},
        },
    ),
}
