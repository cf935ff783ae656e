"""The watch: planted mismatches, late, slow and lost ranks, and the diagnosis of states that are rare."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import by_day, run_limited

from hpckit.cli.ending import end_of_run
from hpckit.comm.observe.diagnosis import DEAD, LEFT, RUNNING, Call, Rank, diagnose, ranks_text
from hpckit.comm.observe.table import HEAD, alarmed, place, read_head, table_of
from hpckit.comm.observe.table import RUNNING as IS_RUNNING
from hpckit.comm.observe.watcher import Options, Watcher
from hpckit.launch.failure import failure_file, stalls_folder
from hpckit.launch.mpiexec import JobEnd
from hpckit.run.directory import RunDirectory

PROGRAM = Path(__file__).parents[1] / "programs" / "watch_ranks.py"


def line_of(function, mark):
    """The line of the program with a mark in a function."""
    lines = PROGRAM.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"def {function}("))
    return next(i for i in range(start, len(lines)) if lines[i].endswith(f"# {mark}")) + 1


def report(folder, name="node-00000/stall.json"):
    return json.loads((folder / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("ranks", by_day([2, 3], 3))
def test_mismatches_raise_on_every_rank_with_both_call_sites(mpirun, tmp_path, ranks):
    mpirun(ranks, "watch_ranks.py", "mismatches", tmp_path, 30)


def test_collectives_are_watched(mpirun, tmp_path):
    mpirun(3, "watch_ranks.py", "collectives", tmp_path, 30)


def test_a_late_rank_is_named_with_its_line_and_those_that_wait_with_theirs(mpirun, tmp_path):
    said = mpirun(3, "watch_ranks.py", "late", tmp_path, 0.5).stderr
    assert "rank 2 has not come to all_reduce sum of 33 float32" in said
    assert "ranks 0-1 wait in all_reduce sum of 33 float32" in said
    assert "the stall is over" in said
    found = report(tmp_path, "right.json")
    assert (found["kind"], found["culprits"], found["waiting"], found["ended"]) == ("late", [2], [0, 1], False)
    assert found["seconds"] > 0.5
    who = found["ranks"]
    assert who[2]["stack"][0] == f"watch_ranks.py:{line_of('late', 'LATE')} (late)"
    assert who[2]["doing"] == "asleep"
    assert not who[2]["last"]["inside"]
    for rank in (0, 1):
        assert who[rank]["last"]["count"] == 33
        assert who[rank]["last"]["inside"]
        assert f"watch_ranks.py:{line_of('late', 'DUE')} (late)" in who[rank]["stack"]


def test_a_rank_that_is_late_among_ghosts_is_named_with_the_operation(mpirun, tmp_path):
    said = mpirun(3, "watch_ranks.py", "ghosts", tmp_path, 0.5).stderr
    for name in ("ghost exchange", "migration"):
        assert f"rank 2 has not come to {name}" in said
        assert report(tmp_path, f"{name}.json")["ranks"][0]["last"]["inside"]


def test_a_rank_that_computes_for_ever_is_named_and_the_job_ended(mpirun, tmp_path):
    outcome = mpirun(2, "watch_ranks.py", "busy", tmp_path, 0.5, check=False)
    assert outcome.code != 0
    assert "rank 0 has not come to all_reduce sum" in outcome.stderr
    assert "the job is ended" in outcome.stderr
    found = report(tmp_path)
    assert "rank 0 is computing" in found["text"]
    assert (found["culprits"], found["ended"]) == ([0], True)
    assert found["ranks"][0]["stack"][0] == f"watch_ranks.py:{line_of('busy', 'LATE')} (busy)"


@pytest.mark.nightly
def test_no_alarm_on_ranks_that_are_slow(mpirun, tmp_path):
    outcome = mpirun(4, "watch_ranks.py", "slow", tmp_path, 5.0)
    assert outcome.stdout.strip() == "false"
    assert "stalled" not in outcome.stderr


@pytest.mark.parametrize("case", ["gone", "crossed"])
def test_what_cannot_end_raises_where_the_watch_checks(mpirun, tmp_path, case):
    mpirun(2, "watch_ranks.py", case, tmp_path, 0.4)
    assert report(tmp_path)["kind"] == {"gone": "left"}.get(case, case)


@pytest.mark.parametrize("words", by_day([[], ["--check"]], ["--check"]))
def test_a_watched_run_from_the_command_line(tmp_path, words):
    """A program that stalls is ended with the report; a run that does not leaves no trace of it."""
    program = tmp_path / "stalls.py"
    program.write_text(
        "import time, numpy as np, hpckit as hp\nfrom hpckit.comm.observe.observer import observer_of\n"
        "comm = hp.world()\n"
        "if comm.rank == 0: time.sleep(60)\n"
        "with observer_of(comm).operation(comm, 'sum', np.dtype('f8'), 1): comm.Barrier()\n"
    )
    command = [sys.executable, "-m", "hpckit.cli.main", "run"]
    asked = ["--watch", "0.4", "--watch-end", "4", *words]
    order = [*asked, "-n", "2", program] if words else [program, "-n", "2", *asked]
    ended = run_limited([*command, *map(str, order)], 60, cwd=tmp_path)
    assert ended.code != 0
    assert "rank 0 has not come to sum of 1 float64" in ended.stderr
    if not words:
        good = ["heat", "-n", "2", "--watch", "100", "--directory", "run", "--no-report", "grid.shape=[16,16]"]
        done = run_limited([*command, *good], 100, cwd=tmp_path)
        assert done.code == 0, done.stderr
        assert "stalled" not in done.stderr
        assert not list((tmp_path / "run").rglob("stall.json"))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "(first if comm.rank else second).Allreduce(MPI.IN_PLACE, x)",
            [
                "rank 0 is in Allreduce of 9 float64 on Dup 2 of world at stalls.py:5",
                "rank 1 is in Allreduce of 9 float64 on Dup 1 of world at stalls.py:5",
            ],
        ),
        pytest.param(
            "comm.Barrier() if comm.rank else comm.Irecv(x, 1, 7).Wait()",
            [
                "rank 0 is in Irecv of 9 float64 with rank 1 on world at stalls.py:5",
                "rank 1 is in Barrier on world at stalls.py:5",
            ],
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            "comm.Barrier() if comm.rank else MPI.Request.Waitall([comm.Isend(x, 1, 7), comm.Irecv(x[1:], 1, 7)])",
            ["rank 0 is in Irecv of 8 float64 with rank 1 on world at stalls.py:5"],
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            "comm.Barrier() if comm.rank else MPI.Request.Waitany([comm.Irecv(x[:n], 1, n) for n in (2, 3)])",
            ["rank 0 is in Waitany of 2 requests with rank 1 on world at stalls.py:5"],
            marks=pytest.mark.nightly,
        ),
        (
            "r = [comm.Isend(x, 1, 7), comm.Irecv(x[1:], 1, 7)]\n"
            "while comm.rank == 0 and not MPI.Request.Testall(r): pass\ncomm.Barrier()",
            ["rank 0 is in Irecv of 8 float64 with rank 1 on world at stalls.py:6"],
        ),
        pytest.param(
            "r = comm.irecv(None, 1)\nwhile comm.rank == 0 and not r.test()[0]: pass\ncomm.Barrier()",
            ["rank 0 is in irecv with rank 1 on world at stalls.py:6", "rank 1 is in Barrier"],
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_communicators_and_requests_of_a_program_are_named(tmp_path, line, told):
    program = tmp_path / "stalls.py"
    program.write_text(
        "import numpy as np\nfrom mpi4py import MPI\nimport hpckit as hp\n"
        f"comm = hp.world(); x = np.ones(9); first, second = comm.Dup(), comm.Dup()\n{line}\n"
    )
    command = [sys.executable, "-m", "hpckit.cli.main", "run", program, "-n", "2", "--watch", "0.4", "--watch-end", "1"]
    ended = run_limited([str(word) for word in command], 60, cwd=tmp_path)
    assert ended.code != 0
    for sentence in told:
        assert sentence in ended.stderr


def test_halo_exchanges_are_watched(mpirun, tmp_path):
    mpirun(3, "watch_ranks.py", "exchange", tmp_path, 0.4)
    found = report(tmp_path, "right.json")
    assert (found["culprits"], found["waiting"]) == ([1], [0, 2])
    due = found["ranks"][0]["last"]
    assert (due["operation"], due["number"], due["dtype"]) == ("halo exchange", 3, "float64")
    assert due["line"] == line_of("exchange", "DUE") + 3
    assert found["ranks"][1]["stack"][0] == f"watch_ranks.py:{line_of('exchange', 'LATE')} (exchange)"


def test_a_run_that_the_watch_ended_says_so_with_exit_code_6(tmp_path, capsys):
    directory = RunDirectory.create(tmp_path / "run")
    folder = stalls_folder(directory) / "node-00000"
    folder.mkdir(parents=True)
    for ended, code in ((False, 7), (True, 6)):
        (folder / "stall.json").write_text(json.dumps({"text": "rank 3 has not come", "ended": ended}))
        assert end_of_run(directory, JobEnd(9), report=False) == code
        assert ("HPK-600 stall: rank 3 has not come" in capsys.readouterr().err) is ended
        (directory.path / failure_file(directory)).unlink()


ALL = (0, 1, 2, 3)


def call(number, inside=True, group="dp", members=ALL, operation="all_reduce", count=4):
    place = {"file": "/a/b.py", "line": 10, "function": "f"}
    return Call(operation, "dp", "float32", count, -1, group, members, number, inside=inside, **place)


def rank(number, last, still=9.0, life=RUNNING, **numbers):
    own = {last.group: last.number} if last else {}
    return Rank(number, 1000 + number, life, last, {**own, **numbers}, still)


def test_diagnosis_follows_chains_to_the_rank_that_is_in_no_operation():
    """0 and 1 wait on dp for 2, which waits on tp for 3, which is in nothing."""
    waits = [rank(r, call(5)) for r in (0, 1)]
    middle = rank(2, call(8, group="tp", members=(2, 3)), dp=4)
    culprit = rank(3, call(4, inside=False), tp=7)
    stall = diagnose([*waits, middle, culprit], 1.0)
    assert (stall.kind, stall.culprits, stall.waiting) == ("late", (3,), (0, 1, 2))
    assert "rank 3 has not come to all_reduce of 4 float32 on dp (number 5)" in stall.text()
    assert not stall.hopeless
    # A culprit that moved is slow; one that is dead or through is named at once, and nothing can come of it.
    assert diagnose([*waits, middle, replace(culprit, still=0.5)], 1.0) is None
    for life in (LEFT, DEAD):
        stall = diagnose([*waits, middle, replace(culprit, still=0.5, life=life)], 1.0)
        assert (stall.kind, stall.culprits) == (life, (3,))
        assert stall.hopeless
    assert diagnose([*waits, replace(middle, still=0.1), replace(culprit, still=0.5)], 1.0) is None
    assert diagnose([replace(it, still=0.5) for it in (*waits, middle, culprit)], 1.0) is None


def test_diagnosis_of_different_operations_circles_and_ends():
    four = [rank(r, call(7, operation="broadcast" if r == 1 else "all_reduce")) for r in ALL]
    stall = diagnose(four, 1.0)
    assert (stall.kind, stall.culprits, stall.hopeless) == ("differ", ALL, True)
    assert "rank 1 is in broadcast of 4 float32 on dp at b.py:10 (f)" in stall.text()
    circle = [
        rank(0, call(3, group="dp", members=(0, 1)), tp=4),
        rank(1, call(5, group="tp", members=(0, 1)), dp=2),
    ]
    assert diagnose(circle, 1.0).kind == "crossed"
    assert diagnose([circle[0], replace(circle[1], still=0.2)], 1.0) is None
    astray = diagnose([*(rank(r, call(7)) for r in (0, 1, 3)), rank(2, call(1, group="copy of dp"), dp=6)], 1.0)
    assert (astray.kind, astray.culprits) == ("crossed", (2,))
    assert "rank 2 is elsewhere than the others" in astray.text()
    assert astray.text().count("rank 2") == 2
    together = [rank(r, call(7)) for r in ALL]
    assert diagnose(together, 1.0).kind == "together"
    assert diagnose([*together[:3], replace(together[3], still=0.1)], 1.0) is None
    assert diagnose([], 1.0) is None
    assert diagnose([rank(0, None)], 1.0) is None
    away = diagnose([rank(r, call(7)) for r in (0, 1)], 1.0)
    assert (away.kind, away.culprits) == ("elsewhere", (2, 3))
    assert "among ranks 2-3, on other nodes" in away.text()


def test_the_alarm_stays_until_every_rank_that_waits_has_raised(tmp_path, monkeypatch, capfd):
    """One that raised and has not left yet is on its way nowhere, and another may be held up before it looks."""
    table = table_of(tmp_path, 2, create=True)
    for slot in range(2):
        HEAD.pack_into(table, place(slot), os.getpid(), IS_RUNNING, slot, 0, 0)
    watcher, shown = Watcher(Options(tmp_path, 2, 1.0, 0.0, None, False)), {}
    monkeypatch.setattr(watcher, "_rank", lambda slot, head, now: shown[slot])

    def look(*ranks):
        shown.update(enumerate(ranks))
        watcher._look([read_head(table, slot) for slot in range(2)], 0.0)
        return alarmed(table), watcher.told and watcher.told.kind

    dp, tp = call(3, group="dp", members=(0, 1)), call(5, group="tp", members=(0, 1))
    first, second = rank(0, dp, tp=4), rank(1, tp, dp=2)
    assert look(first, second) == (True, "crossed")
    raised = replace(first, last=replace(dp, inside=False), still=0.0)
    assert look(raised, second) == (True, "crossed")
    assert look(replace(raised, life=LEFT), second) == (True, "crossed")
    assert "is over" not in capfd.readouterr().err
    assert look(raised, replace(second, last=replace(tp, inside=False), still=0.0)) == (False, None)
    assert "the stall is over" in capfd.readouterr().err


LATE_ANSWER = """import faulthandler, signal, sys, time
file = open(sys.argv[1], "w")
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
faulthandler.register(signal.SIGUSR2, file, all_threads=False)
print("ready", flush=True)
while signal.SIGUSR2 not in signal.sigpending():
    time.sleep(0.01)
