"""A rank's file of a checkpoint: HDF5 with contiguous, page-aligned datasets, for direct writes.

HDF5 lays the file out in memory (a few KiB of structure, no values); the values are then written at the offsets
that it chose, past the page cache if the file system allows it. Plain h5py reads the file; we read it without HDF5.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hpckit.io import disk
from hpckit.io.checkpoint.hashes import BEST, PIECE, hash_named, hasher_named
from hpckit.io.checkpoint.state import Piece
from hpckit.io.checkpoint.stream import PAGE, Stream
from hpckit.io.fields.hdf5 import FORMAT

DIRECT_BYTES = 1 << 16  # from here on a dataset starts on a page and is written past the page cache


def shard_name(rank: int) -> str:
    """The file of a rank."""
    return f"shard-{rank:05d}.h5"


class _SparseFile:
    """A sparse file in memory, with the methods that h5py needs of a file object."""

    def __init__(self) -> None:
        self.extents: dict[int, bytes] = {}
        self.size = self._place = 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self._place = offset + (0, self._place, self.size)[whence]
        return self._place

    def tell(self) -> int:
        return self._place

    def truncate(self, size: int | None = None) -> int:
        self.size = self._place if size is None else size
        return self.size

    def flush(self) -> None:
        pass

    def write(self, data: Any) -> int:
        content = bytes(data)
        self.extents.pop(self._place, None)  # a later write counts: it goes to the end of the order
        self.extents[self._place] = content
        self._place += len(content)
        self.size = max(self.size, self._place)
        return len(content)

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        view[:] = self.content(self._place, len(view))
        self._place += len(view)
        return len(view)

    def read(self, count: int) -> bytes:
        found = self.content(self._place, count)
        self._place += count
        return found

    def content(self, start: int, count: int) -> bytes:
        """The bytes there; zeros where nothing was written."""
        found = np.zeros(count, np.uint8)
        for offset, data in self.extents.items():
            low, high = max(offset, start), min(offset + len(data), start + count)
            if low < high:
                found[low - start : high - start] = np.frombuffer(data, np.uint8)[low - offset : high - offset]
        return found.tobytes()


@dataclass(frozen=True)
class ShardLayout:
    """The layout of a shard: `offsets` of the pieces' values, `size` of the file, and all other bytes."""

    offsets: list[int]
    size: int
    structure: list[tuple[int, bytes]]


def lay_out(pieces: Sequence[Piece], facts: dict[str, Any]) -> ShardLayout:
    """The layout of a shard with one dataset for each piece, which has `start` and `global_shape` as attributes.

    A second piece of the same array is called NAME~1. `facts` become attributes of the file.
    """
    made = _SparseFile()
    offsets, seen = [], dict.fromkeys((piece.name for piece in pieces), 0)
    with h5py.File(made, "w", libver=FORMAT, alignment_threshold=DIRECT_BYTES, alignment_interval=PAGE) as file:
        file.attrs.update(facts)
        for piece in pieces:
            number, seen[piece.name] = seen[piece.name], seen[piece.name] + 1
            name = f"{piece.name}~{number}" if number else piece.name
            group = file.require_group(name.rpartition("/")[0] or "/")
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            space = h5py.h5s.create_simple(piece.block.shape) if piece.block.ndim else h5py.h5s.create(h5py.h5s.SCALAR)
            kind = h5py.h5t.py_create(piece.block.dtype, logical=True)
            dataset = h5py.Dataset(h5py.h5d.create(group.id, name.rpartition("/")[2].encode(), kind, space, plist))
            dataset.attrs["start"] = np.array(piece.start, np.int64)
            dataset.attrs["global_shape"] = np.array(piece.shape, np.int64)
            offsets.append(dataset.id.get_offset() if piece.block.nbytes else 0)
    size = max([made.size, *(at + piece.block.nbytes for at, piece in zip(offsets, pieces, strict=True))])
    structure = []
    for start, stop in gaps([(at, piece.block.nbytes) for at, piece in zip(offsets, pieces, strict=True)], size):
        structure.append((start, made.content(start, stop - start)))
    return ShardLayout(offsets, size, structure)


def gaps(taken: Sequence[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """The parts (start, stop) of a file outside of (offset, nbytes) ranges."""
    found, at = [], 0
    for offset, nbytes in sorted(each for each in taken if each[1]):
        if offset > at:
            found.append((at, offset))
        at = max(at, offset + nbytes)
    return [*found, (at, size)] if at < size else found


def write_shard(
    path: Path,
    pieces: Sequence[Piece],
    facts: dict[str, Any],
    hash_name: str = BEST,
    buffers: list[np.ndarray] | None = None,
) -> dict[str, Any]:
    """Write the pieces of a rank, on disk when this returns; returns the shard's entry of the manifest.

    buffers: memory that one call passes to the next, see `Stream`.
    Raises `OSError` if it cannot be written; partial files stay.
    """
    hashed = hash_named(hash_name)
    layout = lay_out(pieces, facts)
    target = _Target(path, layout.size)
    digests = [[""] * -(-piece.block.nbytes // PIECE) for piece in pieces]

    def take(number: int, offset: int, data: memoryview, digest: str) -> None:
        digests[number][offset // PIECE] = digest
        target.write(data, layout.offsets[number] + offset)

    try:
        for start, content in layout.structure:
            target.write(memoryview(content), start)
        Stream(hasher_named(hash_name), buffers).run([piece.block for piece in pieces], take)
        target.finish()
    finally:
        target.close()
    return {
        "file": path.name,
        "size": layout.size,
        "structure": hashed(b"".join(content for _, content in layout.structure)),
        "pieces": [
            {
                "name": piece.name,
                "start": list(piece.start),
                "shape": list(piece.block.shape),
                "offset": offset,
                "hashes": each,
            }
            for piece, offset, each in zip(pieces, layout.offsets, digests, strict=True)
        ],
    }


class _Target:
    """The file being written: whole pages past the page cache where it is possible, the rest through it."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.plain = disk.create(path, "shard.create")
        disk.allocate(self.plain, size)
        try:
            self.direct = os.open(path, os.O_WRONLY | getattr(os, "O_DIRECT", 0) | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # a file system without direct writes
            self.direct = -1

    def write(self, data: memoryview, offset: int) -> None:
        """Write at a place."""
        aligned = offset % PAGE == 0 and len(data) >= DIRECT_BYTES and self.direct >= 0
        whole = len(data) - len(data) % PAGE if aligned else 0
        if whole:
            try:
                disk.write(self.direct, data[:whole], offset, self.path, "shard.write")
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                # The memory or the device wants another alignment, or a short write ended between pages.
                whole = 0
        if whole < len(data):
            disk.write(self.plain, data[whole:], offset + whole, self.path, "shard.write")

    def finish(self) -> None:
        """Force all of it to disk."""
        disk.sync(self.plain, self.path, "shard.fsync")

    def close(self) -> None:
        """Close the file."""
        os.close(self.plain)
        if self.direct >= 0:
            os.close(self.direct)
