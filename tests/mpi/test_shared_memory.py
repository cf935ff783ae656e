"""Collectives on shared memory, on 1 to 6 ranks; and what is left when a rank is killed."""

from __future__ import annotations

import os
import signal

import pytest


@pytest.mark.parametrize("ranks", [1, 2, 3, 6])
def test_collectives_on_shared_memory(mpirun, ranks):
    assert "all good" in mpirun(ranks, "shared_memory.py", timeout=200).stdout


def test_a_killed_rank_leaves_no_memory_behind(mpirun, tmp_path):
    program = tmp_path / "killed.py"
    program.write_text(
        "import os, signal\n"
        "import numpy as np\n"
        "from mpi4py import MPI\n"
        "from hpckit.shared import empty_shared, node_group\n"
        "buffer = empty_shared(MPI.COMM_WORLD, 1 << 20)\n"
        "group = node_group(MPI.COMM_WORLD)\n"
        "group.all_reduce(buffer.array)\n"
        "if MPI.COMM_WORLD.rank:\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "group.all_reduce(buffer.array)\n"
    )
    outcome = mpirun(2, program, timeout=60, check=False)
    assert outcome.code == signal.SIGKILL or outcome.code > 0
    assert not [name for name in os.listdir("/dev/shm") if name.startswith("hpckit-")]
