"""Gossip, local SGD and the parameter server on ranks."""

import re
from pathlib import Path

import pytest
from conftest import by_day

DOCS = Path(__file__).parents[2] / "docs" / "collectives.md"


@pytest.mark.parametrize("ranks", by_day([1, 2, 3, 4], 4))
def test_averaging_without_an_all_reduce(mpirun, ranks):
    mpirun(ranks, "averaging.py")


@pytest.mark.parametrize("ranks", by_day([1, 3], 3))
def test_the_program_of_the_docs_runs(mpirun, tmp_path, ranks):
    text = DOCS.read_text(encoding="utf-8")
    program = tmp_path / "averaging.py"
    program.write_text(re.search(r"<!-- program: averaging -->\n```python\n(.*?)```", text, re.S)[1])
    mpirun(ranks, program)
