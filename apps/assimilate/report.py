"""The report of an assimilation: cost, gradient and error by iteration, maps of the error before and after."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hpckit.report.data import map_link, with_data
from hpckit.report.draw.maps import edges
from hpckit.report.extension import ReportSection
from hpckit.report.field_file import FieldFile
from hpckit.report.page import caption, grid, table
from hpckit.report.run_data import RunData
from hpckit.report.style import ACCENT, pyplot, to_svg
from hpckit.report.units import few_ticks, number

FLAT = 0.6  # height over width of a map whose colors are told below it
DECADE = 10.0  # greatest over least: beyond, an axis is logarithmic
SHOWN = {
    "cost": "cost",
    "gradient": "norm of the gradient",
    "error": "error over that of the first guess",
    "spread": "spread of the members",
}
ROWS = {
    "error": "error over that of the first guess, start of the window",
    "error_end": "the same at its end",
    "error_n": "error of the logarithm of Manning's n, root mean square",
    "error_h": "error of h (m), root mean square",
    "error_u": "error of u (m/s), root mean square",
    "cost": "cost",
    "cost_background": "the background's part of it",
    "gradient": "norm of the gradient",
}


def sections(run: RunData) -> Iterator[ReportSection | Iterator[ReportSection]]:
    """The charts, the table of first and last values, the maps."""
    yield _analysis(run)
    yield _flood(run) if run.values["case"] == "flood" else _maps(run)


def _analysis(run: RunData) -> Iterator[ReportSection]:
    drawn, rows, numbers = [], [], {}
    for name, title in SHOWN.items():
        steps, values = run.series(name)
        if len(steps) < 2:
            continue
        figure, axes = pyplot().subplots(figsize=(3.7, 2.6), layout="constrained")
        axes.plot(steps, values, color=ACCENT, marker=".")
        if min(values) > 0 and max(values) > DECADE * min(values):
            axes.set_yscale("log")
            few_ticks(axes.yaxis)
        axes.set_title(title)
        along = "cycle" if run.values["method"]["kind"] == "letkf" else "iteration"
        axes.set_xlabel(along)
        drawn.append(with_data(to_svg(figure, title, "chart"), title, {along: steps, title: values}))
    for name, what in ROWS.items():
        _, values = run.series(name)
        if values:
            rows.append((what, number(values[0]), number(values[-1])))
            numbers[name] = {"first": values[0], "last": values[-1]}
    if not drawn:
        return
    seen = "gauges read the depth" if run.values["case"] == "flood" else "stations see h, u and v"
    said = f"{run.summary.get('stations')} {seen}, {run.summary.get('observations')} numbers in all."
    shown = grid(drawn) + table(("quantity", "first", "last"), rows, (1, 2)) + caption(said)
    yield ReportSection("analysis", "Analysis", shown, numbers, "headline", tuple(numbers))


def _flood(run: RunData) -> Iterator[ReportSection]:
    """The depth at some gauges in time, and maps of Manning's n and of the flood at the end."""
    read = run.summary.get("hydrographs")
    if run.fields is None or not read:
        return
    drawn = []
    for place, (j, i) in enumerate(read["cells"]):
        figure, axes = pyplot().subplots(figsize=(3.7, 2.6), layout="constrained")
        for name, color, dashes in (("truth", "black", ":"), ("first guess", "gray", "--"), ("analysis", ACCENT, "-")):
            axes.plot(read["time"], read[name][place], color=color, linestyle=dashes, label=name)
        axes.set_title(title := f"depth at cell ({j}, {i}) (m)")
        axes.set_xlabel("time (s)")
        axes.legend()
        lines = {name: read[name][place] for name in ("truth", "first guess", "analysis")}
        drawn.append(with_data(to_svg(figure, title, "chart"), title, {"time (s)": read["time"], **lines}))
    with FieldFile(run.fields) as file:
        maps = {name: np.asarray(file.read(file.variables[name], 0)) for name in ("n_truth", "n_analysis", "h_truth")}
        y, x = (np.asarray(dim.points) for dim in file.variables["h_truth"].dims)
    low, high = (f(maps["n_truth"]) for f in (np.min, np.max))
    span = {"cmap": "YlOrBr", "vmin": float(low), "vmax": float(high)}
    j, i = np.array(run.summary["gauges"]).T
    gauges = np.stack([y[j], x[i]], axis=1)
    flood = np.where(maps["h_truth"] > 0.0, maps["h_truth"], np.nan)
    drawn += [
        _map(maps["n_truth"], (y, x), "Manning's n of the truth", span, gauges),
        _map(maps["n_analysis"], (y, x), "Manning's n of the analysis", span, gauges),
        _map(flood, (y, x), "depth at the end (m), and the gauges", {"cmap": "Blues"}, gauges),
    ]
    said = "Where no water comes near, no gauge can tell, and the first guess remains."
    numbers = {"n": {"lowest": float(low), "highest": float(high)}}
    yield ReportSection("maps", "Floods and roughness", grid(drawn) + caption(said), numbers, "headline")


def _maps(run: RunData) -> Iterator[ReportSection]:
    """The surface of the truth, and what first guess and analysis are off, at the first time of the file."""
    if run.fields is None:
        return
    with FieldFile(run.fields) as file:
        if not {"h_truth", "h_background", "h_analysis"} <= set(file.variables):
            return
        truth, before, after = (
            np.asarray(file.read(file.variables[f"h_{kind}"], 0)) for kind in ("truth", "background", "analysis")
        )
        y, x = (dim.points for dim in file.variables["h_truth"].dims)
    most = float(np.abs(before - truth).max()) or 1.0
    size = float(np.sqrt(((after - truth) ** 2).mean()) / np.sqrt(((before - truth) ** 2).mean()))
    span: dict[str, Any] = {"cmap": "RdBu_r", "vmin": -most, "vmax": most}
    pictures = [
        _map(truth - truth.mean(), (y, x), "surface of the truth (m)", {"cmap": "RdBu_r"}),
        _map(before - truth, (y, x), "first guess less truth (m)", span),
        _map(after - truth, (y, x), "analysis less truth (m)", span),
    ]
    said = f"At the same scale: the error of h falls to {number(size, 3)} of that of the first guess."
    yield ReportSection("maps", "Maps of the error", grid(pictures) + caption(said), {"h": size}, "headline")


def _map(
    values: np.ndarray,
    places: tuple[np.ndarray, np.ndarray],
    title: str,
    span: dict[str, Any],
    marks: np.ndarray | None = None,
) -> str:
    """A map of values at places (y, x) in m; marks: places (m) of dots, [n, 2]."""
    (bottom, top), (left, right) = (edges(each / 1000) for each in places)
    tall = (top - bottom) / (right - left)
    flat = tall < FLAT
    figure, axes = pyplot().subplots(figsize=(3.7, 1.2 + 3.1 * tall if flat else 3.1), layout="constrained")
    shown = axes.imshow(values, origin="lower", extent=(left, right, bottom, top), interpolation="nearest", **span)
    bar = figure.colorbar(shown, ax=axes, **({"orientation": "horizontal", "aspect": 30} if flat else {"shrink": 0.8}))
    bar.ax.locator_params(nbins=5)
    if marks is not None:
        axes.plot(marks[:, 1] / 1000, marks[:, 0] / 1000, "k.", markersize=3)
    axes.set_title(title)
    axes.locator_params(nbins=5)
    axes.set(xlabel="x (km)", ylabel="y (km)")
    link = map_link(title, {"y (m)": places[0], "x (m)": places[1]}, title, values)
    return f"<figure>{to_svg(figure, title, 'chart')}{link}</figure>"
