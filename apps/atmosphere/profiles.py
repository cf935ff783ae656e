"""Atmospheres at rest: potential temperature, hydrostatic pressure and wind as functions of height."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hpckit.apps.atmosphere.era5 import is_netcdf, read_levels
from hpckit.apps.atmosphere.settings import Base, Wave
from hpckit.apps.atmosphere.sounding import Sounding, read_sounding
from hpckit.errors import InputError
from hpckit.kernels.euler.constants import CP, GRAVITY, P0, RD
from hpckit.kernels.euler.rain.constants import RV

Function = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Profile:
    """An atmosphere by height z (m): theta (K), pressure (Pa) in hydrostatic balance with it, winds u and v (m/s).

    The functions hold from a little below the ground (the rows outside a wall need them there) to a little above `top`.
    """

    theta: Function
    pressure: Function
    wind: Function
    top: float
    name: str
    wind_v: Function = np.zeros_like
    vapor: Function = np.zeros_like  # kg per kg of dry air; theta is then the moist theta (1 + (R_v / R_d) q_v) theta
    cloud: Function = np.zeros_like  # kg per kg of dry air, where there is some
    water: float = 0.0  # vapor and cloud together of air that is saturated at all heights; 0: it is not


def profile_of(base: Base, moist: bool = False) -> Profile:
    """The atmosphere of the settings; reads the sounding if there is one. moist: with the vapor that it has."""
    if base.kind == "sounding":
        sounding = sounding_of(base)
        virtual = base.virtual or moist
        profile = observed(sounding, virtual=virtual, wind=base.wind, extrapolate=base.extrapolate, u=base.u)
        return moistened(profile, sounding) if moist else profile
    if base.kind == "weisman_klemp":
        return weisman_klemp(base.vapor, base.shear, base.shear_depth, base.u, base.shear_shape)
    if base.kind == "stable":
        return stable(base.theta, base.frequency, base.u)
    if base.kind == "isothermal":
        return isothermal(base.temperature, base.u)
    return standard(base.u) if base.kind == "standard" else neutral(base.theta, base.u)


def sounding_of(base: Base) -> Sounding:
    """The sounding of the settings: text, or a column of a netCDF file."""
    assert base.file is not None  # the settings were checked
    if is_netcdf(base.file):
        return read_levels(base.file, base.lat, base.lon, base.time, base.ground)
    given = [name for name in ("lat", "lon", "time") if getattr(base, name) is not None]
    if given or base.ground:
        raise InputError(
            f"base.{given[0] if given else 'ground'} belongs to a netCDF file, but {base.file} is not one",
            where=str(base.file),
            do="leave it out, or give ERA5 on pressure levels as base.file",
        )
    return read_sounding(base.file)


def neutral(theta: float, u: float = 0.0) -> Profile:
    """The same theta at all heights, 1000 hPa at the ground."""
    return Profile(
        lambda z: np.full_like(z, theta),
        lambda z: P0 * (1 - GRAVITY * z / (CP * theta)) ** (CP / RD),
        lambda z: np.full_like(z, u),
        0.95 * CP * theta / GRAVITY,  # a little below the height where the pressure is 0
        "neutral",
    )


def stable(theta: float, frequency: float, u: float = 0.0) -> Profile:
    """Constant Brunt-Väisälä frequency (s-1): theta = theta_0 exp(N**2 z / g), 1000 hPa at the ground."""
    rate = frequency * frequency / GRAVITY

    def exner(z: np.ndarray) -> np.ndarray:
        return 1 + GRAVITY / (CP * theta * rate) * np.expm1(-rate * z)

    # exner may fall to 0 at a finite height
    share = CP * theta * rate / GRAVITY
    top = np.inf if share >= 1 else -np.log1p(-share) / rate
    return Profile(
        lambda z: theta * np.exp(rate * z),
        lambda z: P0 * exner(z) ** (CP / RD),
        lambda z: np.full_like(z, u),
        0.95 * top,
        "stable",
    )


def isothermal(temperature: float, u: float = 0.0) -> Profile:
    """The same temperature (K) at all heights, 1000 hPa at the ground: p = p0 exp(-g z / (R T))."""
    return Profile(
        lambda z: temperature * np.exp(GRAVITY * z / (CP * temperature)),
        lambda z: P0 * np.exp(-GRAVITY * z / (RD * temperature)),
        lambda z: np.full_like(z, u),
        np.inf,
        "isothermal",
    )


def weisman_klemp(most: float, shear: float, depth: float, u: float = 0.0, shape: str = "tanh") -> Profile:
    """The convective sounding of Weisman and Klemp (1982, MWR 110, 504-520), with at most `most` kg/kg of vapor.

    theta = 300 + 43 (z / 12 km)**(5/4) K to the tropopause, isothermal with 213 K above; relative humidity
    1 - 3/4 (z / 12 km)**(5/4), 1/4 above; wind u + shear tanh(z / depth) (m/s, m), or "linear" up to depth with a
    parabola from 0.8 to 1.2 of it (Klemp, Skamarock and Park 2015, J. Adv. Model. Earth Syst. 7, 1155-1177). 1000 hPa
    at the ground, in moist hydrostatic balance, integrated in layers of 5 m; saturation after Klemp and Wilhelmson
    (1978).
    """
    trop, step, top = 12_000.0, 5.0, 30_000.0
    z = np.arange(-1000.0, top + step, step)
    share = np.clip(z / trop, 0.0, None) ** 1.25
    theta = np.where(z <= trop, 300 + 43 * share, 343 * np.exp(GRAVITY / (CP * 213) * (z - trop)))
    humidity = np.where(z <= trop, 1 - 0.75 * share, 0.25)
    exner = np.exp(-GRAVITY * z / (CP * 330.0))
    ground = int(np.searchsorted(z, 0.0))
    vapor = np.zeros_like(z)
    for _ in range(30):
        pressure, temperature = P0 * np.maximum(exner, 0.02) ** (CP / RD), theta * exner
        saturated = 380.0 / pressure * np.exp(17.27 * (temperature - 273.0) / (temperature - 36.0))
        vapor = np.minimum(most, humidity * saturated)
        virtual = theta * (1 + RV / RD * vapor) / (1 + vapor)
        slope = -GRAVITY / (CP * virtual)
        exner = np.concatenate([[0.0], np.cumsum(0.5 * step * (slope[1:] + slope[:-1]))])
        exner += 1.0 - exner[ground]
    moist, logarithm = theta * (1 + RV / RD * vapor), np.log(exner)

    def reached(height: np.ndarray) -> np.ndarray:
        part = np.maximum(height, 0.0) / depth
        if shape == "tanh":
            return np.tanh(part)
        return np.where(np.abs(part - 1) < 0.2, -0.8 + 3 * part - 1.25 * part * part, np.minimum(part, 1.0))

    return Profile(
        lambda height: np.interp(height, z, moist),
        lambda height: P0 * np.exp(CP / RD * np.interp(height, z, logarithm)),
        lambda height: u + shear * reached(height),
        top - 1000.0,
        "Weisman and Klemp",
        vapor=lambda height: np.interp(height, z, vapor),
    )


US_1976 = (  # base (m, geopotential height is taken for z), lapse rate (K/m)
    (0.0, -6.5e-3),
    (11_000.0, 0.0),
    (20_000.0, 1.0e-3),
    (32_000.0, 2.8e-3),
    (47_000.0, 0.0),
    (51_000.0, -2.8e-3),
    (71_000.0, -2.0e-3),
)


def standard(u: float = 0.0) -> Profile:
    """US Standard Atmosphere 1976 (NOAA-S/T 76-1562, table 4): 288.15 K and 1013.25 hPa at the ground.

    Its temperature layers, in hydrostatic balance with the model's gravity and gas constant.
    """
    bases = np.array([base for base, _ in US_1976])
    lapses = np.array([lapse for _, lapse in US_1976])
    temperatures, pressures = [288.15], [101_325.0]
    for (low, lapse), high in zip(US_1976, bases[1:], strict=False):
        temperatures.append(temperatures[-1] + lapse * (high - low))
        pressures.append(pressures[-1] * float(_layer(high - low, temperatures[-2], lapse)))

    def temperature(z: np.ndarray) -> np.ndarray:
        layer = np.maximum(np.searchsorted(bases, z, side="right") - 1, 0)
        return np.array(temperatures)[layer] + lapses[layer] * (z - bases[layer])

    def pressure(z: np.ndarray) -> np.ndarray:
        layer = np.maximum(np.searchsorted(bases, z, side="right") - 1, 0)
        return np.array(pressures)[layer] * _layer(z - bases[layer], np.array(temperatures)[layer], lapses[layer])

    def theta(z: np.ndarray) -> np.ndarray:
        return temperature(z) * (P0 / pressure(z)) ** (RD / CP)

    return Profile(theta, pressure, lambda z: np.full_like(z, u), 84_852.0, "US Standard Atmosphere 1976")


def _layer(rise: ArrayLike, temperature: ArrayLike, lapse: ArrayLike) -> np.ndarray:
    """Pressure over that at the layer's base, `rise` (m) above it: (1 + lapse rise / T)**(-g / (R lapse))."""
    rise, temperature = np.asarray(rise), np.asarray(temperature)
    warming = np.asarray(lapse * rise / temperature)
    mean = np.where(np.abs(warming) > 1e-12, np.log1p(warming) / np.where(warming == 0, 1, warming), 1.0)
    return np.exp(-GRAVITY * rise / (RD * temperature) * mean)


