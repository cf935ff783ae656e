"""What a report of shallow water adds: the work of a step per cell, and a step that adjusts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from pydantic import ValidationError

from hpckit.apps.exact.rotating import adjusted_step
from hpckit.apps.shallow_water.config import Config
from hpckit.report.draw.charts import beside
from hpckit.report.extension import PhaseWork, ReportSection
from hpckit.report.field_file import FieldFile
from hpckit.report.page import caption, grid
from hpckit.report.run_data import RunData
from hpckit.report.units import length_scale, number
from hpckit.run.settings import with_common

# Three stages of the reference kernel, counted in tests/report/work_counts.py. Of these, the terms of bottom, walls,
# friction and wind, which the kernel of a flat periodic basin without them leaves out.
FLOPS, EXTRA = 333, 3 * 47


def work(run: RunData) -> Iterator[PhaseWork]:
    """The step, with the bytes that t_eff counts."""
    flops = FLOPS - EXTRA if is_free(run) else FLOPS
    yield PhaseWork("step", ("step",), float(run.summary.get("bytes_per_cell_step", 0)), flops)


def is_free(run: RunData) -> bool:
    """Whether the equations are plain: periodic, flat, without friction and wind."""
    tables = [run.values.get(name) or {} for name in ("grid", "bottom", "physics", "wind")]
    grid, bottom, physics, wind = tables
    forces = (*(physics.get(name) for name in ("viscosity", "drag", "drag_quadratic")), wind.get("stress"))
    return grid.get("sides") == "periodic" and bottom.get("kind") == "flat" and not any(forces)


def sections(run: RunData) -> Iterator[ReportSection]:
    """The current in geostrophic balance that a step in the surface leaves (Gill 1982), beside the mean over the run.

    Waves of the inertial frequency and above remain; a squared Hann window over all frames removes them.
    """
    try:
        config: Any = with_common(Config).model_validate({k: v for k, v in run.values.items() if k != "title"})
    except ValidationError:
        return
    physics, begin, box = config.physics, config.start, config.grid
    turns = abs(physics.f) * config.time.end / (2 * np.pi)
    if run.fields is None or begin.kind != "step" or not is_free(run) or physics.beta or turns < 2:
        return
    with FieldFile(run.fields) as file:
        if len(file.times) < 8 * turns or not {"elevation", "v"} <= set(file.variables):
            return
        window = np.hanning(len(file.times) + 2)[1:-1] ** 2
        surface, v = (
            sum(w * file.read(file.variables[name], n).mean(axis=0) for n, w in enumerate(window)) / window.sum()
            for name in ("elevation", "v")
        )
        x, ends = file.variables["elevation"].dims[1].points, (float(file.times[0]), float(file.times[-1]))
    exact = adjusted_step(x, box.width, begin.amplitude, physics.gravity, physics.depth, physics.f)
    scale, unit = length_scale(box.width, "m")
    drawn = [
        beside(name, x / scale, ours, {"exact": known}, f"x ({unit})", units)
        for name, ours, known, units in (("surface", surface, exact[0], "m"), ("v", v, exact[1], "m/s"))
    ]
    error = float(np.linalg.norm(surface - exact[0]) / np.linalg.norm(exact[0]))
    said = (
        f"The mean over y and time (t = {number(ends[0], 3)} to {number(ends[1], 6)} s, {number(turns, 2)} inertial"
        f" periods, in a window without waves); the surfaces differ by {number(100 * error, 2)} % (relative L2)."
        " The balance that the step adjusts to: Gill (1982, Atmosphere-Ocean Dynamics, 7.2)."
    )
    yield ReportSection("exact", "Beside the exact solution", grid(drawn) + caption(said), {"error": error})
