"""Assimilation: water moves as theory says, errors have their covariance, the filter is Kalman's, bits are the same."""

from __future__ import annotations

import json

import numpy as np
import pytest
from conftest import by_day
from mpi4py import MPI
from pydantic import ValidationError

from hpckit.adjoint.lbfgs import dot
from hpckit.apps.assimilate.config import Config
from hpckit.apps.assimilate.flood import Valley, deviations, flood_step
from hpckit.apps.assimilate.letkf import Letkf, gaspari_cohn
from hpckit.apps.assimilate.roughness import Roughness
from hpckit.apps.assimilate.run import dry_run
from hpckit.apps.assimilate.twin import Covariance, Twin
from hpckit.apps.assimilate.variational import Incremental, Variational
from hpckit.apps.assimilate.water import Water
from hpckit.cli.main import main
from hpckit.comm.mesh import Mesh
from hpckit.grid.field import Field
from hpckit.plan.grid.decomposition import Decomposition

pytestmark = pytest.mark.usefixtures("quick_runs")

SMALL = {
    "grid": {"ny": 20, "nx": 24},
    "window": {"steps": 12},
    "truth": {"spin_up": 3, "scale": 4.0},
    "background": {"scale": 4.0},
    "observations": {"share": 0.05, "every": 4},
}


@pytest.fixture
def mesh():
    with Mesh(MPI.COMM_SELF, y=1, x=1, periodic=("y", "x")) as found:
        yield found


KINDS = "4dvar", "4dvar_cg", "letkf", "flood"


def settings(**more):
    return Config.model_validate({**SMALL, **more})


@pytest.mark.parametrize(
    ("counts", "kinds"),
    [((1, 3), ("4dvar", "letkf")), pytest.param((1, 2, 3, 4, 6), KINDS, marks=pytest.mark.nightly)],
    ids=str,
)
def test_any_number_of_ranks_has_the_same_bits(mpirun, counts, kinds):
    printed = {mpirun(ranks, "assimilate_ranks.py", *kinds, timeout=150).stdout for ranks in counts}
    (text,) = printed
    assert tuple(line.split()[0] for line in text.splitlines()) == kinds


def test_waves_have_the_frequency_of_poincare_and_water_stays(mesh):
    """A small wave in h without a current: of it f^2 / w^2 stays, c^2 k^2 / w^2 swings with w^2 = f^2 + c^2 k^2."""
    small = {"truth": {"scale": 4.0}, "background": {"scale": 4.0}}
    config = Config.model_validate({"grid": {"ny": 16, "nx": 64}, "physics": {"viscosity": 0.0}, **small})
    h = Field.zeros(mesh, Decomposition((16, 64), mesh.topology, 1))
    u, v, it = h.like(), h.like(), config.physics
    _, i = h.indices()
    shape = np.cos(2 * np.pi * i / 64) + 0 * h.interior
    h.interior[...] = it.depth + 1e-3 * shape
    mass, step, amplitudes = h.sum(repro=True), Water(config).step, []
    for _ in range(150):
        h, u, v = step(h, u, v)
        amplitudes.append(2 * ((h.interior - it.depth) * shape).mean() / 1e-3)
    k = 2 * np.sin(np.pi / 64) / config.grid.dx
    w = np.sqrt(it.f**2 + it.gravity * it.depth * k**2)
    times = config.window.dt * np.arange(1, 151)
    exact = (it.f**2 + it.gravity * it.depth * k**2 * np.cos(w * times)) / w**2
    assert np.abs(np.array(amplitudes) - exact).max() < 5e-3
    assert exact.min() < 0
    assert h.sum(repro=True) == pytest.approx(mass, rel=1e-14)


def test_the_current_of_a_covariance_is_in_balance(mesh):
    """Little of a small disturbance in balance changes in an hour, and much of one at rest."""
    config = Config.model_validate({"physics": {"viscosity": 0.0}})
    twin = Twin(config.model_copy(update={"window": config.window.model_copy(update={"steps": 6})}), mesh)
    change = Covariance(twin.water, twin.like, 0.1, 0.0, 6.0).spread(twin.noise(9, 0))
    h, u, v = (field.like() for field in change)
    changes = []
    for share in (1.0, 0.0):
        for field, more, factor in zip((h, u, v), change, (1.0, share, share), strict=True):
            field.interior[...] = factor * more.interior
        h.interior[...] += config.physics.depth
        end = twin.run((h, u, v), 14)
        changes.append(np.abs(end[0].interior - h.interior).max() / np.abs(change[0].interior).max())
    assert changes[0] < 0.1 * changes[1]


