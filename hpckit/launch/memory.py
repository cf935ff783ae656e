"""Available memory, and the refusal of runs that do not fit into it before they begin."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hpckit.errors import InputError
from hpckit.report.units import counted
from hpckit.settings.table import bytes_text

if TYPE_CHECKING:
    from mpi4py import MPI

CGROUPS = Path("/sys/fs/cgroup")
# Of a cgroup, version 2 and 1: its limit, its use, and the part of the use that is reclaimable cache.
CGROUP_FILES = (
    ("memory.max", "memory.current", ("active_file", "inactive_file")),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_active_file", "total_inactive_file")),
)


def available_bytes() -> int:
    """Free memory in bytes: the machine's, within the limits of this process's cgroups."""
    return max(0, min([_machine_bytes(), *_cgroup_bytes()]))


def _machine_bytes() -> int:
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _cgroup_bytes() -> Iterator[int]:
    """Bytes left in this process's cgroup and in those around it, as far as they have limits."""
    try:
        entries = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return
    for _, controllers, path in entries:
        if controllers in ("", "memory"):
            folder = Path(CGROUPS, controllers, path.lstrip("/"))
            yield from filter(None, map(_left, [folder, *folder.parents][: len(Path(path).parts)]))


def _left(folder: Path) -> int | None:
    """Bytes left in a cgroup; None if it has no limit or is not visible."""
    for limit, taken, caches in CGROUP_FILES:
        try:
            most, now = int((folder / limit).read_text()), int((folder / taken).read_text())
            counts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            return max(1, most - now + sum(int(counts.get(name, 0)) for name in caches))
        except (OSError, ValueError):  # no such file; "max"
            continue
    return None


def address_bytes() -> int | None:
    """Bytes that `ulimit -v` leaves to this process; None without a limit."""
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        return None
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        pages = 0
    return max(0, most - pages * os.sysconf("SC_PAGE_SIZE"))


def lacking(each: int, ranks: int) -> str:
    """Why `ranks` ranks of `each` bytes do not fit on this machine; '' if they do."""
    free, limit = available_bytes(), address_bytes()
    if each * ranks > free:
        together = f", {bytes_text(each * ranks)} on {counted(ranks, 'rank')}" if ranks > 1 else ""
        return f"the run takes {bytes_text(each)} of memory a rank{together}, and {bytes_text(free)} are free"
    if limit is not None and each > limit:
        return f"the run takes {bytes_text(each)} of memory a rank, and ulimit -v leaves it {bytes_text(limit)}"
    return ""


def require_memory(each: int, ranks: int) -> None:
    """Raise `InputError` if `ranks` ranks of `each` bytes do not fit on this machine."""
    if problem := lacking(each, ranks):
        raise _too_large(problem, socket.gethostname())


def require_memory_on_nodes(comm: MPI.Intracomm, each: int) -> None:
    """Collective, before each rank allocates its `each` bytes: check the memory of every node.

    Raises `InputError` on every rank.
    """
    from hpckit.comm.agree import gather_json, share_json

    hosts = share_json(comm, gather_json(comm, socket.gethostname()))
    problems = share_json(comm, gather_json(comm, lacking(each, hosts.count(hosts[comm.rank]))))
    for host, problem in zip(hosts, problems, strict=True):
        if problem:
            raise _too_large(problem, host)


def _too_large(problem: str, host: str) -> InputError:
    return InputError(
        problem,
        where=f"host {host}",
        likely="the grid or system is too large for so few nodes",
        do="make it smaller, or use more nodes; memory per rank: hpckit run … -n RANKS --dry-run",
    )
