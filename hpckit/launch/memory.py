"""Memory that is there, and runs that cannot fit into it: refused before they begin, by a line."""

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
# Of a cgroup, version 2 and 1: its limit, what is taken of it, and what of that is a cache that can be let go.
CGROUP_FILES = (
    ("memory.max", "memory.current", ("active_file", "inactive_file")),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_active_file", "total_inactive_file")),
)


def available_bytes() -> int:
    """Memory that is free to take here: of the machine, and of the cgroups that this process is in."""
    return max(0, min([_machine_bytes(), *_cgroup_bytes()]))


def _machine_bytes() -> int:
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _cgroup_bytes() -> Iterator[int]:
    """What is left in the cgroup of this process and in those around it, as far as they have limits."""
    try:
        entries = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return
    for _, controllers, path in entries:
        if controllers in ("", "memory"):
            folder = Path(CGROUPS, controllers, path.lstrip("/"))
            yield from filter(None, map(_left, [folder, *folder.parents][: len(Path(path).parts)]))


def _left(folder: Path) -> int | None:
    """What is left in a cgroup; None for one without a limit, or that cannot be seen from here."""
    for limit, taken, caches in CGROUP_FILES:
        try:
            most, now = int((folder / limit).read_text()), int((folder / taken).read_text())
            counts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            return max(1, most - now + sum(int(counts.get(name, 0)) for name in caches))
        except (OSError, ValueError):  # no such file; "max"
            continue
    return None


def address_bytes() -> int | None:
    """What `ulimit -v` leaves to this process; None where it sets no limit."""
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        return None
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        pages = 0
    return max(0, most - pages * os.sysconf("SC_PAGE_SIZE"))


def lacking(each: int, ranks: int) -> str:
    """Why `ranks` ranks that take `each` bytes cannot be together on this machine; '' where they can."""
    free, limit = available_bytes(), address_bytes()
    if each * ranks > free:
        together = f", {bytes_text(each * ranks)} on {counted(ranks, 'rank')}" if ranks > 1 else ""
        return f"the run takes {bytes_text(each)} of memory a rank{together}, and {bytes_text(free)} are free"
    if limit is not None and each > limit:
        return f"the run takes {bytes_text(each)} of memory a rank, and ulimit -v leaves it {bytes_text(limit)}"
    return ""


def require_memory(each: int, ranks: int) -> None:
    """Raise `InputError` where `ranks` ranks that take `each` bytes cannot be together on this machine."""
    if problem := lacking(each, ranks):
        raise _too_large(problem, socket.gethostname())


def require_memory_on_nodes(comm: MPI.Intracomm, each: int) -> None:
    """Collective, before the ranks take their `each` bytes: as `require_memory`, each node by itself.

    Raises `InputError` on every rank alike.
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
        likely="a grid or system that is too large for so few nodes",
        do="make it smaller, or spread it over more nodes; what ranks take: hpckit run … -n RANKS --dry-run",
    )
