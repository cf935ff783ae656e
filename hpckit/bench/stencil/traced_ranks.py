"""What each rank of `hpckit bench adjoint` runs: steps and gradients on all and on one; an ensemble's messages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from mpi4py import MPI

from hpckit.adjoint.ensemble import Ensemble
from hpckit.adjoint.windows.window import Window
from hpckit.bench.ranks import Stopwatch, alone_in_turn, answer, in_calm_rounds
from hpckit.bench.stencil.burgers import energy, step
from hpckit.bench.stencil.traced import MEMBERS, SMALL, STEPS, start
from hpckit.comm.mesh import Mesh
from hpckit.grid.exchange import HaloExchange

EXCHANGES = 50


def case(n: int, rounds: int) -> dict[str, Any]:
    """`times` of each candidate in calm rounds; those alone run on each rank in turn, while the others sleep."""
    comm = MPI.COMM_WORLD
    both = Mesh(comm, y=0, x=1, periodic=("y", "x"), shape=(n, n))
    alone = Mesh(MPI.COMM_SELF, y=1, x=1, periodic=("y", "x"))
    windows = {
        "": (Window(step, STEPS, energy), start(both, n)),
        " alone": (Window(step, STEPS, energy), start(alone, n)),
    }
    candidates: dict[str, Callable[[], object]] = {}
    for where, (window, state) in windows.items():
        candidates[f"steps{where}"] = partial(window.value, *state)
        candidates[f"gradient{where}"] = partial(window.gradient, *state)
    members = Ensemble(both, MEMBERS)
    fields = [start(both, SMALL, seed)[0] for seed in range(MEMBERS)]
    stack = members.stack(fields)
    each, joined = HaloExchange(both, fields[0], bindings=MEMBERS), HaloExchange(members.mesh, stack)

    def one_by_one() -> None:
        for _ in range(EXCHANGES):
            for field in fields:
                each(field)

    def at_once() -> None:
        for _ in range(EXCHANGES):
            joined(stack)

    candidates |= {"messages of each": one_by_one, "one message": at_once}

    def times_of(watch: Stopwatch) -> dict[str, float]:
        return {
            name: alone_in_turn(comm, partial(watch.seconds, call, 1, MPI.COMM_SELF))
            if name.endswith("alone")
            else watch.seconds(call, 1, comm)
            for name, call in candidates.items()
        }

    found = in_calm_rounds(comm, times_of, rounds)
    members.close()
    both.close()
    alone.close()
    return found


if __name__ == "__main__":
    answer(sys.argv[1:], case)
