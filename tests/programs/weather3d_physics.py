"""The box model against what is known of it, on one rank; raises where it is wrong.

`weather3d_physics.py NAME…`: only these checks.
"""

import sys

import numpy as np
from mpi4py import MPI

from hpckit.apps.weather3d.config import PRESETS, Config
from hpckit.apps.weather3d.model import Model, mesh_for
from hpckit.apps.weather3d.physics.tracers import start_of
from hpckit.bench.weather.ranks import physics_case as case
from hpckit.bench.weather.verb import PHYSICS
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.kernels.euler.box.constants import RHO, RHO_THETA, RHO_U, RHO_V, RHO_W

STABLE = {"kind": "stable", "frequency": 0.01}


def made(settings: dict) -> Model:
    config = Config.model_validate(settings)
    return Model(config, mesh_for(config, MPI.COMM_SELF))


def run_to(model: Model, end: float) -> Model:
    """Steps of equal length to `end` (s)."""
    steps = int(np.ceil(end / model.dt))
    for _ in range(steps):
        model.step(end / steps, PhaseTimer())
    return model


def winds(model: Model) -> np.ndarray:
    """U, v, w of the owned cells."""
    state = model.state.interior
    return state[1:4] / (state[RHO] + model.base.column[0][:, None, None])


def theta(model: Model) -> np.ndarray:
    return model.output()["theta"]


def inertial_oscillation() -> None:
    """Uniform u in air without pressure gradients turns clockwise, once in 2 pi / f."""
    model = made({"grid": {"nx": 6, "ny": 6, "nz": 4}, "bubbles": [], "coriolis": 1e-3, "beta": 0.0})
    model.state.interior[RHO_U] = 5.0 * model.base.column[0][:, None, None]
    run_to(model, 2 * np.pi / 1e-3 / 3)
    u, v, w = winds(model)
    np.testing.assert_allclose(u, 5 * np.cos(2 * np.pi / 3), rtol=1e-10)
    np.testing.assert_allclose(v, -5 * np.sin(2 * np.pi / 3), rtol=1e-10)
    assert not w.any()


def jet_in_balance() -> None:
    """Steady to 1e-6 m/s, baroclinic in stable air and barotropic in neutral air; out of balance it is not."""
    preset = {**PRESETS["balanced_jet"][1], "output": {"single": False}}
    preset["grid"] = {**preset["grid"], "nx": 6, "ny": 48}
    jet = preset["jet"]
    even = {**preset, "base": {"kind": "neutral"}, "jet": {**jet, "half_height": 1e9}}
    drift = {}
    for name, settings in (
        ("stable", preset),
        ("neutral", even),
        ("loose", {**preset, "jet": {**jet, "balanced": False}}),
    ):
        model = made(settings)
        before, warm = winds(model), theta(model)
        assert np.abs(before[0]).max() > 14.5
        run_to(model, 600.0)
        drift[name] = np.abs(winds(model) - before).max()
        if name == "stable":  # thermal wind: theta falls toward the cold side below the jet, by a few K
            assert 2 < np.ptp(warm) < 6
            below, middle = model.base.height < 5000, model.config.grid.ny // 2
            assert (warm[below, middle + 10] < warm[below, middle - 10])[1:].all()
    assert drift["stable"] < 1e-5, drift
    assert drift["neutral"] < 1e-5, drift
    assert drift["loose"] > 0.3, drift


def energy(deviation: np.ndarray, model: Model) -> float:
    """Of a difference between two solutions: kinetic and available potential, J per kg and cell."""
    frequency = model.config.base.frequency
    rho, per_theta = model.base.column[0][:, None, None], 9.8 / frequency / model.base.theta[:, None, None]
    kinetic = sum((deviation[field] / rho) ** 2 for field in (RHO_U, RHO_V, RHO_W))
    warmth = (deviation[RHO_THETA] - deviation[RHO] * model.base.theta[:, None, None]) / rho
    return float((kinetic + (per_theta * warmth) ** 2).sum())


