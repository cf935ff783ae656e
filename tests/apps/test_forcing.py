"""Fluxes at the ground and large-scale forcings of the box: known tendencies, closed budgets, a convective layer."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest
from mpi4py import MPI
from pydantic import ValidationError

from hpckit.apps.atmosphere.settings import Radiation
from hpckit.apps.weather3d import report
from hpckit.apps.weather3d.config import PRESETS, Config
from hpckit.apps.weather3d.model import mesh_for
from hpckit.apps.weather3d.physics.forcing import levels_of
from hpckit.apps.weather3d.physics.radiation import flux, inversion, warming
from hpckit.apps.weather3d.run import run as run_app
from hpckit.apps.weather3d.split.model import SplitModel
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.kernels.euler.box.constants import RHO_U, RHO_V
from hpckit.kernels.euler.constants import CP, RD
from hpckit.report.extension import app_sections
from hpckit.report.run_data import load_run
from hpckit.run.context import Run

GRID = {"nx": 8, "ny": 7, "nz": 10, "width": 800.0, "length": 700.0, "height": 1000.0}
STILL = {"grid": GRID, "dynamics": {"kind": "hevi", "step": 1.0}, "bubbles": []}


def made(**settings) -> SplitModel:
    config = Config.model_validate({**STILL, "base": {"kind": "stable", "frequency": 0.01}, **settings})
    return SplitModel(config, mesh_for(config, MPI.COMM_SELF))


def forced(model: SplitModel, dt: float) -> tuple[np.ndarray, np.ndarray]:
    """Theta before and after the forcings alone act over dt."""
    before = model.output()["theta"]
    carried = model.carried.field.data if model.is_moist else None
    model.exchange(model.state)
    model.forced.apply(model.state.data, carried, dt)
    return before.astype(float), model.output()["theta"].astype(float)


def test_heat_enters_the_lowest_level_alone():
    model = made(surface={"heat": 0.2}, output={"single": False})
    before, after = forced(model, 5.0)
    np.testing.assert_allclose((after - before)[0], 0.2 * 5.0 / 100.0, rtol=1e-9)
    assert not (after - before)[1:].any()


def test_bulk_fluxes_follow_wind_and_difference():
    surface = {"exchange": 2e-3, "theta": 310.0}
    model = made(surface=surface, base={"kind": "neutral", "u": 6.0, "v": -8.0}, output={"single": False})
    before, after = forced(model, 5.0)
    speed = 10.0 * 1.0  # of 6 and -8 m/s
    np.testing.assert_allclose((after - before)[0], 5.0 / 100.0 * 2e-3 * speed * 10.0, rtol=1e-3)


def test_cooling_and_subsidence_by_level():
    """Air of constant stratification that sinks warms everywhere at the same rate, and is cooled by level."""
    forcing = {"subsidence": [[0.0, 0.0], [400.0, -0.02]], "cooling": [[0.0, -1e-4], [1000.0, 0.0]]}
    model = made(forcing=forcing, output={"single": False})
    before, after = forced(model, 10.0)
    height, theta = model.base.height, model.base.theta
    wind = np.minimum(height / 400.0, 1.0) * 0.02
    slope = np.append(np.diff(theta) / 100.0, 0.0)
    expected = 10.0 * (wind * slope - 1e-4 * (1 - height / 1000.0))
    np.testing.assert_allclose((after - before)[:, 0, 0], expected, rtol=1e-9)


def test_noise_of_vapor_leaves_theta_alone_and_no_cell_less_than_dry():
    """Below its height vapor deviates by up to `noise.vapor`, or by all that is there; theta is that without noise."""
    levels = [[z, 300.0 + 3.0 * z / 1000, max(0.008 - 1.6e-5 * z, 0.0), 0.0, 0.0] for z in (0.0, 500.0, 1000.0)]
    air = {
        "base": {"kind": "levels", "levels": levels},
        "moisture": {"kind": "reversible"},
        "output": {"single": False},
    }
    still, noisy = made(**air).output(), made(**air, noise={"vapor": 2e-3, "height": 700.0}).output()
    np.testing.assert_allclose(noisy["theta"], still["theta"], atol=1e-9)
    change = noisy["vapor"] - still["vapor"]
    assert not change[7:].any()
    least, most = change.min(axis=(1, 2)), change.max(axis=(1, 2))
    there = np.minimum(2e-3, still["vapor"][:7, 0, 0])
    assert (least[:7] >= -there * (1 + 1e-12)).all()
    assert (least[:4] < -1.5e-3).all()
    assert (most[:7] > 1.5e-3).all()
    assert most.max() <= 2e-3
    assert abs(change[:3].mean()) < 3e-4


@pytest.mark.parametrize(("drag", "friction"), [(0.01, 0.0), (0.0, 0.5)])
def test_the_ground_slows_the_lowest_wind(drag, friction):
    model = made(drag=drag, surface={"friction": friction}, base={"kind": "neutral", "u": 3.0, "v": 4.0})
    before = model.state.interior.copy()
    forced(model, 2.0)
    kept = 1 / (1 + 2.0 / 100.0 * (drag * 5.0 + friction**2 / 5.0))
    for field in (RHO_U, RHO_V):
        np.testing.assert_allclose(model.state.interior[field, 0], kept * before[field, 0], rtol=1e-12)
        np.testing.assert_array_equal(model.state.interior[field, 1:], before[field, 1:])


def test_points_are_joined_and_go_on():
    got = levels_of(((100.0, 1.0), (300.0, 5.0)), np.array([0.0, 100.0, 150.0, 900.0]))
    np.testing.assert_allclose(got, [1.0, 1.0, 2.0, 5.0])


def test_wind_turns_toward_the_geostrophic_one():
    """Without a ground: an inertial circle about the geostrophic wind, a quarter of it in pi / (2 f)."""
    model = made(
        base={"kind": "neutral", "u": 2.0},
        forcing={"geostrophic_u": [[0.0, 5.0]], "geostrophic_v": [[0.0, 0.0]]},
        coriolis=5e-3,
        output={"single": False},
    )
    steps = 157
    for _ in range(steps):
        model.step(np.pi / 2 / 5e-3 / steps / 2, PhaseTimer())  # an eighth
    out = model.output()
    np.testing.assert_allclose(out["u"], 5.0 - 3.0 * np.cos(np.pi / 4), rtol=1e-4)
    np.testing.assert_allclose(out["v"], 3.0 * np.sin(np.pi / 4), rtol=1e-4)


CLOUDY = {
    "base": {
        "kind": "levels",
        "pressure": 101_000.0,
        "wind": True,
        "levels": [[0.0, 289.0, 0.009, 7.0, -5.0], [800.0, 289.0, 0.009, 7.0, -5.0], [1000.0, 300.0, 0.002, 9.0, -5.0]],
    },
    "moisture": {"kind": "reversible"},
}


def test_levels_are_those_of_the_run_file_with_cloud_where_water_saturates():
    """Liquid water theta, all water and wind are given back; the cloud rests; and it sinks with its air."""
    model = made(**CLOUDY, forcing={"subsidence": [[0.0, 0.0], [1000.0, -0.01]]}, output={"single": False})
    out, column = model.output(), model.base.column
    theta = out["theta"][:, 0, 0] + model.base_theta
    vapor, cloud = out["vapor"][:, 0, 0], out["cloud"][:, 0, 0]
    assert (cloud > 1e-5).tolist() == [False] * 5 + [True] * 3 + [False] * 2
    ratio = (column[2] / 1e5) ** (287.0 / 1004.5)
    np.testing.assert_allclose((theta - 2.5e6 / 1003.0 / ratio * cloud)[:8], 289.0, rtol=1e-4)
    np.testing.assert_allclose((vapor + cloud)[:8], 0.009, rtol=1e-6)
    np.testing.assert_allclose(out["u"][:, 0, 0], np.interp(model.base.height, [800.0, 1000.0], [7.0, 9.0]), rtol=1e-9)
    below = 101_000.0 - 9.8 * (column[0] * (1 + vapor + cloud) * 100.0)[0] / 2
    np.testing.assert_allclose(column[2][0], below, rtol=1e-5)
    before, air = model.carried.field.to_host().sum(), model.carried.field.to_host()[1, :, 0, 0].copy()
    forced(model, 10.0)
    after = model.carried.field.to_host()[1, :, 0, 0]
    wind = 0.01 * model.base.height / 1000.0
    np.testing.assert_allclose(after - air, 10.0 * wind * np.append(np.diff(air) / 100.0, 0.0), atol=1e-12)
    assert model.carried.field.to_host().sum() != before
    still = made(**CLOUDY)
    for _ in range(5):
        still.step(1.0, PhaseTimer())
    assert still.watch().w_max < 5e-3  # without the weight of the cloud 0.02


def test_longwave_flux_of_a_cloud_is_the_published_formula():
    """A slab of cloud under dry air: the flux falls by absorption in it, rises above the inversion; air warms by it."""
    faces = np.arange(0.0, 1001.0, 10.0)[:, None, None]
    middle = 0.5 * (faces[1:] + faces[:-1])
    liquid = np.where((middle > 500) & (middle < 700), 4e-4, 0.0) + np.zeros((1, 2, 3))
    total = np.where(middle < 700, 9e-3, 1.5e-3) + np.zeros((1, 2, 3))
    rho = 1.2 + 0.0 * total
    given = Radiation(top=70.0)
    up = flux(liquid, total, rho, faces, given)[:, 1, 2]
    path = 85.0 * 1.2 * 4e-4 * 200.0
    z, inside = faces[:, 0, 0], np.clip((faces[:, 0, 0] - 500.0) / 200.0, 0.0, 1.0)
    top = 695.0 + 10.0 * 1e-3 / 7.5e-3
    far = np.maximum(z - top, 0.0)
    free = 1.12 * CP * 3.75e-6 * (0.25 * far ** (4 / 3) + np.minimum(z, top) * far ** (1 / 3))
    expected = 70 * np.exp(-path * (1 - inside)) + 22 * np.exp(-path * inside) + free
    np.testing.assert_allclose(up, expected, rtol=1e-12)
    assert inversion(np.full((100, 1, 1), 9e-3), faces, 8e-3) == 1000.0
    pressure = np.full((1, 1, 1), 9e4)
    rate = warming(flux(liquid, total, rho, faces, given), rho, pressure, faces)
    heat = (rate * rho * CP * 0.9 ** (RD / CP) * 10.0).sum(axis=0)
    np.testing.assert_allclose(heat, up[0] - up[-1], rtol=1e-12)
    cloudy = {**CLOUDY, "radiation": {"top": 70.0}, "output": {"single": False}}
    before, after = forced(made(**cloudy), 10.0)
    cooled = (after - before)[:, 0, 0]
    assert cooled.argmin() in (6, 7)
    assert -0.1 < cooled.min() < -1e-3


def test_mixing_leaves_a_moist_base_state_alone():
    """Theta and vapor at rest stay as they are: mixed alone, the vapor would saturate the air above."""
    storm = {"kind": "weisman_klemp"}
    grid = {**GRID, "nz": 20, "height": 14e3, "width": 16e3, "length": 14e3}
    step = {"kind": "hevi", "step": 10.0}
    still = made(grid=grid, base=storm, moisture={"kind": "kessler"}, dynamics=step, diffusion=1e3, prandtl=0.5)
    before = still.carried.field.to_host().copy()
    for _ in range(30):
        still.step(10.0, PhaseTimer())
    np.testing.assert_allclose(still.carried.field.to_host(), before, atol=1e-12)
    assert still.watch().w_max < 1e-9


@pytest.mark.nightly
def test_a_convective_layer_grows_by_encroachment_and_entrainment():
    """Half an hour: the heat of the ground is in the air, the layer is mixed, its top above encroachment's."""
    preset = PRESETS["convective_boundary_layer"][1]
    grid = {"nx": 12, "ny": 12, "nz": 25, "width": 1200.0, "length": 1200.0, "height": 1000.0}
    config = Config.model_validate({**preset, "grid": grid, "output": {"single": False}})
    model = SplitModel(config, mesh_for(config, MPI.COMM_SELF))
    first = model.watch()
    for _ in range(900):
        model.step(2.0, PhaseTimer())
    last, out = model.watch(), model.output()
    budget = model.budgets(first, last)["heat_budget"]
    rho = model.base.column[0][0]
    assert abs(budget["unexplained"]) < 1e-12 * budget["entered"]
    assert abs(budget["entered"] / (0.1 * 1800.0 * 1200.0**2 * rho) - 1) < 0.01
    encroached = np.sqrt(2 * 0.1 * 1800.0 / (1e-4 * 300.0 / 9.8))
    assert 1.05 < last.more["inversion"] / encroached < 1.5
    theta = out["theta"] - out["theta"].mean(axis=(1, 2), keepdims=True)
    flux = (out["w"] * theta).mean(axis=(1, 2))
    assert -0.03 < flux.min() < -0.001  # entrainment
    assert last.w_max > 1.0


