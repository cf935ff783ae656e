"""HDF5 files as bytes: made in memory, so that a full disk meets a plain write and never a half-open HDF5 file."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from hpckit.io.fields.layout import FileGrid
from hpckit.io.files import sync_directory

Array = npt.NDArray[Any]

# The format of HDF5 1.10: checksums in the metadata, and every newer library reads it. The libraries inside VTK do not
# understand the virtual datasets that "latest" writes with HDF5 2.0, and show all their values as NaN.
FORMAT = ("v110", "v110")
HERE = "."  # how a virtual dataset names its own file
CHUNK_BYTES = 1 << 20  # no larger than the chunk cache of older readers

# A source of a virtual dataset: where it goes (start, count in the virtual array), file name, dataset shape.
Source = tuple[tuple[int, ...], tuple[int, ...], str, tuple[int, ...]]


class MemoryFile:
    """A new HDF5 file in memory: `with memory_file() as made: …made.file…`, then `made.image` is the file's content."""

    def __init__(self, file: h5py.File) -> None:
        self.file = file
        self.image: memoryview | bytes = b""


@contextmanager
def memory_file() -> Iterator[MemoryFile]:
    """An HDF5 file that is built in memory; its bytes are in `.image` after the block.

    Through a Python file object, not HDF5's own memory driver: the image that HDF5 1.10 gives of a file in its memory
    driver fails the checksum of its superblock.
    """
    content = io.BytesIO()
    with h5py.File(content, "w", libver=FORMAT) as file:
        made = MemoryFile(file)
        yield made
    made.image = content.getbuffer()


def chunk_shape(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Chunks of at most `CHUNK_BYTES`, whole in the last dims, so that a slab is read in long runs."""
    chunk = list(shape)
    for d in range(len(chunk)):
        rest = int(np.prod(chunk[d + 1 :], dtype=np.int64)) * itemsize
        chunk[d] = max(1, min(shape[d], CHUNK_BYTES // rest))
        if rest <= CHUNK_BYTES:
            break
    return tuple(chunk)


def filters(compression: int) -> dict[str, Any]:
    """Dataset options: gzip at this level over shuffled bytes (none at 0), and a checksum in any case."""
    packed = {"compression": "gzip", "compression_opts": compression, "shuffle": True} if compression else {}
    return {**packed, "fletcher32": True}


def options_of(dataset: h5py.Dataset) -> dict[str, Any]:
    """The filters of a dataset as `create_dataset` takes them."""
    packed = {"compression": dataset.compression, "compression_opts": dataset.compression_opts}
    return {**(packed if dataset.compression else {}), "shuffle": dataset.shuffle, "fletcher32": dataset.fletcher32}


def store(file: h5py.Group, blocks: Mapping[str, Array], compression: int) -> None:
    """Write each array as a chunked, checked dataset of its name."""
    for name, values in blocks.items():
        file.create_dataset(
            name, data=values, chunks=chunk_shape(values.shape, values.itemsize), **filters(compression)
        )


def store_virtual(
    file: h5py.Group,
    name: str,
    shape: Sequence[int],
    dtype: npt.DTypeLike,
    sources: Sequence[Source],
    dataset: str | None = None,
) -> h5py.Dataset:
    """A dataset whose values lie in other files (names relative to this one; `HERE` is this one itself), in a dataset
    of the same name, or of the name `dataset`; missing values read as NaN, integers as the smallest one.
    """
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    dtype = np.dtype(dtype)
    plist.set_fill_value(np.array(np.nan if dtype.kind == "f" else np.iinfo(dtype).min, dtype))
    space = h5py.h5s.create_simple(tuple(shape))
    for start, count, source, source_shape in sources:
        space.select_hyperslab(start, count)
        plist.set_virtual(space, source.encode(), (dataset or name).encode(), h5py.h5s.create_simple(source_shape))
    space.select_all()
    h5py.h5d.create(file.id, name.encode(), h5py.h5t.py_create(np.dtype(dtype)), space, plist)
    return file[name]


def refers_here(dataset: h5py.Dataset) -> bool:
    """Whether a virtual dataset is another view of values in its own file."""
    return all(source.file_name == HERE for source in dataset.virtual_sources())


def write_mpio_frame(
    path: Path, comm: Any, time: float, layout: FileGrid, blocks: Mapping[str, npt.NDArray[Any]], compression: int
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
