"""What the README and the docs say is run: their programs, the commands' form, the tables."""

from __future__ import annotations

import difflib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpckit.cli.main import main
from hpckit.errors import EXIT_CODES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GRIDS, WATCH, RUN_FILES = (
    (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("grids.md", "watch.md", "run-files.md")
)


def programs(text):
    return dict(re.findall(r"<!-- program: (\w+) -->\n```python\n(.*?)```", text, re.S))


PROGRAMS = programs(README)
COMMANDS = dict(re.findall(r"<!-- command: (\w+) -->\n```sh\n(.*?)```", README, re.S))


def test_every_python_block_is_a_program_that_a_test_runs():
    assert README.count("```python") == len(PROGRAMS)
    assert set(PROGRAMS) == {"serial", "parallel", "plan"}


def test_the_numpy_program_becomes_parallel_in_at_most_ten_lines():
    changes = list(difflib.ndiff(PROGRAMS["serial"].splitlines(), PROGRAMS["parallel"].splitlines()))
    added = sum(line.startswith("+ ") for line in changes)
    removed = sum(line.startswith("- ") for line in changes)
    assert 0 < max(added, removed) <= 10


@pytest.mark.parametrize(
    "ranks", [1, pytest.param(2, marks=pytest.mark.nightly), 3, pytest.param(4, marks=pytest.mark.nightly)]
)
def test_the_parallel_program_prints_the_bits_of_the_serial_one(mpirun, tmp_path, ranks):
    serial = subprocess.run([sys.executable, "-c", PROGRAMS["serial"]], capture_output=True, text=True, check=True)
    program = tmp_path / "plate.py"
    program.write_text(PROGRAMS["parallel"])
    assert mpirun(ranks, program).stdout == serial.stdout
    assert serial.stdout.startswith("hottest 0.")


@pytest.mark.parametrize("ranks", [2, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 4))])
def test_the_programs_of_the_docs_run(mpirun, tmp_path, ranks):
    found = programs(GRIDS) | programs(WATCH)
    assert len(found) == GRIDS.count("```python") + WATCH.count("```python") > 4
    for name, text in found.items():
        program = tmp_path / f"{name}.py"
        program.write_text(text)
        mpirun(ranks, program)


@pytest.mark.parametrize("ranks", [1, pytest.param(4, marks=pytest.mark.nightly)])
def test_the_plan_of_the_readme_runs(mpirun, tmp_path, ranks):
    program = tmp_path / "plan.py"
    program.write_text(PROGRAMS["plan"])
    mpirun(ranks, program)


def test_the_drawn_ring_is_what_its_command_draws(tmp_path):
    words = COMMANDS["draw"].split("#")[0].split()
    assert words[0] == "hpckit"
    picture = tmp_path / "ring.svg"
    assert main([*words[1:-1], str(picture)]) == 0
    assert picture.read_bytes() == (ROOT / words[-1]).read_bytes()
    assert f"]({words[-1]})" in README


def test_the_table_of_exit_codes_is_the_one_in_the_code():
    rows = re.findall(r"^\| (\d+) \| (.+?) \|$", RUN_FILES, re.M)
    assert [int(code) for code, _ in rows] == list(EXIT_CODES)
