"""Exact solutions of shallow water on an f-plane, and of the anelastic start: they solve their equations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hpckit.apps.exact import anelastic, rotating

G, H, F = 9.81, 1000.0, 1e-4


def test_phase_speeds():
    k = 2 * np.pi / 2e6
    assert rotating.gravity_wave_speed(G, H) == pytest.approx(99.045, abs=1e-3)
    assert rotating.poincare_speed(G, H, 0.0, k) == pytest.approx(rotating.gravity_wave_speed(G, H))
    omega = rotating.poincare_speed(G, H, F, k) * k
    assert omega**2 == pytest.approx(F**2 + G * H * k**2)
    coarse, fine = (rotating.poincare_speed_c_grid(G, H, F, k, dx) for dx in (1e5, 5e4))
    exact = rotating.poincare_speed(G, H, F, k)
    assert (exact - coarse) / (exact - fine) == pytest.approx(4.0, rel=0.02)


def test_the_adjusted_step_keeps_potential_vorticity_and_is_geostrophic():
    width, amplitude = 32e6, 0.1
    x = (np.arange(6400) + 0.5) * width / 6400
    eta, v = rotating.adjusted_step(x, width, amplitude, G, H, F)
    dx = x[1] - x[0]
    slope = (np.roll(eta, -1) - np.roll(eta, 1)) / (2 * dx)
    away = np.minimum(np.abs(x - width / 2), np.minimum(x, width - x)) > 3 * dx
    np.testing.assert_allclose(v[away], (G / F * slope)[away], rtol=0, atol=1e-4 * np.abs(v).max())
    vorticity = (np.roll(v, -1) - np.roll(v, 1)) / (2 * dx)
    start = np.where(x < width / 2, amplitude, -amplitude)
    kept = vorticity - F * eta / H + F * start / H
    assert np.abs(kept[away]).max() < 1e-4 * F * amplitude / H
    a = rotating.rossby_radius(G, H, F)
    near = width / 2 - 1.5 * a
    assert np.interp(near, x, eta) == pytest.approx(amplitude * (1 - math.exp(-1.5)), rel=1e-4)


def test_the_energies_of_the_adjustment():
    width, amplitude = 32e6, 0.1
    lost, gained = rotating.adjustment_energies(width, amplitude, G, H, F)
    assert gained / lost == pytest.approx(1 / 3, rel=1e-5)
    x = (np.arange(100_000) + 0.5) * width / 100_000
    eta, v = rotating.adjusted_step(x, width, amplitude, G, H, F)
    assert lost == pytest.approx(0.5 * G * (amplitude**2 - eta**2).sum() * width / 100_000, rel=1e-4)
    assert gained == pytest.approx(0.5 * H * (v**2).sum() * width / 100_000, rel=1e-4)


def test_the_anelastic_start():
    """A mode of constant density: a = b k2 / (k2 + m2); nothing where the buoyancy does not vary along x."""
    nz, nx, dx, dz = 200, 32, 50.0, 5.0
    z, x = (np.arange(nz) + 0.5) * dz, (np.arange(nx) + 0.5) * dx
    k, m = 2 * np.pi * 3 / (nx * dx), np.pi * 2 / (nz * dz)
    mode = 0.01 * np.sin(m * z)[:, None] * np.cos(k * x)
    found = anelastic.initial_acceleration(mode + 0.005, np.ones(nz), dx, dz)
    np.testing.assert_allclose(found, mode * k**2 / (k**2 + m**2), rtol=0, atol=1e-3 * 0.01)
    # With density: the momentum of the acceleration diverges as much as the one along x says.
    rho = np.exp(-z / 300.0)
    found = anelastic.initial_acceleration(mode, rho, dx, dz)
    assert np.abs(found - mode * k**2 / (k**2 + m**2)).max() > 1e-4
    np.testing.assert_allclose(found.sum(axis=1), 0.0, atol=1e-15)


def test_small_waves_solve_the_wave_equation():
    """A plane mode stands; any start keeps its mean; second differences in time and space agree."""
    nx, ny, width, height = 48, 36, 960.0, 720.0
    x, y = (np.arange(nx) + 0.5) * 20.0, (np.arange(ny)[:, None] + 0.5) * 20.0
    mode = np.cos(2 * np.pi * (2 * x / width + 3 * y / height))
    k, c = 2 * np.pi * math.hypot(2 / width, 3 / height), rotating.gravity_wave_speed(G, 10.0)
    np.testing.assert_allclose(
        rotating.long_waves(mode, width, height, 7.0, G, 10.0), mode * math.cos(c * k * 7.0), atol=1e-12
    )
    hump = np.exp(-0.5 * ((x - 480) ** 2 + (y - 360) ** 2) / 80.0**2)
    before, now, after = (rotating.long_waves(hump, width, height, t, G, 10.0) for t in (9.9, 10.0, 10.1))
    assert now.mean() == pytest.approx(hump.mean(), rel=1e-12)
    spread = sum(np.roll(now, 1, a) - 2 * now + np.roll(now, -1, a) for a in (0, 1)) / 20.0**2
    np.testing.assert_allclose((before - 2 * now + after) / 0.01, c * c * spread, atol=0.05 * c * c * spread.max())
