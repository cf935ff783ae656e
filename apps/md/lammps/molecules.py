"""The commands that say what binds particles: bonds, angles, dihedrals, impropers, and the shares of such pairs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hpckit.apps.md.lammps.state import ScriptState
from hpckit.apps.md.settings.formulas import is_number
from hpckit.kernels.particles.molecules.bonds.forms import NAMES as BONDS
from hpckit.kernels.particles.molecules.terms.forms import NAMES as TERMS

SPECIAL = {  # shares of pairs and of charges
    "fene": ([0.0, 1.0, 1.0], [0.0, 1.0, 1.0]),
    "charmm": ([0.0] * 3, [0.0] * 3),
    "amber": ([0.0, 0.0, 0.5], [0.0, 0.0, 5.0 / 6.0]),
    "dreiding": ([0.0, 0.0, 1.0], [0.0, 0.0, 1.0]),
}
BOUND = {"bonds": BONDS, **TERMS}  # their styles, and the parameters of these


class MoleculeCommands:
    """What binds particles, by the settings `bonds`, `angles`, `dihedrals` and `impropers`."""

    def __init__(self, script: ScriptState) -> None:
        self.script = script
        self.given: dict[str, dict[int, list[float]]] = {name: {} for name in BOUND}  # parameters by type
        self.special = {"lj": [0.0] * 3, "coul": [0.0] * 3}
        self.commands: dict[str, Callable[..., None]] = {"special_bonds": self._special_bonds}
        for what in BOUND:
            self.commands[f"{what[:-1]}_style"] = partial(self._style, what)
            self.commands[f"{what[:-1]}_coeff"] = partial(self._coeff, what)

    def finish(self) -> None:
        """Set parameters and shares; raises `ValueError` where a type has no parameters.

        A style of what the data file has none of says nothing.
        """
        for what, given in self.given.items():
            if self.script.bound is not None and not self.script.bound.get(what):
                self.script.tree.pop(what, None)
                continue
            line = self.script.lines.get((what, "parameters"), self.script.number)
            if given and sorted(given) != list(range(1, self.script.counts.get(what[:-1], 0) + 1)):
                raise ValueError(f"some types of {what} have no {what[:-1]}_coeff")
            if given:
                self.script.set(f"{what}.parameters", [given[kind] for kind in sorted(given)], line)
        if "bonds" in self.script.tree:
            line = self.script.lines["bonds", "kind"]
            self.script.set("bonds.pair_shares", self.special["lj"], line)
            self.script.set("bonds.charge_shares", self.special["coul"], line)

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

    def _style(self, what: str, name: str, *rest: str) -> None:
        if rest or name not in ("none", "zero", *BOUND[what]):
            raise ValueError(
                f"{what[:-1]}_style {' '.join([name, *rest])}: known are {', '.join(('none', 'zero', *BOUND[what]))}"
            )
        self.script.set(f"{what}.kind", name)

    def _coeff(self, what: str, kind: str, *rest: str) -> None:
        style, one = self.script.section(what).get("kind"), what[:-1]
        if f"{one}_style" in self.script.failed or style == "zero":
            return
        names = BOUND[what].get(style or "", ())
        if not names or len(rest) != len(names) or not all(map(is_number, rest)):
            raise ValueError(f"{one}_coeff {kind} {' '.join(rest)}: a type and {' '.join(names) or 'numbers'}")
        for each in self.script.among(kind, self.script.counts.get(one, 0)):
            self.given[what][each] = [float(word) for word in rest]
        self.script.lines[what, "parameters"] = self.script.number
