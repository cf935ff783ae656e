"""Statistical mechanics: states, fluctuations and motion of runs beside theory and published simulations."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from scipy.optimize import brentq

from hpckit.apps.exact.lennard_jones_fluid import energy, pressure
from hpckit.io.particles.h5md_reader import read_h5md
from hpckit.io.particles.lammps_data import write_lammps_data
from hpckit.plan.particles.snapshot import Snapshot

pytestmark = pytest.mark.usefixtures("quick_runs")

BLOCKS = 8


SMALL_BOX = (
    *("system.cells=[5,5,5]", "interaction.cutoff=3.5", "neighbors.skin=0.4", "time.dt=0.004", "time.thermo=10"),
    *("time.steps=5000", "analysis.reach=2.5"),
)
RESCALED = "barostat.compressibility=0.1"


def run_app(folder, *words, timeout=1500):
    command = [sys.executable, "-m", "hpckit.cli.main", "run", *words, "--directory", str(folder), "--no-report"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def metrics(folder, after):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {key: np.array([line[key] for line in lines if line["step"] >= after]) for key in lines[0]}


def mean_and_error(values):
    """The mean of a correlated series, and its error from means over blocks."""
    means = np.array([part.mean() for part in np.array_split(values, BLOCKS)])
    return values.mean(), means.std(ddof=1) / np.sqrt(BLOCKS)


def fluid(folder, density, temperature, steps):
    """A fluid of 500 particles with tail corrections, at constant energy: the metrics after it has melted."""
    run_app(
        folder,
        "md",
        "system.cells=[5,5,5]",
        f"system.density={density}",
        f"system.temperature={temperature}",
        "interaction.cutoff=3.5",
        "interaction.tail=true",
        "neighbors.skin=0.4",
        "time.dt=0.004",
        "time.thermo=10",
        f"time.steps={steps}",
    )
    return metrics(folder, after=steps // 5)


def compare(found, density, count=500):
    """Pressure and potential energy within their statistical error and 2 % of rho T, the error of the equation.

    Five errors: every kind of processor rounds in its own way and has another run after some hundred steps.
    """
    temperature = found["temperature"].mean()
    ours, error = mean_and_error(found["pressure"])
    assert error < 0.06
    assert abs(ours - pressure(temperature, density)) < 5 * error + 0.02 * density * temperature
    ours, error = mean_and_error(found["potential"] / count)
    assert error < 0.02
    assert abs(ours - energy(temperature, density)) < 5 * error + 0.01


def test_the_fluid_follows_kolafa_and_nezbeda_and_keeps_its_energy(tmp_path):
    found = fluid(tmp_path / "run", 0.7, 3.4, 3000)
    compare(found, 0.7)
    total = found["energy"] / 500
    slope = np.polyfit(found["time"], total, 1)[0]
    kinetic = found["kinetic"].mean() / 500
    assert abs(slope) * np.ptp(found["time"]) < 2e-3 * kinetic
    assert total.std() < 2e-3 * kinetic


@pytest.mark.nightly
@pytest.mark.parametrize(("density", "temperature"), [(0.3, 2.6), (0.8442, 1.6), (0.9, 4.5)])
def test_more_states_of_the_fluid(tmp_path, density, temperature):
    compare(fluid(tmp_path / "run", density, temperature, 20_000), density)


@pytest.mark.nightly
def test_heat_flows_until_types_are_equally_hot(tmp_path):
    """Light particles start hot, heavy ones at rest: then 3/2 k T a particle in each of them."""
    rng, n, edge = np.random.default_rng(4), 500, (500 / 0.8) ** (1 / 3)
    cells = np.stack(np.meshgrid(*[np.arange(5.0)] * 3, indexing="ij"), -1).reshape(-1, 1, 3)
    sites = (cells + np.array([[0, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]])).reshape(-1, 3)
    types = rng.permutation(np.arange(n) % 2)
    velocities = rng.normal(size=(n, 3)) * 2.0 * (types == 0)[:, None]
    velocities[types == 0] -= velocities[types == 0].mean(axis=0)
    masses = np.array([1.0, 5.0])
    corner, ids, images = np.zeros(3), np.arange(1, n + 1), np.zeros((n, 3), np.int32)
    positions = sites * edge / 5
    start = Snapshot(corner, corner + edge, (True,) * 3, ids, types, positions, images, velocities, masses=masses)
    write_lammps_data(tmp_path / "start.data", start)
    words = ["epsilon=[1.0,1.0]", "sigma=[1.0,1.0]", "shift=true"]
    run_app(
        tmp_path / "run",
        "md",
        f"system.file={tmp_path}/start.data",
        *(f"interaction.{word}" for word in words),
        "time.steps=4000",
        "time.thermo=1000",
        "output.every=20",
    )
    hot = [[], []]
    for frame in read_h5md(tmp_path / "run/output/trajectory.h5md"):
        if frame.step >= 1500:
            squares = (frame.velocities**2).sum(axis=1) * masses[frame.types]
            for kind in (0, 1):
                hot[kind].append(squares[frame.types == kind].mean() / 3)
    (light, light_error), (heavy, heavy_error) = (mean_and_error(np.array(each)) for each in hot)
    assert max(light_error, heavy_error) < 0.02 * light
    # Temperatures of 250 particles vary by 5 %, and these are some ten independent ones of each: 2.3 % of the ratio.
    assert abs(light / heavy - 1) < 0.08


@pytest.mark.nightly
def test_argon_is_rahmans(tmp_path):
    """The preset as it is: first peak of g(r), highest of S(k) and diffusion beside the figures of 1964."""
    from hpckit.apps.md import report
    from hpckit.report.extension import app_sections
    from hpckit.report.run_data import load_run

    run_app(tmp_path / "run", "md/argon")
    (published,) = [one for one in app_sections(report, load_run(tmp_path / "run")) if one.key == "published"]
    assert [check["quantity"] for check in published.numbers["checks"] if not check["passed"]] == []
    assert len(published.numbers["checks"]) == 4


@pytest.mark.nightly
@pytest.mark.parametrize(
    "more",
    [(), ("dynamics.kind=bussi", "barostat.kind=cell_rescaling", RESCALED)],
    ids=["mtk", "bussi"],
)
def test_a_liquid_at_a_pressure_finds_the_density_of_the_equation_of_state(tmp_path, more):
    run_app(tmp_path / "run", "md/npt", *SMALL_BOX, *more)
    found = metrics(tmp_path / "run", after=1000)
    expected = brentq(lambda density: pressure(1.0, density) - 1.0, 0.6, 0.9)
    ours, error = mean_and_error(found["density"])
    assert error < 0.01
    assert abs(ours - expected) < 5 * error + 0.004
    ours, error = mean_and_error(found["pressure"])
    assert abs(ours - 1.0) < 5 * error + 0.02
    if not more:
        lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
        kept = [line["conserved"] for line in map(json.loads, lines) if "conserved" in line]
        assert len(kept) > 400
        assert np.ptp(kept) < 0.1 * np.ptp(found["energy"])
