"""The commands of LAMMPS input scripts that hpckit knows, turned into the settings of one run.

Each method `_name` does the command of this name. What is not known, or says what a run of hpckit cannot do, is a
mistake with its line; reading goes on, so that all are found at once.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from hpckit.apps.md.lammps.fixes import MEASURES, MOVERS, Fix, deformed, is_number, motion_of, require_known
from hpckit.apps.md.motion.settings import ANEW
from hpckit.kernels.particles.bonds.forms import NAMES as BONDS
from hpckit.kernels.particles.terms.forms import NAMES as TERMS

# Commands without an effect on the motion, or that hpckit does in its own way.
PASSED_OVER = (
    *("atom_modify", "comm_modify", "comm_style", "dump_modify", "echo", "info", "log"),
    *("min_modify", "newton", "package", "print", "reset_timestep", "restart", "shell", "suffix", "thermo_modify"),
    *("thermo_style", "timer", "uncompute", "write_data", "write_dump", "write_restart"),
)
BETWEEN = (  # runs of a script
    *("change_box", "compute", "dump", "fix", "group", "min_style", "minimize", "run", "run_style", "thermo"),
    *("timestep", "undump", "unfix", "velocity"),
)
DEFAULT_STEP = {"lj": 0.005, "metal": 0.001, "real": 1.0}
SMALLEST_FORCE = {"lj": 1e-10, "metal": 1e-10, "real": 1e-9}  # of a minimization that gives none
DEFAULT_SKIN = {"lj": 0.3, "metal": 2.0, "real": 2.0}
SITES = {"sc": 1, "bcc": 2, "fcc": 4, "diamond": 8}
PARAMETERS = {"morse": 3, "buck": 3}  # of a pair, before its own cutoff
NAMES = {
    "lj/cut": "lennard_jones",
    "lj/charmm": "lennard_jones",
    "morse": "morse",
    "buck": "buckingham",
    "table": "table",
}
CHARGED = {"coul/cut": "cut", "coul/long": "ewald", "coul/dsf": "dsf"}  # behind the pair potential's own name
PAIRED = ("lj/cut", "lj/charmm", "buck")  # with charges
FADING = "lj/charmm/coul/long"
EAM = ("eam", "eam/alloy", "eam/fs")
OF_FILES = {**dict.fromkeys(EAM, "eam"), "sw": "stillinger_weber", "tersoff": "tersoff", "snap": "snap"}
SPECIAL = {  # shares of pairs and of charges
    "fene": ([0.0, 1.0, 1.0], [0.0, 1.0, 1.0]),
    "charmm": ([0.0] * 3, [0.0] * 3),
    "amber": ([0.0, 0.0, 0.5], [0.0, 0.0, 5.0 / 6.0]),
    "dreiding": ([0.0, 0.0, 1.0], [0.0, 0.0, 1.0]),
}
BOUND = {"bonds": BONDS, **TERMS}  # their styles, and the parameters of these
ENDS = ("style", "coeff")
GROUPS = {  # their styles, and the words that follow at least
    **dict.fromkeys(("region", "type", "id", "molecule", "include", "union", "intersect", "dynamic", "variable"), 1),
    **dict.fromkeys(("delete", "clear", "empty", "static"), 0),
    "subtract": 2,
}
MAKERS = {"region", "lattice", "create_box", "create_atoms", "read_data", "read_restart"}  # of particles and types
ENDLESS = {"INF": math.inf, "EDGE": math.inf}  # ends of regions
HEAD = 60  # lines of a data file in which its numbers of types are
WHOLE = 1e-9  # of a lattice cell: what counts as a whole number of them


class ScriptMistake(NamedTuple):
    """What is wrong with a line."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.line}: {self.text}"


@dataclass(frozen=True)
class Reading:
    """Settings of the app from a script: a tree, the line that said each, and what was passed over."""

    tree: dict[str, Any]
    lines: dict[tuple[str | int, ...], int]
    notes: tuple[str, ...] = ()


@dataclass
class Pair:
    """A pair_coeff: its types, the words behind them, its line."""

    first: range
    second: range
    words: list[str]
    line: int


@dataclass
class ScriptStage:
    """A run or a minimize: the settings of its sections by key, their lines, and its own line."""

    line: int
    steps: int
    settings: dict[str, Any]
    lines: dict[str, int]
    velocity: dict[str, Any]
    fixes: dict[str, Fix]  # none of a minimize

    @property
    def goes_on(self) -> bool:
        """Whether a second run of it is the same as one of twice as many steps."""
        ends = any(key.endswith("ramp_to") or key == "deform.changes" for key in self.settings)
        return not ends and bool(self.fixes)

    @property
    def movers(self) -> list[Fix]:
        """The fixes that hold a temperature or a pressure, whose state lives as long as they do."""
        return [fix for fix in self.fixes.values() if fix.words[0] in MOVERS]


