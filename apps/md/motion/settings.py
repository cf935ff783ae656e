"""Settings of how particles and box move: dynamics, barostat, deformation, and stages of a run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from hpckit.apps.md.molecules.settings import Constraints
from hpckit.apps.md.motion.groups import (
    ALL,
    Axis,
    BathOf,
    Block,
    CorrectionOf,
    CountedOf,
    DriveOf,
    MirrorAt,
    PushOn,
    VelocityOf,
)
from hpckit.apps.md.settings.interaction import Interaction
from hpckit.apps.md.settings.table import Table
from hpckit.errors import InputError
from hpckit.io.settings import Section
from hpckit.md.motion.deformation import Change, named

Draw = Literal["normal", "lammps", "lammps_geom", "lammps_gaussian", "lammps_geom_gaussian"]
Removed = tuple[Literal["momentum", "rotation"], ...]


class WallAt(Section):
    """A wall that pushes particles away: at an end of the box, or elsewhere."""

    law: Literal["lj93", "lj126", "harmonic"] = Field(
        "lj93",
        description="a half space of Lennard-Jones particles, one such particle, or epsilon (cutoff - d)^2, as"
        " wall/lj93, wall/lj126 and wall/harmonic of LAMMPS",
    )
    dim: Axis = Field(description="dim normal to the wall")
    end: Literal["low", "high", "both"] = Field("both", description="which end of the box")
    epsilon: float = Field(1.0, gt=0, description="strength")
    sigma: float = Field(1.0, gt=0, description="diameter")
    cutoff: float = Field(2.5, gt=0, description="distance beyond which there is no force")
    place: float | None = Field(None, description="where it is; none: at that end of the box")
    group: str = Field(ALL, description="particles that feel it")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.end == "both" and self.place is not None:
            raise ValueError("a wall with a place is at end = 'low' (it keeps particles above itself) or 'high'")
        return self


class Dynamics(Section):
    """How the particles move."""

    kind: Literal["nve", "langevin", "bussi", "nose_hoover", "fire"] = Field(
        "nve",
        description="nve: constant energy; langevin, bussi, nose_hoover: at a temperature; fire: down to a minimum",
    )
    temperature: float = Field(1.0, ge=0, description="temperature of the thermostat")
    ramp_to: float | None = Field(
        None, ge=0, description="temperature at the end of the run, or of the stage, approached evenly; none: it stays"
    )
    damping: float = Field(1.0, gt=0, description="time scale of the thermostat: 100 time steps or more")
    seed: int = Field(4711, ge=0, description="random seed of langevin and bussi")
    equilibrate: int = Field(
        0,
        ge=0,
        description="initial steps with the thermostat bussi, before `kind` takes over; they are in no mean, analysis"
        " or change of the energy",
    )
    chain: int = Field(3, ge=1, le=20, description="links of the chain of nose_hoover")
    sllod: bool = Field(
        False,
        description="nose_hoover holds the temperature beyond the flow of a box that changes with deform.remap = 'v',"
        " by the SLLOD equations of motion",
    )
    drag: float = Field(
        0.0, ge=0, description="of nose_hoover: damps the chain's oscillation, as drag of LAMMPS's fix nvt; 0: none"
    )
    inner: int = Field(
        1,
        ge=1,
        description="steps of bonds, angles, dihedrals and impropers in a step of all other forces (r-RESPA)",
    )
    largest_force: float = Field(
        1e-6,
        gt=0,
        description="fire ends when no force component exceeds this, nor, of a box that relaxes, the excess of the"
        " pressure times (V / N)^(2/3)",
    )
    longest: float | None = Field(
        None,
        gt=0,
        description="longest move of a particle in a step of fire (none: 0.1), nve or langevin (none: as far as it"
        " goes), as by fix nve/limit of LAMMPS",
    )
    field: tuple[float, float, float] = Field((0.0, 0.0, 0.0), description="uniform acceleration of all particles")
    walls: tuple[WallAt, ...] = Field((), description="walls across open dims")
    mirrors: tuple[MirrorAt, ...] = Field((), description="planes across open dims that reflect particles")
    moves: tuple[str, ...] = Field((), description="groups whose particles move; none: all move")
    group: str = Field(ALL, description="group that the thermostat holds at its temperature")
    within: Block | None = Field(
        None,
        description="of langevin: low and high end along x, y, z of where those of the group are that it holds, at the"
        " time; none: all of it",
    )
    balanced: bool = Field(False, description="of langevin: the noise adds up to nothing, so that it pushes no center")
    name: str = Field("", description="of langevin: f_NAME of table.exchanged is minus the energy that it gave so far")
    also: tuple[BathOf, ...] = Field((), description="more thermostats, of other groups")
    drives: tuple[DriveOf, ...] = Field((), description="velocities that groups have, whatever their forces")
    pushes: tuple[PushOn, ...] = Field((), description="forces from outside on groups, in their order")
    corrections: tuple[CorrectionOf, ...] = Field((), description="what is done to velocities after each step")
    counted: CountedOf = Field(
        default_factory=CountedOf, description="what temperature, kinetic energy and pressure of the table count"
    )

    @property
    def longest_of_fire(self) -> float:
        """The longest move in a step of a minimization."""
        return self.longest or 0.1


class Barostat(Section):
    """The pressure that is held: the box changes its edges."""

    kind: Literal["none", "mtk", "cell_rescaling", "berendsen", "relax"] = Field(
        "none",
        description="mtk: with nose_hoover or langevin constant temperature and pressure, with nve constant enthalpy;"
        " cell_rescaling: with bussi; berendsen: weak coupling; relax: with fire, the box goes down to the pressure"
        " along with the particles",
    )
    pressure: float = Field(0.0, description="the pressure to hold")
    ramp_to: float | None = Field(
        None, description="the pressure at the end of the run, or of the stage, approached evenly; none: it stays"
    )
    damping: float = Field(
        10.0, gt=0, description="time scale of the box: 1000 time steps or more; of mtk its period, else its relaxation"
    )
    dims: tuple[Axis, ...] = Field(("x", "y", "z"), min_length=1, description="dims whose edges change")
    coupled: Literal["all", "none", "xy", "xz", "yz"] = Field(
        "all", description="dims that change by one factor, under their mean pressure"
    )
    tilts: tuple[Literal["xy", "xz", "yz"], ...] = Field(
        (),
        description="tilts that mtk and relax change too, without shear stress: for crystals; liquids resist no shear",
    )
    chain: int = Field(3, ge=0, le=20, description="links of the chain that holds mtk's box; 0: none")
    drag: float = Field(0.0, ge=0, description="of mtk: damps the box's oscillation, as drag of fix npt; 0: none")
    correction: bool = Field(True, description="the terms of mtk that make the distribution of volumes canonical")
    modulus: float = Field(10.0, gt=0, description="bulk modulus of berendsen; wrong by a factor, so is its time scale")
    compressibility: float = Field(
        0.0, ge=0, description="inverse pressure, needed by cell_rescaling; wrong by a factor, so is its time scale"
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(set(self.dims)) != len(self.dims) or not set(self.together) <= set(self.dims):
            raise ValueError(f"barostat.dims are {list(self.dims)}, and barostat.coupled is {self.coupled!r}")
        if self.tilts and (self.kind == "cell_rescaling" or len(set(self.tilts)) != len(self.tilts)):
            raise ValueError(
                f"barostat.tilts is {list(self.tilts)}: name each once, and set barostat.kind = 'mtk' or 'relax'"
            )
        if self.kind == "cell_rescaling" and (len(self.together) != 3 or not self.compressibility):
            raise ValueError("barostat.kind = 'cell_rescaling' takes all dims coupled, and barostat.compressibility")
        return self

    @property
    def together(self) -> str:
        """The dims that are coupled."""
        named = {"all": "".join(self.dims) if len(self.dims) > 1 else "", "none": ""}
        return named.get(self.coupled, self.coupled)


def _valid(make: Callable[[], Any]) -> None:
    """Make something, with its `InputError` as the mistake of a setting."""
    try:
        make()
    except InputError as error:
        raise ValueError(error.message) from None


class BoxChange(Section):
    """How an edge or a tilt of the box changes."""

    of: Literal["x", "y", "z", "xy", "xz", "yz"] = Field(description="the edge or the tilt")
    style: Literal["final", "delta", "scale", "vel", "erate", "trate", "wiggle", "volume"] = Field(
        description="final, delta, scale: what it is, what is added, or its factor at the end of the run; vel: its"
        " speed; erate, trate: its rate, of the first length or of the one at the time; wiggle: amplitude and period;"
        " volume: an edge that keeps the volume"
    )
    values: tuple[float, ...] = Field((), description="the numbers of the style; of an edge's final and delta two ends")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _valid(lambda: self.change)
        return self

    @property
    def change(self) -> Change:
        """As the dynamics has it."""
        return Change(self.of, self.style, self.values)


class Deform(Section):
    """A box that changes by a program."""

    changes: tuple[BoxChange, ...] = Field((), description="edges and tilts that change over the run")
    every: int = Field(1, ge=1, description="steps between two changes")
    remap: Literal["x", "v"] = Field(
        "x",
        description="x: particles are taken along; v: they stay, and one that crosses an end of the box gets the"
        " velocity there, as of a fluid that is sheared",
    )
    start: tuple[BoxChange, ...] = Field(
        (), description="changes before the run, of styles final, delta, scale, volume"
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        wrong = sorted({each.style for each in self.start} - {"final", "delta", "scale", "volume"})
        if wrong:
            raise ValueError(f"deform.start has {', '.join(wrong)}; allowed are final, delta, scale and volume")
        for name in ("start", "changes"):
            if given := [each.change for each in getattr(self, name)]:
                _valid(partial(named, given))
        return self


class Stage(Section):
    """What follows: of the sections it does not name, the motion goes on as before."""

    steps: int = Field(ge=0, description="time steps, at most so many of fire")
    dt: float | None = Field(None, gt=0, description="time step from here on")
    thermo: int | None = Field(None, ge=1, description="steps between lines of the thermo table from here on")
    every: int | None = Field(None, ge=0, description="steps between frames of the trajectory from here on")
    velocities: Literal["keep", "draw", "scale", "center", "rest"] = Field(
        "keep",
        description="of the stage before, before its minimization; or drawn anew, or scaled, to `temperature`;"
        " center: without their mean, by mass; rest: none",
    )
    temperature: float = Field(0.0, ge=0, description="temperature of velocities that are drawn or scaled")
    seed: int = Field(87287, ge=0, description="random seed of drawn velocities")
    draw: Draw = Field("normal", description="drawn as by system.draw")
    remove: Removed = Field(("momentum",), description="from drawn velocities, as system.remove")
    all_freedom: bool = Field(False, description="of drawn or scaled velocities, as system.all_freedom")
    goes_on: bool = Field(
        False, description="thermostats and barostats that are named here go on from the last state of their kind"
    )
    changes: tuple[VelocityOf, ...] = Field(
        (), description="changes of velocities of groups after that, in their order"
    )
    dynamics: Dynamics | None = Field(None, description="how the particles move, anew")
    barostat: Barostat | None = Field(None, description="the pressure that is held, anew")
    deform: Deform | None = Field(None, description="a box that changes by a program, anew")
    constraints: Constraints | None = Field(None, description="distances that stay from here on")
    table: Table | None = Field(None, description="columns of the thermo table from here on")
    interaction: Interaction | None = Field(None, description="forces between pairs of particles, anew")

    @property
    def is_anew(self) -> bool:
        """Whether it names how particles and box move, so that thermostats and barostats start anew."""
        return (self.dynamics is not None or self.barostat is not None) and not self.goes_on

    def after(self, before: Any) -> Any:
        """The settings of a run that is in this stage, after those of the stage before."""
        found = {name: each for name in ANEW if (each := getattr(self, name)) is not None}
        ends = before.interaction.ramp_to
        still = {"parameters": ends, "ramp_to": ()} if ends else {}
        found["interaction"] = self.interaction or before.interaction.model_copy(update=still)
        found.setdefault("deform", before.deform.model_copy(update={"start": ()}))
        held, given = before.barostat, before.dynamics
        still = {} if given.ramp_to is None else {"temperature": given.ramp_to, "ramp_to": None}
        found.setdefault("dynamics", given.model_copy(update={**still, "equilibrate": 0}))
        if held.ramp_to is not None:
            found.setdefault("barostat", held.model_copy(update={"pressure": held.ramp_to, "ramp_to": None}))
        drawn = {name: getattr(self, name) for name in ("temperature", "seed", "draw", "remove", "all_freedom")}
        time = {"steps": self.steps, "dt": self.dt or before.time.dt, "thermo": self.thermo or before.time.thermo}
        every = before.output.every if self.every is None else self.every
        found["system"] = before.system.model_copy(update=drawn)
        found["time"] = before.time.model_copy(update=time)
        found["output"] = before.output.model_copy(update={"every": every})
        return before.model_copy(update=found)


ANEW = ("dynamics", "barostat", "deform", "constraints", "table")
