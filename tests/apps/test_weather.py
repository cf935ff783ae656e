"""The weather app: the mini-app's figures, equal bits on any number of ranks, rest stays rest, mistakes explained."""

from __future__ import annotations

import importlib
import json
import math

import h5py
import numpy as np
import pytest
from conftest import by_day, made_once
from mpi4py import MPI
from pydantic import ValidationError

from hpckit.apps.atmosphere.base import base_state
from hpckit.apps.atmosphere.profiles import isothermal, neutral, profile_of
from hpckit.apps.atmosphere.stability import stable_cfl
from hpckit.apps.exact.gravity_waves import WaveChannel, waves
from hpckit.apps.weather.config import PRESETS, Config
from hpckit.apps.weather.layout import dry_run
from hpckit.apps.weather.run import BYTES_PER_CELL_STEP
from hpckit.apps.weather.setups import inflow_rows, initial_state, vertical_force
from hpckit.bench.rivals import c as c_rival
from hpckit.bench.weather.verb import TOLERANCE, SlabCase
from hpckit.errors import DecompositionError, InputError
from hpckit.io import open_fields
from hpckit.kernels.euler.constants import CP, GRAVITY, HALO, RD, RHO, RHO_THETA, RHO_U, Sweep
from hpckit.kernels.euler.slab.dispatch import sweep_x, sweep_z
from hpckit.kernels.euler.status import new_status
from hpckit.run.context import Run
from hpckit.run.steps import is_frame, step_count

COLUMNS = "PRES HGHT TEMP DWPT RELH MIXR DRCT SKNT THTA THTE THTV"
NONE, NO_INFLOW = np.zeros((0, 0)), np.zeros((2, 0))


def wrf_sounding() -> str:
    """An invented column with an inversion, a jet and a stratosphere."""
    z = np.array([0, 150, 400, 900, 1300, 1500, 2600, 4100, 6000, 8200, 9700, 11_000, 14_000.0])
    theta = np.array([299, 299.2, 299.4, 300.5, 301.9, 306.3, 309.1, 313, 318.4, 324.9, 331, 344, 391])
    u = np.array([-3, -4, -2, 1, 4, 9, 13, 17, 22, 31, 36, 30, 18.0])
    rows = [f"{a:9.1f} {b:8.2f} 4.0 {c:7.2f} 1.0" for a, b, c in zip(z, theta, u, strict=True)]
    return "959.0 298.9 14.6\n" + "\n".join(rows) + "\n"


def wyoming_sounding() -> str:
    """The same in the listing's form, on heights above sea level."""
    rows = []
    pressure = [959.0, 942.6, 915.8, 864.1, 824.4, 805.3, 706.0, 585.8, 455.5, 333.7, 265.3, 216.0, 131.2]
    for p, line in zip(pressure, wrf_sounding().splitlines()[1:], strict=True):
        z, theta, _, u, _ = map(float, line.split())
        words = (p, round(z) + 345, 0.0, 0.0, 50, 4.0, 270 if u >= 0 else 90, abs(u) / 0.514444, theta, theta, theta)
        rows.append("".join(f"{word:7.1f}" for word in words))
    names = "".join(f"{name:>7}" for name in COLUMNS.split())
    return f"{'-' * 77}\n{names}\n{'-' * 77}\n 1000.0     -7\n" + "\n".join(rows) + "\n"


@pytest.fixture(scope="module")
def soundings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("soundings")
    paths = folder / "input_sounding", folder / "wyoming.txt"
    paths[0].write_text(wrf_sounding())
    paths[1].write_text(wyoming_sounding())
    return [str(path) for path in paths]


