"""Fits of pair potentials: parameters that are known, differences, LAMMPS's forces by a run's own loop, mistakes."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hpckit as hp
from hpckit.errors import BlowUpError, InputError
from hpckit.kernels.particles.pair.parameters import normal_equations
from hpckit.md.bridges.fit import ReferenceFrame, _pairs, _read

BOX, CUTOFF = np.array([6.0, 6.5, 7.0]), 2.9


def yukawa(r2, p):
    r = math.sqrt(r2)
    return p[0] * math.exp(-r / p[1]) / r + p[2] / (1 + r2 * r2 * r2)


def by_hand(energy, p, positions, switch=None):
    """Energy and forces from a double loop over the pairs, the force by central differences of the energy."""

    def whole(r):
        x = max(r * r, switch * switch) if switch else 0.0
        outer, inner = CUTOFF**2, (switch or 0.0) ** 2
        fade = (outer - x) ** 2 * (outer + 2 * x - 3 * inner) / (outer - inner) ** 3 if switch else 1.0
        return energy(r * r, p) * fade

    total, forces, h = 0.0, np.zeros_like(positions), 1e-5
    for a in range(len(positions)):
        for b in range(a):
            d = positions[a] - positions[b]
            d -= BOX * np.rint(d / BOX)
            if (r := float(np.linalg.norm(d))) < CUTOFF:
                total += whole(r)
                push = -(whole(r + h) - whole(r - h)) / (2 * h) * d / r
                forces[a] += push
                forces[b] -= push
    return total, forces


def frames_of(energy, p, switch=None, offset=0.0, count=4):
    """Particles near the points of a lattice, so that no two are too near."""
    rng, made = np.random.default_rng(7), []
    lattice = np.stack(np.meshgrid(*[np.arange(3) + 0.5] * 3, indexing="ij"), -1).reshape(-1, 3) * BOX / 3
    for _ in range(count):
        x = lattice + rng.uniform(-0.4, 0.4, lattice.shape)
        total, forces = by_hand(energy, p, x, switch)
        made.append(ReferenceFrame(x, BOX, forces, total + offset * len(x)))
    return made


@pytest.mark.parametrize(("switch", "offset"), [pytest.param(None, 0.0, marks=pytest.mark.nightly), (2.2, -3.5)])
def test_known_parameters_are_found(switch, offset):
    wanted = np.array([2.0, 0.7, 4.0])
    frames = frames_of(yukawa, wanted, switch, offset)
    found = hp.fit_potential(yukawa, [1.0, 1.0, 1.0], frames, CUTOFF, switch=switch, offset=bool(offset))
    np.testing.assert_allclose(found.parameters, wanted, rtol=1e-6)
    assert found.offset == pytest.approx(offset, abs=1e-7)
    assert found.force_error < 1e-8
    assert found.energy_error < 1e-8
    assert (found.errors < 1e-6).all()
    forces_only = [ReferenceFrame(f.positions, f.box, f.forces) for f in frames]
    found = hp.fit_potential(yukawa, [1.0, 1.0, 1.0], forces_only, CUTOFF, switch=switch)
    np.testing.assert_allclose(found.parameters, wanted, rtol=1e-5)


@pytest.mark.nightly
def test_errors_of_the_parameters_are_those_of_noise():
    wanted, rng, off = np.array([2.0, 0.7, 4.0]), np.random.default_rng(5), []
    frames = frames_of(yukawa, wanted)
    for _ in range(300):
        noisy = [
            ReferenceFrame(f.positions, f.box, f.forces + 0.01 * rng.standard_normal(f.forces.shape)) for f in frames
        ]
        found = hp.fit_potential(yukawa, wanted, noisy, CUTOFF)
        off.append((found.parameters - wanted) / found.errors)
    assert found.force_error == pytest.approx(0.01, rel=0.15)
    # Chi squared of 300 draws, each beyond 4.5 of its standard deviations with odds of 1e-5.
    np.testing.assert_allclose(np.mean(np.square(off), axis=0), 1.0, atol=4.5 * math.sqrt(2 / 300))


def test_normal_equations_are_those_of_differences():
    p, h = np.array([1.7, 0.6, 3.1, 0.2]), 1e-5
    (frame,) = frames_of(yukawa, [2.0, 0.7, 4.0], count=1)
    (read,) = _read([frame], [1.0], CUTOFF, None)
    kernel = normal_equations(yukawa, 3, CUTOFF**2)

    def cost(p):
        matrix, slopes = np.zeros((4, 4)), np.zeros(4)
        squares, error = kernel(p, *_pairs(read, CUTOFF), read.forces, read.energy, 1.5, 0.5, matrix, slopes)
        return 1.5**2 * squares + (0.5 * error) ** 2, slopes, matrix

    _, slopes, matrix = cost(p)
    ways = np.eye(4) * h
    np.testing.assert_allclose([(cost(p + w)[0] - cost(p - w)[0]) / (4 * h) for w in ways], slopes, rtol=1e-6)
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-13)
    assert (np.linalg.eigvalsh(matrix) > 0).all()


@pytest.mark.parametrize("count", [1, 9, 300])
def test_pairs_are_all_within_the_cutoff_across_the_box(count):
    """Particles of a gas, some of them in other images of the box, against all pairs."""
    x = np.random.default_rng(count).uniform(-1.0, 2.0, (count, 3)) * BOX
    (read,) = _read([ReferenceFrame(x, BOX, x)], [1.0], CUTOFF, None)
    i, j, apart = _pairs(read, CUTOFF)
    a, b = np.triu_indices(count, 1)
    way = x[a] - x[b]
    way -= BOX * np.rint(way / BOX)
    near = (way**2).sum(axis=1) < CUTOFF**2
    assert np.array_equal(np.stack([i, j]), np.stack([a[near], b[near]]))
    assert np.array_equal(apart, way[near])


def test_any_number_of_ranks_finds_the_same_bits(mpirun):
    one = mpirun(1, "fits.py", timeout=120).stdout
    assert one.startswith("[")
    assert mpirun(3, "fits.py", timeout=120).stdout == one


def test_mistakes_are_told_together():
    good = ReferenceFrame(np.zeros((2, 3)), BOX, np.zeros((2, 3)))
    bad = ReferenceFrame(np.zeros((2, 3)), [3.0, 9.0, 9.0], np.zeros((3, 3)))
    with pytest.raises(InputError, match=r"(?s)frame 1: positions \(2, 3\).*frame 1: the box is"):
        hp.fit_potential(yukawa, [1.0, 1.0, 1.0], [good, bad], CUTOFF)
    with pytest.raises(InputError, match=r"no frame; there is no parameter to fit; .* 0 < switch < cutoff is needed"):
        hp.fit_potential(yukawa, [], [], CUTOFF, switch=3.0)
    with pytest.raises(BlowUpError, match="not finite"):
        hp.fit_potential(yukawa, [1.0, 1.0, 1.0], [good], CUTOFF)  # two particles at one place
    with pytest.raises(TypeError, match="does not depend on r2"):
        hp.fit_potential(lambda r2, p: p[0], [1.0], [good], CUTOFF)
    with pytest.raises(TypeError, match=r"a parameter that was not given \(test_fit_potential.py, line"):
        hp.fit_potential(lambda r2, p: p[0] / r2 + p[1], [1.0], [good], CUTOFF)
