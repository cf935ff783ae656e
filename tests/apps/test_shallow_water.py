"""The shallow-water app: equal bits on any number of ranks, known solutions, what it writes, mistakes explained."""

from __future__ import annotations

import json
import os

import h5py
import numpy as np
import pytest
from conftest import made_once
from pydantic import ValidationError

from hpckit.apps.common import topography
from hpckit.apps.shallow_water import setups
from hpckit.apps.shallow_water.config import PRESETS, Config
from hpckit.apps.shallow_water.layout import dry_run, time_step
from hpckit.apps.shallow_water.run import BYTES_PER_CELL_STEP
from hpckit.errors import DecompositionError, InputError
from hpckit.run.steps import step_count


def mapped(settings, folder):
    """A seamount and a hill by formulas, their middles in cells, and the same from files."""
    config = Config.model_validate(settings)
    y, x = (float(places[n // 2]) for places, n in zip(setups.centers(config), (23, 29), strict=True))
    formulas = settings | {"bottom": {"kind": "seamount"}, "start": {"kind": "hill", "amplitude": 5.0, "y": y, "x": x}}
    config = Config.model_validate(formulas)
    maps = {"bottom": setups.bottom(config), "start": setups.start(config)[0]}
    for name, [(along_y, along_x)] in maps.items():
        np.save(folder / f"{name}.npy", along_y[:, None] * along_x)
    files = {name: {"kind": "file", "file": str(folder / f"{name}.npy")} for name in maps}
    return {"formulas": formulas, "maps": settings | files}


@pytest.mark.parametrize("counts", [(1, 3), pytest.param((1, 2, 4, 6), marks=pytest.mark.nightly)], ids=str)
def test_any_number_of_ranks_gives_the_same_bits(mpirun, tmp_path, counts):
    """Every preset and every kind of side on 23 x 29 cells, and the refusals, which are collective."""
    grid = {"nx": 29, "ny": 23}
    cases = {name: {**settings, "grid": settings.get("grid", {}) | grid} for name, (_, settings) in PRESETS.items()}
    cases["eddies"] |= {"start": {"kind": "eddies", "mode": 3}}
    forces = {"depth": 90.0, "viscosity": 500.0, "drag": 1e-6, "drag_quadratic": 0.002}
    for sides in ("periodic", "channel", "closed"):
        cases[sides] = {
            "grid": {**grid, "sides": sides, "slip": "free" if sides == "periodic" else "none"},
            "physics": forces | ({} if sides == "periodic" else {"beta": 2e-11}),
            "bottom": {"kind": "seamount"},
            "start": {"kind": "hill", "amplitude": 5.0},
            "wind": {"stress": 0.1},
        }
    cases |= mapped(cases["closed"], tmp_path)
    cases["poincare"] = {"grid": grid, "start": {"kind": "poincare"}}
    cases["kelvin"] = {"grid": {**grid, "sides": "channel"}, "start": {"kind": "kelvin"}}
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    for ranks in counts:
        mpirun(ranks, "shallow_water_ranks.py", tmp_path)
    for field in ("h", "u", "v"):  # the same bottom and surface from files
        formulas, maps = (np.load(tmp_path / f"{name}-1.npz")[field] for name in ("formulas", "maps"))
        np.testing.assert_array_equal(maps, formulas, err_msg=field)
    for name, settings in cases.items():
        one, sides = np.load(tmp_path / f"{name}-1.npz"), settings["grid"].get("sides", "periodic")
        assert one["h"].shape == (23, 29)
        assert one["u"].shape == (23, 29 + (sides == "closed"))
        assert one["v"].shape == (23 + (sides != "periodic"), 29)
        assert np.abs(one["u"]).max() > 0, f"{name} does not move"
        for ranks in counts[1:]:
            many = np.load(tmp_path / f"{name}-{ranks}.npz")
            for field in ("h", "u", "v", "vorticity"):
                np.testing.assert_array_equal(many[field], one[field], err_msg=f"{name} on {ranks} ranks")
            np.testing.assert_allclose(many["watch"], one["watch"], rtol=1e-13)
            np.testing.assert_array_equal(many["watch"][3:], one["watch"][3:])


@pytest.fixture
def physics(mpirun, tmp_path_factory):
    """Figures of runs, made once; on one rank, for others give the same bits."""

    def make(folder):
        folder.mkdir()
        mpirun(1, "shallow_water_physics.py", folder, timeout=180)

    folder = made_once(tmp_path_factory, "shallow_water_physics", make)
    return json.loads((folder / "physics.json").read_text())


def test_mass_is_kept_and_energy_but_for_the_time_step(physics):
    assert physics["mass"] < 1e-13
    assert physics["energy"][-1] < 5e-9
    np.testing.assert_allclose(physics["energy orders"], 3.0, atol=0.05)


def test_a_third_of_the_energy_of_a_step_becomes_flow(physics):
    """Gill (1976, J. Fluid Mech. 77, 603-621): the rest leaves with the waves."""
    assert physics["adjustment"] == pytest.approx(1 / 3, rel=0.02)
    assert physics["adjustment surface"] < 0.02


def test_a_balanced_jet_stays_as_it_is(physics):
    assert physics["jet"][-1] < 1e-6
    assert min(physics["jet orders"]) > 1.8


@pytest.mark.parametrize("wave", ["poincare", "kelvin"])
def test_linear_waves_have_their_phase_speed(physics, wave):
    assert physics[wave][-1] < 6e-4
    np.testing.assert_allclose(physics[f"{wave} orders"], 2.0, atol=0.02)


@pytest.mark.parametrize("height", [97.7, -397.7])
def test_a_lake_over_topography_stays_at_rest_to_the_bit(physics, height):
    assert physics[f"rest {height}"] == [0, 0, 0]
    assert physics[f"rest depth {height}"] == pytest.approx(137.3 - height, abs=1e-6)


@pytest.mark.parametrize("field", ["h", "u", "v"])
def test_nonlinear_flow_converges_in_second_order(physics, field):
    np.testing.assert_allclose(physics[f"resolution {field}"], 2.0, atol=0.1)


def test_wind_and_friction_balance(physics):
    np.testing.assert_allclose(physics["drag"] + physics["drag_quadratic"] + physics["free slip"], 1.0, rtol=1e-8)
    assert physics["no slip"] < 1.01 / 144  # a parabola, but for the half cells next to the walls


def test_whole_run_is_the_same_on_two_ranks_and_tells_what_it_did(mpirun, tmp_path):
    grid, output = {"nx": 26, "ny": 17, "sides": "closed"}, {"every": 2e4, "single": False}
    start = {"kind": "hill", "radius": 1e5}
    cases = {
        "plain": {"grid": grid, "start": start, "time": {"end": 7e4, "monitor": 7}, "output": output},
        "stop": {"grid": grid, "start": start, "time": {"end": 1e9, "monitor": 5}, "output": output},
        "blow-up": {
            "grid": {**grid, "sides": "channel"},
            "start": {"kind": "jet", "speed": 10.0},
            "time": {"end": 1e8, "cfl": 0.86, "max_speed": 0.0, "monitor": 3},
        },
    }
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    for ranks in (1, 2):
        mpirun(ranks, "shallow_water_app.py", tmp_path)
    config = Config.model_validate(cases["plain"])
    dt = time_step(config)
    steps = step_count(config, dt)
    frames = [h5py.File(tmp_path / f"plain-{ranks}" / "output" / "fields.h5") for ranks in (1, 2)]
    n = 5
    for name, shape in (("elevation", (17, 26)), ("vorticity", (17, 26)), ("u", (17, 27)), ("v", (18, 26))):
        assert frames[0][name].shape == (n, *shape)
        np.testing.assert_array_equal(frames[0][name][:], frames[1][name][:])
    assert frames[0]["u"].dims[2].label == "x_face" or frames[0]["u"].dims[2][0].name == "/x_face"
    np.testing.assert_allclose(frames[0]["time"][:], [0, *(np.ceil(np.array([2, 4, 6]) * 1e4 / dt) * dt), 7e4])
    assert frames[0]["elevation"][0].max() == pytest.approx(0.1, rel=0.1)
    summary = json.loads((tmp_path / "plain-2" / "summary.json").read_text())
    assert (summary["status"], summary["steps"], summary["cells"]) == ("done", steps, 26 * 17)
    assert summary["simulated_seconds"] == 7e4
    assert abs(summary["conserved"]["mass"]["relative_change"]) < 1e-13
    assert abs(summary["conserved"]["energy"]["relative_change"]) < 1e-9
    assert summary["t_eff"] == pytest.approx(summary["cell_steps_per_second"] * BYTES_PER_CELL_STEP / 1e9)
    lines = [json.loads(line) for line in (tmp_path / "plain-2" / "metrics.jsonl").read_text().splitlines()]
    assert {*range(0, steps, 7), steps} <= {line["step"] for line in lines}
    expected = {"step", "time", "dt", "cfl", "mass", "energy", "enstrophy", "speed_max", "depth_min"}
    assert all(set(line) == expected for line in lines)
    assert lines[-1]["time"] == 7e4
    stopped = json.loads((tmp_path / "stop-2" / "summary.json").read_text())
    assert (stopped["status"], stopped["steps"]) == ("stopped", 2)  # two steps are one pass
    for ranks in (1, 2):
        report = (tmp_path / f"blow-up-{ranks}.txt").read_text()
        assert "Courant number" in report
        assert "set time.max_speed to" in report


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_valid(name):
    config = Config.model_validate({"app": "shallow_water", **PRESETS[name][1]})
    plan = dry_run(config, 6)
    assert 10 <= plan.frames <= 30
    assert plan.steps < 70_000
    width = 3 * 3 * 8
    assert plan.halo_bytes >= width * min(config.grid.nx, config.grid.ny) / 6
    assert dry_run(config, 1).halo_bytes == 0


def test_eddies_are_in_balance_and_as_fast_as_asked():
    config = Config.model_validate({"grid": {"nx": 96, "ny": 96}, "start": {"kind": "eddies", "speed": 1.5, "mode": 5}})
    surface, u, v = (sum(y[:, None] * x for y, x in terms) for terms in setups.start(config))
    assert np.sqrt((u**2 + v**2).mean()) == pytest.approx(1.5, rel=0.25)
    divergence = np.roll(u, -1, 1) - u + np.roll(v, -1, 0) - v
    assert np.abs(divergence).max() < 1e-13
    balance = 9.81 * (surface - np.roll(surface, 1, 1)) / config.grid.dx
    across = 0.25 * (v + np.roll(v, -1, 0) + np.roll(v, 1, 1) + np.roll(np.roll(v, -1, 0), 1, 1))
    np.testing.assert_allclose(balance, 1e-4 * across, atol=2e-6)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"physics": {"beta": 1e-11}}, "basin periodic in y"),
        ({"grid": {"slip": "none"}}, "needs walls"),
        ({"grid": {"slip": "none", "sides": "closed"}, "start": {"kind": "rest"}}, "viscosity above 0"),
        ({"time": {"cfl": 0.95}}, "waves of 31.3 m/s alone have a Courant number of 0.893.* at most 0.92"),
        ({"bottom": {"kind": "ridge", "height": 100.0}}, "reaches the surface"),
        ({"bottom": {"kind": "file"}, "start": {"kind": "file"}}, "bottom.file goes with.*\n.*start.file goes with"),
        ({"start": {"kind": "rest", "file": __file__}}, "start.file goes with start.kind = 'file'"),
        ({"start": {"kind": "hill", "amplitude": -100.0}}, "not below physics.depth"),
        ({"start": {"kind": "kelvin"}}, "needs grid.sides = 'channel'"),
        ({"start": {"kind": "poincare"}, "grid": {"sides": "channel"}}, "needs grid.sides = 'periodic'"),
        ({"start": {"kind": "eddies"}, "grid": {"sides": "closed"}}, "needs grid.sides = 'periodic'"),
        ({"start": {"kind": "jet"}, "grid": {"sides": "closed"}}, "flows along x"),
        ({"start": {"kind": "eddies", "mode": 65}}, "resolve at most 64"),
        ({"start": {"kind": "hill", "x": -1.0}}, "start.x of -1 m lies outside the basin, which is 1e\\+06 m in x"),
        ({"start": {"y": 2e6}}, "start.y of 2e\\+06 m lies outside"),
        ({"grid": {"width": 4e5}}, "start.x of 500000 m lies outside"),
        ({"bottom": {"kind": "seamount", "y": -1.0}}, "bottom.y of -1 m lies outside"),
        ({"physics": {"beta": 1e-11}, "grid": {"slip": "none"}}, "periodic in y.*\n.*needs walls"),
        ({"grid": {"nz": 5}}, "Extra inputs"),
    ],
)
def test_settings_that_cannot_be_are_refused(given, reason):
    with pytest.raises(ValidationError, match=reason):
        Config.model_validate(given)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (np.zeros((7, 5)), r"holds float64\[7, 5\], the grid has \[5, 7\] cells"),
        (np.full((5, 7), np.nan), "not finite"),
        (np.array([[0.0] * 6 + [200.0]] * 5), r"reaches 200 m at cell \(y 0, x 6\), the surface is 100 m above"),
    ],
)
def test_maps_that_do_not_fit_are_refused(tmp_path, given, reason):
    np.save(tmp_path / "map.npy", given)
    grid = {"nx": 7, "ny": 5}
    bottom = {"kind": "file", "file": str(tmp_path / "map.npy")}
    with pytest.raises(InputError, match=reason):
        dry_run(Config.model_validate({"grid": grid, "bottom": bottom}), 1)


