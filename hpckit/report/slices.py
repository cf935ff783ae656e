"""Fields of a run as pictures need them: few times, two dims, few points."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
SIGNED = ("perturbation", "anomaly", "departure", "deviation", "vorticity", "divergence")


@dataclass
class Slices:
    """A variable at several times: `values` [times, rows, columns] (or [times, columns] in 1-D), thinned out.

    `low`, `high` are the extremes of all values shown; `note` says how a 3-D field was cut.
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

    @property
    def middle(self) -> float | None:
        """The value that deviations are seen from: 0 for perturbations and values of both signs, the start value of a
        field that was uniform at first, None for others.
        """
        words = f"{self.name} {self.long_name}".lower()
        if any(word in words for word in SIGNED):
            return 0.0
        if self.low < 0 < self.high and min(-self.low, self.high) > 0.05 * max(-self.low, self.high):
            return 0.0
        first = self.values[0]
        return float(first.flat[0]) if np.ptp(first) <= 1e-6 * (self.high - self.low) else None


def read_slices(path: Path, most_times: int = 6, most_points: int = 400) -> list[Slices]:
    """Each variable of the file at up to `most_times` times with at most `most_points` points a dim.

    Fields of 3 dims are cut in the middle of the second one: a section with the first dim upward, the vertical of an
    atmosphere.
    """
    with h5py.File(path, "r") as file:
        times = file["time"][:]
        frames = _evenly(len(times), most_times)
        return [_read(file, name, frames, most_points) for name in names_in(file)]


def _evenly(count: int, most: int) -> Array:
    """Up to `most` of `count` frames, the first and the last among them; evenly spaced where a few less can be.

    Rows of the page hold three pictures, so that four come last.
    """
    for chosen in (6, 5, 3, 4):
        if chosen <= min(most, count) and (count - 1) % (chosen - 1) == 0:
            return np.arange(0, count, (count - 1) // (chosen - 1))
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int))


def variable_names(path: Path) -> list[str]:
    """The fields of the file at `path`; raises `OSError` where it cannot be read."""
    with h5py.File(path, "r") as file:
        return names_in(file)


def names_in(file: h5py.File) -> list[str]:
    """The fields of the file, what has `time` and one to three dims more, in the order they were given in."""
    names = [
        name
        for name, item in file.items()
        if isinstance(item, h5py.Dataset) and 2 <= item.ndim <= 4 and item.dims[0] and item.dims[0][0].name == "/time"
    ]
    order = str(file.attrs.get("variable_order", "")).split()
    return sorted(names, key=lambda name: order.index(name) if name in order else len(order))


def _read(file: h5py.File, name: str, frames: Array, most_points: int) -> Slices:
    dataset = file[name]
    dims = [dim[0] for dim in list(dataset.dims)[1:]]
    note = ""
    cut: tuple[Any, ...] = ()
    if len(dims) == 3:
        across = dims.pop(1)
        middle = across.shape[0] // 2
        cut = (slice(None), middle)
        place = f"{float(across[middle]):.6g} {_text(across, 'units')}".strip()
        note = f"cut at {across.name.strip('/')} = {place}"
    coords = [np.asarray(dim[:], np.float64) for dim in dims]
    steps = [-(-len(values) // most_points) for values in coords]
    shown, low, high, finite = [], np.inf, -np.inf, True
    for frame in frames:
        values = dataset[(int(frame), *cut)]
        good = np.isfinite(values)
        finite = finite and bool(good.all())
        if good.any():
            low, high = min(low, float(values[good].min())), max(high, float(values[good].max()))
        shown.append(_thin(values, steps))
    return Slices(
        name,
        _text(dataset, "long_name") or name.replace("_", " "),
        _text(dataset, "units"),
        [float(file["time"][int(frame)]) for frame in frames],
        np.stack(shown),
        tuple(dim.name.strip("/").removesuffix("_face") for dim in dims),
        tuple(_thin(values, [step]) for values, step in zip(coords, steps, strict=True)),
        tuple(_text(dim, "units") for dim in dims),
        low if low <= high else np.nan,
        high if low <= high else np.nan,
        finite,
        note,
    )


def _thin(values: Array, steps: list[int]) -> Array:
    """Means over blocks of `steps` points; what does not fill a block at the end is left out."""
    for axis, step in enumerate(steps):
        if step > 1:
            whole = values.shape[axis] // step
            values = np.take(values, np.arange(whole * step), axis=axis)
            shape = (*values.shape[:axis], whole, step, *values.shape[axis + 1 :])
            values = values.reshape(shape).mean(axis=axis + 1)
    return values


def _text(item: h5py.Dataset, name: str) -> str:
    value = item.attrs.get(name, "")
    return value.decode() if isinstance(value, bytes) else str(value)
