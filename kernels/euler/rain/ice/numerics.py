"""The arithmetic of six kinds of water in one cell, written once for CPU and GPU; what it means stands in `reference`.

No branch is taken: a loop over the columns of a row becomes one over vectors of them.
"""

from __future__ import annotations

import math

from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.compile.scalar_functions import exponential, logarithm
from hpckit.kernels.euler.rain.constants import F2X, F5, HEAT, RV, WARMED, WATER_DENSITY
from hpckit.kernels.euler.rain.ice.constants import (
    ACROSS,
    BIGG,
    BIGG_COLD,
    CL,
    COLDEST,
    CONDUCTED,
    CRYSTALS,
    DENSE_SNOW,
    DENSER,
    DIFFUSED,
    DIFFUSED_POWER,
    DROPLETS,
    FUSION,
    GLASS,
    GRAUPEL_B,
    GRAUPEL_BLOWN,
    GRAUPEL_COUNT,
    GRAUPEL_SLOPE,
    GRAUPEL_SPEED,
    GRAUPEL_STILL,
    GRAUPEL_SWEEPS,
    HEAVY_RAIN,
    HEAVY_SNOW,
    ICE_A,
    ICE_B,
    ICE_MOST,
    ICE_SHIFT,
    ICE_STICKS,
    MELTING,
    MOST_CRYSTALS,
    NUCLEI,
    NUCLEI_COLD,
    NUCLEUS,
    NUCLEUS_POWER,
    OVER_ICE,
    OVER_WATER,
    RAIN_B,
    RAIN_COUNT,
    RAIN_ON_ICE,
    RAIN_SLOPE,
    SNOW_B,
    SNOW_BLOWN,
    SNOW_COLD,
    SNOW_COUNT,
    SNOW_DENSITY,
    SNOW_MOST,
    SNOW_SLOPE,
    SNOW_SPEED,
    SNOW_STICKS,
    SNOW_STILL,
    SNOW_SWEEPS,
    SUBLIMATION,
    TINY,
    TRACE,
    VISCOUS,
    VISCOUS_SHIFT,
    WATER_SHIFT,
    WIDEST,
)

_QUARTER_PI = 0.25 * math.pi
_PI_2 = math.pi * math.pi
_FREEZING_RAIN = 20.0 * _PI_2 * BIGG * RAIN_COUNT * WATER_DENSITY
_FREEZING_CLOUD = BIGG / (WATER_DENSITY * DROPLETS)
_SNOW_GRAUPEL = _PI_2 * GRAUPEL_COUNT * SNOW_DENSITY
_RAIN_SNOW = _PI_2 * RAIN_COUNT
_RAIN_GRAUPEL = _PI_2 * RAIN_COUNT * GRAUPEL_COUNT * WATER_DENSITY
_ICE_SLOPE = SUBLIMATION / WARMED
_ROOM = WARMED / FUSION
_HALF_PI = 0.5 * math.pi


@inlined
def power(x, exponent):
    """x**exponent of x > 0 (0 is about 0)."""
    return exponential(exponent * logarithm(max(x, TINY)))


@inlined
def fourth_root(x):
    """The fourth root."""
    return math.sqrt(math.sqrt(x))


@inlined
def snow_count(temperature):
    """N0 of snow."""
    return min(SNOW_COUNT * exponential(SNOW_COLD * max(MELTING - temperature, 0.0)), SNOW_MOST)


@inlined
def crystals(ice):
    """Their number, and their diameter, by the content of ice."""
    root = fourth_root(ice)
    number = min(CRYSTALS * (root * root * root), MOST_CRYSTALS)
    return number, min(ACROSS * math.sqrt(ice / max(number, TINY)), WIDEST)


@inlined
def rain_speed(content, light):
    """Of rain, by its content."""
    speed = 36.34 * power(0.001 * content, 0.1364) * light
    return speed if content > TINY else 0.0


