"""CF metadata: dims as dimension scales, units, the time axis, and global attributes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import h5py
import numpy as np

from hpckit.io.fields.layout import FACE, Layout

CONVENTIONS = "CF-1.11"
_HORIZONTAL = ("x", "y")


def put_attributes(target: h5py.Group | h5py.Dataset, attributes: Mapping[str, Any]) -> None:
    """Attributes every reader understands: text and numbers as they are, anything else as JSON text."""
    for name, value in attributes.items():
        plain = isinstance(value, (str, int, float, np.number, np.ndarray)) and not isinstance(value, bool)
        target.attrs[name] = value if plain else json.dumps(value, default=str)


def put_coordinates(file: h5py.File, layout: Layout, times: Sequence[float]) -> None:
    """`time` and the coordinate of each dim as dimension scales with CF attributes."""
    time = file.create_dataset("time", data=np.asarray(times, np.float64), fletcher32=True)
    put_attributes(
        time, {"units": "seconds", "long_name": "time since the start", "standard_name": "time", "axis": "T"}
    )
    time.make_scale("time")
    for dim, values in layout.coords.items():
        coordinate = file.create_dataset(dim, data=values, fletcher32=True)
        axis = dim.removesuffix(FACE)
        where = "cell faces" if dim.endswith(FACE) else "cell centers"
        put_attributes(coordinate, {"units": layout.units[dim], "long_name": f"{axis} of {where}"})
        if axis in _HORIZONTAL:
            put_attributes(coordinate, {"axis": axis.upper()})
        elif axis == "z":
            put_attributes(coordinate, {"axis": "Z", "positive": "up"})
        coordinate.make_scale(dim)


def put_variable_attributes(file: h5py.File, layout: Layout) -> None:
    """Attach the dims of each variable and write what it is."""
    for name, variable in layout.variables.items():
        dataset = file[name]
        for place, dim in enumerate(("time", *variable.dims)):
            dataset.dims[place].attach_scale(file[dim])
        put_attributes(dataset, {"units": "1", **variable.attributes})


def put_global_attributes(file: h5py.File, layout: Layout) -> None:
    """`Conventions`, the order of the variables (HDF5 sorts them by name), then what the caller gave."""
    put_attributes(
        file, {"Conventions": CONVENTIONS, "variable_order": " ".join(layout.variables), **layout.attributes}
    )
