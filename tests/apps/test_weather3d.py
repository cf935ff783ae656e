"""The weather3d app: equal bits on any number of ranks, conservation, rest, soundings, mistakes explained."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest
from conftest import by_day
from pydantic import ValidationError

from hpckit.apps.atmosphere.base import base_state
from hpckit.apps.atmosphere.profiles import neutral
from hpckit.apps.weather3d.config import PRESETS, Config
from hpckit.apps.weather3d.layout import dry_run
from hpckit.apps.weather3d.physics.tracers import start_of as tracer_start
from hpckit.apps.weather3d.run import BYTES_PER_CELL_STEP
from hpckit.apps.weather3d.setups import column_of, initial_state
from hpckit.bench.rivals import c
from hpckit.bench.weather.verb import TOLERANCE, BoxCase
from hpckit.errors import DecompositionError, InputError
from hpckit.kernels.euler.box.constants import RHO_THETA, RHO_U, RHO_V, RHO_W
from hpckit.run.steps import step_count
from hpckit.settings.config import load

# Those of the split dynamics are in test_hevi_runs.py.
EXPLICIT = {name: each for name, (_, each) in PRESETS.items() if each.get("dynamics", {}).get("kind") != "hevi"}
RUNS, MORE_RUNS = {1: "x", 3: "xy"}, {1: "x", 2: "y", 3: "xy", 4: "xb", 6: "b"}  # ranks, and their axes: x, y or both
TRACERS = [
    {"name": "air", "shape": "uniform", "amount": 0.0, "background": 0.25},
    {"name": "smoke", "x": 2000.0, "y": 19_000.0, "sharp": True},
    {"name": "haze", "shape": "layer", "z": 3000.0, "background": 0.5},
]
CORNER = {"amplitude": 10.0, "x": 2500.0, "y": 2000.0}
OPEN = ("open", "channel")
STILL = {"rest": 1e-11, "balanced_jet": 1e-5}  # and how still
SOUNDING = """959.0 298.9 14.6
   150.0 299.2 4.0 -4.0 8.0
  1300.0 301.9 4.0 4.0 12.0
  4100.0 313.0 4.0 17.0 9.0
  9700.0 331.0 4.0 36.0 2.0
