"""The equation of state against published figures, itself, and the exact second virial coefficient."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hpckit.apps.exact.lennard_jones_fluid import energy, free_energy, pressure


def test_figures_of_other_programs():
    """P and U at T = 1.3 by the Fortran program that bgy3d (on GitHub) has, whose constants are float32."""
    assert pressure(1.3, 0.2) == pytest.approx(0.12147936810578708, rel=1e-5)
    assert pressure(1.3, 0.4) == pytest.approx(0.11253334756806482, rel=1e-5)
    assert energy(1.3, 0.2) == pytest.approx(-1.5371511277396868, rel=1e-5)
    assert energy(1.3, 0.4) == pytest.approx(-2.806016725054152, rel=1e-5)


def test_the_critical_point():
    """The authors give T = 1.3396, rho = 0.3108, P = 0.1405: there the isotherm is flat and turns."""
    t, rho, h = 1.3396, 0.3108, 1e-3
    low, middle, high = (pressure(t, rho + step) for step in (-h, 0.0, h))
    assert middle == pytest.approx(0.1405, abs=2e-4)
    assert abs(high - low) / (2 * h) < 1e-3
    assert abs(high - 2 * middle + low) / h**2 < 0.05


@pytest.mark.parametrize(("t", "rho"), [(0.8, 0.85), (1.5, 0.3), (3.0, 0.9)])
def test_pressure_and_energy_come_from_the_free_energy(t, rho):
    h = 1e-5
    slope = (free_energy(t, rho + h) - free_energy(t, rho - h)) / (2 * h)
    assert pressure(t, rho) == pytest.approx(rho * t + rho**2 * slope, rel=1e-7, abs=1e-8)
    slope = (free_energy(t + h, rho) / (t + h) - free_energy(t - h, rho) / (t - h)) / (2 * h)
    assert energy(t, rho) == pytest.approx(-(t**2) * slope, rel=1e-7)


@pytest.mark.parametrize("t", [0.75, 1.0, 2.0, 5.0])
def test_the_second_virial_coefficient_is_the_exact_one(t):
    r = np.concatenate([np.linspace(1e-3, 3, 30_001), np.linspace(3, 60, 30_001)[1:]])
    mayer = np.exp(-4 / t * (r**-12 - r**-6)) - 1
    values = -2 * math.pi * mayer * r**2
    exact = float(np.sum(0.5 * (values[1:] + values[:-1]) * np.diff(r)))
    rho = 1e-7
    assert (pressure(t, rho) / (rho * t) - 1) / rho == pytest.approx(exact, abs=5e-3 * max(1.0, abs(exact)))
