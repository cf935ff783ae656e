"""Fields at several times as small multiples that share one color scale."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.report.sections.slices import Slices, color_scale
from hpckit.report.style import INK, pyplot, to_svg
from hpckit.report.units import MINUS, length_scale, number, pretty, signs

Array = npt.NDArray[Any]
SHORTEST = 0.05  # of the longest arrow; shorter ones would be dots
WIDTH = 3.7  # inches of one panel
LEFT, ACROSS = 0.15, 0.80  # of that: where the picture begins, and how wide it is
BELOW, ABOVE = 0.48, 0.22  # inches for the ticks and label of the axis, and for the title
SMALLEST = 1e-3  # smaller numbers of a color scale are written with powers of ten
CURVES = 0.5  # height over width of curves along one dim
FLATTEST = 0.17  # height over width of a picture in which equal lengths look equal
APART = np.array([0.25, 0.12])  # of the picture's width and height: nearer numbers would cover one another
ROOM_FOR_NUMBERS = (
    0.3  # height over width of a picture, and share of it that a contour spans, from which it is numbered
)
CONTOUR_BYTES = 90_000  # contours of a noisy field would fill the page


def edges(points: Array) -> tuple[float, float]:
    """The outer ends of the first and last cell, for points at cell centers."""
    if len(points) == 1:
        return float(points[0]) - 0.5, float(points[0]) + 0.5
    return float(1.5 * points[0] - 0.5 * points[1]), float(1.5 * points[-1] - 0.5 * points[-2])


def draw(axes: Any, field: Slices, index: int, contours: bool = True, arrows: bool = True) -> Any:
    """The field at one of its times on `axes`, with contours and the arrows of its wind; returns the image."""
    low, high, cmap = color_scale(field)
    (bottom, top), (left, right) = edges(field.coords[0]), edges(field.coords[1])
    scales, units = scales_of(field)
    extent = [left / scales[1], right / scales[1], bottom / scales[0], top / scales[0]]
    values = field.values[index]
    image = axes.imshow(
        values,
        origin="lower",
        extent=extent,
        vmin=low,
        vmax=high,
        cmap=cmap,
        interpolation="none",
        aspect=_aspect(field),
    )
    if contours:
        _contours(axes, field, values, scales)
    if arrows and field.wind is not None:
        _arrows(axes, field, index, scales)
    for name, set_label in ((1, axes.set_xlabel), (0, axes.set_ylabel)):
        set_label(f"{field.dims[name]} ({units[name]})" if units[name] else field.dims[name], fontsize=9.2)
    for name, axis, most in ((1, axes.xaxis, 5), (0, axes.yaxis, 4)):
        span = abs(np.subtract(*edges(field.coords[name])))
        if field.coord_units[name].startswith("degree") and span > 90:
            axis.set_major_locator(pyplot().MultipleLocator(60 if span > 200 else 30))
        else:
            axis.set_major_locator(pyplot().MaxNLocator(most, steps=(1, 2, 5, 10)))
    axes.ticklabel_format(style="plain", useOffset=False)
    return image


def scales_of(field: Slices) -> tuple[tuple[float, float], tuple[str, str]]:
    """The divisors of the dims' coordinates and the resulting units; the same where equal lengths look equal."""
    extents = [float(abs(np.subtract(*edges(points)))) for points in field.coords]
    if _aspect(field) == "equal":
        extents = [max(extents)] * 2
    (rows, row_unit), (columns, column_unit) = map(length_scale, extents, field.coord_units)
    return (rows, columns), (row_unit, column_unit)


def _contours(axes: Any, field: Slices, values: Array, scales: tuple[float, float]) -> None:
    """Thin lines at round values, about ten over the color scale."""
    if min(values.shape) < 8 or not np.isfinite(values).all():
        return
    levels = contour_levels(field)
    inside = levels[(levels > values.min()) & (levels < values.max())]
    if inside.size:
        color = INK if field.middle is not None else "#ffffff"
        points = (field.coords[1] / scales[1], field.coords[0] / scales[0])
        lines = axes.contour(
            *points, values, levels=inside, colors=color, linewidths=0.35, alpha=0.55, linestyles="solid"
        )
        if shape_of(field) < ROOM_FOR_NUMBERS:
            return
        _number_two(axes, lines)


