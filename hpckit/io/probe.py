"""HDF5 files of unknown origin: a child process with limits reads the whole file before this process opens it.

A damaged or malicious file can crash the HDF5 library, make it allocate any amount of memory, or hang it. The child's
fate is reported and harms nothing; then the same library reads the same bytes here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from hpckit.errors import CorruptDataError

SIGNATURE = b"\x89HDF\r\n\x1a\n"
MEMORY = 4 << 30  # bytes of address space of a process that reads a file
AT_ONCE = 1000  # files of a command line
Key = tuple[str, int, int, int]
_sound: set[Key] = set()  # files already found sound by this process: device, inode, size, time


def is_hdf5(path: Path) -> bool:
    """Whether the file begins with HDF5's signature. Raises `OSError`."""
    with open(path, "rb") as file:
        return file.read(len(SIGNATURE)) == SIGNATURE


def hdf5_files(folder: Path) -> list[Path]:
    """The files in a folder of outputs that are HDF5 by their names."""
    return sorted(path for path in folder.glob("*") if path.suffix in (".h5", ".h5md"))


def require_intact(paths: Iterable[Path]) -> None:
    """Raise `CorruptDataError`, with file and reason, unless every file can be read to its end.

    It refuses links to other files, values in files outside of its folder, filters that are not installed and sizes
    that the file cannot hold. Beyond 1 GiB of values it checks only the structure. Takes 0.3 s, and 10 ms per file.
    """
    try:
        unknown = [path for path in paths if _key(path) not in _sound]
    except OSError as error:
        raise CorruptDataError(f"{error.filename} cannot be read: {error.strerror}") from None
    for path, problem in zip(unknown, problems(unknown), strict=True):
        if problem:
            raise CorruptDataError(
                f"{path.name} is not read: {problem}",
                where=str(path),
                likely="the file is damaged, was not finished, or was made to do harm",
                do="copy it again from where it came, or leave it out",
            )
        _sound.add(_key(path))


def problems(paths: Sequence[Path]) -> list[str]:
    """What is wrong with each of the files, '' for nothing."""
    if len(paths) > AT_ONCE:
        return [problem for first in range(0, len(paths), AT_ONCE) for problem in problems(paths[first:][:AT_ONCE])]
    if not paths:
        return []
    words = [sys.executable, "-P", "-m", "hpckit.io.probe_child", str(MEMORY), *map(str, paths)]
    said = subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
    ).stdout.splitlines()
    missing = ["the process that reads it ended without an answer"] * (len(paths) - len(said))
    return [str(json.loads(line)) for line in said] + missing


def _key(path: Path) -> Key:
    it = os.stat(path)
    return str(path.resolve()), it.st_ino, it.st_size, it.st_mtime_ns
