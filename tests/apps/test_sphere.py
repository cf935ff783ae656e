"""Shallow water on a cubed sphere: equal bits on any ranks, Williamson's norms, rest, files, mistakes explained."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest
from pydantic import ValidationError

import hpckit as hp
from hpckit.apps.sphere import setups
from hpckit.apps.sphere.config import PRESETS, Config
from hpckit.apps.sphere.layout import WIDTHS, axes_of, dry_run, time_step
from hpckit.apps.sphere.model import Model
from hpckit.apps.sphere.run import run as run_app
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import BlowUpError
from hpckit.run.context import Run
from tests.apps.spectral import Spectral


def made(name, n, **sections):
    settings = {**PRESETS[name][1], "grid": {"n": n}}
    for section, values in sections.items():
        settings[section] = {**settings.get(section, {}), **values}
    return Config.model_validate(settings)


def model_of(config):
    n = config.grid.n
    return Model(config, hp.Mesh(hp.world(), shape=(6, n, n), halo=WIDTHS, **axes_of(1)))


@pytest.mark.parametrize("counts", [(1, 4), pytest.param((1, 2, 3, 5, 6), marks=pytest.mark.nightly)], ids=str)
def test_any_number_of_ranks_gives_the_same_bits(mpirun, tmp_path, counts):
    """Every preset on 6 x 16 x 16 cells, and an odd number of cells, whose blocks differ."""
    cases = {name: {**settings, "grid": {"n": 16}} for name, (_, settings) in PRESETS.items()}
    cases["odd"] = {**PRESETS["galewsky"][1], "grid": {"n": 17}}
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    for ranks in counts:
        mpirun(ranks, "sphere_ranks.py", tmp_path)


def norms(n, days=0.68):
    """The relative L2 errors of depth and velocity of Williamson's test 2, tilted by 45 degrees."""
    model = model_of(made("williamson2", n))
    first = model.state.to_host().copy()
    steps = int(np.ceil(days * 86_400 / time_step(model.config)))
    for _ in range(steps):
        model.step(days * 86_400 / steps, PhaseTimer())
    off = model.state.to_host() - first
    depth = np.sqrt((model.area * off[0] ** 2).sum() / (model.area * first[0] ** 2).sum())
    velocity = np.sqrt((model.area * (off[1:] ** 2).sum(0)).sum() / (model.area * (first[1:] ** 2).sum(0)).sum())
    return depth, velocity


def test_williamson_2_converges_in_second_order_with_small_norms():
    """The bounds are those of compatible finite elements of the same number of cells (GridapGeosciences.jl)."""
    found = {n: norms(n) for n in (8, 16, 32)}
    for n, (depth, velocity) in {8: (1.455e-3, 2.84e-3), 16: (3.68e-4, 7.42e-4)}.items():
        assert found[n][0] < 0.2 * depth
        assert found[n][1] < 0.5 * velocity
    for k in (0, 1):
        assert found[8][k] / found[16][k] > 3.8
        assert found[16][k] / found[32][k] > 3.8


def test_water_at_rest_stays_at_rest_over_a_mountain():
    model = model_of(made("williamson5", 12))
    state = model.state.to_host()
    state[1:] = 0.0
    state[0] = 5960.0 - model.bottom.to_host()[0]
    model.state.set_from_host(state)
    for _ in range(10):
        model.step(time_step(model.config), PhaseTimer())
    assert np.abs(model.state.to_host()[1:]).max() < 1e-10


