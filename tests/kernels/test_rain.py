"""Kessler's warm rain: the reference program of DCMIP2016, the compiled form, water and heat kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hpckit.kernels.euler.constants import HALO, REACH
from hpckit.kernels.euler.rain import dispatch, reference
from hpckit.kernels.euler.rain.constants import HEAT, WARMED

COLUMNS = Path(__file__).with_name("kessler_columns.npz")


@pytest.mark.parametrize("kernels", [reference, dispatch])
def test_columns_are_those_of_the_reference_program(kernels):
    """40 columns, three calls each, through version 2 of the program of DCMIP2016 in double precision."""
    it = np.load(COLUMNS)
    for n, dt in enumerate(it["dt"]):
        shape = (-1, 1, 1)
        theta = it["theta_before"][n].reshape(shape).copy()
        water = np.array([it[f"{name}_before"][n].reshape(shape) for name in ("qv", "qc", "qr")])
        rho, exner = it["rho"][n].reshape(shape), it["exner"][n].reshape(shape)
        gaps = np.diff(it["z"][n])
        thickness = np.append(gaps, 0.5 * gaps[-1])
        for call in range(3):
            rained = np.zeros((1, 1))
            kernels.kessler(theta, water, rho.copy(), exner.copy(), 1e5 * exner ** (1 / 0.2875), thickness, dt, rained)
            np.testing.assert_allclose(rained[0, 0] / dt, it["precipitation"][n][call], rtol=1e-12, atol=1e-22)
        np.testing.assert_allclose(theta.ravel(), it["theta_after"][n], rtol=1e-13)
        for q, name in zip(water, ("qv", "qc", "qr"), strict=True):
            np.testing.assert_allclose(q.ravel(), it[f"{name}_after"][n], rtol=1e-12, atol=1e-16, err_msg=name)


def cells(seed: int = 3) -> tuple[np.ndarray, ...]:
    """Theta, water, density, Exner function, pressure and thickness of some clouds with rain."""
    rng, shape = np.random.default_rng(seed), (9, 4, 5)
    z = np.arange(9)[:, None, None] * 800.0 + np.zeros(shape)
    theta = 300 + 0.004 * z + rng.normal(size=shape)
    exner = 1 - 9.8 * z / (1004 * 320)
    pressure = 1e5 * exner ** (1004 / 287)
    water = rng.random((3, *shape)) * np.array([0.02, 0.004, 0.004])[:, None, None, None] * np.exp(-z / 3000)
    return theta, water, pressure / (287 * exner * theta), exner, pressure, np.full(9, 800.0)


def test_water_is_kept_or_falls_and_heat_is_what_condenses():
    theta, water, rho, exner, pressure, thickness = cells()
    before, warm, rained = (rho * water.sum(axis=0)).sum(axis=0) * 800.0, theta.copy(), np.zeros((4, 5))
    vapor = water[0].copy()
    dispatch.kessler(theta, water, rho, exner, pressure, thickness, 20.0, rained)
    after = (rho * water.sum(axis=0)).sum(axis=0) * 800.0 + 1000.0 * rained
    np.testing.assert_allclose(after, before, rtol=1e-13)
    np.testing.assert_allclose(WARMED * exner * (theta - warm), HEAT * (vapor - water[0]), atol=1e-8)
    assert rained.min() > 0


def test_saturated_air_has_its_cloud_and_nothing_is_lost():
    found = []
    for kernels in (reference, dispatch):
        theta, water, _, exner, pressure, _ = cells()
        total = water[:2].sum(axis=0)
        kernels.saturate(theta, water, exner, pressure)
        np.testing.assert_allclose(water[:2].sum(axis=0), total, rtol=1e-14)
        temperature = exner * theta
        limit = 380.0 / pressure * np.exp(17.27 * (temperature - 273.0) / (temperature - 36.0))
        cloudy = water[1] > 0
        np.testing.assert_allclose(water[0][cloudy], limit[cloudy], rtol=1e-6)
        assert (water[0] <= limit * (1 + 1e-6)).all()
        assert 0 < cloudy.sum() < cloudy.size
        found.append((theta, water))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-14)


def test_air_is_unpacked_and_put_back():
    """The compiled form against NumPy, and nothing changes where nothing happens."""
    rng, found = np.random.default_rng(7), []
    state, deviation = (
        rng.normal(size=(5, 6, 4 + 2 * HALO, 5 + 2 * HALO)),
        rng.normal(size=(6, 4 + 2 * HALO, 5 + 2 * HALO)),
    )
    column = np.array([[1.0], [300.0], [1e5]]) * np.linspace(1.5, 0.5, 6)
    carried = 0.01 * rng.random((4, 6, 4 + 2 * REACH, 5 + 2 * REACH))
    for kernels in (reference, dispatch):
        its, mixed = state.copy(), carried.copy()
        air, water = np.zeros((4, 6, 4, 5)), np.zeros((3, 6, 4, 5))
        kernels.air_of(its, deviation, column, mixed, air, water)
        kernels.put_back(air, water, column, its, mixed)
        np.testing.assert_array_equal(mixed, carried)
        np.testing.assert_allclose(its, state, rtol=0, atol=2e-13 * 300)
        np.testing.assert_allclose(
            air[2] * air[0] * (air[1] * (1 + 461.0 / 287.0 * water[0])) * 287.0, air[3], rtol=1e-14
        )
        water *= 0.5
        kernels.put_back(1.01 * air, water, column, its, mixed)
        found.append((air, water, its, mixed))
    for numpy, numba in zip(*found, strict=True):
        np.testing.assert_allclose(numba, numpy, rtol=1e-14, atol=1e-12)
    with pytest.raises(ValueError, match="water"):
        dispatch.air_of(state, deviation, column, carried, np.zeros((4, 6, 4, 5)), np.zeros((3, 6, 4, 4)))