"""


@pytest.fixture(scope="module")
def sounding(tmp_path_factory):
    path = tmp_path_factory.mktemp("soundings") / "input_sounding"
    path.write_text(SOUNDING)
    return str(path)


@pytest.mark.parametrize("runs", [RUNS, pytest.param(MORE_RUNS, marks=pytest.mark.nightly)], ids=str)
def test_any_number_of_ranks_gives_the_same_bits(mpirun, tmp_path, sounding, runs):
    """Every set-up on 27 x 29 columns (blocks of 8, 7, 7, 7 along x on four ranks), the whole app, and the refusals."""
    grid = {"nx": 29, "ny": 27, "nz": 11}
    cases = {name: {**each, "grid": {**each.get("grid", {}), **grid}} for name, each in EXPLICIT.items()}
    cases["sounding3d"] |= {
        "grid": {**grid, "height": 9500.0},
        "base": {"kind": "sounding", "file": sounding, "wind": True},
        "coriolis": 1e-2,
        "diffusion": 300.0,
    }
    cases["rest"] = {**cases["sounding3d"], "bubbles": []}
    for name in ("thermal3d", "rest"):
        cases[name] |= {"tracers": TRACERS}
    cases["walls"] = {
        "grid": grid,
        "tracers": TRACERS,
        "sides": {"x": "walls", "y": "walls"},
        "bubbles": [CORNER],
        "diffusion": 300.0,
        "smagorinsky": {"coefficient": 0.25},
        "drag": 0.01,
    }
    cases["open"] = {
        "grid": grid,
        "base": {"kind": "stable", "u": 8.0, "v": -5.0},
        "sides": {"x": "open", "y": "open"},
        "lid": {"depth": 4000.0},
        "tracers": TRACERS,
        "bubbles": [CORNER],
        "smagorinsky": {"coefficient": 0.25, "prandtl": 1.0},
    }
    cases["channel"] = {"grid": grid, "sides": {"x": "open", "y": "walls"}, "base": {"u": 20.0}, "bubbles": [CORNER]}
    if runs == RUNS:
        cases = {name: cases[name] for name in ("sounding3d", "rest", "walls", "open")}  # each kind of side and of air
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    for ranks in runs:
        mpirun(ranks, "weather3d_ranks.py", tmp_path, timeout=240)
    for name in cases:
        one = np.load(tmp_path / f"{name}-1x.npz")
        assert one["state"].shape == (5, 11, 27, 29)
        for ranks, axes in runs.items():
            for axis in axes:
                many = np.load(tmp_path / f"{name}-{ranks}{axis}.npz")
                assert tuple(many["sizes"]) == {"x": (1, 1, ranks), "y": (1, ranks, 1), "b": (1, 2, ranks // 2)}[axis]
                np.testing.assert_array_equal(many["state"], one["state"], err_msg=f"{name}, {ranks} ranks on {axis}")
                np.testing.assert_allclose(many["watch"], one["watch"], rtol=1e-12, atol=1e-12)
                if "tracers" in one:
                    np.testing.assert_array_equal(many["tracers"], one["tracers"], err_msg=f"{name} {ranks} {axis}")
        if "tracers" in one:
            tracers_are_sound(cases[name], one["state"], one["tracers"])
        start = start_of(cases[name])
        if name in STILL:
            assert np.abs(one["state"] - start).max() < STILL[name]
            continue
        assert np.abs(one["state"][RHO_W]).max() > 1e-4, f"{name} does not move"
        volume = np.prod([size / count for size, count in zip((20e3, 20e3, 10e3), (29, 27, 11), strict=True)])
        entered = one["watch"][9:11].sum() / volume if name in OPEN else 0.0
        assert abs((one["state"] - start)[0].sum() - entered) < 1e-13 * start_mass(cases[name])
        if name in OPEN:
            assert (np.abs(one["watch"][9:11]) > 1e-9 * start_mass(cases[name]) * volume).all(), one["watch"]
    whole_runs(tmp_path, max(runs))


def tracers_are_sound(settings: dict, state: np.ndarray, tracers: np.ndarray) -> None:
    """What is uniform stays so, nothing new arises, and all that was there is there unless the sides are open."""
    np.testing.assert_allclose(tracers[0], 0.25, rtol=1e-14)
    assert (tracers.min(axis=(1, 2, 3)) >= (0.25 - 1e-14, 0, 0.5 - 1e-14)).all()
    assert (tracers.max(axis=(1, 2, 3)) <= np.array((0.25, 1, 1.5)) + 1e-14).all()
    config = Config.model_validate(settings)
    base = base_state(column_of(config.base), config.grid.nz, config.grid.dz).column[0][:, None, None]
    grid = config.grid
    z, y, x = ((np.arange(n) + 0.5) * d for n, d in ((grid.nz, grid.dz), (grid.ny, grid.dy), (grid.nx, grid.dx)))
    for number in (1, 2):
        first = tracer_start(config.tracers[number], config, z[:, None, None], y[:, None], x)
        assert number == 2 or np.abs(tracers[number] - first).max() > 1e-9
        if "open" not in settings.get("sides", {}).values():
            before, after = (first * (start_of(settings)[0] + base)).sum(), (tracers[number] * (state[0] + base)).sum()
            assert after == pytest.approx(before, rel=1e-14)


def start_of(settings: dict) -> np.ndarray:
    config = Config.model_validate(settings)
    profile = column_of(config.base)
    base = base_state(profile, config.grid.nz, config.grid.dz)
    return initial_state(config, profile, base, np.arange(config.grid.ny), np.arange(config.grid.nx))


def start_mass(settings: dict) -> float:
    config = Config.model_validate(settings)
    base = base_state(column_of(config.base), config.grid.nz, config.grid.dz)
    return base.column[0].sum() * config.grid.nx * config.grid.ny


def whole_runs(folder, most) -> None:
    """What the app's runs on 1 and on most ranks left."""
    files = [h5py.File(folder / f"whole-{ranks}" / "output" / "fields.h5") for ranks in (1, most)]
    for name in ("theta", "u", "v", "w", "rho"):
        assert files[0][name].shape == (3, 8, 19, 17)
        np.testing.assert_array_equal(files[0][name][:], files[1][name][:])
    config = Config.model_validate({"grid": {"nx": 17, "ny": 19, "nz": 8}, "time": {"end": 40.0}})
    dt = min(config.grid.dx, config.grid.dy, config.grid.dz) / 400 * 1.25
    summary = json.loads((folder / f"whole-{most}" / "summary.json").read_text())
    assert (summary["status"], summary["steps"]) == ("done", step_count(config, dt))
    assert summary["cells"] == 17 * 19 * 8
    assert abs(summary["conserved"]["mass"]["relative_change"]) < 1e-13
    assert summary["t_eff"] == pytest.approx(summary["cell_steps_per_second"] * BYTES_PER_CELL_STEP / 1e9)
    lines = [json.loads(line) for line in (folder / f"whole-{most}" / "metrics.jsonl").read_text().splitlines()]
    assert set(lines[0]) == {"step", "time", "dt", "cfl", "mass", "energy", "w_max", "theta_min", "theta_max"}
    assert lines[0]["theta_max"] == pytest.approx(3, abs=1)
    stopped = json.loads((folder / f"stop-{most}" / "summary.json").read_text())
    assert (stopped["status"], stopped["steps"]) == ("stopped", 1)


