"""The work of a step of shallow water per cell, for the roofline of its reports."""

from __future__ import annotations

from collections.abc import Iterator

from hpckit.report.extension import Work
from hpckit.report.run_data import RunData

# Three stages of the reference kernel, counted in tests/report/work_counts.py. Of these, the terms of bottom, walls,
# friction and wind, which the kernel of a flat periodic basin without them leaves out.
FLOPS, EXTRA = 333, 3 * 47


def work(run: RunData) -> Iterator[Work]:
    """The step, with the bytes that t_eff counts."""
    flops = FLOPS - EXTRA if is_free(run) else FLOPS
    yield Work("step", ("step",), float(run.summary.get("bytes_per_cell_step", 0)), flops)


def is_free(run: RunData) -> bool:
    """Whether the equations are plain: periodic, flat, without friction and wind."""
    tables = [run.values.get(name) or {} for name in ("grid", "bottom", "physics", "wind")]
    grid, bottom, physics, wind = tables
    forces = (*(physics.get(name) for name in ("viscosity", "drag", "drag_quadratic")), wind.get("stress"))
    return grid.get("sides") == "periodic" and bottom.get("kind") == "flat" and not any(forces)
