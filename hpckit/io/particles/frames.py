"""One frame of a file of particles, whichever of the formats it has."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from hpckit.errors import InputError
from hpckit.io.particles.extended_xyz import read_extended_xyz
from hpckit.io.particles.h5md_reader import read_h5md
from hpckit.io.particles.lammps_data import read_lammps_data
from hpckit.io.particles.lammps_dump import read_lammps_dump
from hpckit.io.particles.snapshot import Snapshot

# End of the name -> what reads the frames; any other name is that of a LAMMPS data file.
READERS: dict[str, Callable[[Path], Iterator[Snapshot]]] = {
    **dict.fromkeys((".dump", ".lammpstrj"), read_lammps_dump),
    **dict.fromkeys((".xyz", ".extxyz"), read_extended_xyz),
    **dict.fromkeys((".h5", ".h5md"), read_h5md),
}


def read_frame(path: str | Path, frame: int = -1, periodic: tuple[bool, bool, bool] = (True, True, True)) -> Snapshot:
    """A frame of a file: LAMMPS data, or by the end of its name LAMMPS dump, extended XYZ or H5MD.

    frame: counted from 0, or below 0 from the end; a data file has one. periodic: of a data file, which does not say
    it. Raises `InputError` for what cannot be read, and for a frame that is not there.
    """
    path = Path(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        _require_text_of_data(path)
        frames = iter([read_lammps_data(path, periodic=periodic)])
    else:
        frames = reader(path)
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


def _require_text_of_data(path: Path) -> None:
    """Refuse what is plainly of another format: the first line of a data file says nothing, so it would go unseen."""
    try:
        with path.open("rb") as file:
            head = file.read(8)
    except OSError:
        return  # the reader says why
    if head.startswith((b"ITEM:", b"\x89HDF")):
        is_dump = head.startswith(b"ITEM:")
        raise InputError(
            f"this is {'a LAMMPS dump' if is_dump else 'an HDF5 file'}, and its name is that of a LAMMPS data file",
            where=str(path),
            do=f"let its name end with {'.dump or .lammpstrj' if is_dump else '.h5 or .h5md'}",
        )
