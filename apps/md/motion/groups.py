"""Settings of groups of particles, and of what acts on them alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import AllowInfNan, BeforeValidator, Field, model_validator

from hpckit.io.settings import Section

Axis = Literal["x", "y", "z"]
End = Annotated[float, AllowInfNan(True)]  # of a block, inf where it is open
ALL = "all"
AXES: tuple[Axis, ...] = ("x", "y", "z")


def _opened(block: Any) -> Any:
    """JSON has no inf: an open end is null in it."""
    if not isinstance(block, list | tuple):
        return block
    return tuple((-math.inf, math.inf)[k % 2] if end is None else end for k, end in enumerate(block))


# Low and high end along x, y and z.
Block = Annotated[tuple[End, End, End, End, End, End], BeforeValidator(_opened)]


class GroupOf(Section):
    """Some of the particles, as they start: those that are all of what is given."""

    name: str = Field(min_length=1, description="the name by which other settings call it")
    types: tuple[int, ...] = Field((), description="types, from 1")
    ids: tuple[str, ...] = Field((), description="numbers of particles, from 1: '7' or '10:20'")
    block: Block | None = Field(None, description="low and high end along x, y and z of where they start")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.name == ALL:
            raise ValueError("all is the group of all particles: give another name")
        for each in self.ids:
            first, _, last = each.partition(":")
            if not first.isdigit() or not (last or first).isdigit() or int(last or first) < int(first):
                raise ValueError(f"ids has {each!r}: give numbers as '7' or '10:20'")
        return self

    @property
    def is_given(self) -> bool:
        """Whether it says which particles; else the script that makes them does."""
        return bool(self.types or self.ids or self.block)


class RegionOf(Section):
    """A part of the box: a block, a sphere, a cylinder."""

    name: str = Field(min_length=1, description="the name by which formulas call it")
    block: Block = Field(
        (-math.inf, math.inf) * 3, validate_default=True, description="low and high end along x, y and z"
    )
    center: tuple[float, float, float] = Field((0.0, 0.0, 0.0), description="of a sphere or a cylinder")
    radius: float = Field(0.0, ge=0, description="of a sphere or a cylinder")
    across: tuple[Axis, ...] = Field(
        (), description="dims in which the center is no farther than the radius: three of a sphere, two of a cylinder"
    )
    outside: bool = Field(False, description="whether it is all but this")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if bool(self.radius) != bool(self.across):
            raise ValueError(f"the region {self.name}: radius, above 0, and across go together")
        return self


class CountedOf(Section):
    """What a temperature counts: velocities of a group, along some dims."""

    group: str = Field(ALL, description="the group")
    along: tuple[Axis, ...] = Field(AXES, min_length=1, description="dims of the velocities")
    thermal: bool = Field(False, description="less the flow of a box that changes with deform.remap = 'v'")


class PushOn(Section):
    """A force from outside on a group. It is in neither energy nor pressure."""

    kind: Literal["set", "add", "average", "tether", "leash", "friction", "charges", "sphere", "cylinder", "plane"] = (
        Field(
            description="set: in place of what others do to each particle; add: to that; average: the mean of that over"
            " the group, and `force`; tether: a spring from the center of mass of the group to `place`; leash: one from"
            " each particle to where it started; friction: against velocities, by `strengths`; charges: `force` times"
            " the charge; sphere, cylinder, plane: an indenter with stiffness times squared depth"
        )
    )
    group: str = Field(ALL, description="the group")
    force: tuple[float, float, float] = Field((0.0, 0.0, 0.0), description="force on each particle; not of a tether")
    along: tuple[Axis, ...] = Field(AXES, min_length=1, description="dims in which it acts")
    stiffness: float = Field(
        0.0, ge=0, description="of a tether or leash: force per length; of indenters: per squared length"
    )
    strengths: tuple[float, ...] = Field((), description="of friction: force per velocity, one number or one a type")
    place: tuple[float, float, float] = Field(
        (0.0, 0.0, 0.0), description="where a tether is held; the middle of an indenter, a place of a plane"
    )
    length: float = Field(0.0, ge=0, description="of a tether: its length at rest; radius of a sphere or cylinder")
    moving: tuple[float, float, float] = Field((0.0, 0.0, 0.0), description="velocity of an indenter")
    axis: Axis = Field("z", description="dim of a cylinder, or normal to a plane")
    inside: bool = Field(
        False, description="whether particles are kept within a sphere or cylinder, or below a plane; else out of it"
    )


class DriveOf(Section):
    """A velocity that a group has, whatever its forces."""

    group: str = Field(ALL, description="the group")
    velocity: tuple[float, float, float] = Field((0.0, 0.0, 0.0), description="its velocity")
    along: tuple[Axis, ...] = Field(AXES, min_length=1, description="dims in which it is driven")


class BathOf(Section):
    """One more thermostat, of a group of its own."""

    kind: Literal["langevin", "bussi", "nose_hoover"] = Field(description="as dynamics.kind")
    group: str = Field(description="the group that it holds at its temperature")
    temperature: float = Field(1.0, ge=0, description="its temperature")
    ramp_to: float | None = Field(
        None, ge=0, description="the temperature at the end, approached evenly; none: it stays"
    )
    damping: float = Field(1.0, gt=0, description="its time scale")
    seed: int = Field(4711, ge=0, description="random seed of langevin and bussi")
    chain: int = Field(3, ge=1, le=20, description="links of the chain of nose_hoover")
    drag: float = Field(0.0, ge=0, description="of nose_hoover, as dynamics.drag")
    within: Block | None = Field(None, description="of langevin, as dynamics.within")
    name: str = Field("", description="of langevin, as dynamics.name")
    balanced: bool = Field(False, description="of langevin, as dynamics.balanced")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.kind != "langevin" and (self.within is not None or self.name or self.balanced):
            raise ValueError(f"dynamics.also: within, name and balanced are of langevin, not of {self.kind}")
        return self


class MirrorAt(Section):
    """A plane that reflects particles."""

    dim: Axis = Field(description="dim normal to it")
    end: Literal["low", "high"] = Field(description="whether it keeps particles above itself, or below")
    place: float | None = Field(None, description="where it is; none: at that end of the box")
    group: str = Field(ALL, description="particles that it reflects")


class VelocityOf(Section):
    """What becomes of the velocities of a group before a stage."""

    kind: Literal["draw", "scale", "set", "ramp", "still", "unturned"] = Field(
        description="draw: at random, of a temperature; scale: to a temperature; set: to `velocity`; ramp: from"
        " `velocity` to `last`, evenly `between` two places; still: without their mean, by mass; unturned: without the"
        " rotation of the group"
    )
    group: str = Field(ALL, description="the group")
    temperature: float = Field(0.0, ge=0, description="temperature of draw and scale")
    seed: int = Field(87287, ge=0, description="random seed of draw")
    draw: Literal["lammps", "lammps_geom", "lammps_gaussian", "lammps_geom_gaussian"] = Field(
        "lammps", description="drawn as by system.draw"
    )
    remove: tuple[Literal["momentum", "rotation"], ...] = Field(("momentum",), description="from drawn velocities")
    velocity: tuple[float, float, float] = Field((0.0, 0.0, 0.0), description="velocity of set, the first one of ramp")
    last: tuple[float, float, float] = Field((0.0, 0.0, 0.0), description="the other velocity of ramp")
    along: tuple[Axis, ...] = Field(AXES, min_length=1, description="dims of set and ramp")
    across: Axis = Field("x", description="dim along which ramp grows")
    between: tuple[float, float] = Field((0.0, 1.0), description="where ramp begins and ends")
    add: bool = Field(False, description="whether this is added to the velocities before")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.kind == "ramp" and self.between[0] == self.between[1]:
            raise ValueError(f"between is {list(self.between)}: a ramp needs two places")
        return self


class CorrectionOf(Section):
    """What is done to the velocities of a group after a step."""

    kind: Literal["rescale", "berendsen", "momentum", "heat", "swap_energy", "swap_momentum"] = Field(
        description="rescale: scaled to a temperature, from which it is off by more than `window`; berendsen: scaled"
        " toward a temperature, in a time `damping`; momentum: without their mean along `linear`, and without the"
        " rotation of the group with `angular`; heat: given `power`, scaled about their mean; swap_energy,"
        " swap_momentum: pairs of particles of two slabs, the first of `bins` and the middle one, change energies or"
        " momenta (Mueller-Plathe)"
    )
    name: str = Field("", description="of swaps: f_NAME of table.exchanged is what was exchanged so far")
    within: Block | None = Field(None, description="of heat: whose, those in a block at the time; none: the group")
    power: float = Field(0.0, description="of heat: energy in a unit of time")
    shifts: bool = Field(False, description="of heat: change places, too, so that the energy does not drift (eHEX)")
    across: Axis = Field("z", description="of swaps: dim of the slabs")
    bins: int = Field(20, ge=2, description="of swaps: an even number of slabs")
    pairs: int = Field(1, ge=1, description="of swaps: pairs at a time")
    dim: Axis = Field("x", description="of swap_momentum: dim of the momentum")
    speed: float | None = Field(None, gt=0, description="of swap_momentum: those next to it; none: the fastest")
    group: str = Field(ALL, description="the group")
    every: int = Field(1, ge=1, description="steps between two corrections")
    before: int = Field(0, ge=0, description="steps before this stage that `every` counts, too")
    temperature: float = Field(1.0, ge=0, description="temperature that is wanted")
    ramp_to: float | None = Field(
        None, ge=0, description="temperature at the end of the run, or of the stage, approached evenly; none: it stays"
    )
    window: float = Field(0.0, ge=0, description="difference that is left alone by rescale")
    fraction: float = Field(1.0, ge=0, le=1, description="share of the difference that rescale takes away")
    damping: float = Field(1.0, gt=0, description="time scale of berendsen")
    counted: CountedOf | None = Field(None, description="what the temperature counts; none: that of the group")
    linear: tuple[Axis, ...] = Field((), description="dims in which momentum takes the mean velocity away")
    angular: bool = Field(False, description="whether momentum takes the rotation away")
    energy: bool = Field(False, description="whether momentum scales the velocities to the kinetic energy before")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        swaps = self.kind.startswith("swap")
        if swaps and (self.bins % 2 or not self.name):
            raise ValueError(f"corrections {self.kind} need a name, and an even number of bins, not {self.bins}")
        if self.within is not None and self.kind != "heat":
            raise ValueError(f"corrections {self.kind} are of a group: within is for heat")
        return self


def named_in(dynamics: Any) -> Iterator[tuple[str, str]]:
    """The groups that a dynamics names, each with its key."""
    yield from (("dynamics.moves", name) for name in dynamics.moves)
    yield "dynamics.group", dynamics.group
    yield "dynamics.counted.group", dynamics.counted.group
    for key in ("pushes", "corrections", "also", "drives", "walls", "mirrors"):
        yield from ((f"dynamics.{key}.group", each.group) for each in getattr(dynamics, key))
    yield from (("dynamics.corrections.counted.group", e.counted.group) for e in dynamics.corrections if e.counted)