@pytest.mark.nightly
@pytest.mark.parametrize(("preset", "bounds"), [("williamson5", (3e-4, 0.06)), ("williamson6", (1e-3, 0.02))])
def test_another_program_finds_the_same(preset, bounds):
    """Three days by spherical harmonics: surface and northward wind, which fall with the cells."""
    errors = []
    for n in (24, 48):
        config = made(preset, n)
        planet = config.physics
        other = Spectral(42, planet.radius, planet.rotation, planet.gravity)
        latitude, longitude = other.points()
        across = np.cos(latitude)
        places = np.stack([across * np.cos(longitude), across * np.sin(longitude), np.sin(latitude)])
        level, velocity = setups.start(config, places)
        ground = other.values(other.spectrum(setups.bottom(config, places)))
        east = velocity[1] * np.cos(longitude) - velocity[0] * np.sin(longitude)
        north = velocity[2] / across
        days = 3 * 86_400.0
        depth, _, northward, _ = other.run(level - ground, east, north, ground, days, 400.0)
        model = model_of(config)
        steps = int(np.ceil(days / time_step(config)))
        for _ in range(steps):
            model.step(days / steps, PhaseTimer())
        model.watch()
        ours, weights = model.output(), other.weights[:, None]
        panel, y, x = model.sphere.places(latitude, longitude)
        low, left = (np.clip(np.floor(each).astype(int), 0, n - 2) for each in (y, x))
        found = []
        for name, exact in (("height", depth + ground), ("v", northward)):
            field = ours[name].astype(float)
            south, up = (
                (1 - x + left) * field[panel, row, left] + (x - left) * field[panel, row, left + 1]
                for row in (low, low + 1)
            )
            off = (1 - y + low) * south + (y - low) * up - exact
            found.append(np.sqrt((weights * off**2).sum() / (weights * exact**2).sum()))
        errors.append(found)
    assert errors[1][0] < bounds[0]
    assert errors[1][1] < bounds[1]
    assert errors[0][0] > 2 * errors[1][0]


def test_vorticity_of_a_solid_body():
    config = made("williamson2", 32)
    model = model_of(config)
    model.watch()
    along = np.einsum("c,c...->...", setups.axis(config), model.sphere.centers)
    exact = 2 * config.start.speed / config.physics.radius * along
    assert np.abs(model.vorticity() - exact).max() < 2e-5 * np.abs(exact).max()


def test_the_jet_is_in_balance():
    """Without its bump it is steady: the error falls with the cells (third order and more here)."""
    errors = []
    for n in (24, 48):
        model = model_of(made("galewsky", n, start={"bump": 0.0}))
        dt = time_step(model.config)
        for _ in range(max(1, round(6 * 3600 / dt))):
            model.step(dt, PhaseTimer())
        errors.append(model.watch().error)
    assert errors[1] < 1e-4
    assert errors[0] / errors[1] > 4


def test_mean_depth_of_the_jet_is_that_asked_for():
    model = model_of(made("galewsky", 48, start={"bump": 0.0}))
    watch = model.watch()
    assert watch.mass / (4 * np.pi * model.config.physics.radius**2) == pytest.approx(10_000.0, rel=3e-6)


def test_a_run_writes_where_its_cells_are(tmp_path):
    config = made("williamson5", 12, time={"end": 40_000.0, "monitor": 5}, output={"every": 20_000.0, "single": False})
    whole = Run(hp.world(), tmp_path / "whole", app="sphere", title="whole", lines=False)
    run_app(config, whole)
    with h5py.File(tmp_path / "whole/output/fields.h5") as file:
        assert {"height", "vorticity", "u", "v", "lat", "lon", "area", "bottom"} <= set(file)
        assert file["height"].shape[1:] == (6, 12, 12)
        assert file["height"].attrs["coordinates"] in ("lat lon", b"lat lon")
        lat, u = file["lat"][...], file["u"][0]
        assert u.max() == pytest.approx(20.0, rel=0.02)
        np.testing.assert_allclose(u, 20.0 * np.cos(np.radians(lat)), rtol=1e-12, atol=1e-12)


def test_a_step_too_long_is_named():
    config = made("williamson2", 12, time={"max_speed": 50.0})
    model = model_of(config)
    watch = model.watch()
    with pytest.raises(BlowUpError, match="Courant number"):
        model.require_sound(watch, 5 * time_step(config))
    state = model.state.to_host().copy()
    state[0, 3, 4, 5] = -1.0
    model.state.set_from_host(state)
    with pytest.raises(BlowUpError, match="dry"):
        model.require_sound(model.watch(), time_step(config))


def test_mistakes_of_a_run_file_are_told_together():
    with pytest.raises(ValidationError) as caught:
        Config.model_validate({"start": {"kind": "jet", "angle": 3.0, "bump": 2e4}, "time": {"max_speed": 1.0}})
    for part in ("start.angle", "start.bump", "time.max_speed"):
        assert part in str(caught.value)


def test_a_dry_run_counts_messages():
    one, many = (dry_run(made("galewsky", 48), ranks) for ranks in (1, 24))
    assert one.halo_bytes == 0
    assert many.halo_bytes > 0
    assert one.steps == many.steps > 100
