"""A program whose rank dies in its fifth step: `dying.py KIND RANK FOLDER`; process ids are left in FOLDER."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpckit.errors import InputError

STEPS, LAST = 1000, 5


def die(kind: str, rank: int) -> None:
    """End this process, each kind in its own way."""
    if kind == "raise":
        raise ValueError(f"a mistake of rank {rank}")
    if kind == "code":
        raise InputError(f"bad on rank {rank}")
    if kind == "exit":
        os._exit(5)
    if kind == "memory":
        raise MemoryError
    if kind == "abort":
        os.abort()
    ctypes.string_at(0)  # a segmentation fault


def main(kind: str, who: int, folder: Path) -> None:
    """Steps with a sum over all ranks."""
    world = MPI.COMM_WORLD
    (folder / f"pid-{world.rank}").write_text(str(os.getpid()), encoding="ascii")
    total = np.zeros(1)
    for step in range(STEPS):
        if step == LAST and world.rank == who:
            die(kind, who)
        world.Allreduce(np.ones(1), total)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
