"""Runs that are stopped and go on: the same files as of a run that never was, on other numbers of ranks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest
from cli_command import HPCKIT, SITE, clean_environment, hpckit
from conftest import wait_until

from hpckit.cli.main import main
from hpckit.cli.verbs import ckpt
from hpckit.cli.verbs.resume import _changed
from hpckit.errors import InUseError
from hpckit.io.checkpoint.manifest import committed, generations
from hpckit.io.settings import seconds_of
from hpckit.launch.lock import locked
from hpckit.run.directory import RunDirectory
from hpckit.settings.config import load

SETTINGS = (
    "grid.shape=[23,17]",
    "time.steps=1200",
    "time.monitor=10",
    "output.frames=7",
    "output.single=false",
    "--no-report",
)


def fields(run: Path) -> tuple[np.ndarray, np.ndarray]:
    with h5py.File(run / "output/fields.h5") as file:
        return file["time"][...], file["temperature"][...]


# A run does not begin the checkpoint after the one whose number is in a file, as long as that file is there.
GATE = """
import os, re, sys, time

def wait(event, words):
    found = event == "os.mkdir" and re.search(r"/ckpt/g([0-9]+)$", os.fspath(words[0]))
    while found and int(found[1]) > last():
        time.sleep(0.01)

def last():
    try:
        with open({gate!r}) as file:
            return int(file.read())
    except FileNotFoundError:
        return 10**9

sys.addaudithook(wait)
"""


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """The file; `background` starts what minds it."""
    (tmp_path / "hook").mkdir()
    file = tmp_path / "gate"
    (tmp_path / "hook/sitecustomize.py").write_text(GATE.format(gate=str(file)))
    return file


def background(*words: str, cwd: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [*HPCKIT, *words],
        cwd=cwd,
        env=clean_environment(PYTHONPATH=f"{cwd / 'hook'}:{SITE}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_run_that_is_stopped_and_killed_ends_as_if_it_never_was(tmp_path: Path, gate: Path, capsys) -> None:
    """A signal on 2 ranks, a kill on 3, a damaged checkpoint, then the rest on 1: every bit of the files."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    outcome = hpckit("run", "heat", *SETTINGS, "--directory", whole, "checkpoint.every=never", cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    assert not (whole / "ckpt").exists()

    words = ("run", "heat", *SETTINGS, "-n", "2", "--directory", str(broken), "checkpoint.every=60")
    gate.write_text("3")
    process = background(*words, cwd=tmp_path)
    wait_until((broken / "ckpt/g000003/COMMIT").exists, "no checkpoints")
    os.kill(process.pid, signal.SIGUSR1)
    wait_until((broken / "stop").exists, "the signal was not heard")
    gate.unlink()
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 75, stderr
    assert "to go on: hpckit resume" in stdout
    assert json.loads((broken / "summary.json").read_text())["status"] == "stopped"

    newest = int((broken / "ckpt/LATEST").read_text()[1:])
    gate.write_text(str(newest + 2))
    process = background("resume", str(broken), "-n", "3", "--no-report", cwd=tmp_path)
    last_two = [newest + 1, newest + 2]
    wait_until(lambda: generations(broken / "ckpt") == last_two, "no two checkpoints after it was resumed")
    second = hpckit("resume", broken, cwd=tmp_path)
    assert second.code == 3
    assert f"in use by `hpckit resume`, process {process.pid} on" in second.stderr
    ranks = json.loads((broken / "provenance.json").read_text())["placement"]
    os.kill(ranks[2]["pid"], signal.SIGKILL)
    process.communicate(timeout=300)
    assert process.returncode == 7
    assert committed(broken / "ckpt") == last_two

    assert ckpt.main(["ls", str(broken)]) == 0
    assert capsys.readouterr().out.count("complete") == 2  # the oldest was removed before the kill
    newest = max(path for path in (broken / "ckpt").iterdir() if (path / "COMMIT").exists())
    assert ckpt.main(["verify", str(broken)]) == 0
    shard = newest / "shard-00001.h5"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    assert ckpt.main(["verify", str(broken), newest.name]) == 5
    assert f"{newest.name}: shard-00001.h5" in capsys.readouterr().err

    outcome = hpckit("resume", broken, "-n", 1, "--no-report", cwd=tmp_path)
    assert outcome.code == 0, outcome.stderr
    assert f"not used: {newest.name}: shard-00001.h5" in outcome.stdout
    assert "resumed from g0" in outcome.stdout
    for ours, theirs in zip(fields(broken), fields(whole), strict=True):
        assert np.array_equal(ours, theirs)
    assert (broken / "metrics.jsonl").read_text() == (whole / "metrics.jsonl").read_text()
    ours, theirs = (json.loads((run / "summary.json").read_text()) for run in (broken, whole))
    assert ours["conserved"] == theirs["conserved"]
    assert (ours["status"], ours["attempt"], ours["ranks"], ours["steps"]) == ("done", 2, 1, 1200)
    assert hpckit("resume", broken, cwd=tmp_path).stdout.startswith("the run is done already")
    assert ckpt.main(["prune", str(broken)]) == 0
    assert len([path for path in (broken / "ckpt").iterdir() if path.is_dir()]) == 1


