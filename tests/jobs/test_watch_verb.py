"""`hpckit watch` and the states of runs, from files of runs that were never started."""

from __future__ import annotations

import calendar
import json
import os
import time
from types import SimpleNamespace

import pytest

from hpckit.cli.main import main
from hpckit.cli.verbs import ls
from hpckit.cli.verbs import watch as verb
from hpckit.cli.verbs.ls import GONE, status_with_job
from hpckit.cli.verbs.watch import RunWatch, last_metrics, lines
from hpckit.jobs import slurm
from hpckit.jobs.slurm import JobState
from hpckit.run.context import utc_now
from hpckit.run.directory import RunDirectory
from hpckit.run.metrics import Metrics


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    directory = RunDirectory.create("runs/one")
    directory.write_json("resolved.json", {"app": "weather", "ranks": 4})
    return directory


def progress(run: RunDirectory, fraction: float, eta: float | None = 90.0, status: str = "running") -> None:
    state = {"status": status, "step": 7, "time": fraction, "end": 1.0, "fraction": fraction, "rate": "5 M cells/s"}
    run.write_json("progress.json", {**state, "eta_seconds": eta, "steps_per_second": 2.0, "updated": utc_now()})


def finish(run: RunDirectory) -> None:
    """What a run writes last."""
    progress(run, 1.0, None, "done")
    run.write_json("summary.json", {"status": "done", "exit_code": 0})


def set_clock(monkeypatch, **clock) -> None:
    """Replace functions of `time` for the verb alone."""
    functions = {name: getattr(time, name) for name in ("time", "monotonic", "sleep", "strptime")}
    monkeypatch.setattr(verb, "time", SimpleNamespace(**functions | clock))


@pytest.mark.parametrize(
    ("begun", "files", "job", "status"),
    [
        (False, "running", JobState("PENDING", "Resources"), "queued (Resources)"),
        (True, "stopped", JobState("PENDING", "BeginTime"), "queued again (BeginTime)"),
        (False, "running", JobState("RUNNING"), "starting"),
        (True, "running", JobState("RUNNING"), "running"),
        (True, "stopped", JobState("RUNNING"), "running"),
        (True, "running", JobState("TIMEOUT"), "ended by Slurm (timeout)"),
        (True, "lost?", JobState("NODE_FAIL"), "ended by Slurm (node_fail)"),
        (True, "lost?", GONE, "lost?"),
        (True, "done", JobState("COMPLETED"), "done"),
        (False, "running", JobState("FAILED"), "never started (failed)"),
        (False, "running", GONE, "never started (gone)"),
        (False, "running", None, "submitted"),
        (True, "running", None, "running"),
    ],
)
def test_the_state_of_a_run_in_the_light_of_its_job(run, begun, files, job, status):
    run.write_json("job.json", {"job": "17"})
    if begun:
        progress(run, 0.5)
    assert status_with_job(run, files, job) == status


def test_the_states_of_slurm_are_asked_once_for_all_runs(run, monkeypatch):
    asked = []

    def call(words, folder=None):
        asked.append(words)
        return "17|17|RUNNING|None|n1|2026-11-21T10:00:00|1:02\n18_3|20|PENDING|Priority||N/A|5:00\nnoise\n"

    monkeypatch.setattr(slurm, "_call", call)
    other, task = RunDirectory.create("runs/other"), RunDirectory.create("runs/array/000")
    for directory, job in ((run, "17"), (other, "99"), (task, "18_3")):
        directory.write_json("job.json", {"job": job})
    states = ls.job_states([run, other, task])
    assert len(asked) == 1
    assert states["17"] == JobState("RUNNING", "n1", "2026-11-21T10:00:00", "1:02")
    assert (states["18_3"].state, states["99"]) == ("PENDING", GONE)


def test_the_last_whole_line_of_metrics_is_shown(run):
    assert last_metrics(run) == {}
    metrics = Metrics(run)
    for step in range(300):
        metrics.append({"step": step, "mass": 0.1 * step, "nan": float("nan")})
    with open(run.path / "metrics.jsonl", "a") as file:
        file.write('{"step": 300, "ma')
    assert last_metrics(run)["step"] == 299
    os.replace(run.path / "metrics.jsonl", run.path / "elsewhere")
    os.symlink("elsewhere", run.path / "metrics.jsonl")
    assert last_metrics(run) == {}