@inlined
def fall_speeds(rain, ice, snow, graupel, temperature, light):
    """Of rain, ice, snow and graupel, by their contents."""
    fast_r = rain_speed(rain, light)
    width = crystals(ice)[1]
    fast_i = ICE_A * power(width, ICE_B) if ice > TINY else 0.0
    x_s, x_g = fourth_root(snow * (SNOW_SLOPE / snow_count(temperature))), fourth_root(graupel * GRAUPEL_SLOPE)
    fast_s = SNOW_SPEED * power(x_s, SNOW_B) * light if snow > TINY else 0.0
    fast_g = GRAUPEL_SPEED * power(x_g, GRAUPEL_B) * light if graupel > TINY else 0.0
    return fast_r, fast_i, fast_s, fast_g


@inlined
def share(there, taken):
    """By how much what is taken is scaled down to what is there."""
    return there / max(max(taken, there), TINY)


@inlined
def meeting(x, y):
    """Of spheres of scale x, by mass, that those of scale y meet."""
    x2, y2 = x * x, y * y
    return x2 * x2 * y * (5.0 * x2 + 2.0 * x * y + 0.5 * y2)


@inlined
def over_ice(x, width):
    """Of crystals, that spheres of scale x meet."""
    return x * (2.0 * x * x + width * (2.0 * x + width))


