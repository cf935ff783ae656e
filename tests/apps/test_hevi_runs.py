"""The box with split dynamics: equal bits on any number of ranks and after a resume, mistakes explained."""

from __future__ import annotations

import json

import numpy as np
import pytest
from pydantic import ValidationError

from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.run import dry_run

GRID = {"nx": 29, "ny": 27, "nz": 11, "lowest": 400.0}
HEVI = {"kind": "hevi", "step": 4.0}
CASES = {
    "periodic": {
        "grid": GRID,
        "dynamics": HEVI,
        "base": {"kind": "stable", "u": 8.0, "v": -5.0},
        "coriolis": 1e-3,
        "smagorinsky": {"coefficient": 0.2},
        "lid": {"depth": 3000.0},
    },
    "walls": {
        "grid": GRID,
        "dynamics": {**HEVI, "order": 3},
        "sides": {"x": "walls", "y": "walls"},
        "bubbles": [{"amplitude": 10.0, "x": 1500.0, "y": 18_500.0}],
        "tracers": [{"name": "air", "shape": "uniform", "amount": 0.0, "background": 0.25}],
        "diffusion": 200.0,
    },
    "storm": {
        "grid": {**GRID, "height": 14e3, "lowest": 600.0},
        "dynamics": HEVI,
        "base": {"kind": "weisman_klemp", "shear": 20.0, "u": -10.0},
        "moisture": {"kind": "kessler"},
        "bubbles": [{"amplitude": 8.0, "radius_z": 3000.0}, {"amplitude": -20.0, "x": 4000.0, "z": 1000.0}],
        "smagorinsky": {"coefficient": 0.2},
        "tracers": [{"name": "air", "shape": "uniform", "amount": 0.0, "background": 0.25}, {"name": "smoke"}],
    },
    "rest": {
        "grid": GRID,
        "dynamics": HEVI,
        "base": {"kind": "stable", "u": 8.0, "v": -5.0},
        "bubbles": [],
        "diffusion": 200.0,
        "coriolis": 1e-3,
    },
}
RUNS, MORE_RUNS = {1: "x", 4: "b"}, {1: "x", 2: "xy", 3: "xy", 6: "b"}


@pytest.mark.parametrize("runs", [RUNS, pytest.param(MORE_RUNS, marks=pytest.mark.nightly)], ids=str)
def test_any_number_of_ranks_gives_the_same_bits(mpirun, tmp_path, runs):
    (tmp_path / "cases.json").write_text(json.dumps(CASES))
    for ranks in runs:
        mpirun(ranks, "split_ranks.py", tmp_path, timeout=240)
    for name in CASES:
        one = np.load(tmp_path / f"{name}-1x.npz")
        for ranks, axes in runs.items():
            for axis in axes:
                many = np.load(tmp_path / f"{name}-{ranks}{axis}.npz")
                for key in one.files:
                    np.testing.assert_array_equal(
                        many[key], one[key], err_msg=f"{name}, {key}, {ranks} ranks on {axis}"
                    )
        if name == "storm":
            vapor, cloud, _, air, smoke = one["field1"]
            assert cloud.max() > 1e-4
            np.testing.assert_allclose(air, 0.25, rtol=1e-13)
            assert smoke.min() >= -1e-16
            assert vapor.max() < 0.0141
        assert one["w_max"][0] < 1e-12 if name == "rest" else one["w_max"][0] > 0.1


def problems(**settings) -> str:
    with pytest.raises(ValidationError) as caught:
        Config.model_validate({"dynamics": {"kind": "hevi"}, **settings})
    return str(caught.value)


def test_mistakes_are_explained():
    assert "open" in problems(sides={"x": "open"})
    assert "must be even" in problems(dynamics={"kind": "hevi", "substeps": 5})
    assert "too few" in problems(dynamics={"kind": "hevi", "step": 20.0, "substeps": 2})
    assert "above grid.height" in problems(grid={"lowest": 2000.0})
    with pytest.raises(ValidationError, match="stretched levels"):
        Config.model_validate({"grid": {"lowest": 50.0}})


def test_levels_grow_by_one_factor_to_the_lid():
    edges = Config.model_validate({"grid": GRID, "dynamics": HEVI}).grid.edges
    thick = np.diff(edges)
    np.testing.assert_allclose(thick[1:] / thick[:-1], thick[1] / thick[0], rtol=1e-12)
    np.testing.assert_allclose([edges[0], edges[-1], thick[0]], [0.0, 10_000.0, 400.0], rtol=1e-9)


def test_the_dry_run_counts_large_steps():
    config = Config.model_validate({"grid": GRID, "dynamics": HEVI, "time": {"end": 100.0}})
    assert dry_run(config, 4).steps == 25
    assert dry_run(config, 4).halo_bytes > 0
