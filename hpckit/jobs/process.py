"""The cores of this process, and programs that do not outlive it, however it ends. Standard library only."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

# Asks the kernel for a signal at the parent's end, exits if the parent has already ended, and becomes the program. Its
# arguments: the signal, the parent's process, the program's path, the program's arguments.
CODE = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, int(sys.argv[1])); "
    "os.getppid() == int(sys.argv[2]) or os._exit(1); os.execv(sys.argv[3], sys.argv[3:])"
)


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def with_parent(program: str, arguments: Sequence[str], end: signal.Signals = signal.SIGKILL) -> list[str]:
    """The command line that runs the program at a path with these arguments until it ends, or this process does.

    end: the signal that the program then gets; SIGTERM for one that must end others first. The starting thread counts
    as the parent: it must stay alive. Linux only; elsewhere the program alone.
    """
    if sys.platform != "linux":
        return [program, *arguments]
    return [sys.executable, "-ISc", CODE, str(int(end)), str(os.getpid()), program, *arguments]