QUICK = "inertial_oscillation", "wind_blows_through", "walls_are_mirrors", "shear_wave_decays"


@pytest.mark.parametrize("checks", by_day([(QUICK,), ((),)], (QUICK,)), ids=["quick", "all"])
def test_physics(mpirun, checks):
    """Oscillation, balance, waves, sponges, walls, tracers: the program says what of it is wrong."""
    mpirun(1, "weather3d_physics.py", *checks, timeout=240)


def test_presets_are_valid_and_their_arrays_are_right():
    for name, settings in EXPLICIT.items():
        if name == "sounding3d":
            continue
        config = Config.model_validate({"app": "weather3d", **settings})
        plan = dry_run(config, 2)
        assert plan.frames == 11
        if len(config.bubbles) == 0 and name != "jet":
            continue
        exchanges = 2 if config.diffusion else 1
        assert plan.halo_bytes == exchanges * 2 * 6 * 5 * 8 * config.grid.nz * (config.grid.nx + 12)
        small = Config.model_validate({**settings, "grid": {"nx": 40, "ny": 42, "nz": 20}})
        start = start_of({**settings, "grid": {"nx": 40, "ny": 42, "nz": 20}})
        base = base_state(neutral(300.0), 20, small.grid.dz)
        theta = start[RHO_THETA] / base.column[0][:, None, None]
        for bubble in small.bubbles:
            middle = round(bubble.z / small.grid.dz), 21, 20
            assert theta[middle] == pytest.approx(bubble.amplitude, rel=0.2)
            assert theta[0, 0, 0] == 0
        u, v = (start[field] / base.column[0][:, None, None] for field in (RHO_U, RHO_V))
        assert u.max() == pytest.approx(small.jet.speed, rel=0.05)
        assert np.abs(v).max() == pytest.approx(small.jet.wobble if small.jet.speed else 0, rel=0.05)


