"""Saturated air with its vapor and cloud: a column of constant equivalent potential temperature, and that temperature.

Constants are those of `kernels.euler.rain` (Bryan, G. H. and J. M. Fritsch, 2002: A benchmark simulation for moist
nonhydrostatic numerical models. MWR 130, 2917-2928).
"""

from __future__ import annotations

import numpy as np

from hpckit.apps.atmosphere.profiles import Profile, exner
from hpckit.errors import InputError
from hpckit.kernels.euler.constants import C0, CP, GAMMA, GRAVITY, P0, RD
from hpckit.kernels.euler.rain.constants import (
    BOLTON,
    BOLTON_SHIFT,
    BOLTON_SLOPE,
    CL,
    CVV,
    FREEZING,
    LATENT,
    RV,
)
from hpckit.kernels.euler.rain.reference import saturate


def vapor_pressure(temperature: np.ndarray) -> np.ndarray:
    """Of saturated air (Pa), by temperature (K), after Bolton (1980)."""
    return BOLTON * np.exp(BOLTON_SLOPE * (temperature - FREEZING) / (temperature - BOLTON_SHIFT))


def mixing_ratio(temperature: np.ndarray, pressure: np.ndarray) -> np.ndarray:
    """Of vapor in saturated air, by temperature (K) and pressure (Pa)."""
    partial = vapor_pressure(temperature)
    return RD / RV * partial / (pressure - partial)


def equivalent(temperature: np.ndarray, pressure: np.ndarray, vapor: np.ndarray, water: np.ndarray) -> np.ndarray:
    """Wet equivalent potential temperature (K) of saturated air with `water` of all kinds (kg per kg of dry air).

    theta_e = T (p_d / p0)**(-R_d / (c_p + c_l q_t)) exp(L q_v / ((c_p + c_l q_t) T)), p_d the pressure of dry air.
    """
    heat = CP + CL * water
    dry = pressure / (1 + RV / RD * vapor)
    latent = LATENT - (CL - CVV - RV) * temperature
    return temperature * (dry / P0) ** (-RD / heat) * np.exp(latent * vapor / (heat * temperature))


def cloudy(theta_e: float, water: float, u: float = 0.0) -> Profile:
    """Saturated everywhere, with one theta_e (K) and as much water (kg/kg) at all heights; 1000 hPa at the ground.

    Raises `InputError` if the water does not suffice to saturate it.
    """
    logarithm = np.linspace(np.log(1.2e5), np.log(1e4), 6001)
    pressure = np.exp(logarithm)
    low, high = np.full_like(pressure, 150.0), np.full_like(pressure, 320.0)
    for _ in range(60):
        middle = 0.5 * (low + high)
        above = equivalent(middle, pressure, mixing_ratio(middle, pressure), np.full_like(middle, water)) > theta_e
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    temperature, vapor = low, mixing_ratio(low, pressure)
    needed = float(vapor[pressure <= P0].max())
    if needed > water:
        raise InputError(
            f"a saturated column of theta_e = {theta_e:g} K needs {needed:.4g} kg/kg of water at the ground, not"
            f" {water:g}",
            where="base.water",
            do="raise base.water, or lower base.equivalent",
        )
    scale = RD * temperature * (1 + RV / RD * vapor) / (GRAVITY * (1 + water))  # -dz / d ln p
    z = np.concatenate([[0.0], np.cumsum(0.5 * (scale[1:] + scale[:-1]) * -np.diff(logarithm))])
    z -= np.interp(-np.log(P0), -logarithm, z)
    moist = temperature * (1 + RV / RD * vapor) / exner(pressure)
    return Profile(
        lambda height: np.interp(height, z, moist),
        lambda height: np.exp(np.interp(height, z, logarithm)),
        lambda height: np.full_like(height, u),
        0.98 * float(z[-1]),
        "saturated",
        vapor=lambda height: np.interp(height, z, vapor),
        water=water,
    )


def from_levels(levels: np.ndarray, ground: float, wind: float | None, moist: bool) -> Profile:
    """Lines of z (m), liquid water theta (K), vapor and cloud together (kg/kg), u and v (m/s), linear between them.

    ground: pressure at z = 0, Pa. wind: a uniform u instead of that of the lines. moist: else the water is left out.
    Cloud is what is over saturation, with the constants of `kernels.euler.rain.reference.saturate`; in moist
    hydrostatic balance, integrated in layers of a 2000th of the height. The last line is the top.
    """
    z_of, liquid, total, u, v = levels.T
    top = float(z_of[-1])
    step = top / 2000
    z = np.arange(-20, 2021) * step
    theta_l, water = np.interp(z, z_of, liquid), np.interp(z, z_of, total) * moist
    rain = np.zeros_like(z)
    level = (ground / P0) ** (RD / CP)
    ratio = level - GRAVITY * z / (CP * theta_l)
    for _ in range(30):
        pressure = P0 * np.maximum(ratio, 0.02) ** (CP / RD)
        theta, parts_of = theta_l.copy(), np.array([water, rain, rain])
        saturate(theta, parts_of, ratio, pressure)
        vapor, cloud, _ = parts_of
        moist_theta = theta * (1 + RV / RD * vapor)
        slope = -GRAVITY * (1 + vapor + cloud) / (CP * moist_theta)
        ratio = np.concatenate([[0.0], np.cumsum(0.5 * step * (slope[1:] + slope[:-1]))])
        ratio += level - ratio[20]
    logarithm = np.log(ratio)
    return Profile(
        lambda height: np.interp(height, z, moist_theta),
        lambda height: P0 * np.exp(CP / RD * np.interp(height, z, logarithm)),
        lambda height: np.interp(height, z_of, u) if wind is None else np.full_like(height, wind),
        top,
        "levels",
        lambda height: np.interp(height, z_of, v) if wind is None else np.zeros_like(height),
        vapor=lambda height: np.interp(height, z, vapor),
        cloud=lambda height: np.interp(height, z, cloud),
    )


def parts(rho: np.ndarray, rho_theta: np.ndarray, water: float) -> np.ndarray:
    """Vapor, cloud and no rain, float64[3, …], of saturated air by density of its dry part and of moist theta."""
    pressure = C0 * rho_theta**GAMMA
    temperature = pressure / (RD * rho)
    for _ in range(30):  # p = rho R_d T + e(T)
        partial = vapor_pressure(temperature)
        slope = BOLTON_SLOPE * (FREEZING - BOLTON_SHIFT) / (temperature - BOLTON_SHIFT) ** 2
        temperature = temperature - (rho * RD * temperature + partial - pressure) / (rho * RD + partial * slope)
    vapor = vapor_pressure(temperature) / (rho * RV * temperature)
    return np.array([vapor, water - vapor, np.zeros_like(vapor)])
