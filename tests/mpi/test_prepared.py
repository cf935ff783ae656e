"""Ranks that are copies of a prepared process behave as ranks that start by themselves."""

from __future__ import annotations

import re

import pytest
from conftest import wait_until

PROGRAM = """
import os, sys
print("imported" if "hpckit.grid.exchange" in sys.modules else "fresh")
from mpi4py import MPI
comm = MPI.COMM_WORLD
assert sys.argv[1:] == ["one", "two words", sys.argv[3]] and os.environ["MARK"] == "here"
assert comm.size == 2 and comm.allreduce(1) == 2
print(f"hash {hash('a name')} of rank {comm.rank}")
if comm.rank == 1 and sys.argv[3] == "raises":
    raise ValueError("a fault of the program")
if comm.rank == 1 and sys.argv[3] == "is killed":
    os.kill(os.getpid(), 9)
comm.Barrier()
"""


@pytest.mark.parametrize("end", ["well", "raises", "is killed"])
def test_a_copy_is_a_rank_like_any_other(mpirun, prepared, tmp_path, monkeypatch, end):
    if prepared is None:
        pytest.skip("only ranks of MPICH's launcher are prepared")
    wait_until(prepared.are_ready)
    monkeypatch.setenv("MARK", "here")
    (tmp_path / "program.py").write_text(PROGRAM)
    codes = set()
    for fresh in (False, True):
        outcome = mpirun(2, tmp_path / "program.py", "one", "two words", end, check=False, fresh=fresh)
        assert (outcome.code == 0) is (end == "well"), outcome.stderr
        codes.add(outcome.code)
        assert ("ValueError: a fault of the program" in outcome.stderr) is (end == "raises")
        if end == "well":
            assert outcome.stdout.count("fresh" if fresh else "imported") == 2
            hashes = {*re.findall(r"hash (-?\d+) of", outcome.stdout)}  # ranks may print into one line
            assert len(hashes) == 2, "orders of sets that differ between ranks would not be seen"
    assert len(codes) == 1


def test_another_environment_of_libraries_starts_a_fresh_rank(mpirun, prepared, tmp_path, monkeypatch):
    if prepared is None:
        pytest.skip("only ranks of MPICH's launcher are prepared")
    wait_until(prepared.are_ready)
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    (tmp_path / "program.py").write_text("import sys; print('hpckit.grid.exchange' in sys.modules)")
    assert mpirun(1, tmp_path / "program.py").stdout.strip() == "False"
