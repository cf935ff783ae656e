"""The flood app: equal bits on any number of ranks, what it writes, mistakes explained."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest
from pydantic import ValidationError

from hpckit.apps.flood import setups
from hpckit.apps.flood.config import PRESETS, Config
from hpckit.apps.flood.layout import dry_run
from hpckit.errors import DecompositionError


@pytest.mark.parametrize("counts", [(1, 3), pytest.param((1, 2, 4, 6), marks=pytest.mark.nightly)], ids=str)
def test_any_number_of_ranks_gives_the_same_bits(mpirun, tmp_path, counts):
    """Every preset on 23 x 29 cells, each kind of side and start; a whole run; refusals, which are collective."""
    grid = {"nx": 29, "ny": 23}
    cases = {name: {**settings, "grid": settings.get("grid", {}) | grid} for name, (_, settings) in PRESETS.items()}
    cases["radial"] = {**cases["parabolic_bowl"], "start": {"kind": "bowl_radial", "amplitude": 0.05}}
    rough = np.random.default_rng(0).random((23, 29)).astype(np.float32)
    np.save(tmp_path / "rough.npy", rough)
    cases["file"] = {
        "grid": {**grid, "sides_x": "periodic", "sides_y": "open"},
        "physics": {"manning": 0.03, "drag": 0.001, "f": 1e-3},
        "bottom": {"kind": "file", "file": str(tmp_path / "rough.npy")},
        "start": {"level": 0.5, "behind_level": 3.0},
    }
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    for ranks in counts:
        mpirun(ranks, "flood_ranks.py", tmp_path)
    for name in cases:
        one = np.load(tmp_path / f"{name}-1.npz")
        assert one["h"].shape == (23, 29)
        assert one["h"].min() >= 0
        assert (np.abs(one["hu"]).max() > 0) == (name != "lake_at_rest"), name
        for ranks in counts[1:]:
            many = np.load(tmp_path / f"{name}-{ranks}.npz")
            for field in ("h", "hu", "hv", "bottom", "time"):
                np.testing.assert_array_equal(many[field], one[field], err_msg=f"{name} on {ranks} ranks")
            np.testing.assert_allclose(many["watch"], one["watch"], rtol=1e-12)
    np.testing.assert_allclose(np.load(tmp_path / "file-1.npz")["bottom"], rough, atol=1e-9)
    lake = np.load(tmp_path / "lake_at_rest-1.npz")
    assert (lake["h"] == 0).any()
    assert np.unique((lake["h"] + lake["bottom"])[lake["h"] > 0]).tolist() == [2.0]
    for ranks in counts:
        _check_run(tmp_path, ranks)


def _check_run(folder, ranks):
    """Frames stand at the multiples of output.every and at the end."""
    summary = json.loads((folder / f"run-{ranks}" / "summary.json").read_text())
    assert summary["status"] == "done"
    assert summary["simulated_seconds"] == 20.0
    assert abs(summary["conserved"]["mass"]["relative_change"]) < 1e-13
    assert 0 < summary["depth_error"] < 0.2
    with h5py.File(folder / f"run-{ranks}" / "output" / "fields.h5") as frames:
        assert frames["time"][...].tolist() == [0.0, 7.0, 14.0, 20.0]
        assert frames["depth"].shape == (4, 5, 40)
        np.testing.assert_array_equal(frames["depth"][...], frames["surface"][...])
        config = Config.model_validate({"grid": {"nx": 40, "ny": 5}})
        exact = setups.exact_depth(config, (slice(None), slice(None)), 14.0)
        error = np.abs(frames["depth"][2] - exact).sum() / exact.sum()
    lines = (folder / f"run-{ranks}" / "metrics.jsonl").read_text().splitlines()
    known = [json.loads(line) for line in lines]
    assert error == pytest.approx(next(line["depth_error"] for line in known if line["time"] == 14.0), rel=1e-9)


def test_exact_solutions_are_told_where_they_hold():
    whole = (slice(None), slice(None))
    for name in ("dam_break", "dry_dam_break", "parabolic_bowl"):
        config = Config.model_validate(PRESETS[name][1])
        assert setups.exact_depth(config, whole, config.time.end) is not None, name
    config = Config.model_validate(PRESETS["dam_break"][1])
    assert setups.exact_depth(config, whole, 80.0) is None
    rough = Config.model_validate({**PRESETS["dam_break"][1], "physics": {"manning": 0.03}})
    assert setups.exact_depth(rough, whole, 1.0) is None


@pytest.mark.parametrize("name", PRESETS)
def test_presets_can_be_planned(name):
    config = Config.model_validate({"app": "flood", **PRESETS[name][1]})
    plan = dry_run(config, 2)
    assert plan.steps > 10
    assert plan.frames >= 3
    with pytest.raises(DecompositionError):
        dry_run(config, config.grid.nx * config.grid.ny)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"start": {"kind": "bowl_planar"}}, "needs bottom.kind = 'bowl'"),
        ({"bottom": {"kind": "file"}}, "give both or neither"),
        ({"bottom": {"file": __file__}}, "give both or neither"),
        ({"bottom": {"kind": "file", "file": "absent.npy"}}, "there is no file absent.npy"),
        ({"bottom": {"kind": "bowl", "height": -1.0}}, "not above 0"),
        ({"start": {"behind_level": 0.0}}, "there is no water"),
        ({"bottom": {"kind": "bowl"}, "start": {"kind": "bowl_radial", "amplitude": 1.0}}, "not below the depth"),
        ({"start": {"x": -5.0}}, "start.x of -5 m lies outside the area, which is 2000 m in x"),
        ({"start": {"x": 2000.0}}, "puts the dam on a side"),
        ({"start": {"kind": "hump", "y": 21.0}}, "start.y of 21 m lies outside the area, which is 20 m in y"),
        ({"bottom": {"kind": "island", "y": -1.0}}, "bottom.y of -1 m lies outside"),
        ({"bottom": {"kind": "beach", "x": 2001.0}}, "bottom.x of 2001 m lies outside"),
        ({"start": {"x": -5.0, "behind_level": -1.0}}, "start.x of -5 m.*\n.*there is no water"),
        ({"time": {"cfl": 0.6}}, "less than or equal to 0.5"),
    ],
)
def test_settings_that_cannot_be_are_explained(settings, text):
    with pytest.raises(ValidationError, match=text):
        Config.model_validate(settings)
