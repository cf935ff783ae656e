"""The commands that say which particles there are: units, lattice, box, files, types, masses."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from hpckit.apps.md.lammps.making.lattices import ENDS, Lattice
from hpckit.apps.md.lammps.making.made import Made
from hpckit.apps.md.lammps.state import ScriptState
from hpckit.apps.md.settings.table import Kind
from hpckit.io.particles.lammps_data import read_lammps_data
from hpckit.plan.particles.snapshot import BOUND

UNITS = ("lj", "metal", "real")
ATOM_STYLES = ("atomic", "charge", "bond", "angle", "molecular", "full", "sphere")
GROUPS = {  # their styles, and the words that follow at least
    **dict.fromkeys(("region", "type", "id", "molecule", "include", "union", "intersect", "dynamic", "variable"), 1),
    **dict.fromkeys(("delete", "clear", "empty", "static"), 0),
    "subtract": 2,
}
MEASURED = """
ackland/atom adf aggregate/atom angle angle/local angmom/chunk basal/atom bond bond/local born/matrix
centro/atom centroid/stress/atom chunk/atom chunk/spread/atom cluster/atom cna/atom cnp/atom com com/chunk
composition/atom coord/atom count/type dihedral dihedral/local dipole dipole/chunk displace/atom entropy/atom
erotate/rigid erotate/sphere event/displace fabric fragment/atom global/atom group/group gyration gyration/chunk
gyration/shape gyration/shape/chunk heat/flux hexorder/atom improper improper/local inertia/chunk ke ke/atom
ke/rigid momentum msd msd/chunk msd/nongauss nbond/atom omega/chunk orientorder/atom pair pair/local pe
pe/atom pressure pressure/cylinder property/atom property/chunk property/grid property/local rattlers/atom rdf
reduce reduce/chunk reduce/region rigid/local saed slice sna/atom sna/grid snad/atom snap snav/atom
stress/atom stress/cartesian stress/cylinder stress/mop stress/mop/profile stress/spherical temp temp/chunk
temp/com temp/deform temp/partial temp/profile temp/ramp temp/region temp/rotate ti torque/chunk vacf
vacf/chunk vcm/chunk viscosity/cos voronoi/atom xrd
"""  # styles of compute for particles as hpckit has them
OF_PARTS = ("temp/partial", "temp/region", "reduce/region", "chunk/atom")  # known beside the kinds of the table
MAKERS = {"region", "lattice", "create_box", "create_atoms", "read_data", "read_restart"}  # of particles and types
PLAIN = ("sc", "bcc", "fcc", "diamond")  # lattices that settings have
FROM_SCRIPT = ("lattice", "density", "edge", "cells", "tilt", "fractions")  # what its particles stand for
ROOM = r"( ?extra/(bond|angle|dihedral|improper|special)/per/atom \d+)*"  # in arrays of LAMMPS
HEAD = 60  # lines of a data file in which its numbers of types are
WHOLE = 1e-9  # of a lattice cell: what counts as a whole number of them


class ParticleCommands:
    """Which particles there are, and in which box."""

    def __init__(self, script: ScriptState) -> None:
        self.script = script
        self.boundary = ["p", "p", "p"]
        self.groups = {"all"}
        self.file_count = 0  # particles in a data file
        self.read = list[tuple[float, float]]()  # ends of the box of a data file
        self.commands: dict[str, Callable[..., None]] = {
            "units": self._units,
            "dimension": self._dimension,
            "atom_style": self._atom_style,
            "boundary": self._boundary,
            "processors": self._processors,
            "lattice": self._lattice,
            "region": self._region,
            "create_box": self._create_box,
            "create_atoms": self._create_atoms,
            "set": self._set,
            "displace_atoms": self._displace_atoms,
            "delete_atoms": self._delete_atoms,
            "reset_atoms": self._reset_atoms,
            "group": self._group,
            "compute": self._compute,
            "read_data": self._read_data,
            "replicate": self._replicate,
            "mass": self._mass,
        }

    def finish(self) -> None:
        """Set the masses; raises `ValueError` where there are no particles."""
        if masses := self.script.masses:
            count, file = max(self.script.types, max(masses)), self.script.section("system").get("file")
            if file and len(masses) < count:  # the others are those of the data file
                given = read_lammps_data(file, self.script.section("system").get("style")).masses
                masses = {**dict(enumerate([] if given is None else given.tolist(), 1)), **masses}
            missing = [k for k in range(1, count + 1) if k not in masses]
            if missing:
                raise ValueError(f"there is no mass of the types {', '.join(map(str, missing))}")
            line = self.script.lines["system", "masses"]
            self.script.set("system.masses", [masses[k] for k in range(1, count + 1)], line)
        if self.script.made or self.script.moved:
            self._take_script()
        if self.script.charges and self.script.section("coulomb"):
            missing = {*range(1, self.script.types + 1)} - self.script.charges.keys()
            if missing:
                raise ValueError(f"set … charge: known of all types, not without {sorted(missing)}")
            charges = [self.script.charges[kind] for kind in range(1, self.script.types + 1)]
            self.script.set("coulomb.charges", charges, self.script.lines["coulomb", "charges"])
        if self.script.named:
            self.script.set("groups", [self._group_of(name) for name in self.script.named])
        if not {"file", "fractions"} & self.script.section("system").keys():
            raise ValueError("the script makes no particles: create_box and create_atoms, or read_data")
        if "file" not in self.script.tree["system"] and "temperature" not in self.script.tree["system"]:
            self.script.set("system.temperature", 0.0)

    def choose(self, name: str) -> None:
        """Note a group on which something acts. Raises `ValueError` for one that hpckit cannot know."""
        script = self.script
        if name in ("all", *script.named) or {"group", "region", *MAKERS} & script.failed:
            return
        self._require_groups("group", [name])
        if name in script.late:
            raise ValueError(f"group {name}: known here are groups of regions, types, ids and molecules before a run")
        script.named.append(name)
        if "file" not in script.section("system") and name not in script.kinds:
            script.made = True

    def _group_of(self, name: str) -> dict[str, Any]:
        """The settings of a group."""
        script, system = self.script, self.script.section("system")
        if system.get("file") == str(script.path.resolve()):
            return {"name": name}
        if name in script.kinds:
            return {"name": name, "types": sorted(script.kinds[name])}
        file = read_lammps_data(system["file"], system.get("style"))
        x, y, z = (axis in system.get("periodic", ["x", "y", "z"]) for axis in "xyz")
        file = replace(file, periodic=(x, y, z)).replicated(tuple(system.get("replicate", (1, 1, 1))))
        made = script.making.grouped(Made.of_file(file))
        return {"name": name, "ids": _ranges(np.sort(made.ids[made.groups[name]]))}

    def _take_script(self) -> None:
        """The particles that the script makes are more than settings say: take them from the script itself."""
        system, line = self.script.section("system"), self.script.lines.get(("system", "lattice"), self.script.number)
        if "file" in system:
            self._require_plain_file("what changes particles")
            if not self.script.masses:
                masses = read_lammps_data(system["file"], system.get("style")).masses
                if masses is None:
                    raise ValueError(f"there are no masses, neither here nor in {system['file']}")
                self.script.set("system.masses", masses.tolist(), self.script.lines["system", "file"])
        drawn = "temperature" in system and not self.script.moved
        for name in (*FROM_SCRIPT, *(() if drawn else ("temperature", "seed", "draw", "remove", "all_freedom"))):
            system.pop(name, None)
        self.script.set("system.file", str(self.script.path.resolve()), line)
        self.script.set("system.velocities", "draw" if drawn else "file", line)

    def _units(self, name: str) -> None:
        if name not in UNITS:
            raise ValueError(f"units {name}: known are {', '.join(UNITS)}")
        self.script.units = name
        self.script.set("system.units", name)

    def _dimension(self, number: str) -> None:
        if number not in ("2", "3"):
            raise ValueError(f"dimension {number}: known are 2 and 3")
        if number == "2":
            self.script.set("system.dims", 2)
            self._boundary(*self.boundary)

    @property
    def _dims(self) -> int:
        return int(self.script.section("system").get("dims", 3))

    def _atom_style(self, name: str, *rest: str) -> None:
        if rest or name not in ATOM_STYLES:
            raise ValueError(f"atom_style {name}: known are {', '.join(ATOM_STYLES)}")
        if name != "atomic":
            self.script.set("system.style", name)

    def _boundary(self, x: str, y: str, z: str) -> None:
        # Ends that follow the particles change the volume, which nothing but the pressure shows: not that of spheres.
        spheres = self.script.section("system").get("style") == "sphere"
        known = {*"fsm"} if spheres else {"f"}
        given = dict(zip("xyz", (x, y, z), strict=True))
        if any(each not in ("p", "s") and not (1 <= len(each) <= 2 and {*each} <= known) for each in given.values()):
            raise ValueError(f"boundary {x} {y} {z}: known are p, f and s, and m after atom_style sphere")
        self.boundary = [x, y, z]
        wraps = [axis for axis, each in given.items() if each == "p" and axis in "xyz"[: self._dims]]
        if len(wraps) < 3 or "periodic" in self.script.section("system"):
            self.script.set("system.periodic", wraps)
        if "s" in given.values() and not spheres:
            self.script.set("system.follows", [axis for axis, each in given.items() if each == "s"])

    def _processors(self, *words: str) -> None:
        for axis, word in zip("xyz", words, strict=False):
            self.script.set(f"ranks.{axis}", 0 if word == "*" else int(word))

    def _lattice(self, name: str, scale: str, *rest: str) -> None:
        self.script.making.lattice = Lattice.of((name, scale, *rest), self.script.units == "lj", self._dims)
        if rest or name not in PLAIN or self.script.section("system").get("follows"):
            self.script.made = True
        self.script.set("system.lattice", name)
        self.script.set("system.density" if self.script.units == "lj" else "system.edge", float(scale))

    def _region(self, name: str, style: str, *rest: str) -> None:
        self.script.making.region(name, [style, *rest])

    def _create_box(self, types: str, region: str) -> None:
        if {"region", "lattice"} & self.script.failed:
            return
        making = self.script.making
        if region not in making.blocks:
            raise ValueError(f"create_box {types} {region}: there is no such region of style block or prism")
        if making.box:
            raise ValueError(f"create_box {types} {region}: there is a box already")
        self.script.types, making.box = int(types), region
        box, tilt = making.blocks[region][:6], making.blocks[region][6:]
        if any(not -ENDS < low < high < ENDS for low, high in zip(box[::2], box[1::2], strict=True)):
            raise ValueError(f"create_box {types} {region}: give the box ends along x, y and z")
        follow = tuple({*each} & {*"sm"} != set() for each in self.boundary)
        making.add(self.script.number, "create_box", making.create_box(region, follow))
        edge = self._edge
        cells = [(high - low) / edge if edge else 0.0 for low, high in zip(box[::2], box[1::2], strict=True)]
        if any(box[::2]) or any(follow) or any(n < 0.5 or abs(n - round(n)) > WHOLE * n for n in cells):
            self.script.made = True
            return
        self.script.set("system.cells", [round(n) for n in cells])
        if any(tilt):
            self.script.set("system.tilt", tilt)

    @property
    def _edge(self) -> float:
        """The length of the cells of a lattice that settings have, else 0."""
        return 0.0 if self.script.made or self.script.making.lattice is None else self.script.unit

    def _create_atoms(self, kind: str, style: str, *rest: str) -> None:
        if {"lattice", "region", "create_box"} & self.script.failed:
            return
        making, system = self.script.making, self.script.section("system")
        if not making.box:
            if "file" not in system:
                raise ValueError(f"create_atoms {kind} {style} {' '.join(rest)}: create_box must come first")
            self._require_plain_file(f"create_atoms {kind} {style}")
            self.script.made = True
        making.add(self.script.number, "create_atoms", making.create_atoms([kind, style, *rest]))
        if not 1 <= int(kind) <= self.script.types:
            raise ValueError(f"create_atoms {kind}: there are {self.script.types} types")
        whole = (style, *rest) == ("box",) or (style == "region" and len(rest) == 1 and self._is_box(rest[0]))
        if not whole or "cells" not in system or "fractions" in system:
            self.script.made = True
        if "file" not in system:
            self.script.set("system.fractions", [float(k + 1 == int(kind)) for k in range(self.script.types)])

    def _is_box(self, region: str) -> bool:
        """Whether a region is the whole box."""
        blocks = self.script.making.blocks
        return blocks.get(region) == blocks.get(self.script.making.box, [])

    def _set(self, *words: str) -> None:
        if words[:1] == ("type",) and words[2:3] == ("charge",) and len(words) == 4:
            self.script.charges |= dict.fromkeys(self.script.types_of(words[1]), float(words[3]))
            self.script.lines["coulomb", "charges"] = self.script.number
            return
        self._change("set", self.script.making.set_types, words)

    def _displace_atoms(self, *words: str) -> None:
        self._change("displace_atoms", self.script.making.displace_atoms, words)

    def _delete_atoms(self, *words: str) -> None:
        self._change("delete_atoms", self.script.making.delete_atoms, words)

    def _change(self, name: str, read: Callable[[list[str]], Any], words: tuple[str, ...]) -> None:
        """A command that changes particles that are there."""
        if MAKERS & self.script.failed or "group" in self.script.failed:
            return
        if "file" in self.script.section("system"):
            self._require_plain_file(f"{name} {' '.join(words)}")
        if words[0] in ("group", "overlap") or name == "displace_atoms":
            named = {"group": words[1:2], "overlap": words[2:4]}.get(words[0], words[:1])
            self._require_groups(name, named)
        self.script.making.add(self.script.number, name, read([*words]))
        self.script.made = True

    def _require_plain_file(self, what: str) -> None:
        """Raise `ValueError` for a data file whose particles are more than places, types and velocities."""
        system = self.script.section("system")
        if "style" in system or "replicate" in system:
            raise ValueError(f"{what}: known after read_data of atom_style atomic, without replicate: change the file")

    def _reset_atoms(self, *words: str) -> None:
        self._change("reset_atoms", self.script.making.reset_atoms, words)

    def _group(self, name: str, style: str, *rest: str) -> None:
        """Groups are for what measures: nothing here moves a part of the particles in its own way."""
        if style not in GROUPS or len(rest) < GROUPS[style]:
            raise ValueError(f"group {name} {style} {' '.join(rest)}: known are {', '.join(GROUPS)}, with their words")
        self._require_groups("group", rest if style in ("subtract", "union", "intersect") else ())
        if style == "delete":
            self.groups.discard(name)
        else:
            self.groups.add(name)
        self._make_of_types(name, style, rest)
        script = self.script
        if script.started and (style in ("region", "delete", "clear") or script.late & {*rest}):
            script.late.add(name)
        step = script.making.group(name, style, [*rest])
        if step is not None:
            script.making.add(script.number, "group", step)
        elif style != "delete":
            script.late.add(name)
            script.note(f"group {style} is for what measures alone")

    def _make_of_types(self, name: str, style: str, words: tuple[str, ...]) -> None:
        """Note the types that a group is made of, where it is made of types."""
        script, given = self.script, [self.script.kinds_of(word) for word in words]
        script.kinds.pop(name, None)
        if style == "type" and all(word.replace("*", "").isdigit() or word == "*" for word in words):
            script.kinds[name] = {
                kind for kind in range(1, script.types + 1) if any(_names(word, kind) for word in words)
            }
        elif style in ("subtract", "union", "intersect") and None not in given:
            first, *others = [each or set() for each in given]
            for each in others:
                first = first - each if style == "subtract" else first | each if style == "union" else first & each
            script.kinds[name] = first

    def _compute(self, name: str, group: str, style: str, *rest: str) -> None:
        self._require_groups(f"compute {name} {style}", (group,))
        if style.removesuffix("/omp").removesuffix("/kk") not in MEASURED.split():
            raise ValueError(
                f"compute {name} {group} {style}: LAMMPS has no such compute, or not of atoms and molecules"
            )
        self.script.computes[name] = group, style, *rest
        if style.removesuffix("/omp").removesuffix("/kk") not in (*get_args(Kind), *OF_PARTS):
            self.script.note(f"compute {style} is passed over: see the section analysis")

    def count(self) -> int:
        """How many particles there are so far. Raises `ValueError` where nobody knows yet."""
        system, periodic = self.script.section("system"), [each == "p" for each in self.boundary]
        if "file" in system and not self.script.made:
            if not self.file_count:
                raise ValueError("how many particles a file has is known from its head alone")
            return self.file_count * math.prod(system.get("replicate", (1, 1, 1)))
        x, y, z = periodic
        made = Made((x, y, z), np.ones(max(self.script.types, 1)), 1.0, dims=int(system.get("dims", 3)))
        for _, what, step in self.script.making.steps:
            if what != "velocity":
                step(made)
        return len(made.types)

    def _require_groups(self, what: str, names: Iterable[str]) -> None:
        missing = [name for name in names if name not in self.groups]
        if missing and "group" not in self.script.failed:
            raise ValueError(f"{what}: there is no group {', '.join(missing)}")

    def _read_data(self, file: str, *rest: str) -> None:
        more = " ".join(word for word in rest if word != "nocoeff")
        if not re.fullmatch(ROOM, more):
            raise ValueError(f"read_data {file} {' '.join(rest)}: known are a file, nocoeff, and extra/WHAT/per/atom N")
        path = self.script.file(file)
        self.script.data_file = str(path)
        self.script.set("system.file", self.script.data_file)
        try:
            with path.open(encoding="utf-8", errors="replace") as lines:
                head = [line.split() for _, line in zip(range(HEAD), lines, strict=False)]
        except OSError as error:
            raise ValueError(f"read_data {file}: {path} cannot be read: {error.strerror}") from None
        self.script.bound = {words[1]: int(words[0]) for words in head if len(words) == 2 and words[1] in BOUND}
        self.read = [(float(words[0]), float(words[1])) for words in head if words[2:3] in (["xlo"], ["ylo"], ["zlo"])]
        for words in head:
            if words[1:] == ["atoms"]:
                self.file_count = int(words[0])
            if words[1:3] == ["atom", "types"]:
                self.script.types = int(words[0])
            elif words[2:3] == ["types"]:
                self.script.counts[words[1]] = int(words[0])
        self.script.making.add(self.script.number, "read_data", self.script.making.read_data(path))
        if not self.script.types:
            raise ValueError(f"read_data {file}: its first {HEAD} lines have no `N atom types`")

    def ends(self) -> list[tuple[float, float]]:
        """The ends of the box along x, y and z before its first change, where they are known; else nothing."""
        script, making = self.script, self.script.making
        if making.box:
            box = making.blocks[making.box]
            return [*zip(box[:6:2], box[1:6:2], strict=True)]
        return [] if "replicate" in script.section("system") or len(self.read) < 3 else self.read

    def _replicate(self, *words: str) -> None:
        if len(words) != 3 or not all(word.isdigit() and int(word) for word in words):
            raise ValueError(f"replicate {' '.join(words)}: known are three whole numbers")
        if "read_data" in self.script.failed:
            return
        if "file" not in self.script.section("system"):
            raise ValueError("replicate must come after read_data; for a lattice, make the region larger")
        before = self.script.tree["system"].get("replicate", [1, 1, 1])
        self.script.set("system.replicate", [old * int(word) for old, word in zip(before, words, strict=True)])

    def _mass(self, kind: str, mass: str) -> None:
        for each in self.script.types_of(kind):
            self.script.masses[each] = float(mass)
        self.script.lines["system", "masses"] = self.script.number


def _ranges(ids: np.ndarray) -> list[str]:
    """Numbers in order as those of settings: 7, 10:20."""
    parts = np.split(ids, np.flatnonzero(np.diff(ids) != 1) + 1)
    return [f"{part[0]}" if len(part) == 1 else f"{part[0]}:{part[-1]}" for part in parts if len(part)]


def _names(word: str, kind: int) -> bool:
    """Whether 2, *, 2*, *3 or 2*3 names a type."""
    low, star, high = word.partition("*")
    return int(low or 0) <= kind <= int(high or kind) if star else int(word) == kind
