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
from hpckit.cli.verbs.files import ckpt
from hpckit.cli.verbs.resume import _changed
from hpckit.errors import CorruptDataError, InputError, InUseError
from hpckit.io.checkpoint.manifest import committed, generations
from hpckit.io.settings import seconds_of
from hpckit.launch.lock import locked
from hpckit.run import metrics as metrics_module
from hpckit.run.directory import RunDirectory
from hpckit.run.metrics import Metrics
from hpckit.settings import identity as identity_module
from hpckit.settings.apps import find_app
from hpckit.settings.config import load
from hpckit.settings.identity import content_hash, identity, inputs, require_same

pytestmark = pytest.mark.usefixtures("quick_ranks")
QUICK = {"QUICK_FRONT": "1"}  # of commands that get no signal

ENDLESS = ("grid.shape=[23,17]", "time.monitor=10", "output.frames=7", "output.single=false", "--no-report")
SETTINGS = (*ENDLESS, "time.steps=1200")


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
    outcome = hpckit("run", "heat", *SETTINGS, "--directory", whole, "checkpoint.every=never", cwd=tmp_path, **QUICK)
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
    second = hpckit("resume", broken, cwd=tmp_path, **QUICK)
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

    outcome = hpckit("resume", broken, "-n", 1, "--no-report", cwd=tmp_path, **QUICK)
    assert outcome.code == 0, outcome.stderr
    assert f"not used: {newest.name}: shard-00001.h5" in outcome.stdout
    assert "resumed from g0" in outcome.stdout
    for ours, theirs in zip(fields(broken), fields(whole), strict=True):
        assert np.array_equal(ours, theirs)
    assert (broken / "metrics.jsonl").read_text() == (whole / "metrics.jsonl").read_text()
    ours, theirs = (json.loads((run / "summary.json").read_text()) for run in (broken, whole))
    assert ours["conserved"] == theirs["conserved"]
    assert (ours["status"], ours["attempt"], ours["ranks"], ours["steps"]) == ("done", 2, 1, 1200)
    assert hpckit("resume", broken, cwd=tmp_path, **QUICK).stdout.startswith("the run is done already")
    assert ckpt.main(["prune", str(broken)]) == 0
    assert len([path for path in (broken / "ckpt").iterdir() if path.is_dir()]) == 1


@pytest.mark.nightly
def test_the_elapsed_time_limit_ends_a_run_that_then_starts_over_without_a_checkpoint(tmp_path: Path) -> None:
    words = ("run", "heat", *ENDLESS, "time.steps=1000000", "time.limit=1 s", "--directory", "run")
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