time.sleep(1)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR2])
sys.stdin.read()
"""


def test_a_rank_that_gets_no_core_for_a_second_is_told_with_its_stack(tmp_path):
    program = tmp_path / "late.py"
    program.write_text(LATE_ANSWER)
    command = [sys.executable, program, tmp_path / "stack-0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        table = table_of(tmp_path, 1, create=True)
        HEAD.pack_into(table, place(0), process.pid, IS_RUNNING, 0, 0, 0)
        watcher = Watcher(Options(tmp_path, 1, 1.0, 0.0, None, False))
        found = watcher._with_stacks({0: replace(rank(0, None), pid=process.pid)})
        process.stdin.close()
    assert found[0].stack[-1:] == ("late.py:9 (<module>)",)


def test_a_rank_whose_process_is_stopped_inside_an_operation_is_the_culprit():
    """Its neighbors came to the exchange as it did, and all of them wait."""
    four = [rank(r, call(7, operation="halo exchange", count=-1)) for r in ALL]
    frozen = replace(four[2], doing="stopped")
    stall = diagnose([*four[:2], frozen, four[3]], 1.0)
    assert (stall.kind, stall.culprits, stall.waiting) == ("stopped", (2,), (0, 1, 3))
    assert stall.text().splitlines()[:2] == [
        "stalled for 9 s: the process of rank 2 is stopped, by a signal or a debugger",
        "  rank 2 is stopped in halo exchange on dp at b.py:10 (f)",
    ]
    assert not stall.hopeless
    assert diagnose([*four[:2], replace(frozen, still=0.2), four[3]], 1.0) is None


def test_ranks_in_words():
    assert ranks_text([3]) == "rank 3"
    assert ranks_text([5, 0, 2, 3, 4]) == "ranks 0, 2-5"
