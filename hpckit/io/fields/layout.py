"""The layout of a field file: its grid, coordinates and variables, before any value is known."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.errors import InputError
from hpckit.plan.grid.decomposition import Decomposition

Array = npt.NDArray[Any]
FACE = "_face"  # a dim of face points is called after its axis: x_face
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
_TAKEN = ("time", "VTKHDF")


@dataclass(frozen=True)
class Variable:
    """A field in the file: its points (a decomposition at one location), dims without `time`, and CF attributes."""

    name: str
    decomposition: Decomposition
    dims: tuple[str, ...]
    attributes: dict[str, Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Global points in each dim."""
        return self.decomposition.global_shape


@dataclass(frozen=True)
class Constant:
    """Values over some dims of the grid that do not change with time, with CF attributes."""

    dims: tuple[str, ...]
    values: Array
    attributes: dict[str, Any]


@dataclass(frozen=True)
class FileGrid:
    """The grid of a file: `coords` maps each dim to its global points, `units` to their unit.

    faces: where cells meet along an axis, as far as that was given. corners: the corners of cells in space, see
    `make_layout`.
    """

    variables: dict[str, Variable]
    coords: dict[str, Array]
    units: dict[str, str]
    attributes: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    faces: dict[str, Array] = field(default_factory=dict)
    corners: Array | None = None

    @property
    def frame_bytes(self) -> int:
        """Bytes of all variables at one time as float64, before compression."""
        return sum(8 * int(np.prod(variable.shape)) for variable in self.variables.values())


def make_layout(
    decomposition: Decomposition,
    coords: Mapping[str, npt.ArrayLike],
    units: Mapping[str, str],
    variables: Mapping[str, Mapping[str, Any]],
    attributes: Mapping[str, Any] | None = None,
    constants: Mapping[str, Mapping[str, Any]] | None = None,
    corners: Array | None = None,
) -> FileGrid:
    """Check names, sizes and locations and put a layout together.

    A variable's `location` ("center", "face", or one a dim) defaults to that of the decomposition; its other entries
    become attributes in the file. `constants` have `dims` and `values` beside their attributes. `coords` names cell
    centers by axis (`x`) and faces by axis and `_face` (`x_face`); faces between evenly spaced centers need not be
    given. `corners` are places in space (x, y, z) where cells are not boxes: [nz + 1, ny + 1, nx + 1, 3] of a grid,
    [panels, ny + 1, nx + 1, 3] of panels of a surface. Raises `InputError`.
    """
    if not variables:
        raise InputError("a file of fields needs at least one variable", do='variables={"theta": {"units": "K"}}')
    made: dict[str, Variable] = {}
    points: dict[str, Array] = {}
    for name in (*variables, *(constants or {})):
        if not _NAME.match(name) or name in _TAKEN:
            raise InputError(
                f"a variable cannot be called {name!r}",
                do=f"use letters, digits and _, a letter first, and not {' or '.join(_TAKEN)}",
            )
    for name, given in variables.items():
        here = decomposition.at(given.get("location", decomposition.location))
        dims = dim_names(here)
        made[name] = Variable(name, here, dims, {key: value for key, value in given.items() if key != "location"})
        for dim, count in zip(dims, here.global_shape, strict=True):
            points[dim] = _points(dim, count, coords)
    fixed = {name: _constant(name, given, points) for name, given in (constants or {}).items()}
    clash = sorted({*made, *fixed} & {*points} | {*made} & {*fixed})
    if clash:
        raise InputError(f"{', '.join(clash)}: both a variable and a dim, or two variables", do="rename the variable")
    if "time" in points:
        raise InputError("an axis cannot be called time: that is the dim of the frames", do="rename the axis")
    named = {dim: str(units.get(dim, units.get(dim.removesuffix(FACE), "1"))) for dim in points}
    cells = decomposition.shape
    if corners is not None and corners.shape not in (_more(cells, 0), _more(cells, 1)):
        known = "one more than cells in each dim, or in each but that of panels, and three places in space"
        raise InputError(f"corners have shape {corners.shape}, the grid has {cells} cells", do=f"give {known}")
    faces = {
        dim: _points(dim + FACE, n + 1, coords)
        for dim, n in zip(decomposition.topology.names, cells, strict=True)
        if dim + FACE in coords and np.shape(coords[dim + FACE]) == (n + 1,)
    }
    return FileGrid(made, points, named, dict(attributes or {}), fixed, faces, corners)


def _more(cells: tuple[int, ...], first: int) -> tuple[int, ...]:
    """The shape of the corners of cells, with one more from dim `first` on."""
    return (*cells[:first], *(n + 1 for n in cells[first:]), 3)


def dim_names(decomposition: Decomposition) -> tuple[str, ...]:
    """The dims of a variable at this location, named after the axes."""
    return tuple(
        name + (FACE if where == "face" else "")
        for name, where in zip(decomposition.topology.names, decomposition.location, strict=True)
    )


def spacing(points: Sequence[float] | Array) -> float | None:
    """The distance of evenly spaced points, None when they are not (to 1e-6 of the distance); 1 for a single point."""
    values = np.asarray(points, np.float64)
    if values.size == 1:
        return 1.0
    step = float(values[-1] - values[0]) / (values.size - 1)
    even = np.allclose(np.diff(values), step, rtol=1e-6, atol=0.0)
    return step if even and step != 0.0 else None


def _constant(name: str, given: Mapping[str, Any], points: Mapping[str, Array]) -> Constant:
    """A constant, with the size that its dims have."""
    dims, values = tuple(given["dims"]), np.asarray(given["values"])
    sizes = tuple(len(points[dim]) for dim in dims if dim in points)
    if values.shape != sizes:
        raise InputError(f"{name} has shape {values.shape}, the dims {', '.join(dims)} have {sizes}")
    return Constant(dims, values, {key: value for key, value in given.items() if key not in ("dims", "values")})


def _points(dim: str, count: int, coords: Mapping[str, npt.ArrayLike]) -> Array:
    """The global coordinates of a dim, checked; faces are worked out between evenly spaced centers."""
    axis = dim.removesuffix(FACE)
    if dim in coords:
        values = np.asarray(coords[dim], np.float64)
    elif dim != axis and axis in coords:
        centers = np.asarray(coords[axis], np.float64)
        step = spacing(centers)
        if step is None:
            raise InputError(
                f"no coordinates for {dim}, and the cell centers of {axis} are not evenly spaced",
                do=f'give coords={{"{dim}": …}} with {count} points',
            )
        values = centers[0] + step * (np.arange(count) - 0.5)
    else:
        raise InputError(f"no coordinates for {dim}", do=f'give coords={{"{dim}": …}} with {count} points')
    if values.shape != (count,):
        raise InputError(
            f"coords[{dim!r}] has shape {values.shape}, the grid has {count} points there",
            likely="the coordinates of this rank were given",
            do="give the coordinates of the whole grid, the same on every rank",
        )
    return values