def open_sides_let_waves_out() -> None:
    """Waves from the middle of 48 km, against a box of 144 km: what comes back, of what walls send back."""
    grid = {"nx": 48, "ny": 6, "nz": 10, "width": 48e3, "length": 6e3}
    far = {**grid, "nx": 144, "width": 144e3}
    bubble = {"amplitude": 1.0, "x": 24e3, "y": 3e3, "z": 5e3, "radius_x": 6e3, "radius_y": 1e9, "radius_z": 4e3}
    common = {"grid": grid, "base": STABLE, "bubbles": [bubble]}
    middle = {**bubble, "x": 72e3}
    truth = run_to(made({**common, "grid": far, "bubbles": [middle]}), 1500.0)
    at = truth.state.interior[..., 48:96]
    came_back = {}
    for name, sides in (
        ("walls", {"x": "walls"}),
        ("bare", {"x": "open", "width": 0.0}),
        ("sponge", {"x": "open", "width": 10e3, "time": 100.0}),
    ):
        model = run_to(made({**common, "sides": sides}), 1500.0)
        came_back[name] = energy((model.state.interior - at)[..., 12:36], model)
        if name == "sponge":
            watch = model.watch()
            first = made({**common, "sides": sides}).watch()
            change = watch.mass - first.mass
            assert abs(model.budgets(first, watch)["mass_budget"]["unexplained"]) < 1e-13 * first.mass
            assert abs(change) > 1e-9 * first.mass
    share = {name: came_back[name] / came_back["walls"] for name in came_back}
    print("energy that comes back, of that behind walls:", share)
    assert share["sponge"] < 0.03, share
    assert share["sponge"] < 0.5 * share["bare"], share


def lid_sponge_swallows_waves() -> None:
    """Waves from below, against a box twice as high."""
    grid = {"nx": 12, "ny": 6, "nz": 27, "width": 8e3, "length": 4e3, "height": 18e3}
    bubble = {"amplitude": 1.0, "x": 4e3, "y": 2e3, "z": 4e3, "radius_x": 4e3, "radius_y": 1e9, "radius_z": 4e3}
    common = {"grid": grid, "base": {**STABLE, "frequency": 0.02}, "bubbles": [bubble], "time": {"cfl": 1.0}}
    truth = run_to(made({**common, "grid": {**grid, "nz": 54, "height": 36e3}}), 3600.0)
    came_back = {}
    for name, lid in (("hard", {}), ("sponge", {"lid": {"depth": 10e3, "time": 600.0}})):
        model = run_to(made({**common, **lid}), 3600.0)
        low = model.base.height[:, None, None] < 7e3
        difference = model.state.interior - truth.state.interior[:, :27]
        difference -= difference.mean(axis=(2, 3), keepdims=True)  # of the air that cannot expand upward: no wave
        came_back[name] = energy(np.where(low, difference, 0.0), model)
        assert abs(model.watch().mass / made(common).watch().mass - 1) < 1e-14
    print("energy that comes back from the sponge, of that from the lid:", came_back["sponge"] / came_back["hard"])
    assert came_back["sponge"] < 0.03 * came_back["hard"], came_back


def wind_blows_through() -> None:
    """The base wind stays to rounding; a bubble that leaves takes its heat along."""
    settings = {
        "grid": {"nx": 40, "ny": 7, "nz": 6, "width": 20e3, "length": 3.5e3, "height": 3e3},
        "sides": {"x": "open", "y": "open", "width": 1500.0},
        "base": {**STABLE, "u": 30.0, "v": 3.0},
        "bubbles": [],
    }
    calm = run_to(made(settings), 60.0)
    np.testing.assert_allclose(winds(calm)[0], 30.0, rtol=1e-12)
    assert np.abs(theta(calm)).max() < 1e-6
    warm = {"amplitude": 0.5, "x": 8e3, "y": 1750.0, "z": 1500.0, "radius_x": 2e3, "radius_y": 1e9, "radius_z": 1e3}
    model = made({**settings, "bubbles": [warm]})
    before = np.abs(theta(model)).max()
    run_to(model, 700.0)
    assert np.abs(theta(model)).max() < 0.02 * before


def inertia_gravity_waves() -> None:
    """Skamarock and Klemp (1994): symmetric about 160 km, carried there by the wind; extremes as published."""
    model = made({**PRESETS["inertia_gravity_waves"][1], "output": {"single": False}})
    run_to(model, 3000.0)
    warm = theta(model)
    assert not np.ptp(warm, axis=1).any()  # uniform in y
    slab = warm[:, 0]
    east, west = slab[:, 160:280], slab[:, 40:160][:, ::-1]  # about 160 km, a face
    assert np.abs(east - west).max() < 0.05 * np.abs(slab).max()
    print("theta' from", slab.min(), "to", slab.max(), "published -1.51e-3 to 2.78e-3")
    assert abs(slab.max() - 2.78e-3) < 0.15e-3
    assert abs(slab.min() + 1.51e-3) < 0.15e-3


