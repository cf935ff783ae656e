"""Data parallelism and pipelines on MPI ranks."""

import re
from pathlib import Path

import pytest
from conftest import by_day


@pytest.mark.nightly
def test_training_on_6_ranks_and_on_parts_of_them(mpirun):
    mpirun(6, "training_ranks.py", timeout=200)


@pytest.mark.nightly
def test_every_schedule_on_1_to_4_ranks_has_the_same_bits(mpirun):
    mpirun(4, "training_ranks.py", "all", timeout=280)


@pytest.mark.nightly
def test_the_program_of_the_docs_runs(mpirun, tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "parallel-training.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"<!-- program: parallel_training -->\n```python\n(.*?)```", text, re.S)
    program = tmp_path / "training.py"
    program.write_text(found)
    out = mpirun(4, program).stdout
    assert out.count("zb_h1: 2 ranks, 2 microbatches") == 2


@pytest.mark.parametrize("how", by_day(["brief", "whole"], "brief"))
def test_shards_have_the_bits_of_whole_replicas(mpirun, how):
    assert "good" in mpirun(4, "sharded_ranks.py", how, timeout=200).stdout


@pytest.mark.parametrize(("ranks", "how"), by_day([(2, "brief"), *((n, "whole") for n in (1, 2, 3, 4))], (2, "brief")))
def test_mixed_precision_has_the_same_bits_on_every_mesh_and_skips_alike(mpirun, ranks, how):
    assert "good" in mpirun(ranks, "mixed_ranks.py", how, timeout=280).stdout
