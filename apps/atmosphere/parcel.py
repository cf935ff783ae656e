"""A parcel lifted through a column: CAPE, CIN, the levels of condensation and of free convection, equilibrium level.

Below the condensation level the parcel keeps theta and vapor, above it is saturated (Bolton 1980). Pseudoadiabat: what
condenses falls out (AMS Glossary, "pseudoadiabatic lapse rate"); reversible: it stays, with its weight and its heat,
and `saturated.equivalent` is kept. Buoyancy is g (T_v' - T_v) / T_v with the virtual temperatures of parcel and column,
that of the parcel with the weight of its liquid water. Constants are those of the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from hpckit.apps.atmosphere.profiles import Profile, exner, observed
from hpckit.apps.atmosphere.saturated import equivalent, mixing_ratio
from hpckit.apps.atmosphere.sounding import Sounding
from hpckit.errors import InputError
from hpckit.kernels.euler.constants import CP, GRAVITY, RD
from hpckit.kernels.euler.rain.constants import CL, CVV, LATENT, RV

STEP = 10.0  # m, between the levels of the integration
HIGHEST = 25_000.0  # m: no convection is deeper
Adiabat = Literal["pseudo", "reversible"]
ADIABATS: tuple[Adiabat, ...] = ("pseudo", "reversible")
LEVELS = ("lcl", "lfc", "el")


@dataclass(frozen=True)
class Lift:
    """A lifted parcel: cape and cin (J/kg, both at least 0); lcl, lfc and el (m above the ground, nan: there is none).

    lfc is the base of the lowest layer of positive buoyancy that reaches above the lcl, el the top of the highest one;
    cape is the positive area between them, cin the negative one below lfc. height (m), temperature (K) and buoyancy
    (m/s2) along the way: float64[n].
    """

    cape: float
    cin: float
    lcl: float
    lfc: float
    el: float
    height: np.ndarray
    temperature: np.ndarray
    buoyancy: np.ndarray

    def numbers(self) -> dict[str, float | None]:
        """cape, cin, lcl, lfc and el by name; None for a level that is not there."""
        levels = {name: float(getattr(self, name)) for name in LEVELS}
        found = {name: None if np.isnan(value) else value for name, value in levels.items()}
        return {"cape": self.cape, "cin": self.cin, **found}


def lift(
    height: np.ndarray,
    pressure: np.ndarray,
    theta: np.ndarray,
    vapor: np.ndarray,
    excess: float = 0.0,
    adiabat: Adiabat = "pseudo",
) -> Lift:
    """Lift the parcel of the lowest level, `excess` (K) warmer, through a column.

    height (m, rising from the ground), pressure (Pa), theta (K) and mixing ratio of vapor (kg/kg): float64[levels],
    linear between levels, the logarithm of the pressure too. Raises `InputError` for fewer than two levels, heights
    that do not rise, or another adiabat.
    """
    rows = [np.asarray(each, np.float64) for each in (height, pressure, theta, vapor)]
    z_given = rows[0]
    if len({each.shape for each in rows}) > 1 or z_given.ndim != 1 or len(z_given) < 2 or (np.diff(z_given) <= 0).any():
        raise InputError("a parcel needs two levels or more, and heights that rise", do="give rows of equal length")
    if adiabat not in ADIABATS:
        raise InputError(f"there is no adiabat {adiabat!r}", do="take 'pseudo' or 'reversible'")
    top = min(z_given[-1], z_given[0] + HIGHEST)
    z = np.linspace(z_given[0], top, max(2, 1 + round((top - z_given[0]) / STEP)))
    logarithm, around, wet = (np.interp(z, z_given, row) for row in (np.log(rows[1]), rows[2], rows[3]))
    p, ground_vapor = np.exp(logarithm), float(wet[0])
    start = around[0] * exner(p[0]) + excess
    temperature = start / exner(p[0]) * exner(p)
    held = np.full_like(z, ground_vapor)
    liquid = np.zeros_like(z)
    saturated = mixing_ratio(temperature, p)
    above = np.flatnonzero((saturated <= ground_vapor) & (ground_vapor > 0))
    lcl = np.nan
    if above.size:
        first = int(above[0])
        lcl, begin = _condensation(z, logarithm, start, ground_vapor, first)
        moist = _reversible if adiabat == "reversible" else _pseudo
        temperature[first:] = moist(logarithm[first:], begin, ground_vapor)
        held[first:] = mixing_ratio(temperature[first:], p[first:])
        if adiabat == "reversible":
            liquid[first:] = ground_vapor - held[first:]
    lifted = temperature * (1 + RV / RD * held) / (1 + held + liquid)
    column = around * exner(p) * (1 + RV / RD * wet) / (1 + wet)
    buoyancy = GRAVITY * (lifted - column) / column
    cape, cin, lfc, el = _areas(z, buoyancy, lcl)
    return Lift(cape, cin, float(lcl - z[0]), float(lfc - z[0]), float(el - z[0]), z - z[0], temperature, buoyancy)


def lift_profile(profile: Profile, excess: float = 0.0, adiabat: Adiabat = "pseudo") -> Lift:
    """Lift the parcel at the ground of an atmosphere of `profiles`, whose theta is the moist theta."""
    z = np.arange(0.0, min(0.99 * profile.top, HIGHEST), STEP)
    vapor = profile.vapor(z)
    return lift(z, profile.pressure(z), profile.theta(z) / (1 + RV / RD * vapor), vapor, excess, adiabat)


def lift_sounding(sounding: Sounding, excess: float = 0.0, adiabat: Adiabat = "pseudo") -> Lift:
    """Lift the parcel at the ground of a sounding (`sounding.read_sounding`), theta and vapor linear between levels."""
    given = sounding.height
    z = np.union1d(given, np.arange(0.0, given[-1], STEP))  # the logarithm of the pressure is not linear between them
    theta, vapor = (np.interp(z, given, row) for row in (sounding.theta, sounding.mixing_ratio))
    pressure = observed(sounding, virtual=True, wind=False, extrapolate=False).pressure(z)
    return lift(z, pressure, theta, vapor, excess, adiabat)


def _condensation(
    z: np.ndarray, logarithm: np.ndarray, start: float, vapor: float, first: int
) -> tuple[float, tuple[float, float]]:
    """The height (m) at which the parcel saturates, and ln p and temperature (K) there; it is saturated at z[first]."""
    base = logarithm[0]

    def temperature(at: float) -> float:
        return start * float(np.exp(RD / CP * (at - base)))

    low, high = (logarithm[first - 1], logarithm[first]) if first else (base, base)
    for _ in range(60):
        middle = 0.5 * (low + high)
        is_saturated = mixing_ratio(np.array(temperature(middle)), np.exp(middle)) <= vapor
        low, high = (low, middle) if is_saturated else (middle, high)
    return float(np.interp(-high, -logarithm, z)), (high, temperature(high))


def _pseudo(logarithm: np.ndarray, begin: tuple[float, float], vapor: float) -> np.ndarray:
    """Temperature (K) at pressures by ln p, from (ln p, T) at the condensation level; Runge and Kutta's four stages."""

    def slope(at: float, warm: float) -> float:
        held = float(mixing_ratio(np.array(warm), np.exp(at)))
        latent = LATENT - (CL - CVV - RV) * warm
        freed = 1 + latent * held / (RD * warm)
        heat = CP + (CVV + RV) * held + latent**2 * held * (RD / RV + held) / (RD * warm**2)
        return RD * warm * (1 + RV / RD * held) * freed / heat

    here, warm = begin
    found = np.empty_like(logarithm)
    for place, there in enumerate(logarithm):
        step = there - here
        one = slope(here, warm)
        two = slope(here + 0.5 * step, warm + 0.5 * step * one)
        three = slope(here + 0.5 * step, warm + 0.5 * step * two)
        four = slope(there, warm + step * three)
        warm += step * (one + 2 * two + 2 * three + four) / 6
        here, found[place] = there, warm
    return found


