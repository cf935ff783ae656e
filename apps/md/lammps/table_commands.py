"""The commands of the thermo table: its columns, and which temperature and norm it has."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import PurePath
from typing import Any

from pydantic import ValidationError

from hpckit.apps.md.lammps.fix_commands import FixCommands
from hpckit.apps.md.lammps.fixes import AVERAGES
from hpckit.apps.md.lammps.particles import ParticleCommands
from hpckit.apps.md.lammps.state import ScriptState
from hpckit.apps.md.settings.formulas import names_in
from hpckit.apps.md.settings.table import COMPUTED, FROM_START, LENGTHS, Average, Table

AXES = ("x", "y", "z")
# Words after the values of fix ave/time, and how many follow each.
OF_AVERAGES = {"mode": 1, "file": 1, "ave": 1, "format": 1, "title1": 1, "title2": 1, "title3": 1}


class TableCommands:
    """The thermo table of a script, up to its next run."""

    def __init__(self, script: ScriptState, particles: ParticleCommands, fixes: FixCommands) -> None:
        self.script, self.particles, self.fixes = script, particles, fixes
        self.columns: list[str] = []
        self.per_particle: bool | None = None
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
        given = self._averages()
        wanted = self._each(self.columns)
        computed = self._computed()
        formulas = self._formulas([*wanted, *(name for each in given for name in each["columns"])])
        table = Table.model_validate({"computed": [*computed.values()], "formulas": formulas})
        averages = [each for each in given if not any(map(table.unknown, each["columns"]))]
        averaged = [name for each in averages for name in each["columns"]]
        try:
            table = table.model_copy(update={"averages": tuple(map(Average.model_validate, averages))})
        except ValidationError as error:
            raise ValueError(f"fix {AVERAGES}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
        columns = [name for name in wanted if not table.unknown(name)]
        self._note_left("thermo_style", [name for name in wanted if name not in columns])
        self._note_left(f"fix {AVERAGES}", [each["name"] for each in given if each not in averages])
        reached = [each for each in formulas if not table.unknown(f"v_{each['name']}")]
        behind = [name for each in reached for name in names_in(each["formula"])]
        used = {match[1] for name in (*columns, *averaged, *behind) if (match := COMPUTED.match(name))}
        for name in computed.keys() & used:
            self.particles.choose(computed[name]["group"])
        # Displacements count from their compute on, also where they are printed later.
        since = {name for name, each in computed.items() if each["kind"] in FROM_START and self._may_come(each)}
        kept = [each for name, each in computed.items() if name in used | since]
        whole = {"columns": columns, "computed": kept, "formulas": reached, "averages": averages}
        found: dict[str, Any] = {key: value for key, value in whole.items() if value and (columns or averages)}
        found |= counts
        return found if self.per_particle is None else {**found, "per_particle": self.per_particle}

    def _note_left(self, what: str, names: list[str]) -> None:
        """Say what a command names and is not known here."""
        if names:
            self.script.note(f"{what}: what is not known here is left out: {', '.join(names)}")

    def _averages(self) -> list[dict[str, Any]]:
        """The means of fix ave/time that can be had, as settings; a note says which cannot."""
        found = []
        for name, (every, repeat, period, *words) in self.fixes.averages.items():
            at = next((k for k, word in enumerate(words) if word in OF_AVERAGES), len(words))
            each = {"name": name, "columns": self._each(words[:at])}
            each |= {"every": int(every), "repeat": int(repeat), "period": int(period)}
            left = words[at:]
            while left and (count := OF_AVERAGES.get(left[0], 0)) and len(left) > count:
                key, *values = left[: 1 + count]
                left = left[1 + count :]
                if key == "file":
                    each["file"] = PurePath(values[0]).name
                elif key == "ave" and values[0] in ("one", "running"):
                    each["last"] = int(values[0] == "one")
                elif key == "ave" and values[0] == "window" and left[:1]:
                    each["last"] = int(left.pop(0))
                elif key == "ave" or (key, *values) == ("mode", "vector"):
                    left = [key]
                    break
            if left:
                self.script.note(f"fix {name} ave/time … {left[0]} is passed over: known are {', '.join(OF_AVERAGES)}")
                continue
            found.append(each)
        for name, (every, *words) in self.fixes.series.items():
            each = {"name": name, "columns": self._each(words), "kept": True}
            found.append(each | dict.fromkeys(("every", "period"), int(every)))
        return found

    def _may_come(self, computed: dict[str, Any]) -> bool:
        """Whether its group is one that acts already, so that nothing is asked of the particles for it alone."""
        return computed["group"] in ("all", *self.script.named)

    def _each(self, words: list[str]) -> list[str]:
        """These columns one by one: LAMMPS has c_NAME[*] for all of a vector."""
        found = []
        for word in words:
            name, _, part = word.partition("[")
            if part.rstrip("]") == "*" and name.startswith("c_"):
                kind = self._computed().get(name[2:], {}).get("kind")
                found += [f"{name}[{k}]" for k in range(1, LENGTHS.get(kind, 0) + 1)] or [word]
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
            elif style == "msd":
                options = dict(zip(words[::2], words[1::2], strict=False))
                each["centered"] = options.get("com") == "yes"
                sound = options.keys() <= {"com"}
            elif style == "pressure":
                sound = words == ["thermo_temp"] and group == "all"
            else:
                sound = not words and style in LENGTHS and (style not in ("pe", "erotate/sphere") or group == "all")
            if sound and group not in self.script.late:
                found[name] = each
        return found

    def _formulas(self, wanted: list[str]) -> list[dict[str, str]]:
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
        return [{"name": name, "formula": formula} for name, formula in found.items()]
