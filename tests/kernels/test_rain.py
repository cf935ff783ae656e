"""Kessler's warm rain: the reference program of DCMIP2016, the compiled form, water and heat kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hpckit.kernels.euler.constants import C0, CV, GAMMA, RD, REACH
from hpckit.kernels.euler.hevi.constants import HALO, LEVELS
from hpckit.kernels.euler.rain import dispatch, reference
from hpckit.kernels.euler.rain.constants import CL, CVV, HEAT, LATENT, RV, WARMED

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


@pytest.mark.parametrize("thick", [800.0, 60.0])
def test_a_row_of_columns_is_what_each_is_alone(thick):
    """To the bit, where it rains beside dry air, in one step or more; and what NumPy has."""
    rng, (nz, ny, nx), found = np.random.default_rng(5), (9, 2, 21), []
    theta, exner, pressure = (np.tile(cells()[n], 5)[:, :ny, :nx] for n in (0, 3, 4))
    water = rng.random((3, nz, ny, nx)) * np.array([0.02, 0.004, 0.004])[:, None, None, None]
    water[2, :, 0], water[1:, 4:7], water[1:, :, :, ::3] = 0.0, 0.0, 0.0
    start = theta, water, pressure / (287 * exner * theta), exner, pressure, np.full(nz, thick)
    for kernels in (reference, dispatch):
        its, rained = [each.copy() for each in start], np.zeros((ny, nx))
        kernels.kessler(*its, 20.0, rained)
        found.append((its[0], *its[1], rained))
    for numpy, numba in zip(*found, strict=True):
        np.testing.assert_allclose(numba, numpy, rtol=1e-12, atol=1e-16)
    for j, i in np.ndindex(ny, nx):
        its, rained = [each[..., j : j + 1, i : i + 1].copy() for each in start[:5]], np.zeros((1, 1))
        dispatch.kessler(*its, start[5], 20.0, rained)
        for alone, beside in zip((its[0], *its[1], rained), found[1], strict=True):
            np.testing.assert_array_equal(alone[..., 0, 0], beside[..., j, i])
    assert 0 < np.count_nonzero(found[1][4]) < ny * nx


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


def test_condensation_keeps_internal_energy_and_saturates():
    """At constant volume, with the heat capacities of vapor and water: the energy to rounding, and once is enough."""
    found = []
    for kernels in (reference, dispatch):
        theta, water, _, exner, pressure, _ = cells()
        water[1, 3:5], water[0, 3:5] = 0.0, 1e-3  # clear air stays as it is, to the bit
        rho = pressure / ((RD + RV * water[0]) * exner * theta)

        def energy(theta, exner, water):
            return (CV + CVV * water[0] + CL * (water[1] + water[2])) * theta * exner - LATENT * water[1]

        first, total, warm = energy(theta, exner, water), water[:2].sum(axis=0), theta.copy()
        kernels.condense(theta, water, rho, exner, pressure)
        after = C0 * (rho * theta * (1 + RV / RD * water[0])) ** GAMMA
        temperature = after / (rho * (RD + RV * water[0]))
        np.testing.assert_allclose(energy(theta, temperature / theta, water), first, rtol=1e-14)
        np.testing.assert_allclose(water[:2].sum(axis=0), total, rtol=1e-14)
        np.testing.assert_array_equal(theta[3:5], warm[3:5])
        saturated = 611.2 * np.exp(17.67 * (temperature - 273.15) / (temperature - 29.65))
        partial, cloudy = rho * RV * temperature * water[0], water[1] > 0
        np.testing.assert_allclose(partial[cloudy], saturated[cloudy], rtol=1e-12)
        assert (partial <= saturated * (1 + 1e-12)).all()
        assert 0 < cloudy.sum() < cloudy.size
        again = theta.copy()
        kernels.condense(again, water.copy(), rho, temperature / theta, after)
        np.testing.assert_allclose(again, theta, rtol=1e-14)
        found.append((theta, water))
    for numpy, numba in zip(*found, strict=True):
        np.testing.assert_allclose(numba, numpy, rtol=1e-13, atol=1e-17)


def test_compression_heats_moist_air_by_its_own_heat_capacities():
    """Through a flow whose divergence is known: p follows rho**(c_p / c_v) of the moist air; dry air as it was."""
    rng, (nz, ny, nx), (dx, dy), dt = np.random.default_rng(5), (6, 4, 5), (70.0, 90.0), 3.0
    shape = (5, nz, ny + 2 * HALO, nx + 2 * HALO)
    levels = np.zeros((LEVELS, nz + 1))
    levels[0, :-1], levels[2], levels[3] = 1 / 50.0, 0.5, 0.5
    column = np.array([np.linspace(1.2, 0.6, nz), 300 * np.linspace(1.2, 0.6, nz), np.ones(nz)])
    start, before = rng.normal(scale=0.01, size=shape), rng.normal(size=shape)
    carried = np.zeros((3, nz, ny + 2 * REACH, nx + 2 * REACH))
    carried[:, :, :, REACH + 1 :] = np.array([0.012, 0.006, 0.002])[:, None, None, None]
    rates = np.array([1e-3, -4e-4, 2e-4])  # of u along x, v along y, w along z, 1/s
    rho = start[0] + column[0][:, None, None]
    inner, wide = slice(HALO, -HALO), slice(HALO - 1, 1 - HALO)
    row, file = rho[:, inner, wide], rho[:, wide, inner]
    fluxes = [
        0.5 * (row[..., 1:] + row[..., :-1]) * (rates[0] * dx * np.arange(nx + 1)),
        0.5 * (file[:, 1:] + file[:, :-1]) * (rates[1] * dy * np.arange(ny + 1))[:, None],
        np.zeros((nz + 1, ny, nx)),
    ]
    between = 0.5 * (rho[1:, inner, inner] + rho[:-1, inner, inner])
    fluxes[2][1:-1] = between * (rates[2] * 50.0 * np.arange(1, nz))[:, None, None]
    found = []
    for kernels in (reference, dispatch):
        state = before.copy()
        kernels.compress(state, start, carried, column, levels, *fluxes, (dx, dy), dt)
        heat, old = (each[4, :, inner, inner] + column[1][:, None, None] for each in (state, before))
        np.testing.assert_array_equal(heat[..., :1], old[..., :1])
        cv = CV + CVV * 0.012 + CL * 0.008
        share = (1 + (RD + RV * 0.012) / cv) / GAMMA
        expected = np.exp((1 - share) * rates.sum() * dt)
        np.testing.assert_allclose((heat / old)[:-1, :, 1:], expected, rtol=1e-14)
        state[4, :, inner, inner] = before[4, :, inner, inner]
        np.testing.assert_array_equal(state, before)
        found.append(heat)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-15)
    with pytest.raises(ValueError, match="fluxes"):
        dispatch.compress(before, start, carried, column, levels, *fluxes[::-1], (dx, dy), dt)


def test_air_is_unpacked_and_put_back():
    """The compiled form against NumPy, and nothing changes where nothing happens."""
    rng, found = np.random.default_rng(7), []
    state = rng.normal(size=(5, 6, 4 + 2 * HALO, 5 + 2 * HALO))
    state[4, 3, HALO + 1, HALO + 2] = 100.0  # so warm that its pressure is no series
    column = np.array([[1.0], [300.0], [1e5]]) * np.linspace(1.5, 0.5, 6)
    carried = 0.01 * rng.random((4, 6, 4 + 2 * REACH, 5 + 2 * REACH))
    for kernels in (reference, dispatch):
        its, mixed = state.copy(), carried.copy()
        air, water = np.zeros((4, 6, 4, 5)), np.zeros((3, 6, 4, 5))
        kernels.air_of(its, column, np.ones(6), mixed, air, water)
        kernels.put_back(air, water, column, np.ones(6), its, mixed)
        np.testing.assert_array_equal(mixed, carried)
        np.testing.assert_allclose(its, state, rtol=0, atol=2e-13 * 300)
        np.testing.assert_allclose(
            air[2] * air[0] * (air[1] * (1 + 461.0 / 287.0 * water[0])) * 287.0, air[3], rtol=1e-14
        )
        heat = state[4, :, HALO:-HALO, HALO:-HALO] + column[1][:, None, None]
        np.testing.assert_allclose(air[3], (column[2] / column[1] ** GAMMA)[:, None, None] * heat**GAMMA, rtol=1e-13)
        water *= 0.5
        kernels.put_back(1.01 * air, water, column, np.ones(6), its, mixed)
        found.append((air, water, its, mixed))
    for numpy, numba in zip(*found, strict=True):
        np.testing.assert_allclose(numba, numpy, rtol=1e-14, atol=1e-12)
    few = np.zeros((4, 6, 4, 5)), np.zeros((3, 6, 4, 4))
    with pytest.raises(ValueError, match="water"):
        dispatch.air_of(state, column, np.ones(6), carried, *few)


def test_rain_in_one_pass_of_few_rows_is_that_in_three():
    """To the bit, whether rows are left over or not; over flat ground and terrain."""
    rng, (nz, ny, nx) = np.random.default_rng(8), (6, 5, 7)
    state = 0.1 * rng.normal(size=(5, nz, ny + 2 * HALO, nx + 2 * HALO))
    column = np.array([[1.0], [300.0], [1e5]]) * np.linspace(1.2, 0.8, nz)
    carried = 0.004 * rng.random((4, nz, ny + 2 * REACH, nx + 2 * REACH))
    by_cell = column[:, :, None, None] * (1 + 0.01 * rng.random((3, *state.shape[1:])))
    over = by_cell, 1 + 0.1 * rng.random(state.shape[1:]), 100 + rng.random((nz, ny, nx))
    for base, size, thickness in ((column, np.ones(nz), np.full(nz, 100.0)), over):
        air, water = np.zeros((4, nz, ny, nx)), np.zeros((3, nz, ny, nx))
        expected = state.copy(), carried.copy(), np.zeros((ny, nx))
        dispatch.air_of(expected[0], base, size, expected[1], air, water)
        dispatch.kessler(air[0], water, *air[1:], thickness, 30.0, expected[2])
        dispatch.put_back(air, water, base, size, *expected[:2])
        for rows in (1, 2, ny):
            for kernels in (reference, dispatch):
                its, mixed, rained = state.copy(), carried.copy(), np.zeros((ny, nx))
                few = np.zeros((4, nz, rows, nx)), np.zeros((3, nz, rows, nx))
                kernels.rain(its, base, size, mixed, *few, thickness, 30.0, rained)
                for actual, right in zip((its, mixed, rained), expected, strict=True):
                    close = {"rtol": 1e-11, "atol": 1e-12} if kernels is reference else {"rtol": 0, "atol": 0}
                    np.testing.assert_allclose(actual, right, **close)
        assert expected[2].min() > 0
    with pytest.raises(ValueError, match="rained"):
        dispatch.rain(state, column, np.ones(nz), carried, *few, np.ones(nz), 30.0, np.zeros((ny, nx - 1)))


@pytest.mark.parametrize("kernels", [reference, dispatch])
def test_water_is_summed_where_there_are_mixing_ratios(kernels):
    carried = np.random.default_rng(9).random((4, 5, 6 + 2 * REACH, 7 + 2 * REACH))
    for kinds in (2, 3):
        out = np.full((5, 6 + 2 * HALO, 7 + 2 * HALO), -1.0)
        kernels.total(carried, kinds, out)
        np.testing.assert_array_equal(out[:, 1:-1, 1:-1], carried[:kinds].sum(axis=0))
        out[:, 1:-1, 1:-1] = -1.0
        assert (out == -1.0).all()
    with pytest.raises(ValueError, match="no sum"):
        dispatch.total(carried, 5, out)
