"""Collectives on shared memory, on 1 to 6 ranks; and what is left when a rank is killed."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from conftest import by_day


@pytest.mark.parametrize("ranks", [2, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 4, 6))])
def test_collectives_on_shared_memory(mpirun, ranks):
    assert "all good" in mpirun(ranks, "shared_memory.py", timeout=200).stdout


def test_the_program_of_the_documentation(mpirun, tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "shared_memory.md").read_text(encoding="utf-8")
    program = tmp_path / "documented.py"
    program.write_text(re.search(r"```python\n(.*?)```", text, re.S)[1])
    mpirun(3, program)


def named_memory():
    """Of all jobs of this machine, but for the tables of watches, which come and go."""
    return {name for name in os.listdir("/dev/shm") if re.match("hpckit-(?!watch-)", name)}


def test_a_killed_rank_leaves_no_memory_behind(mpirun, tmp_path):
    program, before = tmp_path / "killed.py", named_memory()
    program.write_text(
        "import os, signal\n"
        "import numpy as np\n"
        "from mpi4py import MPI\n"
        "from hpckit.comm.shared.calls import bind\n"
        "from hpckit.comm.shared.group import node_group\n"
        "from hpckit.comm.shared.symmetric import empty_shared\n"
        "buffer = empty_shared(MPI.COMM_WORLD, 1 << 20)\n"
        "group = node_group(MPI.COMM_WORLD)\n"
        "bind(group, 'all_reduce', buffer.array)()\n"
        "if MPI.COMM_WORLD.rank:\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "bind(group, 'all_reduce', buffer.array)()\n"
    )
    outcome = mpirun(2, program, timeout=60, check=False)
    assert outcome.code in (signal.SIGKILL, 128 + signal.SIGKILL)
    assert named_memory() <= before


@pytest.mark.parametrize(("ranks", "rounds"), by_day([(3, 3), (3, 10), (4, 10), (6, 10)], (3, 3)))
def test_collectives_of_groups_that_share_ranks_end_in_any_order(mpirun, ranks, rounds):
    """Under way at once, started and waited for in an order of each rank's own: no rank waits inside of one for a rank
    that waits for it inside of another.
    """
    mpirun(ranks, "crossing_groups.py", rounds)