@pytest.mark.parametrize("counts", [(1, 4), pytest.param((1, 2, 3), marks=pytest.mark.nightly)], ids=str)
def test_any_number_of_ranks_gives_the_same_bits(mpirun, tmp_path, soundings, counts):
    """Every set-up on 29 columns (blocks of 8, 7, 7, 7 on four ranks), and the refusals, which are collective."""
    grid = {"nx": 29, "nz": 13}
    cases = {
        name: {**settings, "grid": {**settings.get("grid", {}), **grid}}
        for name, (_, settings) in PRESETS.items()
        if name != "sounding"
    }
    # The force reaches over the edges of blocks and around the slab.
    cases["gravity_waves"] |= {"source": {"amplitude": 0.01, "x": 300.0, "radius_x": 6000.0}, "compat": True}
    cases["steady force"] = cases["gravity_waves"] | {"compat": False}
    cases["sounding"] = {
        "grid": {**grid, "height": 9500.0},
        "base": {"kind": "sounding", "file": soundings[1], "wind": True, "virtual": True},
    }
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    for ranks in counts:
        mpirun(ranks, "weather_ranks.py", tmp_path)
    for name in cases:
        one = np.load(tmp_path / f"{name}-1.npz")
        assert one["state"].shape == (4, 13, 29)
        assert np.abs(one["state"][2]).max() > 0, f"{name} does not move"
        for ranks in counts[1:]:
            many = np.load(tmp_path / f"{name}-{ranks}.npz")
            np.testing.assert_array_equal(many["state"], one["state"], err_msg=f"{name} on {ranks} ranks")
            np.testing.assert_allclose(many["watch"], one["watch"], rtol=1e-13)
            np.testing.assert_array_equal(many["watch"][2:], one["watch"][2:])


@pytest.fixture
def physics(mpirun, tmp_path_factory, soundings):
    """Figures of longer runs, made once; on one rank, for others give the same bits."""

    def make(folder):
        folder.mkdir()
        mpirun(1, "weather_physics.py", folder, *soundings, timeout=120)

    folder = made_once(tmp_path_factory, "weather_physics", make)
    return json.loads((folder / "physics.json").read_text())


GOLDEN = {  # what the mini-app itself prints for the relative change of its total energy
    "golden thermal 100x50": -4.141519e-05,
    "golden thermal 200x100": -9.067297e-06,
    "golden collision 200x100": 3.163635e-04,
    "golden gravity_waves 100x50": -1.536896e-07,
}


@pytest.mark.parametrize("name", GOLDEN)
def test_energies_are_those_of_the_mini_app(physics, name):
    assert physics[name]["energy"] == pytest.approx(GOLDEN[name], rel=1e-6)


def test_extremes_are_those_of_the_mini_app(physics):
    assert physics["golden thermal 200x100"]["theta"] == pytest.approx([-0.02624, 2.98885], abs=6e-6)
    assert physics["golden collision 200x100"]["theta"] == pytest.approx([-20.77646, 23.33005], abs=6e-6)


@pytest.mark.parametrize("name", ["thermal", "collision", "density_current", "gravity_waves"])
def test_closed_set_ups_keep_their_mass(physics, name):
    assert abs(physics[name]["mass"]) < 1e-13
    assert physics[name]["w_max"] > 1e-3


def test_a_symmetric_thermal_stays_symmetric(physics):
    assert physics["asymmetry"] < 1e-9


def test_injection_brings_mass_and_cold(physics):
    assert physics["injection"]["mass"] > 1e-4
    assert physics["injection"]["theta"][0] == pytest.approx(-2, abs=1)


@pytest.mark.parametrize("form", [0, 1])
def test_an_observed_sounding_at_rest_stays_at_rest(physics, form):
    """200 steps: nothing moves by 1e-10; without a wind not at all."""
    assert physics[f"rest {form} calm"] == [0, 0, 0, 0]
    assert max(physics[f"rest {form} wind"]) < 1e-10
    assert physics[f"wind {form}"] > 30


