"""What gray_scott adds to the report of its runs: how the pattern grows."""

from __future__ import annotations

from collections.abc import Iterator

from hpckit.report.data import with_data
from hpckit.report.extension import ReportSection
from hpckit.report.page import caption, grid
from hpckit.report.run_data import RunData
from hpckit.report.style import ACCENT, pyplot, to_svg


def sections(run: RunData) -> Iterator[ReportSection]:
    """The share of the box that is covered, over the steps."""
    steps, covered = run.series("covered")
    if len(steps) < 2:
        return
    figure, axes = pyplot().subplots(figsize=(3.7, 2.6), layout="constrained")
    percent = [100 * share for share in covered]
    axes.plot(steps, percent, color=ACCENT)
    axes.set_xlabel("step")
    axes.set_title("covered by the pattern (%)")
    settings = run.values["reaction"]
    said = (
        f"Feed {settings['feed']}, kill {settings['kill']}: {100 * covered[-1]:.0f} % of the box is covered at the end."
    )
    chart = to_svg(figure, "share of the box with v above 0.1", "chart")
    chart = with_data(chart, "covered", {"step": steps, "covered (%)": percent})
    yield ReportSection(
        "pattern", "Pattern", grid([chart]) + caption(said), {"covered": covered[-1]}, metrics=("covered",)
    )
