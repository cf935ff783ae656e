"""The ranks of the collectives' benchmark: right values are found right, wrong ones are counted, times are there."""

from __future__ import annotations

from mpi4py import MPI

import hpckit as hp
from hpckit.bench.collectives.ranks import Case, candidates, case, operation, time_in_turn
from hpckit.plan.algorithms import ALGORITHMS

NAMES = ["mpi", "ring", "ordered", "flat", "staged", "symmetric", "auto", "auto_symmetric"]

for nbytes in (8, 5000):
    found = case(nbytes, NAMES, 3)
    assert set(found["wrong"].values()) == {0}, found
    assert set(found["times"]) == set(NAMES)
    assert all(len(times) == 3 and min(times) > 0 for times in found["times"].values())

with hp.Mesh(MPI.COMM_WORLD, dp=0) as mesh:
    one = Case(mesh, 5000)
    runs = candidates(one, ["mpi"])
    run, x = runs["mpi"]

    def spoiled():
        run()
        if mesh.rank == 0:
            x[[0, 1100]] += 1

    _, wrong = time_in_turn(one, {"spoiled": (spoiled, x)}, 1)
    assert wrong == {"spoiled": 4}, wrong  # two values, in the first call and in the last

for name in ALGORITHMS:
    if name not in ("all_reduce", "all_to_all"):
        found = operation(name, 600, 1)
        assert set(ALGORITHMS[name]) <= set(found["times"]), found
        assert ("staged" in found["times"]) == (name in ("reduce_scatter", "all_gather", "broadcast"))
hp.print_root("all good")