@pytest.mark.nightly
def test_what_was_changed_behind_a_stopped_run_is_told_or_mended(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ("run", "heat", *ENDLESS, "time.steps=100000", "time.limit=0.05 s", "--directory", run)
    assert hpckit(*words, cwd=tmp_path).code == 75
    record = json.loads((run / "resolved.json").read_text())
    changed = {**record, "values": {**record["values"], "diffusivity": 0.00012}}
    (run / "resolved.json").write_text(json.dumps(changed))
    outcome = hpckit("resume", run, "--no-report", cwd=tmp_path)
    assert outcome.code == 2, outcome.stderr
    assert "diffusivity is 0.00012, and was 0.00011" in outcome.stderr

    (run / "resolved.json").write_text(json.dumps(record))
    frames = {path: path.read_bytes() for path in (run / "output").rglob("*.h5")}
    for path, content in frames.items():
        path.write_bytes(content[: len(content) // 2])
    outcome = hpckit("resume", run, "--no-report", cwd=tmp_path)
    assert outcome.code == 5, "a run over a frame that cannot be read"
    assert "HPK-500" in outcome.stderr
    for path, content in frames.items():
        path.write_bytes(content)

    metrics = run / "metrics.jsonl"
    lines = metrics.read_text()
    assert lines
    metrics.write_text("")
    outcome = hpckit("resume", run, "--no-report", "time.limit=0.06 s", "-n", 2, cwd=tmp_path)
    assert outcome.code == 75, outcome.stderr
    assert f"metrics.jsonl had been changed: its {len(lines.splitlines())} lines" in outcome.stdout
    assert 'time.limit is "0.06 s", and was "0.05 s"' in outcome.stdout
    assert metrics.read_text().startswith(lines)


def test_a_run_is_what_its_settings_and_the_content_of_its_files_say(tmp_path: Path, monkeypatch) -> None:
    data, law, weights = tmp_path / "atoms.data", tmp_path / "law.py", tmp_path / "weights"
    weights.mkdir()
    for file in (data, law, weights / "a", weights / "b"):
        file.write_text(file.name)
    md = find_app("md")
    found = inputs(md, {"system": {"file": str(data)}, "interaction": {"function": f"{law}:energy", "file": None}})
    assert set(found) == {"system.file", "interaction.function"}
    assert set(inputs(find_app("train"), {"model": {"weights": str(weights)}})) == {"model.weights"}
    hashes = [content_hash(path) for path in (data, law, weights, weights / "a")]
    assert len(set(hashes)) == 4
    (weights / "a").rename(weights / "c")
    assert content_hash(weights) != hashes[2]
    monkeypatch.setattr(identity_module, "WHOLE", 4)  # of a longer file some pieces
    monkeypatch.setattr(identity_module, "PIECE", 2)
    assert content_hash(data) != hashes[0], "size and pieces"
    with pytest.raises(InputError, match="cannot be read"):
        inputs(md, {"system": {"file": str(tmp_path / "none")}})

    record = {"app": "md", "gpu": None, "values": {"time": {"dt": 0.1, "limit": ""}}, "inputs": found}
    one = identity(record)
    assert require_same(one, one, "g000001") == []
    for change, message in (
        ({"values": {"time": {"dt": 0.2, "limit": ""}}}, "time.dt is 0.2, and was 0.1"),
        ({"values": {"time": {"limit": ""}}}, "time.dt is not given, and was 0.1"),
        ({"inputs": {**found, "system.file": "blake3:0"}}, "the content of system.file"),
        ({"gpu": "auto"}, "gpu is True, and was False"),
    ):
        with pytest.raises(InputError, match=message):
            require_same(one, identity({**record, **change}), "g000001")
    longer = identity({**record, "values": {"time": {"dt": 0.1, "limit": "2 h"}}})
    assert require_same(one, longer, "g000001") == ['time.limit is "2 h", and was ""']


def test_metrics_are_mended_from_what_a_checkpoint_holds(tmp_path: Path, monkeypatch) -> None:
    directory = RunDirectory.create(tmp_path / "run")
    path = directory.path / "metrics.jsonl"
    first = Metrics(directory)
    for step in range(3):
        first.append({"step": step})
    kept, lines = first.kept(), path.read_bytes()
    first.append({"step": 3})
    assert first.kept()["bytes"] > kept["bytes"]

    def gone_on(kept: dict) -> tuple[str, dict]:
        again = Metrics(directory)
        return again.go_on(kept), again.kept()

    assert gone_on(kept) == ("", kept), "later lines are dropped"
    assert path.read_bytes() == lines
    outside = tmp_path / "outside"
    for change in (
        path.unlink,
        lambda: path.write_text(""),
        lambda: path.write_bytes(lines[:-4]),
        lambda: path.write_bytes(lines.replace(b"1", b"7")),
        lambda: (path.unlink(), path.symlink_to(outside)),
        lambda: (path.unlink(), os.mkfifo(path)),
    ):
        change()
        note, now = gone_on(kept)
        assert note.startswith("metrics.jsonl had been changed: its 3 lines")
        assert now == kept
        assert path.read_bytes() == lines
    assert not outside.exists()
    assert gone_on({}) == ("", Metrics(directory).kept()), "without a checkpoint from the start"

    monkeypatch.setattr(metrics_module, "MOST_PACKED", 1)
    long = Metrics(directory)
    long.append({"step": 0, "fill": [number**2 for number in range(9999)]})
    kept = long.kept()
    assert kept["packed"] is None
    assert gone_on(kept) == ("", kept)
    path.write_text("")
    with pytest.raises(CorruptDataError, match="too many lines"):
        gone_on(kept)
    path.unlink()
    assert "gone" in gone_on(kept)[0]


def test_what_cannot_be_resumed_is_told(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "run/ckpt").mkdir(parents=True)
    for words, message in (
        (["resume", "empty"], "is not a run of an app"),
        (["resume", "nothing"], "no run directory"),
        (["resume"], "it needs DIR\n"),
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
