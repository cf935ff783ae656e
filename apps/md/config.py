"""Settings of the molecular dynamics app, and its presets."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from hpckit.apps.md.analysis_settings import Analysis
from hpckit.apps.md.free_energy.settings import Coupling, Metadynamics, Replicas, Restraint, Variable
from hpckit.apps.md.molecules.settings import Angles, Bonds, Constraints, Coulomb, Dihedrals, Impropers
from hpckit.apps.md.motion.settings import Axis, Barostat, Deform, Draw, Dynamics, Removed, Stage
from hpckit.io.settings import LIMIT, InputFile, OptionalSpan, RelativeToSource, Section
from hpckit.plan.particles.snapshot import BOUND
from hpckit.report.settings import Report

SUMMARY = "molecular dynamics: liquids, metals, silicon, salts, molecules, grains, LAMMPS's inputs, your potentials"
SCRIPTS = "lammps.script"  # reads inputs of LAMMPS
GPU = True  # supports `hpckit run --gpu`
Potential = Literal[
    "lennard_jones", "morse", "buckingham", "yukawa", "table", "eam", "stillinger_weber", "tersoff", "snap",
    "granular", "python", "brick", "ase",
]  # fmt: skip
OF_BRICKS = ("brick", "ase")  # functions of all that is near
OF_FILES = ("eam", "stillinger_weber", "tersoff", "snap")  # of many bodies
Rule = Literal["lorentz_berthelot", "geometric"]
FunctionPlace = Annotated[str, RelativeToSource()]  # file.py:name


class System(Section):
    """The particles: a lattice, of water too, or a file."""

    units: Literal["lj", "metal", "real"] = Field("lj", description="system of units, as in LAMMPS")
    kind: Literal["particles", "water"] = Field(
        "particles",
        description="on each site of the lattice: a particle; or water, rigid and turned at random: oxygen, type 1, and"
        " two hydrogens, type 2, of the length and angle in bonds.parameters and angles.parameters",
    )
    file: InputFile | None = Field(
        None,
        description="initial particles: LAMMPS data, or .dump, .lammpstrj, .xyz, .extxyz, .h5, .h5md, or a LAMMPS"
        " script that makes them; none: a lattice",
    )
    style: str = Field("", description="atom style of a LAMMPS data file; empty: the one that it names, else atomic")
    replicate: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] = Field(
        (1, 1, 1), description="copies of the file's particles and box along x, y, z"
    )
    frame: int = Field(-1, description="frame of a trajectory file, from 0; negative numbers count from the end")
    velocities: Literal["file", "draw"] = Field(
        "file", description="of particles from a file: the file's (at rest if it has none), or drawn at `temperature`"
    )
    lattice: Literal["fcc", "bcc", "sc", "diamond"] = Field("fcc", description="initial lattice")
    cells: tuple[int, int, int] = Field((20, 20, 20), description="lattice cells along x, y, z")
    density: float = Field(0.8442, gt=0, description="number density of the lattice, of molecules for water")
    tilt: tuple[float, float, float] = Field(
        (0.0, 0.0, 0.0), description="xy, xz, yz of a tilted box around a lattice, lengths; a file has its own"
    )
    edge: float = Field(0.0, ge=0, description="edge of a lattice cell, in place of the density; 0: by `density`")
    droplet: float = Field(
        0.0,
        ge=0,
        description="radius of a droplet at the center, surrounded by vapor of density `vapor`; 0: no droplet",
    )
    vapor: float = Field(0.02, gt=0, description="number density outside the droplet")
    periodic: tuple[Axis, ...] = Field(("x", "y", "z"), description="periodic dims; the others are open")
    masses: tuple[float, ...] = Field(
        (), description="mass of each type; empty: those of the file of particles or of the potential, else 1"
    )
    fractions: tuple[float, ...] = Field((1.0,), min_length=1, description="share of each type in a lattice")
    temperature: float = Field(
        1.44, ge=0, description="temperature of drawn velocities: of a lattice, or of a file with velocities = draw"
    )
    seed: int = Field(87287, ge=0, description="random seed of velocities and types")
    draw: Draw = Field(
        "normal",
        description="drawn velocities; lammps, lammps_geom: those of `velocity create` of LAMMPS, loop all or geom;"
        " with _gaussian of its dist gaussian",
    )
    remove: Removed = Field(("momentum",), description="what all particles together have not of drawn velocities")
    all_freedom: bool = Field(
        False,
        description="`temperature` counts degrees of freedom that constraints take away, too, as that of a `velocity`"
        " before `fix shake` of LAMMPS does",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if min(self.cells) < 1:
            raise ValueError(f"cells are {list(self.cells)}: at least 1 along each dim")
        if any(self.tilt) and (self.file or self.droplet or self.kind == "water"):
            raise ValueError("system.tilt is for lattices of single particles: omit it with file, droplet or water")
        if min(self.masses, default=1.0) <= 0:
            raise ValueError(f"masses are {list(self.masses)}: all must be above 0")
        if self.kind == "water" and (self.file or self.droplet or len(self.masses) != 2 or len(self.fractions) != 1):
            raise ValueError("system.kind = 'water' needs two masses: omit file, droplet and fractions")
        if not self.file and self.kind != "water" and self.masses and len(self.fractions) != len(self.masses):
            raise ValueError(f"{len(self.fractions)} fractions for {len(self.masses)} masses: give both for each type")
        if min(self.fractions) < 0 or abs(sum(self.fractions) - 1) > 1e-9:
            raise ValueError(f"fractions are {list(self.fractions)}: they must be at least 0 and add up to 1")
        return self


class Pair(Section):
    """Parameters of one pair of types, in place of the mixed ones."""

    types: tuple[int, int] = Field(description="the two types, counted from 1")
    epsilon: float | None = Field(None, ge=0, description="depth of the well")
    parameters: tuple[float, ...] | None = Field(None, description="parameters of potentials other than Lennard-Jones")
    sigma: float | None = Field(None, ge=0, description="diameter")
    cutoff: float | None = Field(None, gt=0, description="distance beyond which there is no force")
    keyword: str | None = Field(None, description="section of the table file, for kind = table")


class Interaction(Section):
    """Forces between pairs of particles."""

    kind: Potential = Field(
        "lennard_jones",
        description="the potential; table: numbers from `file`; eam: metals, embedded atoms of `file`;"
        " stillinger_weber: silicon, of `file`; tersoff: silicon, carbon and compounds, of `file`;"
        " snap: of `file` and `parameters_file`; python: the function of pairs that `function` names; brick: one of all"
        " particles of a rank and their ghosts;"
        " granular: spheres that touch, see [granular];"
        " ase: a calculator of ASE, which the function that `function` names returns",
    )
    file: InputFile | None = Field(
        None,
        description="for kind = table a LAMMPS table file, for eam a funcfl, setfl or Finnis-Sinclair file, for"
        " stillinger_weber a file of pair_style sw, for tersoff one of pair_style tersoff, for snap a .snapcoeff",
    )
    parameters_file: InputFile | None = Field(None, description="for snap, the .snapparam beside `file`")
    zbl: tuple[float, ...] = Field(
        (),
        description="for snap in units metal: Ziegler, Biersack and Littmark's repulsion of nuclei beside it, whose"
        " fading begins and ends at these two distances",
    )
    nuclei: tuple[float, ...] = Field((), description="atomic number of each type, for zbl")
    elements: tuple[str, ...] = Field((), description="for files: the element of each type; empty: those of the file")
    keyword: str = Field("", description="section of the table file; empty: its only section")
    points: int = Field(1000, ge=2, description="points, equally spaced in r^2, to which the table is resampled")
    interpolation: Literal["spline", "linear"] = Field(
        "spline", description="interpolation between points, as pair_style table spline or linear of LAMMPS"
    )
    parameters: tuple[float, ...] = Field(
        (),
        description="for all pairs without their own: morse: depth, stiffness, distance; buckingham: strength, range,"
        " dispersion; yukawa: strength, screening; python: those of your function",
    )
    function: FunctionPlace | None = Field(
        None,
        description="file.py:name of a function: energy(r2, parameters) of the squared distance, for kind = python;"
        " function(brick), returning energies and slopes, for brick; one that returns a calculator, for ase",
    )
    force: FunctionPlace | None = Field(
        None, description="file.py:name of force(r2, parameters) = -dE/dr / r; omitted: derived from the energy"
    )
    switch: float = Field(
        0.0, ge=0, description="distance from which energies fade smoothly to 0 at the cutoff; 0: no fading"
    )
    epsilon: tuple[float, ...] = Field((1.0,), min_length=1, description="depth of the well of each type")
    sigma: tuple[float, ...] = Field((1.0,), min_length=1, description="diameter of each type")
    epsilon_14: tuple[float, ...] = Field(
        (), description="depth of each type for the ends of dihedrals of kind charmm with a weight; empty: epsilon"
    )
    sigma_14: tuple[float, ...] = Field((), description="diameter of each type for these; empty: sigma")
    mixing: Rule = Field("lorentz_berthelot", description="mixing rule for sigma; epsilon is always geometric")
    cutoff: float = Field(2.5, gt=0, description="distance beyond which there is no force")
    shift: bool = Field(False, description="shift energies to 0 at the cutoff")
    tail: bool = Field(False, description="add the mean contribution of pairs beyond the cutoff to energy and pressure")
    pairs: tuple[Pair, ...] = Field((), description="parameters of single pairs of types")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.epsilon) != len(self.sigma):
            raise ValueError(f"epsilon has {len(self.epsilon)} types and sigma {len(self.sigma)}")
        for name in ("epsilon_14", "sigma_14"):
            if len(getattr(self, name)) not in (0, len(self.epsilon)):
                raise ValueError(f"{name} has {len(getattr(self, name))} types, but epsilon has {len(self.epsilon)}")
        if self.kind in ("python", *OF_BRICKS) and ":" not in (self.function or ""):
            raise ValueError(f"interaction.kind = {self.kind!r} needs interaction.function = 'file.py:name'")
        if self.kind == "ase" and not self.elements:
            raise ValueError("interaction.kind = 'ase' needs interaction.elements, a chemical symbol for each type")
        if self.kind == "table" and not self.file:
            raise ValueError("interaction.kind = 'table' needs interaction.file, a LAMMPS table file")
        if self.kind == "eam" and not self.file:
            raise ValueError("interaction.kind = 'eam' needs interaction.file, a funcfl, setfl or Finnis-Sinclair file")
        if self.kind == "stillinger_weber" and (not self.file or len(set(self.elements)) != 1):
            raise ValueError("interaction.kind = 'stillinger_weber' needs interaction.file, and elements of one name")
        if self.kind == "tersoff" and not (self.file and self.elements):
            raise ValueError("interaction.kind = 'tersoff' needs interaction.file, and elements, one for each type")
        if self.kind == "snap" and not (self.file and self.parameters_file and self.elements):
            raise ValueError("interaction.kind = 'snap' needs interaction.file, parameters_file and elements")
        if self.zbl and (self.kind != "snap" or len(self.zbl) != 2 or not 0 < self.zbl[0] < self.zbl[1]):
            raise ValueError("interaction.zbl takes two rising distances above 0, with kind = 'snap' only")
        if len(self.nuclei) != (len(self.elements) if self.zbl else 0):
            raise ValueError("interaction.nuclei takes an atomic number for each element, with zbl only")
        special = self.switch or self.tail or self.shift or self.force or self.pairs
        if self.kind in (*OF_FILES, *OF_BRICKS) and special:
            raise ValueError(f"interaction.switch, tail, shift, force and pairs do not go with {self.kind}: omit them")
        if self.kind == "table" and (self.switch or self.tail or self.force):
            raise ValueError("interaction.switch, tail and force go with functions, not with a table: omit them")
        if self.switch and (self.shift or self.tail or self.force or self.switch >= self._cutoffs[0]):
            raise ValueError("interaction.switch must be below every cutoff, and excludes shift, tail and force")
        for pair in self.pairs:
            if min(pair.types) < 1:
                raise ValueError(f"pairs name types {list(pair.types)}: they count from 1")
        return self

    @property
    def _cutoffs(self) -> list[float]:
        """All cutoffs, in growing order."""
        return sorted([self.cutoff, *(pair.cutoff for pair in self.pairs if pair.cutoff is not None)])


class Granular(Section):
    """Spheres that touch, for interaction.kind = "granular": gran/hooke and gran/hertz/history of LAMMPS."""

    law: Literal["hooke", "hertz"] = Field("hooke", description="forces grow with the overlap, or as Hertz has it")
    memory: bool = Field(True, description="friction has a spring, which remembers how far surfaces have slid")
    stiffness: tuple[float, float] = Field(
        (2e5, 4e5 / 7), description="across the surface and along it: force per length, or pressure of hertz"
    )
    damping: tuple[float, float] = Field(
        (50.0, 25.0), description="across and along: per time, or per time and length of hertz"
    )
    friction: float = Field(0.5, ge=0, description="most force along the surface, over that across it")
    diameters: tuple[float, ...] = Field((1.0,), min_length=1, description="diameter of each type")
    densities: tuple[float, ...] = Field((1.0,), min_length=1, description="mass per volume of each type")
    still: tuple[int, ...] = Field((), description="types that do not move, as the ground: others touch them")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.diameters) != len(self.densities) or min(*self.diameters, *self.densities) <= 0:
            raise ValueError("granular.diameters and densities are numbers above 0, one of each for every type")
        if min(*self.stiffness, *self.damping) < 0 or self.stiffness[0] <= 0:
            raise ValueError("granular.stiffness and damping are at least 0, and the first stiffness above it")
        if self.memory and not self.stiffness[1] > 0:
            raise ValueError("granular.stiffness[1] must be above 0 with memory: set memory = false for a damper alone")
        if self.law == "hertz" and not self.memory:
            raise ValueError("granular.law = 'hertz' goes with memory = true")
        if not all(1 <= kind <= len(self.diameters) for kind in self.still):
            raise ValueError(f"granular.still names types {list(self.still)}: there are 1 to {len(self.diameters)}")
        return self


class Neighbors(Section):
    """Neighbor lists."""

    skin: float = Field(0.3, gt=0, description="reach of the lists beyond the cutoff")
    every: int = Field(1, ge=1, description="steps between checks whether lists must be rebuilt")
    delay: int = Field(0, ge=0, description="steps between a rebuild and the next check")
    check: bool = Field(True, description="rebuild only after a move of over half the skin; false: at every check")


class Time(Section):
    """Duration and time step."""

    steps: int = Field(1000, ge=0, description="time steps")
    dt: float = Field(0.005, gt=0, description="time step, in the units of the system")
    thermo: int = Field(100, ge=1, description="steps between lines of the thermo table")
    limit: OptionalSpan = Field("", description=LIMIT)


class Output(Section):
    """Output files."""

    every: int = Field(0, ge=0, description="steps between frames of the trajectory; 0: only the last")
    format: Literal["h5md", "dump"] = Field("h5md", description="trajectory as an H5MD file, or as a LAMMPS dump")
    variables: int = Field(0, ge=0, description="steps between rows of output/variables.csv; 0: time.thermo")


class Ranks(Section):
    """Decomposition of the box over the ranks."""

    x: int = Field(0, ge=0, description="ranks along x; 0: automatic")
    y: int = Field(0, ge=0, description="ranks along y; 0: automatic")
    z: int = Field(0, ge=0, description="ranks along z; 0: automatic")
    balance: int = Field(0, ge=0, description="steps between load balancings by measured force time; 0: none")


class Config(Section):
    """All settings of a run."""

    app: Literal["md"] = "md"
    precision: Literal["double", "mixed"] = Field(
        "double", description="mixed: pair forces in single precision, sums and motion in double"
    )
    repro: bool = Field(False, description="add forces without rounding: the same bits on any number of ranks")
    system: System = Field(default_factory=System, description="the particles")
    interaction: Interaction = Field(default_factory=Interaction, description="forces between pairs")
    granular: Granular = Field(default_factory=Granular, description="spheres that touch")
    bonds: Bonds = Field(default_factory=Bonds, description="bonds between particles")
    angles: Angles = Field(default_factory=Angles, description="angles between bonds")
    dihedrals: Dihedrals = Field(default_factory=Dihedrals, description="turns around bonds")
    impropers: Impropers = Field(default_factory=Impropers, description="what keeps four particles in a plane")
    constraints: Constraints = Field(default_factory=Constraints, description="distances that stay")
    coulomb: Coulomb = Field(default_factory=Coulomb, description="forces between charges")
    neighbors: Neighbors = Field(default_factory=Neighbors, description="neighbor lists")
    dynamics: Dynamics = Field(default_factory=Dynamics, description="how the particles move")
    barostat: Barostat = Field(default_factory=Barostat, description="the pressure that is held")
    deform: Deform = Field(default_factory=Deform, description="a box that changes by a program")
    stages: tuple[Stage, ...] = Field((), description="what follows the steps above, one stage after the other")
    variables: tuple[Variable, ...] = Field((), description="collective variables, numbers of some particles")
    restraints: tuple[Restraint, ...] = Field((), description="springs on variables, still or moving")
    metadynamics: Metadynamics = Field(default_factory=Metadynamics, description="hills where variables have been")
    coupling: Coupling = Field(default_factory=Coupling, description="pairs or restraints switched on step by step")
    replicas: Replicas = Field(default_factory=Replicas, description="copies that swap their temperatures")
    time: Time = Field(default_factory=Time, description="duration and time step")
    output: Output = Field(default_factory=Output, description="output files")
    analysis: Analysis = Field(default_factory=Analysis, description="observables measured during the run")
    ranks: Ranks = Field(default_factory=Ranks, description="decomposition of the box over the ranks")
    report: Report = Field(default_factory=Report, description="contents of the report")

    @property
    def staged(self) -> list[Any]:
        """The settings of each stage, as those of a run of its own; the last one has the analysis."""
        found = [self.model_copy(update={"stages": ()})]
        for stage in self.stages:
            found.append(stage.after(found[-1]))
        return [*(each.model_copy(update={"analysis": Analysis()}) for each in found[:-1]), found[-1]]

    @property
    def settled(self) -> int:
        """The first step that counts in means and observables: after the equilibration, or later (analysis.after)."""
        return max(self.analysis.after, self.dynamics.equilibrate)

    @property
    def averaged_from(self) -> int:
        """The first step of the means: `settled`, else after a fifth of the steps."""
        return self.settled or self.time.steps // 5

    @property
    def resizes(self) -> bool:
        """Whether the box changes during the run."""
        return self.barostat.kind != "none" or bool(self.deform.changes)

    @property
    def tilts(self) -> bool:
        """Whether the box may lean, also where its file or its lattice does not."""
        changes = [*self.deform.changes, *self.deform.start]
        leans = self.barostat.kind != "none" and bool(self.barostat.tilts)
        return leans or any(self.system.tilt) or any(len(each.of) == 2 for each in changes)

    @property
    def mover(self) -> str:
        """What moves particles and box: one can go on from the state of another of the same name."""
        given, held = self.dynamics, self.barostat
        chain = f" of {given.chain}" if given.kind == "nose_hoover" else ""
        edges = f" of {held.chain} along {', '.join((*held.dims, *held.tilts))}" if held.kind == "mtk" else ""
        return f"{given.kind}{chain}" + (f" with {held.kind}{edges}" if held.kind != "none" else "")

    @property
    def target(self) -> float | None:
        """The temperature that the run is asked to have after `settled`; None where it is whatever follows."""
        given = self.dynamics
        held = given.kind in ("langevin", "bussi", "nose_hoover") or given.equilibrate
        return given.temperature if held and given.ramp_to is None else None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.stages:
            self._require_stages()
            return self
        checks = getattr(self, "checks", None)  # a section that every app gets
        if checks is not None and checks.replay and not self.repro:
            raise ValueError("checks.replay compares bits: forces are reproducible only with repro = true (--repro)")
        held_at = self.dynamics.kind in ("langevin", "bussi", "nose_hoover")
        if self.dynamics.ramp_to is not None and (not held_at or self.replicas.temperatures):
            raise ValueError("dynamics.ramp_to needs a thermostat, and no replicas: omit it")
        if self.barostat.ramp_to is not None and self.barostat.kind in ("none", "relax"):
            raise ValueError("barostat.ramp_to needs barostat.kind = 'mtk' or 'cell_rescaling': omit it")
        if self.dynamics.kind == "fire" and self.dynamics.equilibrate:
            raise ValueError("dynamics.equilibrate precedes a motion in time, and fire is a minimization: omit it")
        if self.analysis.elastic and (
            self.dynamics.kind != "fire" or set(self.system.periodic) != {"x", "y", "z"} or self.coulomb.kind == "ewald"
        ):
            raise ValueError(
                "analysis.elastic goes with dynamics.kind = 'fire' in a box that is periodic in x, y and z, without"
                " coulomb.kind = 'ewald'"
            )
        held, moved = self.barostat, self.dynamics.kind
        fixed = self.constraints
        if fixed.some or fixed.angles:
            if moved == "langevin":
                raise ValueError("constraints go with nve, bussi, nose_hoover and fire, not with langevin")
            if self.bonds.kind != "harmonic" or (fixed.angles and self.angles.kind not in ("harmonic", "charmm")):
                raise ValueError("constraints need harmonic bonds and harmonic or charmm angles, and keep r0, theta0")
        if (fixed.velocities or fixed.bodies) and self.resizes:
            name = "bodies" if fixed.bodies else "velocities"
            raise ValueError(f"constraints.{name} go with a box of constant size: omit them, or what changes it")
        if fixed.bodies and (moved in ("langevin", "fire") or self.dynamics.inner > 1):
            raise ValueError("constraints.bodies go with nve, bussi and nose_hoover, and without dynamics.inner")
        if self.dynamics.inner > 1 and (
            moved not in ("nve", "bussi", "nose_hoover") or self.resizes or fixed.some or self.bonds.kind == "none"
        ):
            raise ValueError(
                "dynamics.inner above 1 needs bonds, and goes with nve, bussi and nose_hoover, at constant volume and"
                " without constraints"
            )
        partners = {"mtk": ("nose_hoover", "nve"), "cell_rescaling": ("bussi",), "relax": ("fire",)}
        if held.kind != "none":
            if moved not in partners[held.kind]:
                known = " or ".join(partners[held.kind])
                raise ValueError(f"barostat.kind = {held.kind!r} goes with dynamics.kind = {known}, not {moved}")
            if not set(held.dims) <= set(self.system.periodic):
                raise ValueError(
                    f"barostat.dims {list(held.dims)} must be in system.periodic, {list(self.system.periodic)}"
                )
            if not {tilt[1] for tilt in held.tilts} <= set(self.system.periodic):
                raise ValueError(f"barostat.tilts {list(held.tilts)} need edges that are periodic (system.periodic)")
            if held.tilts and (fixed.some or fixed.angles):
                raise ValueError("barostat.tilts and constraints do not go together: omit one of them")
            if self.analysis.k_max:
                raise ValueError("analysis.k_max needs a box of constant size: omit it with a barostat")
            if self.dynamics.walls:
                raise ValueError("dynamics.walls do not move with a box that a barostat changes: omit them")
        if self.deform.changes:
            if held.kind != "none" or moved == "fire":
                other = f"barostat.kind = {held.kind!r}" if held.kind != "none" else "dynamics.kind = 'fire'"
                raise ValueError(f"deform.changes change the box by a program: omit {other}")
            if self.analysis.k_max:
                raise ValueError("analysis.k_max needs a box of constant size: omit it with deform.changes")
            if self.time.steps <= self.dynamics.equilibrate:
                raise ValueError("deform.changes begin after dynamics.equilibrate steps, but the run ends before")
        if self.dynamics.walls and (self.deform.changes or self.deform.start):
            raise ValueError("dynamics.walls do not move with a box that changes: omit them")
        for wall in self.dynamics.walls:
            if wall.dim in self.system.periodic:
                raise ValueError(f"dynamics.walls need open dims, but {wall.dim} is in system.periodic")
        types, given = len(self.system.masses or self.system.fractions), self.interaction
        if self.system.kind == "water":
            sound = self.bonds.kind == "harmonic" and self.angles.kind in ("harmonic", "charmm")
            if not sound or len(self.bonds.parameters) != 1 or len(self.angles.parameters) != 1:
                raise ValueError(
                    "system.kind = 'water' needs harmonic bonds and angles, and parameters of one type each"
                )
            if len(self.bonds.parameters[0]) < 2 or len(self.angles.parameters[0]) < 2:
                raise ValueError("system.kind = 'water' needs r0 and theta0, the second number of bonds and angles")
            if bool(fixed.bonds) != bool(fixed.angles):
                raise ValueError("water is rigid (constraints.bonds = [1] and angles = [1]) or has no constraints")
        if not self.system.file and given.kind == "lennard_jones" and types != len(given.epsilon):
            raise ValueError(f"interaction has {len(given.epsilon)} types of particles and system.masses {types}")
        if not self.system.file and any(max(pair.types) > types for pair in given.pairs):
            raise ValueError(f"interaction.pairs name unknown types: the types are 1 to {types}")
        if self.coulomb.kind != "none" and given.kind in (*OF_FILES, *OF_BRICKS, "table"):
            raise ValueError(f"coulomb.kind = {self.coulomb.kind!r} goes with pair potentials, not with {given.kind}")
        if self.coulomb.kind in ("ewald", "pppm") and set(self.system.periodic) != {"x", "y", "z"}:
            raise ValueError(f"coulomb.kind = {self.coulomb.kind!r} needs a box that is periodic in x, y and z")
        if self.coulomb.kind == "pppm" and self.ranks.balance:
            raise ValueError("coulomb.kind = 'pppm' needs equal domains: omit ranks.balance, or take ewald")
        if self.interaction.shift and self.interaction.tail:
            raise ValueError("interaction.tail corrects a truncated potential, not one that is shifted")
        if given.kind == "granular":
            self._require_spheres()
        self._require_slow()
        if self.repro and self.precision == "mixed":
            raise ValueError("repro adds forces in double precision: set precision to double")
        return self

    def _require_spheres(self) -> None:
        """Raise `ValueError` for what does not go with spheres that touch."""
        given = self.interaction
        wrong = {
            "dynamics.kind other than nve": self.dynamics.kind != "nve",
            "dynamics.equilibrate": self.dynamics.equilibrate > 0,
            "barostat": self.barostat.kind != "none",
            "deform": bool(self.deform.changes or self.deform.start),
            "bonds and other terms": any(getattr(self, name).kind != "none" for name in BOUND),
            "coulomb": self.coulomb.kind != "none",
            "restraints and metadynamics": bool(self.restraints or self.metadynamics.variables),
            "units other than lj": self.system.units != "lj",
            "system.masses (granular.densities give them)": bool(self.system.masses),
            "precision = 'mixed'": self.precision == "mixed",
            "interaction.shift, tail, switch, pairs": bool(given.shift or given.tail or given.switch or given.pairs),
        }
        if named := [name for name, there in wrong.items() if there]:
            raise ValueError(f"interaction.kind = 'granular' does not go with {', '.join(named)}")
        if not self.system.file and len(self.system.fractions) != len(self.granular.diameters):
            raise ValueError("granular.diameters and densities need one number for each of system.fractions")

    def _require_stages(self) -> None:
        """Raise `ValueError` for stages that do not go with each other, or with the rest."""
        if self.variables or self.coupling.states or self.replicas.temperatures:
            raise ValueError("stages do not go with variables, coupling and replicas: omit one of them")
        if self.interaction.kind == "granular" and any(stage.velocities != "keep" for stage in self.stages):
            raise ValueError("spheres keep their velocities from stage to stage: omit stages.velocities")
        staged, movers = self.staged, set[str]()
        for number, each in enumerate(staged, 1):
            if number > 1 and self.stages[number - 2].goes_on and each.mover not in movers:
                known = ", ".join(sorted(movers))
                raise ValueError(f"stage {number} goes on from {each.mover}, but before it are {known}")
            movers.add(each.mover)
            try:
                each._fits()
            except ValueError as error:
                raise ValueError(f"in stage {number} of {len(staged)}: {error}") from None
        if len({each.constraints.bodies for each in staged}) > 1:
            raise ValueError("constraints.bodies are the same in all stages, or in none")

    def _require_slow(self) -> None:
        """Raise `ValueError` for variables, biases and a coupling that do not go together, or with the rest."""
        if self.replicas.temperatures:
            if self.dynamics.kind not in ("langevin", "bussi", "nose_hoover") or self.resizes:
                raise ValueError("replicas need dynamics.kind langevin, bussi or nose_hoover, at constant volume")
            if self.variables or self.coupling.states or self.analysis.measures:
                raise ValueError("replicas do not work with variables, coupling and [analysis]: omit these")
            if self.dynamics.temperature != self.replicas.temperatures[0]:
                raise ValueError(
                    f"dynamics.temperature is {self.dynamics.temperature:g}, and that of the first replica"
                    f" {self.replicas.temperatures[0]:g}: set both alike"
                )
        names = [each.name for each in self.variables]
        asked = [*(each.variable for each in self.restraints), *self.metadynamics.variables]
        if len(set(names)) != len(names):
            raise ValueError(f"variables need different names, not {names}")
        if unknown := sorted({*asked} - {*names}):
            raise ValueError(f"there are no variables {unknown}: the variables are {names}")
        if self.resizes and any(each.kind == "position" for each in self.variables):
            raise ValueError("variables of kind position need a box of constant size: omit barostat and deform")
        if self.variables and self.dynamics.kind == "fire":
            raise ValueError("collective variables need a motion in time, but fire is a minimization: omit them")
        if (self.metadynamics.variables or self.coupling.states) and not self.target:
            raise ValueError("metadynamics and coupling need a thermostat: set dynamics.kind = 'langevin', for example")
        coupled, pair = any(each.coupled for each in self.restraints), self.interaction
        if coupled and not self.coupling.states:
            raise ValueError("a restraint has coupled = true, but coupling.states is empty: give states")
        if not self.coupling.states:
            return
        if not (coupled or self.coupling.types):
            raise ValueError("coupling.states change nothing: give coupling.types, or a restraint that is coupled")
        if len(self.coupling.states) > self.time.steps:
            raise ValueError(f"coupling has {len(self.coupling.states)} states, but time.steps is {self.time.steps}")
        plain = pair.kind == "lennard_jones" and not pair.switch and not pair.tail and self.coulomb.kind == "none"
        if self.coupling.types and not plain:
            raise ValueError("coupling.types needs Lennard-Jones pairs without switch, tail and charges")
        if self.coupling.types and self.bonds.kind != "none":
            raise ValueError("coupling.types does not work with bonds: omit one of them")
        if self.coupling.types and self.precision == "mixed":
            raise ValueError("a coupling measures energies in double precision: set precision to double")


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
    "npt": (
        "a Lennard-Jones liquid at a temperature and a pressure finds its density",
        {
            "system": {"cells": (8, 8, 8), "density": 0.8, "temperature": 2.0},
            "interaction": {"tail": True},
            "dynamics": {"kind": "nose_hoover", "temperature": 1.0, "damping": 1.0, "equilibrate": 500},
            "barostat": {"kind": "mtk", "pressure": 1.0, "damping": 5.0},
            "time": {"steps": 6000, "thermo": 50},
            "output": {"every": 500},
            "analysis": {"every": 100, "after": 2000},
        },
    ),
    "spce": (
        "SPC/E water at 298 K and 1 bar finds its density: rigid molecules, charges on a mesh",
        {
            "system": {
                "units": "real",
                "kind": "water",
                "cells": (4, 4, 4),
                "density": 0.0334,  # molecules per cubic angstrom: 0.999 g/cm3
                "masses": (15.9994, 1.008),
                "temperature": 298.0,
            },
            "interaction": {"epsilon": (0.15535, 0.0), "sigma": (3.166, 1.0), "cutoff": 9.0, "tail": True},
            "bonds": {
                "kind": "harmonic",
                "parameters": ((450.0, 1.0),),
                "pair_shares": (0.0, 0.0, 0.0),
                "charge_shares": (0.0, 0.0, 0.0),
            },
            "angles": {"kind": "harmonic", "parameters": ((55.0, 109.47),)},
            "constraints": {"bonds": (1,), "angles": (1,)},
            "coulomb": {"kind": "pppm", "charges": (-0.8476, 0.4238)},
            "neighbors": {"skin": 1.0},
            "dynamics": {"kind": "nose_hoover", "temperature": 298.0, "damping": 200.0, "equilibrate": 1500},
            "barostat": {"kind": "mtk", "pressure": 0.986923, "damping": 1000.0},  # atm: 1 bar
            "time": {"steps": 6000, "dt": 2.0, "thermo": 50},
            "output": {"every": 1000},
            "analysis": {"every": 100, "after": 2000, "reach": 9.0},
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