def test_the_sounding_blows_from_where_it_was_observed(sounding):
    given = {"grid": {"nx": 8, "ny": 7, "nz": 45, "height": 9000.0}, "bubbles": []}
    start = start_of({**given, "base": {"kind": "sounding", "file": sounding, "wind": True}})
    base = base_state(neutral(300.0), 45, 200.0)
    level = np.searchsorted(base.height, 1300.0)
    ratio = start[RHO_V, level] / start[RHO_U, level]
    np.testing.assert_allclose(ratio, 12 / 4, rtol=0.05)
    uniform = start_of({**given, "base": {"u": 3.0, "v": -6.0}})
    np.testing.assert_allclose(uniform[RHO_V], -2 * uniform[RHO_U])


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"base": {"kind": "sounding"}}, "set base.file"),
        ({"base": {"wind": True}}, "belongs to a sounding"),
        ({"jet": {"speed": 5.0, "balanced": True}}, "jet.balanced needs a Coriolis force and walls"),
        ({"time": {"cfl": 1.6}}, "time.cfl = 1.6 is unstable.* at most 1.55"),
        ({"band": {"amplitude": 1.0}}, "band.x of 100000 m lies outside the box"),
        ({"bubbles": [{"y": 20_001.0}]}, "bubbles.0 at x 10000 m, y 20001 m"),
        ({"sides": {"x": "walls"}, "base": {"u": 1.0}}, "sides.x are walls, and the wind of base.u blows"),
        ({"sides": {"y": "open", "width": 10_000.0}}, "leaves no interior in y, which is 20000 m"),
        ({"tracers": [{"name": "dust", "x": -1.0}]}, "tracers.0 at x -1 m, y 10000 m, z 2000 m lies outside"),
        ({"tracers": [{"name": "dust", "shape": "layer", "z": 2e4}]}, "z 20000 m lies outside"),
        ({"wave": {"amplitude": 1.0, "along": "y"}, "base": {"kind": "isothermal"}}, "wave.x of 100000 m lies outside"),
        ({"tracers": [{"name": "theta"}]}, "tracers.0.name = 'theta' is taken"),
        ({"tracers": [{"name": "smoke"}, {"name": "smoke"}]}, "tracers.1.name = 'smoke' is taken by tracers.0"),
        ({"tracers": [{"name": "Smoke 1"}]}, "String should match pattern"),
        ({"lid": {"depth": 1e4}}, "lid.depth of 10000 m fills the box"),
        ({"jet": {"speed": 5.0, "z": 11_000.0}}, "move jet.y or jet.z"),
        ({"diffusion": 1e5}, "diffusion = 100000 m2/s is unstable"),
        ({"grid": {"ny": 5}}, "greater than or equal to 6"),
        ({"inflow": {}}, "Extra inputs"),
    ],
)
def test_settings_that_cannot_be_are_refused(given, reason):
    with pytest.raises(ValidationError, match=reason):
        Config.model_validate(given)


def test_all_mistakes_are_told_at_once():
    with pytest.raises(InputError) as caught:
        load("thermal3d", ["sides.x=walls", "base.u=3.0", "lid.depth=1e5", "diffusion=1e6", "jet.speed=1", "jet.z=-1"])
    text = str(caught.value)
    assert text.startswith("4 mistakes")
    for part in ("sides.x are walls", "lid.depth of", "diffusion = 1e+06", "move jet.y or jet.z"):
        assert part in text


def test_dry_run_refuses_what_the_run_would():
    with pytest.raises(DecompositionError):
        dry_run(Config.model_validate({"grid": {"nx": 11, "ny": 17}}), 3)
    assert (
        dry_run(Config.model_validate({"grid": {"nx": 11, "ny": 18}}), 3).decomposition[1].startswith("1 x 3 x 1 ranks")
    )


def test_c_version_computes_the_same():
    library = c.build("euler3d.c")
    if library is None:
        pytest.skip("no C compiler")
    box = BoxCase(33, 29, 22)
    box.run(20)
    box.run_c(library, 20)
    assert 0 < box.difference() < TOLERANCE
