"""What ranks wait for, and the timeline: by made-up clocks, and on ranks of which one is always late."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import mpi_command, mpiexec, run_limited
from traces import arrows, check_trace

from hpckit.comm.observe.timer import PhaseTimer
from hpckit.comm.observe.waits import Channel, Log, split
from hpckit.report.numbers import waits
from hpckit.report.sections.sections import waits_text
from hpckit.report.sections.trace import trace_section
from hpckit.run.trace import merge, text

RANKS = 3


def log(samples: list[tuple[float, ...]], peers: tuple[int, ...], seconds: float | None = None, stride: int = 1) -> Log:
    rows = np.array(samples, dtype=float).reshape(-1, 5)
    return Log("halo 1", peers, stride * len(rows), stride, rows[:, 4].sum() if seconds is None else seconds, rows)


def test_a_wait_splits_at_the_moment_the_last_peer_came():
    # Rank 0 waits from 1 to 4; its peers had sent at 2 (rank 1) and at 3 (rank 2): 2 s late by rank 2, 1 s transfer.
    ranks = [
        [log([(0.0, 0.5, 1.0, 4.0, 3.0)], (1, 2))],
        [log([(1.5, 2.0, 5.0, 5.0, 0.0)], (0,))],
        [log([(2.5, 3.0, 5.0, 5.5, 0.5)], (0,))],
    ]
    found = split(ranks)
    assert found["seconds"] == [3.0, 0.0, 0.5]
    assert found["late"] == [2.0, 0.0, 0.0]
    assert found["transfer"] == [1.0, 0.0, 0.5]
    assert found["waited_for"] == [0.0, 0.0, 2.0]
    shown = waits({"waits": found})
    assert shown["worst"] == 2
    assert "Most waited for: rank 2, which cost the others 2 s" in waits_text(shown)


def test_samples_stand_for_all_calls():
    ranks = [[log([(0, 0, 1, 2, 1.0)], (1,), seconds=8.0, stride=4)], [log([(0, 1.75, 3, 3, 0.0)], (0,), stride=4)]]
    found = split(ranks)
    assert found["seconds"] == [8.0, 0.0]
    assert found["late"][0] == pytest.approx(6.0)


def test_nobody_waits_alone():
    assert split([[]]) is None
    assert waits_text(waits({})) == ""


@pytest.mark.parametrize("calls", [1, 7, 8, 9, 100, 1000])
def test_a_channel_thins_by_number(calls):
    channel = Channel("halo 1", [0, 1], most=8, thin=True)
    for number in range(calls):
        channel.add(number, number, number, number, 0.5)
    kept = [sample[0] for sample in channel.samples]
    assert kept == list(range(0, calls, channel.stride))
    assert len(kept) <= 8
    assert channel.calls == calls
    assert channel.seconds == calls / 2
    first = Channel("halo 1", [0, 1], most=8, thin=False)
    for number in range(calls):
        first.add(number, number, number, number, 0.5)
    assert [sample[0] for sample in first.samples] == list(range(min(8, calls)))
    for thin, whole in ((True, channel), (False, first)):  # calls that are not due are only counted
        spared, clocks = Channel("halo 1", [0, 1], most=8, thin=thin), 0
        for number in range(calls):
            if spared.calls >= spared.due:
                spared.add(number, number, number, number, 0.5)
                clocks += 1
            else:
                spared.calls += 1
                spared.seconds += 0.5
        assert (spared.samples, spared.calls, spared.seconds) == (whole.samples, whole.calls, whole.seconds)
        assert clocks <= 8 + 4 * max(1, calls // 8).bit_length()


def test_a_timer_keeps_so_many_spans():
    timer = PhaseTimer(traced=3)
    for step in range(5):
        with timer("core"):
            pass
        timer.mark(step)
    assert len(timer.spans) == len(timer.steps) == 3
    assert timer.seconds["core"] >= sum(end - begin for _, begin, end in timer.spans)
    timer.reset()
    assert not timer.spans


@pytest.mark.parametrize("traced", [0, 3])
def test_laps_are_phases_in_a_row(traced, monkeypatch):
    monkeypatch.setattr("hpckit.comm.observe.timer.perf_counter", iter((1.0, 1.5, 3.5, 4.0, 10.0, 10.25)).__next__)
    timer = PhaseTimer(traced=traced)
    timer.begin()
    for name in ("halo", "core", "halo"):
        timer.lap(name)
    timer.begin()  # what was between is nobody's
    timer.lap("core")
    assert list(timer.seconds.items()) == [("halo", 1.0), ("core", 2.25)]
    assert timer.spans == [("halo", 1.0, 1.5), ("core", 1.5, 3.5), ("halo", 3.5, 4.0)][:traced]
    timer.reset()
    assert not timer.seconds


@pytest.mark.parametrize("traced", [0, 6])
def test_a_step_that_overlaps_is_noted_at_once(traced):
    timer = PhaseTimer(traced=traced)
    with timer("output"):
        pass
    spent = timer.seconds["output"]
    first = len(timer.spans)
    timer.overlapped(1.0, 1.5, 3.5, 4.0, 10.0)
    timer.overlapped(11.0, 11.25, 12.0, 12.0, 12.0)  # nothing to wait for, and no rim
    assert dict(timer.seconds) == {"output": spent, "halo": 1.25, "core": 2.75, "rim": 6.0}
    timer.seconds["halo"] -= 0.25  # what an app takes out of it stays out
    assert timer.seconds["halo"] == 1.0
    names = [("halo", 1.0, 1.5), ("core", 1.5, 3.5), ("halo", 3.5, 4.0), ("rim", 4.0, 10.0), ("halo", 11.0, 11.25)]
    assert timer.spans[first:] == ([*names, ("core", 11.25, 12.0)] if traced else [])
    timer.overlapped(1.0, 1.5, 3.5, 4.0, 10.0)
    timer.reset()
    assert not timer.seconds


def test_spans_nest_and_messages_go_forward():
    spans = {
        "names": ["core", "halo"],
        "spans": [[1, 0.0, 1e-4], [0, 1e-4, 2e-4], [1, 2e-4, 4e-4]],
        "actions": [[0, 1.1e-4, 1.9e-4]],
        "steps": [[1, 4e-4]],
    }
    logs = [[log([(1e-5, 5e-5, 2.5e-4, 4e-4, 1e-4)], (1 - rank,))] for rank in (0, 1)]
    made = json.loads(text(merge([spans, spans], logs, "made up")))
    check_trace(made, 2)
    assert made["otherData"] == {"title": "made up", "ranks": 2}


def test_the_report_draws_a_timeline_with_actions_of_pipelines(tmp_path):
    spans = {
        "names": ["compute", "0F0", "0B0"],
        "spans": [[0, 0.0, 4e-4]],
        "actions": [[1, 1e-4, 2e-4], [2, 2e-4, 3e-4]],
        "steps": [[1, 4e-4]],
    }
    made = merge([spans], [[]], "made up")
    assert {"0F0", "0B0"} < {event["name"] for event in made["traceEvents"]}
    (tmp_path / "trace.json").write_text(text(made))
    assert trace_section(tmp_path).count("<svg") == 1


def test_a_collective_has_arrows_from_the_last_that_came():
    """In the first call rank 2 comes last, in the second rank 0."""
    calls = [
        [(0.0, 0.1, 0.1, 3.0, 2.9), (5.0, 5.5, 5.5, 5.6, 0.1)],
        [(0.0, 0.2, 0.2, 3.1, 2.9), (4.0, 4.1, 4.1, 5.7, 1.6)],
        [(2.0, 2.5, 2.5, 3.2, 0.7), (4.0, 4.2, 4.2, 5.8, 1.6)],
    ]
    logs = [[dataclasses.replace(log(rows, tuple({0, 1, 2} - {r})), together=True)] for r, rows in enumerate(calls)]
    nothing = {"names": [], "spans": [], "actions": [], "steps": []}
    made = merge([nothing] * 3, logs, "made up")
    check_trace(made, 3)
    assert sorted(arrows(made, "halo 1")) == [(0, 1), (0, 2), (2, 0), (2, 1)]
    assert split(logs)["waited_for"] == pytest.approx([1.4 + 1.3, 0.0, 2.4 + 2.3])


def test_calls_are_numbered_in_the_order_in_which_they_begin():
    channel = Channel("all_reduce 1", [0, 1], most=4, thin=True)
    rows = [channel.open(begun, begun + 0.5) for begun in range(8)]
    for number in reversed(range(8)):
        channel.close(rows[number], 10.0 + number, 10.5 + number)
    assert (channel.calls, channel.stride, channel.seconds) == (8, 2, 4.0)
    assert channel.samples == [[n, n + 0.5, 10.0 + n, 10.5 + n, 0.5] for n in (0.0, 2.0, 4.0, 6.0)]


LATE_RANK = """
import time
import hpckit as hp
from hpckit.run.context import Run
from mpi4py import MPI

