"""Starting a program that does not outlive this process, however that ends. Standard library only."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

# Asks the kernel for SIGKILL at the end of the parent, looks whether that has ended before it asked, and becomes the
# program. Its words: the parent's process, the program's path, the program's arguments.
CODE = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); "
    "os.getppid() == int(sys.argv[1]) or os._exit(1); os.execv(sys.argv[2], sys.argv[2:])"
)


def with_parent(program: str, arguments: Sequence[str]) -> list[str]:
    """The command line that runs the program at a path with these arguments until it ends, or this process does.

    The thread that starts it counts as this process: it must last. Linux; elsewhere the program alone.
    """
    if sys.platform != "linux":
        return [program, *arguments]
    return [sys.executable, "-ISc", CODE, str(os.getpid()), program, *arguments]