def test_smooth_bubble_converges_in_second_order():
    """While no sound reaches the walls, whose outer rows are of lower order: splitting and the means over cells of
    products of means are of second order, the rest is higher and does not show.
    """

    def run(nx: int, end: float = 6.0) -> np.ndarray:
        nz, dx = nx // 2, 20_000.0 / nx
        base = base_state(neutral(300.0), nz, dx)
        x, z = (np.arange(nx) + 0.5) * dx, base.height[:, None]
        state = np.zeros((4, nz, nx + 2 * HALO))
        heat = 2.0 * np.exp(-(((x - 10_000) / 2500) ** 2) - ((z - 5000) / 1600) ** 2)
        state[RHO_THETA, :, HALO:-HALO] = base.column[0][:, None] * heat
        steps, status = nx // 4, new_status(state)
        numbers = Sweep(dx, end / steps, 0.05, 1)
        for step in range(steps):
            for direction in "xz" if step % 2 == 0 else "zx":
                if direction == "x":
                    state[..., :HALO], state[..., -HALO:] = state[..., -2 * HALO : -HALO], state[..., HALO : 2 * HALO]
                    sweep_x(state, state, base.column, NONE, NO_INFLOW, True, True, numbers, status)
                else:
                    sweep_z(state, state, base.faces, base.ghost, NONE, numbers, status)
        return state[..., HALO:-HALO]

    fine = [run(nx) for nx in (64, 128, 256, 512)]
    coarse = [np.add.reduce([s[:, i::2, j::2] for i in (0, 1) for j in (0, 1)]) / 4 for s in fine[1:]]
    errors = np.array([np.abs(a - b).mean(axis=(1, 2)) for a, b in zip(fine[:-1], coarse, strict=True)])
    orders = np.log2(errors[:-1] / errors[1:])
    assert (orders > 1.8).all(), orders


def test_c_version_computes_the_same():
    library = c_rival.build("euler2d.c")
    if library is None:
        pytest.skip("no C compiler")
    slab = SlabCase(60, 32)
    slab.run(30)
    slab.run_c(library, 30)
    assert 0 < slab.difference() < TOLERANCE


