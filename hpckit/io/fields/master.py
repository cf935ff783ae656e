"""The master file: all frames as one dataset a variable, as xarray (CF) and VTK (VTKHDF) see it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import hpckit
from hpckit.io.fields.frames import FRAMES, OutputFrame
from hpckit.io.fields.hdf5 import Source, memory_file, store_virtual
from hpckit.io.fields.layout import FACE, FileGrid, Variable, spacing
from hpckit.io.files import replace_file, utc_now

MASTER = "fields.h5"
CONVENTIONS = "CF-1.11"
VERSION = (2, 0)
VALUES_IN = "values_in"  # global attribute of a file that does not hold its values
FRAME_NUMBERS = "frame_numbers"
# A date that every reader of CF knows: the start of a run stands here, where the run does not say when it was.
EPOCH = "2000-01-01 00:00:00"
_LENGTHS = ("m", "km", "cm", "mm")
_AXES = {
    "x": {"axis": "X", "standard_name": "projection_x_coordinate"},
    "y": {"axis": "Y", "standard_name": "projection_y_coordinate"},
    "z": {"axis": "Z", "standard_name": "height", "positive": "up"},
}


def write_master(
    directory: Path, layout: FileGrid, frames: Sequence[OutputFrame], dtypes: Mapping[str, np.dtype[Any]]
) -> int:
    """Replace `directory/fields.h5` by one that shows these frames; returns its bytes.

    Each variable is a virtual dataset (time, …dims) over the files of the frames, named relative to the master, so
    that the directory can be moved as a whole.
    """
    times = [frame.time for frame in frames]
    with memory_file() as made:
        put_global_attributes(made.file, layout)
        put_attributes(
            made.file,
            {
                FRAME_NUMBERS: np.array([frame.number for frame in frames], np.int64),
                VALUES_IN: beside(FRAMES),
            },
        )
        put_coordinates(made.file, layout, times)
        for name, variable in layout.variables.items():
            shape = variable.shape
            sources: list[Source] = [
                ((place, *(0 for _ in shape)), (1, *shape), frame.file, shape) for place, frame in enumerate(frames)
            ]
            store_virtual(made.file, name, (len(frames), *shape), dtypes[name], sources)
        put_variable_attributes(made.file, layout)
        put_constants(made.file, layout)
        left_out = put_vtkhdf(made.file, layout, frames)
        if left_out:
            put_attributes(made.file, {"vtkhdf_left_out": left_out})
    replace_file(directory / MASTER, made.image)
    return len(made.image)


def beside(folder: str) -> str:
    """What a file says that refers to files in a folder."""
    return f"the folder {folder}/ beside this file: copy both, or make one file (hpckit pack DIR)"


def put_attributes(target: h5py.Group | h5py.Dataset, attributes: Mapping[str, Any]) -> None:
    """Attributes every reader understands: text and numbers as they are, anything else as JSON text."""
    for name, value in attributes.items():
        plain = isinstance(value, (str, int, float, np.number, np.ndarray)) and not isinstance(value, bool)
        target.attrs[name] = value if plain else json.dumps(value, default=str)


def put_coordinates(file: h5py.File, layout: FileGrid, times: Sequence[float]) -> None:
    """`time` and the coordinate of each dim as dimension scales with CF attributes."""
    time = file.create_dataset("time", data=np.asarray(times, np.float64), fletcher32=True)
    put_attributes(
        time,
        {
            "units": f"seconds since {EPOCH}",
            "calendar": "proleptic_gregorian",
            "units_metadata": "leap_seconds: none",
            "long_name": "time since the start, which stands at the first moment of 2000",
            "standard_name": "time",
            "axis": "T",
        },
    )
    time.make_scale("time")
    for dim, values in layout.coords.items():
        coordinate = file.create_dataset(dim, data=values, fletcher32=True)
        axis = dim.removesuffix(FACE)
        where = "cell faces" if dim.endswith(FACE) else "cell centers"
        put_attributes(coordinate, {"units": layout.units[dim], "long_name": f"{axis} of {where}"})
        if layout.units[dim] in _LENGTHS:  # of others CF would think that they are latitudes and longitudes
            put_attributes(coordinate, _AXES.get(axis, {}))
        coordinate.make_scale(dim)


def put_constants(file: h5py.File, layout: FileGrid) -> None:
    """What does not change with time, as the base state of an atmosphere."""
    for name, constant in layout.constants.items():
        dataset = file.create_dataset(name, data=constant.values, fletcher32=True)
        for place, dim in enumerate(constant.dims):
            dataset.dims[place].attach_scale(file[dim])
        put_attributes(dataset, {"units": "1", **constant.attributes})


def put_variable_attributes(file: h5py.File, layout: FileGrid) -> None:
    """Attach the dims and the attributes of each variable."""
    for name, variable in layout.variables.items():
        dataset = file[name]
        for place, dim in enumerate(("time", *variable.dims)):
            dataset.dims[place].attach_scale(file[dim])
        put_attributes(dataset, {"units": "1", **variable.attributes})


def with_history(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    """The caller's attributes with a title, if they have none, and who wrote the file when."""
    history = f"{utc_now()} written by hpckit {hpckit.__version__}"
    return {"title": "fields of an hpckit run", "history": history, **(attributes or {})}


