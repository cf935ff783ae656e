"""Settings of the thermo table: its columns by the names that LAMMPS has for them, and what they are computed from."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, Self

from pydantic import Field, model_validator

from hpckit.apps.md.motion.groups import ALL, AXES, Axis, Block, RegionOf
from hpckit.apps.md.settings.averages import OF_BINS, OF_PARTICLES, Average, Correlation, Histogram, Profile, Sampled
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
    "heat/flux": 6,
    "ke/atom": 0,
    "pe/atom": 0,
    "stress/atom": 0,
    "coord/atom": 0,
}  # of the vectors; the others have that of what they are given
FROM_START = ("msd", "vacf")  # kinds that compare with the stage in which they come first
# Kinds with a value that is none of a vector.
SCALARS = ("temp", "temp/deform", "ke", "pe", "pressure", "gyration", "erotate/sphere")
# Kinds with a value for each particle, or a vector.
OF_EACH = {"ke/atom": 0, "pe/atom": 0, "stress/atom": 6, "coord/atom": 0}
OF_PAIRS = ("pe/atom", "stress/atom", "heat/flux")  # kinds that need the energies of single pairs
Kind = Literal[
    "temp",
    "temp/deform",
    "ke",
    "pe",
    "pressure",
    "msd",
    "vacf",
    "com",
    "gyration",
    "erotate/sphere",
    "ke/atom",
    "pe/atom",
    "stress/atom",
    "coord/atom",
    "heat/flux",
    "rdf",
    "reduce",
]
Reduction = Literal["sum", "ave", "min", "max", "sumsq", "avesq"]
PART = r"(?:\[(\d+)\])?"
COMPUTED = re.compile(rf"c_(\w+?){PART}{PART}$")
AVERAGED = re.compile(rf"f_(\w+?){PART}{PART}$")
OF_WHOLE = re.compile(r"(count|mass|charge|ke|gyration)\((\w+)()()(?:,(\w+))?\)$")
OF_AXIS = re.compile(r"(xcm|vcm|fcm|bound)\((\w+),([xyz])(min|max)?(?:,(\w+))?\)$")
TAKEN = re.compile(rf"(trap|slope)\(f_(\w+?){PART}\)$")


class GroupValue(NamedTuple):
    """A function of a group in a formula: count, mass, …; of an axis and one of its ends; in a region."""

    what: str
    group: str
    axis: str
    end: str
    region: str


def group_value(name: str) -> GroupValue | None:
    """A function of a group by its text; None for another one."""
    match = OF_WHOLE.match(name) or OF_AXIS.match(name)
    return GroupValue(*(each or "" for each in match.groups())) if match else None


class Computed(Section):
    """What a column c_NAME, or c_NAME[k] of a vector, is computed from."""

    name: str = Field(min_length=1, description="its name, behind c_")
    kind: Kind = Field(
        description="temp: temperature of a group; temp/deform: that beyond the flow of a box that changes; ke: kinetic"
        " energy; pe, pressure, erotate/sphere: potential energy, pressure, rotational energy of all; msd: mean square"
        " displacement since the stage in which it comes first, [1] to [4]: along x, y, z, and all; vacf: mean product"
        " of velocities with those of that time, alike; com: center of mass, unwrapped, [1] to [3]; gyration: radius"
        " of gyration. [1] to [6] of temp, pressure and gyration are the tensor xx, yy, zz, xy, xz, yz, of temp m v v."
        " ke/atom, pe/atom: kinetic and potential energy of each particle; stress/atom: its part of the pressure tensor"
        " times the volume, below 0 where it presses; coord/atom: how many partners are nearer than reach; heat/flux:"
        " the heat current times the volume, [1] to [3], and its part by what moves; reduce: numbers of particles"
        " in one, [k] of several; rdf: a table of pair distances: [1]:"
        " the middle of a bin, then of each pair of types g(r) and neighbors so far"
    )
    group: str = Field(ALL, description="the group")
    along: tuple[Axis, ...] = Field(AXES, min_length=1, description="of temp: dims of the velocities")
    within: Block | None = Field(
        None, description="of temp and reduce: low and high end along x, y, z of where particles are; none: all"
    )
    centered: bool = Field(False, description="of msd: without the displacement of the center of mass")
    how: Reduction = Field("sum", description="of reduce")
    of: tuple[str, ...] = Field(
        (),
        description="of reduce: x, vx, fx, …, c_NAME and v_NAME of particles; of heat/flux: c_NAME of ke/atom, pe/atom"
        " and stress/atom",
    )
    moving: bool = Field(True, description="of stress/atom: with the part of what moves")
    bins: int = Field(100, ge=1, description="of rdf: their number")
    reach: float = Field(
        0.0, ge=0, description="of rdf and coord/atom: the longest distance; 0: of rdf the cutoff of pairs"
    )
    partners: str = Field(ALL, description="of coord/atom: the group of those that are counted")
    types: tuple[int, ...] = Field((), description="of coord/atom: their types, from 1; empty: all")
    pairs: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = Field(
        (), description="of rdf: the types, from 1, of particles and of their neighbors; empty: all pairs"
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.kind in ("reduce", "heat/flux")) != bool(self.of) or (self.kind == "heat/flux" and len(self.of) != 3):
            raise ValueError(
                f"table.computed.of is for reduce, which needs it, and heat/flux, which needs three: {self.name} is"
                f" {self.kind}"
            )
        if (self.kind == "coord/atom") and not self.reach:
            raise ValueError(f"table.computed.reach is missing: {self.name} is coord/atom")
        if self.kind != "coord/atom" and (self.partners != ALL or self.types):
            raise ValueError(f"table.computed.partners and types are for coord/atom: {self.name} is {self.kind}")
        if self.within is not None and self.kind not in ("temp", "reduce"):
            raise ValueError(f"table.computed.within is for temp and reduce: {self.name} is {self.kind}")
        return self

    @property
    def length(self) -> int:
        """That of its vector, 0 without one."""
        own = len(self.of) if len(self.of) > 1 else 0
        return LENGTHS.get(self.kind, own)

    @property
    def has_value(self) -> bool:
        """Whether it has a value that is none of a vector."""
        return self.kind in SCALARS or (self.kind == "reduce" and len(self.of) == 1)

    @property
    def width(self) -> int:
        """The columns of its table, 0 without one."""
        return 1 + 2 * max(len(self.pairs), 1) if self.kind == "rdf" else 0

    def has(self, row: int, part: int) -> bool:
        """Whether it has this number: [row][part] of a table, [row] of a vector, counted from 1, 0 where not given."""
        if part:
            return 1 <= row <= self.bins and part <= self.width
        return 1 <= row <= self.length if row else self.has_value


class Named(Section):
    """What a column v_NAME is."""

    name: str = Field(min_length=1, description="its name, behind v_")
    formula: str = Field(
        min_length=1,
        description="of columns by their names, numbers, + - * / ^ %, and functions as sqrt(x); trap(f_NAME) is the"
        " integral by trapezoids of the means kept, or of a column of many rows, over their number, slope(f_NAME) that"
        " of the least-squares line; count, mass, charge, ke and gyration(GROUP), xcm, vcm and fcm(GROUP,x),"
        " bound(GROUP,xmin), also of a REGION, behind a comma. Of particles: of x, vx, mass, … and what is computed of"
        " each",
    )
    at_start: bool = Field(
        False, description="whether it stays what it was when the stage whose table names it first began"
    )


class Table(Section):
    """The thermo table."""

    columns: tuple[str, ...] = Field(
        (), description=f"{', '.join(TITLES)}, and c_NAME, v_NAME, f_NAME; empty: those that LAMMPS prints by itself"
    )
    per_particle: bool | None = Field(
        None, description="energies for each particle, as thermo_modify norm; none: in units lj"
    )
    computed: tuple[Computed, ...] = Field((), description="what columns c_NAME are")
    regions: tuple[RegionOf, ...] = Field((), description="regions that formulas name: count(GROUP,REGION)")
    formulas: tuple[Named, ...] = Field((), description="what columns v_NAME are")
    averages: tuple[Average, ...] = Field((), description="means over steps; columns f_NAME are their last ones")
    profiles: tuple[Profile, ...] = Field((), description="means over particles in bins, and over steps")
    correlations: tuple[Correlation, ...] = Field((), description="correlations of columns in time")
    histograms: tuple[Histogram, ...] = Field((), description="how often values are in bins, over steps")
    exchanged: tuple[str, ...] = Field(
        (),
        description="names of dynamics.corrections and baths: f_NAME is the energy that the middle slab got so far,"
        " the momentum that the first one got, or the energy that a bath took",
    )
    counts: Literal["run", "stage"] = Field(
        "run",
        description="whose steps and time the columns step and time count: of the whole run or of the stage",
    )
    first_step: int = Field(0, description="what the column step adds to these steps; periods are of the sums")
    first_time: float = Field(0.0, description="what the column time adds to that time")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        every = [[one.name for one in each] for each in (self.computed, self.formulas, self.sampled, self.regions)]
        every[2] += self.exchanged  # f_NAME, too
        for names in every:
            if len({*names}) < len(names):
                raise ValueError(f"names of table come twice: {', '.join(names)}")
        for name in self.columns:
            if why := self.unknown(name):
                raise ValueError(f"table.columns: {why}")
        for one in self.sampled:
            if why := self.unknown_of(one):
                raise ValueError(f"table: {one.name}: {why}")
        for given in self.computed:
            if why := self.unknown_within(given):
                raise ValueError(f"table.computed: {given.name}: {why}")
        return self

    @property
    def sampled(self) -> tuple[Sampled, ...]:
        """All that has samples after steps: columns f_NAME."""
        return *self.averages, *self.profiles, *self.correlations, *self.histograms

    def number(self, step: int, done: int) -> int:
        """What the column step has for a step of the run, of which `done` are in its stage."""
        return (done if self.counts == "stage" else step) + self.first_step

    def unknown(self, name: str, within: tuple[str, ...] = ()) -> str:
        """Why a column cannot be; empty where it can."""
        if name in TITLES or name == "PI":
            return ""
        if match := COMPUTED.match(name):
            known = self.known
            found, row, part = known.get(match[1]), int(match[2] or 0), int(match[3] or 0)
            sound = found is not None and found.has(row, part)
            return "" if sound else f"there is no {name} among {', '.join(known)} of table.computed"
        if value := group_value(name):
            known_regions = ["", *(each.name for each in self.regions)]
            return "" if value.region in known_regions else f"there is no region {value.region} of {name}"
        if match := TAKEN.match(name):
            one = next((each for each in self.sampled if each.name == match[2]), None)
            kept = one is not None and (one.has_rows or (isinstance(one, Average) and one.kept))
            wide = one.width if one is not None else 0
            sound = int(match[3] or (1 if wide == 1 else 0)) in range(1, wide + 1)
            return "" if kept and sound else f"{match[2]} of {name} is not kept, or has no such column"
        if name in {f"f_{each}" for each in self.exchanged}:
            return ""
        if match := AVERAGED.match(name):
            one = next((each for each in self.sampled if each.name == match[1]), None)
            row, part = int(match[2] or 0), int(match[3] or 0)
            if one is not None and one.has_rows:
                alone = isinstance(one, Average) and one.mode == "vector" and one.width == 1
                sound = row >= 1 and (not part if alone else 1 <= part <= one.width)
                sound = sound or (isinstance(one, Histogram) and not part and 1 <= row <= 4)
            else:
                sound = one is not None and not part and (1 <= row <= one.width if match[2] else one.width == 1)
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

    @property
    def known(self) -> dict[str, Computed]:
        """What columns c_NAME are computed from, by name."""
        usual = [Computed(name=name, kind=kind) for name, kind in USUAL.items()]
        return {each.name: each for each in (*usual, *self.computed)}

    def unknown_of(self, given: Sampled) -> str:
        """Why samples cannot be taken; empty where they can."""
        if isinstance(given, Profile):
            each = (name for name in given.columns if name not in OF_BINS)
            return next((why for name in each if (why := self.unknown_of_particles(name))), "")
        if isinstance(given, Histogram):
            each = (name for name in given.columns if self.unknown_of_particles(name))
            return next((why for name in each if (why := self.unknown(name))), "")
        if own := next((name for name in given.columns if name.startswith("f_")), ""):
            return f"{own} is not averaged again: give other columns"
        if given.has_rows and isinstance(given, Average):
            return next((why for name in given.columns if (why := self._unknown_rows(name))), "")
        return next((why for name in given.columns if (why := self.unknown(name))), "")

    def unknown_within(self, given: Computed) -> str:
        """Why something cannot be computed from the numbers that it names; empty where it can."""
        names = [f"{name}[1]" if given.kind == "heat/flux" and k == 2 else name for k, name in enumerate(given.of)]
        return next((why for name in names if (why := self.unknown_of_particles(name))), "")

    def _unknown_rows(self, name: str) -> str:
        """Why this is not a vector, or a column of a table; empty where it is one."""
        match = COMPUTED.match(name)
        found = self.known.get(match[1]) if match and not match[3] else None
        part = int(match[2] or 0) if match else 0
        sound = found is not None and (1 <= part <= found.width if part else found.length > 0)
        return "" if sound else f"{name} is not a vector, nor a column of a table rdf"

    def unknown_of_particles(self, name: str, within: tuple[str, ...] = ()) -> str:
        """Why this is not a number that each particle has; empty where it is one."""
        if name in OF_PARTICLES:
            return ""
        match, formulas = COMPUTED.match(name), {f"v_{each.name}": each.formula for each in self.formulas}
        width = OF_EACH.get(self.known[match[1]].kind, -1) if match and match[1] in self.known else -1
        if match and not match[3] and (1 <= int(match[2] or 0) <= width or (width == 0 and not match[2])):
            return ""
        if name not in formulas or name in within:
            return self.unknown(name) if within and name not in within else f"particles have no {name}"
        try:
            needed = names_in(formulas[name])
        except ValueError:
            return f"the formula {formulas[name]!r} of {name} cannot be read"
        return next((why for each in needed if (why := self.unknown_of_particles(each, (*within, name)))), "")

    def groups(self) -> Iterator[tuple[str, str]]:
        """The groups that it names, each with its key."""
        yield from (("table.computed.group", each.group) for each in self.computed)
        named = (group_value(name) for each in self.formulas for name in names_in(each.formula))
        yield from (("table.formulas", value.group) for value in named if value)
        yield from (("table.computed.partners", each.partners) for each in self.computed)
        yield from (("table.profiles.group", each.group) for each in self.profiles)
        yield from (("table.histograms.group", each.group) for each in self.histograms)