comm = MPI.COMM_WORLD
with hp.Mesh(comm, x=0, y=1, periodic="x") as mesh:
    field = hp.Field.zeros(mesh, hp.Decomposition((24, 5), mesh.topology, halo=1))
    hp.HaloExchange(mesh, field)(field)  # loads what is compiled, which takes each rank as long as it takes
    run = Run(comm, {directory!r}, app="late", traced=True)
    halo = hp.HaloExchange(mesh, field)
    for step in range(1, 16):
        with run.timer("core"):
            if comm.rank == 1:
                comm.Barrier()  # the others have sent their messages: rank 1 is the last, however busy this machine is
                time.sleep(0.06)
        with run.timer("halo"):
            halo.start(field)
            if comm.rank != 1:
                comm.Barrier()
            halo.finish(field)
        if step % 5 == 0:  # told of twice, marked once
            run.progress(step, step, 15)
        if step < 15:
            run.edge(step, dict)
run.finish({{}})
"""
MESSAGES = """
import time
import numpy as np
import hpckit as hp
from hpckit.training.messages import Messages
from hpckit.run.context import Run
from mpi4py import MPI

comm = MPI.COMM_WORLD
run = Run(comm, {directory!r}, app="messages", traced=True)
with hp.Mesh(comm, x=0, y=1, periodic="x") as mesh:
    works = [hp.all_reduce(np.ones(n), mesh["x"]) for n in (5, 7000)]
    for work in works if comm.rank else works[::-1]:
        work.wait()
    for root in range(3):
        hp.broadcast(np.ones(9), mesh, root).wait()
    for turn in range(2):
        hp.training.gossip(np.ones(9), mesh, "exponential", turn).wait()