def test_errors_have_their_size_and_the_adjoint_is_the_adjoint(mesh):
    twin = Twin(settings(grid={"ny": 64, "nx": 60}, background={"scale": 3.0, "error": 5.0, "unbalanced": 0.3}), mesh)
    seen = np.array([[f.interior.std() for f in twin.errors.spread(twin.noise(7, k))] for k in range(6)]).mean(axis=0)
    assert seen[0] == pytest.approx(5.0, rel=0.1)
    flat = Covariance(twin.water, twin.like, 0.0, 0.3, 3.0).spread(twin.noise(7, 0))
    assert flat[1].interior.std() == pytest.approx(0.3, rel=0.15)
    a, b = twin.noise(7, 10), twin.noise(7, 11)
    there, back = dot(twin.errors.spread(a), b), dot(a, twin.errors.gathered(b))
    assert there == pytest.approx(back, rel=1e-12)


def test_the_gradient_is_that_of_the_cost(mesh):
    twin = Twin(settings(), mesh)
    method = Variational(settings(), twin, None)
    start, way = list(twin.noise(7, 0)), list(twin.noise(7, 1))
    _, slope = method.gradient(start)
    values = []
    for size in (1e-4, -1e-4):
        there = [field.like() for field in start]
        for field, own, more in zip(there, start, way, strict=True):
            field.interior[...] = own.interior + size * more.interior
        values.append(method.gradient(there)[0])
    assert (values[0] - values[1]) / 2e-4 == pytest.approx(dot(slope, way), rel=1e-6)


@pytest.mark.nightly
def test_the_hessian_is_symmetric_and_the_slope_of_the_gradient(mesh):
    """Where the model fits the observations the quadratic cost has the full cost's Hessian."""
    config = settings(
        background={"scale": 4.0, "error": 1e-3, "unbalanced": 1e-5}, observations={"every": 4, "share": 0.1}
    )
    twin = Twin(config, mesh)
    method = Incremental(config, twin, None)
    p, q = list(twin.noise(7, 0)), list(twin.noise(7, 1))
    bent = method._hessian(method.state(), p)
    assert dot(bent, q) == pytest.approx(dot(p, method._hessian(method.state(), q)), rel=1e-10)
    _, slope = method.gradient(p)
    assert dot(slope, q) - dot(method.slope, q) == pytest.approx(dot(bent, q), rel=1e-3)


def test_few_iterations_bring_most_of_the_error_away(mesh):
    found = {}
    for kind, method, steps in (("4dvar", Variational, 12), ("4dvar_cg", Incremental, 2)):
        config = settings(method={"kind": kind}, observations={"share": 0.05, "every": 2})
        twin = Twin(config, mesh)
        it = method(config, twin, None)
        costs = [it.costs()["cost"]]
        for _ in range(steps):
            assert it.step()
            costs.append(it.costs()["cost"])
        assert costs == sorted(costs, reverse=True)
        found[kind] = twin.off(it.state())["norm"] / twin.off(twin.background)["norm"]
    assert max(found.values()) < 0.45, found


def test_the_filter_is_kalmans_where_all_stations_count_alike(mesh):
    config = settings(method={"kind": "letkf", "radius": 1e9, "members": 7, "inflation": 1.0})
    twin = Twin(config, mesh)
    it = Letkf(config, twin, None)
    m, before = 7, []
    for _ in range(config.observations.every):
        it.members = twin.water.step(*it.members)
    before = [field.interior.reshape(-1, m).copy() for field in it.members]
    it.number = 1
    it._analyse()
    errors = config.observations
    x = np.concatenate(before)
    mean, apart = x.mean(axis=1), x - x.mean(axis=1, keepdims=True)
    rows = np.concatenate([k * len(twin.cells) + twin.places for k in range(3)])
    seen = np.concatenate([field.interior.reshape(-1)[twin.places] for field in twin.seen(4)[:3]])
    sizes = np.repeat([errors.error_h, errors.error_u, errors.error_u], len(twin.places))
    y = apart[rows]
    gain = apart @ y.T @ np.linalg.inv(y @ y.T + (m - 1) * np.diag(sizes**2))
    expected = mean + gain @ (seen - mean[rows])
    after = np.concatenate([field.interior.reshape(-1, m) for field in it.members])
    np.testing.assert_allclose(after.mean(axis=1), expected, rtol=0, atol=1e-8 * np.abs(expected).max())
    covariance = apart @ apart.T / (m - 1)
    left = after - after.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(
        left[:50] @ left.T / (m - 1),
        covariance[:50] - gain[:50] @ covariance[rows],
        rtol=0,
        atol=1e-8 * covariance.max(),
    )
    it.close()


