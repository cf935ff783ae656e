"""`hpckit watch` and the states of runs, from files of runs that were never started."""

from __future__ import annotations

import json
import os
import threading
import time

import pytest

from hpckit.cli import run_jobs
from hpckit.cli.main import main
from hpckit.cli.run_jobs import GONE, status_with_job
from hpckit.cli.watch import RunWatch, last_metrics, lines
from hpckit.jobs import slurm
from hpckit.jobs.slurm import JobState
from hpckit.run_context import utc_now
from hpckit.run_directory import RunDirectory


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    directory = RunDirectory.create("runs/one")
    directory.write_json("resolved.json", {"app": "weather", "ranks": 4})
    return directory


def progress(run: RunDirectory, fraction: float, eta: float | None = 90.0, status: str = "running") -> None:
    state = {"status": status, "step": 7, "time": fraction, "end": 1.0, "fraction": fraction, "rate": "5 M cells/s"}
    run.write_json("progress.json", {**state, "eta_seconds": eta, "steps_per_second": 2.0, "updated": utc_now()})


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
    states = run_jobs.job_states([run, other, task])
    assert len(asked) == 1
    assert states["17"] == JobState("RUNNING", "n1", "2026-11-21T10:00:00", "1:02")
    assert (states["18_3"].state, states["99"]) == ("PENDING", GONE)


def test_the_last_whole_line_of_metrics_is_shown(run):
    assert last_metrics(run) == {}
    for step in range(300):
        run.append_metrics({"step": step, "mass": 0.1 * step, "nan": float("nan")})
    with open(run.path / "metrics.jsonl", "a") as file:
        file.write('{"step": 300, "ma')
    assert last_metrics(run)["step"] == 299
    os.replace(run.path / "metrics.jsonl", run.path / "elsewhere")
    os.symlink("elsewhere", run.path / "metrics.jsonl")
    assert last_metrics(run) == {}


def test_the_time_left_has_the_range_of_the_mean_and_the_recent_rate(run, monkeypatch):
    watch = RunWatch(run)
    clock = iter([0.0, 100.0])
    monkeypatch.setattr("hpckit.cli.watch.time.monotonic", lambda: next(clock))
    progress(run, 0.1, eta=100.0)
    first = watch.state(None)["left"]
    assert first[1] == first[2] == pytest.approx(100, abs=2)
    progress(run, 0.2, eta=400.0)  # 0.1 in the last 100 s: at that rate 800 s are left
    own, least, most = watch.state(None)["left"]
    assert (own, least) == (pytest.approx(400, abs=2), pytest.approx(400, abs=2))
    assert most == pytest.approx(800)
    monkeypatch.undo()
    shown = "\n".join(lines({**watch.state(None), "left": [400.0, 400.0, 800.0]}))
    assert "6:40 left (6:40 to 13:20)" in shown
    assert "20.0 %  step 7  5 M cells/s" in shown


def test_ranks_that_stand_still_are_shown(run, capsys):
    progress(run, 0.5)
    ranks = [{"rank": r, "life": "running", "still": 40.0 * (r == 2), "text": f"rank {r} is asleep"} for r in range(4)]
    for name, written in (("node-00000", time.time()), ("node-00004", time.time() - 500)):
        folder = run.attempt / "watch" / name
        folder.mkdir(parents=True)
        (folder / "ranks.json").write_text(json.dumps({"host": name, "written": written, "ranks": ranks}))
    (run.attempt / "watch" / "torn").mkdir()
    (run.attempt / "watch" / "torn" / "ranks.json").write_text("{")
    main(["watch", "runs/one", "--once"])
    shown = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "node-00000: 3 of 4 ranks go on" in shown
    assert "rank 2 is asleep, unchanged for 40 s" in shown
    assert shown[-1].startswith("no word from node-00004 for 50")


def test_watching_ends_with_the_run(run, capsys):
    progress(run, 0.5)

    def finish():
        time.sleep(0.5)
        progress(run, 1.0, None, "done")
        run.write_json("summary.json", {"status": "done", "exit_code": 0})

    thread = threading.Thread(target=finish)
    thread.start()
    assert main(["watch", "runs", "--every", "0.1"]) == 0
    thread.join()
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("one  running  50.0 %")
    assert shown[-1].startswith("one  done  100.0 %")


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
