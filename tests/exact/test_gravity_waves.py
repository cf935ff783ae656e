"""The exact waves solve the linear equations, by differences of high order; start, walls and energy as they must be."""

from __future__ import annotations

import numpy as np
import pytest

from hpckit.apps.exact.gravity_waves import WaveChannel, matrices, waves

CHANNEL = WaveChannel(60_000.0, 10_000.0, 250.0, 20.0, 0.01, 23_000.0, 3_000.0, 1e-3, 9.8, 287.0, 1004.0)
X = (np.arange(120) + 0.5) * 500.0


def derivative(values, spacing, axis):
    """Sixth order, inside; the outermost three points of `axis` are cut off."""
    n = values.shape[axis]

    def at(shift):
        return np.take(values, np.arange(3 + shift, n - 3 + shift), axis=axis)

    return (45 * (at(1) - at(-1)) - 9 * (at(2) - at(-2)) + (at(3) - at(-3))) / (60 * spacing)


def residuals(channel, time):
    """What is left of each linear equation, over its largest term."""
    dt, dz = 0.25, 100.0
    z = np.arange(2000.0, 4001.0, dz)
    steps = [waves(channel, time + i * dt, X, z) for i in range(-3, 4)]
    now = steps[3]
    total = {name: derivative(np.stack([one[name] for one in steps]), dt, 0)[0] for name in now}
    k = 2j * np.pi * np.fft.rfftfreq(len(X), X[1] - X[0])
    along = {name: np.fft.irfft(k * np.fft.rfft(values, axis=1), n=len(X), axis=1) for name, values in now.items()}
    up = {name: derivative(values, dz, 0) for name, values in now.items()}
    rows = slice(3, -3)
    t, x, n = ({name: values[rows] for name, values in fields.items()} for fields in (total, along, now))
    g, s, gamma = channel.gravity, channel.scale_height, 1004.0 / 717.0
    rho0 = (channel.surface_density * np.exp(-z / s))[rows, None]
    p0 = rho0 * 287.0 * channel.temperature
    spread = x["u"] + up["w"]
    sides = {
        "u": (t["u"] + channel.wind * x["u"], -x["p"] / rho0 + channel.f * n["v"]),
        "v": (t["v"] + channel.wind * x["v"], -channel.f * n["u"]),
        "w": (t["w"] + channel.wind * x["w"], -up["p"] / rho0 - g * n["rho"] / rho0),
        "rho": (t["rho"] + channel.wind * x["rho"], -rho0 * spread + n["w"] * rho0 / s),
        "p": (t["p"] + channel.wind * x["p"], -gamma * p0 * spread + rho0 * g * n["w"]),
    }
    return {name: np.abs(a - b).max() / np.abs(a).max() for name, (a, b) in sides.items()}


def test_the_linear_equations_are_solved():
    for time in (40.0, 900.0):
        left = residuals(CHANNEL, time)
        assert max(left.values()) < 1e-6, left


@pytest.mark.parametrize("wrong", [{"f": 1.1e-3}, {"gravity": 9.9}, {"wind": 21.0}])
def test_wrong_constants_leave_a_residual(wrong):
    """The test above can fail: the solution of one channel does not solve the equations of another."""

    class Mixed(WaveChannel):
        pass

    other = WaveChannel(**{**vars(CHANNEL), **wrong})
    assert max(residuals_of(other, CHANNEL).values()) > 1e-3


def residuals_of(equations, solution):
    """As `residuals`, for the equations of one channel and the solution of another."""
    import sys

    module = sys.modules[__name__]
    real = module.waves
    module.waves = lambda channel, time, x, z: real(solution, time, x, z)
    try:
        return residuals(equations, 900.0)
    finally:
        module.waves = real


def test_the_start_is_the_warm_band_at_rest_and_walls_let_nothing_through():
    z = np.linspace(0, 10_000.0, 41)
    start = waves(CHANNEL, 0.0, X, z)
    far = np.abs(X - CHANNEL.x0)
    warm = 0.01 * np.exp(z / (2 * CHANNEL.scale_height))[:, None] * np.sin(np.pi * z / 10_000.0)[:, None]
    warm = warm * np.exp(-((far / CHANNEL.d) ** 2))
    theta = warm * np.exp(9.8 * z / (1004.0 * 250.0))[:, None]
    np.testing.assert_allclose(start["theta"], theta, rtol=0, atol=1e-12)
    assert max(np.abs(start[name]).max() for name in ("u", "v", "w")) < 1e-15
    later = waves(CHANNEL, 900.0, X, z)
    assert np.abs(later["w"]).max() > 1e-4
    assert np.abs(later["w"][[0, -1]]).max() < 1e-15
    assert np.abs(later["v"]).max() > 1e-4


def test_the_matrices_keep_energy():
    a = matrices(CHANNEL, np.array([0.0, 1e-4, 3e-3]), np.pi / 10_000.0)
    np.testing.assert_allclose(a, -np.conj(a.transpose(0, 2, 1)), rtol=0, atol=1e-18)


def test_points_that_do_not_cover_the_width_are_refused():
    with pytest.raises(ValueError, match="evenly"):
        waves(CHANNEL, 0.0, X[:-1], np.array([100.0]))
