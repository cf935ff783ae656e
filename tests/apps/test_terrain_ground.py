"""Over terrain: what passes the ground, open sides, column statistics; flat ground is the flat box's case."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest
from mpi4py import MPI
from pydantic import ValidationError

from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.model import mesh_for
from hpckit.apps.weather3d.products.statistics import FILE, Statistics
from hpckit.apps.weather3d.split.model import SplitModel
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.kernels.euler.hevi.constants import HALO

GRID = {"nx": 24, "ny": 8, "nz": 11, "width": 24e3, "length": 8e3, "height": 12e3, "lowest": 600.0}
HILL = {"kind": "bell", "height": 800.0, "half_width": 3e3, "x": 12e3}
FLAT = {**HILL, "height": 1e-9}
WARMED = {
    "surface": {"heat": 0.05, "exchange": 1.5e-3, "theta": 310.0, "humidity": 0.015, "friction": 0.2},
    "forcing": {"cooling": [[0.0, -1e-4], [6000.0, 0.0]], "drying": [[0.0, -1e-8], [2000.0, 0.0]]},
    "drag": 3e-3,
}
OPEN = {"sides": {"x": "open", "y": "walls", "width": 4000.0}}
MOIST = {"base": {"kind": "weisman_klemp", "shear": 10.0}, "moisture": {"kind": "kessler"}}


def run_of(steps: int, **settings):
    """A model after so many large steps of 5 s, its watches before and after, and what it shows."""
    given = {"grid": GRID, "dynamics": {"kind": "hevi", "step": 5.0}, "terrain": HILL, "bubbles": [], **settings}
    config = Config.model_validate_json(json.dumps(given), strict=True)
    model = SplitModel(config, mesh_for(config, MPI.COMM_SELF))
    first = model.watch()
    for _ in range(steps):
        model.step(model.dt, PhaseTimer())
    return model, (first, model.watch()), model.shown()


@pytest.mark.parametrize("given", [WARMED, OPEN], ids=["ground", "open"])
def test_flat_ground_is_as_the_flat_box(given):
    """With a bubble in moist air that is sheared, so that all terms act."""
    sides = {"sides": {"y": "walls"}} | given
    base = {"base": {"kind": "weisman_klemp", "shear": 10.0, "u": 0.0}}
    bubble = {"x": 10e3, "y": 4e3, "z": 2e3, "radius_x": 4e3, "radius_y": 1e9, "radius_z": 1500.0}
    case = {**base, "moisture": {"kind": "reversible"}, "bubbles": [bubble], **sides}
    box, over = (run_of(12, **case, terrain=terrain)[0] for terrain in ({"kind": "flat"}, FLAT))
    for got, wanted in zip(over.fields, box.fields, strict=True):
        for field, values in enumerate(wanted.interior):
            size = max(np.abs(values).max(), 0.1)
            np.testing.assert_allclose(got.interior[field], values, rtol=0, atol=1e-10 * size, err_msg=str(field))


def test_heat_and_water_enter_over_a_mountain_as_they_are_said_to():
    """Fluxes count per area of the map; budgets of the whole box close to rounding; the calm ground heats evenly."""
    still = {"base": {"kind": "neutral"}, "moisture": {"kind": "reversible"}}  # with no water in it
    model, (_, last), _ = run_of(1, surface={"heat": 0.2}, **still, drag=1e-3)
    terrain = model.terrain
    area, entered = 24e3 * 8e3, last.more["warmth_entered"]
    lowest = terrain.cells.rho[0].mean()
    np.testing.assert_allclose(entered, 0.2 * 5.0 * area * lowest, rtol=2e-3)
    model, watches, _ = run_of(6, **MOIST, **WARMED, smagorinsky={"coefficient": 0.2})
    water = model.budgets(*watches)["water_budget"]
    assert abs(water["entered"]) > 1e4
    assert abs(water["unexplained"]) < 1e-12 * water["in_air"]


def test_drag_takes_momentum_along_the_slope():
    """Of a ground that drags alone: u falls by the bulk formula, and air keeps passing no level."""
    model, *_ = run_of(0, base={"kind": "neutral", "u": 10.0}, drag=0.01)
    model.exchange(model.state)
    before = model.state.data.copy()
    model.forced.apply(model.state.data, None, 3.0)
    low = model.terrain.lowest()["u"][1]
    u = slice(HALO, -HALO)
    wind = before[1, 0, u, u] / model.terrain.lowest()["u"][0]
    kept = model.state.data[1, 0, u, u] / before[1, 0, u, u]
    np.testing.assert_allclose(kept, 1 / (1 + 3.0 / low * 0.01 * np.abs(wind)), rtol=1e-12)
    np.testing.assert_array_equal(model.state.data[3], before[3])


def test_moist_air_at_rest_with_open_sides_on_a_slope_stays_at_rest():
    """The side lies on the slope: the radiation condition and the relaxation zone see no force."""
    still = {"base": {"kind": "weisman_klemp", "shear": 0.0}, "moisture": {"kind": "kessler"}}
    _, (_, watch), _ = run_of(8, **still, **OPEN, terrain={**HILL, "x": 2e3}, lid={"depth": 3000.0})
    assert max(watch.speed_x, watch.speed_y, watch.speed_z) < 1e-10


@pytest.mark.nightly
def test_waves_over_a_hill_leave_through_open_sides():
    """Against a box three times as wide, whose waves do not come back in this time; walls send them back."""
    found = {}
    for name, cells, sides in (
        ("wide", 72, {}),
        ("open", 24, {"x": "open", "width": 0.0}),
        ("walls", 24, {"x": "walls"}),
    ):
        grid = {**GRID, "nx": cells, "width": 1e3 * cells, "ny": 6}
        hill = {**HILL, "x": 500.0 * cells}
        bubble = {"amplitude": 2.0, "x": 500.0 * cells, "y": 3e3, "z": 3e3, "radius_x": 3e3, "radius_y": 1e9}
        base = {"kind": "stable", "frequency": 0.01}
        model, watches, shown = run_of(120, grid=grid, terrain=hill, bubbles=[bubble], base=base, sides=sides)
        found[name] = shown["theta"][..., cells // 2 - 6 : cells // 2 + 6]
        if name == "open":
            mass = model.budgets(*watches)["mass_budget"]
    off = {name: float(np.abs(found[name] - found["wide"]).max()) for name in ("open", "walls")}
    assert off["open"] < 0.5 * off["walls"], off
    assert abs(mass["unexplained"]) < 1e-9 * abs(mass["through_sides"])


def test_statistics_of_levels_that_follow_the_ground(tmp_path):
    model, _, shown = run_of(5, **MOIST, terrain=HILL)
    statistics = Statistics(model, tmp_path, {}, None)
    statistics.sample(25.0)
    statistics.writer.write()
    cells = model.terrain
    with h5py.File(tmp_path / FILE) as file:
        off = {name: shown[name] - shown[name].mean(axis=(1, 2), keepdims=True) for name in "uw"}
        expected = {
            "altitude": cells.height,
            "theta": shown["theta"] + cells.cells.theta,
            "u_variance": off["u"] ** 2,
            "u_flux": off["u"] * off["w"],
        }
        for name, values in expected.items():
            np.testing.assert_allclose(file[name][0], values.mean(axis=(1, 2)), rtol=1e-6, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    "given",
    [
        {"forcing": {"subsidence": [[0.0, 0.0], [3000.0, -0.01]]}},
        {"parcels": {"x": [0.0, 1e3, 2], "y": [0.0, 1e3, 2]}},
        {"radiation": {"top": 70.0}, "moisture": {"kind": "reversible"}},
    ],
)
def test_what_terrain_does_not_have_is_refused(given):
    with pytest.raises(ValidationError, match=f"there is no {next(iter(given))}"):
        run_of(0, **given)
