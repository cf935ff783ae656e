"""The frames of a file of particles, whichever of the formats it has."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np

from hpckit.errors import InputError
from hpckit.io.particles.extended_xyz import read_extended_xyz
from hpckit.io.particles.h5md_reader import read_h5md
from hpckit.io.particles.lammps_data import read_lammps_data
from hpckit.io.particles.lammps_dump import read_lammps_dump
from hpckit.io.particles.topologies import COORDINATES, read_topology
from hpckit.plan.inputs.text import read_bytes
from hpckit.plan.particles.snapshot import Snapshot

# End of the name -> what reads the frames. Of another name the first bytes say it: LAMMPS users write `dump.melt`.
READERS: dict[str, Callable[[Path], Iterator[Snapshot]]] = {
    **dict.fromkeys((".dump", ".lammpstrj"), read_lammps_dump),
    **dict.fromkeys((".xyz", ".extxyz"), read_extended_xyz),
    **dict.fromkeys((".h5", ".h5md"), read_h5md),
    **dict.fromkeys(COORDINATES, lambda path: iter([read_topology(path).snapshot])),
}


def read_frames(
    path: str | Path, periodic: tuple[bool, bool, bool] = (True, True, True), style: str | None = None
) -> Iterator[Snapshot]:
    """The frames of a LAMMPS data file or dump, an extended XYZ or H5MD trajectory, one at a time; the only one of a
    topology of AMBER or GROMACS.

    The format is that of the end of the name (`READERS`), else of the first bytes. periodic: of a data file, which does
    not say it; style: its atom style, where it does not. Raises `InputError` for what cannot be read.
    """
    path = Path(path)
    reader = _reader_of(path)
    if reader is None:
        return iter([read_lammps_data(path, style, periodic)])
    return reader(path)


def read_frame(
    path: str | Path,
    frame: int = -1,
    periodic: tuple[bool, bool, bool] = (True, True, True),
    style: str | None = None,
) -> Snapshot:
    """A frame of a file, as of `read_frames`.

    frame: counted from 0, or below 0 from the end; a data file has one. Raises `InputError` for what cannot be read,
    and for a frame that is not there.
    """
    frames = read_frames(path, periodic, style)
    if frame >= 0:
        found = list(islice(frames, frame, frame + 1))
    else:
        last = deque(frames, maxlen=-frame)
        found = [last[0]] if len(last) == -frame else []
    if not found:
        raise InputError(
            f"there is no frame {frame} in it", where=str(path), do="give a frame of the file; -1 is its last"
        )
    return found[0]


def _reader_of(path: Path) -> Callable[[Path], Iterator[Snapshot]] | None:
    """By the end of the name, else by the first bytes; None for a data file, whose first line is free text."""
    reader = READERS.get(path.suffix.lower())
    if reader is not None:
        return reader
    try:
        head = read_bytes(path, "the file", 8, whole=False)
    except InputError:
        return None  # the reader says why
    if head.startswith(b"ITEM:"):
        return read_lammps_dump
    return read_h5md if head.startswith(b"\x89HDF") else None


def with_images(frames: Iterable[Snapshot]) -> Iterator[Snapshot]:
    """The frames of a trajectory; those without images get them: each particle has gone the shortest way since the
    frame before, which is so as long as none goes half of the box between two frames.
    """
    places = images = None
    for frame in frames:
        found = frame
        if not frame.images.any() and places is not None and len(places) == frame.count:
            gone = frame.cell.straight(places) - frame.cell.straight(frame.positions)
            turns = np.rint(gone / frame.edges) * np.array(frame.periodic)
            found = replace(frame, images=(images + turns).astype(np.int32))
        places, images = frame.positions, found.images
        yield found
