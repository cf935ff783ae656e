"""What it costs to watch, a call and a step of apps, and to check: steps computed twice, checksums of messages."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from hpckit.bench.measure import Times, by_round, ratio, result, spread
from hpckit.bench.overhead.steps import CHECKED, COMMON, PRESETS, WAYS
from hpckit.bench.ranks import answer, run_ranks, seconds_a_call, slowest

CALLS = 2000  # timed together
STRETCHES = 10  # of the calls of a record


def run(quick: bool = False) -> dict[str, Any]:
    """On 2 ranks, rounds in turn; seconds are medians, `watch_call_us` is in microseconds a call, smaller is better.

    `watch_cost`: the part of a step that records of calls take, the largest of some presets. `replay_PRESET`: steps
    that one computed twice takes more, with its copies; `messages_PRESET`: a step with checksums over one without.
    """
    row = run_ranks("hpckit.bench.overhead.watch", 2, ((10 if quick else 40,),))[0]
    keys = {
        "watch_call_us": spread([1e6 * s for s in row["call"]]),
        "watch_check_us": spread([1e6 * s for s in row["check"]]),
        "watch_allreduce_time": ratio(row["watched allreduce"], row["allreduce"]),
        "watch_halo_time": ratio(row["watched halo"], row["halo"]),
    }
    steps = _steps(5 if quick else 9, checked=True)
    keys["watch_cost"] = _watch_cost(steps, row["call"])
    for step in steps:
        for way in step["seconds"].keys() - {"plain"}:
            more = 1.0 if way == "replay" else 0.0
            each = by_round(step["seconds"][way], step["seconds"]["plain"])
            keys[f"{way}_{step['preset']}"] = spread([one - more for one in each])
    results = [{"what": name, "us": round(1e6 * statistics.median(times), 3)} for name, times in row.items()]
    results += [
        {
            "what": f"{step['preset']}, a step: {way}",
            "us": round(1e6 * statistics.median(seconds), 1),
            "records": step["records"],
        }
        for step in steps
        for way, seconds in step["seconds"].items()
    ]
    return result("watch", results, keys)


def watch_costs(quick: bool = False) -> dict[str, dict[str, float]]:
    """`watch_call_us` and `watch_cost` alone, of presets whose kernels most machines have compiled."""
    row = run_ranks("hpckit.bench.overhead.watch", 2, ((10,),))[0]
    cost = _watch_cost(_steps(1 if quick else 3, presets=COMMON), row["call"])
    return {"watch_call_us": spread([1e6 * s for s in row["call"]]), "watch_cost": cost}


def _steps(rounds: int, checked: bool = False, presets: Iterable[str] = PRESETS) -> list[dict[str, Any]]:
    """Steps of apps (`hpckit.bench.overhead.steps`), some with checks where these are asked for."""
    cases = [(preset, list(WAYS) if checked and preset in CHECKED else ["plain"], rounds) for preset in presets]
    return run_ranks("hpckit.bench.overhead.steps", 2, tuple(cases))


def _watch_cost(steps: list[dict[str, Any]], calls: list[float]) -> dict[str, float]:
    """The largest part of a step that its records take: their number, by seconds of a call, over seconds of a step."""
    call = statistics.median(calls)
    costs = [spread([step["records"] * call / seconds for seconds in step["seconds"]["plain"]]) for step in steps]
    return max(costs, key=lambda cost: cost["median"])


def _case(rounds: int) -> dict[str, Any]:
    """Seconds a call, `rounds` times each, the slowest of the ranks."""
    from mpi4py import MPI

    from hpckit.comm.mesh import Mesh
    from hpckit.comm.observe.watch import Watch
    from hpckit.grid.exchange import HaloExchange
    from hpckit.grid.field import Field
    from hpckit.plan.grid.decomposition import Decomposition

    comm = MPI.COMM_WORLD
    one, total, dtype = np.ones(1), np.ones(1), np.dtype("f8")
    mesh = Mesh(comm, x=0, y=1, z=1, periodic="x")
    field = Field.zeros(mesh, Decomposition((32 * comm.size, 32, 32), mesh.topology))
    halo = HaloExchange(mesh, field)
    times: Times = {}

    def note(name: str, call: Callable[[], object], calls: int = CALLS) -> None:
        times.setdefault(name, []).append(seconds_a_call(comm, call, calls))

    for _ in range(rounds):
        note("allreduce", lambda: comm.Allreduce(one, total))
        note("halo", lambda: halo(field))
        with Watch(comm) as watch:
            enter, leave = watch.enter, watch.leave

            def record() -> None:
                enter(comm, "all_reduce sum", dtype, 1)  # noqa: B023
                leave()  # noqa: B023

            def watched_allreduce() -> None:
                enter(comm, "all_reduce sum", dtype, 1)  # noqa: B023
                comm.Allreduce(one, total)
                leave()  # noqa: B023

            times.setdefault("call", []).append(_record_seconds(comm, watch))
            note("watched allreduce", watched_allreduce)
            note("watched halo", lambda: halo(field))
        with Watch(comm, check=True) as watch:
            enter, leave = watch.enter, watch.leave
            note("check", record, CALLS // 10)
    mesh.close()
    return times


def _record_seconds(comm: Any, watch: Any) -> float:
    """Processor seconds of `enter` and `leave` on the slowest rank, without a function around them: the least of
    several stretches, since what other programs do to caches and cores is not a cost of the record.
    """
    enter, leave, dtype = watch.enter, watch.leave, np.dtype("f8")
    least = float("inf")
    comm.Barrier()
    for _ in range(STRETCHES):
        begin = time.thread_time()
        for _ in range(CALLS // STRETCHES):
            enter(comm, "all_reduce sum", dtype, 1)
            leave()
        least = min(least, (time.thread_time() - begin) / (CALLS // STRETCHES))
    return slowest(comm, least)


if __name__ == "__main__":
    answer(sys.argv[1:], _case)