def test_weights_of_stations_end_at_the_radius():
    r = np.array([0.0, 1.0, 1.0 + 1e-12, 2.0, 3.0])
    np.testing.assert_allclose(gaspari_cohn(r), [1.0, 5 / 24, 5 / 24, 0.0, 0.0], atol=1e-10)
    assert (np.diff(gaspari_cohn(np.linspace(0, 2, 50))) < 0).all()


FLOOD = {
    "case": "flood",
    "grid": {"ny": 16, "nx": 24, "dx": 25.0},
    "window": {"steps": 60, "dt": 1.5},
    "roughness": {"scale": 3.0},
}


@pytest.fixture
def walled():
    with Mesh(MPI.COMM_SELF, y=1, x=1) as found:
        yield found


def test_a_flood_follows_the_exact_wave_and_keeps_its_water(walled):
    """A wave of constant speed over flat ground (Hunter et al. 2005, Adv. Water Resour. 28, 975-991, eq. 14)."""
    dx, dt, n, speed = 10.0, 0.5, 0.05, 0.35
    h = Field.zeros(walled, Decomposition((3, 120), walled.topology, 1))
    qx, qy, bottom, rough = (h.like() for _ in range(4))
    _, i = h.indices()
    rough.interior[...] = n

    def depth(t, x):
        return (7 / 3 * (n * speed) ** 2 * np.maximum(speed * t + 700.0 - x, 0.0)) ** (3 / 7)

    h.interior[...] = depth(0.0, (i + 0.5) * dx)
    qx.interior[...] = speed * depth(0.0, i * dx) * (i > 0)
    step, water = flood_step(dx, dt, 9.81, 1e-4), h.sum(repro=True)
    for _ in range(300):
        h, qx, qy = step(h, qx, qy, bottom, rough)
    exact = depth(150.0, (i + 0.5) * dx)
    far = np.broadcast_to((i > 55) & (i < 71), h.interior.shape)  # the wall at the upper end has not been heard of
    assert np.abs(h.interior - exact)[far].max() < 0.03 * exact.max()
    assert np.abs(h.interior - depth(0.0, (i + 0.5) * dx))[far].max() > 0.1 * exact.max()
    assert h.sum(repro=True) == pytest.approx(water, rel=1e-14)
    assert h.interior.min() >= 0.0


def test_shallow_water_on_a_slope_flows_as_manning_says(walled):
    """A flow per width of h^(5/3) sqrt(slope) / n, where the walls have not been heard of."""
    dx, dt, n, slope, depth = 10.0, 0.5, 0.05, 1e-3, 0.2
    h = Field.zeros(walled, Decomposition((3, 120), walled.topology, 1))
    qx, qy, bottom, rough = (h.like() for _ in range(4))
    _, i = h.indices()
    h.interior[...], rough.interior[...], bottom.interior[...] = depth, n, slope * dx * (120 - i)
    step = flood_step(dx, dt, 9.81, 1e-4)
    for _ in range(150):
        h, qx, qy = step(h, qx, qy, bottom, rough)
    middle = qx.interior[:, 50:70]
    np.testing.assert_allclose(middle, depth ** (5 / 3) * np.sqrt(slope) / n, rtol=0.01)


def test_a_lake_in_a_valley_stays_at_rest(walled):
    valley = Valley(Config.model_validate({**FLOOD, "window": {"steps": 10, "dt": 1.5}}), walled)
    h = valley.like.like()
    h.interior[...] = np.maximum(0.0, 3.0 - valley.bottom.interior)
    before = h.interior.copy()
    state = valley.step(h, h.like(), h.like(), valley.bottom, valley.truth)
    assert np.abs(state[0].interior - before).max() < 1e-15
    assert (before > 0).any()
    assert (before == 0).any()


