"""The command line as tests call it: in a process of its own, or in this one with the probe app installed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import START, Outcome, mpi_command, run_limited

SITE = Path(__file__).parent / "site"  # holds the package and entry point of the app `probe`
HPCKIT = [sys.executable, "-m", "hpckit.cli.main"]


def clean_environment(**more: str) -> dict[str, str]:
    """The environment without settings of the user, with the probe app."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("HPCKIT_", "PMI", "OMPI_", "SLURM_"))
    }
    quick = [START] if os.environ.get("PYTHONPATH") == START else []  # a test with `quick_ranks`
    return {**kept, "PYTHONPATH": os.pathsep.join([str(SITE), *quick]), "HPCKIT_CONFIG": os.devnull, **more}


def hpckit(*words: object, cwd: Path, timeout: float = 60, under: int = 0, **more: str) -> Outcome:
    """Run `hpckit WORDS` in the folder `cwd`, with `more` in the environment; `under` ranks of mpiexec where not 0."""
    command = [*(mpi_command(under) if under else []), *HPCKIT, *map(str, words)]
    return run_limited(command, timeout, cwd=cwd, env=clean_environment(**more))


@pytest.fixture
def probe_app(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty current folder and an environment without settings, with the app `probe` there."""
    from hpckit.settings.apps import apps

    for name in list(os.environ):
        if name.startswith(("HPCKIT_", "PMI", "OMPI_", "SLURM_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HPCKIT_CONFIG", os.devnull)
    monkeypatch.syspath_prepend(str(SITE))
    monkeypatch.chdir(tmp_path)
    apps.cache_clear()
    yield tmp_path
    apps.cache_clear()
