"""The page of `hpckit compare --report`: the metrics of several runs, each metric in one chart with a line a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpckit.io.files import replace_file, write_error
from hpckit.report.draw.charts import over_time
from hpckit.report.page import caption, escape, grid, page, section, table
from hpckit.report.run_data import RunData, load_run
from hpckit.report.units import number

ASIDE = ("dt", "step", "time")


def write_comparison(folders: Sequence[Path], target: Path) -> Path:
    """Write the page of these runs to `target`; returns it. Raises `InputError` for a folder without a run."""
    runs = [load_run(folder) for folder in folders]
    settings = [_leaves(run.values) for run in runs]
    names = list(dict.fromkeys(name for each in settings for name in each))
    apart = [name for name in names if len({str(each.get(name)) for each in settings}) > 1]
    labels = _labels(runs, settings, apart)
    metrics = dict.fromkeys(name for run in runs for name in run.metric_names() if name not in ASIDE)
    charts, last = [], []
    for name in metrics:
        lines = {label: run.series(name) for label, run in zip(labels, runs, strict=True) if run.series(name)[0]}
        if len(lines) > 1 or len(runs) == 1:
            charts.append(over_time(runs[0].with_unit(name), lines, unit=runs[0].time_unit))
        ends = [number(run.series(name)[1][-1]) if run.series(name)[1] else "" for run in runs]
        last.append((runs[0].with_unit(name), *ends))
    text = page(
        "Runs compared",
        f'<header><p class="kicker">hpckit compare</p><h1>{escape(" · ".join(labels))}</h1></header>',
        section("Metrics", grid(charts) or caption("The runs have no metrics in common.")),
        section("Last values", table(("metric", *labels), last, tuple(range(1, len(runs) + 1)))),
        section(
            "Settings that differ",
            table(("setting", *labels), [(name, *(str(each.get(name, "")) for each in settings)) for name in apart])
            or caption("None."),
        ),
    )
    try:
        replace_file(target, text.encode())
    except OSError as problem:
        raise write_error(problem, target) from problem
    return target


def _labels(runs: Sequence[RunData], settings: Sequence[dict[str, Any]], apart: Sequence[str]) -> list[str]:
    """What to call each run: by the settings that differ if these are one or two, else by its folder."""
    by_folder = [run.directory.name for run in runs]
    if len(set(by_folder)) < len(runs):
        by_folder = [str(run.directory) for run in runs]
    if not 1 <= len(apart) <= 2:
        return by_folder
    named = [", ".join(f"{name.rpartition('.')[2]} {each.get(name)}" for name in apart) for each in settings]
    return named if len(set(named)) == len(runs) else by_folder


def _leaves(tree: Any, above: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys."""
    if not isinstance(tree, dict):
        return {above: tree}
    return {k: v for name, item in tree.items() for k, v in _leaves(item, f"{above}.{name}".strip(".")).items()}
