"""Reads the files of `FieldWriter`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpckit.errors import InputError, SetupError
from hpckit.io.fields.frames import require_sources
from hpckit.io.fields.master import MASTER
from hpckit.io.probe import require_intact


def open_fields(path: Path | str) -> Any:
    """The fields of a run as an `xarray.Dataset`, read lazily, times in seconds since the start; close it after use.

    `path`: a `fields.h5`, the directory it stands in, or a run directory. Raises `InputError` if there is none,
    `CorruptDataError` if it is damaged or one of its files is missing (HDF5 would show NaN), and `SetupError` without
    xarray and h5netcdf (extra `analysis`).
    """
    try:
        import h5netcdf  # noqa: F401
        import xarray
    except ImportError as problem:
        raise SetupError(
            f"reading fields needs {problem.name}",
            likely="hpckit was installed without the extra `analysis`",
            do="pip install 'hpckit[analysis]'",
        ) from problem
    file = find_fields(path)
    require_intact([file])
    require_sources(file)
    return xarray.open_dataset(file, engine="h5netcdf", decode_times=False)


def find_fields(path: Path | str) -> Path:
    """The `fields.h5` meant by a file, its directory, or a run directory; raises `InputError` when there is none."""
    given = Path(path)
    for candidate in (given, given / MASTER, given / "output" / MASTER):
        if candidate.is_file():
            return candidate
    raise InputError(
        f"no {MASTER} in {given}",
        likely="the run has not written a frame yet, or this is not a run directory",
        do="name a run directory, its output directory or a fields.h5",
    )
