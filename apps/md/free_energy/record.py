"""What a run writes of its variables, biases and coupling: rows while it runs, free energies at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hpckit.apps.md.config import Config
from hpckit.apps.md.output.tables import CsvTable
from hpckit.errors import InputError
from hpckit.md.external.biases import Biases, Metadynamics, Restraint
from hpckit.md.external.coupling import Coupling
from hpckit.md.external.estimators import FEWEST, FreeEnergies, inefficiency, integrated, mbar
from hpckit.md.system import System
from hpckit.run.context import Run

FILE, ROWS, STATES = "free_energy.json", "variables.csv", "coupling.csv"
TABLE = "free_energy.csv"  # of metadynamics: variables and free energy at the points of the grid


class Record:
    """Rows of variables and of the coupling, and results in output/free_energy.json. All methods are collective."""

    def __init__(self, config: Config, run: Run, system: System, coupling: Coupling | None) -> None:
        self.config, self.run, self.system, self.coupling = config, run, system, coupling
        self.biases = system.biases if isinstance(system.biases, Biases) else None
        self.every = config.output.variables or config.time.thermo
        self._moving = [
            (number, each)
            for number, each in enumerate(self.biases.biases if self.biases else (), 1)
            if isinstance(each, Restraint) and each.to is not None
        ]
        self._rows = self._states = None
        if run.rank == 0 and self.biases is not None:
            moving = [f"{what}_{number}" for number, _ in self._moving for what in ("center", "work")]
            names = [each.name for each in self.biases.variables]
            self._rows = CsvTable(run, ROWS, ["step", "time", *names, "bias", *moving])
        if run.rank == 0 and coupling is not None:
            each = [f"energy_{state!r}" for state in coupling.states]
            self._states = CsvTable(run, STATES, ["step", "state", "slope", *each])

    def select(self, step: int) -> None:
        """Before the forces of a step: set the state of the coupling."""
        if self.coupling is not None:
            self.coupling.select(self.system, step)

    def add(self, step: int, time: float) -> None:
        """After a step: the rows that are due."""
        biases, coupling = self.biases, self.coupling
        if biases is not None and step % self.every == 0 and self._rows is not None:
            moving = [x for _, each in self._moving for x in (each.center_at(self.system.steps), each.work)]
            self._rows.add_numbers([step, time, *biases.values.tolist(), biases.energy, *moving])
        if coupling is None or step == 0 or step % self.config.coupling.every:
            return
        state, share = coupling.place(step)
        if share <= self.config.coupling.settle:
            return
        with self.run.timer("coupling"):
            slope, energies = coupling.energies(self.system, biases.values if biases is not None else np.zeros(0))
        if self._states is not None:
            self._states.add_numbers([step, state, float(slope), *energies.tolist()])

    def metrics(self) -> dict[str, float]:
        """The variables and the energy of biases at the last step, for the metrics."""
        if self.biases is None:
            return {}
        each = zip(self.biases.variables, self.biases.values.tolist(), strict=True)
        return {f"variable_{one.name}": value for one, value in each} | {"bias": self.biases.energy}

    def saved(self) -> dict[str, Any]:
        """The state of the biases."""
        return {"biases": self.biases.saved()} if self.biases is not None else {}

    def restore(self, values: dict[str, Any], step: int) -> None:
        """Set it, before the forces of the saved step are computed."""
        if self.biases is not None:
            self.biases.restore(values["biases"])
        if self.coupling is not None:
            self.coupling.state = -1
        self.select(step)

    def finish(self) -> None:
        """Write the results."""
        for rows in (self._rows, self._states):
            if rows is not None:
                rows.close()
        if self.run.rank or (self.biases is None and self.coupling is None):
            return
        units, found = self.system.units, dict[str, Any]()
        folder, thermal = self.run.directory.output, units.boltzmann * (self.config.target or 0.0)
        for each in self.biases.biases if self.biases is not None else ():
            if isinstance(each, Metadynamics):
                found["metadynamics"] = self._of_hills(each, folder)
        if self._moving:
            found["work"] = [{"restraint": number, "work": each.work} for number, each in self._moving]
        if self.coupling is not None:
            found["coupling"] = coupled(folder / STATES, self.coupling.states, thermal)
            if note := found["coupling"].get("note"):
                self.run.say(f"note: {note}")
            for key in ("mbar", "integration"):
                if found["coupling"].get(key):
                    value, error = (found["coupling"][key][what][-1] for what in ("values", "errors"))
                    self.run.say(f"free energy of the coupling by {key}: {value:.6g} +- {error:.2g}")
        if found:
            self.run.directory.write_json(f"output/{FILE}", found)

    def _of_hills(self, given: Metadynamics, folder: Path) -> dict[str, Any]:
        assert self.biases is not None
        names, free = [self.biases.variables[place].name for place in given.places], given.free_energy()
        mesh = np.meshgrid(*given.grid.axes, indexing="ij")
        rows = np.column_stack([*(each.ravel() for each in mesh), free.ravel()])
        table = [",".join([*names, "free_energy"]), *(",".join(map(repr, row)) for row in rows.tolist())]
        (folder / TABLE).write_text("\n".join(table) + "\n")
        return {
            "variables": names,
            "axes": [axis.tolist() for axis in given.grid.axes],
            "free_energy": free.tolist(),
            "hills": len(given.hills),
            "last_height": given.hills[-1][-1] if given.hills else None,
        }


def coupled(path: Path, states: tuple[float, ...], thermal: float) -> dict[str, Any]:
    """Free energies of the states from the rows of output/coupling.csv: by integration, and by MBAR."""
    lines = path.read_text().splitlines()[1:]
    rows = np.array([[float(word) for word in line.split(",")] for line in lines]).reshape(len(lines), -1)
    found: dict[str, Any] = {"states": list(states), "samples": []}
    if not len(rows):
        return found
    each = [rows[rows[:, 1] == state] for state in range(len(states))]
    found["samples"] = [len(one) for one in each]
    if min(found["samples"]) < FEWEST:
        return found
    waste = np.array([inefficiency(one[:, 2]) for one in each])
    means = np.array([one[:, 2].mean() for one in each])
    errors = np.array([one[:, 2].std(ddof=1) * np.sqrt(g / len(one)) for one, g in zip(each, waste, strict=True)])
    found |= {"slopes": means.tolist(), "slope_errors": errors.tolist(), "inefficiency": waste.tolist()}
    found["integration"] = _plain(integrated(states, means, errors), 1.0, 1.0)
    try:
        by_mbar = mbar(np.concatenate([one[:, 3:] for one in each]) / thermal, found["samples"])
    except InputError as error:
        return {**found, "note": f"no free energy by MBAR: {error.message}"}
    return {**found, "mbar": _plain(by_mbar, thermal, float(np.sqrt(waste.max())))}


def _plain(found: FreeEnergies, unit: float, longer: float) -> dict[str, list[float]]:
    return {"values": (unit * found.values).tolist(), "errors": (unit * longer * found.errors).tolist()}
