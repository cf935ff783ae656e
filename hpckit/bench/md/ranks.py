"""What each rank of `hpckit bench md` runs: the melt on all ranks, on every rank alone, and a part on each, in turn."""

from __future__ import annotations

import sys
from typing import Any

from mpi4py import MPI

from hpckit.bench.md.case import Melt
from hpckit.bench.ranks import alone_in_turn, answer, slowest


def case(cells: int, rounds: int) -> dict[str, Any]:
    """Seconds of the loop on all ranks, on every rank alone in turn (the mean), and of a share of the particles on each
    rank by itself (the slowest counts); and the energy at the end of the first two.
    """
    comm = MPI.COMM_WORLD
    together = Melt(cells, comm)
    share = Melt((cells // comm.size, cells, cells))
    alone = Melt(cells)
    times: dict[str, list[float]] = {"together": [], "alone": [], "halves": []}
    totals = [0.0, 0.0]

    def run_alone() -> float:
        seconds, last = alone.run()
        totals[1] = last.total
        return seconds

    for _ in range(rounds):
        seconds, last = together.run()
        times["together"].append(seconds)
        totals[0] = last.total
        comm.Barrier()
        times["halves"].append(slowest(comm, share.run()[0]))
        times["alone"].append(alone_in_turn(comm, run_alone))
    return {"cells": cells, "times": times, "totals": totals}


if __name__ == "__main__":
    answer(sys.argv[1:], case)
