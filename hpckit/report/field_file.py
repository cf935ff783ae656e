"""The file of a run's fields as the figures need it: dims with their ends, and values read in parts.

Fields on the panels of a cubed sphere are read as maps of latitude and longitude, by linear interpolation in the panel
that shows a point.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from hpckit.grid.cubed_sphere import CubedSphere
from hpckit.io.fields.layout import FACE, spacing

Array = npt.NDArray[Any]
SLAB_BYTES = 32 << 20  # of what is read at a time
VELOCITIES = {"x": "u", "y": "v", "z": "w"}


@dataclass(frozen=True)
class Dim:
    """A dim of a field: its axis (`x` also for faces), points (in `units`), and the kind of its ends."""

    axis: str
    points: Array
    units: str
    face: bool
    periodic: bool

    @property
    def spacing(self) -> float | None:
        """The distance of its points, None where they are not evenly spaced."""
        return spacing(self.points)


class Globe:
    """The map of a cubed sphere with n cells along an edge: 4 n points around the equator, and 2 n rows."""

    def __init__(self, n: int) -> None:
        latitude = np.pi * ((np.arange(2 * n) + 0.5) / (2 * n) - 0.5)
        longitude = np.pi * ((np.arange(4 * n) + 0.5) / (2 * n) - 1.0)
        self.degrees = np.degrees(latitude), np.degrees(longitude)
        self._panel, *along = CubedSphere(n, 1.0).places(latitude[:, None], longitude)
        low = [np.clip(np.floor(place).astype(int), 0, n - 2) for place in along]
        self._low, self._part = low, [place - first for place, first in zip(along, low, strict=True)]

    def map_of(self, values: Array) -> Array:
        """Values [6, n, n] at the points of the map, [2 n, 4 n]."""
        (y, x), (up, right) = self._low, self._part
        south, north = (
            (1.0 - right) * values[self._panel, row, x] + right * values[self._panel, row, x + 1] for row in (y, y + 1)
        )
        return (1.0 - up) * south + up * north

    def dims(self) -> tuple[Dim, Dim]:
        """Latitude and longitude."""
        north, east = self.degrees
        return Dim("latitude", north, "degrees", False, False), Dim("longitude", east, "degrees", False, True)


@dataclass(frozen=True)
class FileField:
    """A field of the file."""

    name: str
    long_name: str
    units: str
    dims: tuple[Dim, ...]
    sphere: Globe | None = None

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of its dims, without time."""
        return tuple(dim.axis for dim in self.dims)

    @property
    def shape(self) -> tuple[int, ...]:
        """Its points in each dim."""
        return tuple(len(dim.points) for dim in self.dims)


class FieldFile:
    """An open `fields.h5`: `with FieldFile(path) as file:`. `times` are in `time_unit`; `variables` keep their order.

    `periodic`: the axes whose ends meet. Raises `OSError` if the file cannot be read, `KeyError` if it lacks
    required content.
    """

    def __init__(self, path: Path, periodic: Sequence[str] = (), time_unit: str = "s") -> None:
        self.file = h5py.File(path, "r")
        self.times: Array = self.file["time"][:].astype(np.float64)
        self.periodic, self.time_unit = tuple(periodic), time_unit
        self._globe: Globe | None = None
        self.datasets = {name: self.file[name] for name in names_in(self.file)}  # kept open with their chunk caches
        self.variables = {name: self._variable(name) for name in self.datasets}

    def __enter__(self) -> FieldFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()

    def main(self, chosen: str = "") -> FileField:
        """The field of the figures: the chosen one, else the first."""
        return self.variables.get(chosen) or next(iter(self.variables.values()))

    def velocity(self, axis: str) -> FileField | None:
        """The velocity along an axis (u along x, v along y, w along z), None if the run wrote none."""
        found = self.variables.get(VELOCITIES.get(axis, ""))
        return found if found is not None and found.units in ("m s-1", "m/s") else None

    def frame_bytes(self, variable: FileField) -> int:
        """Bytes of the field at one time."""
        return int(np.prod(variable.shape)) * int(self.datasets[variable.name].dtype.itemsize)

    def read(self, variable: FileField, frame: int, cut: Sequence[Any] = ()) -> Array:
        """The field at a frame, or a part of it given by indices and slices of its dims, in double precision."""
        if variable.sphere is not None:
            whole = self.datasets[variable.name][int(frame)].astype(np.float64)
            return variable.sphere.map_of(whole)[tuple(cut)]
        return self.datasets[variable.name][(int(frame), *cut)].astype(np.float64)

    def slabs(self, variable: FileField, frame: int, stride: int = 1) -> Iterator[tuple[slice, Array]]:
        """The field at a frame in pieces along its first dim, each with its slice; every `stride`-th piece."""
        whole, rows = self.frame_bytes(variable), variable.shape[0]
        count = max(1, min(rows, rows * SLAB_BYTES // max(whole, 1))) if stride == 1 else 1
        for start in range(0, rows, count * stride):
            where = slice(start, min(rows, start + count))
            yield where, self.read(variable, frame, (where,))

    def _variable(self, name: str) -> FileField:
        dataset = self.file[name]
        scales = [dim[0] for dim in list(dataset.dims)[1:]]
        dims = []
        for scale in scales:
            axis = scale.name.strip("/")
            face, axis = axis.endswith(FACE), axis.removesuffix(FACE)
            points = np.asarray(scale[:], np.float64)
            dims.append(Dim(axis, points, text_of(scale, "units"), face, axis in self.periodic))
        long_name = text_of(dataset, "long_name") or name.replace("_", " ")
        if [dim.axis for dim in dims] == ["panel", "y", "x"]:
            globe = self._globe = self._globe or Globe(len(dims[-1].points))
            return FileField(name, long_name, text_of(dataset, "units"), globe.dims(), globe)
        return FileField(name, long_name, text_of(dataset, "units"), tuple(dims))


def variable_names(path: Path) -> list[str]:
    """The fields of the file at `path`; raises `OSError` where it cannot be read."""
    with h5py.File(path, "r") as file:
        return names_in(file)


def names_in(file: h5py.File) -> list[str]:
    """The fields of the file: variables with `time` and one to three more dims, in the writer's order."""
    names = [
        name
        for name, item in file.items()
        if isinstance(item, h5py.Dataset) and 2 <= item.ndim <= 4 and item.dims[0] and item.dims[0][0].name == "/time"
    ]
    order = str(file.attrs.get("variable_order", "")).split()
    return sorted(names, key=lambda name: order.index(name) if name in order else len(order))


def text_of(item: h5py.Dataset, name: str) -> str:
    """An attribute as text, '' without it."""
    value = item.attrs.get(name, "")
    return value.decode() if isinstance(value, bytes) else str(value)


def evenly(count: int, most: int) -> Array:
    """Up to `most` of `count` frames, the first and the last among them; slightly fewer if they are then evenly spaced.

    Rows of the page hold three pictures, so four are the last choice.
    """
    for chosen in (6, 5, 3, 4):
        if chosen <= min(most, count) and (count - 1) % (chosen - 1) == 0:
            return np.arange(0, count, (count - 1) // (chosen - 1))
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int))
