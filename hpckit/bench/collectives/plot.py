"""A picture of busbw over the size."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from hpckit.bench.collectives.rows import busbw
from hpckit.errors import InputError, SetupError


def pyplot_for(path: Path) -> Any:
    """Pyplot for a picture at `path`. Raises `SetupError` without matplotlib, `InputError` for an unusable path."""
    try:
        import matplotlib

        matplotlib.use("agg")
        from matplotlib import pyplot
    except ImportError:
        raise SetupError("a plot needs matplotlib", do="pip install 'hpckit[analysis]'") from None
    kinds = sorted(pyplot.figure().canvas.get_supported_filetypes())
    pyplot.close("all")
    if path.suffix[1:].lower() not in kinds or path.is_dir() or not path.absolute().parent.is_dir():
        raise InputError(
            f"--plot {path}: no picture can be drawn there",
            do=f"give a file in an existing folder, as one of .{', .'.join(kinds)}",
        )
    return pyplot


def draw(measured: list[dict[str, Any]], path: Path) -> None:
    """Draw busbw over the size: a line an algorithm, a panel an operation and number of ranks."""
    pyplot = pyplot_for(path)
    panels_of = [(one["operation"], one["ranks"]) for one in measured]
    several = [which for which in panels_of if panels_of.count(which) > 1]  # a line needs two points
    wanted = list(dict.fromkeys(several or panels_of))
    figure, panels = pyplot.subplots(
        1, len(wanted), figsize=(7 * len(wanted), 4.5), squeeze=False, layout="constrained"
    )
    for (operation, n), panel in zip(wanted, panels[0], strict=True):
        cases = [one for one in measured if (one["operation"], one["ranks"]) == (operation, n)]
        for name in dict.fromkeys(name for one in cases for name in one["times"]):
            points = [(one["bytes"], median(one["times"][name])) for one in cases if name in one["times"]]
            rates = [busbw(nbytes, n, seconds, operation) / 1e9 for nbytes, seconds in points]
            dashed = "--" if name in ("mpi", "gloo") else "-"
            panel.plot([nbytes for nbytes, _ in points], rates, dashed, marker="o", markersize=3, label=name)
        what = operation.replace("_", "-")
        panel.set(xscale="log", yscale="log", xlabel="bytes", ylabel="busbw, GB/s", title=f"{what} on {n} ranks")
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8)
    figure.savefig(path)
    pyplot.close(figure)
