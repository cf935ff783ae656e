"""Linear waves over terrain: the closed form over a wide hill, and steps of a difference scheme in a channel."""

from __future__ import annotations

import numpy as np

from hpckit.apps.exact.mountain_waves import boussinesq, channel
from hpckit.kernels.euler.constants import CP, GAMMA, GRAVITY, RD

WIND = 20.0


def test_over_a_wide_hill_it_is_the_hydrostatic_closed_form():
    """Displacement a h (a cos mz - x sin mz) / (x**2 + a**2) (Queney 1948), w = U d/dx of it."""
    a, frequency, width = 60e3, 0.01, 4000e3
    x = (np.arange(4000) + 0.5) * width / 4000 - width / 2
    z = np.array([0.0, 1500.0, 4000.0])
    w = boussinesq(a**2 / (x**2 + a**2), width, z, WIND, frequency, np.ones(3), 1.0)
    m = frequency / WIND
    displacement = a * (a * np.cos(m * z[:, None]) - x * np.sin(m * z[:, None])) / (x**2 + a**2)
    np.testing.assert_allclose(w, WIND * np.gradient(displacement, x, axis=1), atol=0.02 * np.abs(w).max())


def test_in_a_channel_it_is_what_implicit_steps_of_the_equations_give():
    """On levels of 120 m in steps of a second, of a wave that is long enough to propagate, and one that fades."""
    height, temperature, end, nz, dt = 12e3, 250.0, 200.0, 100, 1.0
    scale, sound = RD * temperature / GRAVITY, np.sqrt(GAMMA * RD * temperature)
    frequency, tilt, dz = GRAVITY / np.sqrt(CP * temperature), 1 / (2 * scale) - GRAVITY / sound**2, height / nz
    z = np.arange(nz + 1) * dz
    for width in (24e3, 4e3):
        k = 2 * np.pi / width
        fall = np.eye(nz, nz + 1, 1) * (1 / dz + tilt / 2) + np.eye(nz, nz + 1) * (tilt / 2 - 1 / dz)
        push = -fall.T
        inside = np.diag(np.r_[0.0, np.ones(nz - 1), 0.0])  # w of ground and lid does not change
        blank, across = np.zeros, np.eye(nz)
        rate = np.block(
            [
                [blank((nz, nz)), blank((nz, nz + 1)), -1j * k * sound * across, blank((nz, nz + 1))],
                [blank((nz + 1, nz)), blank((nz + 1, nz + 1)), -sound * inside @ push, frequency * inside],
                [-1j * k * sound * across, -sound * fall, blank((nz, nz)), blank((nz, nz + 1))],
                [blank((nz + 1, nz)), -frequency * np.eye(nz + 1), blank((nz + 1, nz)), blank((nz + 1, nz + 1))],
            ]
        )
        moved = np.ones(len(rate))
        moved[[nz, 2 * nz]] = 0.0
        rate = rate - 1j * k * WIND * np.diag(moved)
        q = np.zeros(len(rate), complex)
        q[nz : 2 * nz + 1] = 1j * k * WIND * (1 - z / height) * np.exp(-z / (2 * scale))
        half = 0.5 * dt * rate
        step = np.linalg.solve(np.eye(len(q)) - half, np.eye(len(q)) + half)
        for _ in range(round(end / dt)):
            q = step @ q
        x = np.arange(32) * width / 32
        expected = np.real(np.exp(1j * k * x) * (q[nz : 2 * nz + 1] * np.exp(z / (2 * scale)))[:, None])
        w = channel(np.cos(k * x), width, height, z, end, WIND, temperature)
        np.testing.assert_allclose(w, expected, atol=0.03 * np.abs(expected).max())
        start = channel(np.cos(k * x), width, height, z, 0.0, WIND, temperature)
        begin = -k * WIND * np.sin(k * x) * (1 - z / height)[:, None]
        np.testing.assert_allclose(start, begin, atol=1e-3 * np.abs(begin).max())
        assert np.abs(w - start).max() > 0.2 * np.abs(start).max()
