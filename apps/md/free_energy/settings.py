"""Settings of collective variables, their biases, and a coupling parameter."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hpckit.io.settings import Section

Group = Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)]
GROUPS = {"distance": 2, "angle": 3, "dihedral": 4, "coordination": 2, "position": 1}
MOST = 3  # variables of metadynamics


class Variable(Section):
    """A collective variable of some particles."""

    name: str = Field(min_length=1, pattern=r"^[A-Za-z0-9_]+$", description="its name, of letters, digits and _")
    kind: Literal["distance", "angle", "dihedral", "coordination", "position"] = Field(
        description="distance of two groups, angle at the second of three, dihedral of four (degrees), coordination:"
        " pairs of two groups that are near, position of a group along an axis"
    )
    groups: tuple[Group, ...] = Field(description="ids of particles; several of a group: its center of mass")
    axis: Literal["x", "y", "z"] = Field("x", description="of position")
    origin: float = Field(0.0, description="from which position counts")
    radius: float = Field(1.0, gt=0, description="of coordination: within it a pair counts by more than n / m")
    powers: tuple[int, int] = Field((6, 12), description="n, m of coordination: (1 - x^n) / (1 - x^m), x = r / radius")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.groups) != GROUPS[self.kind]:
            raise ValueError(
                f"variable {self.name!r}: {self.kind} takes {GROUPS[self.kind]} groups, not {len(self.groups)}"
            )
        if any(len(set(group)) != len(group) for group in self.groups):
            raise ValueError(f"variable {self.name!r}: a group names the same particle twice")
        if not 1 <= self.powers[0] < self.powers[1]:
            raise ValueError(f"variable {self.name!r}: powers are {list(self.powers)}, and must grow from 1 on")
        return self


class Restraint(Section):
    """A spring on a variable: strength / 2 (s - center)^2."""

    variable: str = Field(description="name of the variable")
    strength: float = Field(gt=0, description="energy over the square of the variable's unit")
    center: float = Field(description="where it has no force")
    to: float | None = Field(None, description="where the center moves to; omitted: it stays")
    over: int = Field(0, ge=0, description="steps that this takes")
    after: int = Field(0, ge=0, description="steps before it begins")
    side: Literal["both", "below", "above"] = Field(
        "both", description="below, above: a wall, which acts on that side of the center alone"
    )
    coupled: bool = Field(False, description="times the parameter of [coupling]")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.to is None) != (self.over == 0):
            raise ValueError("a restraint that moves needs both `to` and `over`")
        return self


class Metadynamics(Section):
    """Hills where the variables have been, which fill the wells of their free energy."""

    variables: tuple[str, ...] = Field((), max_length=MOST, description="names of one to three variables; empty: none")
    widths: tuple[float, ...] = Field((), description="standard deviation of a hill along each")
    height: float = Field(0.0, ge=0, description="of a hill, an energy")
    every: int = Field(500, ge=1, description="steps between hills, which begin after dynamics.equilibrate")
    factor: float = Field(
        10.0, ge=0, description="bias factor (T + dT) / T of well-tempered metadynamics; 0: plain, hills of one height"
    )
    lower: tuple[float, ...] = Field((), description="ends of the grid; of periodic variables their period is taken")
    upper: tuple[float, ...] = Field((), description="the other ends")
    points: tuple[int, ...] = Field((), description="points of the grid along each; empty: 5 in a width")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        count = len(self.variables)
        if count and (len(self.widths) != count or not self.height or min(self.widths) <= 0):
            raise ValueError("metadynamics needs a width above 0 for each variable, and a height")
        if any(len(each) not in (0, count) for each in (self.lower, self.upper, self.points)):
            raise ValueError("metadynamics needs lower, upper and points for each variable")
        if self.factor and self.factor <= 1:
            raise ValueError(f"metadynamics.factor is {self.factor:g}: above 1, or 0 for plain metadynamics")
        return self


class Coupling(Section):
    """A parameter that switches pairs or restraints on, and the free energy of that."""

    states: tuple[Annotated[float, Field(ge=0, le=1)], ...] = Field(
        (), description="its values, an equal share of the steps each, one after the other; empty: no coupling"
    )
    types: tuple[int, ...] = Field(
        (), description="types, from 1, whose Lennard-Jones pairs with other types fade by a soft core; 1: all there"
    )
    softness: float = Field(0.5, ge=0, description="a of the soft core, y = a (1 - l)^2 + (r / sigma)^6")
    power: Literal[1, 2] = Field(1, description="n of the soft core, 4 epsilon l^n (1 / y^2 - 1 / y)")
    every: int = Field(50, ge=1, description="steps between rows of output/coupling.csv")
    settle: float = Field(0.2, ge=0, lt=1, description="share of the steps of a state before its first row")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.states) == 1:
            raise ValueError("coupling.states needs at least two values")
        if self.types and not self.states:
            raise ValueError("coupling.types needs coupling.states: give these")
        return self


class Replicas(Section):
    """Copies of the system that swap their temperatures."""

    temperatures: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        (), description="of the replicas, which share the ranks; output is of the first; empty: no replicas"
    )
    every: int = Field(100, ge=1, description="steps between two attempts, which begin after dynamics.equilibrate")
    seed: int = Field(1234, ge=0, description="random seed of the decisions")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.temperatures) == 1 or list(self.temperatures) != sorted(set(self.temperatures)):
            raise ValueError("replicas.temperatures needs at least two values, in rising order")
        return self
