"""The arithmetic of warm rain in one cell, written once for CPU and GPU: pieces that become part of their callers."""

from __future__ import annotations

import math

from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.compile.scalar_functions import exponential, logarithm
from hpckit.kernels.euler.constants import CP, CV, GAMMA, RD
from hpckit.kernels.euler.rain.constants import (
    BOLTON,
    BOLTON_SHIFT,
    BOLTON_SLOPE,
    CL,
    CVV,
    F2X,
    F5,
    FREEZING,
    HEAT,
    RV,
    WARMED,
)


@inlined
def raised(x, exponent):
    """x**exponent of x > 0, else 0."""
    value = exponential(exponent * logarithm(x if x > 0.0 else 1.0))
    return value if x > 0.0 else 0.0


@inlined
def fall_speed(rain, grams, light):
    """Of rain, m/s; 0 without rain."""
    return 36.34 * raised(rain * grams, 0.1364) * light


@inlined
def saturation(temperature, scale):
    """Mixing ratio of saturated air, and by how much an excess of vapor is divided as it condenses."""
    per_above = 1.0 / (temperature - 36.0)
    limit = scale * exponential(F2X * (temperature - 273.0) * per_above)
    return limit, 1.0 + limit * F5 * (per_above * per_above)


@inlined
def collected(cloud, rain, dt):
    """Cloud that turns into rain over dt."""
    drizzle = 0.001 * (cloud - 0.001)
    drizzle = dt * (drizzle if drizzle > 0.0 else 0.0)
    made = cloud - (cloud - drizzle) / (1.0 + dt * 2.2 * raised(rain, 0.875))
    return made if rain > 0.0 else drizzle


@inlined
def evaporated(vapor, rain, grams, limit, scale, dt):
    """Rain that evaporates over dt in air that is not saturated, without bounds."""
    wet = grams * rain
    log = logarithm(wet if wet > 0.0 else 1.0)
    rate = (1.6 + 124.9 * exponential(0.2046 * log)) * exponential(0.525 * log)
    rate = rate / (2.55e6 * scale / (3.8 * limit) + 5.4e5)
    lost = dt * rate * ((limit - vapor) / (grams * limit))
    return lost if wet > 0.0 and limit > vapor else 0.0


@inlined
def warming(exner):
    """What a unit of vapor that condenses adds to theta, K."""
    return HEAT / (WARMED * exner)


@inlined
def vapor_at_saturation(temperature, rho):
    """Mixing ratio of saturated air by its density of dry air, and by how much it grows with temperature (1/K)."""
    above = temperature - BOLTON_SHIFT
    limit = BOLTON * math.exp(BOLTON_SLOPE * (temperature - FREEZING) / above) / (rho * RV * temperature)
    return limit, limit * (BOLTON_SLOPE * (FREEZING - BOLTON_SHIFT) / (above * above) - 1.0 / temperature)


@inlined
def capacity(vapor, liquid):
    """Heat capacity at constant volume of moist air, J/K per kg of dry air."""
    return CV + CVV * vapor + CL * liquid


@inlined
def stiffening(vapor, liquid):
    """c_p / c_v of moist air over that of dry air, less 1: by that much faster than density the moist theta changes."""
    heat = capacity(vapor, liquid)
    return (heat + RD + RV * vapor) / (heat * GAMMA) - 1.0


@inlined
def theta_of(theta, before, after, gas_before, gas_after):
    """Theta with another temperature and gas constant at the same density. before, after: temperatures, K."""
    ratio = after / before
    return theta * ratio * math.exp(-(RD / CP) * math.log(ratio * (gas_after / gas_before)))
