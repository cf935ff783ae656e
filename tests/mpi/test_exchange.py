"""Mesh, field and halo exchange on 1 to 6 ranks. The checks are in tests/programs, one launch runs many."""

from __future__ import annotations

import pytest
from conftest import PATIENCE, by_day

RANKS = by_day([(4, "brief"), *((n, "whole") for n in (1, 2, 3, 4, 6))], (4, "brief"))


@pytest.mark.parametrize(("ranks", "how"), RANKS)
def test_halos_by_position_coded_data(mpirun, ranks, how):
    outcome = mpirun(ranks, "halo.py", how, timeout=150)
    assert int(outcome.stdout.split()[1]) > 50


@pytest.mark.parametrize(("ranks", "how"), RANKS)
def test_walls_accumulation_overlap_and_refusals(mpirun, ranks, how):
    outcome = mpirun(ranks, "exchange.py", how, timeout=120)
    assert "all good" in outcome.stdout
    assert "persistent" not in outcome.stderr.lower(), "requests were left at the end"


COUNTS = [(1, 3), pytest.param((1, 2, 4, 6), marks=pytest.mark.nightly)]


@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_fields_and_sums_that_do_not_depend_on_the_ranks(mpirun, counts):
    printed = {mpirun(ranks, "fields.py", timeout=120).stdout for ranks in counts}
    assert len(printed) == 1


def test_a_hang_fails_and_does_not_block(mpirun, tmp_path):
    program = tmp_path / "hang.py"
    program.write_text(
        "from mpi4py import MPI\nMPI.COMM_WORLD.rank or MPI.COMM_WORLD.recv(source=1)\nMPI.COMM_WORLD.Barrier()\n"
    )
    with pytest.raises(pytest.fail.Exception, match=f"ran past {PATIENCE} s"):
        mpirun(2, program, timeout=1)


@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_swarms_of_particles_with_fields_of_their_own(mpirun, counts):
    printed = {mpirun(ranks, "swarm.py", timeout=120).stdout for ranks in counts}
    assert len(printed) == 1