def _number_two(axes: Any, lines: Any) -> None:
    """The values of the least and the greatest contour, each once, on its longest line if there is room on it.

    The notes tell the spacing of all lines; more numbers would hide what is drawn.
    """
    size = np.ptp([axes.get_xlim(), axes.get_ylim()], axis=1)
    taken: list[Array] = []
    for n in sorted({0, len(lines.levels) - 1}):
        longest = max(
            lines.allsegs[n], key=lambda line: np.hypot(*(np.diff(line, axis=0) / size).T).sum(), default=None
        )
        if longest is None or (np.ptp(longest, axis=0) / size).max() < ROOM_FOR_NUMBERS:
            continue
        place = longest[len(longest) // 2]
        if any((np.abs(place - other) / size < APART).all() for other in taken):
            continue
        taken.append(place)
        axes.clabel(
            lines,
            levels=[lines.levels[n]],
            fmt=lambda value: signs(f"{value:g}"),
            fontsize=9.2,
            inline_spacing=2,
            manual=[tuple(place)],
        )


def contour_levels(field: Slices) -> Array:
    """The round values of the contours."""
    low, high, _ = color_scale(field)
    low, high = max(low, min(field.low, high)), min(high, max(field.high, low))
    levels: Array = pyplot().MaxNLocator(10, steps=(1, 2, 5, 10)).tick_values(low, high)
    levels = levels[(levels > low) & (levels < high)]
    if field.middle is not None:  # not the middle itself, where rounding decides
        levels = levels[np.abs(levels - field.middle) > 1e-6 * (high - low)]
    return levels


def _arrows(axes: Any, field: Slices, index: int, scales: tuple[float, float]) -> None:
    """Draw the flow; the longest arrow of all times is 1.5 arrow distances long."""
    wind = field.wind
    assert wind is not None
    color = INK if field.middle is not None else "#ffffff"
    gap = WIDTH * ACROSS / len(wind.columns)
    below = WIDTH * ACROSS * shape_of(field) / len(wind.rows)
    step = max(1, round(0.7 * gap / below))  # rows of a flat picture would be so near that they hide the field
    rows = slice(step // 2, None, step)
    across, up = wind.across[index][rows], wind.up[index][rows]
    places = np.meshgrid(wind.columns / scales[1], wind.rows[rows] / scales[0])
    long = np.hypot(across, up) > SHORTEST * wind.most
    if not long.any():
        return
    axes.quiver(
        *(place[long] for place in places),
        across[long],
        up[long],
        color=color,
        alpha=0.75,
        angles="uv",
        scale_units="inches",
        scale=wind.most / (1.5 * gap),
        width=0.0032,
        headwidth=3.6,
        headlength=4.2,
        minlength=0.0,
    )


def panels(field: Slices) -> list[str]:
    """One SVG for each time; for a 1-D field a single one with a line for each time."""
    if field.values.ndim == 2:
        return [_lines(field)]
    return [_panel(field, index) for index in range(len(field.times))]


def colorbar(field: Slices) -> str:
    """The color scale of all panels as an SVG, '' for 1-D fields."""
    if field.values.ndim == 2:
        return ""
    plt = pyplot()
    low, high, cmap = color_scale(field)
    figure = plt.figure(figsize=(WIDTH, 0.42))
    axes = figure.add_axes((0.03, 0.55, 0.94, 0.3))
    scale = plt.cm.ScalarMappable(norm=plt.Normalize(low, high), cmap=cmap)
    extend = extend_of(field)
    powers = max(abs(low), abs(high)) < SMALLEST
    locator = plt.MaxNLocator(4 if powers else 7, steps=(1, 2, 5, 10))
    bar = figure.colorbar(scale, cax=axes, orientation="horizontal", extend=extend, ticks=locator)
    bar.outline.set_visible(False)
    bar.ax.set_xlim(*shown_range(field))
    bar.ax.xaxis.set_major_formatter(_tick_text(bar.ax.get_xticks()))
    units = f" in {pretty(field.units)}" if pretty(field.units) else ""
    return to_svg(figure, f"color scale of {field.long_name}{units}: {number(low)} to {number(high)}", "bar")


def _tick_text(ticks: Array) -> Callable[[float, int], str]:
    """The text of a tick with enough decimals to differ from the next one; powers of ten for small values."""
    step = float(np.diff(ticks).min())
    if np.abs(ticks).max() < SMALLEST:
        return lambda value, _: number(value, 2) if abs(value) > 0.01 * step else "0"
    decimals = max(0, math.ceil(-math.log10(step) - 1e-9))
    return lambda value, _: f"{round(value, decimals) + 0.0:.{decimals}f}".replace("-", MINUS)


def extend_of(field: Slices) -> str:
    """The ends of the color scale that values exceed, as Matplotlib's `extend`."""
    low, high, _ = color_scale(field)
    return {(True, True): "both", (True, False): "min", (False, True): "max"}.get(
        (field.low < low, field.high > high), "neither"
    )


def shown_range(field: Slices) -> tuple[float, float]:
    """The part of the color scale that has values: a field of one sign needs no bar for the other."""
    low, high, _ = color_scale(field)
    span = 0.04 * (high - low)
    return max(low, min(field.low, high) - span), min(high, max(field.high, low) + span)


def _panel(field: Slices, index: int) -> str:
    plt = pyplot()
    height = ACROSS * WIDTH * shape_of(field) + BELOW + ABOVE
    label = f"t = {field.moment(index)}"
    title = f"{label}, {field.places[index]}" if field.places else label
    text = ""
    for contours in (True, False):
        figure = plt.figure(figsize=(WIDTH, height))
        axes = figure.add_axes((LEFT, BELOW / height, ACROSS, 1 - (BELOW + ABOVE) / height))
        draw(axes, field, index, contours)
        axes.set_title(title, pad=4)
        _keep_on_page(axes)
        text = to_svg(figure, f"{field.long_name} at {title}", "panel")
        if len(text) - _image_bytes(text) < CONTOUR_BYTES:
            break
    return text


def _keep_on_page(axes: Any) -> None:
    """Narrow the picture from the left if numbers of five or more digits would push the label off the page."""
    figure = axes.figure
    over = -axes.yaxis.get_tightbbox(figure.canvas.get_renderer()).x0 / figure.bbox.width
    if over > 0:
        left, bottom, width, height = axes.get_position(original=True).bounds
        axes.set_position((left + over, bottom, width - over, height))


def _lines(field: Slices) -> str:
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(2 * WIDTH, 2.6), layout="constrained")
    scale, unit = length_scale(float(np.subtract(*edges(field.coords[0])[::-1])), field.coord_units[0])
    shades = plt.get_cmap("viridis")(np.linspace(0.85, 0.1, len(field.times)))
    for index, (values, color) in enumerate(zip(field.values, shades, strict=True)):
        axes.plot(field.coords[0] / scale, values, color=color, label=field.moment(index))
    axes.set_xlabel(f"{field.dims[0]} ({unit})" if unit else field.dims[0])
    axes.ticklabel_format(axis="x", style="plain", useOffset=False)
    axes.grid(axis="y")
    axes.legend(ncols=len(field.times), loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return to_svg(figure, f"{field.long_name} along {field.dims[0]}", "wide")


def shape_of(field: Slices) -> float:
    """Height over width of a panel."""
    if field.values.ndim == 2:
        return CURVES
    rows, columns = (abs(np.subtract(*edges(points))) for points in field.coords)
    return float(np.clip(rows / columns, FLATTEST, 1.3)) if _aspect(field) == "equal" else 0.6


def _aspect(field: Slices) -> str:
    """The aspect: "equal" if the dims have one unit and the picture does not become too thin, else "auto"."""
    rows, columns = (abs(np.subtract(*edges(points))) for points in field.coords)
    return "equal" if field.coord_units[0] == field.coord_units[1] and FLATTEST <= rows / columns <= 5 else "auto"


def _image_bytes(svg: str) -> int:
    start = svg.find("data:image/png;base64,")
    return svg.find('"', start) - start if start >= 0 else 0
