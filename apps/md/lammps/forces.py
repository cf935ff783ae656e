"""The commands that say which forces there are between pairs and between charges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from hpckit.apps.md.lammps.charges import CHARGED, OF_CHARGES, ChargeCommands
from hpckit.apps.md.lammps.fixes import granular
from hpckit.apps.md.lammps.pair_files import OF_FILES, pair_file
from hpckit.apps.md.lammps.state import ScriptMistake, ScriptState
from hpckit.apps.md.settings.interaction import Rule, mixed_length

PARAMETERS = {  # of a pair, before its own cutoff
    "morse": 3,
    "buck": 3,
    "yukawa": 1,
    "born": 5,
    "mie/cut": 4,
    "lj96/cut": 2,
    "lj/expand": 3,
    "lj/smooth/linear": 2,
    "soft": 1,
}
NAMES = {
    "lj/cut": "lennard_jones",
    "lj/charmm": "lennard_jones",
    "morse": "morse",
    "buck": "buckingham",
    "yukawa": "yukawa",
    "born": "born",
    "mie/cut": "mie",
    "lj96/cut": "lj96",
    "lj/expand": "lj_expand",
    "lj/smooth/linear": "lj_force_shifted",
    "soft": "soft",
    "table": "table",
    "": "lennard_jones",  # of depth 0: charges alone
}
MIXING: dict[str, Rule] = {"arithmetic": "lorentz_berthelot", "geometric": "geometric", "sixthpower": "sixth_power"}


@dataclass
class Pair:
    """A pair_coeff: its types, the words behind them, its line."""

    first: range
    second: range
    words: list[str]
    line: int


class ForceCommands:
    """The forces of pairs and charges, by the settings `interaction` and `coulomb`."""

    def __init__(self, script: ScriptState) -> None:
        self.script = script
        self.charges = ChargeCommands(script)
        self.style: list[str] = []  # of the pairs, with its words
        self.pairs: list[Pair] = []
        self.mix = ""  # as pair_modify says
        self.screening = 0.0  # of yukawa
        self.nuclei: dict[int, float] = {}  # atomic numbers of types, for zbl
        self.first: dict[str, Any] | None = None  # the settings of the first run, where a later one has others
        self.is_fresh = False  # whether others were said since the last run
        self.commands: dict[str, Callable[..., None]] = {
            "pair_style": self._pair_style,
            "pair_modify": self._pair_modify,
            "pair_coeff": self._pair_coeff,
            **self.charges.commands,
        }

    def begin_anew(self, name: str, words: Sequence[str]) -> None:
        """Before a command of pairs that comes after a run: what it says is for the runs that follow. Another style
        forgets all that was said of the one before, as in LAMMPS.
        """
        if self.first is None:
            self.first = self.settings()
        self.is_fresh = True
        if name == "pair_style" and _plain("".join(words[:1])) != self.style[0]:
            self.script.tree["interaction"], self.mix = {}, ""
            self.nuclei.clear()

    def taken(self) -> dict[str, Any] | None:
        """The settings of the run that comes now, if they are others than before. Raises `ValueError`."""
        found = self.settings() if self.is_fresh and not {*self.commands} & self.script.failed else None
        self.is_fresh = False
        return found

    def settings(self) -> dict[str, Any]:
        """The section `interaction` as it is now. Raises `ValueError` where something is missing."""
        self._finish()
        return deepcopy(self.script.section("interaction"))

    def finish(self) -> None:
        """Set the parameters of all pairs in the first run; raises `ValueError` where some are missing."""
        if self.first is None:
            self._finish()
        else:
            self.script.tree["interaction"] = self.first

    def _finish(self) -> None:
        if not self.style:
            raise ValueError("the script has no pair_style")
        name, types = self.style[0], self.script.types or 1
        if name in granular.STYLES:
            self._spheres(name)
            return
        if name in OF_FILES:
            if "file" not in self.script.tree["interaction"]:
                raise ValueError("there is no pair_coeff")
            if "zbl" in self.script.tree["interaction"]:
                missing = [k for k in range(1, types + 1) if k not in self.nuclei]
                if missing:
                    raise ValueError(f"there is no pair_coeff of zbl for type {', '.join(map(str, missing))}")
                self.script.set("interaction.nuclei", [self.nuclei[k] for k in range(1, types + 1)])
            return
        coulomb = self.script.section("coulomb")
        if coulomb.get("kind") == "ewald" and "accuracy" not in coulomb:
            raise ValueError("there is no kspace_style for a pair_style with coul/long")
        given: dict[tuple[int, int], Pair] = {}
        of_file = self._pairs_of_file() if self.first is None else []
        for pair in [*of_file, *self.pairs]:
            given |= {(a, b): pair for a in pair.first for b in pair.second if a <= b}
        missing = [k for k in range(1, types + 1) if (k, k) not in given]
        if missing:
            raise ValueError(f"there is no pair_coeff of {', '.join(f'{k} {k}' for k in missing)}")
        if name in ("lj/cut", "lj/charmm"):
            self._lennard_jones(given, types, name == "lj/charmm")
            self._leave_out(name)
        elif name == "table":
            self._table(given)
        elif not name:
            self._charges_alone(given, types)
        else:
            self._with_parameters(given, PARAMETERS[name])

    def _leave_out(self, name: str) -> None:
        """Pairs of types that `neigh_modify exclude` names have no forces."""
        given = self.script.section("interaction")
        for a, b, line in self.script.apart:
            if name != "lj/cut" or given.get("tail") or self.script.section("coulomb").get("kind"):
                self.script.mistakes.append(
                    ScriptMistake(line, "neigh_modify exclude type: known of lj/cut without charges and tail")
                )
                return
            others = [pair for pair in given.get("pairs", []) if pair["types"] != [a, b]]
            cutoff = next((pair.get("cutoff") for pair in given.get("pairs", []) if pair["types"] == [a, b]), None)
            pair = {"types": [a, b], "epsilon": 0.0, "sigma": 1.0, "cutoff": cutoff or given["cutoff"]}
            self.script.set("interaction.pairs", [*others, pair], line)

    def _pair_style(self, style: str, *rest: str) -> None:
        if style == "hybrid/overlay":
            if len(rest) != 4 or rest[0] != "zbl" or rest[3] != "snap":
                raise ValueError("pair_style hybrid/overlay: known is zbl INNER OUTER snap")
            self.script.set("interaction.zbl", [float(word) for word in rest[1:3]])
            style, rest = "snap", ()
        whole = _plain(style)
        end = next((each for each in CHARGED if whole == each or whole.endswith(f"/{each}")), "")
        name, kind = whole.removesuffix(end).removesuffix("/") if end else whole, CHARGED.get(end, "")
        charmm = name == "lj/charmm"
        every = [*(each for each in NAMES if each not in ("", "lj/charmm")), *OF_FILES, *granular.STYLES]
        if end not in OF_CHARGES.get(name, ()) if end else name not in every:
            known = [*every, *(f"{one}/{each}".lstrip("/") for one, ends in OF_CHARGES.items() for each in ends)]
            raise ValueError(f"pair_style {style}: known are {', '.join(known)}")
        if self.first is not None and (kind or self.script.section("coulomb") or name in granular.STYLES):
            raise ValueError(f"pair_style {style} after a run: known without charges, and not of spheres")
        said = self.pairs if self.style[:1] == [name] and name not in ("table", *OF_FILES) else []
        count = PARAMETERS.get(name, 2)
        self.pairs = [replace(pair, words=pair.words[:count]) for pair in said]  # all but their own cutoffs
        self.style = [name, *rest]
        if name in granular.STYLES:
            for key, value in granular.contact_of(name, rest):
                self.script.set(key, value)
            return
        if name == "yukawa":
            self.screening, rest = float(rest[0]), rest[1:]
        if charmm:
            self.script.set("interaction.switch", float(rest[0]))
            rest = rest[1:]
        if kind:
            rest = self.charges.style(name, kind, rest)
        if name in OF_FILES:
            self.script.set("interaction.kind", OF_FILES[name])
            return
        self.script.set("interaction.kind", NAMES[name])
        if name == "table":
            if len(rest) != 2 or rest[0] not in ("spline", "linear"):
                raise ValueError("pair_style table: known are spline N and linear N")
            self.script.set("interaction.interpolation", rest[0])
            self.script.set("interaction.points", int(rest[1]))
        else:
            self.script.set("interaction.cutoff", float(rest[0]))

    def _pair_modify(self, *words: str) -> None:
        for key, value in zip(words[::2], words[1::2], strict=True):
            if key in ("shift", "tail"):
                self.script.set(f"interaction.{key}", value == "yes")
            elif key == "mix" and value in MIXING:
                self.mix = value
            elif key == "table":
                if int(value) == 0 and self.script.section("coulomb").get("kind") in ("ewald", "pppm"):
                    self.script.set("coulomb.erfc", "lammps")
            elif key == "table/disp":
                continue
            else:
                raise ValueError(f"pair_modify {key} {value}: known are shift, tail, mix {', '.join(MIXING)}")

    def _pair_coeff(self, first: str, second: str, *rest: str) -> None:
        if "pair_style" in self.script.failed:
            return
        if not self.style:
            raise ValueError("pair_coeff must come after pair_style")
        if rest and "zbl" in self.script.tree["interaction"] and rest[0] in ("zbl", "snap"):
            kind, *words = rest
            if kind == "zbl":
                self._nuclei(first, second, words)
                return
            rest = tuple(words)
        if self.style[0] in granular.STYLES:
            if (first, second, *rest) != ("*", "*"):
                raise ValueError(f"pair_coeff of {self.style[0]}: * * alone")
        elif self.style[0] in OF_FILES:
            pair_file(self.script, self.style[0], first, second, rest, self.first is not None)
        else:
            if first.isdigit() and second.isdigit() and int(first) > int(second):
                first, second = second, first  # as in LAMMPS, where neither is a range
            self.pairs.append(
                Pair(self.script.types_of(first), self.script.types_of(second), list(rest), self.script.number)
            )

    def _nuclei(self, first: str, second: str, words: list[str]) -> None:
        """Atomic numbers of two types."""
        if len(words) != 2:
            raise ValueError("pair_coeff of zbl: two types and their atomic numbers")
        for types, word in zip((self.script.types_of(first), self.script.types_of(second)), words, strict=True):
            self.nuclei |= dict.fromkeys(types, float(word))

    def _spheres(self, style: str) -> None:
        """The sizes of all types."""
        system = self.script.section("system")
        if system.get("style") != "sphere" or "file" not in system:
            raise ValueError(f"pair_style {style} needs atom_style sphere and read_data")
        line = self.script.lines["system", "file"]
        diameters, densities = granular.spheres_of(Path(system["file"]), self.script.types)
        self.script.set("granular.diameters", diameters, line)
        self.script.set("granular.densities", densities, line)

    def _pairs_of_file(self) -> list[Pair]:
        """The section Pair Coeffs of the data file, or PairIJ Coeffs."""
        file = self.script.data_file
        if not file:
            return []
        found: list[Pair] = []
        line = self.script.lines["system", "file"]
        with Path(file).open(encoding="utf-8", errors="replace") as lines:
            heads = {"Pair Coeffs": 1, "PairIJ Coeffs": 2}  # and the types in a row
            kinds = next((n for each in lines if (n := heads.get(each.partition("#")[0].strip(), 0))), 0)
            most = self.script.types if kinds == 1 else self.script.types * (self.script.types + 1) // 2
            for each in lines:
                words = each.partition("#")[0].split()
                if len(found) == most or (words and not words[0].isdigit()):
                    break
                if words:
                    first, second = self.script.types_of(words[0]), self.script.types_of(words[kinds - 1])
                    found.append(Pair(first, second, words[kinds:], line))
        return found

    def _lennard_jones(self, given: dict[tuple[int, int], Pair], types: int, charmm: bool = False) -> None:
        own = [_numbers(given[k, k], 4 if charmm and len(given[k, k].words) > 2 else 2) for k in range(1, types + 1)]
        line = given[1, 1].line
        if charmm:
            if any(a != b or len(pair.words) not in (2, 4) for (a, b), pair in given.items()):
                raise ValueError("pair_coeff of lj/charmm: one type, with epsilon, sigma, epsilon14, sigma14")
            self.script.set("interaction.epsilon_14", [each[-2] for each in own], line)
            self.script.set("interaction.sigma_14", [each[-1] for each in own], line)
        self.script.set("interaction.epsilon", [each[0] for each in own], line)
        self.script.set("interaction.sigma", [each[1] for each in own], line)
        rule = self.mix or ("arithmetic" if charmm else "geometric")
        self.script.set("interaction.mixing", MIXING[rule], line)
        pairs = []
        for (a, b), pair in sorted(given.items()) if not charmm else ():
            values = _numbers(pair, 2)
            special: dict[str, Any] = {} if a == b else {"epsilon": values[0], "sigma": values[1]}
            special |= {"cutoff": values[2]} if len(values) > 2 else {}
            if special:
                pairs.append({"types": [a, b], **special})
        pairs += self._mixed_cutoffs(given, types, rule) if not charmm else []
        common = {pair.get("cutoff") for pair in pairs}
        if types == 1 and pairs and common != {None}:
            self.script.set("interaction.cutoff", pairs[0]["cutoff"], line)
        elif pairs:
            self.script.set("interaction.pairs", pairs, line)

    def _charges_alone(self, given: dict[tuple[int, int], Pair], types: int) -> None:
        """All pairs, with the cutoff of pair_style."""
        for pair in given.values():
            if pair.words:
                raise ValueError(
                    f"pair_coeff of line {pair.line}: no numbers, and one cutoff for all, that of pair_style"
                )
        line = given[1, 1].line
        self.script.set("interaction.epsilon", [0.0] * types, line)
        self.script.set("interaction.sigma", [1.0] * types, line)

    def _mixed_cutoffs(self, given: dict[tuple[int, int], Pair], types: int, rule: str) -> list[dict[str, Any]]:
        """The cutoffs of pairs of types without a pair_coeff: mixed as sigma is, where types have their own."""
        common = self.script.section("interaction")["cutoff"]
        own = [float(words[2]) if len(words := given[k, k].words) > 2 else common for k in range(1, types + 1)]
        found = []
        for a, b in combinations(range(1, types + 1), 2):
            one, other = own[a - 1], own[b - 1]
            if (a, b) not in given and {one, other} != {common}:
                found.append({"types": [a, b], "cutoff": float(mixed_length(MIXING[rule], one, other))})
        return found

    def _table(self, given: dict[tuple[int, int], Pair]) -> None:
        files = {pair.words[0] for pair in given.values()}
        if len(files) > 1:
            raise ValueError(f"pair_coeff of table: one file for all pairs here, not {', '.join(sorted(files))}")
        first = given[1, 1]
        self.script.set("interaction.file", str(self.script.file(first.words[0])), first.line)
        self.script.set("interaction.keyword", first.words[1], first.line)
        if any(len(pair.words) < 3 for pair in given.values()):
            raise ValueError("pair_coeff of table: FILE KEYWORD CUTOFF")
        self.script.set("interaction.cutoff", float(first.words[2]), first.line)
        pairs = [
            {"types": list(key), "keyword": pair.words[1], "cutoff": float(pair.words[2])}
            for key, pair in sorted(given.items())
        ]
        if len(pairs) > 1:
            self.script.set("interaction.pairs", pairs, first.line)

    def _with_parameters(self, given: dict[tuple[int, int], Pair], count: int) -> None:
        pairs, types = [], range(1, (self.script.types or 1) + 1)
        missing = [f"{a} {b}" for a in types for b in types if a < b and (a, b) not in given]
        if missing:
            raise ValueError(f"there is no pair_coeff of {', '.join(missing)}; {self.style[0]} is not mixed here")
        for key, pair in sorted(given.items()):
            values = _numbers(pair, count)
            more = {"cutoff": values[count]} if len(values) > count else {}
            own = values[:count]
            if self.style[0] == "yukawa":
                own = [*own, self.screening]
            if self.style[0] in ("lj/smooth/linear", "soft"):
                own = [*own, more.get("cutoff", self.script.section("interaction")["cutoff"])]
            if self.style[0] == "lj/expand":  # whose cutoff is that of the distance less delta
                more = {"cutoff": more.get("cutoff", self.script.section("interaction")["cutoff"]) + own[2]}
            pairs.append({"types": list(key), "parameters": own, **more})
        self.script.set("interaction.parameters", pairs[0]["parameters"], given[1, 1].line)
        self.script.set("interaction.pairs", pairs, given[1, 1].line)


def _plain(style: str) -> str:
    """The name of a pair style without what LAMMPS computes it by."""
    return style.removesuffix("/opt").removesuffix("/omp")


def _numbers(pair: Pair, least: int) -> list[float]:
    try:
        values = [float(word) for word in pair.words]
    except ValueError:
        values = []
    if not least <= len(values) <= least + 1:
        raise ValueError(f"pair_coeff of line {pair.line}: expected {least} numbers, and a cutoff or none")
    return values
