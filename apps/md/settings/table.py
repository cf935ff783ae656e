"""Settings of the thermo table: its columns by the names that LAMMPS has for them, and what they are computed from."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, model_validator

from hpckit.apps.md.motion.groups import ALL, AXES, Axis
from hpckit.apps.md.settings.formulas import names_in, value_of
from hpckit.io.settings import Section

# Quantities of the thermo table of LAMMPS, and their titles.
TITLES = {
    "step": "Step",
    "elapsed": "Elapsed",
    "dt": "Dt",
    "time": "Time",
    "atoms": "Atoms",
    "temp": "Temp",
    "press": "Press",
    "pe": "PotEng",
    "ke": "KinEng",
    "etotal": "TotEng",
    "enthalpy": "Enthalpy",
    "evdwl": "E_vdwl",
    "ecoul": "E_coul",
    "epair": "E_pair",
    "ebond": "E_bond",
    "eangle": "E_angle",
    "edihed": "E_dihed",
    "eimp": "E_impro",
    "emol": "E_mol",
    "elong": "E_long",
    "etail": "E_tail",
    "vol": "Volume",
    "density": "Density",
    "lx": "Lx",
    "ly": "Ly",
    "lz": "Lz",
    "xlo": "Xlo",
    "xhi": "Xhi",
    "ylo": "Ylo",
    "yhi": "Yhi",
    "zlo": "Zlo",
    "zhi": "Zhi",
    "xy": "Xy",
    "xz": "Xz",
    "yz": "Yz",
    "fmax": "Fmax",
    "fnorm": "Fnorm",
    "pxx": "Pxx",
    "pyy": "Pyy",
    "pzz": "Pzz",
    "pxy": "Pxy",
    "pxz": "Pxz",
    "pyz": "Pyz",
}
WHOLE = ("step", "elapsed", "atoms")  # numbers without a fraction
ENERGIES = (  # of all particles, or of each
    *("pe", "ke", "etotal", "enthalpy", "evdwl", "ecoul", "epair", "ebond", "eangle", "edihed", "eimp", "emol"),
    *("elong", "etail"),
)
USUAL = {"thermo_temp": "temp", "thermo_press": "pressure", "thermo_pe": "pe"}  # computed without being asked for
LENGTHS = {
    "temp": 6,
    "temp/deform": 6,
    "ke": 0,
    "pe": 0,
    "pressure": 6,
    "msd": 4,
    "vacf": 4,
    "com": 3,
    "gyration": 6,
    "erotate/sphere": 0,
}  # of the vectors
FROM_START = ("msd", "vacf")  # kinds that compare with the stage in which they come first
# Kinds with a value that is none of a vector.
SCALARS = ("temp", "temp/deform", "ke", "pe", "pressure", "gyration", "erotate/sphere")
Kind = Literal["temp", "temp/deform", "ke", "pe", "pressure", "msd", "vacf", "com", "gyration", "erotate/sphere"]
COMPUTED = re.compile(r"c_(\w+?)(?:\[(\d+)\])?$")
AVERAGED = re.compile(r"f_(\w+?)(?:\[(\d+)\])?$")
TAKEN = re.compile(r"(trap|slope)\(f_(\w+?)(?:\[(\d+)\])?\)$")


class Computed(Section):
    """What a column c_NAME, or c_NAME[k] of a vector, is computed from."""

    name: str = Field(min_length=1, description="its name, behind c_")
    kind: Kind = Field(
        description="temp: temperature of a group; temp/deform: that beyond the flow of a box that changes; ke: kinetic"
        " energy; pe, pressure, erotate/sphere: potential energy, pressure, rotational energy of all; msd: mean square"
        " displacement since the stage in which it comes first, [1] to [4]: along x, y, z, and all; vacf: mean product"
        " of velocities with those of that time, alike; com: center of mass, unwrapped, [1] to [3]; gyration: radius"
        " of gyration. [1] to [6] of temp, pressure and gyration are the tensor xx, yy, zz, xy, xz, yz, of temp m v v"
    )
    group: str = Field(ALL, description="the group")
    along: tuple[Axis, ...] = Field(AXES, min_length=1, description="of temp: dims of the velocities")
    centered: bool = Field(False, description="of msd: without the displacement of the center of mass")


class Named(Section):
    """What a column v_NAME is."""

    name: str = Field(min_length=1, description="its name, behind v_")
    formula: str = Field(
        min_length=1,
        description="of columns by their names, numbers, + - * / ^ %, and functions as sqrt(x); trap(f_NAME) is the"
        " integral by trapezoids of the means kept over their number, slope(f_NAME) that of the least-squares line",
    )


class Average(Section):
    """Means of columns over steps, as `fix ave/time` has them."""

    name: str = Field(min_length=1, description="its name: f_NAME, or f_NAME[k] of several, are its last means")
    columns: tuple[str, ...] = Field(min_length=1, description="what is averaged; energies c_NAME are of all")
    every: int = Field(1, ge=1, description="steps between two samples")
    repeat: int = Field(1, ge=1, description="samples of a mean")
    period: int = Field(1, ge=1, description="steps between two means: the last sample of each is at a multiple of it")
    last: int = Field(1, ge=0, description="means over the samples of that many periods; 0: of all so far")
    kept: bool = Field(False, description="keep all means: trap(f_NAME) and slope(f_NAME) in formulas are of them")
    file: str = Field("", pattern=r"^([\w.-]*\w[\w.-]*)?$", description="a file in output/ for its means; empty: none")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.period % self.every or self.repeat * self.every > self.period:
            raise ValueError(
                f"{self.repeat} samples every {self.every} steps do not fit in {self.period} steps: period must be a"
                " multiple of every, and at least repeat times it"
            )
        return self

    def ends(self, step: int) -> int:
        """The step of the mean of which this step is a sample, or -1."""
        end = -(-step // self.period) * self.period
        sampled = (end - step) % self.every == 0 and (end - step) // self.every < self.repeat
        return end if sampled else -1

    def begins(self, end: int) -> int:
        """The first sample of a mean."""
        return end - (self.repeat - 1) * self.every


class Table(Section):
    """The thermo table."""

    columns: tuple[str, ...] = Field(
        (), description=f"{', '.join(TITLES)}, and c_NAME, v_NAME, f_NAME; empty: those that LAMMPS prints by itself"
    )
    per_particle: bool | None = Field(
        None, description="energies for each particle, as thermo_modify norm; none: in units lj"
    )
    computed: tuple[Computed, ...] = Field((), description="what columns c_NAME are")
    formulas: tuple[Named, ...] = Field((), description="what columns v_NAME are")
    averages: tuple[Average, ...] = Field((), description="means over steps; columns f_NAME are their last ones")
    counts: Literal["run", "stage"] = Field(
        "run",
        description="whose steps and time the columns step and time count: of the whole run or of the stage",
    )
    first_step: int = Field(0, description="what the column step adds to these steps; periods are of the sums")
    first_time: float = Field(0.0, description="what the column time adds to that time")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for each in (self.computed, self.formulas, self.averages):
            names = [one.name for one in each]
            if len({*names}) < len(names):
                raise ValueError(f"names of table come twice: {', '.join(names)}")
        averaged = [name for each in self.averages for name in each.columns]
        for name in (*self.columns, *averaged):
            if why := self.unknown(name):
                raise ValueError(f"table.columns: {why}")
        if any(name.startswith("f_") for name in averaged):
            raise ValueError("table.averages are not averaged again: give other columns")
        return self

    def number(self, step: int, done: int) -> int:
        """What the column step has for a step of the run, of which `done` are in its stage."""
        return (done if self.counts == "stage" else step) + self.first_step

    def unknown(self, name: str, within: tuple[str, ...] = ()) -> str:
        """Why a column cannot be; empty where it can."""
        if name in TITLES or name == "PI":
            return ""
        if match := COMPUTED.match(name):
            kinds = {**USUAL, **{each.name: each.kind for each in self.computed}}
            kind, part = kinds.get(match[1]), int(match[2] or 0)
            sound = kind is not None and (part <= LENGTHS[kind] if part else kind in SCALARS)
            return "" if sound else f"there is no {name} among {', '.join(kinds)} of table.computed"
        if match := TAKEN.match(name):
            kept = any(each.kept for each in self.averages if each.name == match[2])
            return self.unknown(name.split("(")[1][:-1]) if kept else f"{match[2]} of {name} is not kept"
        if match := AVERAGED.match(name):
            widths = {each.name: len(each.columns) for each in self.averages}
            wide, part = widths.get(match[1], 0), int(match[2] or 0)
            sound = 1 <= part <= wide if match[2] else wide == 1
            return "" if sound else f"there is no {name} among the means of table.averages"
        formulas = {f"v_{each.name}": each.formula for each in self.formulas}
        if name not in formulas:
            return f"there is no column {name}; known are {', '.join((*TITLES, *formulas))} and c_NAME, f_NAME"
        if name in within:
            return f"the formula of {name} needs itself"
        try:
            needed = names_in(formulas[name])
            value_of(formulas[name], lambda _: math.e)
        except ArithmeticError:
            pass  # of the numbers tried
        except (IndexError, KeyError, TypeError, ValueError):
            return f"the formula {formulas[name]!r} of {name} cannot be read"
        return next((why for each in needed if (why := self.unknown(each, (*within, name)))), "")

    def groups(self) -> Iterator[tuple[str, str]]:
        """The groups that it names, each with its key."""
        yield from (("table.computed.group", each.group) for each in self.computed)
