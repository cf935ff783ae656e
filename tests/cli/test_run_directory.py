"""The run directory: files whole or not there, safe names, no links; and the run context by hand on ranks."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from conftest import run_limited

from hpckit.cli.main import main
from hpckit.comm.agree import plain
from hpckit.errors import CorruptDataError, InputError, SetupError
from hpckit.run.directory import FOLDERS, RunDirectory, run_name, safe_name
from hpckit.run.metrics import Metrics
from hpckit.run.progress import clock_text, progress_line


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "runs" / "one")


def test_a_new_directory_is_private_and_has_its_folders(directory: RunDirectory) -> None:
    assert directory.path.stat().st_mode & 0o777 == 0o700
    assert all((directory.path / folder).is_dir() for folder in FOLDERS)
    assert directory.output == directory.path / "output"
    assert directory.attempt == directory.path / "attempts/000"


def test_nothing_is_put_where_something_is(tmp_path: Path, directory: RunDirectory) -> None:
    with pytest.raises(InputError, match="not an empty folder"):
        RunDirectory.create(directory.path)
    (tmp_path / "empty").mkdir()
    RunDirectory.create(tmp_path / "empty")
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(InputError, match="not an empty folder"):
        RunDirectory.create(tmp_path / "link")
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="cannot be made"):
        RunDirectory.create(tmp_path / "file" / "run")


def test_a_directory_must_be_there_and_be_no_link(tmp_path: Path, directory: RunDirectory) -> None:
    with pytest.raises(InputError, match="no run directory"):
        RunDirectory(tmp_path / "none")
    (tmp_path / "link").symlink_to(directory.path)
    with pytest.raises(InputError, match="link"):
        RunDirectory(tmp_path / "link")


def test_json_goes_in_and_out(directory: RunDirectory) -> None:
    value = {
        "a": np.float32(1.5),
        "b": np.arange(3),
        "c": (1, float("nan")),
        "d": Path("x"),
        5: None,
        "e": np.bool_(True),
    }
    expected = {"a": 1.5, "b": [0, 1, 2], "c": [1, None], "d": "x", "5": None, "e": True}
    assert plain(value) == expected
    directory.write_json("summary.json", value)
    directory.write_json("attempts/000/hosts.json", value)
    assert directory.read_json("summary.json") == directory.read_json("attempts/000/hosts.json") == expected
    assert directory.read_json("none.json") is None
    assert directory.read_json("none/none.json") is None
    (directory.path / "torn.json").write_text('{"a": 1')
    with pytest.raises(CorruptDataError, match="is not JSON"):
        directory.read_json("torn.json")
    for name, text in (("number", "5"), ("text", '"x"'), ("list", "[1]")):
        (directory.path / f"{name}.json").write_text(text)
        with pytest.raises(CorruptDataError, match="JSON object"):
            directory.read_json(f"{name}.json")
    (directory.path / "deep.json").write_text("[" * 10**5)
    os.mkfifo(directory.path / "pipe.json")
    (directory.path / "linked.json").symlink_to("/etc/passwd")
    (directory.path / "folder.json").mkdir()
    for name, words in (
        ("deep", "is not JSON"),
        ("pipe", "not a regular file"),
        ("linked", "links"),
        ("folder", "regular file"),
    ):
        with pytest.raises(CorruptDataError, match=words):
            directory.read_json(f"{name}.json")


@pytest.mark.parametrize(
    "name",
    ["../x.json", "/x.json", "", ".", "..", "a/../x.json", "a//x", ".hidden", "x\n", "a b", "-x", "é.json", "x\0"],
)
def test_names_cannot_leave_the_directory(directory: RunDirectory, name: str) -> None:
    before = sorted(directory.path.parent.rglob("*"))
    for write in (directory.write_json, directory.create_json):
        with pytest.raises(ValueError, match="safe file name"):
            write(name, {})
    with pytest.raises(ValueError, match="safe file name"):
        directory.read_json(name)
    assert sorted(directory.path.parent.rglob("*")) == before


def test_links_are_not_followed(tmp_path: Path, directory: RunDirectory) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text("{}")
    (directory.path / "metrics.jsonl").symlink_to(outside)
    with pytest.raises(OSError, match="symbolic"):
        Metrics(directory).append({"step": 1})
    (directory.path / "progress.json").symlink_to(outside)
    with pytest.raises(CorruptDataError, match="symbolic"):
        directory.read_json("progress.json")
    directory.write_json("progress.json", {"new": 1})
    assert not (directory.path / "progress.json").is_symlink()
    (directory.path / "linked").symlink_to(tmp_path)
    with pytest.raises(OSError, match="directory"):
        directory.write_json("linked/x.json", {})
    assert outside.read_text() == "{}"
    assert not (tmp_path / "x.json").exists()


@pytest.mark.parametrize("name", ["ckpt", "output", "output/frames", "report", "attempts", "attempts/000", "cases"])
def test_a_run_keeps_its_files_in_folders_of_its_own(
    tmp_path: Path, directory: RunDirectory, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "g000001").mkdir(parents=True)
    (elsewhere / "g000001/shard-00000.h5").write_text("not of this run")
    directory.write_json("resolved.json", {"app": "diffusion", "ranks": 1, "values": {}, "package": "x"})
    path = directory.path / name
    if path.exists():
        shutil.rmtree(path)
    path.symlink_to(elsewhere)
    run = str(directory.path)
    for words in (["resume", run], ["run", run], ["ckpt", "prune", run], ["report", run]):
        assert main(words) == 2, words
        assert f"{path} is " in capsys.readouterr().err
    assert (elsewhere / "g000001/shard-00000.h5").exists()
    assert main(["ls", str(directory.path.parent)]) == 0
    assert "unreadable" in capsys.readouterr().out
    path.unlink()
    path.write_text("a file")
    with pytest.raises(InputError, match=r"not a folder|Not a directory"):
        RunDirectory(directory.path)


def test_the_list_shows_what_may_be_read_and_names_the_rest(
    tmp_path: Path, directory: RunDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory.write_json("resolved.json", {"app": "\x1b[31mred", "ranks": 1})
    (directory.path.parent / "closed").mkdir()
    is_file, geteuid = Path.is_file, os.geteuid

    def refuse(path: Path) -> bool:
        if "closed" in path.parts:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return is_file(path)

    scandir = os.scandir

    def closed(path: object = ".") -> object:
        if "closed" in Path(str(path)).parts:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(Path, "is_file", refuse)
    monkeypatch.setattr(os, "scandir", closed)
    monkeypatch.setattr(os, "geteuid", lambda: geteuid() + 1)  # all of it is another user's
    assert main(["ls", str(directory.path.parent)]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert any(row.split()[:1] == ["one"] and "\\x1b[31mred" in row and "unreadable" not in row for row in rows)
    assert any(row.split()[:1] == ["closed"] and "unreadable" in row and "Permission" in row for row in rows)


def test_readers_see_the_old_file_or_the_new_one(directory: RunDirectory) -> None:
    directory.write_json("progress.json", {"n": 0, "fill": "0" * 5000})
    done = threading.Event()

    def write() -> None:
        for n in range(1, 60):
            directory.write_json("progress.json", {"n": n, "fill": str(n % 10) * 5000})
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        value = directory.read_json("progress.json")
        assert value["fill"] == str(value["n"] % 10) * 5000
    writer.join()
    assert [path.name for path in directory.path.iterdir() if path.name.startswith(".")] == []


def test_a_write_that_fails_leaves_the_old_file(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.write_json("summary.json", {"old": 1})

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        directory.write_json("summary.json", {"new": 2})
    assert directory.read_json("summary.json") == {"old": 1}
    assert [path.name for path in directory.path.iterdir() if path.name.startswith(".")] == []


def test_one_of_many_creates_a_file(directory: RunDirectory) -> None:
    barrier = threading.Barrier(8)
    won = []

    def create(number: int) -> None:
        barrier.wait()
        if directory.create_json("attempts/000/failure.json", {"by": number}):
            won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert directory.read_json("attempts/000/failure.json") == {"by": won[0]}


def test_names_of_runs() -> None:
    name = run_name("weather", "My first/run: é", 12)
    assert name[10] == "T"
    assert name[15:].startswith("-weather-My-first-run-p12-")
    assert run_name("weather", "", 2)[15:].startswith("-weather-p2-")
    assert run_name("a", "a", 2) != run_name("a", "a", 2)
    assert safe_name("../..") == "run"


def test_progress_lines() -> None:
    state = {
        "fraction": 0.125,
        "step": 1200,
        "time": 125.0,
        "end": 1000.0,
        "steps_per_second": 45.25,
        "rate": "84 M cell-steps/s",
        "eta_seconds": 3725.0,
    }
    assert progress_line(state) == (" 12.5 %  step 1200  t 125 of 1000  45.2 steps/s  84 M cell-steps/s  1:02:05 left")
    assert clock_text(59.6) == "1:00"


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_run_context_by_hand(ranks: int, mpirun, tmp_path: Path) -> None:
    outcome = mpirun(ranks, "cli_run_context.py", tmp_path / "run")
    steps = [line for line in outcome.stdout.splitlines() if " %  step " in line]  # others where it was held up
    assert steps[-1].startswith("100.0 %  step 3  t 0.3 of 0.3")
    assert outcome.stdout.count("compiling the kernels of diffusion: once per machine") == 1
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert lines[2] == {"step": 3, "time": 0.1 * 3, "w_max": 3.0, "bad": None}
    progress = json.loads((tmp_path / "run/progress.json").read_text())
    assert progress["fraction"] == 1.0
    assert progress["status"] == "stopped"


def test_workers_and_apps_import_little_and_start_no_mpi() -> None:
    program = (
        "import sys, hpckit.run.context, hpckit.cli.worker, hpckit.cli.main\n"
        "bad = {'rich', 'matplotlib', 'mpi4py.MPI', 'numba', 'h5py'} & set(sys.modules)\n"
        "assert not bad, bad\n"
    )
    outcome = run_limited([sys.executable, "-c", program], 30)
    assert outcome.code == 0, outcome.stderr