def test_whole_run_is_the_same_on_two_ranks_and_tells_what_it_did(mpirun, tmp_path):
    grid, output = {"nx": 26, "nz": 12}, {"every": 20.0, "single": False}
    cases = {
        "plain": {"grid": grid, "time": {"end": 70.0, "monitor": 7}, "output": output},
        "stop": {"grid": grid, "time": {"end": 1e4, "monitor": 5}, "output": output},
        "blow-up": {"grid": grid, "bubbles": [{"amplitude": -60.0}], "time": {"end": 1e3, "cfl": 1.7, "monitor": 3}},
    }
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    for ranks in (1, 2):
        mpirun(ranks, "weather_app.py", tmp_path)
    config = Config.model_validate(cases["plain"])
    dt = min(config.grid.dx, config.grid.dz) / 450 * 1.5
    steps = step_count(config, dt)
    frames = [h5py.File(tmp_path / f"plain-{ranks}" / "output" / "fields.h5") for ranks in (1, 2)]
    for name, shape in (("theta", (5, 12, 26)), ("u", (5, 12, 26)), ("w", (5, 12, 26)), ("rho", (5, 12, 26))):
        assert frames[0][name].shape == shape
        np.testing.assert_array_equal(frames[0][name][:], frames[1][name][:])
    times = frames[0]["time"][:]
    np.testing.assert_allclose(times, [0, *(np.ceil(np.array([20, 40, 60]) / dt) * dt), 70.0])
    summary = json.loads((tmp_path / "plain-2" / "summary.json").read_text())
    assert summary["status"] == "done"
    assert summary["steps"] == steps
    assert summary["cells"] == 26 * 12
    assert summary["simulated_seconds"] == 70.0
    assert abs(summary["conserved"]["mass"]["relative_change"]) < 1e-13
    assert summary["t_eff"] == pytest.approx(summary["cell_steps_per_second"] * BYTES_PER_CELL_STEP / 1e9)
    lines = [json.loads(line) for line in (tmp_path / "plain-2" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == sorted({*range(0, steps, 7), steps})
    assert set(lines[0]) == {"step", "time", "dt", "cfl", "mass", "energy", "w_max", "theta_min", "theta_max"}
    assert lines[-1]["time"] == 70.0
    stopped = json.loads((tmp_path / "stop-2" / "summary.json").read_text())
    assert (stopped["status"], stopped["steps"]) == ("stopped", 1)
    assert stopped["simulated_seconds"] == pytest.approx(dt)
    for ranks in (1, 2):
        report = (tmp_path / f"blow-up-{ranks}.txt").read_text()
        assert "Courant number" in report
        assert "set time.cfl to at most" in report
        assert "step 0" not in report


def test_presets_are_valid_and_their_arrays_are_right():
    for name, (_, settings) in PRESETS.items():
        if name == "sounding":
            continue
        config = Config.model_validate({"app": "weather", **settings})
        plan = dry_run(config, 2)
        assert plan.frames == 11
        assert plan.halo_bytes == 2 * 6 * 4 * 8 * config.grid.nz
        base = base_state(neutral(300.0), config.grid.nz, config.grid.dz)
        columns = np.arange(config.grid.nx)
        start = initial_state(config, neutral(300.0), base, columns)
        total = base.column[0][:, None] + start[RHO]
        theta = (base.column[1][:, None] + start[RHO_THETA]) / total - base.theta[:, None]
        for bubble in config.bubbles:
            row, column = round(bubble.z / config.grid.dz), round(bubble.x / config.grid.dx)
            ratio = 1 - GRAVITY * bubble.z / (CP * 300.0) if bubble.of == "temperature" else 1.0
            assert theta[row, column] == pytest.approx(bubble.amplitude / ratio, rel=8e-3)
            moved = RHO_THETA if bubble.keeps == "density" else RHO  # where the pressure is kept, rho theta is
            assert [field for field in range(4) if np.abs(start[field]).max() > 0] == [moved]
        assert bool(vertical_force(config, base, columns).size) == (name == "gravity_waves")
        assert inflow_rows(config, base).shape == ((2, 200) if name == "injection" else (2, 0))


def test_the_wave_starts_as_the_exact_one():
    config = Config.model_validate({**PRESETS["linear_waves"][1], "app": "weather"})
    grid, profile = config.grid, profile_of(config.base)
    base = base_state(profile, grid.nz, grid.dz)
    start = initial_state(config, profile, base, np.arange(grid.nx))
    total = base.column[0][:, None] + start[RHO]
    theta = base.column[1][:, None] / total - base.theta[:, None]
    channel = WaveChannel(grid.width, grid.height, 250.0, 20.0, 0.01, 100_000.0, 5_000.0, 0.0, GRAVITY, RD, CP)
    exact = waves(channel, 0.0, (np.arange(grid.nx) + 0.5) * grid.dx, base.height)["theta"]
    assert np.abs(theta - exact).max() < 5e-3 * exact.max()  # means over cells, not their middles
    np.testing.assert_allclose(start[RHO_U] / total, 20.0, rtol=1e-14)
    assert not start[RHO_THETA].any()
    with pytest.raises(ValidationError, match="needs an isothermal base state"):
        Config.model_validate({"wave": {"amplitude": 0.01}})
    with pytest.raises(ValidationError, match="is unstable with steps of"):
        Config.model_validate({"diffusion": 1e5})


def test_the_isothermal_column():
    profile, z = isothermal(250.0, 3.0), np.array([0.0, 5000.0])
    pressure = profile.pressure(z)
    assert pressure[0] == 1e5
    np.testing.assert_allclose(profile.theta(z) * (pressure / 1e5) ** (RD / CP), 250.0)
    assert profile.pressure(z + 1)[1] - pressure[1] == pytest.approx(-GRAVITY * pressure[1] / (RD * 250.0), rel=1e-4)


def test_the_force_of_compat_is_three_times_that_of_the_default():
    given = {**PRESETS["gravity_waves"][1], "grid": {"nx": 80, "nz": 40}}
    base, columns = base_state(neutral(300.0), 40, 250.0), np.arange(80)
    plain, compat = (
        vertical_force(Config.model_validate({**given, "compat": c}), base, columns) for c in (False, True)
    )
    assert plain.max() == pytest.approx(0.01 * base.column[0][3], rel=0.3)
    np.testing.assert_array_equal(compat, 3 * plain)


def mini_app_start(nx: int, nz: int) -> np.ndarray:
    """The momentum rho u at the start of miniWeather's mountain waves, float64[nz, nx], written from its C++ program
    (its case `DATA_SPEC_GRAVITY_WAVES`): the hydrostatic density times 15 m/s at 3 x 3 Gauss points a cell.
    """
    points = [0.112701665379258311482073460022, 0.5, 0.887298334620741688517926539980]
    weights = [0.277777777777777777777777777779, 0.444444444444444444444444444444, 0.277777777777777777777777777779]
    found = np.zeros((nz, nx))
    for k in range(nz):
        for point, weight in zip(points, weights, strict=True):
            z = (k + 0.5) * 1e4 / nz + (point - 0.5) * 1e4 / nz
            theta = 300.0 * math.exp(0.02**2 / 9.8 * z)
            exner = 1.0 - 9.8 * 9.8 / (1004.0 * 0.02**2) * (theta - 300.0) / (theta * 300.0)
            rho_theta = (1e5 * exner ** (1004.0 / 287.0) / 27.5629410929725921310572974482) ** (
                1 / 1.40027894002789400278940027894
            )
            found[k] += rho_theta / theta * 15.0 * weight * sum(weights)
    return found


def test_the_mountain_waves_of_compat_start_as_those_of_the_mini_app():
    settings = {**PRESETS["gravity_waves"][1], "grid": {"nx": 20, "nz": 10}, "compat": True}
    config = Config.model_validate(settings)
    profile = profile_of(config.base)
    base = base_state(profile, 10, config.grid.dz, compat=True)
    start = initial_state(config, profile, base, np.arange(20))
    np.testing.assert_allclose(start[RHO_U], mini_app_start(20, 10), rtol=1e-14)
    assert not start[[RHO, RHO_THETA]].any()


def test_the_jet_of_compat_has_the_steps_of_the_mini_app():
    injection = PRESETS["injection"][1]
    assert [Config.model_validate({**injection, "compat": it}).time.cfl for it in (True, False)] == [1.5, 1.35]
    given = {**injection, "time": {"end": 800.0, "cfl": 1.2}}
    assert Config.model_validate(given).time.cfl == 1.2


def test_inflow_rows_are_those_of_the_mini_app():
    config = Config.model_validate({**PRESETS["injection"][1], "grid": {"nx": 100, "nz": 64}})
    rows = inflow_rows(config, base_state(neutral(300.0), 64, config.grid.dz))
    z = (np.arange(64) + 0.5) * config.grid.dz
    inside = np.abs(z - 7500) <= 625
    np.testing.assert_array_equal(rows, [50.0 * inside, 298.0 * inside])


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"base": {"kind": "sounding"}}, "set base.file"),
        ({"base": {"wind": True}}, "belongs to a sounding"),
        ({"time": {"cfl": 99.0}}, "sound, 347 m/s, passes 76.4 cells in a step.* 1.346 with beta = 0.05: at most 1.74"),
        ({"bubbles": [{"z": 20_000.0}]}, "bubbles.0 at x 10000 m, z 20000 m lies outside"),
        ({"source": {"amplitude": 0.01, "x": -5.0}}, "source at x -5 m"),
        ({"inflow": {"speed": 50.0, "z": 12_000.0}}, "inflow.z of 12000 m"),
        ({"wave": {"amplitude": 0.01, "x": 2e5}, "base": {"kind": "isothermal"}}, "wave.x of 200000 m lies outside"),
        ({"bubbles": [{"x": -1.0}], "diffusion": 1e9}, "bubbles.0 at x -1 m.*\n.*is unstable"),
        ({"grid": {"nx": 5}}, "greater than or equal to 6"),
        ({"grid": {"ny": 5}}, "Extra inputs"),
    ],
)
def test_settings_that_cannot_be_are_refused(given, reason):
    with pytest.raises(ValidationError, match=reason):
        Config.model_validate(given)


