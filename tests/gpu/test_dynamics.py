"""Slab, box, shallow water and floods on a simulated GPU: bits over tiles, and whole runs against the CPU's."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from test_simulated import ON_GPU, hpckit, on_gpu

COMMON = ("time.monitor=2", "output.every=1e9", "output.single=false", "--no-report")
RUNS = {
    "thermal": ("grid.nx=19", "grid.nz=5", "time.end=4", "time.cfl=0.9", "diffusion=75"),
    "density_current3d": (
        "grid.nx=12", "grid.ny=7", "grid.nz=4", "time.end=3", "time.cfl=0.4", "coriolis=1e-3", "sides.y=walls",
    ),
    "thermal3d": (
        "grid.nx=12", "grid.ny=7", "grid.nz=4", "time.end=3", "time.cfl=0.4", "coriolis=1e-3", "sides.y=walls",
        "sides.x=open", "lid.depth=4000", "smagorinsky.coefficient=0.2", "diffusion=75", "drag=0.05", "base.u=5",
        'tracers=[{name="smoke"}]',
    ),
    "supercell": (
        "grid.nx=13", "grid.ny=7", "grid.nz=4", "time.end=24", "dynamics.step=12",
        "dynamics.substeps=4", "coriolis=1e-3", "sides.y=walls", 'tracers=[{name="smoke",shape="layer"}]',
        "bubbles=[{x=84e3,y=84e3,radius_x=6e4,radius_y=6e4,amplitude=-25}]",
    ),
    "ice_supercell": (
        "grid.nx=13", "grid.ny=7", "grid.nz=8", "time.end=24", "dynamics.step=12",
        "dynamics.substeps=4", "bubbles=[{x=84e3,y=84e3,z=8e3,radius_x=6e4,radius_y=6e4,radius_z=6e3,amplitude=-25}]",
    ),
    "double_gyre": ("grid.nx=13", "grid.ny=11", "time.end=4e4"),
    "eddies": ("grid.nx=13", "grid.ny=11", "time.end=3e3", "start.mode=2"),
    "partial_dam_break": ("grid.nx=12", "grid.ny=9", "grid.sides_y=periodic", "physics.f=1e-2", "time.end=1.2"),
}  # fmt: skip

DAILY = {"thermal": (2,)}  # on how many ranks
NIGHTLY = {name: (1, 2) for name in RUNS}


def fields(directory: Path) -> dict[str, np.ndarray]:
    with h5py.File(directory / "output" / "fields.h5") as file:
        return {name: each[()] for name, each in file.items() if isinstance(each, h5py.Dataset) and each.ndim > 2}


@pytest.mark.nightly  # two minutes
def test_tiles_chunks_and_parts_change_no_bit_and_the_status_tells_what_was_seen(mpirun, monkeypatch):
    on_gpu(monkeypatch)
    assert "all good" in mpirun(1, "device_sweeps.py", timeout=200).stdout


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("preset", "counts"),
    [*DAILY.items(), *(pytest.param(*each, marks=pytest.mark.nightly) for each in NIGHTLY.items())],
    ids=str,
)
def test_a_run_on_gpus_has_the_fields_of_one_on_cores(preset, counts, tmp_path):
    words = (*RUNS[preset], *COMMON)
    assert hpckit("run", preset, *words, "--directory", "cores", cwd=tmp_path, timeout=250).code == 0
    expected = fields(tmp_path / "cores")
    found = []
    for ranks in counts:
        name = f"gpu{ranks}"
        done = hpckit(
            "run", preset, *words, "--gpu", "-n", ranks, "--directory", name, cwd=tmp_path, timeout=250, **ON_GPU
        )
        assert done.code == 0, done.stderr
        found.append(fields(tmp_path / name))
    for name, values in expected.items():
        moved = np.abs(values[-1] - values[0]).max()
        assert moved > 0 or name in ("rain", "graupel"), f"{name} stands still"  # two steps make none of these
        assert np.abs(found[0][name] - values).max() <= 1e-12 * np.abs(values).max()
        np.testing.assert_array_equal(found[-1][name], found[0][name])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("thermal", "precision=float32"), "is for runs on GPUs"),
        *(
            pytest.param((name, "precision=float32"), "is for runs on GPUs", marks=pytest.mark.nightly)
            for name in ("eddies", "thermal3d", "dam_break")
        ),
        (("dam_break", "--gpu", "precision=float32"), "set it to 0.0001 or more"),
        (("weather/validate", "--gpu"), "has no GPU form"),
        (("heat", "--gpu-mpi", "staged"), "without --gpu"),
    ],
)
def test_what_goes_with_a_gpu_only_or_never_is_refused_before_the_start(words, told, tmp_path):
    done = hpckit("run", *words, "--dry-run", cwd=tmp_path)
    assert done.code == 2
    assert told in done.stderr
