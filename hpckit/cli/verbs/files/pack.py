"""`hpckit pack DIR`: one file of an output whose frames are in files of their own."""

from __future__ import annotations

import contextlib
from pathlib import Path

import h5py

from hpckit.errors import InputError
from hpckit.io.fields.frames import require_sources
from hpckit.io.fields.master import MASTER, VALUES_IN
from hpckit.io.fields.pack import pack_fields, pack_file
from hpckit.io.probe import hdf5_files, require_intact
from hpckit.launch.lock import locked
from hpckit.run.directory import RunDirectory
from hpckit.settings.table import Parser, bytes_text


def main(arguments: list[str]) -> int:
    """The verb `pack`."""
    it = Parser(
        prog="hpckit pack",
        description="Make one file of the frames of an output, so that it can be copied by itself. The files of the"
        " frames go; a run can still be resumed.",
    )
    it.add_argument("directory", type=Path, metavar="DIR", help="a run directory, or a folder with fields.h5")
    given = it.parse_args(arguments).directory
    if not given.is_dir():
        raise InputError(f"there is no folder {given}", do="hpckit ls lists runs")
    is_run = (given / "resolved.json").is_file()
    folder = given / "output" if is_run else given
    files = hdf5_files(folder)
    if not files:
        raise InputError(
            f"{folder} holds no fields.h5 and no trajectory",
            likely="the run has not written a frame yet, or another folder was meant",
            do="give a run directory, or the folder that a FieldWriter wrote to",
        )
    with locked(RunDirectory(given), "pack") if is_run else contextlib.nullcontext():
        for path in files:
            print(f"{path}: {_packed(path)}", flush=True)
    return 0


def _packed(path: Path) -> str:
    """Pack a file, and say so."""
    require_sources(path)
    require_intact([path])
    with h5py.File(path, "r") as file:
        if VALUES_IN not in file.attrs:
            return "one file already"
    if path.name == MASTER:
        pack_fields(path.parent)
    else:
        for frame in pack_file(path, drop=(VALUES_IN,)):
            frame.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # frames that the table does not hold yet stay, for a run that goes on
            path.with_name(path.name + ".frames").rmdir()
    return f"one file of {bytes_text(path.stat().st_size)}"
