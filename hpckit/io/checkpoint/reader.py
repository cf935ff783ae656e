"""Reading generations: any box of any array, each byte checked against its hash, no HDF5 parsed."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.errors import CorruptDataError, InputError, SetupError
from hpckit.io.checkpoint.hashes import hash_named
from hpckit.io.checkpoint.manifest import Values, folder, parse, read_manifest
from hpckit.io.checkpoint.shard import gaps


class Generation:
    """A committed generation with a valid manifest; apps see it as `hpckit.io.checkpoint.state.Restored`."""

    def __init__(self, root: Path, manifest: dict[str, Any]) -> None:
        self.path, self.manifest = folder(root, manifest["generation"]), manifest
        self.number: int = manifest["generation"]
        self._values = Values(manifest["values"])
        self._hash = hash_named(manifest["hash"])
        self._piece_bytes: int = manifest["piece_bytes"]

    @property
    def step(self) -> int:
        """The step that it was saved after."""
        return int(self.manifest["step"])

    @property
    def values(self) -> dict[str, Any]:
        """The values of the state."""
        return self._values

    @property
    def outputs(self) -> dict[str, Any]:
        """The extents of output files."""
        return self.manifest["outputs"]

    @property
    def names(self) -> list[str]:
        """The arrays."""
        return list(self.manifest["arrays"])

    @property
    def nbytes(self) -> int:
        """Bytes of all shards."""
        return sum(shard["size"] for shard in self.manifest["shards"])

    def shape(self, name: str) -> tuple[int, ...]:
        """The global shape of an array."""
        return tuple(self._array(name)["shape"])

    def dtype(self, name: str) -> np.dtype[Any]:
        """The type of its elements."""
        return np.dtype(self._array(name)["dtype"])

    def _array(self, name: str) -> dict[str, Any]:
        if name not in self.manifest["arrays"]:
            raise InputError(
                f"the checkpoint has no array {name!r}, it has {', '.join(self.names)}",
                where=str(self.path),
                likely="the app or its settings have changed since",
            )
        return self.manifest["arrays"][name]

    def read(self, name: str, start: Sequence[int], shape: Sequence[int]) -> np.ndarray:
        """The box of `shape` at `start`. Raises `CorruptDataError` if a byte of it has changed."""
        whole, dtype = self.shape(name), self.dtype(name)
        ends = [a + n for a, n in zip(start, shape, strict=True)]
        if len(ends) != len(whole) or any(end > n for end, n in zip(ends, whole, strict=True)):
            raise InputError(f"the box of {tuple(shape)} at {tuple(start)} is not in {name}, which has {whole}")
        box = np.empty(tuple(shape), dtype)
        found = 0
        for shard in self.manifest["shards"]:
            for piece in shard["pieces"]:
                if piece["name"] == name:
                    found += self._copy(shard, piece, box, start)
        if found != box.size:
            raise CorruptDataError(f"{name}: the shards hold {found} of {box.size} elements", where=str(self.path))
        return box

    def _copy(self, shard: dict[str, Any], piece: dict[str, Any], box: np.ndarray, start: Sequence[int]) -> int:
        """Copy the overlap of a piece and a box; returns its number of elements."""
        lows = [max(a, b) for a, b in zip(start, piece["start"], strict=True)]
        highs = [min(a + n, b + m) for a, n, b, m in zip(start, box.shape, piece["start"], piece["shape"], strict=True)]
        if any(low >= high for low, high in zip(lows, highs, strict=True)):
            return 0
        inside = tuple(slice(a - b, c - b) for a, b, c in zip(lows, piece["start"], highs, strict=True))
        place = tuple(slice(a - b, c - b) for a, b, c in zip(lows, start, highs, strict=True))
        # From the first to the last element of the part in the order of the file, by pieces that have a hash.
        values = np.empty(tuple(piece["shape"]), box.dtype)
        ends = ([cut.start for cut in inside], [cut.stop - 1 for cut in inside])
        first, last = (int(np.ravel_multi_index(end, values.shape)) if values.ndim else 0 for end in ends)
        numbers = range(first * box.itemsize // self._piece_bytes, last * box.itemsize // self._piece_bytes + 1)
        view = values.reshape(-1).view(np.uint8).data
        for number, data in self._checked(shard, piece, numbers, values.nbytes):
            view[number * self._piece_bytes : number * self._piece_bytes + len(data)] = data
        box[place] = values[inside]
        return box[place].size

    def _checked(
        self, shard: dict[str, Any], piece: dict[str, Any], numbers: Sequence[int], nbytes: int
    ) -> Iterator[tuple[int, memoryview]]:
        """The hashed parts with these numbers of an array's piece, each checked."""
        path = self.path / shard["file"]
        descriptor = self._open(path, shard["size"])
        buffer = memoryview(bytearray(min(self._piece_bytes, max(nbytes, 1))))
        try:
            for number in numbers:
                first = number * self._piece_bytes
                data = buffer[: min(self._piece_bytes, nbytes - first)]
                _read_exactly(descriptor, data, piece["offset"] + first, path)
                if self._hash(data) != piece["hashes"][number]:
                    raise CorruptDataError(
                        f"{path.name}: bytes {first} to {first + len(data)} of {piece['name']} have changed",
                        where=str(path),
                    )
                yield number, data
        finally:
            os.close(descriptor)

    def _open(self, path: Path, size: int) -> int:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise CorruptDataError(f"{path.name} cannot be read: {error.strerror}", where=str(path)) from None
        found = os.fstat(descriptor).st_size
        if found != size:
            os.close(descriptor)
            raise CorruptDataError(f"{path.name} has {found} bytes, {size} were written", where=str(path))
        return descriptor

    def verify(self, part: int = 0, parts: int = 1) -> None:
        """Check every byte of every shard, or the `part`-th of `parts` equal shares of that work.

        Raises `CorruptDataError` at the first changed byte.
        """
        units: list[tuple[dict[str, Any], dict[str, Any] | None, int]] = []
        for shard in self.manifest["shards"]:
            units.append((shard, None, 0))
            units += [(shard, piece, number) for piece in shard["pieces"] for number in range(len(piece["hashes"]))]
        for shard, piece, number in units[len(units) * part // parts : len(units) * (part + 1) // parts]:
            if piece is None:
                self._verify_structure(shard)
            else:
                nbytes = self._nbytes(piece)
                for _ in self._checked(shard, piece, [number], nbytes):
                    pass

    def _nbytes(self, piece: dict[str, Any]) -> int:
        return math.prod(piece["shape"]) * self.dtype(piece["name"]).itemsize

    def _verify_structure(self, shard: dict[str, Any]) -> None:
        """The bytes of a shard that are not array values."""
        path = self.path / shard["file"]
        descriptor = self._open(path, shard["size"])
        try:
            parts = []
            for start, stop in gaps([(each["offset"], self._nbytes(each)) for each in shard["pieces"]], shard["size"]):
                parts.append(bytearray(stop - start))
                _read_exactly(descriptor, memoryview(parts[-1]), start, path)
        finally:
            os.close(descriptor)
        if self._hash(b"".join(parts)) != shard["structure"]:
            raise CorruptDataError(f"{path.name}: its HDF5 structure has changed", where=str(path))


def _read_exactly(descriptor: int, data: memoryview, offset: int, path: Path) -> None:
    try:
        while data:
            count = os.preadv(descriptor, [data], offset)
            if not count:
                raise CorruptDataError(f"{path.name} ends too early", where=str(path))
            data, offset = data[count:], offset + count
    except OSError as error:
        raise CorruptDataError(f"{path.name} cannot be read: {error.strerror}", where=str(path)) from None


def open_generation(root: Path, number: int) -> Generation:
    """A generation with a valid manifest; its shards are not read.

    Raises `CorruptDataError`, `InputError` for an unknown version, `SetupError` if it cannot be read.
    """
    try:
        return Generation(root, parse(read_manifest(root, number), number))
    except OSError as error:
        raise SetupError(f"g{number:06d} cannot be read: {error.strerror or error}", where=str(root)) from None