def test_dry_run_refuses_what_the_run_would(soundings):
    with pytest.raises(DecompositionError):
        dry_run(Config.model_validate({"grid": {"nx": 29}}), 5)
    base = {"kind": "sounding", "file": soundings[0]}
    with pytest.raises(InputError, match="ends at 14000 m"):
        dry_run(Config.model_validate({"grid": {"height": 15_000.0}, "base": base}), 2)
    longer = {"grid": {"height": 15_000.0}, "base": {**base, "extrapolate": True}}
    assert dry_run(Config.model_validate(longer), 2).steps == 6000


def test_frames_and_steps():
    config = Config.model_validate({"time": {"end": 10.0}, "output": {"every": 2.0}})
    assert step_count(config, 0.5) == 20
    assert step_count(config, 0.3) == 34
    assert [step for step in range(1, 21) if is_frame(config, 0.5, step, 20)] == [4, 8, 12, 16, 20]
    assert [step for step in range(1, 35) if is_frame(config, 0.3, step, 34)] == [7, 14, 20, 27, 34]


def test_stability_limit():
    assert stable_cfl(0.0) == pytest.approx(np.sqrt(3) / 1.37222, rel=1e-4)
    assert stable_cfl(0.05) == pytest.approx(1.3455, abs=1e-3)


