"""Six kinds of water: the compiled form, water and heat kept, limits, published speeds, a parcel that rises."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from hpckit.kernels.euler.rain import reference as warm
from hpckit.kernels.euler.rain.constants import HEAT, WARMED
from hpckit.kernels.euler.rain.ice import dispatch, reference
from hpckit.kernels.euler.rain.ice.constants import FUSION, ICE, MELTING, SNOW, SUBLIMATION

STILL = 1e20  # m: layers so thick that nothing falls through


def cells(seed: int = 3, nx: int = 21) -> tuple[np.ndarray, ...]:
    """Theta, water, density, Exner function, pressure and thickness from the ground to -70 degrees Celsius."""
    rng, shape = np.random.default_rng(seed), (17, 3, nx)
    z = np.arange(17)[:, None, None] * 700.0 + np.zeros(shape)
    theta = 296 + 0.0025 * z + rng.normal(size=shape)
    exner = 1 - 9.8 * z / (1004 * 320)
    pressure = 1e5 * exner ** (1004 / 287)
    most = np.array([0.02, 0.003, 0.003, 0.001, 0.003, 0.004])[:, None, None, None]
    water = rng.random((6, *shape)) * most * np.exp(-z / 4000) * (rng.random((6, *shape)) < 0.7)
    return theta, water, pressure / (287 * exner * theta), exner, pressure, np.full(17, 700.0)


def energy(mass, kelvin, water):
    """Of columns, J/m2: warmth, the heat of vapor, less that of ice."""
    return (mass * (WARMED * kelvin + HEAT * water[0] - FUSION * water[3:].sum(axis=0))).sum(axis=0)


def ground(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((3, *theta.shape[1:])), np.zeros((2, *theta.shape[1:]))


@pytest.mark.parametrize("dt", [2.0, 200.0])
def test_water_and_heat_are_kept_and_nothing_falls_below_zero(dt):
    """In columns at random, to rounding, with the heat of what freezes and falls; the compiled form agrees."""
    found = []
    for kernels in (reference, dispatch):
        theta, water, rho, exner, pressure, thickness = cells()
        fallen, heated = ground(theta)
        water[1:, 4, 0, 0] = -1e-22
        mass, warmth = rho * thickness[:, None, None], exner * theta
        before, first = (mass * water.sum(axis=0)).sum(axis=0), energy(mass, warmth, water)
        for _ in range(3):
            kernels.microphysics(theta, water, rho, exner, pressure, thickness, dt, fallen, heated)
        np.testing.assert_allclose(
            (mass * water.sum(axis=0)).sum(axis=0) + 1e3 * fallen.sum(axis=0), before, rtol=1e-14
        )
        left = energy(mass, exner * theta, water) - 1e3 * FUSION * fallen[1:].sum(axis=0)
        np.testing.assert_allclose(left, first, rtol=1e-14)
        np.testing.assert_allclose(heated[0], (mass * WARMED * (exner * theta - warmth)).sum(axis=0), atol=1e-4)
        np.testing.assert_allclose(heated[1], heated[0], atol=1e-4)
        assert np.abs(heated).max() > 1e6
        assert water.min() >= 0.0
        assert np.isfinite(theta).all()
        assert fallen.min() > 0 if dt > 100 else fallen[0].min() > 0
        found.append((theta, water, fallen, heated))
    for numpy, numba in zip(*found, strict=True):
        np.testing.assert_allclose(numba, numpy, rtol=1e-11, atol=1e-15)


def test_without_ice_above_freezing_it_is_kesslers():
    """But for the fall, which layers of great thickness leave out: to rounding."""
    theta, water, rho, exner, pressure, thickness = (np.ascontiguousarray(each[:4]) for each in cells())
    theta, water, thickness = theta + 12.0, np.ascontiguousarray(cells()[1][:, :4]), thickness + STILL
    water[3:] = 0.0
    others, mixed = theta.copy(), water[:3].copy()
    assert (exner * theta).min() > MELTING
    dispatch.microphysics(theta, water, rho, exner, pressure, thickness, 20.0, *ground(theta))
    warm.kessler(others, mixed, rho, exner, pressure, thickness, 20.0, np.zeros(theta.shape[1:]))
    np.testing.assert_allclose(theta, others, rtol=1e-13)
    np.testing.assert_allclose(water[:3], mixed, rtol=1e-11, atol=1e-18)
    assert not water[3:].any()
    assert np.abs(mixed - cells()[1][:3, :4]).max() > 1e-4


def test_all_water_is_ice_in_the_cold_and_ice_melts_in_the_warm_as_far_as_the_heat_lasts():
    theta, water, rho, exner, pressure, thickness = cells()
    cold = exner * theta < MELTING - 45
    assert 10 < cold.sum() < cold.size / 2
    dispatch.microphysics(theta, water, rho, exner, pressure, thickness, 10.0, *ground(theta))
    assert not water[1:3][:, cold].any()
    theta, water, rho, exner, pressure, thickness = cells()
    warmth = 3.0 * np.random.default_rng(2).random(theta.shape)
    theta = (MELTING + warmth) / exner
    water[0], water[1:], water[ICE] = 0.005, 0.0, 0.004
    dispatch.microphysics(theta, water, rho, exner, pressure, thickness + STILL, 10.0, *ground(theta))
    little = warmth < 0.5  # K: ice of 4 g/kg takes 1.3 K
    assert little.any()
    left = exner * theta - MELTING
    assert left.min() > -1e-9
    np.testing.assert_allclose(left[little & (water[ICE] > 0)], 0.0, atol=1e-9)
    assert not water[ICE][warmth > 2.5].any()
    # Rain that graupel collects in air just below 0 degrees Celsius does not warm it above
    theta = (MELTING - warmth) / exner
    water[0], water[1], water[2], water[3:5], water[5] = 0.003, 0.0, 0.009, 0.0, 0.02
    dispatch.microphysics(theta, water, rho, exner, pressure, thickness + STILL, 200.0, *ground(theta))
    held = exner * theta
    assert held[warmth < 0.5].max() < MELTING + 0.05
    assert water[2][warmth < 0.1].min() > 1e-3


def test_vapor_deposits_until_it_saturates_over_ice():
    """And snow sublimates into dry air until it is gone or saturates: the air's humidity over ice is 1."""
    theta, water, rho, exner, pressure, thickness = (each[6:11] for each in cells())
    water = np.ascontiguousarray(cells()[1][:, 6:11])
    theta, rho, exner, pressure = (np.ascontiguousarray(each) for each in (theta, rho, exner, pressure))
    assert (exner * theta).max() < MELTING
    limit = reference.saturation(exner * theta, pressure)[0]
    water[1:] = 0.0
    water[0], water[SNOW] = limit * np.linspace(0.8, 1.1, 21), 5e-3
    for _ in range(60):
        dispatch.microphysics(theta, water, rho, exner, pressure, thickness + STILL, 300.0, *ground(theta))
    np.testing.assert_allclose(water[0] / reference.saturation(exner * theta, pressure)[0], 1.0, atol=2e-5)
    assert (water[3:].sum(axis=0)[..., 0] < 5e-3).all()
    assert (water[3:].sum(axis=0)[..., -1] > 5e-3).all()


