"""Means over time of temperature, energies, pressure, box and displacements, in text files that grow during a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hpckit.apps.md.output.tables import TextTable
from hpckit.apps.md.settings.averages import Average
from hpckit.md.system import System
from hpckit.md.thermo import Thermo, mass_density, measure
from hpckit.run.context import Run

TENSOR = ("xx", "yy", "zz", "xy", "xz", "yz")


def _part(number: int) -> Callable[[Thermo, System], float]:
    return lambda thermo, system: float(thermo.tensor[number])


def _length(dim: int) -> Callable[[Thermo, System], float]:
    return lambda thermo, system: float(system.domains.lengths[dim])


VALUES: dict[str, Callable[[Thermo, System], float]] = {
    "temperature": lambda thermo, system: thermo.temperature,
    "pressure": lambda thermo, system: thermo.pressure,
    **{f"pressure_{name}": _part(number) for number, name in enumerate(TENSOR)},
    "potential": lambda thermo, system: thermo.potential,
    "kinetic": lambda thermo, system: thermo.kinetic,
    "energy": lambda thermo, system: thermo.total,
    "enthalpy": lambda thermo, system: thermo.total + thermo.pressure * thermo.volume / system.units.pressure,
    "bonded": lambda thermo, system: thermo.bonded,
    "coulomb": lambda thermo, system: thermo.coulomb,
    "long_range": lambda thermo, system: thermo.long_range,
    "volume": lambda thermo, system: thermo.volume,
    "mass_density": lambda thermo, system: mass_density(system),
    **{f"length_{name}": _length(dim) for dim, name in enumerate("xyz")},
}


class Averages:
    """The files of `output.averages` of all stages, which rank 0 writes; what is asked for goes on in later stages.

    A row at a step has the mean of `repeat` values, the last of them of this step, `every` steps apart.
    """

    def __init__(self, given: list[tuple[Average, ...]], run: Run, system: System) -> None:
        self.system = system
        self._active: tuple[Average, ...] = ()
        self._state: dict[str, dict[str, Any]] = {}  # by file: first and last step, sums of a row, and of all rows
        self._tables: dict[str, TextTable] = {}
        for each in dict.fromkeys(one for averages in given for one in averages):
            if run.rank == 0:
                self._tables[each.file] = TextTable(run, each.file, _head(each))

    def enter(self, given: tuple[Average, ...], step: int) -> None:
        """Begin what a stage asks for that was not asked for before."""
        for each in given:
            if each not in self._active:
                nothing = [0.0] * len(each.values)
                self._state[each.file] = {"first": step, "last": -1, "sums": nothing, "all": nothing, "rows": 0}
        self._active = given

    def wants(self, step: int) -> bool:
        """Whether values of this step are needed."""
        return any(self._is_due(each, step) for each in self._active)

    def has(self, step: int) -> bool:
        """Whether values of this step were taken, the last so far."""
        return any(self._state[each.file]["last"] == step for each in self._active)

    def _is_due(self, each: Average, step: int) -> bool:
        state = self._state[each.file]
        return step > state["last"] and each.is_due(step, state["first"])

    def add(self, step: int) -> None:
        """Collective: take the values of this step, whose forces were measured, where they are due."""
        due = [each for each in self._active if self._is_due(each, step)]
        if not due:
            return
        thermo = measure(self.system)
        for each in due:
            state = self._state[each.file]
            found = [_value(name, thermo, self.system) for name in each.values]
            state["last"], state["sums"] = step, np.add(state["sums"], found).tolist()
            if step % each.steps:
                continue
            row = np.divide(state["sums"], each.repeat)
            state["sums"] = [0.0] * len(row)
            if each.running:
                state["all"], state["rows"] = np.add(state["all"], row).tolist(), state["rows"] + 1
                row = np.divide(state["all"], state["rows"])
            if each.file in self._tables:
                self._tables[each.file].add(" ".join([str(step), *(f"{value:.15g}" for value in row)]) + "\n")

    def saved(self) -> dict[str, Any]:
        """The sums so far."""
        return {"state": self._state}

    def restore(self, values: dict[str, Any], given: tuple[Average, ...]) -> None:
        """Go on with these sums, in a stage that asks for `given`."""
        self._state, self._active = {name: dict(each) for name, each in values["state"].items()}, given

    def finish(self) -> None:
        """Write what waits, and close the files."""
        for table in self._tables.values():
            table.close()


def _head(given: Average) -> str:
    return f"# means over time of {given.label or given.file}\n# step {' '.join(given.columns or given.values)}\n"


def _value(name: str, thermo: Thermo, system: System) -> float:
    whole = name.removesuffix("_per_particle")
    value = VALUES[whole](thermo, system)
    return value / system.count if whole != name else value
