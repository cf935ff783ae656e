"""Hovmöller diagrams: a field against one dim and time, reduced over the other dims (Hovmöller 1949, Tellus 1)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.report.data import from_file, map_link
from hpckit.report.draw.maps import colorbar, edges
from hpckit.report.field_file import Dim, FieldFile, FileField
from hpckit.report.page import caption, escape, grid, section
from hpckit.report.sections.slices import BLANK, Slices, color_scale, middle_of, sharing_scale
from hpckit.report.style import pyplot, to_svg
from hpckit.report.units import length_scale, number, time_scale, with_units

Array = npt.NDArray[Any]
Record = dict[str, Any]
MOST_TIMES = 200
MOST_POINTS = 300
READ_BYTES = 600_000_000  # in all; larger fields are read at fewer times and levels
KEEPS = 0.5  # of the field's standard deviation: a mean that keeps this much along some dim is shown


def diagrams(file: FieldFile, variable: FileField, how: str) -> tuple[list[Slices], str]:
    """A diagram for each dim, with the dims (time, place), and the reduction over the other dims.

    how: "mean", "extremum" or "auto". The extremum is the value farthest from the field's middle (from 0 for a
    deviation), with its sign; the greatest value for a field without one. [] for runs of one frame, fields of one dim,
    and fields of one value or not finite; dims along which the field does not vary have no diagram.
    """
    if len(file.times) < 2 or len(variable.dims) < 2:
        return [], how
    frames, stride = _budget(file, variable)
    rows = [_Profile(file, variable, int(frame), stride) for frame in frames]
    low, high = (float(f([f(row.ends[i][0]) for row in rows])) for i, f in ((0, np.min), (1, np.max)))
    if not (np.isfinite([low, high]).all() and high > low):
        return [], how
    first = np.concatenate([rows[0].ends[0][0], rows[0].ends[1][0]])
    middle = middle_of(f"{variable.name} {variable.long_name}", low, high, first)
    means = [np.array([row.means[dim] for row in rows]) for dim in range(len(variable.dims))]
    square, mean = (np.mean([getattr(row, name) for row in rows]) for name in ("square", "mean"))
    spread = np.sqrt(max(square - mean**2, 0.0))
    if how == "auto":
        how = "mean" if any(np.std(one) >= KEEPS * spread for one in means) else "extremum"
    made = []
    for number_, dim in enumerate(variable.dims):
        lows, highs = (np.array([row.ends[end][number_] for row in rows]) for end in (0, 1))
        far = highs if middle is None else _farther(lows, highs, middle)
        points = dim.points[:: stride if number_ == 0 else 1]
        values = means[number_] if how == "mean" else far
        made.append(_diagram(variable, dim, points, values, file.times[frames], middle, how, file.time_unit))
    return [one for one in made if one.high - one.low > BLANK * (high - low)], how


class _Profile:
    """A field at one time along each of its dims: means, and least and greatest values (`ends[0]`, `ends[1]`) over the
    other dims; the mean and the mean square of all of it. Reads every `stride`-th row of the first dim.
    """

    def __init__(self, file: FieldFile, variable: FileField, frame: int, stride: int) -> None:
        sizes = [len(range(0, variable.shape[0], stride)), *variable.shape[1:]]
        sums = [np.zeros(n) for n in sizes]
        self.ends = [np.full(n, np.inf) for n in sizes], [np.full(n, -np.inf) for n in sizes]
        squares, points = 0.0, 0
        for where, values in file.slabs(variable, frame, stride):
            first = slice(where.start // stride, where.start // stride + values.shape[0])
            squares, points = squares + float((values**2).sum()), points + values.size
            for dim in range(values.ndim):
                others = tuple(d for d in range(values.ndim) if d != dim)
                here = first if dim == 0 else slice(None)
                sums[dim][here] += values.sum(axis=others)
                low, high = self.ends[0][dim], self.ends[1][dim]
                low[here] = np.minimum(low[here], values.min(axis=others))
                high[here] = np.maximum(high[here], values.max(axis=others))
        self.means = [total * n / points for total, n in zip(sums, sizes, strict=True)]
        self.mean, self.square = float(sums[0].sum()) / points, squares / points


def _budget(file: FieldFile, variable: FileField) -> tuple[Array, int]:
    """The frames to read, and the stride over rows of the first dim, within the budget."""
    size, count = file.frame_bytes(variable), len(file.times)
    most = max(6, min(MOST_TIMES, READ_BYTES // max(size, 1)))
    frames = np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int))
    stride = -(-size * len(frames) // READ_BYTES)
    return frames, max(1, min(stride, variable.shape[0] // 8 or 1))


def _diagram(
    variable: FileField, dim: Dim, points: Array, rows: Array, times: Array, middle: float | None, how: str, unit: str
) -> Slices:
    """Rows [times, points] as a field of dims (time, place); of many places neighbors are joined."""
    starts = np.arange(0, len(points), -(-len(points) // MOST_POINTS))
    counts = np.diff(starts, append=len(points))
    values = np.add.reduceat(rows, starts, axis=1) / counts
    if how != "mean":
        highs, lows = np.maximum.reduceat(rows, starts, axis=1), np.minimum.reduceat(rows, starts, axis=1)
        values = highs if middle is None else _farther(lows, highs, middle)
    return Slices(
        variable.name,
        variable.long_name,
        variable.units,
        [float(times[-1])],
        values[None],
        ("time", dim.axis),
        (times, np.add.reduceat(points, starts) / counts),
        (unit, dim.units),
        float(values.min()),
        float(values.max()),
        True,
        center=middle,
        ends=edges(dim.points),
    )


def _farther(lows: Array, highs: Array, middle: float) -> Array:
    """Elementwise the value farther from the middle."""
    return np.where(highs - middle >= middle - lows, highs, lows)


def hovmoeller_section(made: list[Slices], how: str) -> str:
    """The diagrams side by side on one color scale."""
    if not made:
        return ""
    shared = sharing_scale(made)
    field = shared[0]
    others = "the mean over the other dims" if how == "mean" else "the extremum over the other dims"
    said = f"{others}; {number(field.low)} to {number(field.high)}"
    return section(
        "Place and time",
        f"<h3>{escape(with_units(field.long_name, field.units))} <span>{escape(said)}</span></h3>",
        colorbar(field),
        grid(_picture(one) for one in shared),
        f"<div>{''.join(map(_data, made))}{from_file(field.name)}</div>",
        caption(f"Hovmöller diagrams of {len(field.coords[0])} times; a slope in them is a speed."),
    )


def hovmoeller_numbers(made: list[Slices], how: str) -> Record | None:
    """Every value drawn, by axis."""
    if not made:
        return None
    axes = {
        one.dims[1]: {
            "places": one.coords[1].tolist(),
            "units": one.coord_units[1],
            "times": one.coords[0].tolist(),
            "values": [[float(f"{value:.6g}") for value in row] for row in one.values[0].tolist()],
        }
        for one in made
    }
    return {"variable": made[0].name, "units": made[0].units, "over_other_dims": how, "axes": axes}


def _data(field: Slices) -> str:
    """The link to the numbers of a diagram."""
    times, place = (f"{name} ({unit})" for name, unit in zip(("time", field.dims[1]), field.coord_units, strict=True))
    dims = {times: field.coords[0], place: field.coords[1]}
    return map_link(
        f"{field.name} {field.dims[1]} and time", dims, with_units(field.name, field.units), field.values[0]
    )


def _picture(field: Slices) -> str:
    """Time upward beside a horizontal place; to the right below the vertical."""
    plt = pyplot()
    times, points = field.coords
    first, last = field.ends or edges(points)
    scale, unit = length_scale(last - first, field.coord_units[1])
    per, time_unit = time_scale(float(times[-1]), field.coord_units[0])
    low, high, cmap = color_scale(field)
    figure, axes = plt.subplots(figsize=(3.7, 2.6), layout="constrained", dpi=130)
    style = {"vmin": low, "vmax": high, "cmap": cmap, "shading": "flat", "rasterized": True}
    at_times, at_points = _between(times / per), np.array([first, *_between(points)[1:-1], last]) / scale
    place = with_units(field.dims[1], unit)
    along = "step" if time_unit == "steps" else f"time ({time_unit})"
    if field.dims[1] == "z":
        axes.pcolormesh(at_times, at_points, field.values[0].T, **style)
        axes.set(xlabel=along, ylabel=place)
    else:
        axes.pcolormesh(at_points, at_times, field.values[0], **style)
        axes.set(xlabel=place, ylabel=along)
    axes.locator_params(nbins=5, steps=(1, 2, 5, 10))
    axes.ticklabel_format(style="plain", useOffset=False)
    return to_svg(figure, f"{field.long_name} against {field.dims[1]} and time", "panel")


def _between(times: Array) -> Array:
    """Edges halfway between times; the first and the last time are the ends."""
    return np.concatenate([times[:1], 0.5 * (times[1:] + times[:-1]), times[-1:]])