def test_the_time_left_has_the_range_of_the_mean_and_the_recent_rate(run, monkeypatch):
    watch = RunWatch(run)
    monkeypatch.setattr("test_watch_verb.utc_now", lambda: "2026-11-22T10:00:00Z")
    written = calendar.timegm((2026, 11, 22, 10, 0, 0))
    set_clock(monkeypatch, monotonic=lambda: 0.0, time=lambda: written + 1.5)
    progress(run, 0.1, eta=100.0)
    assert watch.state(None)["left"] == [98.5] * 3
    set_clock(monkeypatch, monotonic=lambda: 100.0, time=lambda: written + 2.5)
    progress(run, 0.2, eta=400.0)  # 0.1 in the last 100 s: at that rate 800 s are left
    assert watch.state(None)["left"] == [397.5, 397.5, pytest.approx(800)]
    shown = "\n".join(lines({**watch.state(None), "left": [400.0, 400.0, 800.0]}))
    assert "6:40 left (6:40 to 13:20)" in shown
    assert "20.0 %  step 7  5 M cells/s" in shown


def test_ranks_that_stand_still_are_shown(run, capsys, monkeypatch):
    progress(run, 0.5)
    now = time.time()
    set_clock(monkeypatch, time=lambda: now)
    ranks = [{"rank": r, "life": "running", "still": 40.0 * (r == 2), "text": f"rank {r} is asleep"} for r in range(4)]
    for name, written in (("node-00000", now), ("node-00004", now - 500)):
        folder = run.attempt / "watch" / name
        folder.mkdir(parents=True)
        (folder / "ranks.json").write_text(json.dumps({"host": name, "written": written, "ranks": ranks}))
    (run.attempt / "watch" / "torn").mkdir()
    (run.attempt / "watch" / "torn" / "ranks.json").write_text("{")
    main(["watch", "runs/one", "--once"])
    shown = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "node-00000: 3 of 4 ranks go on" in shown
    assert "rank 2 is asleep, unchanged for 40 s" in shown
    assert shown[-1].startswith("no word from node-00004 for 500 s")


def test_watching_ends_with_the_run(run, capsys, monkeypatch):
    progress(run, 0.5)
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        finish(run)

    set_clock(monkeypatch, sleep=sleep)
    assert main(["watch", "runs", "--every", "0.1"]) == 0
    assert pauses == [0.1]
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("one  running  50.0 %")
    assert shown[-1].startswith("one  done  100.0 %")


def test_a_run_that_ends_while_it_is_looked_at_is_told_as_it_ended(run, capsys, monkeypatch):
    progress(run, 0.5)
    status_of = ls.status_of

    def late(directory, job):
        finish(run)
        return status_of(directory, job)

    monkeypatch.setattr(verb, "status_of", late)
    assert main(["watch", "runs/one", "--once"]) == 0
    assert "one  done  100.0 %" in capsys.readouterr().out


def test_a_run_whose_front_end_leaves_while_it_is_looked_at_is_not_lost(run, monkeypatch):
    progress(run, 0.5)

    def gone(provenance):
        finish(run)
        return True

    monkeypatch.setattr(ls, "_front_end_gone", gone)
    assert ls.status_of(run, None) == "done"


@pytest.mark.parametrize(("status", "code"), [("done", 0), ("stopped", 75), ("missed", 1)])
def test_the_exit_code_tells_the_end(run, capsys, status, code):
    progress(run, 0.5)
    run.write_json("summary.json", {"status": status})
    assert main(["watch", "runs/one", "--once", "--json"]) == code
    [state] = json.loads(capsys.readouterr().out)
    assert (state["status"], state["fraction"]) == (status, 0.5)


@pytest.mark.parametrize(
    ("file", "text"),
    [("resolved.json", "[1]"), ("resolved.json", '{"app"'), ("progress.json", '{"fraction": "x"}'), ("job.json", "[]")],
)
def test_one_run_with_foreign_records_hides_no_other(run, capsys, file, text):
    progress(run, 1.0, None, "done")
    run.write_json("summary.json", {"status": "done"})
    odd = RunDirectory.create("runs/odd")
    odd.write_json("resolved.json", {"app": "weather", "ranks": 2})
    odd.write_json("summary.json", {"status": "done"})
    odd.write_text(file, text)
    wrong = file != "job.json"
    assert main(["ls"]) == 0
    listed = capsys.readouterr().out
    assert listed.count("done") == 2 - wrong
    assert listed.count("unreadable") == wrong
    assert main(["watch", "runs"]) == int(wrong)
    assert capsys.readouterr().out.count("unreadable") == wrong
    if wrong:
        assert main(["compare", "runs/one", "runs/odd"]) == 5
        assert "Traceback" not in capsys.readouterr().err


def test_a_folder_without_runs_is_told(tmp_path, capsys):
    assert main(["watch", str(tmp_path)]) == 2
    assert "no runs in" in capsys.readouterr().err
    assert main(["watch", str(tmp_path / "none")]) == 2
