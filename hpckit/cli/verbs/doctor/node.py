"""What the doctor sees of this node without starting anything: shared memory, variables, leftovers of killed jobs."""

from __future__ import annotations

import errno
import os
import shlex
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hpckit.jobs.process import cores
from hpckit.launch import leftovers
from hpckit.settings.table import bytes_text

RANK_BYTES = 1_100_000  # of shared memory that MPICH 5 takes for a rank (measured)
LEAST_RANKS = 2
# hdf5: H5Fint.c; any other value is ignored without a word.
LOCKING = ("TRUE", "1", "FALSE", "0", "BEST_EFFORT")
MORE_MEMORY = "mount -o remount,size=1g /dev/shm as root; a container: docker run --shm-size=1g, or --ipc=host"


@dataclass(frozen=True)
class Outcome:
    """`status`: ok, warn, fail or skipped; a sentence; how to mend it."""

    status: str
    text: str
    do: str = ""


def shared_memory(folder: Path = leftovers.MEMORY) -> Outcome:
    """The folder in memory through which the ranks of a node meet: there, writable, with room for some ranks."""
    if sys.platform != "linux":
        return Outcome("skipped", "no /dev/shm on this system")
    if not folder.is_dir():
        return Outcome("fail", f"there is no {folder}, where ranks meet", f"mount -t tmpfs tmpfs {folder} as root")
    status = os.statvfs(folder)
    size, free = status.f_frsize * status.f_blocks, status.f_frsize * status.f_bavail
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, LEAST_RANKS * RANK_BYTES)
    except OSError as problem:
        return _unusable(folder, problem, size, free)
    ranks = free // RANK_BYTES
    if ranks < cores():
        return Outcome(
            "warn", f"{bytes_text(free)} free in {folder} are enough for {ranks} ranks on {cores()} cores", MORE_MEMORY
        )
    return Outcome("ok", f"{bytes_text(free)} of {bytes_text(size)} free in {folder}; a rank of MPICH takes 1.1 MB")


def _unusable(folder: Path, problem: OSError, size: int, free: int) -> Outcome:
    """The reason why two ranks cannot start in this shared memory."""
    if problem.errno == errno.EROFS:
        return Outcome("fail", f"{folder}, where ranks meet, is read-only", f"mount -o remount,rw {folder} as root")
    if problem.errno != errno.ENOSPC:
        return Outcome("fail", f"{folder} cannot be written: {problem.strerror}", f"chmod 1777 {folder} as root")
    need = bytes_text(LEAST_RANKS * RANK_BYTES)
    if size < LEAST_RANKS * RANK_BYTES:
        return Outcome("fail", f"{folder} has {bytes_text(size)}, and two ranks of MPI take {need}", MORE_MEMORY)
    return Outcome(
        "fail",
        f"{folder} is full: {bytes_text(free)} of {bytes_text(size)} free, and two ranks of MPI take {need}",
        f"hpckit doctor --clean; ls -l {folder} shows whose files they are",
    )


def variables() -> Outcome:
    """Environment variables that name folders or choices are right."""
    wrong = [*_temporary(), *_kernel_cache(), *_locking()]
    if wrong:
        return Outcome("warn", "; ".join(text for text, _ in wrong), "; ".join(do for _, do in wrong))
    return Outcome("ok", "folders and choices in environment variables are right")


def _temporary() -> list[tuple[str, str]]:
    return [
        (f"{name}={folder} {problem}, temporary files go to {tempfile.gettempdir()}", f"mkdir -p {shlex.quote(folder)}")
        for name in ("TMPDIR", "TEMP", "TMP")
        if (folder := os.environ.get(name)) and (problem := _not_writable(Path(folder)))
    ]


def _kernel_cache() -> list[tuple[str, str]]:
    folder = os.environ.get("NUMBA_CACHE_DIR")
    if not folder:
        return []
    place = Path(folder)
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent  # Numba makes the folders that are not there
    problem = _not_writable(place)
    said = f"NUMBA_CACHE_DIR={folder} cannot be made or written ({place} {problem}): kernels are compiled in every run"
    return [(said, "export NUMBA_CACHE_DIR=$HOME/.cache/numba, or unset it")] if problem else []


def _locking() -> list[tuple[str, str]]:
    value = os.environ.get("HDF5_USE_FILE_LOCKING")
    if value is None or value in LOCKING:
        return []
    said = f"HDF5_USE_FILE_LOCKING={value} is ignored by HDF5, which knows {', '.join(LOCKING)}"
    return [(said, "export HDF5_USE_FILE_LOCKING=FALSE, or unset it")]


def _not_writable(folder: Path) -> str:
    """Why no file can be made in a folder; '' if one can."""
    if not os.path.lexists(folder):
        return "is not there"
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except NotADirectoryError:
        return "is not a folder"
    except OSError as problem:
        return f"cannot be written ({problem.strerror})"


def remains() -> Outcome:
    """What killed jobs left in memory."""
    ours, theirs = leftovers.leftovers(), leftovers.segments()
    if not ours and not theirs:
        return Outcome("ok", "no leftovers of killed jobs")
    kinds = [(ours, "of hpckit"), (theirs, "of the MPI library")]
    text = ", ".join(f"{len(paths)} {whose} ({bytes_text(_bytes(paths))})" for paths, whose in kinds if paths)
    return Outcome("warn", f"leftovers of killed jobs: {text}", "hpckit doctor --clean")


def clean() -> list[str]:
    """Remove our leftovers of this user's killed jobs; lines about them and about those of the MPI library."""
    lines = [f"removed {path}" for path in leftovers.sweep()] or ["nothing of ours to remove"]
    if theirs := leftovers.segments():
        lines.append(f"{len(theirs)} segments of the MPI library that no process seen from here uses; to remove them:")
        lines.append(f"rm -f {shlex.join(map(str, theirs))}")
    return lines


def _bytes(paths: list[Path]) -> int:
    """Bytes of files, and of the files in folders."""
    files = [file for path in paths for file in (path.rglob("*") if path.is_dir() else [path])]
    return sum(file.lstat().st_size for file in files if os.path.lexists(file))