@dataclass
class Commands:
    """The state of a script: what was said so far, and the mistakes in it."""

    path: Path
    mistakes: list[ScriptMistake] = field(default_factory=list)
    tree: dict[str, Any] = field(default_factory=lambda: {"app": "md"})
    lines: dict[tuple[str | int, ...], int] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    units: str = "lj"
    lattice: tuple[str, float] | None = None
    regions: dict[str, list[float]] = field(default_factory=dict)
    types: int = 0
    counts: dict[str, int] = field(default_factory=dict)  # types of bonds, angles, …
    masses: dict[int, float] = field(default_factory=dict)
    bound: dict[str, dict[int, list[float]]] = field(default_factory=lambda: {name: {} for name in BOUND})
    special: dict[str, list[float]] = field(default_factory=lambda: {"lj": [0.0] * 3, "coul": [0.0] * 3})
    style: list[str] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    modify: dict[str, str] = field(default_factory=dict)
    nuclei: dict[int, float] = field(default_factory=dict)  # atomic numbers of types, for zbl
    box: str = ""  # the region that it is
    groups: set[str] = field(default_factory=lambda: {"all"})
    fixes: dict[str, Fix] = field(default_factory=dict)
    fixed: int = 0  # fixes so far
    stages: list[ScriptStage] = field(default_factory=list)
    pending: dict[str, Any] = field(default_factory=dict)  # settings that wait for the next run, by key
    inner: int = 1  # steps of bonds in one of the run
    velocity: dict[str, Any] = field(default_factory=dict)  # of a `velocity` between two runs
    number: int = 0
    failed: set[str] = field(default_factory=set)  # commands with mistakes, of whose absence nothing is said

    def do(self, number: int, words: list[str]) -> None:
        """Take up a command, or note what is wrong with it."""
        name, *rest = words
        self.number = number
        try:
            self._do(number, name, rest)
        except ValueError as error:
            self.failed.add(name)
            self.mistakes.append(ScriptMistake(number, str(error)))

    def _do(self, number: int, name: str, rest: list[str]) -> None:
        if name in PASSED_OVER:
            self.notes[f"line {number}: {name} is passed over"] = None
            return
        method = getattr(self, f"_{name}", None) if name in KNOWN else None
        if method is None:
            raise ValueError(f"{name} is not known here")
        if self.stages and name in ("neighbor", "neigh_modify"):
            self.notes[f"line {number}: {name} after a run is passed over: lists are made as before"] = None
            return
        if self.stages and name not in BETWEEN:
            raise ValueError(f"{name} after a run: known there are {', '.join(BETWEEN)}")
        try:
            method(*rest)
        except (TypeError, IndexError):
            raise ValueError(f"{name} {' '.join(rest)}: words are missing, or too many") from None

    def reading(self) -> Reading:
        """The settings, after the last command."""
        finishes = {
            self._finish_bound: {
                "special_bonds",
                "read_data",
                *(f"{what[:-1]}_{end}" for what in BOUND for end in ENDS),
            },
            self._finish_particles: {*MAKERS, "mass"},
            self._finish_pairs: {"kspace_style", "pair_style", "pair_coeff", *MAKERS},
            self._finish_motion: {"fix", "run", "minimize"},
        }
        for finish, about in finishes.items():
            try:
                if not about & self.failed:
                    finish()
            except ValueError as error:
                self.mistakes.append(ScriptMistake(self.number, str(error)))
        return Reading(self.tree, self.lines, tuple(self.notes))

    def _set(self, key: str, value: Any, line: int | None = None) -> None:
        *tables, name = key.split(".")
        table = self.tree
        for each in tables:
            table = table.setdefault(each, {})
        table[name] = value
        self.lines[tuple(key.split("."))] = self.number if line is None else line

    # ---- what the particles are

    def _units(self, name: str) -> None:
        if name not in DEFAULT_STEP:
            raise ValueError(f"units {name}: known are {', '.join(DEFAULT_STEP)}")
        self.units = name
        self._set("system.units", name)

    def _dimension(self, number: str) -> None:
        if number != "3":
            raise ValueError("dimension 2: particles move in three dims here")

    def _atom_style(self, name: str, *rest: str) -> None:
        if rest or name not in ("atomic", "charge", "bond", "angle", "molecular", "full"):
            raise ValueError(f"atom_style {name}: known are atomic, charge, bond, angle, molecular and full")
        if name != "atomic":
            self._set("system.style", name)

    def _special_bonds(self, *words: str) -> None:
        left, shares = list(words), dict(self.special)
        while left:
            name = left.pop(0)
            if name in SPECIAL:
                shares = dict(zip(("lj", "coul"), SPECIAL[name], strict=True))
                continue
            keys = {"lj": ("lj",), "coul": ("coul",), "lj/coul": ("lj", "coul")}.get(name)
            if keys is None or len(left) < 3 or not all(map(is_number, left[:3])):
                raise ValueError(
                    f"special_bonds {' '.join(words)}: known are {', '.join(SPECIAL)}, lj, coul, lj/coul with 3 numbers"
                )
            shares |= {key: [float(word) for word in left[:3]] for key in keys}
            del left[:3]
        self.special = shares

    def _bond_style(self, name: str) -> None:
        self._bound_style("bonds", name)

    def _angle_style(self, name: str) -> None:
        self._bound_style("angles", name)

    def _dihedral_style(self, name: str) -> None:
        self._bound_style("dihedrals", name)

    def _improper_style(self, name: str) -> None:
        self._bound_style("impropers", name)

    def _bound_style(self, what: str, name: str) -> None:
        if name not in ("none", "zero", *BOUND[what]):
            raise ValueError(f"{what[:-1]}_style {name}: known are {', '.join(('none', 'zero', *BOUND[what]))}")
        self._set(f"{what}.kind", name)

    def _bond_coeff(self, kind: str, *rest: str) -> None:
        self._bound_coeff("bonds", kind, rest)

    def _angle_coeff(self, kind: str, *rest: str) -> None:
        self._bound_coeff("angles", kind, rest)

    def _dihedral_coeff(self, kind: str, *rest: str) -> None:
        self._bound_coeff("dihedrals", kind, rest)

    def _improper_coeff(self, kind: str, *rest: str) -> None:
        self._bound_coeff("impropers", kind, rest)

    def _bound_coeff(self, what: str, kind: str, rest: tuple[str, ...]) -> None:
        style, one = self.tree.get(what, {}).get("kind"), what[:-1]
        if f"{one}_style" in self.failed or style == "zero":
            return
        names = BOUND[what].get(style or "", ())
        if not names or len(rest) != len(names) or not all(map(is_number, rest)):
            raise ValueError(f"{one}_coeff {kind} {' '.join(rest)}: a type and {' '.join(names) or 'numbers'}")
        for each in self._among(kind, self.counts.get(one, 0)):
            self.bound[what][each] = [float(word) for word in rest]
        self.lines[what, "parameters"] = self.number

    def _boundary(self, x: str, y: str, z: str) -> None:
        if any(each not in ("p", "f") for each in (x, y, z)):
            raise ValueError(f"boundary {x} {y} {z}: known are p and f")
        self._set("system.periodic", [axis for axis, each in zip("xyz", (x, y, z), strict=True) if each == "p"])

    def _processors(self, *words: str) -> None:
        for axis, word in zip("xyz", words, strict=False):
            self._set(f"ranks.{axis}", 0 if word == "*" else int(word))

    def _lattice(self, name: str, scale: str, *rest: str) -> None:
        if rest or name not in SITES:
            raise ValueError(f"lattice {name} {' '.join(rest)}: known are {', '.join(SITES)}, with a scale alone")
        self.lattice = name, float(scale)
        self._set("system.lattice", name)
        self._set("system.density" if self.units == "lj" else "system.edge", float(scale))

    def _region(self, name: str, style: str, *rest: str) -> None:
        count = {"block": 6, "prism": 9}.get(style, 0)
        ends, options = rest[:count], rest[count:]
        if not count or len(ends) < count or options not in ((), ("units", "box"), ("units", "lattice")):
            known = "known are block with six numbers and prism with nine"
            raise ValueError(f"region {name} {style} {' '.join(rest)}: {known}")
        if "lattice" in self.failed:
            return
        edge = self._edge() if options != ("units", "box") and self.lattice else 1.0
        self.regions[name] = [ENDLESS[end] if end in ENDLESS else float(end) * edge for end in ends]

    def _edge(self) -> float:
        if self.lattice is None:
            raise ValueError("give a lattice first")
        name, scale = self.lattice
        return float((SITES[name] / scale) ** (1 / 3)) if self.units == "lj" else scale

    def _create_box(self, types: str, region: str) -> None:
        if {"region", "lattice"} & self.failed:
            return
        if region not in self.regions:
            raise ValueError(f"create_box {types} {region}: there is no such region")
        self.types, self.box = int(types), region
        box, edge = self.regions[region][:6], self._edge()
        cells = [(high - low) / edge for low, high in zip(box[::2], box[1::2], strict=True)]
        if any(box[::2]) or any(n < 0.5 or not math.isfinite(n) or abs(n - round(n)) > WHOLE * n for n in cells):
            raise ValueError("create_box: the box begins at 0 and holds a whole number of lattice cells here")
        self._set("system.cells", [round(n) for n in cells])
        if any(self.regions[region][6:]):
            self._set("system.tilt", self.regions[region][6:])

    def _create_atoms(self, kind: str, style: str, *rest: str) -> None:
        if {"lattice", "region", "create_box"} & self.failed:
            return
        whole = (style, *rest) == ("box",) or (style == "region" and len(rest) == 1 and self._is_box(rest[0]))
        if not whole or "cells" not in self.tree.get("system", {}):
            known = "known are box, and the region of create_box, after it"
            raise ValueError(f"create_atoms {kind} {style} {' '.join(rest)}: {known}")
        if not 1 <= int(kind) <= self.types:
            raise ValueError(f"create_atoms {kind}: there are {self.types} types")
        self._set("system.fractions", [float(k + 1 == int(kind)) for k in range(self.types)])

    def _is_box(self, region: str) -> bool:
        """Whether a region is the whole box."""
        return bool(self.box) and self.regions.get(region) == self.regions[self.box]

    def _group(self, name: str, style: str, *rest: str) -> None:
        """Groups are for what measures: nothing here moves a part of the particles in its own way."""
        if style not in GROUPS or len(rest) < GROUPS[style]:
            raise ValueError(f"group {name} {style} {' '.join(rest)}: known are {', '.join(GROUPS)}, with their words")
        self._require_groups("group", rest if style in ("subtract", "union", "intersect") else ())
        if style == "delete":
            self.groups.discard(name)
        else:
            self.groups.add(name)
        self.notes[f"line {self.number}: group is passed over"] = None

    def _compute(self, name: str, group: str, style: str, *rest: str) -> None:
        self._require_groups(f"compute {name} {style}", (group,))
        self.notes[f"line {self.number}: compute {style} is passed over: see the section analysis"] = None

    def _require_groups(self, what: str, names: Iterable[str]) -> None:
        missing = [name for name in names if name not in self.groups]
        if missing and "group" not in self.failed:
            raise ValueError(f"{what}: there is no group {', '.join(missing)}")

    def _read_data(self, file: str, *rest: str) -> None:
        if rest:
            raise ValueError(f"read_data {file} {' '.join(rest)}: known is a file alone")
        path = self._file(file)
        self._set("system.file", str(path))
        try:
            with path.open(encoding="utf-8", errors="replace") as lines:
                head = [line.split() for _, line in zip(range(HEAD), lines, strict=False)]
        except OSError as error:
            raise ValueError(f"read_data {file}: {path} cannot be read: {error.strerror}") from None
        for words in head:
            if words[1:3] == ["atom", "types"]:
                self.types = int(words[0])
            elif words[2:3] == ["types"]:
                self.counts[words[1]] = int(words[0])
        if not self.types:
            raise ValueError(f"read_data {file}: its first {HEAD} lines have no `N atom types`")

    def _change_box(self, group: str, *words: str) -> None:
        if group != "all":
            raise ValueError(f"change_box {group}: known is the group all")
        kept = [word for word in words if word not in ("triclinic", "remap")]
        _, changes = deformed(["1", *kept], self._edge() if self.lattice else 1.0)
        wrong = [each["style"] for each in changes if each["style"] not in ("final", "delta", "scale", "volume")]
        if wrong or (changes and words.count("remap") != 1) or {"flip"} & {*words}:
            known = "x, y, z, xy, xz, yz by final, delta, scale and volume, once each, and then remap"
            raise ValueError(f"change_box all {' '.join(words)}: known are triclinic, and {known}")
        if "deform.start" in self.pending:
            raise ValueError("change_box comes twice: give all edges and tilts in one")
        if changes:
            self.pending["deform.start"] = changes

    def _replicate(self, *words: str) -> None:
        if len(words) != 3 or not all(word.isdigit() and int(word) for word in words):
            raise ValueError(f"replicate {' '.join(words)}: known are three whole numbers")
        if "read_data" in self.failed:
            return
        if "file" not in self.tree.get("system", {}):
            raise ValueError("replicate must come after read_data; for a lattice, make the region larger")
        before = self.tree["system"].get("replicate", [1, 1, 1])
        self._set("system.replicate", [old * int(word) for old, word in zip(before, words, strict=True)])

    def _file(self, name: str) -> Path:
        """A file that a command names: beside the script, in this folder, or in that of LAMMPS's potentials."""
        for folder in (self.path.parent, Path.cwd(), Path(os.environ.get("LAMMPS_POTENTIALS", "."))):
            if (folder / name).is_file():
                return (folder / name).resolve()
        raise ValueError(f"there is no file {name} beside the script, nor in the folder LAMMPS_POTENTIALS")

    def _types(self, word: str) -> range:
        """The types that a word names: 2, *, 2*, *3, 2*3; none where the box that says how many there are failed."""
        if not self.types and self.failed:
            return range(0)
        return self._among(word, self.types)

    def _among(self, word: str, count: int) -> range:
        """The numbers that a word names, of 1 to `count`."""
        low, star, high = word.partition("*")
        first = int(low) if low else 1
        last = (int(high) if high else count) if star else first
        if not 1 <= first <= last <= count:
            raise ValueError(f"type {word}: there are {count} types")
        return range(first, last + 1)

    def _mass(self, kind: str, mass: str) -> None:
        for each in self._types(kind):
            self.masses[each] = float(mass)
        self.lines["system", "masses"] = self.number

    def _velocity(self, group: str, style: str, *rest: str) -> None:
        known = {"create": 2, "scale": 1, "zero": 1}.get(style, 9)
        if group != "all" or len(rest) < known or (style == "scale" and not self.stages):
            raise ValueError(
                f"velocity {group} {style}: known are velocity all create T SEED, zero linear, and scale T after a run"
            )
        if style == "zero":
            if rest[0] != "linear":
                raise ValueError("velocity all zero: known is linear")
            return
        options = dict(zip(rest[known::2], rest[known + 1 :: 2], strict=False))
        allowed = {"dist": ("uniform", "gaussian"), "mom": ("yes",), "rot": ("no",), "loop": ("all", "geom")}
        for key, value in options.items():
            if value not in allowed.get(key, ()):
                raise ValueError(f"velocity … {key} {value}: not known here")
        if style == "scale":
            self.velocity = {"velocities": "scale", "temperature": float(rest[0])}
            return
        uniform = options.get("dist", "uniform") == "uniform"
        drawn = "lammps_geom" if options.get("loop") == "geom" else "lammps"
        found: dict[str, Any] = {
            "temperature": float(rest[0]),
            "seed": int(rest[1]),
            "draw": drawn if uniform else "normal",
        }
        if not uniform:
            self.notes[f"line {self.number}: normal velocities come from hpckit's own random numbers"] = None
        if self.stages:
            self.velocity = {"velocities": "draw", **found}
            return
        for key, value in found.items():
            self._set(f"system.{key}", value)
        if "file" in self.tree.get("system", {}):
            self._set("system.velocities", "draw")

    def _finish_bound(self) -> None:
        for what, given in self.bound.items():
            line = self.lines.get((what, "parameters"), self.number)
            if given and sorted(given) != list(range(1, self.counts.get(what[:-1], 0) + 1)):
                raise ValueError(f"some types of {what} have no {what[:-1]}_coeff")
            if given:
                self._set(f"{what}.parameters", [given[kind] for kind in sorted(given)], line)
        if "bonds" in self.tree:
            line = self.lines["bonds", "kind"]
            self._set("bonds.pair_shares", self.special["lj"], line)
            self._set("bonds.charge_shares", self.special["coul"], line)

    def _finish_particles(self) -> None:
        if self.masses:
            count = max(self.types, max(self.masses))
            missing = [k for k in range(1, count + 1) if k not in self.masses]
            if missing:
                raise ValueError(f"there is no mass of the types {', '.join(map(str, missing))}")
            line = self.lines["system", "masses"]
            self._set("system.masses", [self.masses[k] for k in range(1, count + 1)], line)
        if not {"file", "fractions"} & self.tree.get("system", {}).keys():
            raise ValueError("the script makes no particles: create_box and create_atoms, or read_data")
        if "file" not in self.tree["system"] and "temperature" not in self.tree["system"]:
            self._set("system.temperature", 0.0)

    # ---- forces

    def _pair_style(self, style: str, *rest: str) -> None:
        if style == "hybrid/overlay":
            if len(rest) != 4 or rest[0] != "zbl" or rest[3] != "snap":
                raise ValueError("pair_style hybrid/overlay: known is zbl INNER OUTER snap")
            self._set("interaction.zbl", [float(word) for word in rest[1:3]])
            style, rest = "snap", ()
        whole = style.removesuffix("/opt").removesuffix("/omp")
        name, kind = next(
            ((whole.removesuffix(f"/{end}"), kind) for end, kind in CHARGED.items() if whole.endswith(f"/{end}")),
            (whole, ""),
        )
        charmm = name == "lj/charmm"
        if name not in (*NAMES, *OF_FILES) or (kind and name not in PAIRED) or (charmm and kind != "ewald"):
            plain = [each for each in (*NAMES, *OF_FILES) if each != "lj/charmm"]
            known = [*plain, *(f"lj/cut/{end} and buck/{end}" for end in ("coul/cut", "coul/long"))]
            raise ValueError(f"pair_style {style}: known are {', '.join([*known, 'lj/cut/coul/dsf', FADING])}")
        self.style, self.pairs = [name, *rest], []
        if charmm:
            self._set("interaction.switch", float(rest[0]))
            rest = rest[1:]
        if kind:
            rest = self._charged(kind, rest)
        if name in OF_FILES:
            self._set("interaction.kind", OF_FILES[name])
            return
        self._set("interaction.kind", NAMES[name])
        if name == "table":
            if len(rest) != 2 or rest[0] not in ("spline", "linear"):
                raise ValueError("pair_style table: known are spline N and linear N")
            self._set("interaction.interpolation", rest[0])
            self._set("interaction.points", int(rest[1]))
        else:
            self._set("interaction.cutoff", float(rest[0]))

    def _charged(self, kind: str, words: tuple[str, ...]) -> tuple[str, ...]:
        """The settings of a pair_style with charges; the words that are left for the pair potential."""
        self._set("coulomb.kind", kind)
        if kind == "dsf":
            self._set("coulomb.damping", float(words[0]))
            words = words[1:]
        if kind != "cut":
            self._set("coulomb.erfc", "lammps" if kind == "dsf" else "table")
        if len(words) > 1:
            self._set("coulomb.cutoff", float(words[1]))
        return words[:1]

    def _kspace_style(self, name: str, accuracy: str) -> None:
        if name not in ("ewald", "pppm") or not is_number(accuracy):
            raise ValueError(f"kspace_style {name} {accuracy}: known are ewald and pppm with an accuracy")
        if self.tree.get("coulomb", {}).get("kind") not in ("ewald", "pppm") and "pair_style" not in self.failed:
            raise ValueError("kspace_style must come after a pair_style with coul/long")
        self._set("coulomb.kind", name)
        self._set("coulomb.accuracy", float(accuracy))

    def _kspace_modify(self, *words: str) -> None:
        left, keys = list(words), {"gewald": 1, "order": 1, "mesh": 3, "kmax/ewald": 3}
        while left:
            key = left.pop(0)
            values, left = left[: keys.get(key, 0)], left[keys.get(key, 0) :]
            if key not in keys or len(values) < keys[key]:
                raise ValueError(f"kspace_modify {key}: known are {', '.join(keys)}")
            name = {"gewald": "splitting", "kmax/ewald": "waves"}.get(key, key)
            each: list[Any] = [float(value) if key == "gewald" else int(value) for value in values]
            self._set(f"coulomb.{name}", each if len(each) > 1 else each[0])

    def _pair_modify(self, *words: str) -> None:
        for key, value in zip(words[::2], words[1::2], strict=True):
            if key in ("shift", "tail"):
                self._set(f"interaction.{key}", value == "yes")
            elif key == "mix" and value in ("geometric", "arithmetic"):
                self.modify["mix"] = value
            elif key == "table":
                if int(value) == 0 and self.tree.get("coulomb", {}).get("kind") in ("ewald", "pppm"):
                    self._set("coulomb.erfc", "lammps")
            elif key == "table/disp":
                continue
            else:
                raise ValueError(f"pair_modify {key} {value}: known are shift, tail, mix geometric and arithmetic")

    def _pair_coeff(self, first: str, second: str, *rest: str) -> None:
        if "pair_style" in self.failed:
            return
        if not self.style:
            raise ValueError("pair_coeff must come after pair_style")
        if rest and "zbl" in self.tree["interaction"] and rest[0] in ("zbl", "snap"):
            kind, *words = rest
            if kind == "zbl":
                self._nuclei(first, second, words)
                return
            rest = tuple(words)
        if self.style[0] in OF_FILES:
            self._from_file(first, second, rest)
        else:
            self.pairs.append(Pair(self._types(first), self._types(second), list(rest), self.number))

    def _nuclei(self, first: str, second: str, words: list[str]) -> None:
        """Atomic numbers of two types."""
        if len(words) != 2:
            raise ValueError("pair_coeff of zbl: two types and their atomic numbers")
        for types, word in zip((self._types(first), self._types(second)), words, strict=True):
            self.nuclei |= dict.fromkeys(types, float(word))

    def _from_file(self, first: str, second: str, rest: tuple[str, ...]) -> None:
        if not rest or "file" in self.tree["interaction"]:
            raise ValueError(f"pair_coeff of {self.style[0]}: one file, of eam one of one element here")
        self._set("interaction.file", str(self._file(rest[0])))
        if self.style[0] == "eam":
            return
        if self.style[0] == "snap":
            if len(rest) < 3:
                raise ValueError("pair_coeff of snap: * * FILE.snapcoeff FILE.snapparam and an element for each type")
            self._set("interaction.parameters_file", str(self._file(rest[1])))
            rest = (rest[0], *rest[2:])
        if (first, second) != ("*", "*") or len(rest) < 2 or "NULL" in rest:
            raise ValueError(f"pair_coeff of {self.style[0]}: * * FILE and an element for each type")
        self._set("interaction.elements", list(rest[1:]))

    def _finish_pairs(self) -> None:
        if not self.style:
            raise ValueError("the script has no pair_style")
        name, types = self.style[0], self.types or 1
        if name in OF_FILES:
            if "file" not in self.tree["interaction"]:
                raise ValueError("there is no pair_coeff")
            if "zbl" in self.tree["interaction"]:
                missing = [k for k in range(1, types + 1) if k not in self.nuclei]
                if missing:
                    raise ValueError(f"there is no pair_coeff of zbl for type {', '.join(map(str, missing))}")
                self._set("interaction.nuclei", [self.nuclei[k] for k in range(1, types + 1)])
            return
        coulomb = self.tree.get("coulomb", {})
        if coulomb.get("kind") == "ewald" and "accuracy" not in coulomb:
            raise ValueError("there is no kspace_style for a pair_style with coul/long")
        given: dict[tuple[int, int], Pair] = {}
        for pair in [*self._pairs_of_file(), *self.pairs]:
            given |= {(a, b): pair for a in pair.first for b in pair.second if a <= b}
        missing = [k for k in range(1, types + 1) if (k, k) not in given]
        if missing:
            raise ValueError(f"there is no pair_coeff of {', '.join(f'{k} {k}' for k in missing)}")
        if name in ("lj/cut", "lj/charmm"):
            self._lennard_jones(given, types, name == "lj/charmm")
        elif name == "table":
            self._table(given)
        else:
            self._with_parameters(given, PARAMETERS[name])

    def _pairs_of_file(self) -> list[Pair]:
        """The section Pair Coeffs of the data file."""
        file = self.tree.get("system", {}).get("file")
        if file is None:
            return []
        found: list[Pair] = []
        line = self.lines["system", "file"]
        with Path(file).open(encoding="utf-8", errors="replace") as lines:
            if not any(each.partition("#")[0].strip() == "Pair Coeffs" for each in lines):
                return []
            for each in lines:
                words = each.partition("#")[0].split()
                if words and not (words[0].isdigit() and 1 <= int(words[0]) <= self.types):
                    break
                if words:
                    found.append(Pair(self._types(words[0]), self._types(words[0]), words[1:], line))
                if len(found) == self.types:
                    break
        return found

    def _lennard_jones(self, given: dict[tuple[int, int], Pair], types: int, charmm: bool = False) -> None:
        own = [_numbers(given[k, k], 4 if charmm and len(given[k, k].words) > 2 else 2) for k in range(1, types + 1)]
        line = given[1, 1].line
        if charmm:
            if any(a != b or len(pair.words) not in (2, 4) for (a, b), pair in given.items()):
                raise ValueError("pair_coeff of lj/charmm: one type, with epsilon, sigma, epsilon14, sigma14")
            self._set("interaction.epsilon_14", [each[-2] for each in own], line)
            self._set("interaction.sigma_14", [each[-1] for each in own], line)
        self._set("interaction.epsilon", [each[0] for each in own], line)
        self._set("interaction.sigma", [each[1] for each in own], line)
        rule = self.modify.get("mix", "arithmetic" if charmm else "geometric")
        self._set("interaction.mixing", {"arithmetic": "lorentz_berthelot"}.get(rule, rule), line)
        pairs = []
        for (a, b), pair in sorted(given.items()) if not charmm else ():
            values = _numbers(pair, 2)
            special: dict[str, Any] = {} if a == b else {"epsilon": values[0], "sigma": values[1]}
            special |= {"cutoff": values[2]} if len(values) > 2 else {}
            if special:
                pairs.append({"types": [a, b], **special})
        common = {pair.get("cutoff") for pair in pairs}
        if types == 1 and pairs and common != {None}:
            self._set("interaction.cutoff", pairs[0]["cutoff"], line)
        elif pairs:
            self._set("interaction.pairs", pairs, line)

    def _table(self, given: dict[tuple[int, int], Pair]) -> None:
        files = {pair.words[0] for pair in given.values()}
        if len(files) > 1:
            raise ValueError(f"pair_coeff of table: one file for all pairs here, not {', '.join(sorted(files))}")
        first = given[1, 1]
        self._set("interaction.file", str(self._file(first.words[0])), first.line)
        self._set("interaction.keyword", first.words[1], first.line)
        if any(len(pair.words) < 3 for pair in given.values()):
            raise ValueError("pair_coeff of table: FILE KEYWORD CUTOFF")
        self._set("interaction.cutoff", float(first.words[2]), first.line)
        pairs = [
            {"types": list(key), "keyword": pair.words[1], "cutoff": float(pair.words[2])}
            for key, pair in sorted(given.items())
        ]
        if len(pairs) > 1:
            self._set("interaction.pairs", pairs, first.line)

    def _with_parameters(self, given: dict[tuple[int, int], Pair], count: int) -> None:
        pairs = []
        for key, pair in sorted(given.items()):
            values = _numbers(pair, count)
            more = {"cutoff": values[count]} if len(values) > count else {}
            pairs.append({"types": list(key), "parameters": values[:count], **more})
        self._set("interaction.parameters", pairs[0]["parameters"], given[1, 1].line)
        self._set("interaction.pairs", pairs, given[1, 1].line)

    # ---- lists, motion, output

    def _neighbor(self, skin: str, style: str = "bin") -> None:
        self._set("neighbors.skin", float(skin))

    def _neigh_modify(self, *words: str) -> None:
        for key, value in zip(words[::2], words[1::2], strict=True):
            if key in ("every", "delay"):
                self._set(f"neighbors.{key}", int(value))
            elif key == "check":
                self._set("neighbors.check", value == "yes")
            elif key not in ("one", "page", "cluster", "binsize"):
                raise ValueError(f"neigh_modify {key}: known are every, delay, check, one and page")

    def _timestep(self, dt: str) -> None:
        self.pending["time.dt"] = float(dt)

    def _run_style(self, style: str, *words: str) -> None:
        if style == "verlet" and not words:
            self.inner = 1
            return
        levels = dict(zip(words[2::2], words[3::2], strict=False))
        inner = {name: levels.get(name, levels.get("bond", "1")) for name in ("bond", "angle", "dihedral", "improper")}
        outer = {name: levels.get(name, "2") for name in ("pair", "kspace")}
        known = {*inner, *outer}
        sound = style == "respa" and len(words) >= 2 and len(words) % 2 == 0 and words[0] == "2" and words[1].isdigit()
        if not sound or {*levels} - known or {*inner.values()} != {"1"} or {*outer.values()} != {"2"}:
            raise ValueError(
                f"run_style {style} {' '.join(words)}: known are verlet, and respa 2 N with bond, angle, dihedral and"
                " improper 1, pair and kspace 2"
            )
        self.inner = max(1, int(words[1]))

    def _thermo(self, every: str) -> None:
        self.pending["time.thermo"] = max(1, int(every))

    def _fix(self, name: str, group: str, style: str, *rest: str) -> None:
        if style.startswith(MEASURES):
            self.notes[f"line {self.number}: fix {style} is passed over: see the section analysis"] = None
            return
        if group != "all":
            raise ValueError(f"fix {name} {group} {style}: known is the group all")
        require_known(name, style, list(rest))
        if style == "deform" and any(each.words[0] == style for key, each in self.fixes.items() if key != name):
            raise ValueError("fix deform comes twice: give all edges and tilts in one")
        self.fixed += 1
        self.fixes[name] = Fix(self.number, [style, *rest], self.fixed)

    def _unfix(self, name: str) -> None:
        self.fixes.pop(name, None)

    def _dump(self, name: str, group: str, style: str, every: str, file: str, *rest: str) -> None:
        if group != "all" or style not in ("atom", "custom"):
            raise ValueError(f"dump {name} {group} {style}: known are atom and custom of the group all")
        self.pending["output.every"] = int(every)
        self._set("output.format", "dump")
        self.notes[f"line {self.number}: the dump is output/ in the run directory"] = None

    def _undump(self, name: str) -> None:
        self.pending["output.every"] = 0

    def _min_style(self, name: str) -> None:
        if name != "fire":
            self.notes[f"line {self.number}: min_style {name}: hpckit goes down by fire"] = None

    def _minimize(self, energy: str, force: str, steps: str, evaluations: str) -> None:
        if float(energy):
            self.notes[f"line {self.number}: minimize ends by the largest force alone, not by energies"] = None
        least = float(force) or SMALLEST_FORCE[self.units]
        settings = {"dynamics.kind": "fire", "dynamics.largest_force": least}
        self._add_stage(min(int(steps), int(evaluations)), settings, {})

    def _run(self, steps: str, *rest: str) -> None:
        options = dict(zip(rest[::2], rest[1::2], strict=False))
        if len(rest) % 2 or not options.keys() <= {"pre", "post"}:
            raise ValueError(f"run {steps} {' '.join(rest)}: known are a number of steps, pre and post")
        if int(steps) < 0:
            raise ValueError(f"run {steps}: fewer than 0 steps")
        settings = {"dynamics.inner": self.inner} if self.inner > 1 else {}
        self._add_stage(int(steps), settings, dict(self.fixes))

    def _add_stage(self, steps: int, settings: dict[str, Any], fixes: dict[str, Fix]) -> None:
        """A run, or a minimize, with what was said before it."""
        last = self.stages[-1] if self.stages else None
        same = last is not None and last.fixes == fixes and last.settings.get("dynamics.inner", 1) == self.inner
        if last and same and last.goes_on and not self.pending and not self.velocity:
            last.steps += steps
            return
        lines, minimizes = dict.fromkeys(settings, self.number), "dynamics.kind" in settings
        given = self.fixes if minimizes else fixes  # fix box/relax acts in a minimize
        for key, value, line in motion_of(given, minimizes, self._unit) if "fix" not in self.failed else ():
            settings[key], lines[key] = value, line
        self.stages.append(ScriptStage(self.number, steps, settings | self.pending, lines, self.velocity, fixes))
        self.pending, self.velocity = {}, {}

    @property
    def dt(self) -> float:
        """The time step that a run would have now."""
        steps = (each.settings["time.dt"] for each in reversed(self.stages) if "time.dt" in each.settings)
        return float(self.pending.get("time.dt", next(steps, DEFAULT_STEP[self.units])))

    @property
    def _unit(self) -> float:
        """The length of a lattice cell, or 1 without a lattice."""
        return self._edge() if self.lattice else 1.0

    def _finish_motion(self) -> None:
        if not self.stages:
            raise ValueError("the script has no run, and no minimize")
        if "skin" not in self.tree.get("neighbors", {}):
            self._set("neighbors.skin", DEFAULT_SKIN[self.units])
        first, *others = self.stages
        self._set("time.steps", first.steps, first.line)
        self._set("time.thermo", first.settings.pop("time.thermo", max(1, first.steps)), first.line)
        self._set("time.dt", first.settings.pop("time.dt", DEFAULT_STEP[self.units]), first.line)
        for key, value in first.settings.items():
            self._set(key, value, first.lines.get(key, first.line))
        before, movers, stages = _sections(first.settings), first.movers, list[dict[str, Any]]()
        for stage in others:
            before["deform"].pop("start", None)
            now = _sections(stage.settings)
            for name in ("time.dt", "time.thermo", "output.every"):
                if name in stage.settings:
                    now[name.split(".")[1]] = stage.settings[name]
            entry = {"steps": stage.steps, **stage.velocity}
            anew = bool(stage.fixes) and stage.movers != movers
            again = anew or any("ramp_to" in now[name] for name in ("dynamics", "barostat"))
            for name, value in now.items():
                if name not in ANEW or value != before[name] or (again and name in ("dynamics", "barostat")):
                    entry[name] = value
            if stage.movers and not anew and entry.keys() & {"dynamics", "barostat"}:
                entry["goes_on"] = True
            stages.append(entry)
            self.lines["stages", len(stages) - 1] = stage.line
            before, movers = {name: now[name] for name in ANEW}, stage.movers if stage.fixes else movers
        if stages:
            self._set("stages", stages, others[0].line)


