"""The pictures of a scaling study, and its page."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.bench.scaling.fit import law
from hpckit.errors import SetupError
from hpckit.report.draw.charts import phase_colors
from hpckit.report.page import caption, escape, grid, page, section, table
from hpckit.report.style import ACCENT, MUTED, WARM, pyplot, to_svg

Record = Mapping[str, Any]
CROWDED = "oversubscribed"
FIGURE = (3.7, 2.6)  # inches
FORMULAS = (
    "Speedup: seconds a step on the fewest ranks over those on so many (weak scaling: times the growth of the problem)."
    " Efficiency: speedup over the growth m of ranks. Karp-Flatt: (1 / S - 1 / m) / (1 - 1 / m). Amdahl:"
    " S = 1 / (s + (1 - s) / m); Gustafson: S = m - s (m - 1). Ceiling: one run on one rank alone over as many such"
    " runs at once. Priced: computing as on the fewest ranks, slowed by what the ceiling shows, plus the step's"
    " exchanges by hp.price. Intervals hold 95 % of 2,000 bootstrap samples of the rounds."
)


def pictures(record: Record, folder: Path) -> dict[str, str]:
    """Name -> inline SVG of each picture, also saved as SVG and PNG files; {} and a printed note without matplotlib."""
    try:
        pyplot()
    except SetupError as problem:
        print(f"no pictures: {problem.message}; {problem.do}", file=sys.stderr)
        return {}
    drawn = {}
    draw: dict[str, Callable[[Record], Any]] = {"time": _time, "efficiency": _efficiency, "phases": _phases}
    for name, make in draw.items():
        figure = make(record)
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        figure.savefig(folder / f"{name}.png", dpi=200, facecolor="white")
        drawn[name] = to_svg(figure, f"{name} by the number of ranks", "chart")
    return drawn


def page_of(record: Record, drawn: Mapping[str, str], files: Sequence[str], notes: Sequence[str], rows: Any) -> str:
    """The page: what was found in short, pictures, table, formulas, files. rows: head and rows of the table."""
    head, body = rows
    last = _fair(record["points"])[-1]
    cards = [
        (f"{last['efficiency']['value']:.3f}", f"efficiency on {last['ranks']} ranks"),
        (f"{last['speedup']['value']:.2f}", "speedup"),
    ]
    if "ceiling" in last:
        cards.append((f"{last['ceiling']['value']:.3f}", "ceiling of these cores"))
    if record["fit"]:
        cards.append((f"{record['fit']['serial']['value']:.4f}", f"serial fraction ({record['fit']['law']})"))
    if record["model"] and record["model"]["points"]:
        end = record["model"]["points"][-1]
        cards.append((f"{_model_efficiency(record, end, 'seconds'):.2f}", f"efficiency priced on {end['ranks']} ranks"))
    shown = "".join(f'<div class="card"><b>{escape(a)}</b><span>{escape(b)}</span></div>' for a, b in cards)
    about = record["provenance"]
    return page(
        f"{record['title']}: {record['kind']} scaling",
        f'<header><p class="kicker">hpckit {escape(about["hpckit"])}, scaling study</p>'
        f"<h1>{escape(record['title'])}: {escape(record['kind'])} scaling</h1>"
        f'<p class="verdict">{escape(" ".join(notes))}</p></header>',
        f'<div class="cards">{shown}</div>',
        section("By the number of ranks", grid(drawn.values())),
        section("Table", table(head, body, tuple(range(len(head)))), caption(FORMULAS)),
        section("Made by", caption(f"{about['command']}, {about['started']}"), caption("Beside: " + ", ".join(files))),
    )


def _fair(points: Sequence[Record]) -> list[Record]:
    """Those with a core for each rank; all where there are none."""
    return [point for point in points if not point["oversubscribed"]] or list(points)


def _axes(record: Record, title: str) -> tuple[Any, Any]:
    plt = pyplot()
    figure, axes = plt.subplots(figsize=FIGURE, layout="constrained")
    axes.set_xscale("log", base=2)
    axes.set_xlabel("ranks")
    axes.set_title(title)
    axes.grid(axis="y")
    most = max([point["ranks"] for point in record["points"]] + _model(record, "ranks"))
    ticks = [2**power for power in range(int(np.log2(most)) + 1)]
    ticks = ticks[:: 1 if len(ticks) < 8 else 3]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    return figure, axes


def _model(record: Record, key: str) -> list[Any]:
    return [point[key] for point in record["model"]["points"]] if record["model"] else []


def _marks(axes: Any, points: Sequence[Record], key: str, scale: float = 1.0) -> None:
    """Measured points with their intervals; hollow where ranks share cores."""
    groups = ((False, ACCENT, "measured"), (True, "none", CROWDED))
    for crowded, face, label in groups:
        some = [point for point in points if point["oversubscribed"] == crowded]
        if some:
            values = [scale * point[key]["value"] for point in some]
            ends = [[scale * abs(point[key][end] - point[key]["value"]) for point in some] for end in ("low", "high")]
            axes.errorbar(
                [point["ranks"] for point in some], values, ends, fmt="o", markersize=4, color=ACCENT, mfc=face,
                capsize=2, linewidth=1, label=label, zorder=3,
            )  # fmt: skip


def _time(record: Record) -> Any:
    figure, axes = _axes(record, "milliseconds a step")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    if record["model"]:
        ranks = _model(record, "ranks")
        low, high = (1e3 * np.array(_model(record, end)) for end in ("low", "high"))
        axes.fill_between(ranks, low, high, color=WARM, alpha=0.18, linewidth=0)
        axes.plot(ranks, 1e3 * np.array(_model(record, "seconds")), color=WARM, label="priced")
        talk = [(n, 1e3 * each) for n, each in zip(ranks, _model(record, "communicate"), strict=True) if each > 0]
        if talk:
            axes.plot(*zip(*talk, strict=True), color=MUTED, linestyle=":", label="exchanges in it")
    _marks(axes, record["points"], "seconds", 1e3)
    axes.legend(loc="best")
    return figure


def _efficiency(record: Record) -> Any:
    figure, axes = _axes(record, "parallel efficiency")
    axes.axhline(1.0, color="#aab4bd", linewidth=0.7)
    base = min(point["ranks"] for point in record["points"])
    if record["model"]:
        ends = [[_model_efficiency(record, p, key) for p in record["model"]["points"]] for key in ("high", "low")]
        middle = [_model_efficiency(record, p, "seconds") for p in record["model"]["points"]]
        axes.fill_between(_model(record, "ranks"), *ends, color=WARM, alpha=0.18, linewidth=0)
        axes.plot(_model(record, "ranks"), middle, color=WARM, label="priced")
    if record["fit"]:
        most = max(_model(record, "ranks") or [point["ranks"] for point in record["points"]])
        ranks = np.geomspace(base, most, 60)
        fitted = law(record["fit"]["serial"]["value"], ranks / base, record["kind"] == "weak")
        axes.plot(ranks, fitted, color=MUTED, linestyle="--", linewidth=1, label=record["fit"]["law"])
    tops = [(point["ranks"], point["ceiling"]["value"]) for point in record["points"] if "ceiling" in point]
    if tops:
        axes.plot(*zip(*tops, strict=True), "_", markersize=12, color=WARM, label="ceiling")
    _marks(axes, record["points"], "efficiency")
    axes.set_ylim(0, max(1.1, *(1.05 * point["efficiency"]["high"] for point in record["points"])))
    axes.legend(loc="best")
    return figure


def _model_efficiency(record: Record, point: Record, key: str) -> float:
    """Of a point of the model, against its first one."""
    first = record["model"]["points"][0]
    growth = 1.0 if record["kind"] == "weak" else first["ranks"] / point["ranks"]
    return growth * first["seconds"] / point[key]


def _phases(record: Record) -> Any:
    """Stacked bars, one a number of ranks: where a step's time goes."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=FIGURE, layout="constrained")
    points = record["points"]
    names = list(dict.fromkeys(name for point in points for name in point["phases"]))
    bottom = np.zeros(len(points))
    for name, color in phase_colors(names).items():
        heights = np.array([1e3 * point["phases"].get(name, {"mean": 0.0})["mean"] for point in points])
        axes.bar(range(len(points)), heights, 0.66, bottom, color=color, linewidth=0, label=name)
        bottom += heights
    labels = [f"{point['ranks']}{'*' if point['oversubscribed'] else ''}" for point in points]
    axes.set_xticks(range(len(points)), labels)
    axes.set_ylim(0, 1.05 * float(bottom.max()) or 1.0)
    axes.set_xlabel("ranks" + (f" (* {CROWDED})" if any(point["oversubscribed"] for point in points) else ""))
    axes.set_title("phases of a step, mean over ranks (ms)")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=1)
    return figure