def test_the_gradient_of_a_flood_is_that_of_its_cost_and_the_roughness_is_found(walled):
    config = Config.model_validate(FLOOD)
    valley = Valley(config, walled)
    method = Roughness(config, valley, None)
    sizes = np.array([np.log(valley.roughness(valley._noise(7, k)).interior / 0.04) for k in range(60)]).std(axis=0)
    np.testing.assert_allclose(sizes, 0.4, rtol=0.45)
    assert sizes.mean() == pytest.approx(0.4, rel=0.06)
    assert deviations((5, 4), 0) == pytest.approx(np.ones((5, 4)))
    start, way = valley._noise(7, 0), valley._noise(7, 1)
    _, (slope,) = method.gradient([start])
    values = []
    for size in (1e-5, -1e-5):
        there = start.like()
        there.interior[...] = start.interior + size * way.interior
        values.append(method.gradient([there])[0])
    assert (values[0] - values[1]) / 2e-5 == pytest.approx(slope.dot(way), rel=1e-5)
    first: dict[str, float] = {}
    found = method.metrics(first)
    assert (found["error"], found["error_end"]) == (1.0, 1.0)
    for _ in range(10):
        assert method.step()
    found = method.metrics(first)
    assert found["error"] < 0.8
    assert found["error_end"] < 0.5


WORDS = (
    "grid.ny=20",
    "grid.nx=24",
    "window.steps=24",
    "truth.scale=4",
    "background.scale=4",
    "observations.share=0.05",
)


@pytest.mark.parametrize("kind", by_day(["4dvar", "letkf", "flood"], "letkf", "flood"))
def test_a_run_leaves_fields_metrics_and_a_page(tmp_path, kind):
    words = ("assimilate", *WORDS, f"method.kind={kind}", "method.members=6")
    if kind == "flood":
        words = ("assimilate/flood_friction", "grid.ny=16", "grid.nx=24", "window.steps=60", "roughness.scale=3")
    assert main(["run", *words, "method.iterations=4", "--directory", str(tmp_path / kind)]) == 0
    lines = [json.loads(line) for line in (tmp_path / kind / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["error"] == pytest.approx(1.0, abs=0.2 if kind == "letkf" else 1e-6)
    assert lines[-1]["error"] < 0.8 * lines[0]["error"]
    summary = json.loads((tmp_path / kind / "summary.json").read_text())
    assert summary["assimilation_error"] == lines[-1]["error"]
    page = (tmp_path / kind / "report" / "index.html").read_text()
    assert ("Floods and roughness" if kind == "flood" else "Maps of the error") in page
    assert "sections of the report failed" not in page


def test_all_that_does_not_fit_is_told_at_once():
    wrong = {"window": {"dt": 900.0, "steps": 4}, "truth": {"amplitude": 900.0}, "background": {"scale": 30.0}}
    with pytest.raises(ValidationError) as error:
        Config.model_validate(wrong)
    for said in ("observations.every", "window.dt", "truth.amplitude", "background.scale"):
        assert said in str(error.value)
    wrong = {"case": "flood", "window": {"dt": 9.0, "steps": 4}, "method": {"kind": "letkf"}, "grid": {"dx": 5.0}}
    with pytest.raises(ValidationError) as error:
        Config.model_validate(wrong)
    for said in ("gauges.every", "window.dt", "method.kind"):
        assert said in str(error.value)


def test_a_dry_run_knows_stations_and_memory():
    told = dry_run(Config(), 4)
    assert told.steps == 30
    assert told.halo_bytes > 0
    assert "41 stations" in told.notes[0]
    assert "25 gauges, 150 observations" in dry_run(Config.model_validate(FLOOD), 4).notes[0]


@pytest.mark.nightly
def test_the_preset_leaves_a_tenth_of_the_error(mesh):
    twin = Twin(Config(), mesh)
    it = Variational(Config(), twin, None)
    for _ in range(30):
        assert it.step()
    assert twin.off(it.state())["norm"] <= 0.1 * twin.off(twin.background)["norm"]