def _sections(settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings of the sections that a stage may have anew."""
    found: dict[str, dict[str, Any]] = {name: {} for name in ANEW}
    for key, value in settings.items():
        section, _, name = key.partition(".")
        if section in found:
            found[section][name] = value
    return found


KNOWN = (
    *(
        "atom_style",
        "boundary",
        "change_box",
        "compute",
        "group",
        "special_bonds",
        *(f"{what[:-1]}_{end}" for what in BOUND for end in ENDS),
    ),
    *("create_atoms", "create_box", "dimension", "dump", "fix", "lattice", "mass"),
    *(
        "kspace_modify",
        "kspace_style",
        "min_style",
        "minimize",
        "neigh_modify",
        "neighbor",
        "pair_coeff",
        "pair_modify",
        "pair_style",
        "processors",
        "read_data",
        "region",
        "replicate",
    ),
    *("run", "run_style", "thermo", "timestep", "undump", "unfix", "units", "velocity"),
)


def _numbers(pair: Pair, least: int) -> list[float]:
    try:
        values = [float(word) for word in pair.words]
    except ValueError:
        values = []
    if not least <= len(values) <= least + 1:
        raise ValueError(f"pair_coeff of line {pair.line}: expected {least} numbers, and a cutoff or none")
    return values
