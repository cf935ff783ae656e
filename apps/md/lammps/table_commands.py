"""The commands of the thermo table: its columns, and which temperature and norm it has."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import PurePath
from typing import Any, get_args

from pydantic import ValidationError

from hpckit.apps.md.lammps.fixes.commands import FixCommands
from hpckit.apps.md.lammps.fixes.corrections import is_counted
from hpckit.apps.md.lammps.particles import ParticleCommands
from hpckit.apps.md.lammps.state import ScriptState
from hpckit.apps.md.settings.averages import Average, Correlation, Histogram, Profile, Sampled
from hpckit.apps.md.settings.formulas import is_number, names_in
from hpckit.apps.md.settings.interaction import NOT_OF_PAIRS
from hpckit.apps.md.settings.table import (
    COMPUTED,
    FROM_START,
    LENGTHS,
    OF_EACH,
    OF_PAIRS,
    Computed,
    Reduction,
    Table,
    group_value,
)

AXES = ("x", "y", "z")
REDUCTIONS = get_args(Reduction)
# Words after the values of fixes that take samples, and how many follow each.
FILES = {"file": 1, "append": 1, "overwrite": 0, "format": 1, "title1": 1, "title2": 1, "title3": 1}
OF_SAMPLES = {
    "ave/time": {"mode": 1, "start": 1, "ave": 1, **FILES},
    "ave/chunk": {"norm": 1, "ave": 1, **FILES},
    "ave/correlate": {"type": 1, "ave": 1, "start": 1, "prefactor": 1, **FILES},
    "ave/histo": {"mode": 1, "kind": 1, "ave": 1, "start": 1, "beyond": 1, **FILES},
    "vector": {},
}
OF_BINS = {"ids": "every", "nchunk": "every", "discard": "mixed", "compress": "no", "pbc": "no"}  # as they are here
# Of others an Average is made.
MADE: dict[str, type[Sampled]] = {"ave/chunk": Profile, "ave/correlate": Correlation, "ave/histo": Histogram}


class TableCommands:
    """The thermo table of a script, up to its next run."""

    def __init__(self, script: ScriptState, particles: ParticleCommands, fixes: FixCommands) -> None:
        self.script, self.particles, self.fixes = script, particles, fixes
        self.columns: list[str] = []
        self.per_particle: bool | None = None
        self.placed = 0  # variables that are frozen when a run begins, so far
        self.commands: dict[str, Callable[..., None]] = {
            "thermo_modify": self._thermo_modify,
            "thermo_style": self._thermo_style,
        }

    def _thermo_style(self, style: str, *words: str) -> None:
        self.fixes.counted = {}  # as in LAMMPS, it takes back what thermo_modify said
        self.per_particle, self.columns = None, [*words] if style == "custom" else []
        if style not in ("custom", "one"):
            self.script.note(f"thermo_style {style}: the table is that of style one")

    def _thermo_modify(self, *words: str) -> None:
        given = dict(pairwise(words))
        if "temp" in given:
            self.fixes.count(given["temp"])
        if given.get("norm") in ("yes", "no"):
            self.per_particle = given["norm"] == "yes"
        if not {"temp", "norm", "format"} & {*words}:
            self.script.note("thermo_modify is passed over, but temp and norm")

    def settings(self, counts: dict[str, Any]) -> dict[str, Any]:
        """The table of a run, as settings; counts: those of its steps and its time."""
        given = self._sampled()
        wanted = self._each(self.columns)
        computed = self._computed()
        asked = [*wanted, *(name for each in given for name in each.columns)]
        asked += [name for each in computed.values() for name in each.get("of", ())]
        frozen = [f"v_{name}" for name in self.script.frozen[self.placed :]]  # since the run before
        self.placed = len(self.script.frozen)
        formulas = self._formulas([*asked, *frozen])
        plain = {name: each for name, each in computed.items() if not each.get("of")}
        table = Table.model_validate({"computed": [*plain.values()], "formulas": formulas})
        left = {name for name, each in computed.items() if table.unknown_within(Computed.model_validate(each))}
        computed = {name: each for name, each in computed.items() if name not in left}
        exchanged = [name for name, fix in self.fixes.named.items() if is_counted(fix)]
        every = self.script.making.regions.items()
        regions = {name: {"name": name, **each.shape} for name, each in every if each.shape is not None}
        what = {"computed": [*computed.values()], "formulas": formulas, "exchanged": exchanged}
        table = Table.model_validate({**what, "regions": [*regions.values()]})
        kept = [each for each in given if not table.unknown_of(each)]
        sampled = {
            "averages": tuple(each for each in kept if type(each) is Average),
            "profiles": tuple(each for each in kept if isinstance(each, Profile)),
            "correlations": tuple(each for each in kept if isinstance(each, Correlation)),
            "histograms": tuple(each for each in kept if isinstance(each, Histogram)),
        }
        table = table.model_copy(update=sampled)
        columns = [name for name in wanted if not table.unknown(name)]
        self._note_left("thermo_style", [name for name in wanted if name not in columns])
        self._note_left("fix ave", [each.name for each in given if each not in kept])
        frozen = [name for name in frozen if not table.unknown(name)]
        reached = self._reached(
            [*columns, *frozen, *(name for each in kept for name in each.columns)], computed, formulas
        )
        for name in computed.keys() & reached:
            self.particles.choose(computed[name]["group"])
            self.particles.choose(computed[name].get("partners", "all"))
        values = [value for name in sorted(reached) if (value := group_value(name))]
        for group in dict.fromkeys(value.group for value in values):
            self.particles.choose(group)
        for of_group in (*sampled["profiles"], *sampled["histograms"]):
            self.particles.choose(of_group.group)
        # Displacements count from their compute on, also where they are printed later.
        since = {name for name, each in computed.items() if each["kind"] in FROM_START and self._may_come(each)}
        whole: dict[str, Any] = {
            "columns": columns,
            "computed": [each for name, each in computed.items() if name in reached | since],
            "exchanged": [name for name in exchanged if f"f_{name}" in reached],
            "formulas": [each for each in formulas if f"v_{each['name']}" in reached],
            "regions": [regions[name] for name in dict.fromkeys(value.region for value in values) if name],
            **{key: [each.model_dump(exclude_defaults=True) for each in found] for key, found in sampled.items()},
        }
        found = {key: value for key, value in whole.items() if value and (columns or kept or frozen)}
        found |= counts
        return found if self.per_particle is None else {**found, "per_particle": self.per_particle}

    def _reached(self, names: list[str], computed: dict[str, Any], formulas: list[dict[str, Any]]) -> set[str]:
        """What these columns need: names of computes, and v_NAME of formulas."""
        found, left, known = set[str](), [*names], {f"v_{each['name']}": each["formula"] for each in formulas}
        while left:
            name = left.pop()
            match = COMPUTED.match(name)
            key = match[1] if match else name
            if key not in found:
                found.add(key)
                left += names_in(known[name]) if name in known else computed.get(key, {}).get("of", ())
        return found

    def _note_left(self, what: str, names: list[str]) -> None:
        """Say what a command names and is not known here."""
        if names:
            self.script.note(f"{what}: what is not known here is left out: {', '.join(names)}")

    def _sampled(self) -> list[Sampled]:
        """What is taken over steps; a note says what cannot be had. Raises `ValueError` for numbers that do not fit."""
        found = list[Sampled]()
        for name, (group, style, *words) in self.fixes.sampled.items():
            if style == "vector":
                each = {"columns": self._each(words[1:]), "kept": True}
                each |= dict.fromkeys(("every", "period"), int(words[0]))
            else:
                options = OF_SAMPLES[style]
                at = next((k for k, word in enumerate(words) if word in options), len(words))
                every, repeat, period = map(int, words[:3])
                each = {"every": every, "period": period, **self._options(words[at:], options)}
                values = words[{"ave/chunk": 4, "ave/histo": 6}.get(style, 3) : at]
                each["columns"] = self._each(values)
                each["lags" if style == "ave/correlate" else "repeat"] = repeat
                if style == "ave/chunk":
                    each |= {"group": group, "bins": self._bins(words[3], group)}
                if style == "ave/correlate":
                    each["running"] = each.pop("last", 1) == 0
                if style == "ave/histo":
                    low, high, number = map(float, words[3:6])
                    each |= {"group": group, "low": low, "high": high, "number": int(number), "mode": "scalar"}
                    each["columns"] = None if group in self.script.late else each["columns"]
                if None in each.values():
                    known = ", ".join(options)
                    self.script.note(f"fix {name} {style} is passed over: known are {known}, not all of their values")
                    continue
            try:
                found.append(MADE.get(style, Average).model_validate({"name": name, **each}))
            except ValidationError as error:
                said = error.errors()[0]["msg"].removeprefix("Value error, ")
                raise ValueError(f"fix {style}: {said}") from None
        return found

    def _options(self, words: list[str], known: dict[str, int]) -> dict[str, Any]:
        """What is behind the values of a fix that takes samples, as settings; None for what is not known."""
        found, left = dict[str, Any](), [*words]
        while left:
            key = left.pop(0)
            count = known.get(key, len(left) + 1)
            if count > len(left):
                return {key: None}
            values = [left.pop(0) for _ in range(count)]
            if key in ("file", "append"):
                found["file"] = PurePath(values[0]).name
            elif key == "ave":
                window = left.pop(0) if values == ["window"] and left[:1] else "0"
                found["last"] = {"one": 1, "running": 0, "window": int(window)}.get(values[0])
            elif key in ("start", "prefactor"):
                found |= {"start": int(values[0])} if key == "start" else {"factor": float(values[0])}
            elif key in ("mode", "norm", "type", "beyond"):
                found[{"norm": "per", "type": "kind"}.get(key, key)] = values[0]
        return found

    def _bins(self, name: str, group: str) -> dict[str, Any] | None:
        """The bins of a compute chunk/atom, as settings, for particles of a group; None for those that are not known
        here.
        """
        whose, style, *words = self.script.computes.get(name, ("", ""))
        if style != "chunk/atom" or whose not in ("all", group) or {whose, group} & self.script.late or not words:
            return None
        kind, *words = words
        dims = {"type": 0, "bin/1d": 1, "bin/2d": 2, "bin/3d": 3}.get(kind)
        follows = {axis for axis, ends in zip(AXES, self.particles.boundary, strict=True) if ends.strip("pf")}
        if dims is None or len(words) < 3 * dims or follows & {*words[: 3 * dims : 3]}:
            return None
        rest = words[3 * dims :]
        options = dict(zip(rest[::2], rest[1::2], strict=False))
        units = options.pop("units", "lattice")
        if (
            len(rest) % 2
            or units not in ("lattice", "box", "reduced")
            or any(OF_BINS.get(k) != v for k, v in options.items())
        ):
            return None
        found: dict[str, Any] = {"along": words[: 3 * dims : 3], "widths": [], "origins": []}
        for axis, origin, width in zip(*(words[k : 3 * dims : 3] for k in range(3)), strict=True):
            cell = self.script.making.spacing[AXES.index(axis)] if units == "lattice" and axis in AXES else 1.0
            found["widths"].append(float(width) * float(cell))
            found["origins"].append(origin if origin.isalpha() else float(origin) * float(cell))
        return {**found, "reduced": True} if units == "reduced" else found

    def _may_come(self, computed: dict[str, Any]) -> bool:
        """Whether its group is one that acts already, so that nothing is asked of the particles for it alone."""
        return computed["group"] in ("all", *self.script.named)

    def _each(self, words: list[str]) -> list[str]:
        """These columns one by one: LAMMPS has c_NAME[*] for all of a vector, or of the columns of a table."""
        found = []
        for word in words:
            name, _, part = word.partition("[")
            if part.rstrip("]") == "*" and name.startswith("c_"):
                given = self._computed().get(name[2:])
                made = None if given is None else Computed.model_validate(given)
                count = 0 if made is None else made.width or made.length
                found += [f"{name}[{k}]" for k in range(1, count + 1)] or [word]
            else:
                found.append(word)
        return found

    def _computed(self) -> dict[str, dict[str, Any]]:
        """The computes that the table knows, as settings."""
        found: dict[str, dict[str, Any]] = {}
        for name, (group, style, *words) in self.script.computes.items():
            kind = {"temp/partial": "temp"}.get(style, style)
            each: dict[str, Any] = {"name": name, "kind": kind, "group": group}
            if style == "temp/partial":
                each["along"] = [axis for axis, flag in zip(AXES, words, strict=False) if flag == "1"]
                sound = len(words) == 3 and bool(each["along"])
            elif style == "temp/region":
                each |= {"kind": "temp", "within": self.script.block(words[0]) if len(words) == 1 else None}
                sound = each["within"] is not None
            elif style == "msd":
                options = dict(zip(words[::2], words[1::2], strict=False))
                each["centered"] = options.get("com") == "yes"
                sound = options.keys() <= {"com"}
            elif style == "pressure":
                sound = words == ["thermo_temp"] and group == "all"
            elif style in ("reduce", "reduce/region"):
                if style == "reduce/region":
                    each |= {"kind": "reduce", "within": self.script.block((words or [""])[0])}
                    words = words[1:] if each["within"] else []
                each["how"], each["of"] = (words or [""])[0], words[1:]
                sound = each["how"] in REDUCTIONS and len(words) > 1 and "replace" not in words
            elif style == "stress/atom":
                each["moving"] = words[1:] != ["virial"]
                sound = words[:1] == ["NULL"] and words[1:] in ([], ["virial"], ["ke", "pair"])
            elif style == "heat/flux":
                each["of"] = [f"c_{word}" for word in words]
                sound = len(words) == 3
            elif style == "coord/atom":
                sound = self._read_partners(each, words)
            elif style == "rdf":
                sound = self._read_distances(each, words)
            else:
                known = style in (*LENGTHS, *OF_EACH)
                sound = not words and known and (style not in ("pe", "erotate/sphere") or group == "all")
            sound = sound and (style not in OF_PAIRS or self._is_of_pairs)
            if sound and group not in self.script.late:
                found[name] = each
        return found

    @property
    def _is_of_pairs(self) -> bool:
        """Whether all forces are those of pairs, or of embedded atoms, without charges and bonds."""
        others = any(self.script.section(name).get("kind", "none") != "none" for name in ("coulomb", "bonds"))
        return not others and self.script.section("interaction").get("kind") not in NOT_OF_PAIRS

    def _read_partners(self, each: dict[str, Any], words: list[str]) -> bool:
        """Read what is behind compute coord/atom into these settings; whether all is known."""
        if len(words) < 2 or words[0] != "cutoff" or not is_number(words[1]):
            return False
        each["reach"] = float(words[1])
        if words[2:3] == ["group"]:
            each["partners"] = words[3] if len(words) == 4 else ""
            return each["partners"] in self.particles.groups - self.script.late
        each["types"] = [*self.script.types_of(words[2])] if words[2:] else []
        return len(words) <= 3

    def _read_distances(self, each: dict[str, Any], words: list[str]) -> bool:
        """Read what is behind compute rdf into these settings; whether all is known."""
        if words[-2:-1] == ["cutoff"]:
            each["reach"], words = float(words[-1]), words[:-2]
        if not words or not words[0].isdigit() or len(words) % 2 == 0:
            return False
        each["bins"] = int(words[0])
        pairs = zip(words[1::2], words[2::2], strict=True)
        each["pairs"] = [[[*self.script.types_of(word)] for word in pair] for pair in pairs]
        return all(kinds for pair in each["pairs"] for kinds in pair)

    def _formulas(self, wanted: list[str]) -> list[dict[str, Any]]:
        """The formulas of variables among these columns, and of those that they need."""
        found: dict[str, str] = {}
        left = [name[2:] for name in wanted if name.startswith("v_")]
        while left:
            name = left.pop()
            variable = self.script.variables.get(name)
            if name in found or variable is None or variable.style == "string":
                continue
            found[name] = variable.values[variable.at]
            try:
                left += [each[2:] for each in names_in(found[name]) if each.startswith("v_")]
            except ValueError:
                continue
        stays = {name: {"at_start": True} for name in self.script.frozen}
        return [{"name": name, "formula": formula, **stays.get(name, {})} for name, formula in found.items()]
