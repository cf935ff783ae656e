"""The master file: all frames as one dataset a variable, as xarray (CF) and VTK (VTKHDF) see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.io.fields.cf import put_attributes, put_coordinates, put_global_attributes, put_variable_attributes
from hpckit.io.fields.frames import Frame
from hpckit.io.fields.hdf5 import Source, memory_file, store_virtual
from hpckit.io.fields.layout import Layout
from hpckit.io.fields.vtkhdf import put_vtkhdf
from hpckit.io.files import replace_file

MASTER = "fields.h5"


def write_master(directory: Path, layout: Layout, frames: Sequence[Frame], dtypes: Mapping[str, np.dtype[Any]]) -> int:
    """Replace `directory/fields.h5` by one that shows these frames; returns its bytes.

    Each variable is a virtual dataset (time, …dims) over the files of the frames, named relative to the master, so
    that the directory can be moved as a whole.
    """
    times = [frame.time for frame in frames]
    with memory_file() as made:
        put_global_attributes(made.file, layout)
        put_coordinates(made.file, layout, times)
        for name, variable in layout.variables.items():
            shape = variable.shape
            sources: list[Source] = [
                ((place, *(0 for _ in shape)), (1, *shape), frame.file, shape) for place, frame in enumerate(frames)
            ]
            store_virtual(made.file, name, (len(frames), *shape), dtypes[name], sources)
        put_variable_attributes(made.file, layout)
        left_out = put_vtkhdf(made.file, layout, frames)
        if left_out:
            put_attributes(made.file, {"vtkhdf_left_out": left_out})
    replace_file(directory / MASTER, made.image)
    return len(made.image)
