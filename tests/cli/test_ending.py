"""What the end of a run says of going on."""

from __future__ import annotations

import errno
import logging
import subprocess
import sys
from types import SimpleNamespace

import pytest
from cli_command import hpckit
from mpi4py import MPI

from hpckit.cli.ending import end_of_run
from hpckit.cli.main import VERBS, main
from hpckit.cli.worker import _RankLog
from hpckit.launch.failure import failure_record
from hpckit.launch.mpiexec import JobEnd
from hpckit.run.directory import RunDirectory


@pytest.mark.parametrize("cases", [False, True], ids=["run", "suite"])
def test_a_stopped_run_says_how_to_go_on(tmp_path, capsys, cases):
    directory = RunDirectory.create(tmp_path / "run")
    if cases:
        (directory.path / "cases").mkdir()
    directory.write_json("summary.json", {"status": "stopped", "app": "probe", "ranks": 1, "exit_code": 75})
    assert end_of_run(directory, JobEnd(0), report=False) == 75
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.endswith(f": hpckit resume {directory.path}")
    assert ("finished runs are complete" in said) is cases


TELL = """
import sys
from hpckit.cli.ending import end_of_run
from hpckit.launch.mpiexec import JobEnd
from hpckit.run.directory import RunDirectory
sys.stdin.read()
sys.exit(end_of_run(RunDirectory(sys.argv[1]), JobEnd(0), report=False))
"""


@pytest.mark.parametrize(("status", "phases", "code"), [("done", {"core": [1.0]}, 0), ("stopped", {}, 75)])
def test_the_exit_code_is_that_of_the_run_though_nobody_reads_its_lines_any_more(tmp_path, status, phases, code):
    directory = RunDirectory.create(tmp_path / "run")
    summary = {"status": status, "app": "probe", "ranks": 1, "exit_code": code, "phases": phases}
    directory.write_json("summary.json", summary)
    command = [sys.executable, "-c", TELL, str(directory.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        process.stdin.close()
        assert process.stderr.read() == b""
    assert process.returncode == code
    assert directory.read_json("provenance.json")["ended"]


@pytest.mark.nightly
def test_a_program_that_fails_on_all_ranks_shows_its_own_lines_once(tmp_path):
    lines = """
import sys
import hpckit as hp

def make(kind):
    if kind == "hpckit":
        hp.Mesh(hp.world(), x=77)
    if kind == "exit" and hp.world().rank:
        sys.exit(17)
    if hp.world().rank or kind == "all":
        raise ValueError("mine")
    hp.world().Barrier()

make(sys.argv[1])
"""
    (tmp_path / "mine.py").write_text(lines[1:])
    for kind in ("all", "one"):
        outcome = hpckit("run", "mine.py", "-n", 2, kind, cwd=tmp_path)
        said = outcome.stderr
        assert outcome.code == 1
        assert said.count("ValueError: mine") == 1
        assert '"mine.py", line 13' in said
        assert '"mine.py", line 10' in said
        assert "runpy" not in said
        assert "guest.py" not in said
    assert "rank 1 failed" in said
    for under in (0, 2):  # ranks that hpckit starts, and those of a launcher
        outcome = hpckit("run", "mine.py", "hpckit", *([] if under else ["-n", 2]), cwd=tmp_path, under=under)
        said = outcome.stderr
        assert under or outcome.code == 2
        assert "HPK-201" in said
        assert '"mine.py", line 6' in said
        assert "mesh.py" not in said
        outcome = hpckit("run", "mine.py", *([] if under else ["-n", 2]), "exit", cwd=tmp_path, under=under)
        assert outcome.code == 17, outcome.stderr
        assert "rank 1 failed" in outcome.stderr
        assert '"mine.py", line 8' in outcome.stderr


def test_a_survivor_is_not_the_rank_that_failed(tmp_path, capsys):
    """Its message failed because its peer had been killed: the rank that ended first is named."""
    killed, survivor = (1, "Killed (signal 9)"), (0, "exit code 7")
    for error, order, code, told in (
        (MPI.Exception(MPI.ERR_OTHER), [killed, survivor], 7, "rank 1 on"),
        (MPI.Exception(MPI.ERR_OTHER), [survivor, killed], 7, "a message of rank 0 failed"),
        (MPI.Exception(MPI.ERR_OTHER), [], 7, "a message of rank 0 failed"),
        (MPI.Exception(MPI.ERR_TRUNCATE), [killed, survivor], 1, "truncated"),
        (ValueError("mine"), [killed, survivor], 1, "ValueError: mine"),
    ):
        directory = RunDirectory.create(tmp_path / f"run{len(list(tmp_path.iterdir()))}")
        record = failure_record(error, 0, 2, 3, directory.path / "failure.json")
        directory.write_json("attempts/000/failure.json", record)
        end = JobEnd(7, {"rank": "0", "how": "exit code 7"}, irregular=order)
        assert end_of_run(directory, end, report=False) == code
        assert told in capsys.readouterr().err
        kept = directory.read_json("attempts/000/failure.json")
        assert kept["exit_code"] == code
        assert ("survivor" in kept) is (told == "rank 1 on")


def test_a_full_disk_is_no_defect_of_the_program(tmp_path, capsys, monkeypatch):
    full = OSError(errno.ENOSPC, "No space left on device")
    record = failure_record(full, 0, 2, 3, tmp_path / "failure.json")
    assert (record["exit_code"], record["error"]["code"]) == (3, "HPK-300")
    assert "the disk is full" in record["report"]

    def write(*unused, **also):
        raise full

    monkeypatch.setattr(RunDirectory, "write_text", write)
    directory = RunDirectory.create(tmp_path / "run")
    end = JobEnd(7, {"rank": "0"}, noise=["a line of the launcher"])
    monkeypatch.setitem(VERBS, "ls", ("here", "", ""))
    monkeypatch.setitem(
        sys.modules, "here", SimpleNamespace(main=lambda words: end_of_run(directory, end, report=False))
    )
    assert main(["ls"]) == 3
    assert "No space left" in capsys.readouterr().err

    handler = _RankLog(tmp_path / "log", delay=True)
    monkeypatch.setattr(handler, "_open", write)
    for _ in range(2):
        handler.handle(logging.makeLogRecord({"msg": "a warning"}))
    said = capsys.readouterr().err
    assert said.count("cannot be written") == 1
    assert "Traceback" not in said


def test_a_run_that_its_time_limit_ends_says_so(tmp_path, capsys):
    directory = RunDirectory.create(tmp_path / "run")
    directory.write_json("resolved.json", {"values": {"time": {"limit": "1 s"}}})
    summary = {"status": "stopped", "app": "probe", "ranks": 1, "exit_code": 75, "stopped_by": "time.limit"}
    directory.write_json("summary.json", summary)
    assert end_of_run(directory, JobEnd(0), report=False) == 75
    said = capsys.readouterr().out
    assert 'stopped early by time.limit = "1 s"' in said
    assert f"hpckit resume {directory.path} time.limit=none" in said
