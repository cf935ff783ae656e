"""The commands that say which particles there are: units, lattice, box, files, types, masses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from hpckit.apps.md.lammps.state import SITES, ScriptState

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
MAKERS = {"region", "lattice", "create_box", "create_atoms", "read_data", "read_restart"}  # of particles and types
ENDLESS = {"INF": math.inf, "EDGE": math.inf}  # ends of regions
HEAD = 60  # lines of a data file in which its numbers of types are
WHOLE = 1e-9  # of a lattice cell: what counts as a whole number of them


class ParticleCommands:
    """Which particles there are, and in which box."""

    def __init__(self, script: ScriptState) -> None:
        self.script = script
        self.regions: dict[str, list[float]] = {}
        self.box = ""  # the region that it is
        self.groups = {"all"}
        self.masses: dict[int, float] = {}
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
            "group": self._group,
            "compute": self._compute,
            "read_data": self._read_data,
            "replicate": self._replicate,
            "mass": self._mass,
        }

    def finish(self) -> None:
        """Set the masses; raises `ValueError` where there are no particles."""
        if self.masses:
            count = max(self.script.types, max(self.masses))
            missing = [k for k in range(1, count + 1) if k not in self.masses]
            if missing:
                raise ValueError(f"there is no mass of the types {', '.join(map(str, missing))}")
            line = self.script.lines["system", "masses"]
            self.script.set("system.masses", [self.masses[k] for k in range(1, count + 1)], line)
        if not {"file", "fractions"} & self.script.section("system").keys():
            raise ValueError("the script makes no particles: create_box and create_atoms, or read_data")
        if "file" not in self.script.tree["system"] and "temperature" not in self.script.tree["system"]:
            self.script.set("system.temperature", 0.0)

    def _units(self, name: str) -> None:
        if name not in UNITS:
            raise ValueError(f"units {name}: known are {', '.join(UNITS)}")
        self.script.units = name
        self.script.set("system.units", name)

    def _dimension(self, number: str) -> None:
        if number != "3":
            raise ValueError("dimension 2: particles move in three dims here")

    def _atom_style(self, name: str, *rest: str) -> None:
        if rest or name not in ATOM_STYLES:
            raise ValueError(f"atom_style {name}: known are {', '.join(ATOM_STYLES)}")
        if name != "atomic":
            self.script.set("system.style", name)

    def _boundary(self, x: str, y: str, z: str) -> None:
        # Ends that follow the particles change the volume, which nothing but the pressure shows.
        ends = {*"fsm"} if self.script.section("system").get("style") == "sphere" else {"f"}
        if any(each != "p" and not (1 <= len(each) <= 2 and {*each} <= ends) for each in (x, y, z)):
            raise ValueError(f"boundary {x} {y} {z}: known are p and f, and s and m after atom_style sphere")
        self.script.set("system.periodic", [axis for axis, each in zip("xyz", (x, y, z), strict=True) if each == "p"])

    def _processors(self, *words: str) -> None:
        for axis, word in zip("xyz", words, strict=False):
            self.script.set(f"ranks.{axis}", 0 if word == "*" else int(word))

    def _lattice(self, name: str, scale: str, *rest: str) -> None:
        if rest or name not in SITES:
            raise ValueError(f"lattice {name} {' '.join(rest)}: known are {', '.join(SITES)}, with a scale alone")
        self.script.lattice = name, float(scale)
        self.script.set("system.lattice", name)
        self.script.set("system.density" if self.script.units == "lj" else "system.edge", float(scale))

    def _region(self, name: str, style: str, *rest: str) -> None:
        count = {"block": 6, "prism": 9}.get(style, 0)
        ends, options = rest[:count], rest[count:]
        if not count or len(ends) < count or options not in ((), ("units", "box"), ("units", "lattice")):
            known = "known are block with six numbers and prism with nine"
            raise ValueError(f"region {name} {style} {' '.join(rest)}: {known}")
        if "lattice" in self.script.failed:
            return
        edge = self.script.edge if options != ("units", "box") and self.script.lattice else 1.0
        self.regions[name] = [ENDLESS[end] if end in ENDLESS else float(end) * edge for end in ends]

    def _create_box(self, types: str, region: str) -> None:
        if {"region", "lattice"} & self.script.failed:
            return
        if region not in self.regions:
            raise ValueError(f"create_box {types} {region}: there is no such region")
        self.script.types, self.box = int(types), region
        box, edge = self.regions[region][:6], self.script.edge
        cells = [(high - low) / edge for low, high in zip(box[::2], box[1::2], strict=True)]
        if any(box[::2]) or any(n < 0.5 or not math.isfinite(n) or abs(n - round(n)) > WHOLE * n for n in cells):
            raise ValueError("create_box: the box begins at 0 and holds a whole number of lattice cells here")
        self.script.set("system.cells", [round(n) for n in cells])
        if any(self.regions[region][6:]):
            self.script.set("system.tilt", self.regions[region][6:])

    def _create_atoms(self, kind: str, style: str, *rest: str) -> None:
        if {"lattice", "region", "create_box"} & self.script.failed:
            return
        whole = (style, *rest) == ("box",) or (style == "region" and len(rest) == 1 and self._is_box(rest[0]))
        if not whole or "cells" not in self.script.section("system"):
            known = "known are box, and the region of create_box, after it"
            raise ValueError(f"create_atoms {kind} {style} {' '.join(rest)}: {known}")
        if not 1 <= int(kind) <= self.script.types:
            raise ValueError(f"create_atoms {kind}: there are {self.script.types} types")
        self.script.set("system.fractions", [float(k + 1 == int(kind)) for k in range(self.script.types)])

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
        self._make_of_types(name, style, rest)
        self.script.note("group is passed over, but by fixes of spheres")

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
        self.script.note(f"compute {style} is passed over: see the section analysis")

    def _require_groups(self, what: str, names: Iterable[str]) -> None:
        missing = [name for name in names if name not in self.groups]
        if missing and "group" not in self.script.failed:
            raise ValueError(f"{what}: there is no group {', '.join(missing)}")

    def _read_data(self, file: str, *rest: str) -> None:
        if rest:
            raise ValueError(f"read_data {file} {' '.join(rest)}: known is a file alone")
        path = self.script.file(file)
        self.script.set("system.file", str(path))
        try:
            with path.open(encoding="utf-8", errors="replace") as lines:
                head = [line.split() for _, line in zip(range(HEAD), lines, strict=False)]
        except OSError as error:
            raise ValueError(f"read_data {file}: {path} cannot be read: {error.strerror}") from None
        for words in head:
            if words[1:3] == ["atom", "types"]:
                self.script.types = int(words[0])
            elif words[2:3] == ["types"]:
                self.script.counts[words[1]] = int(words[0])
        if not self.script.types:
            raise ValueError(f"read_data {file}: its first {HEAD} lines have no `N atom types`")

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
            self.masses[each] = float(mass)
        self.script.lines["system", "masses"] = self.script.number


def _names(word: str, kind: int) -> bool:
    """Whether 2, *, 2*, *3 or 2*3 names a type."""
    low, star, high = word.partition("*")
    return int(low or 0) <= kind <= int(high or kind) if star else int(word) == kind
