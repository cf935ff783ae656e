"""The work per cell of a step of the heat equation, for the roofline of reports."""

from __future__ import annotations

from collections.abc import Iterator

from hpckit.report.extension import PhaseWork
from hpckit.report.run_data import RunData

FLOPS = {2: 11, 3: 16}  # by dims, of the reference kernel, counted in tests/report/work_counts.py


def work(run: RunData) -> Iterator[PhaseWork]:
    """The update, in core and rim together."""
    dims = len((run.summary.get("decomposition") or {}).get("shape") or [])
    if dims in FLOPS:
        yield PhaseWork("core and rim", ("core", "rim"), float(run.summary.get("bytes_per_cell_step", 0)), FLOPS[dims])
