"""The flow in a picture: few vectors of the velocities along its two dims, at cell centers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.report.field_file import Dim, FieldFile, FileField

Array = npt.NDArray[Any]
ROWS, COLUMNS = 13, 22  # of arrows, at most
SAME = 1e-6  # of the mean flow: where all flow differs less from it, it is the same everywhere


@dataclass(frozen=True)
class Wind:
    """Arrows [times, rows, columns]: `across` along the picture's columns, `up` along its rows, at `rows`, `columns`.

    `most` is the length of the longest, in `units`. `mean` is the mean flow that they are without, along and up: two
    numbers, or of each row [rows, 1] or each time [times, 1, 1]; None where they are the flow itself. `has_levels`:
    rows are heights.
    """

    rows: Array
    columns: Array
    across: Array
    up: Array
    most: float
    units: str
    mean: tuple[Any, Any] | None = None
    has_levels: bool = False

    def whole(self) -> Wind:
        """The flow itself, its mean included."""
        if self.mean is None:
            return self
        across, up = self.across + self.mean[0], self.up + self.mean[1]
        return replace(self, across=across, up=up, most=float(np.hypot(across, up).max()), mean=None)

    def at(self, number: int) -> Wind:
        """The arrows of one time."""
        kept = slice(number, number + 1)
        mean = self.mean
        if mean is not None and np.ndim(mean[0]) == 3:
            mean = mean[0][kept], mean[1][kept]
        return replace(self, across=self.across[kept], up=self.up[kept], mean=mean)

    def apart(self, each_time: bool = False) -> Wind:
        """The flow without its mean, where that is stronger than all that differs from it and would hide it; else, over
        heights, without the horizontal mean of each, as of wind with shear, where that is most of the flow. A flow
        that is the same everywhere, or all along a height, stays whole. each_time: each time has a mean of its own, as
        planes at several heights have.
        """
        flow = self.whole()
        if each_time:
            means = [part.mean(axis=(1, 2), keepdims=True) for part in (flow.across, flow.up)]
            off = flow._without((means[0], means[1]))
            return off if SAME * np.hypot(*means).max() < off.most < np.hypot(*means).max() else flow
        mean = float(flow.across.mean()), float(flow.up.mean())
        off = flow._without(mean)
        if SAME * np.hypot(*mean) < off.most < np.hypot(*mean):
            return off
        if flow.has_levels:
            rows = flow.across.mean(axis=(0, 2))[:, None]
            off = flow._without((rows, 0.0))
            if off.most > SAME * np.abs(rows).max() and (rows**2).mean() > (off.across**2 + off.up**2).mean():
                return off
        return flow

    def _without(self, mean: tuple[Any, Any]) -> Wind:
        across, up = self.across - mean[0], self.up - mean[1]
        return replace(self, across=across, up=up, most=float(np.hypot(across, up).max()), mean=mean)


def read_wind(file: FieldFile, frames: Sequence[int], kept: Sequence[Dim], cut: Mapping[str, int]) -> Wind | None:
    """The flow on the two dims `kept`, others fixed at the indices of `cut`; None if the run has no such velocities or
    they are 0.
    """
    if len(kept) != 2 or any(dim.face for dim in kept):
        return None
    up, across = (file.velocity(dim.axis) for dim in kept)
    if up is None or across is None:
        return None
    picks = [_picks(len(dim.points), most) for dim, most in zip(kept, (ROWS, COLUMNS), strict=True)]
    parts = [
        np.stack([_at_centers(file, one, frame, cut, kept)[np.ix_(*picks)] for frame in frames]) for one in (across, up)
    ]
    most = float(np.hypot(*parts).max())
    if not (np.isfinite(most) and most > 0):
        return None
    rows, columns = (dim.points[pick] for dim, pick in zip(kept, picks, strict=True))
    return Wind(rows, columns, parts[0], parts[1], most, across.units, has_levels=kept[0].axis == "z").apart()


def _picks(count: int, most: int) -> Array:
    """Indices in the middles of up to `most` equal parts."""
    parts = min(count, most)
    return ((np.arange(parts) + 0.5) * count / parts).astype(int)


def _at_centers(file: FieldFile, variable: FileField, frame: int, cut: Mapping[str, int], kept: Sequence[Dim]) -> Array:
    """A velocity at the cell centers of a picture: faces give the mean of the two beside a cell."""
    index = tuple(cut.get(dim.axis, slice(None)) for dim in variable.dims)
    values = file.read(variable, frame, index)
    left = [dim for dim in variable.dims if dim.axis not in cut]
    for axis, (dim, center) in enumerate(zip(left, kept, strict=True)):
        if dim.face:
            after = np.roll(values, -1, axis) if dim.periodic else np.take(values, range(1, len(dim.points)), axis)
            before = np.take(values, range(after.shape[axis]), axis)
            values = 0.5 * (before + after)
            values = np.take(values, range(min(len(center.points), values.shape[axis])), axis)
    return values
