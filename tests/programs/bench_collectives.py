"""The ranks of the collectives' benchmark: values are right, and times are there."""

from __future__ import annotations

import hpckit as hp
from hpckit.bench.collectives.ranks import all_reduce_case, operation
from hpckit.plan.collective.algorithms import ALGORITHMS

NAMES = ["mpi", "ring", "ordered", "flat", "staged", "symmetric", "auto", "auto_symmetric"]

for nbytes in (8, 5000):
    found = all_reduce_case(nbytes, NAMES, 3)
    assert set(found["wrong"].values()) == {0}, found
    assert set(found["times"]) == set(NAMES)
    assert all(len(times) == 3 and min(times) > 0 for times in found["times"].values())

for name in ALGORITHMS:
    if name not in ("all_reduce", "all_to_all"):
        found = operation(name, 600, 1)
        assert set(ALGORITHMS[name]) <= set(found["times"]), found
        assert ("staged" in found["times"]) == (name in ("reduce_scatter", "all_gather", "broadcast"))
hp.print_root("all good")