def observed(sounding: Sounding, *, virtual: bool, wind: bool, extrapolate: bool, u: float = 0.0) -> Profile:
    """A sounding: theta linear in z between its levels, and the pressure in balance with it, in closed form.

    virtual: use the virtual potential temperature. wind: use u and v, linear between the levels with a wind;
    otherwise u is constant and v is 0. extrapolate: continue above the last level with its temperature (isothermal),
    else that level is the top. Raises `InputError` if `wind` is set and the sounding has none.
    """
    z, theta = sounding.height, sounding.theta_v if virtual else sounding.theta
    ratio = np.diff(theta) / theta[:-1]
    exner = (sounding.surface_pressure / P0) ** (RD / CP) - np.concatenate(
        [[0.0], np.cumsum(GRAVITY / CP * np.diff(z) / theta[:-1] * _log_mean(ratio))]
    )
    last_temperature = theta[-1] * exner[-1]

    def exner_at(height: np.ndarray) -> np.ndarray:
        level = np.clip(np.searchsorted(z, height, side="right") - 1, 0, len(z) - 2)
        inside = np.clip(height, z[0], z[-1])
        above = inside - z[level]
        part = ratio[level] * above / np.diff(z)[level]
        value = exner[level] - GRAVITY / CP * above / theta[level] * _log_mean(part)
        value = value - GRAVITY / CP * np.minimum(height - z[0], 0) / theta[0]
        return value * np.exp(-GRAVITY * np.maximum(height - z[-1], 0) / (CP * last_temperature))

    def theta_at(height: np.ndarray) -> np.ndarray:
        return np.where(height > z[-1], last_temperature / exner_at(height), np.interp(height, z, theta))

    blowing = np.isfinite(sounding.wind)
    if wind and not blowing.any():
        raise InputError("the sounding holds no wind", where="base.wind", do="set base.wind = false")
    return Profile(
        theta_at,
        lambda height: P0 * exner_at(height) ** (CP / RD),
        lambda height: np.interp(height, z[blowing], sounding.wind[blowing]) if wind else np.full_like(height, u),
        np.inf if extrapolate else float(z[-1]),
        "sounding",
        lambda height: np.interp(height, z[blowing], sounding.wind_v[blowing]) if wind else np.zeros_like(height),
    )


