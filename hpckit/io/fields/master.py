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
from hpckit.io.fields.layout import FACE, FileGrid
from hpckit.io.fields.vtkhdf import put_vtkhdf
from hpckit.io.files import replace_file, utc_now

MASTER = "fields.h5"
CONVENTIONS = "CF-1.11"
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
