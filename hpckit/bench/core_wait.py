"""How long a process waited for its core: it tells that other programs disturbed a timing, whatever the time was."""

from __future__ import annotations

import os
from pathlib import Path

CALM = 0.01  # the share of a timing that a rank may wait for its core, before the round counts as disturbed
MOST = 2  # times the rounds that are asked for are made, where some are disturbed


def core_wait() -> float:
    """Seconds that this thread has been ready to run while something else had its core, and that a hypervisor took from
    the cores that it may use; 0 where Linux does not tell.
    """
    try:
        ready = 1e-9 * int(Path("/proc/thread-self/schedstat").read_text(encoding="ascii").split()[1])
        cores = [f"cpu{core}" for core in os.sched_getaffinity(0)]
        lines = [line.split() for line in Path("/proc/stat").read_text(encoding="ascii").splitlines()]
        stolen = sum(int(words[8]) for words in lines if words[0] in cores) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
    return ready + stolen
