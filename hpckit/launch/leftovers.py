"""What jobs that were killed left behind in this node's memory and folder for temporary files.

Every entry of ours is locked (flock) by the processes that use it, and the kernel drops their locks with them, so an
entry that nobody locks belongs to nobody. That also holds between containers, where process numbers mean nothing. On a
file system without locks the table of a watch still names its processes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from hpckit.comm.observe.table import PAGE, STRIDE, TABLE, read_head, table_of

MEMORY = Path("/dev/shm")
OURS = re.compile(r"hpckit-(watch|memory|scratch)-\w{8}")
THEIRS = re.compile(r"mpich_shm_[0-9a-f]+_\d+|ucx_shm_posix_[0-9a-f]+|(sm|vader)_segment\.\S+")
NEW_SECONDS = 60.0  # what is younger may not be locked yet


def sweep() -> list[Path]:
    """Remove our leftovers, of this user and of processes that have ended; returns them. Never raises."""
    removed = []
    for path, descriptor in _unlocked():
        try:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
            removed.append(path)
        except OSError:
            pass
    return removed


def leftovers() -> list[Path]:
    """What `sweep` would remove."""
    return [path for path, _ in _unlocked()]


def segments() -> list[Path]:
    """Segments of MPI libraries in memory, of this user, that no process here uses: of killed jobs, or of another
    container that shares this memory.
    """
    found = _entries(MEMORY, THEIRS)
    return found and sorted(set(found).difference(_mapped(found)))


def _unlocked() -> Iterator[tuple[Path, int]]:
    """Our entries that no process has locked; each is locked by us meanwhile."""
    folders = {folder.resolve() for folder in (MEMORY, Path(tempfile.gettempdir())) if folder.is_dir()}
    for path in (entry for folder in sorted(folders) for entry in _entries(folder, OURS)):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not _has_processes(path):
                    yield path, descriptor
            finally:
                os.close(descriptor)


def _has_processes(path: Path) -> bool:
    """Whether a rank that is written down in the table of a watch lives."""
    try:
        ranks = ((path / TABLE).stat().st_size - PAGE) // STRIDE
        table = table_of(path, ranks)
    except (OSError, ValueError):
        return False
    return any(Path("/proc", str(pid)).exists() for slot in range(ranks) if (pid := read_head(table, slot).pid))


def _entries(folder: Path, names: re.Pattern[str]) -> list[Path]:
    """Entries of a folder with such names, of this user, that are files or folders and not new."""
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if names.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    plain = stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)
                    if plain and status.st_uid == os.geteuid() and time.time() - status.st_mtime > NEW_SECONDS:
                        found.append(Path(entry.path))
    return found


def _mapped(paths: Iterable[Path]) -> set[Path]:
    """Those of the paths that a process maps."""
    left = {str(path): path for path in paths}
    found: set[Path] = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                for line in (process / "maps").read_text(errors="replace").splitlines():
                    found.update(filter(None, [left.get(line[line.find("/") :])]))
    return found
