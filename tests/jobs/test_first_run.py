"""`python -m tests.first_run`: the README's command by its parts; the whole of it is for a quiet machine."""

from __future__ import annotations

import json
import os
import stat

import pytest

from hpckit.errors import SetupError
from tests import first_run

PRINTED = """runs/x
kernels and start state ready in 31.5 s
done: weather thermal, 900 steps on 2 ranks, 1:07 in the time loop, 20 M cell-steps/s
"""


def test_the_run_is_told_by_its_parts():
    parts = first_run._inside(PRINTED, 110.0)
    assert list(parts.values()) == [110.0 - 31.5 - 67.0, 31.5, 67.0]
    assert sum(parts.values()) == 110.0


def test_the_parts_are_those_of_the_readme_and_see_no_cache_of_kernels(tmp_path, monkeypatch):
    """With stand-ins for git and bash that write down what they are asked to do."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    log = tmp_path / "log"
    for name in ("git", "bash"):
        script = "#!/bin/sh\nfor last; do :; done\n"
        script += f'printf "%s [%s]\\n" "$last" "$NUMBA_CACHE_DIR" >> {log}\n'
        script += (
            'mkdir -p "$last"\n' if name == "git" else "mkdir -p runs/a/report; echo x > runs/a/report/index.html\n"
        )
        (bin_folder / name).write_text(script)
        (bin_folder / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/somewhere")
    parts = first_run.first_run(tmp_path)
    assert list(parts)[:4] == ["clone", "virtual environment", "pip install", "first run"]
    lines = log.read_text().splitlines()
    assert [line.rsplit(" ", 1)[1] for line in lines] == ["[]"] * 4
    assert "hpckit run thermal -n 2" in lines[-1]
    json.dumps(parts)
    (bin_folder / "bash").write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(SetupError, match="virtual environment failed"):
        first_run.first_run(tmp_path / "bin")
