"""Memory that the ranks of a node share, without a name that a killed job could leave behind.

The first rank makes an anonymous file in memory (memfd_create) and the others open it through /proc, which works
between processes of one user in one container. Elsewhere a file in /dev/shm or the folder for temporary files is opened
by all and unlinked before it is used. Either way the kernel frees the memory with the last process that maps it.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from hpckit.comm.agree import broadcast_bytes
from hpckit.errors import SetupError

__communicates__ = True  # its frames are not call sites

PAGE = mmap.PAGESIZE
FOLDER = "/dev/shm"  # memory on Linux; elsewhere the folder for temporary files


@dataclass(frozen=True)
class Segment:
    """Shared memory mapped by this rank: uint8[nbytes], zeroed; it lives as long as any array on it.

    same_processes: whether the process numbers of the ranks are valid for each other.
    """

    memory: np.ndarray
    same_processes: bool
    mapping: mmap.mmap

    @property
    def address(self) -> int:
        """The address of the mapping."""
        return self.memory.ctypes.data


def whole_pages(nbytes: int) -> int:
    """The size in whole pages, at least one."""
    return max(1, -(-nbytes // PAGE)) * PAGE


def make_segment(comm: MPI.Comm, part_bytes: int, head_bytes: int = 0) -> Segment:
    """A segment with a head and a part for each rank of `comm`, all of whole pages; collective.

    Each rank reserves its own part (the first one the head too): pages lie in the memory next to the rank, and none is
    missing later. Raises `SetupError` on every rank if there is not enough memory.
    """
    descriptor, same_processes = _open_anonymous(comm)
    if descriptor is None:
        descriptor, same_processes = _open_unlinked(comm), False
    size = head_bytes + comm.size * part_bytes
    first = 0 if comm.rank == 0 else head_bytes + comm.rank * part_bytes
    mapping: mmap.mmap | None = None
    problem = 0
    try:
        if comm.rank == 0:
            os.ftruncate(descriptor, size)
        _reserve(descriptor, first, head_bytes + (comm.rank + 1) * part_bytes - first)
    except OSError as error:
        problem = error.errno or errno.EIO
    problem = _largest(comm, problem)
    try:
        if not problem:
            mapping = mmap.mmap(descriptor, size)
    except OSError as error:
        problem = error.errno or errno.EIO
    finally:
        os.close(descriptor)
    problem = _largest(comm, problem)
    if problem or mapping is None:
        raise SetupError(
            f"no shared memory of {size / 2**20:.0f} MiB: {os.strerror(problem)}",
            likely="the node's memory, or the memory that the job or container may use, is full",
            do="use smaller buffers or fewer ranks a node",
        )
    return Segment(np.frombuffer(mapping, np.uint8), same_processes, mapping)


def _largest(comm: MPI.Comm, value: int) -> int:
    """The largest of the values of all ranks."""
    values = np.array([value], np.int64)
    comm.Allreduce(MPI.IN_PLACE, values, MPI.MAX)
    return int(values[0])


def _reserve(descriptor: int, start: int, nbytes: int) -> None:
    """Reserve the memory of a part now: a page that cannot be allocated later would crash the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, start, nbytes)


def _open_anonymous(comm: MPI.Comm) -> tuple[int | None, bool]:
    """A descriptor of an anonymous file that all ranks have open, or None on all of them."""
    descriptor = -1
    facts = np.full(4, -1, np.int64)
    if comm.rank == 0 and hasattr(os, "memfd_create"):
        with suppress(OSError):
            descriptor = os.memfd_create("hpckit", os.MFD_CLOEXEC)
            status = os.fstat(descriptor)
            facts[:] = os.getpid(), descriptor, status.st_dev, status.st_ino
    comm.Bcast(facts, 0)
    process, number, device, inode = (int(fact) for fact in facts)
    if comm.rank and number >= 0:
        with suppress(OSError):
            descriptor = os.open(f"/proc/{process}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) != (device, inode):  # a process of that number in another container
                os.close(descriptor)
                descriptor = -1
    if _largest(comm, int(descriptor < 0)):
        if descriptor >= 0:
            os.close(descriptor)
        return None, False
    return descriptor, True


def _open_unlinked(comm: MPI.Comm) -> int:
    """A descriptor of an unlinked file that all ranks have open; raises `SetupError` on all ranks."""
    descriptor, path = -1, ""
    if comm.rank == 0:
        with suppress(OSError):
            descriptor, path = tempfile.mkstemp(prefix="hpckit-memory-", dir=FOLDER if os.path.isdir(FOLDER) else None)
            fcntl.flock(descriptor, fcntl.LOCK_SH)  # in use: hpckit.launch.leftovers removes what nobody locks
    path = broadcast_bytes(comm, path.encode(), 0).decode()
    try:
        if comm.rank and path:
            with suppress(OSError):
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        failed = _largest(comm, int(descriptor < 0))
    finally:
        if comm.rank == 0 and path:
            os.unlink(path)
    if failed:
        if descriptor >= 0:
            os.close(descriptor)
        raise SetupError(
            "the ranks of a node cannot share memory: some of them cannot open the file of the first rank",
            likely="ranks in different containers, or of different users",
            do="start all ranks of a node in one container",
        )
    return descriptor
