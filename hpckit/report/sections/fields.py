"""The fields on the page: panels of each at several times, and sections through the main one of a 3-D run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hpckit.report.data import MOST_POINTS, data_link, from_file, map_link
from hpckit.report.draw.maps import colorbar, contour_levels, panels, shape_of
from hpckit.report.field_file import FieldFile, FileField, evenly
from hpckit.report.page import caption, escape, grid, section
from hpckit.report.sections.slices import Slices, middle_of, one_each, read_slice, sharing_scale
from hpckit.report.units import moment, number, pretty, signs, with_units

CUT_TIMES = 3
CONTOURS = "QuadContourSet"  # as Matplotlib names them in a picture
ROUNDING = 1e-10  # of the greatest field in the same units: a field below is what is left of sums that cancel
FLAT = 0.35  # height over width: flatter pictures stand in rows of two, not three
READ_BYTES = (
    600_000_000  # of the main field that are searched for extremes; larger fields use the last time or the middle
)


def extremum(file: FieldFile, variable: FileField, frame: int) -> tuple[int, ...]:
    """The cell where the field at a frame is farthest from its middle; the middle of the grid for a field of one value
    or values that are not finite.
    """
    low, high, at_low, at_high = np.inf, -np.inf, 0, 0
    first = None
    row = int(np.prod(variable.shape[1:]))
    for where, values in file.slabs(variable, frame):
        first = values if first is None else first
        if not np.isfinite(values).all():
            return tuple(n // 2 for n in variable.shape)
        if values.min() < low:
            low, at_low = float(values.min()), where.start * row + int(values.argmin())
        if values.max() > high:
            high, at_high = float(values.max()), where.start * row + int(values.argmax())
    assert first is not None
    if not high > low:
        return tuple(n // 2 for n in variable.shape)
    middle = middle_of(f"{variable.name} {variable.long_name}", low, high, first)
    at = at_low if middle is not None and middle - low > high - middle else at_high
    return tuple(int(i) for i in np.unravel_index(at, variable.shape))


def cut_place(file: FieldFile, variable: FileField, how: str) -> tuple[int, ...]:
    """Where fields of 3 dims are cut: the extremum of the main one at the last time, or the middle."""
    if how == "center" or len(variable.dims) != 3 or file.frame_bytes(variable) > READ_BYTES:
        return tuple(n // 2 for n in variable.shape)
    return extremum(file, variable, len(file.times) - 1)


def cross_sections(file: FieldFile, variable: FileField, how: str, most_points: int) -> list[Slices]:
    """The main field of a 3-D run on the planes across each of its dims at up to three times, with the flow in them and
    one color scale; each time is cut through its own extremum, or all times in the middle.
    """
    if len(variable.dims) != 3:
        return []
    frames = [int(frame) for frame in evenly(len(file.times), CUT_TIMES)]
    size = file.frame_bytes(variable)
    frames = frames[-max(1, min(len(frames), READ_BYTES // max(size, 1))) :]
    middle = tuple(n // 2 for n in variable.shape)
    follow = how == "extremum" and size <= READ_BYTES
    places = [extremum(file, variable, frame) if follow else middle for frame in frames]
    made = []
    for dim in (1, 2, 0):  # along x, along y, from above
        parts = [
            read_slice(file, variable, [frame], most_points, {dim: place[dim]}, wind=True)
            for frame, place in zip(frames, places, strict=True)
        ]
        made.append(_joined(parts))
    return sharing_scale([one for one in made if one.high > one.low])


def _joined(parts: Sequence[Slices]) -> Slices:
    """One field of several times from fields of one time each; those of one value are left out."""
    drawn = [one for one in parts if one.high > one.low] or [parts[0]]
    winds = [one.wind for one in drawn]
    first = drawn[0]
    wind = None
    if any(winds):
        there = [one.whole() for one in winds if one is not None]
        some, left = there[0], iter(there)
        both = [next(left) if one else replace(some, across=0 * some.across, up=0 * some.up) for one in winds]
        across, up = (np.concatenate([getattr(one, name) for one in both]) for name in ("across", "up"))
        planes = len({one.note for one in drawn}) > 1 and not some.has_levels
        wind = replace(some, across=across, up=up, most=max(one.most for one in there)).apart(each_time=planes)
    return Slices(
        first.name,
        first.long_name,
        first.units,
        [one.times[0] for one in drawn],
        np.concatenate([one.values for one in drawn]),
        first.dims,
        first.coords,
        first.coord_units,
        min(one.low for one in drawn),
        max(one.high for one in drawn),
        all(one.finite for one in drawn),
        blank=[one.times[0] for one in parts if not one.high > one.low],
        wind=wind,
        time_unit=first.time_unit,
        places=[one.note.removeprefix("cut at ") for one in drawn],
    )


def fields_section(
    slices: Sequence[Slices], cuts: Sequence[Slices], each: bool = False, most_points: int = MOST_POINTS
) -> str:
    """Each field at several times with one color scale, or with `each` one a time; of a 3-D run first the sections
    through the main one. most_points: of the numbers of a field that can be downloaded.
    """
    parts = []
    if cuts:
        field = cuts[0]
        heading = f"sections through {field.long_name}"
        said = f"{number(field.low)} to {number(field.high)}; cut at each time where the field is most extreme"
        parts.append(f"<h3>{escape(with_units(heading, field.units))} <span>{escape(said)}</span></h3>")
        parts.append("" if each else colorbar(field))
        for one in cuts:
            pictures = _pictures(one, each)
            parts.append(pictures + _notes(one, not each and CONTOURS in pictures, most_points))
    for number_of, field in enumerate(slices):
        if cuts and field.name == cuts[0].name:
            continue
        twin = next((one for one in slices[:number_of] if _same(one, field)), None)
        said = f"{number(field.low)} to {number(field.high)}" + (f"; {field.note}" if field.note else "")
        parts.append(f"<h3>{escape(with_units(field.long_name, field.units))} <span>{escape(said)}</span></h3>")
        if field.low == field.high:
            parts.append(caption("The field is uniform at all times shown."))
            continue
        if twin is not None:
            parts.append(caption(f"The same as {twin.long_name} at all times shown."))
            continue
        others = [_greatest(one) for one in slices if one.units == field.units and field.units not in ("", "1")]
        if _greatest(field) < ROUNDING * max(others, default=0.0):
            parts.append(caption("Rounding, beside other fields in these units: not drawn."))
            continue
        pictures = _pictures(field, each)
        parts += ["" if each else colorbar(field), pictures]
        parts.append(_notes(field, not each and CONTOURS in pictures, most_points))
    return section("Fields", *parts)


def _greatest(field: Slices) -> float:
    return max(abs(field.low), abs(field.high))


def _pictures(field: Slices, each: bool) -> str:
    """The panels of a field; with `each` every one with its color scale."""
    if field.values.ndim < 3:
        return f"<figure>{panels(field)[0]}</figure>"
    shown = [f"<div>{panels(one)[0]}{colorbar(one)}</div>" for one in one_each(field)] if each else panels(field)
    return grid(shown, alike=True, flat=shape_of(field) < FLAT)


def _notes(field: Slices, has_contours: bool, most_points: int) -> str:
    """Notes below the panels: contours of one spacing, arrows and times left out; and where their numbers are."""
    said = []
    levels = contour_levels(field) if has_contours else np.zeros(0)
    if len(levels) > 1:
        spacing = float(f"{np.diff(levels).min():.2g}")
        spacing_text = f"{signs(f'{spacing:g}')} {pretty(field.units)}".rstrip()
        but = f", without {number(field.middle, 3)}" if field.middle is not None else ""
        said.append(f"Contours every {spacing_text}{but}.")
    if field.wind is not None and field.values.ndim > 2:
        wind, unit = field.wind, pretty(field.wind.units)
        what = "the flow in the plane"
        if wind.mean is not None:
            what += {
                0: lambda mean: f" without its mean, {number(mean, 3)} {unit} along {field.dims[1]}",
                2: lambda mean: " without the mean of each height",
                3: lambda mean: " without the mean of each time",
            }[np.ndim(wind.mean[0])](wind.mean[0])
        said.append(f"Arrows: {what}; the longest is {number(wind.most, 3)} {unit}.")
    if field.blank:
        times = ", ".join(moment(time, field.times[-1], field.time_unit) for time in field.blank)
        said.append(f"Not drawn: t = {times}, where the field is the same everywhere.")
    return (caption(" ".join(said)) if said else "") + f"<div>{_data(field, most_points)}{from_file(field.name)}</div>"


def _data(field: Slices, most_points: int) -> str:
    """The link to the numbers that are drawn."""
    places = [f"{name} ({unit})" if unit else name for name, unit in zip(field.dims, field.coord_units, strict=True)]
    if field.values.ndim < 3:
        columns = {places[0]: field.coords[0]} | {field.moment(i): values for i, values in enumerate(field.values)}
        return data_link(f"{field.long_name} along {field.dims[0]}", columns)
    time = field.time_unit if field.time_unit == "steps" else f"time ({field.time_unit})"
    dims = {time: field.times} | dict(zip(places, field.coords, strict=True))
    name = f"{field.name} {' '.join(field.dims)}"
    return map_link(name, dims, with_units(field.name, field.units), field.values, most_points)


def _same(one: Slices, other: Slices) -> bool:
    """Whether two fields have the same values, as the depth and the surface of water over flat ground have."""
    return (
        (one.units, one.dims, one.times) == (other.units, other.dims, other.times)
        and other.high > other.low
        and np.array_equal(one.values, other.values)
    )
