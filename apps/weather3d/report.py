"""The work of the box's phases per cell and step, for the roofline of its reports."""

from __future__ import annotations

from collections.abc import Iterator

from hpckit.report.extension import Work
from hpckit.report.run_data import RunData

# Of the reference kernels, counted in tests/report/work_counts.py.
SWEEPS = {"x sweep": 261, "y sweep": 261, "z sweep": 288}
TURN, TURN_BYTES = 13, 8 * 5  # density and two momenta read, the momenta written
DIFFUSION, DIFFUSION_BYTES = 74, 8 * 9  # five fields read, four written


def work(run: RunData) -> Iterator[Work]:
    """The sweeps, each a third of the bytes that t_eff counts, the Coriolis force and constant diffusion."""
    size = float(run.summary.get("bytes_per_cell_step", 0)) / len(SWEEPS)
    for phase, flops in SWEEPS.items():
        yield Work(phase, (phase,), size, flops)
    yield Work("coriolis", ("coriolis",), TURN_BYTES, TURN)
    if isinstance(run.values.get("diffusion"), (int, float)):
        yield Work("diffusion", ("diffusion",), DIFFUSION_BYTES, DIFFUSION)
