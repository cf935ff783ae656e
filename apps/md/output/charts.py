"""Curves and a picture of the particles for the report, as inline SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hpckit.apps.md.config import Config
from hpckit.apps.md.output.analysis import diameters
from hpckit.plan.particles.snapshot import Snapshot
from hpckit.report.data import columns_of, with_data
from hpckit.report.style import SERIES, pyplot, to_svg

FEWEST_SETTLED = 5  # values that may set the limits of an axis
MOST = 5000  # particles in the picture
MOST_INSIDE, IN_A_ROW = 6, 5  # names of curves within the axes; of more below them
Lines = Mapping[str, tuple[Sequence[float], Any]]


def lines(
    title: str,
    series: Lines,
    x_label: str,
    unit: str = "",
    *,
    level: float | None = None,
    level_name: str = "",
    fit: tuple[float, float] | None = None,
    relative: bool = False,
    dots: bool = False,
    settled: float | None = None,
) -> str:
    """Curves by name. `level`: a gray line, `level_name` in the legend; `fit`: shares of the longest x between which a
    line is fitted and drawn; `relative`: over the first value; `dots`: the first curve as dots; `settled`: the y axis
    shows what comes from this x on, and a first transient may leave it.
    """
    many = len(series) > MOST_INSIDE
    height = 2.2 + (0.17 * -(-len(series) // IN_A_ROW) if many else 0.0)
    figure, axes = pyplot().subplots(figsize=(3.7, height), layout="constrained")
    if level is not None:
        axes.axhline(level, color="#aab4bd", linewidth=0.7, label=level_name or None)
    for number, (name, (along, values)) in enumerate(series.items()):
        x, y = np.asarray(along, float), np.asarray(values, float)
        y = y / y[0] if relative and y[0] else y
        look = {"marker": "o", "markersize": 2.5, "linestyle": "none"} if dots and number == 0 else {}
        axes.plot(x, y, color=SERIES[number % len(SERIES)], label=name or None, **look)
        if fit is not None:
            chosen = (x >= fit[0] * x[-1]) & (x <= fit[1] * x[-1])
            if chosen.sum() > 1:
                axes.plot(x, np.polyval(np.polyfit(x[chosen], y[chosen], 1), x), color="#64727f", lw=0.8, ls="--")
    axes.grid(axis="y")
    axes.margins(x=0.01)
    axes.ticklabel_format(axis="x", scilimits=(-3, 6))
    if fit is not None:
        axes.set_ylim(bottom=0.0)
    if settled is not None:
        _fit(axes, series, settled, level)
    axes.set_xlabel(x_label.replace(" ()", ""))
    axes.set_title(f"{title} ({unit})" if unit else title)
    if many:
        figure.legend(loc="outside lower center", ncols=IN_A_ROW, handlelength=1.2, fontsize="x-small")
    elif len(series) > 1:
        axes.legend(loc="best", handlelength=1.2)
    return with_data(to_svg(figure, title, "chart"), title, columns_of(series, x_label.replace(" ()", "")))


def _fit(axes: Any, series: Lines, settled: float, level: float | None) -> None:
    """Limits of the y axis by the values from `settled` on and the level, if a transient before them needs far more."""
    both = [(np.asarray(x, float), np.asarray(y, float)) for x, y in series.values()]
    late = np.concatenate([y[x >= settled] for x, y in both])
    every = np.concatenate([y for _, y in both])
    if len(late) < FEWEST_SETTLED or not np.isfinite(every).all():
        return
    low, high = (end([*late, *([] if level is None else [level])]) for end in (min, max))
    if high > low and np.ptp(every) > 2 * (high - low):
        axes.set_ylim(low - 0.3 * (high - low), high + 0.3 * (high - low))


def picture(frame: Snapshot, config: Config, unit: str) -> tuple[str, str]:
    """The particles seen along z, nearer ones in stronger colors, and a caption.

    Of more than `MOST` particles, the central slab that holds `MOST`.
    """
    from matplotlib.collections import EllipseCollection
    from matplotlib.colors import to_rgb

    places, middle = frame.positions, 0.5 * (frame.lower + frame.upper)[2]
    away = np.abs(places[:, 2] - middle)
    thick = np.inf if frame.count <= MOST else float(np.partition(away, MOST)[MOST])
    shown = np.flatnonzero(away <= thick)
    shown = shown[np.argsort(places[shown, 2], kind="stable")]
    low, high = places[shown[[0, -1]], 2] if len(shown) else (0.0, 1.0)
    near = (places[shown, 2] - low) / max(high - low, 1e-300)
    types = int(frame.types.max(initial=0)) + 1
    widths = np.array(diameters(config, types))[frame.types[shown]]
    base = np.array([to_rgb(color) for color in SERIES])[frame.types[shown] % len(SERIES)]
    colors = 1 - (1 - base) * (0.18 + 0.82 * near)[:, None]
    figure, axes = pyplot().subplots(figsize=(3.9, 3.9 * _ratio(frame)), layout="constrained")
    circles = EllipseCollection(
        widths,
        widths,
        np.zeros(len(shown)),
        units="xy",
        offsets=places[shown, :2],
        offset_transform=axes.transData,
        facecolors=colors,
        edgecolors="white",
        linewidths=0.25,
        rasterized=True,
    )
    axes.add_collection(circles)
    axes.set_xlim(*_span(frame, 0))
    axes.set_ylim(*_span(frame, 1))
    axes.set_aspect("equal")
    axes.set_xlabel(f"x ({unit})")
    axes.set_ylabel(f"y ({unit})")
    figure.set_dpi(150)
    what = (
        f"all {frame.count} particles"
        if len(shown) == frame.count
        else (f"{len(shown)} of {frame.count} particles: a slab {high - low:.3g} {unit} thick through the middle")
    )
    names = ", ".join(f"type {kind + 1}" for kind in range(types))
    many = f" Colors: {names}, in the order of the charts." if types > 1 else ""
    return to_svg(figure, "the particles at the end, seen along z", "chart"), f"Seen along z, {what}.{many}"


def _span(frame: Snapshot, dim: int) -> tuple[float, float]:
    """The box; along an open dim, the extent of the particles."""
    low, high = float(frame.lower[dim]), float(frame.upper[dim])
    if frame.periodic[dim] or not frame.count:
        return low, high
    return min(low, float(frame.positions[:, dim].min())), max(high, float(frame.positions[:, dim].max()))


def _ratio(frame: Snapshot) -> float:
    (left, right), (bottom, top) = _span(frame, 0), _span(frame, 1)
    return float(np.clip((top - bottom) / (right - left), 0.25, 2.0))