def walls_are_mirrors() -> None:
    """A quarter of a periodic box that is symmetric about its middle has the bits of the whole."""
    bubble = {"amplitude": 8.0, "x": 6000.0, "y": 5000.0, "radius_x": 3000.0}
    smoke = {"name": "smoke", "x": 6000.0, "y": 5000.0, "radius_x": 2500.0, "radius_y": 2500.0}
    common = {"bubbles": [bubble], "tracers": [smoke], "smagorinsky": {"coefficient": 0.2}, "diffusion": 30.0}
    common |= {"lid": {"depth": 4000.0}, "drag": 0.01}
    whole = made({**common, "grid": {"nx": 24, "ny": 20, "nz": 12, "width": 12e3, "length": 10e3}})
    quarter_grid = {"nx": 12, "ny": 10, "nz": 12, "width": 6e3, "length": 5e3}
    quarter = made({**common, "grid": quarter_grid, "sides": {"x": "walls", "y": "walls"}})
    state = whole.state.interior  # made symmetric to the last bit
    for axis, normal in ((3, RHO_U), (2, RHO_V)):
        half = np.take(state, range(state.shape[axis] // 2), axis=axis)
        other = np.flip(half, axis=axis).copy()
        other[normal] *= -1
        state[...] = np.concatenate([half, other], axis=axis)
    tracer = whole.tracers.field.interior
    tracer[..., 12:] = tracer[..., 11::-1]
    tracer[:, :, 10:] = tracer[:, :, 9::-1]
    quarter.state.interior[:] = state[:, :, :10, :12]
    quarter.tracers.field.interior[:] = tracer[:, :, :10, :12]
    for _ in range(30):
        whole.step(whole.dt, PhaseTimer())
        quarter.step(whole.dt, PhaseTimer())
    np.testing.assert_array_equal(whole.state.interior[:, :, :10, :12], quarter.state.interior)
    carried = whole.tracers.field.interior[:, :, :10, :12]
    np.testing.assert_array_equal(carried, quarter.tracers.field.interior)
    assert np.abs(winds(quarter)).max() > 0.5


def tracer_comes_around() -> None:
    """Carried once around by a uniform wind along the diagonal: second order or better."""
    errors = []
    for n in (16, 32, 64):
        grid = {"nx": n, "ny": n, "nz": 4, "width": 6400.0, "length": 6400.0, "height": 4 * 6400.0 / n}
        smoke = {"name": "smoke", "x": 3000.0, "y": 3000.0, "z": 0.0, "radius_x": 2500.0, "radius_y": 2500.0}
        smoke["radius_z"] = 1e9
        model = made({"grid": grid, "base": {"u": 80.0, "v": 80.0}, "bubbles": [], "tracers": [smoke]})
        first = model.tracers.field.interior[0].copy()
        run_to(model, 80.0)
        errors.append(np.abs(model.tracers.field.interior[0] - first).mean())
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    print("tracer: errors", errors, "orders", orders)
    assert (orders > 1.9).all(), orders
    assert start_of(model.config.tracers[0], model.config, *model.tracers.field.coords((1, 1, 1))).shape == first.shape


def shear_wave_decays() -> None:
    """V = sin(k x) under constant diffusion, through the whole step: exp(-K k2 t) in the limit."""
    grid = {"nx": 32, "ny": 6, "nz": 4, "width": 3200.0, "length": 600.0, "height": 400.0}
    model = made({"grid": grid, "bubbles": [], "diffusion": 40.0, "beta": 0.0})
    wave = np.sin(2 * np.pi * (np.arange(32) + 0.5) / 32)
    model.state.interior[RHO_V] = 1e-3 * model.base.column[0][:, None, None] * wave
    run_to(model, 300.0)
    v = winds(model)[1]
    amplitude = 2 * (v * wave).mean(axis=2)
    np.testing.assert_allclose(amplitude, 1e-3 * np.exp(-40.0 * (2 * np.pi / 3200.0) ** 2 * 300.0), rtol=2e-3)


def bench_times_the_physics() -> None:
    """What the ranks of the bench run: every way advances a box, and its physics is on."""
    found = case("key", [8, 9, 7], PHYSICS, 1, 2)
    assert found["cells"] == 504
    assert [len(times) for times in found["times"].values()] == [2] * len(PHYSICS)
    way = PHYSICS["with turbulence"] | PHYSICS["with four tracers"]
    model = made({"grid": {"nx": 8, "ny": 9, "nz": 7}, "base": {"kind": "stable"}, **way})
    run_to(model, model.dt)
    assert model.watch().more.keys() >= {"eddy_viscosity_max", "d_mass"}


for check in (
    inertial_oscillation,
    jet_in_balance,
    open_sides_let_waves_out,
    lid_sponge_swallows_waves,
    wind_blows_through,
    inertia_gravity_waves,
    walls_are_mirrors,
    tracer_comes_around,
    shear_wave_decays,
    bench_times_the_physics,
):
    if check.__name__ in sys.argv[1:] or len(sys.argv) == 1:
        check()