def _reversible(logarithm: np.ndarray, begin: tuple[float, float], vapor: float) -> np.ndarray:
    """As `_pseudo`, of a parcel that keeps its water."""
    pressure, water = np.exp(logarithm), np.array(vapor)
    kept = equivalent(np.array(begin[1]), np.exp(begin[0]), water, water)
    low, high = np.full_like(pressure, 100.0), np.full_like(pressure, begin[1] + 1.0)
    for _ in range(60):
        middle = 0.5 * (low + high)
        too_warm = equivalent(middle, pressure, mixing_ratio(middle, pressure), water) > kept
        low, high = np.where(too_warm, low, middle), np.where(too_warm, middle, high)
    return low


def _areas(z: np.ndarray, buoyancy: np.ndarray, lcl: float) -> tuple[float, float, float, float]:
    """CAPE and CIN (J/kg), LFC and EL (m), of buoyancy linear between heights."""
    crossing = np.flatnonzero(buoyancy[1:] * buoyancy[:-1] < 0)
    low, high = buoyancy[crossing], buoyancy[crossing + 1]
    zeros = z[crossing] + (z[crossing + 1] - z[crossing]) * low / (low - high)
    places = np.insert(z, crossing + 1, zeros)
    forces = np.insert(buoyancy, crossing + 1, 0.0)
    areas = 0.5 * (forces[1:] + forces[:-1]) * np.diff(places)
    small = 1e-12 * GRAVITY * np.diff(places)  # of a neutral column: rounding
    positive = areas > small
    edges = np.flatnonzero(np.diff(np.concatenate([[False], positive, [False]]).astype(int)))
    layers = [(int(a), int(b)) for a, b in edges.reshape(-1, 2) if np.isnan(lcl) or places[b] > lcl]
    if not layers:
        return 0.0, 0.0, np.nan, np.nan
    base, end = layers[0][0], layers[-1][1]
    cape = float(areas[base:end][positive[base:end]].sum())
    cin = float(np.abs(areas[:base][areas[:base] < 0]).sum())
    return cape, cin, float(places[base]), float(places[end])
