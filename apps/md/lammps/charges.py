"""The commands that say which forces there are between charges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hpckit.apps.md.lammps.state import ScriptState
from hpckit.apps.md.settings.formulas import is_number

CHARGED = {"coul/cut": "cut", "coul/long": "ewald", "coul/dsf": "dsf", "coul/debye": "debye"}
OF_CHARGES = {  # behind the pair potential's own name; what LAMMPS has of them
    "": tuple(CHARGED),
    "lj/cut": tuple(CHARGED),
    "lj/charmm": ("coul/long",),
    "buck": ("coul/cut", "coul/long"),
    "born": ("coul/long", "coul/dsf"),
}


class ChargeCommands:
    """The section `coulomb` from a script."""

    def __init__(self, script: ScriptState) -> None:
        self.script = script
        self.commands: dict[str, Callable[..., None]] = {
            "kspace_style": self._kspace_style,
            "kspace_modify": self._kspace_modify,
            "dielectric": self._dielectric,
        }

    def _dielectric(self, constant: str) -> None:
        self.script.set("coulomb.permittivity", float(constant))

    def style(self, name: str, kind: str, words: Sequence[str]) -> tuple[str, ...]:
        """The settings of a pair_style with charges; the words that are left for the pair potential."""
        self.script.set("coulomb.kind", kind)
        if kind in ("dsf", "debye"):
            self.script.set(f"coulomb.{'damping' if kind == 'dsf' else 'screening'}", float(words[0]))
            words = words[1:]
        if kind in ("dsf", "ewald") and (kind, name) != ("dsf", "born"):  # which LAMMPS computes with the whole erfc
            self.script.set("coulomb.erfc", "lammps" if kind == "dsf" else "table")
        if len(words) > 1:
            self.script.set("coulomb.cutoff", float(words[1]))
        return tuple(words[:1])

    def _kspace_style(self, name: str, accuracy: str) -> None:
        if name not in ("ewald", "pppm") or not is_number(accuracy):
            raise ValueError(f"kspace_style {name} {accuracy}: known are ewald and pppm with an accuracy")
        if (
            self.script.section("coulomb").get("kind") not in ("ewald", "pppm")
            and "pair_style" not in self.script.failed
        ):
            raise ValueError("kspace_style must come after a pair_style with coul/long")
        self.script.set("coulomb.kind", name)
        self.script.set("coulomb.accuracy", float(accuracy))

    def _kspace_modify(self, *words: str) -> None:
        left, keys = list(words), {"gewald": 1, "order": 1, "mesh": 3, "kmax/ewald": 3}
        while left:
            key = left.pop(0)
            values, left = left[: keys.get(key, 0)], left[keys.get(key, 0) :]
            if key not in keys or len(values) < keys[key]:
                raise ValueError(f"kspace_modify {key}: known are {', '.join(keys)}")
            name = {"gewald": "splitting", "kmax/ewald": "waves"}.get(key, key)
            each: list[Any] = [float(value) if key == "gewald" else int(value) for value in values]
            self.script.set(f"coulomb.{name}", each if len(each) > 1 else each[0])
