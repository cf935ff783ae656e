"""Frames: one directory for each output time, complete as soon as its `frame.h5` exists.

    frames/000012/rank-00000.h5   the block of a rank (driver "shards")
    frames/000012/frame.h5        all variables at one time: virtual over the blocks, or the values themselves

A number is never used twice. Where two frames cover the same time, as after a run that went back to a checkpoint, the
one with the higher number counts.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from hpckit.errors import CorruptDataError
from hpckit.io.fields.hdf5 import Source, memory_file, store, store_virtual
from hpckit.io.fields.layout import FileGrid
from hpckit.io.files import replace_file

Array = npt.NDArray[Any]
FRAMES = "frames"
FRAME_FILE = "frame.h5"


@dataclass(frozen=True)
class OutputFrame:
    """A complete output time."""

    number: int
    time: float

    @property
    def file(self) -> str:
        """Its file, relative to the directory of the master file."""
        return f"{FRAMES}/{self.number:06d}/{FRAME_FILE}"


def frame_directory(directory: Path, number: int) -> Path:
    """Where the files of a frame stand."""
    return directory / FRAMES / f"{number:06d}"


def shard_name(rank: int) -> str:
    """The file of a rank's block."""
    return f"rank-{rank:05d}.h5"


def numbers(directory: Path) -> list[int]:
    """The numbers of all frames, complete or not, rising."""
    root = directory / FRAMES
    return sorted(int(entry.name) for entry in root.iterdir() if entry.name.isdigit()) if root.is_dir() else []


def complete_frames(directory: Path) -> list[OutputFrame]:
    """The complete frames, by rising time."""
    frames: list[OutputFrame] = []
    for number in numbers(directory):
        path = frame_directory(directory, number) / FRAME_FILE
        if path.exists():
            frames = drop_from([*frames, OutputFrame(number, _time_of(path))], number)
    return frames


def _time_of(path: Path) -> float:
    try:
        with h5py.File(path, "r") as file:
            return float(file.attrs["time"])
    except (OSError, KeyError) as problem:
        raise unreadable(path, problem) from problem


def unreadable(path: Path, problem: Exception) -> CorruptDataError:
    """The error for a file that HDF5 cannot read."""
    return CorruptDataError(
        f"{path.name} cannot be read as HDF5",
        where=str(path),
        likely=str(problem),
        do="restore the file from a copy, or run again",
    )


def drop_from(frames: list[OutputFrame], number: int) -> list[OutputFrame]:
    """Without the older frames that the frame `number` makes obsolete: those at its time or later."""
    limit = next(frame.time for frame in frames if frame.number == number)
    return [frame for frame in frames if frame.time < limit or frame.number == number]


def dtypes_of(directory: Path, frame: OutputFrame) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    """Type and shape of each variable of a frame, to check that another frame matches."""
    with h5py.File(directory / frame.file, "r") as file:
        return {name: (file[name].dtype, tuple(file[name].shape)) for name in file}


def write_shard(path: Path, blocks: Mapping[str, Array], compression: int) -> int:
    """One rank's blocks as a file; returns its bytes."""
    with memory_file() as made:
        store(made.file, blocks, compression)
    replace_file(path, made.image, sync_parent=False)
    return len(made.image)


def write_whole_frame(path: Path, time: float, fields: Mapping[str, Array], compression: int) -> int:
    """A frame whose values stand in one file; returns its bytes."""
    with memory_file() as made:
        made.file.attrs["time"] = time
        store(made.file, fields, compression)
    replace_file(path, made.image)
    return len(made.image)


def write_virtual_frame(path: Path, time: float, layout: FileGrid, dtypes: Mapping[str, np.dtype[Any]]) -> int:
    """A frame over the shards of all ranks, which must be on disk before; returns its bytes."""
    with memory_file() as made:
        made.file.attrs["time"] = time
        for name, variable in layout.variables.items():
            where = variable.decomposition
            starts, counts = where.all_starts().T.tolist(), where.all_owned().T.tolist()
            sources: list[Source] = [
                (tuple(start), tuple(count), shard_name(rank), tuple(count))
                for rank, (start, count) in enumerate(zip(starts, counts, strict=True))
            ]
            store_virtual(made.file, name, variable.shape, dtypes[name], sources)
    replace_file(path, made.image)
    return len(made.image)


def nbytes(directory: Path) -> int:
    """Bytes of the files of all frames."""
    return sum(path.stat().st_size for path in (directory / FRAMES).glob("*/*"))


def prune(directory: Path, keep: list[OutputFrame]) -> None:
    """Remove obsolete frames and the leftovers of a killed writer."""
    wanted = {frame.number for frame in keep}
    for number in numbers(directory):
        if number not in wanted:
            shutil.rmtree(frame_directory(directory, number), ignore_errors=True)


def require_sources(path: Path) -> None:
    """Raise `CorruptDataError` if files are missing that hold values of `path`: HDF5 would show NaN, without a word."""
    missing = missing_sources(path)
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        folder = missing[0].partition("/")[0]
        raise CorruptDataError(
            f"{path.name} refers to files that are missing: {', '.join(missing[:3])}{more}",
            where=str(path),
            likely=f"it was moved or copied without the folder {folder}/ beside it, which holds the values",
            do="copy that folder too, or make one file of both where they are (hpckit pack DIR) and copy that",
        )


def missing_sources(path: Path, prefix: str = "") -> list[str]:
    """The missing files among those that the virtual datasets of `path` (and of the files below it) name."""
    names: set[str] = set()

    def collect(_: str, item: h5py.Group | h5py.Dataset) -> None:
        if isinstance(item, h5py.Dataset) and item.is_virtual:
            names.update(source.file_name for source in item.virtual_sources())

    try:
        with h5py.File(path, "r") as file:
            file.visititems(collect)
    except OSError as problem:
        raise unreadable(path, problem) from problem
    absent = []
    for name in sorted(names - {"."}):
        below = path.parent / name
        where = f"{prefix}{name}"
        absent += missing_sources(below, where.rpartition("/")[0] + "/") if below.exists() else [where]
    return absent
