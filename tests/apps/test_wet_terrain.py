"""Moist air and mixing over terrain: rest, dry air of the same weight, the order of diffusion."""

from __future__ import annotations

import json

import numpy as np
import pytest
from mpi4py import MPI

from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.model import Diagnostics, mesh_for
from hpckit.apps.weather3d.split.model import SplitModel
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.kernels.euler.constants import RD, REACH
from hpckit.kernels.euler.hevi.constants import HALO
from hpckit.kernels.euler.hevi.terrain.stress.dispatch import mix_carried
from hpckit.kernels.euler.rain.constants import RV

GRID = {"nx": 23, "ny": 7, "nz": 11, "lowest": 600.0, "height": 14e3}
HILL = {"kind": "bell", "ridge": False, "height": 2000.0, "half_width": 3000.0, "x": 9e3, "y": 12e3}


def run_of(steps: int, **settings) -> tuple[SplitModel, Diagnostics, dict[str, np.ndarray]]:
    """A run of so many large steps over the hill: its model, its last watch, and what it shows."""
    given = {"grid": GRID, "dynamics": {"kind": "hevi", "step": 4.0}, "terrain": HILL, "bubbles": [], **settings}
    config = Config.model_validate_json(json.dumps(given), strict=True)
    with mesh_for(config, MPI.COMM_SELF) as mesh:
        model = SplitModel(config, mesh)
        for _ in range(steps):
            model.step(model.dt, PhaseTimer())
        return model, model.watch(), model.shown()


def test_moist_air_at_rest_over_a_mountain_stays_at_rest():
    moist = {"base": {"kind": "weisman_klemp", "shear": 0.0}, "moisture": {"kind": "kessler"}}
    _, watch, shown = run_of(12, **moist, smagorinsky={"coefficient": 0.2}, diffusion=50.0)
    assert max(watch.speed_x, watch.speed_y, watch.speed_z) < 1e-10
    assert max(abs(watch.theta_min), watch.theta_max) < 1e-10
    assert shown["vapor"].max() > 0.013


@pytest.mark.nightly
def test_air_with_the_same_vapor_everywhere_flows_as_dry_air_of_its_virtual_temperature():
    vapor, theta, found = 0.004, (300.0, 355.0, 460.0), {}
    virtual = (1 + RV / RD * vapor) / (1 + vapor)
    alike = {"kind": "hevi", "step": 4.0, "substeps": 4}  # of moist air the least
    for name, water, warmer in (("moist", vapor, 1.0), ("dry", 0.0, virtual)):
        lines = [[z, warmer * each, water, 8.0, -5.0] for z, each in zip((0.0, 7e3, 14e3), theta, strict=True)]
        moisture = {"kind": "reversible" if water else "none"}
        base = {"kind": "levels", "wind": True, "levels": lines}
        found[name] = run_of(10, base=base, moisture=moisture, dynamics=alike)[2]
    for wind in "uvw":
        np.testing.assert_allclose(found["moist"][wind], found["dry"][wind], rtol=0, atol=1e-10, err_msg=wind)
    assert np.abs(found["dry"]["w"]).max() > 1
    np.testing.assert_allclose(found["moist"]["vapor"], vapor, rtol=1e-13)


@pytest.mark.nightly
def test_diffusion_in_steep_valleys_is_of_second_order():
    """Of sin(k x) cos(m z) with constant rho K: -(k2 + m2) of it; x and z linear in space are left alone."""
    errors = []
    for cells in (24, 48):
        grid = {"nx": cells, "ny": 6, "nz": cells // 2, "width": 12e3, "height": 9e3, "length": 6e3, "lowest": 0.0}
        hills = {"kind": "schaer", "height": 1200.0, "half_width": 3000.0, "wavelength": 1e6, "x": 6e3}
        model, *_ = run_of(0, grid=grid, terrain=hills, dynamics={"kind": "hevi", "step": 1.0})
        terrain, state = model.terrain, model.state.data
        shape = state.shape[1:]
        z = np.pad(terrain.height, ((0, 0), (REACH, REACH), (REACH, REACH)), mode="wrap")
        x = ((np.arange(cells + 2 * REACH) - REACH + 0.5) * grid["width"] / cells)[None, None, :]
        waves = 2 * np.pi / grid["width"], np.pi / grid["height"]
        q = np.array([np.sin(waves[0] * x) * np.cos(waves[1] * z), 0 * x + z])
        out, levels, spacing = np.zeros_like(q), model.levels, (grid["width"] / cells, 1000.0)
        mix_carried(q, out, state, np.ones(shape), terrain.ground, levels, spacing, 1.0)
        own = (slice(None), slice(None), slice(REACH, -REACH), slice(REACH, -REACH))
        rho = state[0] + terrain.ground.base[0]
        change = (out - q)[own] * (rho / terrain.ground.metric[8])[:, HALO:-HALO, HALO:-HALO]
        wave = change[0] + (waves[0] ** 2 + waves[1] ** 2) * q[own][0]
        errors.append(np.abs(wave[2:-2]).max())
        assert np.abs(change[1, 2:-2]).max() < 1e-5  # a flux that is the same everywhere
    assert np.log2(errors[0] / errors[1]) > 1.8