def test_the_elapsed_time_limit_ends_a_run_that_then_starts_over_without_a_checkpoint(tmp_path: Path) -> None:
    words = ("run", "heat", *SETTINGS, "time.steps=1000000", "time.limit=1 s", "--directory", "run")
    outcome = hpckit(*words, cwd=tmp_path)
    assert outcome.code == 75, outcome.stderr
    step = json.loads((tmp_path / "run/summary.json").read_text())["steps"]
    assert 0 < step < 1000000
    shutil.rmtree(tmp_path / "run/ckpt")
    outcome = hpckit("resume", "run", "--no-report", cwd=tmp_path, under=2)
    assert outcome.code == 75, outcome.stderr
    assert "no checkpoint yet: from the start" in outcome.stdout
    assert (tmp_path / "run/ckpt/g000001/shard-00001.h5").exists()
    times = [json.loads(line)["time"] for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert times == sorted(set(times))


def test_what_cannot_be_resumed_is_told(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "run/ckpt").mkdir(parents=True)
    for words, message in (
        (["resume", "empty"], "is not a run of an app"),
        (["resume", "nothing"], "no run directory"),
        (["resume"], "the following arguments are required: DIR\n"),
        (["ckpt", "ls", "empty"], "is not a run"),
        (["ckpt", "verify", "empty"], "is not a run"),
        (["ckpt", "prune", "empty"], "is not a run"),
        (["ckpt", "verify", "run"], "no checkpoint in"),
        (["ckpt", "verify", "run", "g000003"], "no g000003 in"),
        (["ckpt", "prune", "run", "--keep", "0"], "at least one generation stays"),
        (["run", "heat", "checkpoint.every=10 mni", "checkpoint.keep=0", 'time.limit="x"'], "3 mistakes"),
    ):
        assert main(words) == 2
        assert message in capsys.readouterr().err
    assert not any((tmp_path / "empty").iterdir())


def test_only_settings_that_leave_the_results_may_change(tmp_path: Path, capsys) -> None:
    directory = RunDirectory.create(tmp_path / "run")
    configuration = load("heat", [])
    record = {"app": "diffusion", "package": "", "ranks": 2, "values": configuration.values(), "origins": {}}
    directory.write_json("resolved.json", record)
    assert main(["resume", str(directory.path), "grid.shape=[9,9]", "checkpoint.keep=7", "nonsense"]) == 2
    told = capsys.readouterr().err
    assert "grid.shape: a run goes on with the settings that it was begun with" in told
    assert "'nonsense': expected key=value" in told
    assert "checkpoint.keep" not in told
    assert main(["resume", str(directory.path), "checkpoint.keep=0"]) == 2
    told = capsys.readouterr().err
    assert "command line: checkpoint.keep = 0: expected a whole number, at least 1" in told
    assert "resolved.json" not in told
    changed = _changed(record, ["checkpoint.keep=7", "time.limit=2 h"])
    assert changed["values"]["checkpoint"]["keep"] == 7
    assert changed["values"]["time"] == {**record["values"]["time"], "limit": "2 h"}
    assert changed["origins"] == dict.fromkeys(("checkpoint.keep", "time.limit"), "command line of resume")
    values = _changed(record, ["time.limit=none"])["values"]
    assert type(configuration.config).model_validate(values).time.limit == ""
    assert record["values"]["checkpoint"]["keep"] == 2


def test_the_lock_names_its_holder_and_is_free_afterwards(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path / "run")
    told = pytest.raises(InUseError, match=f"`hpckit run`, process {os.getpid()} on")
    with locked(directory, "run"), told, locked(directory, "resume"):
        pass
    with locked(directory, "resume"):
        pass


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90 s", 90), ("10 min", 600), ("11 h 50 min", 42600), ("1:30:00", 5400), ("2-00:00:01", 172801), ("1.5h", 5400)],
)
def test_spans_of_time(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "ten min", "10 min ago", "0 s", "-5 s", "1:99:00"])
def test_what_is_no_span_of_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"time span|not a positive time"):
        seconds_of(text)
