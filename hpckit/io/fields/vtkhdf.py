"""The VTKHDF view of a file of fields: VTK and ParaView read the same datasets as an image that changes in time.

Source: VTK File Formats, "VTKHDF File Format", version 2.0, ImageData and temporal data.
"""

from __future__ import annotations

from collections.abc import Sequence

import h5py
import numpy as np

from hpckit.io.fields.frames import Frame
from hpckit.io.fields.hdf5 import store_virtual
from hpckit.io.fields.layout import FACE, Layout, Variable, spacing

VERSION = (2, 0)


def put_vtkhdf(file: h5py.File, layout: Layout, frames: Sequence[Frame]) -> str:
    """Add the group `VTKHDF`, whose datasets are hard links to the variables; '' or why it was left out.

    VTK's x, y, z run along the grid's last, last but one and first dim: a (z, x) slab is drawn with x to the right and
    z upwards. Values at cell centers become cell data. Values at the faces of every dim become point data. Mixed
    locations are left to xarray. An image has even spacing only.
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
