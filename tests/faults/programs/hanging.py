"""A program of steps that hangs where it is told to: `hanging.py KIND RANK STEP`. Its lines are what a watch must name.

Each step computes, passes on to the next rank, sums over all, broadcasts and meets. The kinds: `mismatch` (another
operation), `missing` (one left out), `root` (another root), `communicator` (the right call on another one), `loop`,
`sleep`, `compiled` (endless in compiled code), `exit` (the program ends early), `send` (all send before they receive),
`swallowed` (an exception that is caught leaves a call out).
"""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.comm.observe.observer import observer_of
from hpckit.comm.observe.watch import Watch

STEPS = 60
LARGE = 1 << 17  # elements: a message that no library buffers


def endless(values: np.ndarray, wanted: int) -> int:
    """Count up to a number, which may never come."""
    count = 0
    while count != wanted:
        count += 1 if values[0] > 0 else 0
    return count


def main(kind: str, who: int, when: int) -> None:
    """Do the steps; rank `who` does wrong in step `when`."""
    world = MPI.COMM_WORLD
    other = world.Dup()
    right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    mine, given, total = np.ones(8), np.zeros(8), np.zeros(8)
    count: Any = endless
    if kind == "compiled":
        watch = observer_of(world).listening(Watch)
        with watch.allow(600.0) if watch else nullcontext():
            from numba import njit

            count = njit(endless)
            count(mine, 10)
    world.Barrier()
    for step in range(STEPS):
        wrong = world.rank == who and step == when
        if wrong and kind == "loop":
            count(-mine, 10)  # LOOP
        if wrong and kind == "sleep":
            time.sleep(1000)  # SLEEP
        if wrong and kind == "compiled":
            count(-mine, 10)  # COMPILED
        if wrong and kind == "exit":
            return
        if kind == "send" and step == when:
            world.Send(np.ones(LARGE), right)  # SEND
            world.Recv(np.ones(LARGE), left)
        try:
            if wrong and kind == "swallowed":
                raise ValueError("a mistake that is passed over")
            world.Sendrecv(mine, right, 0, given, left)  # HALO
            if wrong and kind == "mismatch":
                world.Reduce(mine, total)  # REDUCE
            elif not (wrong and kind == "missing"):
                (other if wrong and kind == "communicator" else world).Allreduce(mine, total)  # SUM
        except ValueError:
            pass
        world.Bcast(mine, who if wrong and kind == "root" else (who + 1) % world.size)  # BCAST
        world.Barrier()  # END


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
