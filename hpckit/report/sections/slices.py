"""Fields of a run reduced for pictures: few times, two dims, few points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.report.draw.wind import Wind, read_wind
from hpckit.report.field_file import Dim, FieldFile, FileField, evenly
from hpckit.report.units import moment, pretty, scaled_place

Array = npt.NDArray[Any]
SIGNED = ("perturbation", "anomaly", "departure", "deviation", "vorticity", "divergence")
SEQUENTIAL, WARM = "viridis", "inferno"  # perceptually uniform; the second for temperatures
DIVERGING = "RdBu_r"  # white, like the page, where the deviation is 0
TAILS = (0.01, 0.995)  # quantiles over all times that bound a sequential scale, so that one peak does not bleach it
IDLE = 0.01  # of the greatest deviation: where a field deviates less it is idle
BUSY = 0.65  # of the width: a picture is cut to its busy part if that is narrower
SAME = 1e-6  # of the range: a dim along which a field varies less is not drawn
BLANK = 1e-3  # of the range of all times: a time with less of its own would be a panel of one color


@dataclass
class Slices:
    """A variable at several times: `values` [times, rows, columns] (or [times, columns] in 1-D), thinned out.

    `low`, `high` are the extremes of all values shown; `note` says how a 3-D field was cut; `blank` are the times left
    out because the field is the same everywhere. `center` is the reference value of deviations, if known;
    `scale` (low, high, color map) overrides the field's own. `ends` are the outer ends of the first and last cell of
    the last dim, if points were joined.
    """

    name: str
    long_name: str
    units: str
    times: list[float]
    values: Array
    dims: tuple[str, ...]
    coords: tuple[Array, ...]
    coord_units: tuple[str, ...]
    low: float
    high: float
    finite: bool
    note: str = ""
    blank: list[float] = field(default_factory=list)
    center: float | None = None
    scale: tuple[float, float, str] | None = None
    ends: tuple[float, float] | None = None
    wind: Wind | None = None
    time_unit: str = "s"
    places: list[str] = field(default_factory=list)  # where each time is cut, if not all at the same place

    def moment(self, index: int) -> str:
        """The time of that number for people, in the unit that suits the last one."""
        return moment(self.times[index], self.times[-1], self.time_unit)

    @property
    def middle(self) -> float | None:
        """The reference value of deviations: 0 for perturbations and values of both signs, the initial value of a field
        that was uniform at first, None for others.
        """
        if self.center is not None:
            return self.center
        return middle_of(f"{self.name} {self.long_name}", self.low, self.high, self.values[0])


def middle_of(words: str, low: float, high: float, first: Array) -> float | None:
    """The value that a field called by `words`, with these extremes and values at first, deviates from, or None."""
    if any(word in words.lower() for word in SIGNED):
        return 0.0
    if low < 0 < high and min(-low, high) > 0.05 * max(-low, high):
        return 0.0
    return float(first.flat[0]) if np.ptp(first) <= 1e-6 * (high - low) else None


def color_scale(field: Slices) -> tuple[float, float, str]:
    """Lowest and highest value of the scale and the name of the color map.

    Fields with a middle get a map that is white there; a few values (0.2 %) may exceed its ends if that makes the
    rest visible. For others the lowest 1 % and the highest 0.5 % exceed it; temperatures get warm colors. A field
    with its own scale keeps it.
    """
    if field.scale is not None:
        return field.scale
    values = field.values[np.isfinite(field.values)]
    if not values.size:
        return 0.0, 1.0, SEQUENTIAL
    middle = field.middle
    if middle is not None:
        size = np.abs(values - middle)
        top, most = float(np.quantile(size, 0.998)), float(size.max())
        limit = top if top > 0.35 * most else most
        return middle - (limit or 1.0), middle + (limit or 1.0), DIVERGING
    cmap = WARM if field.units in ("K", "degC") or "temperature" in field.long_name.lower() else SEQUENTIAL
    low, high = (float(end) for end in np.quantile(values, TAILS))
    if not high > low:  # nearly uniform: the full range shows the exception
        low, high = float(values.min()), float(values.max())
    return (low, high, cmap) if high > low else (low - 0.5, low + 0.5, cmap)


def sharing_scale(made: list[Slices]) -> list[Slices]:
    """The same fields with one color scale over all of them."""
    if not made:
        return []
    low, high = min(one.low for one in made), max(one.high for one in made)
    every = np.concatenate([one.values.ravel() for one in made])
    scale = color_scale(replace(made[0], values=every[None, None], low=low, high=high, center=made[0].middle))
    return [replace(one, scale=scale, low=low, high=high, center=made[0].middle) for one in made]


def read_slices(
    file: FieldFile, most_times: int = 6, most_points: int = 400, main: str = "", place: tuple[int, ...] | None = None
) -> list[Slices]:
    """Each variable of the file at up to `most_times` times with at most `most_points` points a dim.

    Fields of 3 dims are cut by `section_of`. The field called `main` gets the vectors of the flow.
    """
    frames = [int(frame) for frame in evenly(len(file.times), most_times)]
    made = []
    for variable in file.variables.values():
        cut = section_of(variable, place)
        made.append(read_slice(file, variable, frames, most_points, cut, variable.name == main))
    return made


def read_slice(
    file: FieldFile,
    variable: FileField,
    frames: list[int],
    most_points: int,
    cut: dict[int, int],
    wind: bool = False,
    keep_blank: bool = False,
) -> Slices:
    """A variable at some frames on the dims that are left when those of `cut` (dim -> index) are fixed.

    Times of one value everywhere are left out unless `keep_blank`; `wind` adds the flow.
    """
    kept = [dim for number, dim in enumerate(variable.dims) if number not in cut]
    index = tuple(cut.get(number, slice(None)) for number in range(len(variable.dims)))
    steps = [-(-len(dim.points) // most_points) for dim in kept]
    shown, ends, finite = [], [], True
    for frame in frames:
        values = file.read(variable, frame, index)
        good = values[np.isfinite(values)]
        finite = finite and good.size == values.size
        ends.append((float(good.min()), float(good.max())) if good.size else (np.nan, np.nan))
        shown.append(thin(values, steps))
    every = np.array(ends)[~np.isnan([end[0] for end in ends])]
    low, high = (float(every[:, 0].min()), float(every[:, 1].max())) if every.size else (np.nan, np.nan)
    least = -1.0 if keep_blank else BLANK * (high - low)
    drawn = [i for i, (a, b) in enumerate(ends) if not b - a <= least] or list(range(len(frames)))
    uniform = 0 not in drawn and np.isfinite(ends[0][0])  # at first: what the other times deviate from
    flow = read_wind(file, [frames[i] for i in drawn], kept, dict(_axes(variable, cut))) if wind else None
    return Slices(
        variable.name,
        variable.long_name,
        variable.units,
        [float(file.times[frames[i]]) for i in drawn],
        np.stack([shown[i] for i in drawn]),
        tuple(dim.axis for dim in kept),
        tuple(thin(dim.points, [step]) for dim, step in zip(kept, steps, strict=True)),
        tuple(dim.units for dim in kept),
        low,
        high,
        finite,
        _cut_text(variable, cut),
        [float(file.times[frame]) for i, frame in enumerate(frames) if i not in drawn],
        center=ends[0][0] if uniform else None,
        wind=flow,
        time_unit=file.time_unit,
    )


def still_dim(field: Slices) -> int | None:
    """The dim along which a field of two dims does not vary at any time, as across a channel; None without one."""
    if field.values.ndim != 3 or not field.high > field.low or not np.isfinite(field.values).all():
        return None
    still = [d for d in (0, 1) if np.ptp(field.values, axis=1 + d).max() <= SAME * (field.high - field.low)]
    return still[0] if len(still) == 1 else None


def drawn_as_lines(field: Slices) -> Slices:
    """The field without the dim along which it does not vary, if there is one: curves, not stripes."""
    still = still_dim(field)
    if still is None:
        return field
    note = ", ".join(part for part in (field.note, f"the same all along {field.dims[still]}") if part)
    kept = 1 - still
    return replace(
        field,
        values=field.values.mean(axis=1 + still),
        dims=(field.dims[kept],),
        coords=(field.coords[kept],),
        coord_units=(field.coord_units[kept],),
        note=note,
        wind=None,
    )


def one_each(field: Slices) -> list[Slices]:
    """A field of several times as fields of one time, each with a color scale of its own."""
    made = []
    for n, time in enumerate(field.times):
        values, wind = field.values[n : n + 1], field.wind
        wind = wind.at(n) if wind is not None else None
        ends = float(np.nanmin(values)), float(np.nanmax(values))
        places = field.places[n : n + 1]
        one = replace(field, times=[time], values=values, low=ends[0], high=ends[1], wind=wind, places=places)
        made.append(replace(one, center=field.middle, scale=None))
    return made


def cropped(fields: list[Slices], main: str) -> list[Slices]:
    """The fields on that part of their last dim in which the main one deviates, if most of it is idle: a current in a
    wide box fills its pictures.
    """
    lead = next((one for one in fields if one.name == main and one.values.ndim == 3), None)
    if lead is None or lead.middle is None or not lead.finite:
        return fields
    size = np.abs(lead.values - lead.middle).max(axis=(0, 1))
    busy = np.flatnonzero(size > IDLE * size.max())
    if not busy.size or np.ptp(busy) + 1 > BUSY * size.size:
        return fields
    margin = max(1, round(0.05 * (np.ptp(busy) + 1)))
    x = lead.coords[1]
    low, high = x[max(busy[0] - margin, 0)], x[min(busy[-1] + margin, size.size - 1)]
    return [_between(one, low, high) if one.dims[1:] == lead.dims[1:] else one for one in fields]


def _between(field: Slices, low: float, high: float) -> Slices:
    """The part of a field of two dims whose last coordinate lies between these."""
    x, wind = field.coords[1], field.wind
    kept = (x >= low) & (x <= high)
    if wind is not None:
        near = (wind.columns >= low) & (wind.columns <= high)
        wind = replace(wind, columns=wind.columns[near], across=wind.across[:, :, near], up=wind.up[:, :, near])
        wind = wind if near.any() else None  # a part between two columns of arrows has none
    unit = pretty(field.coord_units[1])
    ends = f"{scaled_place(low, unit, high)} to {scaled_place(high, unit)}"
    note = f"drawn where something happens, {field.dims[1]} = {ends}"
    return replace(
        field,
        values=field.values[:, :, kept],
        coords=(field.coords[0], x[kept]),
        note=", ".join(part for part in (field.note, note) if part),
        wind=wind,
    )


def thin(values: Array, steps: list[int]) -> Array:
    """Means over blocks of `steps` points; an incomplete last block is left out."""
    for axis, step in enumerate(steps):
        if step > 1:
            whole = values.shape[axis] // step
            values = np.take(values, np.arange(whole * step), axis=axis)
            shape = (*values.shape[:axis], whole, step, *values.shape[axis + 1 :])
            values = values.reshape(shape).mean(axis=axis + 1)
    return values


def section_of(variable: FileField, place: Sequence[int] | None = None) -> dict[int, int]:
    """Where a field of 3 dims is cut, dim -> index: across the second dim, in the middle or at the cell `place`: a
    section with the first dim upward, the vertical of an atmosphere. Nothing of a field of fewer dims.
    """
    if len(variable.dims) != 3:
        return {}
    return {1: min(place[1], variable.shape[1] - 1) if place else variable.shape[1] // 2}


def _axes(variable: FileField, cut: dict[int, int]) -> list[tuple[str, int]]:
    return [(variable.dims[number].axis, index) for number, index in cut.items()]


def _cut_text(variable: FileField, cut: dict[int, int]) -> str:
    def text(dim: Dim, index: int) -> str:
        place, extent = float(dim.points[index]), float(np.abs(dim.points).max())
        return f"{dim.axis} = {scaled_place(place, pretty(dim.units), extent)}"

    return ", ".join(f"cut at {text(variable.dims[number], index)}" for number, index in cut.items())