@inlined
def transfers(vapor, cloud, rain, ice, snow, graupel, temperature, pressure, rho, light, dt):
    """Water and temperature after all that has to do with ice over dt."""
    is_cold = temperature < MELTING
    cold = 1.0 if is_cold else 0.0
    below, above = max(MELTING - temperature, 0.0), max(temperature - MELTING, 0.0)
    per_rho = 1.0 / rho
    # Sizes and speeds
    number, width = crystals(rho * ice)
    n_s = snow_count(temperature)
    x_r, x_g = fourth_root(rho * rain * RAIN_SLOPE), fourth_root(rho * graupel * GRAUPEL_SLOPE)
    x_s = fourth_root(rho * snow * (SNOW_SLOPE / n_s))
    s_b, g_b, r_b = power(x_s, SNOW_B), power(x_g, GRAUPEL_B), power(x_r, RAIN_B)
    fast_r = rain_speed(rho * rain, light)
    fast_i = ICE_A * power(width, ICE_B) if ice > 0.0 else 0.0
    fast_s = SNOW_SPEED * s_b * light if snow > 0.0 else 0.0
    fast_g = GRAUPEL_SPEED * g_b * light if graupel > 0.0 else 0.0
    some_r, some_s, some_g = min(rain / TRACE, 1.0), min(snow / TRACE, 1.0), min(graupel / TRACE, 1.0)
    some_rs, some_rg, some_sg = some_r * some_s, some_r * some_g, some_s * some_g
    r2, s2, g2 = x_r * x_r, x_s * x_s, x_g * x_g
    r3, s3, g3 = r2 * x_r, s2 * x_s, g2 * x_g
    # Vapor
    air = VISCOUS * temperature * math.sqrt(temperature) / (temperature + VISCOUS_SHIFT)
    conductivity = CONDUCTED * air
    diffusivity = DIFFUSED * power(temperature, DIFFUSED_POWER) / pressure
    viscosity = air * per_rho
    blown = power(viscosity / diffusivity, 1.0 / 3.0) * math.sqrt(light / viscosity)
    limit_power, shift = OVER_ICE if is_cold else OVER_WATER, ICE_SHIFT if is_cold else WATER_SHIFT
    latent = SUBLIMATION if is_cold else HEAT
    far = temperature - shift
    limit = 380.0 / pressure * exponential(limit_power * (temperature - 273.0) / far)
    slope = limit * limit_power * (273.0 - shift) / (far * far)
    resistance = rho * latent * latent / (conductivity * RV * temperature * temperature) + 1.0 / (limit * diffusivity)
    area_i = 4.0 * width * number * cold
    area_s = n_s * (SNOW_STILL * s2 + SNOW_BLOWN * s2 * math.sqrt(x_s * s_b) * blown)
    area_g = GRAUPEL_STILL * g2 + GRAUPEL_BLOWN * g2 * math.sqrt(x_g * g_b) * blown
    drive = vapor / limit - 1.0
    drive = (drive if is_cold else min(drive, 0.0)) / resistance
    nucleus = NUCLEUS * exponential(
        NUCLEUS_POWER * logarithm(min(NUCLEI * exponential(NUCLEI_COLD * below), MOST_CRYSTALS))
    )
    nuclei = max(nucleus * per_rho - ice, 0.0) * (cold if drive > 0.0 else 0.0)
    ice_grows, snow_grows, graupel_grows = dt * drive * area_i, dt * drive * area_s, dt * drive * area_g
    excess = abs((vapor - limit) / (1.0 + slope * _ICE_SLOPE))
    held = share(excess, abs(nuclei + ice_grows + snow_grows + graupel_grows))
    nuclei, ice_grows = held * nuclei, held * ice_grows
    snow_grows, graupel_grows = held * snow_grows, held * graupel_grows
    lost_i, lost_s, lost_g = max(-ice_grows, 0.0), max(-snow_grows, 0.0), max(-graupel_grows, 0.0)
    # Cloud
    freezes = exponential(BIGG_COLD * min(below, COLDEST)) - 1.0
    on_snow = dt * (SNOW_SWEEPS * n_s * s3 * s_b * light * cloud)
    on_graupel = dt * (GRAUPEL_SWEEPS * g3 * g_b * light * cloud)
    into_ice = dt * (_FREEZING_CLOUD * freezes * rho * cloud * cloud)
    # Rain
    on_rain_s = dt * (some_rs * _RAIN_SNOW * WATER_DENSITY * n_s * abs(fast_r - fast_s) * per_rho * meeting(x_r, x_s))
    on_rain_g = dt * (some_rg * _RAIN_GRAUPEL * abs(fast_r - fast_g) * per_rho * meeting(x_r, x_g))
    by_ice = dt * (RAIN_ON_ICE * number * light * per_rho * (r3 * r3 * r_b) * cold)
    by_snow = on_rain_s * cold
    by_graupel = on_rain_g * cold + dt * (_FREEZING_RAIN * per_rho * freezes * (r3 * r3 * x_r))
    # Ice
    sticks, snow_sticks = exponential(-ICE_STICKS * below), exponential(-SNOW_STICKS * below) * cold
    quarter = dt * _QUARTER_PI * ice * cold
    ice_to_snow = some_s * quarter * n_s * abs(fast_s - fast_i) * over_ice(x_s, width) * sticks
    ice_to_snow += max(ice - ICE_MOST * per_rho, 0.0) * cold
    ice_to_graupel = some_g * quarter * GRAUPEL_COUNT * abs(fast_g - fast_i) * over_ice(x_g, width) * sticks
    ice_to_rain = some_r * quarter * RAIN_COUNT * abs(fast_r - fast_i) * over_ice(x_r, width)
    # Snow and graupel
    light_rain = 1.0 if rain < HEAVY_RAIN else 0.0
    both_light = light_rain if snow < HEAVY_SNOW else 0.0
    to_dense = _RAIN_SNOW * SNOW_DENSITY * n_s * abs(fast_r - fast_s) * per_rho * meeting(x_s, x_r)
    to_dense = some_rs * to_dense * cold * (1.0 - both_light)
    to_dense += some_sg * _SNOW_GRAUPEL * n_s * abs(fast_g - fast_s) * per_rho * meeting(x_s, x_g) * snow_sticks
    to_dense += DENSER * snow_sticks * max(snow - DENSE_SNOW, 0.0)
    to_dense *= dt
    conducted, poured = dt * conductivity * above / FUSION * per_rho, CL * above / FUSION
    melted_s = conducted * _HALF_PI * area_s + poured * (on_snow + on_rain_s)
    melted_g = conducted * area_g + poured * (on_graupel + on_rain_g)
    # At most what is there, and as far as the heat lasts
    room = _ROOM * abs(MELTING - temperature)
    from_cloud = share(cloud, on_snow + on_graupel + into_ice)
    from_rain = share(rain, by_ice + by_snow + by_graupel)
    from_ice = share(ice, ice_to_snow + ice_to_graupel + ice_to_rain + lost_i)
    from_snow = share(snow, to_dense + melted_s + lost_s)
    from_graupel = share(graupel, melted_g + lost_g)
    freezing = from_cloud * (on_snow + on_graupel + into_ice) + from_rain * (by_ice + by_snow + by_graupel)
    lasts = share(room, freezing) if is_cold else 1.0
    frozen = lasts * freezing * cold
    from_cloud, from_rain = from_cloud * lasts, from_rain * lasts
    melted_s, melted_g = from_snow * melted_s, from_graupel * melted_g
    lasts = share(room, melted_s + melted_g)
    melted_s, melted_g = lasts * melted_s, lasts * melted_g
    on_snow, on_graupel, into_ice = from_cloud * on_snow, from_cloud * on_graupel, from_cloud * into_ice
    by_ice, by_snow, by_graupel = from_rain * by_ice, from_rain * by_snow, from_rain * by_graupel
    ice_to_snow, ice_to_graupel, ice_to_rain = from_ice * ice_to_snow, from_ice * ice_to_graupel, from_ice * ice_to_rain
    to_dense = from_snow * to_dense
    ice_grows = max(ice_grows, 0.0) - from_ice * lost_i
    snow_grows = max(snow_grows, 0.0) - from_snow * lost_s
    graupel_grows = max(graupel_grows, 0.0) - from_graupel * lost_g
    deposited = nuclei + ice_grows + snow_grows + graupel_grows
    # The new water
    mixed = by_ice + ice_to_rain
    to_snow = cold * on_snow + ice_to_snow + light_rain * mixed + both_light * by_snow
    to_graupel = cold * on_graupel + by_graupel + ice_to_graupel + to_dense
    to_graupel += (1.0 - light_rain) * mixed + (1.0 - both_light) * by_snow
    to_rain = (1.0 - cold) * (on_snow + on_graupel) + melted_s + melted_g
    return (
        vapor - deposited,
        max(cloud - (on_snow + on_graupel + into_ice), 0.0),
        max(rain - (by_ice + by_snow + by_graupel), 0.0) + to_rain,
        max(ice - (ice_to_snow + ice_to_graupel + ice_to_rain) + ice_grows, 0.0) + into_ice + nuclei,
        max(snow - (to_dense + melted_s) + snow_grows, 0.0) + to_snow,
        max(graupel - melted_g + graupel_grows, 0.0) + to_graupel,
        temperature + (SUBLIMATION * deposited + FUSION * (frozen - (melted_s + melted_g))) / WARMED,
    )