def test_each_process_has_its_sign_and_needs_what_it_takes():
    """Supercooled air with all kinds of water, melting air, and each of the two without one kind."""
    needs = {
        "snow_from_cloud": "sc", "graupel_from_cloud": "gc", "ice_from_cloud": "c", "ice_from_rain": "ir",
        "snow_from_rain": "sr", "graupel_from_rain": "gr", "frozen_rain": "r", "snow_from_ice": "si",
        "graupel_from_ice": "gi", "rain_from_ice": "ri", "rain_from_snow": "sr", "graupel_from_snow": "sg",
        "dense_snow": "s", "ice_grows": "i", "snow_grows": "s", "graupel_grows": "g", "nuclei": "v", "heavy_ice": "i",
    }  # fmt: skip
    melts = {"snow_from_cloud": "sc", "graupel_from_cloud": "gc", "melting_snow": "s", "melting_graupel": "g"}
    full = np.array([[1.5e-3], [1e-3], [1e-3], [2e-4], [1e-3], [1e-3]])

    def rates(kelvin, without="", vapor=1.0):
        water = full.copy()
        for kind in without:
            water["vcrisg".index(kind)] = 0.0
        water[0] *= vapor
        if without != "v" and kelvin < MELTING and vapor == 1:
            water[0] = 1.2 * reference.saturation(np.array([kelvin]), np.array([5e4]))[0]
        given = (np.array([value]) for value in (kelvin, 5e4, 0.65, 1.3))
        return {name: float(each[0]) for name, each in reference.rates(water, *given).items()}

    cold, warmer, dry = rates(258.0), rates(276.0), rates(258.0, vapor=0.1)
    few = rates(258.0, without="i")  # with more ice than nuclei make there are no new ones
    for name, kinds in needs.items():
        assert (few if name == "nuclei" else cold)[name] > 0, name
        for kind in kinds:
            assert rates(258.0, without=kind)[name] <= 0 if kind == "v" else rates(258.0, without=kind)[name] == 0, name
    for name in ("ice_grows", "snow_grows", "graupel_grows"):
        assert dry[name] < 0, name
    assert dry["nuclei"] == 0
    for name, rate in warmer.items():
        assert rate > 0 if name in melts else rate <= 0, name
        assert all(rates(276.0, without=kind)[name] == 0 for kind in melts.get(name, "")), name
    assert warmer["snow_grows"] < 0
    assert warmer["ice_grows"] == 0
    assert cold["melting_snow"] == cold["melting_graupel"] == 0
    np.testing.assert_allclose(warmer["frozen_rain"], 0.0)


