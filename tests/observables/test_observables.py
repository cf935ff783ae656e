"""Observables against exact results, freud, and themselves on several ranks."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from hpckit.errors import InputError
from hpckit.md.observables import (
    DensityProfile,
    RadialDistribution,
    RadialProfile,
    SpeedDistribution,
    StructureFactor,
    TimeCorrelation,
)
from hpckit.plan.particles.snapshot import Snapshot


def frame_of(positions, edges, types=None, velocities=None, time=0.0, lower=0.0, masses=None):
    n, edges = len(positions), np.broadcast_to(np.asarray(edges, float), 3)
    lower = np.broadcast_to(np.asarray(lower, float), 3)
    images = np.floor((positions - lower) / edges).astype(np.int32)
    types = np.zeros(n, np.int64) if types is None else types
    wrapped = positions - images * edges
    every = np.arange(1, n + 1)
    return Snapshot(
        lower, lower + edges, (True,) * 3, every, types, wrapped, images, velocities, masses=masses, time=time
    )


@pytest.fixture
def gas():
    rng = np.random.default_rng(5)
    return frame_of(9.0 * rng.random((400, 3)), 9.0, rng.integers(0, 2, 400))


def test_radial_distribution_of_a_lattice():
    """Simple cubic, spacing 1: 6 neighbors at 1, 12 at sqrt 2, 8 at sqrt 3."""
    grid = np.stack(np.meshgrid(*[np.arange(6.0)] * 3), -1).reshape(-1, 3) + 0.25
    radial = RadialDistribution(1.8, 180)
    radial.add(frame_of(grid, 6.0))
    result = radial.result()
    steps = np.diff(np.concatenate([[0.0], result.coordination]))
    at = {round(float(r), 3): round(n) for r, n in zip(result.r, steps, strict=True) if n > 0}
    assert at in ({1.005: 6, 1.415: 12, 1.735: 8}, {0.995: 6, 1.415: 12, 1.735: 8})
    assert result.g[150] == 0.0


def test_radial_distribution_of_freud(gas):
    freud = pytest.importorskip("freud", reason="freud is not installed")
    theirs = freud.density.RDF(bins=50, r_max=4.0)
    theirs.compute((freud.box.Box.cube(9.0), gas.positions - 4.5))
    ours = RadialDistribution(4.0, 50, types=2)
    ours.add(gas)
    result = ours.result()
    np.testing.assert_allclose(result.r, theirs.bin_centers, rtol=1e-6)
    # freud works in float32: a pair at the edge of a bin may fall on its other side.
    np.testing.assert_allclose(result.g, theirs.rdf, atol=0.02, rtol=5e-3)
    weights = np.outer(*[np.bincount(gas.types)] * 2) / 400**2
    np.testing.assert_allclose((weights[:, :, None] * result.partial).sum((0, 1)), result.g, rtol=1e-12)


def test_structure_factor_of_freud(gas, monkeypatch):
    freud = pytest.importorskip("freud", reason="freud is not installed")
    k_max, bins = 6.0, 25
    theirs = freud.diffraction.StaticStructureFactorDirect(bins=bins, k_max=k_max, k_min=0, num_sampled_k_points=0)
    theirs.compute((freud.box.Box.cube(9.0), gas.positions - 4.5))
    # freud takes the wave vectors of one octant: ours are told to take the same.
    waves = np.stack(np.meshgrid(*[np.arange(9)] * 3, indexing="ij"), -1).reshape(-1, 3)[1:]
    waves = waves[np.linalg.norm(2 * np.pi * waves / 9.0, axis=1) <= k_max]
    ours = StructureFactor(k_max, bins, most=10**6)
    monkeypatch.setattr(ours, "_choose", lambda edges: waves)
    ours.add(gas)
    result = ours.result()
    shell = np.minimum((result.k / k_max * bins).astype(int), bins - 1)
    np.testing.assert_allclose(result.s, theirs.S_k[shell], rtol=1e-3)
    ours = StructureFactor(k_max, bins, most=10**6)
    ours.add(gas)
    result = ours.result()
    assert result.waves.sum() == sum(
        0 < (x * x + y * y + z * z) * (2 * np.pi / 9) ** 2 <= k_max**2
        for x in range(-9, 10) for y in range(-9, 10) for z in range(-9, 10)
    ) // 2  # fmt: skip


def test_structure_factor_of_a_lattice():
    """All particles scatter in phase at the reciprocal lattice and cancel elsewhere: N and 0."""
    grid = np.stack(np.meshgrid(*[np.arange(4.0)] * 3), -1).reshape(-1, 3)
    structure = StructureFactor(2 * np.pi * 1.001, 600, most=10**6)
    structure.add(frame_of(grid, 4.0))
    result = structure.result()
    peak = result.k > 2 * np.pi * 0.9999
    np.testing.assert_allclose(result.s[peak].max(), 64.0, rtol=1e-10)
    assert result.s[result.k < 2 * np.pi * 0.99].max() < 1e-20 * 64


def test_of_many_wave_vectors_small_shells_keep_all_of_theirs(gas):
    """The first shells have few: a choice that does not ask for shells leaves some of them without any."""
    every, few = StructureFactor(6.0, 25, most=10**6), StructureFactor(6.0, 25, most=300)
    for one in (every, few):
        one.add(gas)
    every, few = every.result(), few.result()
    assert few.waves.sum() == 300
    assert len(few.k) == len(every.k)
    share = int(few.waves.max())
    np.testing.assert_array_equal(few.waves >= np.minimum(every.waves, share - 1), True)
    whole = every.waves < share
    assert whole.sum() >= 5
    np.testing.assert_allclose(few.s[whole], every.s[whole], rtol=1e-12)


def test_ballistic_motion_and_a_random_walk():
    rng = np.random.default_rng(2)
    n, edge = 300, 3.0
    velocities, start = rng.normal(size=(n, 3)), edge * rng.random((n, 3))
    flight = TimeCorrelation(lags=20, spacing=3)
    for number in range(40):
        flight.add(frame_of(start + velocities * 0.5 * number, edge, velocities=velocities, time=0.5 * number))
    result = flight.result()
    square = (velocities**2).sum(1).mean()
    np.testing.assert_allclose(result.msd, square * result.time**2, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(result.vacf, square, rtol=1e-12)
    assert result.green_kubo()[0] == pytest.approx(square * result.time[-1] / 3, rel=1e-12)
    walk, places = TimeCorrelation(lags=40), start.copy()
    for number in range(200):
        walk.add(frame_of(places, edge, time=0.1 * number))
        places = places + rng.normal(scale=0.2, size=(n, 3))
    value, error = walk.result().diffusion()
    assert abs(value - 0.2**2 / (2 * 0.1)) < 4 * error
    assert 0 < error < 0.05 * value


def test_frames_out_of_order_are_refused():
    frame = frame_of(np.zeros((4, 3)), 1.0)
    for second in (0.0, -1.0):
        it = TimeCorrelation(lags=3)
        it.add(frame)
        with pytest.raises(InputError, match="comes after one at 0"):
            it.add(dataclasses.replace(frame, time=second))


def test_unequal_intervals_are_refused():
    it, frame = TimeCorrelation(lags=3), frame_of(np.zeros((4, 3)), 1.0)
    for time in (0.0, 1.0, 2.0):
        it.add(dataclasses.replace(frame, time=time))
    with pytest.raises(InputError, match="was due at 3 and is at 4"):
        it.add(dataclasses.replace(frame, time=4.0))


def test_speeds_of_maxwell_and_boltzmann():
    rng = np.random.default_rng(7)
    n, kt, masses = 40_000, 1.7, np.array([1.0, 4.0])
    types = rng.integers(0, 2, n)
    velocities = rng.normal(size=(n, 3)) * np.sqrt(kt / masses[types])[:, None]
    frame = frame_of(rng.random((n, 3)), 1.0, types, velocities, masses=masses)
    speeds = SpeedDistribution(kt)
    speeds.add(frame)
    result = speeds.result()
    assert result.distance < 1.95 / np.sqrt(n)  # Kolmogorov-Smirnov, 0.1 %
    assert result.density.sum() * result.u[0] * 2 == pytest.approx(1.0)
    wrong = SpeedDistribution(1.1 * kt)
    wrong.add(frame)
    assert wrong.result().distance > 4 / np.sqrt(n)


def test_density_profile():
    rng = np.random.default_rng(9)
    z = np.concatenate([rng.random(3000) * 2.0, 2.0 + rng.random(1000) * 6.0]) - 1.0
    positions = np.stack([rng.random(4000) * 2, rng.random(4000) * 3, z], 1)
    frame = frame_of(positions, (2.0, 3.0, 8.0), lower=(0.0, 0.0, -1.0), masses=np.array([2.5]))
    profile = DensityProfile("z", 8)
    profile.add(frame)
    profile.add(frame)
    result = profile.result()
    assert result.x[0] == -0.5
    assert result.density[:2].sum() * 6.0 == pytest.approx(3000)
    np.testing.assert_allclose(result.mass_density, 2.5 * result.density)


@pytest.mark.parametrize("shift", [0.0, 4.3])
def test_a_droplet_has_its_density_and_radius_wherever_it_is(shift):
    rng = np.random.default_rng(3)
    places = rng.uniform(0, 9, (60_000, 3))
    inside = np.linalg.norm(places - 4.5, axis=1) < 2.0
    places = np.concatenate([places[inside], places[~inside][::20]])
    profile = RadialProfile(15)
    profile.add(frame_of((places + shift) % 9.0, 9.0, masses=np.array([2.0])))
    result = profile.result()
    density = 60_000 / 9.0**3
    assert result.x[-1] == pytest.approx(4.35)
    np.testing.assert_allclose(result.density[(result.x > 0.8) & (result.x < 1.8)], density, rtol=0.2)
    np.testing.assert_allclose(result.density[result.x > 2.5], density / 20, rtol=0.4)
    np.testing.assert_allclose(result.mass_density, 2.0 * result.density)


def test_what_does_not_fit_is_refused(gas):
    with pytest.raises(InputError, match="does not fit a periodic box") as caught:
        RadialDistribution(4.6).add(gas)
    assert "4.5" in caught.value.do
    with pytest.raises(InputError, match="type 1, the radial distribution has 1"):
        RadialDistribution(4.0).add(gas)
    with pytest.raises(InputError, match="with velocities"):
        SpeedDistribution(1.0).add(gas)
    with pytest.raises(InputError, match="periodic in x, y and z"):
        StructureFactor(3.0).add(dataclasses.replace(gas, periodic=(True, True, False)))
    with pytest.raises(InputError, match="along x, y or z"):
        DensityProfile("w")
    profile = DensityProfile()
    profile.add(gas)
    with pytest.raises(InputError, match="constant size"):
        profile.add(dataclasses.replace(gas, upper=gas.upper + 1))


def test_ranks_share_the_work(mpirun):
    program = Path(__file__).parents[1] / "programs" / "observables.py"
    one = mpirun(1, program).stdout
    for ranks in (2, 3):
        assert mpirun(ranks, program).stdout == one


def test_the_program_of_the_docs_runs():
    text = (Path(__file__).parents[2] / "docs" / "particles.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"<!-- program: observables -->\n```python\n(.*?)```", text, re.S)
    exec(program, {})