@inlined
def changed(vapor, cloud, rain, ice, snow, graupel, temperature, pressure, rho, light, dt):
    """Water and temperature after all but the fall."""
    drizzle = max(0.001 * (cloud - 0.001), 0.0)
    half = math.sqrt(rain)
    quarter = math.sqrt(half)
    made = cloud - (cloud - dt * drizzle) / (1.0 + dt * 2.2 * (half * quarter * math.sqrt(quarter)))
    cloud, rain = max(cloud - made, 0.0), max(rain + made, 0.0)
    vapor, cloud, rain, ice, snow, graupel, temperature = transfers(
        vapor, cloud, rain, ice, snow, graupel, temperature, pressure, rho, light, dt
    )
    grams, scale, above = 0.001 * rho, 380.0 / pressure, temperature - 36.0
    limit = scale * exponential(F2X * (temperature - 273.0) / above)
    change = (vapor - limit) / (1.0 + limit * F5 / (above * above))
    wet = logarithm(max(grams * rain, TINY))
    rate = (
        (1.6 + 124.9 * exponential(0.2046 * wet)) * exponential(0.525 * wet) / (2.55e6 * scale / (3.8 * limit) + 5.4e5)
    )
    dried = dt * rate * (max(limit - vapor, 0.0) / (grams * limit))
    dried = min(min(dried, max(-change - cloud, 0.0)), rain)
    change = max(change, -cloud)
    temperature += HEAT / WARMED * (change - dried)
    vapor, cloud, rain = max(vapor - change + dried, 0.0), cloud + change, rain - dried
    glass = 1.0 if temperature < GLASS else 0.0
    melted = min(ice, _ROOM * max(temperature - MELTING, 0.0))
    new_ice, new_graupel = glass * cloud, glass * rain
    temperature += FUSION / WARMED * (new_ice + new_graupel - melted)
    return (
        vapor,
        cloud + (melted - new_ice),
        rain - new_graupel,
        ice + (new_ice - melted),
        snow,
        graupel + new_graupel,
        temperature,
    )