def test_steps_reckon_with_the_deepest_water_of_a_map(tmp_path):
    np.save(tmp_path / "map.npy", np.linspace(-300.0, 50.0, 35).reshape(5, 7))
    bottom = {"kind": "file", "file": str(tmp_path / "map.npy")}
    config = {"grid": {"nx": 7, "ny": 5}, "start": {"kind": "rest", "amplitude": 0.0}}
    trench = {"kind": "ridge", "height": -300.0}
    steps = [time_step(Config.model_validate(config | {"bottom": each})) for each in (bottom, trench)]
    assert steps[0] == steps[1]


def test_a_map_is_gone_through_once_as_long_as_it_stays(tmp_path):
    path, config = tmp_path / "map.npy", {"grid": {"nx": 7, "ny": 5}}
    for height in (-30.0, -50.0):
        path.unlink(missing_ok=True)
        np.save(path, np.linspace(height, 5.0, 35).reshape(5, 7))
        os.utime(path, (0, -height))  # where clocks are coarse both have one time, and maybe one place on the disk
        before = topography._extremes.cache_info().misses
        made = Config.model_validate(config | {"bottom": {"kind": "file", "file": str(path)}})
        dry_run(made, 1)
        assert setups.deepest(made) == made.physics.depth - height + max(0.0, made.start.amplitude)
        assert setups.map_of(made, "bottom") is not None
        assert topography._extremes.cache_info().misses == before + 1
        assert topography.extremes(path) == (height, 5.0)


def test_dry_run_refuses_what_the_run_would():
    with pytest.raises(DecompositionError):
        dry_run(Config.model_validate({"grid": {"nx": 5, "ny": 5}}), 4)


def test_steps_are_as_long_as_waves_and_viscosity_allow():
    plain = Config.model_validate({"start": {"kind": "rest", "amplitude": 0.0}, "time": {"max_speed": 0.0}})
    dx = 1e6 / 256
    assert time_step(plain) == pytest.approx(0.6 * dx / np.sqrt(2 * 981))
    thick = plain.model_copy(update={"physics": plain.physics.model_copy(update={"viscosity": 1e6})})
    assert time_step(thick) == pytest.approx(0.6 * 2.5 * dx**2 / 8e6)
