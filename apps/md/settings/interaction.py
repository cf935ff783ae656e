"""Settings of the forces between pairs: potentials of all kinds, and spheres that touch."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from hpckit.io.settings import InputFile, RelativeToSource, Section

Potential = Literal[
    "lennard_jones", "morse", "buckingham", "yukawa", "born", "mie", "lj96", "lj_expand", "lj_force_shifted", "soft",
    "table", "eam", "stillinger_weber", "tersoff", "snap", "granular", "python", "brick", "ase",
]  # fmt: skip
OF_BRICKS = ("brick", "ase")  # functions of all that is near
OF_FILES = ("eam", "stillinger_weber", "tersoff", "snap")  # of many bodies
NOT_OF_PAIRS = (*OF_FILES[1:], *OF_BRICKS, "granular")  # energies are shared out otherwise than LAMMPS's
Rule = Literal["lorentz_berthelot", "geometric", "sixth_power"]
FunctionPlace = Annotated[str, RelativeToSource()]  # file.py:name


def mixed_length(rule: Rule, one: Any, other: Any) -> Any:
    """A length of pairs, as a diameter, of those of both types: numbers, or arrays that go together."""
    if rule == "geometric":
        return np.sqrt(one * other)
    if rule == "sixth_power":  # of Waldman and Hagler (1993, J. Comput. Chem. 14, 1077)
        return (0.5 * (one**6 + other**6)) ** (1 / 6)
    return 0.5 * (one + other)


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
        " stillinger_weber and tersoff: silicon, carbon and compounds, of `file`;"
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
        " dispersion; yukawa: strength, screening; born: strength, range, distance, dispersion, higher; mie: epsilon,"
        " sigma, two powers; lj96: epsilon, sigma; lj_expand: these and delta; lj_force_shifted: these and the distance"
        " where energy and force are 0; soft: strength, and that distance; python: those of your function",
    )
    ramp_to: tuple[float, ...] = Field(
        (),
        description="`parameters` at the end of the run, or of the stage, approached evenly; none: they stay. Without"
        " parameters of single pairs",
    )
    ramp_every: int = Field(1, ge=1, description="steps between two changes of the parameters on their way")
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
    mixing: Rule = Field(
        "lorentz_berthelot", description="mixing rule; epsilon is geometric but with sixth_power, Waldman and Hagler's"
    )
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
        if self.kind in ("stillinger_weber", "tersoff") and not (self.file and self.elements):
            raise ValueError(
                f"interaction.kind = {self.kind!r} needs interaction.file, and elements, one for each type"
            )
        if self.kind == "snap" and not (self.file and self.parameters_file and self.elements):
            raise ValueError("interaction.kind = 'snap' needs interaction.file, parameters_file and elements")
        if self.ramp_to and (
            len(self.ramp_to) != len(self.parameters)
            or any(pair.parameters for pair in self.pairs)
            or self.shift
            or self.tail
        ):
            raise ValueError(
                "interaction.ramp_to has a number for each of parameters; single pairs have none of their own, and"
                " shift and tail are omitted"
            )
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