messages = Messages(comm)
if comm.rank == 0:
    for value in range(4):
        time.sleep(0.02)
        messages.send(1, np.full(3, value))
    messages.finish()
elif comm.rank == 1:
    posted = [messages.post(0, (3,), np.dtype(int)) for _ in range(4)]
    for number in (3, 0, 2, 1):
        assert (messages.wait(posted[number], "test") == number).all()
run.finish({{}})
"""


def run_directory(program: str, directory: Path) -> Path:
    """Where a program left its run, that was run on all ranks."""
    file = directory / "program.py"
    file.write_text(program.format(directory=str(directory / "run")))
    words = mpi_command(RANKS, sys.executable, "-m", "mpi4py", file)
    done = run_limited(words, 120, env=dict(os.environ))
    assert done.code == 0, done.stderr
    return directory / "run"


@pytest.mark.skipif(mpiexec() is None, reason="no mpiexec: install the extra `mpi`")
def test_the_late_rank_of_a_run_is_named(tmp_path):
    run = run_directory(LATE_RANK, tmp_path)
    found = json.loads((run / "summary.json").read_text())
    assert waits(found)["worst"] == 1
    assert found["waits"]["late"][0] > 0.06
    assert found["waits"]["late"][2] > 0.06
    trace = json.loads((run / "trace.json").read_text())
    check_trace(trace, RANKS)
    assert sum(event["ph"] == "i" for event in trace["traceEvents"]) == 15
    assert trace_section(run).count("<svg") == 1


@pytest.mark.skipif(mpiexec() is None, reason="no mpiexec: install the extra `mpi`")
def test_arrows_of_collectives_and_messages(tmp_path):
    trace = json.loads((run_directory(MESSAGES, tmp_path) / "trace.json").read_text())
    check_trace(trace, RANKS)
    # Of a collective its last rank holds up the others; of a broadcast its root holds up all others.
    assert len(list(arrows(trace, "all_reduce"))) == 2 * (RANKS - 1)
    assert sorted(arrows(trace, "broadcast")) == [(a, b) for a in range(3) for b in range(3) if a != b]
    assert sorted(arrows(trace, "gossip")) == [(a, b) for a in range(3) for b in range(3) if a != b]
    assert list(arrows(trace, "pipeline 0 to 1")) == [(0, 1)] * 4
    # The messages were waited for in another order than sent: each arrow begins with its own send, 20 ms apart.
    moments = [event["ts"] for event in trace["traceEvents"] if event["ph"] == "s" and "pipeline" in event["name"]]
    ends = [event["ts"] for event in trace["traceEvents"] if event["ph"] == "f" and "pipeline" in event["name"]]
    assert min(np.diff(moments)) > 15e3
    assert ends[3] == min(ends)
    assert ends[1] == max(ends)