@pytest.mark.parametrize("app", by_day(["weather", "weather3d"], "weather"))
def test_full_fields_and_the_base_state_are_in_the_file(tmp_path, app):
    """Deviation and base state give the full field, and the three full ones fit together (Exner's function)."""
    xarray = pytest.importorskip("xarray")
    names = ("theta_total", "temperature", "pressure")
    grid = {"nx": 12, "nz": 8, "width": 3000.0, "height": 2000.0}
    bubble = {"amplitude": 5.0, "x": 1500.0, "z": 1000.0, "radius_x": 700.0, "radius_z": 500.0}
    if app == "weather3d":
        grid, bubble = {**grid, "ny": 6, "length": 1500.0}, {**bubble, "y": 700.0, "radius_y": 700.0}
    module = importlib.import_module(f"hpckit.apps.{app}.config")
    files = {"fields": names, "single": False}
    config = module.Config.model_validate(
        {"grid": grid, "base": {"kind": "stable", "u": 3.0}, "bubbles": [bubble], "time": {"end": 0}, "output": files}
    )
    importlib.import_module(f"hpckit.apps.{app}.run").run(config, Run(MPI.COMM_SELF, tmp_path / "r", app=app))
    with open_fields(tmp_path / "r") as fields:
        one = fields.isel(time=0)
        theta, temperature, pressure = (one[name] for name in names)
        xarray.testing.assert_allclose(one["theta"] + one["theta_base"], theta, rtol=1e-12)
        assert float(one["theta"].max()) > 3.0
        exner = (pressure / 1e5) ** (287 / 1004)
        xarray.testing.assert_allclose(theta * exner, temperature, rtol=1e-9)
        rho = one["rho"] + one["rho_base"]
        xarray.testing.assert_allclose(pressure / (287 * temperature), rho, rtol=1e-12)
        still = one["theta"].isel(x=0, **({"y": 0} if app == "weather3d" else {}))
        assert abs(float(still.max())) < 1e-9  # there the air is that of the base state
        column = pressure.isel(x=0, **({"y": 0} if app == "weather3d" else {}))
        np.testing.assert_allclose(column, one["pressure_base"], rtol=1e-9)
