"""The group `VTKHDF` of a field file: its grid and variables as VTK and ParaView see them.

An image where all cells are alike, a rectilinear grid where their sizes vary along a dim, a structured grid over
terrain, and quadrilaterals where panels cover a sphere. Source: VTK File Formats, "VTKHDF File Format": version 2.0
(images, unstructured grids), 2.8 (rectilinear and structured grids, which VTK 9.7 reads).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from hpckit.io.fields.frames import OutputFrame
from hpckit.io.fields.hdf5 import HERE, chunk_shape, filters, options_of, store_virtual
from hpckit.io.fields.layout import FACE, FileGrid, Variable, spacing

Array = npt.NDArray[Any]
GROUP = "VTKHDF"
VERSION = {"ImageData": (2, 0), "UnstructuredGrid": (2, 0), "RectilinearGrid": (2, 8), "StructuredGrid": (2, 8)}
QUADRILATERAL = 9  # VTK_QUAD


def put_vtkhdf(file: h5py.File, layout: FileGrid, frames: Sequence[OutputFrame]) -> str:
    """Add the group `VTKHDF`, which refers to the values of the variables; '' or why it was left out.

    VTK's x, y, z run along the grid's last, last but one and first dim: a (z, x) slab is drawn with x to the right and
    z upwards. Values at cell centers become cell data, values at the faces of every dim point data; those on the faces
    of one dim come to cell centers when the file is packed (`add_centered`). Where `layout.corners` are given, cells
    have these corners.
    """
    centered = [v for v in layout.variables.values() if not any(dim.endswith(FACE) for dim in v.dims)]
    cornered = [v for v in layout.variables.values() if _at_corners(v)]
    if not centered and not cornered:
        return "no variable lies at cell centers or at cell corners"
    model = (centered or cornered)[0]
    if model.decomposition.ndim > 3:
        return "more than 3 dims"
    cells = model.decomposition.shape
    group = file.create_group(GROUP)
    part = group.create_group("Steps")
    part.attrs["NSteps"] = np.int64(len(frames))
    # A copy of the times: a link would make `time` a dim of the group.
    part["Values"] = np.array([frame.time for frame in frames], np.float64)
    if layout.corners is None:
        _put_box(group, layout, model, cells)
    elif layout.corners.shape[0] == cells[0]:
        _put_panels(group, layout.corners, centered, len(frames))
        return ""
    else:
        _put_type(group, "StructuredGrid")
        group.attrs["Dimensions"] = np.array(layout.corners.shape[-2::-1], np.int32)
        _put(group, "Points", layout.corners)
    for name, members in (("CellData", centered), ("PointData", cornered)):
        data = group.create_group(name)
        for variable in members:
            if len(frames) > 1:
                data[variable.name] = file[variable.name]
            else:  # VTK 9.7 takes a single step for data that do not change in time, and wants no time dim
                shape = variable.shape
                source = (tuple(0 for _ in shape), shape, frames[0].file, shape)
                store_virtual(data, variable.name, shape, file[variable.name].dtype, [source])
    return ""


def _put_box(group: h5py.Group, layout: FileGrid, model: Variable, cells: tuple[int, ...]) -> None:
    """An image where all cells are alike, else a rectilinear grid."""
    edges = [_edges(layout, dim) for dim in model.dims]
    steps = [spacing(each) for each in edges]
    flat = [0] * (3 - len(cells))
    if None in steps:
        _put_type(group, "RectilinearGrid")
        group.attrs["Dimensions"] = np.array([n + 1 for n in (*cells[::-1], *flat)], np.int32)
        for axis, places in zip("XYZ", (*edges[::-1], *([0.0] for _ in flat)), strict=True):
            _put(group, f"{axis}Coordinates", np.asarray(places))
        return
    _put_type(group, "ImageData")
    group.attrs["WholeExtent"] = np.array([end for n in (*cells[::-1], *flat) for end in (0, n)], np.int64)
    group.attrs["Origin"] = np.array([*(each[0] for each in edges[::-1]), *flat], np.float64)
    group.attrs["Spacing"] = np.array([*steps[::-1], *(1 for _ in flat)], np.float64)
    group.attrs["Direction"] = np.eye(3).ravel()


def _edges(layout: FileGrid, dim: str) -> Array:
    """Where cells meet along a dim: the faces that were given, else halfway between centers."""
    points = layout.coords[dim]
    if dim.endswith(FACE):
        return points
    if dim in layout.faces:
        return layout.faces[dim]
    step = spacing(points)
    if step is not None:
        return np.asarray(points[0] + step * (np.arange(len(points) + 1) - 0.5))
    between = 0.5 * (points[1:] + points[:-1])
    return np.array([2 * points[0] - between[0], *between, 2 * points[-1] - between[-1]])


def _put_panels(group: h5py.Group, corners: Array, variables: Sequence[Variable], steps: int) -> None:
    """Panels as one unstructured grid; corners where panels meet are one point, so that the surface has no cracks."""
    _put_type(group, "UnstructuredGrid")
    size = np.abs(corners).max() or 1.0
    _, first, number = np.unique(
        np.round(corners.reshape(-1, 3) / size, 9), axis=0, return_index=True, return_inverse=True
    )
    at = number.reshape(corners.shape[:-1])
    around = np.stack([at[:, :-1, :-1], at[:, :-1, 1:], at[:, 1:, 1:], at[:, 1:, :-1]], axis=-1)
    cells = around.size // 4
    _put(group, "Points", corners.reshape(-1, 3)[first])
    _put(group, "Connectivity", around.reshape(-1))
    _put(group, "Offsets", 4 * np.arange(cells + 1))
    _put(group, "Types", np.full(cells, QUADRILATERAL, np.uint8))
    for name, count in (("Points", len(first)), ("Cells", cells), ("ConnectivityIds", 4 * cells)):
        group[f"NumberOf{name}"] = np.array([count], np.int64)
    part, data = group["Steps"], group.create_group("CellData")
    part["NumberOfParts"] = np.ones(steps, np.int64)
    for name, kinds in (("Part", ()), ("Point", ()), ("Cell", (1,)), ("ConnectivityId", (1,))):
        part[f"{name}Offsets"] = np.zeros((steps, *kinds), np.int64)  # the surface stays
    for variable in variables:
        shape = (steps, *variable.shape)
        source = ((0,), (steps * cells,), HERE, shape)
        dtype = group.file[variable.name].dtype
        store_virtual(data, variable.name, (steps * cells,), dtype, [source], dataset=f"/{variable.name}")
        part[f"CellDataOffsets/{variable.name}"] = cells * np.arange(steps)


def _put_type(group: h5py.Group, name: str) -> None:
    group.attrs["Version"] = np.array(VERSION[name], np.int64)
    group.attrs.create("Type", name.encode(), dtype=h5py.string_dtype("ascii", len(name)))


def _put(group: h5py.Group, name: str, values: Array) -> None:
    group.create_dataset(name, data=values, chunks=chunk_shape(values.shape, values.itemsize), **filters(1))


def _at_corners(variable: Variable) -> bool:
    """Whether values lie at the faces of every dim, one more than cells in each: the points of VTK's image."""
    where = variable.decomposition
    return where.global_shape == tuple(n + 1 for n in where.shape)


