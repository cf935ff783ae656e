"""`hpckit ckpt` in one process while a run of another one writes checkpoints and removes old ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cli_command import clean_environment
from conftest import wait_until
from mpi4py import MPI

from hpckit.cli.main import main
from hpckit.cli.verbs.files import ckpt
from hpckit.io.checkpoint import manifest as mf
from hpckit.io.checkpoint.reader import open_generation
from hpckit.io.checkpoint.state import Piece, State
from hpckit.io.checkpoint.writer import Writer
from hpckit.run.directory import RunDirectory

# Writes generations until its standard input ends, two stay.
RUN = """
import sys, threading
from pathlib import Path
import numpy as np
from mpi4py import MPI
from hpckit.io.checkpoint.state import Piece, State
from hpckit.launch.lock import locked
from hpckit.io.checkpoint.writer import Writer
from hpckit.run.directory import RunDirectory

told = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), told.set()), daemon=True).start()
directory, step = RunDirectory(Path(sys.argv[1])), 0
with locked(directory, "run"):
    writer = Writer(MPI.COMM_SELF, directory.checkpoints, keep=2)
    while not told.is_set():
        step += 1
        writer.save(step, State([Piece("u", (999,), (0,), np.full(999, float(step)))]))
    writer.close()
"""


def test_checkpoints_are_listed_and_verified_while_a_run_writes_and_removes(tmp_path: Path, capsys) -> None:
    directory = RunDirectory.create(tmp_path / "one")
    command = [sys.executable, "-c", RUN, str(directory.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=clean_environment()) as run:
        assert run.stdin is not None
        try:
            wait_until(lambda: len(mf.committed(directory.checkpoints)) > 1, "no checkpoints")
            for _ in range(25):
                assert ckpt.main(["verify", str(directory.path)]) == 0
                assert ckpt.main(["ls", str(directory.path)]) == 0
            assert "damaged" not in capsys.readouterr().out
            assert main(["ckpt", "prune", str(directory.path)]) == 3
            assert f"in use by `hpckit run`, process {run.pid} on" in capsys.readouterr().err
        finally:
            run.stdin.close()
        assert run.wait(300) == 0
    there = mf.committed(directory.checkpoints)
    assert there == mf.generations(directory.checkpoints)
    assert len(there) == 2
    assert ckpt.main(["prune", str(directory.path)]) == 0
    assert mf.committed(directory.checkpoints) == there[1:]


@pytest.mark.parametrize("verb", ["verify", "ls"])
def test_what_is_removed_while_it_is_read_is_not_damaged(tmp_path: Path, capsys, monkeypatch, verb) -> None:
    directory = RunDirectory.create(tmp_path / "one")
    writer = Writer(MPI.COMM_SELF, directory.checkpoints, keep=3)
    for step in range(3):
        writer.save(step, State([Piece("u", (7,), (0,), np.full(7, float(step)))]))
    writer.close()

    def late(root: Path, number: int):
        mf.prune(root, 2)
        return open_generation(root, number)

    monkeypatch.setattr(ckpt, "open_generation", late)
    assert ckpt.main([verb, str(directory.path)]) == 0
    told = capsys.readouterr()
    assert ("g000001: removed meanwhile" in told.out) == (verb == "verify")
    assert all(name in told.out for name in ("g000002", "g000003"))
    assert "missing" not in told.out + told.err


def test_generations_that_are_removed_before_they_are_looked_at_are_no_mistake(
    tmp_path: Path, capsys, monkeypatch
) -> None:
    """A run goes on so quickly that all that were listed are gone, and new ones are there."""
    directory = RunDirectory.create(tmp_path / "one")
    writer = Writer(MPI.COMM_SELF, directory.checkpoints, keep=3)
    state = State([Piece("u", (7,), (0,), np.zeros(7))])
    writer.save(1, state)
    committed = ckpt.committed

    def late(root: Path):
        monkeypatch.setattr(ckpt, "committed", committed)
        writer.save(2, state)
        writer.close()
        mf.prune(root, 1)
        return []  # as of a list of which nothing is there any more

    monkeypatch.setattr(ckpt, "committed", late)
    assert ckpt.main(["verify", str(directory.path)]) == 0
    assert "g000002: whole" in capsys.readouterr().out


def test_what_is_gone_since_it_was_listed_is_no_mistake(tmp_path: Path, capsys, monkeypatch) -> None:
    directory = RunDirectory.create(tmp_path / "one")
    writer = Writer(MPI.COMM_SELF, directory.checkpoints, keep=3)
    for step in range(3):
        writer.save(step, State([Piece("u", (7,), (0,), np.full(7, float(step)))]))
    writer.close()
    committed = ckpt.committed

    def late(root: Path):
        found = committed(root)
        mf.prune(root, 1)
        return found

    monkeypatch.setattr(ckpt, "committed", late)
    assert ckpt.main(["verify", str(directory.path)]) == 0
    assert capsys.readouterr().out.count("removed meanwhile") == 2
