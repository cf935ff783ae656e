"""Extended XYZ, in and out, by ASE: a line a particle, the box and the columns named in a comment.

Symbols of elements are the types' names; types without an element's name are written as X. Ids, types, images and
velocities travel as columns `id`, `type`, `image` and `velo` in the numbers of the run, without conversion of units.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.errors import InputError, SetupError
from hpckit.io.files import replacing
from hpckit.plan.inputs.text import open_regular
from hpckit.plan.particles.cell import Cell
from hpckit.plan.particles.snapshot import Snapshot, sorted_by_id

MOST_COMMENT = 1 << 16  # characters
MOST_DIGITS = 40  # of a number of particles, blanks and the end of the line among them


def read_extended_xyz(path: str | Path) -> Iterator[Snapshot]:
    """The frames of an extended XYZ file. Raises `InputError` for what cannot be read, `SetupError` without ASE."""
    _ase()
    from ase.io import iread

    path = Path(path)
    if not path.is_file():
        raise InputError("there is no such file", where=str(path))
    _require_frames(path)
    frames = iread(path, format="extxyz", parallel=False)  # ASE would wait for the other ranks otherwise
    number = 0
    while True:
        try:
            atoms = next(frames, None)
        except Exception as error:  # whatever ASE meets in a file it did not expect
            said = f"no element {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
            raise InputError(
                f"{path.name}: frame {number} is not extended XYZ",
                where=str(path),
                likely=f"ASE, which reads it, says: {said}",
                do='a comment line names the columns: Lattice="5 0 0 0 5 0 0 0 5" Properties=species:S:1:pos:R:3',
            ) from error
        if atoms is None:
            return
        yield _snapshot(atoms, f"{path}, frame {number}")
        number += 1


def _require_frames(path: Path) -> None:
    """Raise `InputError` unless the lines are frames: a number of particles, a comment, one line per particle."""
    line = 0
    with io.TextIOWrapper(open_regular(path, "the file"), encoding="utf-8") as file:
        try:
            while text := file.readline():
                line += 1
                if not text.strip() and not file.read().strip():
                    return  # empty lines at the end
                if text.lstrip().startswith("VEC"):  # the box in lines of its own, after the particles
                    continue
                if not text.strip().isdecimal() or len(text) > MOST_DIGITS:
                    raise InputError(
                        f"expected a number of particles, found {text.strip()[:40]!r}", where=f"{path}, line {line}"
                    )
                first, count = line, int(text)
                _require_columns(file.readline(MOST_COMMENT), f"{path}, line {line + 1}")
                line += 1
                for _ in range(count):
                    if not file.readline():
                        raise InputError(
                            f"the file ends before the {count} particles of a frame",
                            where=f"{path}, from line {first} on",
                            likely="it is cut off",
                        )
                    line += 1
        except OSError as error:
            raise InputError(f"the file cannot be read: {error.strerror}", where=str(path)) from None
        except UnicodeDecodeError:
            raise InputError("expected text, found bytes that are not UTF-8", where=str(path)) from None


def _require_columns(comment: str, where: str) -> None:
    """Raise `InputError` for a comment that is too long, or names more columns than a line has: ASE believes it."""
    if len(comment) >= MOST_COMMENT:
        raise InputError(f"expected a comment of less than {MOST_COMMENT} characters", where=where)
    named = re.search(r'properties\s*=\s*"?([^\s"]*)', comment, re.I)
    for count in named[1].split(":")[2::3] if named else ():
        if not re.fullmatch(r"[0-9]{1,3}", count):
            raise InputError(f"expected Properties with 1 to 999 columns each, found {count[:40]!r}", where=where)


def write_extended_xyz(path: str | Path, snapshots: Snapshot | list[Snapshot]) -> None:
    """Write one frame or several, whole or not at all. Raises `SetupError` where that fails, or without ASE."""
    _ase()
    from ase.io import write

    path = Path(path)
    frames = [snapshots] if isinstance(snapshots, Snapshot) else snapshots
    with replacing(path) as temporary:
        write(temporary, [_atoms(frame) for frame in frames], format="extxyz", parallel=False)  # for this rank alone


def _snapshot(atoms: Any, where: str) -> Snapshot:
    given = np.asarray(atoms.cell)
    given = np.where(np.abs(given) > 1e-12 * max(np.abs(given).max(), 1.0), given, 0.0)
    lower = np.asarray(atoms.info.get("lower", np.zeros(3)), np.float64)
    try:
        cell, rotation = Cell.of_edges(given, lower)
    except ValueError as error:
        raise InputError(f"Lattice: {error}", where=where) from None
    n = len(atoms)
    arrays = atoms.arrays
    symbols = atoms.get_chemical_symbols()
    ids = np.asarray(arrays.get("id", np.arange(1, n + 1)), np.int64)
    if len(np.unique(ids)) < n:
        raise InputError("expected every id once, found one twice", where=where)
    if "type" in arrays:
        types = np.asarray(arrays["type"], np.int64) - 1
        if n and types.min() < 0:
            raise InputError("expected types from 1 on", where=where)
        names = tuple(_name_of(types, symbols, number) for number in range(int(types.max(initial=-1)) + 1))
    else:
        names = tuple(dict.fromkeys(symbols))
        types = np.array([names.index(symbol) for symbol in symbols], np.int64)
    by_particle = np.asarray(atoms.get_masses(), np.float64)
    masses = np.array(
        [by_particle[types == number].mean() if (types == number).any() else 1.0 for number in range(len(names))]
    )
    images = np.asarray(arrays.get("image", np.zeros((n, 3))), np.int32)
    velocities = arrays.get("velo")
    places = atoms.get_positions()
    if not np.array_equal(rotation, np.eye(3)):  # a cell in another position is turned, with all in it
        places = lower + (places - lower) @ rotation
        velocities = None if velocities is None else velocities @ rotation
    ids, types, positions, images, velocities = sorted_by_id(ids, types, places, images, velocities)
    wraps = bool(atoms.pbc[0]), bool(atoms.pbc[1]), bool(atoms.pbc[2])
    info = atoms.info
    return Snapshot(
        lower, np.array(cell.upper), wraps, ids, types, positions, images, velocities, None, masses, None, names,
        int(info.get("step", 0)), float(info.get("time", 0.0)), tilt=np.array(cell.tilt),
    )  # fmt: skip


def _atoms(snapshot: Snapshot) -> Any:
    from ase import Atoms
    from ase.data import atomic_numbers

    symbols = [name if name in atomic_numbers else "X" for name in snapshot.names] or ["X"] * (
        int(snapshot.types.max(initial=0)) + 1
    )
    atoms = Atoms(
        symbols=[symbols[number] for number in snapshot.types],
        positions=snapshot.positions,
        cell=snapshot.cell.matrix,
        pbc=snapshot.periodic,
    )
    if snapshot.particle_masses is not None:
        atoms.set_masses(snapshot.particle_masses)
    atoms.new_array("id", snapshot.ids)
    atoms.new_array("type", snapshot.types + 1)
    atoms.new_array("image", snapshot.images)
    if snapshot.velocities is not None:
        atoms.new_array("velo", snapshot.velocities)
    atoms.info.update(step=snapshot.step, time=snapshot.time, lower=snapshot.lower)
    return atoms


def _name_of(types: np.ndarray, symbols: list[str], number: int) -> str:
    at = np.flatnonzero(types == number)
    return symbols[at[0]] if at.size else ""


def _ase() -> None:
    try:
        from ase import parallel
    except ImportError as error:
        raise SetupError(
            "extended XYZ is read and written by ASE, which is not installed", do="pip install ase"
        ) from error
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and not mpi.Is_initialized() and parallel.world.comm is None:
        parallel.world.comm = parallel.DummyMPI()  # ASE asks an imported MPI for its size, started or not
