"""Frames through parallel HDF5, where h5py has it (`h5py.get_config().mpi`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from hpckit.io.fields.hdf5 import FORMAT, chunk_shape, filters
from hpckit.io.fields.layout import Layout
from hpckit.io.files import sync_directory


def write_mpio_frame(
    path: Path, comm: Any, time: float, layout: Layout, blocks: Mapping[str, npt.NDArray[Any]], compression: int
) -> int:
    """All ranks write their blocks into one file (collective); returns its bytes on rank 0, else 0."""
    temporary = path.with_name(path.name + ".tmp")
    with h5py.File(temporary, "w", driver="mpio", comm=comm, libver=FORMAT) as file:
        file.attrs["time"] = np.float64(time)
        for name, values in blocks.items():
            where = layout.variables[name].decomposition
            dataset = file.create_dataset(
                name,
                shape=where.global_shape,
                dtype=values.dtype,
                chunks=chunk_shape(where.owned(0), values.itemsize),
                **filters(compression),
            )
            with dataset.collective:  # filters need collective writes
                dataset[where.global_slices(comm.rank)] = values
    if comm.rank:
        return 0
    with temporary.open("rb") as written:
        os.fsync(written.fileno())
    os.replace(temporary, path)
    sync_directory(path.parent)
    return path.stat().st_size