def put_global_attributes(file: h5py.File, layout: FileGrid) -> None:
    """`Conventions`, the order of the variables (HDF5 sorts them by name), then the caller's attributes."""
    order = " ".join(layout.variables)
    put_attributes(file, {"Conventions": CONVENTIONS, "variable_order": order, **layout.attributes})


def put_vtkhdf(file: h5py.File, layout: FileGrid, frames: Sequence[OutputFrame]) -> str:
    """Add the group `VTKHDF`, whose datasets are hard links to the variables; '' or why it was left out.

    VTK's x, y, z run along the grid's last, last but one and first dim: a (z, x) slab is drawn with x to the right and
    z upwards. Values at cell centers become cell data, values at the faces of every dim point data; those on the faces
    of one dim come to cell centers when the file is packed (`pack_fields`). An image has even spacing only. Source: VTK
    File Formats, "VTKHDF File Format", version 2.0, ImageData and temporal data.
    """
    centered = [v for v in layout.variables.values() if not any(dim.endswith(FACE) for dim in v.dims)]
    cornered = [v for v in layout.variables.values() if _at_corners(v)]
    if not centered and not cornered:
        return "no variable lies at cell centers or at cell corners"
    model = (centered or cornered)[0]
    steps = [spacing(layout.coords[dim]) for dim in model.dims]
    uneven = [dim for dim, step in zip(model.dims, steps, strict=True) if step is None]
    if uneven or model.decomposition.ndim > 3:
        return f"{', '.join(uneven)} not evenly spaced" if uneven else "more than 3 dims"
    cells = model.decomposition.shape
    sizes = [step or 1.0 for step in steps]
    half = 0.5 if centered else 0.0  # the image starts at the first face
    origin = [float(layout.coords[dim][0]) - half * step for dim, step in zip(model.dims, sizes, strict=True)]
    group = file.create_group("VTKHDF")
    group.attrs["Version"] = np.array(VERSION, np.int64)
    group.attrs.create("Type", b"ImageData", dtype=h5py.string_dtype("ascii", 9))
    flat = [0] * (3 - len(cells))
    group.attrs["WholeExtent"] = np.array([end for n in (*cells[::-1], *flat) for end in (0, n)], np.int64)
    group.attrs["Origin"] = np.array([*origin[::-1], *flat], np.float64)
    group.attrs["Spacing"] = np.array([*sizes[::-1], *(1 for _ in flat)], np.float64)
    group.attrs["Direction"] = np.eye(3).ravel()
    for name, members in (("CellData", centered), ("PointData", cornered)):
        data = group.create_group(name)
        for variable in members:
            if len(frames) > 1:
                data[variable.name] = file[variable.name]
            else:  # VTK 9.7 takes a single step for data that do not change in time, and wants no time dim
                shape = variable.shape
                source = (tuple(0 for _ in shape), shape, frames[0].file, shape)
                store_virtual(data, variable.name, shape, file[variable.name].dtype, [source])
    part = group.create_group("Steps")
    part.attrs["NSteps"] = np.int64(len(frames))
    part["Values"] = np.array(
        [frame.time for frame in frames], np.float64
    )  # a copy: a link would make `time` a dim of the group
    return ""


def _at_corners(variable: Variable) -> bool:
    """Whether values lie at the faces of every dim, one more than cells in each: the points of VTK's image."""
    where = variable.decomposition
    return where.global_shape == tuple(n + 1 for n in where.shape)
