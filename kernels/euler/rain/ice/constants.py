"""Constants of the six kinds of water; the papers stand in `reference`. SI units throughout."""

from __future__ import annotations

import math

from hpckit.kernels.euler.rain.constants import HEAT, WATER_DENSITY

VAPOR, CLOUD, RAIN, ICE, SNOW, GRAUPEL = range(6)  # of the water that a parcel holds, in this order
KINDS = 6
FALLING = (RAIN, ICE, SNOW, GRAUPEL)
AT_GROUND = 3  # rows of what has reached the ground: rain; ice and snow; graupel

MELTING = 273.15  # K
GLASS = MELTING - 40.0  # K: colder water freezes at once
FUSION = 3.337e5  # J/kg, of freezing
SUBLIMATION = HEAT + FUSION
CL = 4186.0  # J/kg/K, of liquid water
TINY = 1e-30  # kg/m3: less water is none

# Saturation over ice as over water in `rain.numerics.saturation`: Murray's formula (1967, J. Appl. Meteorol. 6) with
# the same pressure at 273 K; F2 (T - 273) / (T - 36) over water.
OVER_ICE, ICE_SHIFT = 21.875, 7.5  # 1, K
OVER_WATER, WATER_SHIFT = 17.27, 36.0

# Sizes are exponential, N(D) = N0 exp(-D / x); speeds of a particle are a D**b sqrt(rho_ground / rho).
RAIN_COUNT, SNOW_COUNT, GRAUPEL_COUNT = 8e6, 2e6, 4e6  # N0, 1/m4; of snow at 0 degrees Celsius
SNOW_MOST, SNOW_COLD = 1e11, 0.12  # 1/m4; 1/K: N0 grows as exp(0.12 (273.15 K - T)) (Houze et al. 1979)
SNOW_DENSITY, GRAUPEL_DENSITY = 100.0, 500.0  # kg/m3
RAIN_A, RAIN_B = 841.9, 0.8
SNOW_A, SNOW_B = 11.72, 0.41
GRAUPEL_A, GRAUPEL_B = 330.0, 0.8


def _mean_speed(a: float, b: float) -> float:
    """Of the mean speed by mass: times x**b."""
    return a * math.gamma(4 + b) / 6


SNOW_SPEED, GRAUPEL_SPEED = _mean_speed(SNOW_A, SNOW_B), _mean_speed(GRAUPEL_A, GRAUPEL_B)
RAIN_SLOPE = 1 / (math.pi * WATER_DENSITY * RAIN_COUNT)  # x**4 = slope times rho q
SNOW_SLOPE = 1 / (math.pi * SNOW_DENSITY)  # and over N0
GRAUPEL_SLOPE = 1 / (math.pi * GRAUPEL_DENSITY * GRAUPEL_COUNT)

# Cloud ice: N crystals per m3 of one mass, 11.9 sqrt(mass) across
CRYSTALS, MOST_CRYSTALS = 5.38e7, 1e6  # N = 5.38e7 (rho q)**0.75, at most; 1/m3
ACROSS, WIDEST = 11.9, 500e-6  # m/sqrt(kg), m
ICE_A, ICE_B = 1.49e4, 1.31
NUCLEI, NUCLEI_COLD = 1e3, 0.1  # 1/m3 at 0 degrees Celsius, 1/K
NUCLEUS, NUCLEUS_POWER = 4.92e-11, 1.33  # their content 4.92e-11 N**1.33, kg/m3
ICE_MOST = 2.08e22 * WIDEST**8  # kg/m3 of cloud ice: more is snow

# Vapor and heat toward particles, with the wind of their fall
DIFFUSED, DIFFUSED_POWER = 8.794e-5, 1.81  # of vapor in air: 8.794e-5 T**1.81 / p, m2/s
VISCOUS, VISCOUS_SHIFT = 1.496e-6, 120.0  # of air: 1.496e-6 T**1.5 / (T + 120), kg/m/s
CONDUCTED = 1.414e3  # of air: times its viscosity, W/m/K
SNOW_STILL = 4 * 0.65
SNOW_BLOWN = 4 * 0.44 * math.sqrt(SNOW_A) * math.gamma((5 + SNOW_B) / 2)
GRAUPEL_STILL = 2 * math.pi * 0.78 * GRAUPEL_COUNT
GRAUPEL_BLOWN = 2 * math.pi * 0.31 * GRAUPEL_COUNT * math.sqrt(GRAUPEL_A) * math.gamma((5 + GRAUPEL_B) / 2)

# Collection
SNOW_SWEEPS = 0.25 * math.pi * SNOW_A * math.gamma(3 + SNOW_B)  # cloud: times N0 x**(3 + b) q
GRAUPEL_SWEEPS = 0.25 * math.pi * GRAUPEL_COUNT * GRAUPEL_A * math.gamma(3 + GRAUPEL_B)
RAIN_ON_ICE = math.pi**2 * RAIN_A * RAIN_COUNT * WATER_DENSITY * math.gamma(6 + RAIN_B) / 24
ICE_STICKS, SNOW_STICKS = 0.07, 0.09  # 1/K: efficiencies exp(0.07 (T - 273.15 K)), of snow on graupel 0.09
TRACE = 1e-9  # kg/kg: less of a kind collects by its share of this; else rounding would, as q**0.25
HEAVY_RAIN, HEAVY_SNOW = 1e-4, 1e-4  # kg/kg: with less of both, rain that snow collects becomes snow, not graupel

# Conversion and freezing
DENSE_SNOW, DENSER = 6e-4, 1e-3  # kg/kg of snow, of which the rest becomes graupel at 1e-3 exp(0.09 (T - T0)) 1/s
BIGG, BIGG_COLD = 100.0, 0.66  # 1/m3/s, 1/K
DROPLETS = 3e8  # 1/m3, of cloud
COLDEST = 50.0  # K below 0 degrees Celsius, for Bigg's exponential
