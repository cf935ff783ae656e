"""The section of a report about free energies: variables over time, hills, a coupling."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.apps.md.free_energy.record import FILE, ROWS
from hpckit.apps.md.output.charts import lines
from hpckit.plan.inputs.text import parse_json, read_bytes
from hpckit.report.extension import ReportSection
from hpckit.report.page import caption, grid, table
from hpckit.report.style import pyplot, to_svg
from hpckit.report.units import with_error

MOST = 2000  # points of a curve
LEVELS = 20  # of a map


def free_energy_sections(output: Path, names: dict[str, str]) -> Iterator[ReportSection]:
    """The section, where a run has written something to show; names: its units, as they are printed."""
    rows, path = _rows(output / ROWS), output / FILE
    found: dict[str, Any] = dict(parse_json(read_bytes(path, "free energies"))) if path.is_file() else {}
    if not (found or rows):
        return
    energy, time = names.get("energy", ""), names.get("time", "")
    drawn, said, listing = [], [], ""
    numbers: dict[str, Any] = {}
    hills, coupling = found.get("metadynamics"), found.get("coupling")
    if hills:
        drawn.append(_of_hills(hills, energy))
        said.append(f"{hills['hills']} hills; the free energy is relative to its least value.")
        numbers["hills"] = hills["hills"]
    for name, values in rows.items():
        if name not in ("step", "time"):
            every = max(1, len(values) // MOST)
            drawn.append(
                lines(name.replace("_", " "), {"": (rows["time"][::every], values[::every])}, f"time ({time})")
            )
    if coupling and coupling.get("slopes"):
        drawn.append(lines("dF/dl", {"": (coupling["states"], coupling["slopes"])}, "coupling l", energy, dots=True))
        made = []
        for key, what in (("integration", "integration"), ("mbar", "MBAR")):
            if key not in coupling:
                continue
            value, error = (coupling[key][part][-1] for part in ("values", "errors"))
            made.append((what, *with_error(value, error), energy))
            numbers[key] = {"value": value, "error": error}
        listing = table(("free energy of the last state less the first, by", "", "error", "unit"), made, (1, 2))
        said.append(coupling.get("note", ""))
        said.append(f"{sum(coupling['samples'])} samples of {len(coupling['states'])} states.")
    for each in found.get("work", ()):
        said.append(f"Work of moving restraint {each['restraint']}: {each['work']:.5g} {energy}.")
    shown = grid(drawn) + listing + caption(" ".join(filter(None, said)))
    metrics = ("bias", *(f"variable_{name}" for name in rows if name not in ("step", "time", "bias")))
    yield ReportSection("free_energy", "Free energy", shown, numbers, "headline", metrics)


def _rows(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        return {}
    head, *body = path.read_text().splitlines()
    values = np.array([[float(word) for word in line.split(",")] for line in body])
    return dict(zip(head.split(","), values.T, strict=True)) if len(body) > 1 else {}


def _of_hills(hills: dict[str, Any], energy: str) -> str:
    axes, free = [np.array(axis) for axis in hills["axes"]], np.array(hills["free_energy"])
    if len(axes) == 1:
        return lines("free energy", {"": (axes[0], free)}, hills["variables"][0], energy)
    if len(axes) > 2:
        free = free.min(axis=tuple(range(2, len(axes))))  # the way of least cost along the others
    figure, place = pyplot().subplots(figsize=(3.7, 2.8), layout="constrained")
    drawn = place.contourf(axes[0], axes[1], free.T, LEVELS, cmap="viridis")
    figure.colorbar(drawn, ax=place)
    place.set_xlabel(hills["variables"][0])
    place.set_ylabel(hills["variables"][1])
    place.set_title(f"free energy ({energy})" if energy else "free energy")
    return str(to_svg(figure, "free energy", "chart"))