def test_speeds_are_those_of_the_papers():
    """Numbers from the formulas as printed, by hand: Lin et al. (1983, eqs. 7-9, 11), Hong et al. (2004, eqs. 5a-c).

    1 g/m3 at 263.15 K, sqrt(rho_ground / rho) = 1.2. Snow: N0 = 2e6 e**1.2 = 6.6402e6 1/m4, slope (pi 100 N0 / 1e-3)
    **0.25 = 1201.8 1/m. Graupel: slope (pi 500 4e6 / 1e-3)**0.25 = 1583.2 1/m. Ice of 1e-5 kg/m3: 9567.1 crystals per
    m3 of 1.0452e-9 kg, 3.8473e-4 m across. Rain: 36.34 (1e-3 1e-3)**0.1364 sqrt(...) with Kessler's constants.
    """
    content = np.array([1e-3, 1e-5, 1e-3, 1e-3])[:, None]
    speeds = reference.fall_speeds(content, np.array([263.15]), np.array([1.2]))[:, 0]
    np.testing.assert_allclose(speeds, [6.62470, 0.500888, 1.31530, 3.24527], rtol=2e-6)
    assert not reference.fall_speeds(0.0 * content, np.array([263.15]), np.array([1.2])).any()
    # Snow alone, in air saturated over ice: the share v dt / dz of what stays falls to the level below.
    theta, water, rho, exner, pressure, _ = cells()
    theta[:] = 263.15 / exner
    rho[:] = 1.0
    water[:] = 0.0
    water[0], water[SNOW, 9] = reference.saturation(exner * theta, pressure)[0], 5e-4
    dispatch.microphysics(theta, water, rho, exner, pressure, np.full(17, 50.0), 10.0, *ground(theta))
    part = 10.0 / 50.0 * reference.fall_speeds(np.array([0, 0, 5e-4, 0])[:, None], np.array([263.15]), np.ones(1))[2]
    np.testing.assert_allclose(water[SNOW, 9], 5e-4 / (1 + part[0]), rtol=1e-9)
    np.testing.assert_allclose(water[SNOW].sum(axis=0), 5e-4, rtol=1e-9)
    assert not water[SNOW, 10:].any()


def test_a_parcel_with_snow_rises_as_air_saturated_over_ice():
    """From -10 degrees Celsius and 500 hPa to 350 hPa, against d theta = -L_s dq_i / (c_p exner): first order."""

    def limit(kelvin, pressure):
        return float(reference.saturation(np.array([kelvin]), np.array([pressure]))[0][0])

    def exner_of(pressure):
        return (pressure / 1e5) ** (287 / 1004)

    def slope(pressure, theta):
        exner, h, d = exner_of(pressure), 1e-3, 1e-5
        kelvin = theta[0] * exner
        by_kelvin = (limit(kelvin + h, pressure) - limit(kelvin - h, pressure)) / (2 * h)
        along = limit(kelvin * (1 + d * 287 / 1004), pressure * (1 + d)) - limit(kelvin, pressure)
        gain = SUBLIMATION / (WARMED * exner)
        return [-gain * along / (pressure * d) / (1 + gain * by_kelvin * exner)]

    first = 263.15 / exner_of(5e4)
    exact = solve_ivp(slope, (5e4, 3.5e4), [first], rtol=1e-9, atol=1e-9).y[0, -1]
    misses = []
    for steps in (40, 80):
        theta, water = np.full((1, 1, 1), first), np.zeros((6, 1, 1, 1))
        water[0], water[SNOW] = limit(263.15, 5e4), 5e-3
        for pressure in np.linspace(5e4, 3.5e4, steps + 1)[1:]:
            exner = np.full((1, 1, 1), exner_of(pressure))
            p, rho = np.full((1, 1, 1), pressure), pressure / (287 * exner * theta)
            dispatch.microphysics(theta, water, rho, exner, p, np.array([STILL]), 2000.0, *ground(theta))
        assert water[1:3].max() == 0
        misses.append(float(theta[0, 0, 0]) - exact)
    assert exact - first > 1.0
    assert abs(misses[1]) < 0.02
    assert 1.8 < misses[0] / misses[1] < 2.2
