"""Molecular dynamics on a simulated GPU, against the engine for the CPU."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import run_limited

from hpckit.io.particles.lammps_data import read_lammps_data

SIMULATED = {"NUMBA_ENABLE_CUDASIM": "1"}
SMALL = ("system.cells=[3,3,4]", "time.steps=3", "time.thermo=2", "interaction.cutoff=1.5", "--no-report")


def hpckit(*words: object, cwd: Path, **more: str):
    command = [sys.executable, "-m", "hpckit.cli.main", *map(str, words)]
    return run_limited(command, 150, cwd=cwd, env={**os.environ, "HPCKIT_CONFIG": os.devnull, **more})


@pytest.mark.parametrize("ranks", [2, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 4))])
def test_particles_on_a_device_move_as_on_the_host(mpirun, monkeypatch, ranks):
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    assert "all good 3" in mpirun(ranks, "md_device.py", timeout=280).stdout


@pytest.mark.parametrize("ranks", [2, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 3))])
def test_every_kind_of_motion_on_a_device_is_that_of_the_host(mpirun, monkeypatch, ranks):
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    assert "all good 8" in mpirun(ranks, "md_device_motion.py", timeout=280).stdout


def test_a_run_with_gpu_equals_one_without(tmp_path):
    for name, ranks, gpu, more in (("host", 1, (), {}), ("gpus", 2, ("--gpu",), SIMULATED)):
        done = hpckit("run", "md/melt", *SMALL, *gpu, "-n", ranks, "--directory", name, cwd=tmp_path, **more)
        assert done.code == 0, done.stdout + done.stderr
    assert "simulated GPU" in done.stdout
    assert "2 ranks share it" in done.stdout
    host, gpus = (read_lammps_data(tmp_path / name / "output/end.data") for name in ("host", "gpus"))
    np.testing.assert_allclose(gpus.unwrapped, host.unwrapped, atol=1e-12)
    energies = [
        json.loads((tmp_path / name / "summary.json").read_text())["conserved"]["energy"]["final"]
        for name in ("host", "gpus")
    ]
    assert energies[1] == pytest.approx(energies[0], rel=1e-12)


def test_what_has_no_form_for_gpus_is_refused_by_name(tmp_path):
    done = hpckit("run", "md/melt", *SMALL, "repro=true", "--gpu", "--directory", "r", cwd=tmp_path, **SIMULATED)
    assert done.code != 0
    assert "repro = True does not run on GPUs" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