def add_centered(file: h5py.File) -> None:
    """Give VTK the variables on the faces of one dim as means at cell centers, in single precision."""
    group = file.get(f"{GROUP}/CellData")
    if group is None or not len(group):
        return
    cells = next(iter(group.values())).shape
    for name in str(file.attrs["variable_order"]).split():
        faces = file[name]
        dims = [dim[0].name.lstrip("/") for dim in faces.dims]
        staggered = [place for place, dim in enumerate(dims) if dim.endswith(FACE)]
        if len(staggered) != 1:
            continue
        d = staggered[0]
        shape = (faces.shape[0], *(n for n in cells[-(len(dims) - 1) :]))
        still = len(cells) < len(dims)  # a single frame, which VTK takes without a dim of time
        chunks = chunk_shape(shape[1:], 4) if still else (1, *chunk_shape(shape[1:], 4))
        centered = group.create_dataset(name, shape[1:] if still else shape, "f4", chunks=chunks, **options_of(faces))
        centered.attrs["comment"] = f"means of the two faces of each cell along {dims[d].removesuffix(FACE)}"
        for place in range(shape[0]):
            values = np.moveaxis(faces[place].astype(np.float64), d - 1, 0)
            above = values[1:] if len(values) > shape[d] else np.roll(values, -1, axis=0)
            mean = np.moveaxis(0.5 * (values[: shape[d]] + above), 0, d - 1)
            centered[... if still else place] = mean
