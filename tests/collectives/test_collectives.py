"""Collectives on 1 to 6 ranks, against NumPy. The checks are in tests/programs, one launch runs many."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import by_day


@pytest.mark.parametrize(
    ("ranks", "how"), by_day([(3, "brief"), *((n, "whole") for n in (1, 2, 3, 4, 6))], (3, "brief"))
)
def test_every_operation_by_every_algorithm(mpirun, ranks, how):
    outcome = mpirun(ranks, "collectives.py", how, timeout=150)
    assert int(outcome.stdout.split()[1]) > 700


@pytest.mark.parametrize("ranks", by_day([1, 2, 3, 4], 2))
def test_calls_that_are_kept_for_buffers_that_come_again(mpirun, ranks):
    assert "all good" in mpirun(ranks, "kept_calls.py").stdout


@pytest.mark.parametrize(("ranks", "how"), by_day([(4, "brief"), (4, "whole"), (6, "whole")], (4, "brief")))
def test_several_nodes_share_memory_inside_and_send_between(mpirun, ranks, how):
    assert "all good" in mpirun(ranks, "nodes.py", how).stdout


@pytest.mark.parametrize(
    ("ranks", "paths"), [(3, "few"), *(pytest.param(ranks, "all", marks=pytest.mark.nightly) for ranks in (2, 4))]
)
def test_calls_that_differ_are_told_on_every_rank_and_the_axis_goes_on(mpirun, ranks, paths):
    assert "all good" in mpirun(ranks, "mismatches.py", paths).stdout


@pytest.mark.nightly
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 6])
def test_a_campaign_of_calls_at_random(mpirun, ranks):
    assert "2000 calls good" in mpirun(ranks, "campaign.py", 2000, ranks, timeout=300).stdout


@pytest.mark.parametrize("end", ["late", pytest.param("ended", marks=pytest.mark.nightly)])
def test_what_nobody_waits_for_is_named_with_its_line_and_harms_nothing(mpirun, end):
    said = mpirun(2, "unfinished.py", end).stderr
    lines = (Path(__file__).parents[1] / "programs" / "unfinished.py").read_text(encoding="utf-8").splitlines()
    for mark in ("RING", "MPI", "GOSSIP", "MEMORY", "HALO"):
        number = next(i for i, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))
        assert f"unfinished.py:{number} (" in said, (mark, said)


def test_the_program_of_the_docs_runs(mpirun, tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "collectives.md").read_text(encoding="utf-8")
    found = dict(re.findall(r"<!-- program: (\w+) -->\n```python\n(.*?)```", text, re.S))
    program = tmp_path / "collectives_run.py"
    program.write_text(found["collectives_run"])
    mpirun(3, program)


@pytest.mark.parametrize("gpus", ["alone", "shared"])
def test_nccl_where_every_rank_has_a_gpu(mpirun, gpus):
    assert "all good" in mpirun(2, "nccl_stand_in.py", gpus).stdout
