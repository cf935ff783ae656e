"""The work of the slab's phases per cell and step, for the roofline of its reports."""

from __future__ import annotations

from collections.abc import Iterator

from hpckit.report.extension import Work
from hpckit.report.run_data import RunData

# Of the reference kernels, counted in tests/report/work_counts.py.
FLOPS = {"x sweep": 228, "z sweep": 237}


def work(run: RunData) -> Iterator[Work]:
    """Both sweeps; each moves half the bytes of t_eff."""
    size = float(run.summary.get("bytes_per_cell_step", 0)) / len(FLOPS)
    for phase, flops in FLOPS.items():
        yield Work(phase, (phase,), size, flops)
