"""What it costs to know where the time goes: the notes behind the phase table and the timeline, as part of a step."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from hpckit.bench.measure import Times, ratio, result
from hpckit.bench.ranks import answer, run_ranks, seconds_a_call

STEPS = 200  # timed together
BEFORE = 10_000  # steps, about 2 s: later on, fewer and fewer exchanges are kept for the table
EDGES = {"": 64, "_96": 96}  # cells a side: a small step, of which notes are a large part, and that of the preset


def run(quick: bool = False) -> dict[str, Any]:
    """Steps of heat3d on 2 ranks, and their notes alone, in turn; fractions of the step, smaller is better."""
    rounds = 10 if quick else 40
    rows = run_ranks("hpckit.bench.overhead.trace", 2, tuple((rounds, edge) for edge in EDGES.values()))
    keys = {}
    for (suffix, edge), row in zip(EDGES.items(), rows, strict=True):
        step = row[f"step of {edge}^3"]
        keys[f"table_cost{suffix}"] = ratio(row["notes of the table"], step)
        keys[f"trace_cost{suffix}"] = ratio(row["notes of the timeline"], step)
    medians = [(name, statistics.median(times)) for row in rows for name, times in row.items()]
    return result("trace", [{"what": name, "us a step": round(1e6 * each, 3)} for name, each in medians], keys)


def _case(rounds: int, edge: int) -> dict[str, Any]:
    """Seconds a step, `rounds` times each, of the slowest rank."""
    from mpi4py import MPI

    from hpckit.comm.mesh import Mesh
    from hpckit.comm.observe.observer import Observer
    from hpckit.comm.observe.timer import PhaseTimer
    from hpckit.comm.observe.waits import Waits
    from hpckit.grid.exchange import HaloExchange
    from hpckit.grid.field import Field
    from hpckit.kernels import stencil
    from hpckit.plan.grid.decomposition import Decomposition

    comm = MPI.COMM_WORLD
    mesh = Mesh(comm, z=0, y=1, x=1, periodic=("z", "y", "x"))
    field = Field.zeros(mesh, Decomposition((edge, edge, edge), mesh.topology, halo=1))
    fields = [field, field.like()]
    halo = HaloExchange(mesh, field)

    def step() -> None:
        halo.start(fields[0])
        stencil.diffuse(fields[1].data, fields[0].data, 1.0, 0.1, (1.0, 1.0, 1.0), field.core)
        halo.finish(fields[0])
        stencil.diffuse(fields[1].data, fields[0].data, 1.0, 0.1, (1.0, 1.0, 1.0), field.rim)
        fields.reverse()

    def notes(traced: int) -> Callable[[], None]:
        """What a step of heat3d notes: four phases, one exchange, its own end."""
        seen = Waits(comm, traced)
        observer = Observer(seen)
        timer, report, clock = PhaseTimer(seen, traced), observer.exchange(comm, "halo", "halo"), time.perf_counter

        def note() -> None:
            begun = clock()
            if observer.on:
                report.begin()
                report.posted()
            sent = clock()
            computed = clock()
            report.wait()
            report.end(waited=1e-6)
            came = clock()
            timer.overlapped(begun, sent, computed, came, clock())
            if timer.traced:
                timer.mark(1)

        return note

    table, timeline = notes(0), notes(100 * STEPS)
    for _ in range(BEFORE):
        table()
    times: Times = {}
    for _ in range(rounds):
        for name, call in (
            (f"step of {edge}^3", step),
            ("notes of the table", table),
            ("notes of the timeline", timeline),
        ):
            # Processor time, waiting for the other rank included: it excludes what other programs take.
            times.setdefault(name, []).append(seconds_a_call(comm, call, STEPS, time.thread_time))
    mesh.close()
    return times


if __name__ == "__main__":
    answer(sys.argv[1:], _case)