def test_the_report_has_means_fluxes_and_variances(tmp_path):
    config = Config.model_validate(
        {
            **STILL,
            "surface": {"heat": 0.1},
            "noise": {"amplitude": 1.0},
            "time": {"end": 20.0},
            "output": {"every": 20.0},
        }
    )
    path = tmp_path / "run"
    run_app(config, Run(MPI.COMM_SELF, path, app="weather3d", title="convection", lines=False))
    (path / "resolved.json").write_text(json.dumps({"values": config.model_dump(mode="json")}))
    made = {section.key: section for section in app_sections(report, load_run(path))}
    numbers = made["columns"].numbers
    with h5py.File(path / "output" / "fields.h5") as file:
        theta, w = file["theta"][-1].astype(float), file["w"][-1].astype(float)
        mean = file["theta_base"][...] + theta.mean(axis=(1, 2))
    np.testing.assert_allclose(numbers["mean of theta"], mean, rtol=1e-6)
    covariance = [np.cov(w[k].ravel(), theta[k].ravel(), bias=True) for k in range(10)]
    np.testing.assert_allclose(numbers["flux of theta"], [each[0, 1] for each in covariance], rtol=1e-3, atol=1e-9)
    np.testing.assert_allclose(numbers["variance of w"], [each[0, 0] for each in covariance], rtol=1e-3, atol=1e-12)
    assert made["columns"].html.count("<svg") == 6


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"surface": {"vapor": 1e-5}}, "need moist air"),
        ({"noise": {"vapor": 1e-5}}, "need moist air"),
        ({"dynamics": {"kind": "explicit"}, "noise": {"vapor": 1e-5}}, "noise.vapor needs the split dynamics"),
        ({"forcing": {"subsidence": [[0.0, 0.1]]}}, "must not be above 0"),
        ({"forcing": {"cooling": [[5.0, 0.1], [5.0, 0.2]]}}, "heights of its points must grow"),
        ({"base": {"kind": "levels"}}, "two lines or more from z = 0 up"),
        ({"base": {"levels": [[0.0, 300.0, 0.0, 0.0, 0.0], [9e3, 400.0, 0.0, 0.0, 0.0]]}}, "belong to kind = 'levels'"),
        (
            {"base": {"kind": "levels", "levels": [[0.0, 30.0, 0.0, 0.0, 0.0], [9e3, 40.0, 0.0, 0.0, 0.0]]}},
            "must be 150",
        ),
        ({"dynamics": {"kind": "explicit"}, "surface": {"heat": 0.1}}, "surface needs the split dynamics"),
    ],
)
def test_forcings_that_cannot_be_are_refused(given, reason):
    with pytest.raises(ValidationError, match=reason):
        Config.model_validate({**STILL, **given})


def test_vapor_has_its_weight_in_the_stability_of_eddies():
    """Theta grows by 2.5 K/km, vapor falls by 6 g/kg: stable by density, not by the moist theta, which has no weight.

    At rest no eddies are there. Over moist air as warm and without the fall of vapor they would not be, either; less
    theta than vapor's buoyancy makes them.
    """
    for warmer, eddies in ((2.5, False), (0.5, True)):
        levels = [[z, 300.0 + warmer * z / 1000, 0.015 - 6e-6 * z, 0.0, 0.0] for z in (0.0, 1000.0)]
        base = {"kind": "levels", "levels": levels}
        model = made(base=base, moisture={"kind": "reversible"}, smagorinsky={"coefficient": 0.2})
        model.exchange(model.state)
        model.carried.corners(model.carried.field)
        _, _, greatest = next(model.viscosities(1.0))
        assert (greatest > 0) == eddies
