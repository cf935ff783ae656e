"""The ranks of `hpckit bench collectives --operation …`: values are right, and planted wrong ones are found."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

import hpckit as hp
from hpckit.bench.collectives import ranks
from hpckit.bench.collectives.cases import algorithms_of, cases_of
from hpckit.bench.collectives.ranks import CollectiveCase, candidates, measured, time_in_turn
from hpckit.bench.ranks import wait_asleep
from hpckit.plan.collective.algorithms import ALGORITHMS

ranks.SMALL = 0  # one call a round: nothing here looks at times
REDUCING = ("all_reduce", "reduce", "reduce_scatter")
# Every operation by every algorithm but torch's, at odd sizes and of one byte; then the other types, roots and places.
ASKED = [
    (tuple(ALGORITHMS), {"sizes": "12,4999"}),
    (tuple(ALGORITHMS), {"sizes": "3001", "dtype": "int8"}),
    (REDUCING, {"sizes": "700", "dtype": "bfloat16", "reduce": "mean"}),
    (REDUCING, {"sizes": "900", "dtype": "uint8", "reduce": "prod"}),
    (REDUCING, {"sizes": "900", "dtype": "bool", "reduce": "max"}),
    (REDUCING, {"sizes": "1000", "dtype": "float16", "reduce": "min"}),
    (REDUCING, {"sizes": "1000", "dtype": "complex64", "reduce": "mean"}),
    (REDUCING, {"sizes": "1000", "dtype": "complex128", "reduce": "prod"}),
    (("all_gather", "gather", "scatter", "reduce_scatter"), {"sizes": "5000", "dtype": "int16", "place": "in"}),
    (("broadcast", "reduce", "gather", "scatter"), {"sizes": "600", "dtype": "float64", "root": "1"}),
    (("broadcast", "all_to_all", "all_gather"), {"sizes": "600", "dtype": "bool"}),
]


def every_case(comm: MPI.Intracomm) -> int:
    """No wrong value, and nothing missing where every algorithm can do it; how many were measured."""
    count = 0
    for operations, words in ASKED:
        for case in cases_of({**words, "operation": operations, "rounds": "1"}, [comm.size])[comm.size]:
            assert set(case["names"]) == set(algorithms_of(case["operation"]))
            # To start gloo takes seconds, and these ranks are on one node.
            case["names"] = [name for name in case["names"] if name not in ("gloo", "nodes")]
            found = measured(case, comm)
            assert set(found["wrong"].values()) == {0}, found
            assert set(found["times"]) | set(found["left_out"]) == set(case["names"])
            assert set(found["times"]) >= {"auto", *ALGORITHMS[case["operation"]]}, found["left_out"]
            if words.get("dtype") in (None, "int8", "int16", "float64"):
                assert not found["left_out"], (case["operation"], found["left_out"])
            count += len(found["times"])
    return count


def planted(comm: MPI.Intracomm, operation: str) -> None:
    """Two values that are wrong on one rank, and a result that no call wrote: seen both times that results are."""
    given = {"operation": [operation], "sizes": "5000", "dtype": "int16", "rounds": "1"}
    (case,) = cases_of(given, [comm.size])[comm.size]
    with hp.Mesh(comm, dp=0) as mesh:
        one = CollectiveCase(mesh, {**case, "names": ["mpi"]})
        run, call = candidates(one)[0]["mpi"]

        def spoiled() -> None:
            run()
            if mesh.rank == (0 if operation in ("gather", "reduce") else mesh.size - 1):
                call.result[[0, -1]] += 1

        _, wrong = time_in_turn(one, {"spoiled": (spoiled, call)}, 1)
        assert wrong == {"spoiled": 4}, (operation, wrong)
        if call.out is not None:
            _, wrong = time_in_turn(one, {"idle": (int, call)}, 1)
            total = np.array(sum(n for _, _, n in one.values.wanted(mesh.rank, one.count)))
            mesh.comm.Allreduce(MPI.IN_PLACE, total)
            assert wrong == {"idle": 2 * total}, (operation, wrong, total)


world = MPI.COMM_WORLD
pair = world.Split(0 if world.rank < 2 else MPI.UNDEFINED)
total = every_case(pair) if world.rank < 2 else 0
wait_asleep(world)
total += every_case(world)
for name in ALGORITHMS:
    planted(world, name)
if world.rank < 2:
    pair.Free()
hp.print_root(f"all good: {total}")