def moistened(profile: Profile, sounding: Sounding) -> Profile:
    """A profile of virtual theta with the vapor of its sounding, linear between the levels, and the moist theta."""

    def vapor(height: np.ndarray) -> np.ndarray:
        return np.interp(height, sounding.height, sounding.mixing_ratio)

    def theta(height: np.ndarray) -> np.ndarray:
        return profile.theta(height) * (1 + vapor(height))

    return dataclasses.replace(profile, theta=theta, vapor=vapor)


def _log_mean(ratio: np.ndarray) -> np.ndarray:
    """log(1 + ratio) / ratio, 1 at 0."""
    small = np.abs(ratio) < 1e-9
    return np.where(small, 1 - ratio / 2, np.log1p(ratio) / np.where(small, 1.0, ratio))


def wave_temperature(
    wave: Wave, base: Base, x: np.ndarray, z: np.ndarray, width: float, height: float
) -> np.ndarray | float:
    """Temperature perturbation (K) of `Wave` at x and z (m), around a domain periodic in x."""
    if not wave.amplitude:
        return 0.0
    far = np.abs(x - wave.x)
    far = np.minimum(far, width - far)
    growth = np.exp(GRAVITY * z / (2 * RD * base.temperature))
    return wave.amplitude * growth * np.sin(np.pi * z / height) * np.exp(-((far / wave.half_width) ** 2))


def exner(pressure: np.ndarray) -> np.ndarray:
    """Temperature over theta at a pressure (Pa)."""
    return (pressure / P0) ** (RD / CP)
