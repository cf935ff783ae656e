"""Six kinds of water of one moment each, NumPy: definition and test oracle of the compiled forms.

Vapor, cloud, rain, cloud ice, snow and graupel in the framework of Lin, Farley and Orme (1983, J. Clim. Appl. Meteorol.
22, 1065-1092), Rutledge and Hobbs (1983, J. Atmos. Sci. 40, 1185-1206; 1984, 41, 2949-2972), with the cloud ice of
Hong, Dudhia and Chen (2004, Mon. Weather Rev. 132, 103-120) and the constants of Hong and Lim (2006, J. Korean
Meteorol. Soc. 42, 129-151). What is warm is Kessler's scheme of `rain.reference`: conversion, collection, speed and
evaporation of rain, one step of saturation adjustment over water. A column without ice above 0 degrees Celsius is
Kessler's, but for the fall.

In a large step, level by level from the lid down:

1. Rain, ice, snow and graupel fall by upstream differences, implicit in time (Lin and colleagues' GFDL scheme, Zhou et
   al. 2019, Bull. Am. Meteorol. Soc. 100, 1225-1243), at the speed of what is there or comes from above, whichever is
   more: any step is stable and keeps what is positive; fronts spread where water falls through levels in a step.
2. Cloud turns into rain and is collected by it, as in Kessler's scheme.
3. `transfers`: all that has to do with ice, from one state. Each takes water from one kind, and what is taken from a
   kind is scaled down to what is there. Vapor on ice is held to what saturates over ice; what freezes to what warms the
   air to 0 degrees Celsius, and what melts to what cools it there.
4. Rain evaporates, vapor condenses or cloud evaporates (saturation over water).
5. Below -40 degrees Celsius cloud and rain freeze at once, above 0 ice melts into cloud, as far as the heat lasts.

Left out of Hong and Lim: the growth of cloud that freezes on rain of one size, shed water of wet graupel, their
conversion of cloud, the least number of crystals (here the number goes to 0 with the ice). Latent heats do not depend
on the temperature.

theta (K) and water (kg per kg of dry air: float64[6, nz, ny, nx], `constants.VAPOR` and so on) are changed in place.
rho: density of dry air, kg/m3. exner, pressure (Pa): T / theta and p, kept. thickness: of the layers, m, float64[nz]
or, over terrain, float64[nz, ny, nx].
fallen: float64[3, ny, nx], rain, ice with snow, and graupel at the ground, m of water. heated: float64[2, ny, nx],
J/m2: by how much the air became warmer, WARMED T, and the latent heat of the water that changed; equal to rounding.
"""

from __future__ import annotations

import math

import numpy as np

from hpckit.kernels.euler.rain.constants import F2X, F5, HEAT, RAIN, RV, VAPOR, WARMED, WATER_DENSITY
from hpckit.kernels.euler.rain.ice.constants import (
    ACROSS,
    BIGG,
    BIGG_COLD,
    CL,
    CLOUD,
    COLDEST,
    CONDUCTED,
    CRYSTALS,
    DENSE_SNOW,
    DENSER,
    DIFFUSED,
    DIFFUSED_POWER,
    DROPLETS,
    FALLING,
    FUSION,
    GLASS,
    GRAUPEL,
    GRAUPEL_A,
    GRAUPEL_B,
    GRAUPEL_COUNT,
    GRAUPEL_DENSITY,
    GRAUPEL_SPEED,
    HEAVY_RAIN,
    HEAVY_SNOW,
    ICE,
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
    RAIN_A,
    RAIN_B,
    RAIN_COUNT,
    SNOW,
    SNOW_A,
    SNOW_B,
    SNOW_COLD,
    SNOW_COUNT,
    SNOW_DENSITY,
    SNOW_MOST,
    SNOW_SPEED,
    SNOW_STICKS,
    SUBLIMATION,
    TINY,
    TRACE,
    VISCOUS,
    VISCOUS_SHIFT,
    WATER_SHIFT,
    WIDEST,
)

GAMMA_OF = {"snow": (SNOW_A, SNOW_B), "graupel": (GRAUPEL_A, GRAUPEL_B)}


def microphysics(
    theta: np.ndarray,
    water: np.ndarray,
    rho: np.ndarray,
    exner: np.ndarray,
    pressure: np.ndarray,
    thickness: np.ndarray,
    dt: float,
    fallen: np.ndarray,
    heated: np.ndarray,
) -> None:
    """All that water does over dt (s), in place."""
    came, above = np.zeros((4, *fallen.shape[1:])), np.zeros((4, *fallen.shape[1:]))  # kg/m2/s, kg/m3
    for k in reversed(range(len(theta))):
        light = np.sqrt(rho[0] / rho[k])
        there = np.maximum(rho[k] * water[FALLING, k], 0.0)  # transport may leave roundings below 0
        speed = fall_speeds(np.maximum(there, above), exner[k] * theta[k], light)
        above = (there * thickness[k] + dt * came) / (thickness[k] + dt * speed)
        came = speed * above
        water[FALLING, k] = above / rho[k]
        _change(theta[k], water[:, k], rho[k], exner[k], pressure[k], light, thickness[k], dt, heated)
    rain, ice, snow, graupel = came * dt / WATER_DENSITY
    fallen += np.array([rain, ice + snow, graupel])


def fall_speeds(content: np.ndarray, temperature: np.ndarray, light: np.ndarray) -> np.ndarray:
    """Of rain, ice, snow and graupel, m/s, by their contents rho q (kg/m3) and sqrt(rho_ground / rho)."""
    rain, ice, snow, graupel = content
    speeds = np.array(
        [
            36.34 * (0.001 * rain) ** 0.1364 * light,
            ICE_A * sizes(ice)[1] ** ICE_B,
            SNOW_SPEED * scale_of(snow, snow_count(temperature), SNOW_DENSITY) ** SNOW_B * light,
            GRAUPEL_SPEED * scale_of(graupel, GRAUPEL_COUNT, GRAUPEL_DENSITY) ** GRAUPEL_B * light,
        ]
    )
    return np.where(content > TINY, speeds, 0.0)  # the implicit fall would spread traces over all levels below


def scale_of(content: np.ndarray, count: np.ndarray | float, density: float) -> np.ndarray:
    """The scale x of N0 exp(-D / x) of spheres, m, by their content rho q (kg/m3), N0 (1/m4) and density (kg/m3)."""
    return (content / (np.pi * density * count)) ** 0.25


def snow_count(temperature: np.ndarray) -> np.ndarray:
    """N0 of snow, 1/m4."""
    return np.minimum(SNOW_COUNT * np.exp(SNOW_COLD * np.maximum(MELTING - temperature, 0.0)), SNOW_MOST)


def sizes(ice: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Crystals per m3, and their diameter (m), by the content of ice (kg/m3)."""
    number = np.minimum(CRYSTALS * ice**0.75, MOST_CRYSTALS)
    mass = np.divide(ice, number, out=np.zeros_like(ice), where=number > 0)
    return number, np.minimum(ACROSS * np.sqrt(mass), WIDEST)


def saturation(temperature: np.ndarray, pressure: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mixing ratio at saturation, over ice below 0 degrees Celsius and over water above, and its slope (1/K)."""
    cold = temperature < MELTING
    power, shift = np.where(cold, OVER_ICE, OVER_WATER), np.where(cold, ICE_SHIFT, WATER_SHIFT)
    far = temperature - shift
    limit = 380.0 / pressure * np.exp(power * (temperature - 273.0) / far)
    return limit, limit * power * (273.0 - shift) / far**2


def rates(
    water: np.ndarray, temperature: np.ndarray, pressure: np.ndarray, rho: np.ndarray, light: np.ndarray
) -> dict[str, np.ndarray]:
    """All that has to do with ice, kg/kg/s, without limits: name by "what from whom", none below 0 but of vapor.

    "…_grows" is vapor that deposits on a kind, or sublimates (below 0). Comments name the processes as Hong and Lim do.
    """
    vapor, cloud, rain, ice, snow, graupel = water
    cold = 1.0 * (temperature < MELTING)
    below, above = np.maximum(MELTING - temperature, 0.0), np.maximum(temperature - MELTING, 0.0)
    falling = rho * np.array([rain, ice, snow, graupel])
    fast_r, fast_i, fast_s, fast_g = fall_speeds(falling, temperature, light)
    number, width = sizes(falling[1])
    n_s = snow_count(temperature)
    x_r = scale_of(falling[0], RAIN_COUNT, WATER_DENSITY)
    x_s = scale_of(falling[2], n_s, SNOW_DENSITY)
    x_g = scale_of(falling[3], GRAUPEL_COUNT, GRAUPEL_DENSITY)

    viscosity = VISCOUS * temperature**1.5 / (temperature + VISCOUS_SHIFT) / rho
    conductivity = CONDUCTED * viscosity * rho
    diffusivity = DIFFUSED * temperature**DIFFUSED_POWER / pressure
    blown = np.cbrt(viscosity / diffusivity) / np.sqrt(viscosity) * np.sqrt(light)
    limit, _ = saturation(temperature, pressure)
    latent = np.where(cold > 0, SUBLIMATION, HEAT)
    resistance = rho * latent**2 / (conductivity * RV * temperature**2) + 1 / (limit * diffusivity)
    area_i = 4 * width * number * cold
    area_s = 4 * n_s * (0.65 * x_s**2 + 0.44 * _blow(*GAMMA_OF["snow"], x_s) * blown)
    area_g = 2 * np.pi * GRAUPEL_COUNT * (0.78 * x_g**2 + 0.31 * _blow(*GAMMA_OF["graupel"], x_g) * blown)
    drive = vapor / limit - 1
    drive = np.where((cold > 0) | (drive < 0), drive, 0.0) / resistance

    sticks, freezes = np.exp(-ICE_STICKS * below), np.expm1(BIGG_COLD * np.minimum(below, COLDEST))
    nuclei = NUCLEI * np.exp(NUCLEI_COLD * below)
    new = np.maximum(NUCLEUS * np.minimum(nuclei, MOST_CRYSTALS) ** NUCLEUS_POWER / rho - ice, 0.0)

    def swept(a: float, b: float, count: np.ndarray | float, x: np.ndarray) -> np.ndarray:
        return np.pi / 4 * count * a * math.gamma(3 + b) * x ** (3 + b) * light

    def over_ice(count: np.ndarray | float, x: np.ndarray, apart: np.ndarray) -> np.ndarray:
        return np.pi / 4 * ice * count * np.abs(apart) * (2 * x**3 + 2 * width * x**2 + width**2 * x) * cold

    def meeting(
        x: np.ndarray, y: np.ndarray, counts: np.ndarray | float, dense: float, apart: np.ndarray
    ) -> np.ndarray:
        """Of those of scale x and density `dense` that those of scale y collect."""
        near = 5 * x**6 * y + 2 * x**5 * y**2 + 0.5 * x**4 * y**3
        return np.pi**2 * counts * np.abs(apart) * dense / rho * near

    some_r, some_s, some_g = (np.minimum(each / TRACE, 1.0) for each in (rain, snow, graupel))
    snow_rain = some_r * some_s * meeting(x_r, x_s, RAIN_COUNT * n_s, WATER_DENSITY, fast_r - fast_s)
    graupel_rain = some_r * some_g * meeting(x_r, x_g, RAIN_COUNT * GRAUPEL_COUNT, WATER_DENSITY, fast_r - fast_g)
    snow_cloud = swept(SNOW_A, SNOW_B, n_s, x_s) * cloud
    graupel_cloud = swept(GRAUPEL_A, GRAUPEL_B, GRAUPEL_COUNT, x_g) * cloud
    conducted = conductivity * above / (FUSION * rho)
    poured = CL * above / FUSION
    pairs = n_s * GRAUPEL_COUNT
    return {
        "snow_from_cloud": snow_cloud,  # psacw: into rain above 0 degrees Celsius
        "graupel_from_cloud": graupel_cloud,  # pgacw, likewise
        "ice_from_cloud": BIGG * freezes * rho / (WATER_DENSITY * DROPLETS) * cloud**2,  # pihtf
        "ice_from_rain": RAIN_A * np.pi**2 * RAIN_COUNT * WATER_DENSITY * math.gamma(6 + RAIN_B) / 24  # piacr
        * number * light / rho * x_r ** (6 + RAIN_B) * cold,
        "snow_from_rain": snow_rain * cold,  # psacr
        "graupel_from_rain": graupel_rain * cold,  # pgacr
        "frozen_rain": 20 * np.pi**2 * BIGG * RAIN_COUNT * WATER_DENSITY / rho * freezes * x_r**7,  # pgfrz
        "snow_from_ice": some_s * over_ice(n_s, x_s, fast_s - fast_i) * sticks,  # psaci
        "graupel_from_ice": some_g * over_ice(GRAUPEL_COUNT, x_g, fast_g - fast_i) * sticks,  # pgaci
        "rain_from_ice": some_r * over_ice(RAIN_COUNT, x_r, fast_r - fast_i),  # praci
        "rain_from_snow": meeting(x_s, x_r, RAIN_COUNT * n_s, SNOW_DENSITY, fast_r - fast_s)  # pracs
        * some_r * some_s * cold,
        "graupel_from_snow": meeting(x_s, x_g, pairs, SNOW_DENSITY, fast_g - fast_s)  # pgacs
        * np.exp(-SNOW_STICKS * below) * some_s * some_g * cold,
        "dense_snow": DENSER * np.exp(-SNOW_STICKS * below) * np.maximum(snow - DENSE_SNOW, 0.0) * cold,  # pgaut
        "melting_snow": conducted * np.pi / 2 * area_s + poured * (snow_cloud + snow_rain),  # psmlt, pseml
        "melting_graupel": conducted * area_g + poured * (graupel_cloud + graupel_rain),  # pgmlt, pgeml
        "ice_grows": drive * area_i,  # pidep
        "snow_grows": drive * area_s,  # psdep, psevp
        "graupel_grows": drive * area_g,  # pgdep, pgevp
        "nuclei": np.where((cold > 0) & (drive > 0), new, 0.0),  # pigen, kg/kg at once
        "heavy_ice": np.maximum(ice - ICE_MOST / rho, 0.0) * cold,  # psaut, kg/kg at once
    }  # fmt: skip


def transfers(
    water: np.ndarray,
    temperature: np.ndarray,
    pressure: np.ndarray,
    rho: np.ndarray,
    light: np.ndarray,
    dt: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Water and temperature after all that has to do with ice over dt (s)."""
    vapor, cloud, rain, ice, snow, graupel = water
    cold, room = temperature < MELTING, WARMED / FUSION * np.abs(MELTING - temperature)
    of = {name: rate * (1.0 if name in ("nuclei", "heavy_ice") else dt) for name, rate in
          rates(water, temperature, pressure, rho, light).items()}  # fmt: skip
    # Vapor: held to saturation
    limit, slope = saturation(temperature, pressure)
    excess = (vapor - limit) / (1 + slope * SUBLIMATION / WARMED)
    asked = of["nuclei"] + of["ice_grows"] + of["snow_grows"] + of["graupel_grows"]
    share = np.abs(excess) / np.maximum(np.maximum(np.abs(asked), np.abs(excess)), TINY)
    nuclei, ice_grows, snow_grows, graupel_grows = (
        share * of[name] for name in ("nuclei", "ice_grows", "snow_grows", "graupel_grows")
    )
    # What is taken from each kind is at most what is there
    lost_i, lost_s, lost_g = (np.maximum(-each, 0.0) for each in (ice_grows, snow_grows, graupel_grows))
    from_cloud = _share(cloud, of["snow_from_cloud"] + of["graupel_from_cloud"] + of["ice_from_cloud"])
    from_rain = _share(rain, of["ice_from_rain"] + of["snow_from_rain"] + of["graupel_from_rain"] + of["frozen_rain"])
    from_ice = _share(
        ice, of["snow_from_ice"] + of["graupel_from_ice"] + of["rain_from_ice"] + of["heavy_ice"] + lost_i
    )
    both_light = (rain < HEAVY_RAIN) & (snow < HEAVY_SNOW)
    snow_rains = np.where(both_light, 0.0, of["rain_from_snow"])
    from_snow = _share(snow, snow_rains + of["graupel_from_snow"] + of["dense_snow"] + of["melting_snow"] + lost_s)
    from_graupel = _share(graupel, of["melting_graupel"] + lost_g)
    # Freezing and melting: as far as the heat lasts
    cloud_taken = from_cloud * (of["snow_from_cloud"] + of["graupel_from_cloud"] + of["ice_from_cloud"])
    rain_taken = from_rain * (of["ice_from_rain"] + of["snow_from_rain"] + of["graupel_from_rain"] + of["frozen_rain"])
    freezing = np.where(cold, _share(room, cloud_taken + rain_taken), 1.0)
    from_cloud, from_rain = from_cloud * freezing, from_rain * freezing
    melted_s, melted_g = from_snow * of["melting_snow"], from_graupel * of["melting_graupel"]
    melting = _share(room, melted_s + melted_g)
    melted_s, melted_g = melting * melted_s, melting * melted_g
    frozen = np.where(cold, freezing * (cloud_taken + rain_taken), 0.0)

    light_rain = rain < HEAVY_RAIN
    on_snow, on_graupel = from_cloud * of["snow_from_cloud"], from_cloud * of["graupel_from_cloud"]
    into_ice = from_cloud * of["ice_from_cloud"]
    by_ice, by_snow = from_rain * of["ice_from_rain"], from_rain * of["snow_from_rain"]
    by_graupel = from_rain * (of["graupel_from_rain"] + of["frozen_rain"])
    ice_to_snow = from_ice * (of["snow_from_ice"] + of["heavy_ice"])
    ice_to_graupel, ice_to_rain = from_ice * of["graupel_from_ice"], from_ice * of["rain_from_ice"]
    snow_to_graupel = from_snow * (snow_rains + of["graupel_from_snow"] + of["dense_snow"])
    ice_grows = np.where(ice_grows < 0, -from_ice * lost_i, ice_grows)
    snow_grows = np.where(snow_grows < 0, -from_snow * lost_s, snow_grows)
    graupel_grows = np.where(graupel_grows < 0, -from_graupel * lost_g, graupel_grows)
    deposited = nuclei + ice_grows + snow_grows + graupel_grows

    to_snow = np.where(cold, on_snow, 0.0) + ice_to_snow
    to_snow += np.where(light_rain, by_ice + ice_to_rain, 0.0) + np.where(both_light, by_snow, 0.0)
    to_graupel = np.where(cold, on_graupel, 0.0) + by_graupel + ice_to_graupel + snow_to_graupel
    to_graupel += np.where(light_rain, 0.0, by_ice + ice_to_rain) + np.where(both_light, 0.0, by_snow)
    to_rain = np.where(cold, 0.0, on_snow + on_graupel) + melted_s + melted_g
    new = np.array(
        [
            vapor - deposited,
            np.maximum(cloud - (on_snow + on_graupel + into_ice), 0.0),
            np.maximum(rain - (by_ice + by_snow + by_graupel), 0.0) + to_rain,
            np.maximum(ice - (ice_to_snow + ice_to_graupel + ice_to_rain) + ice_grows, 0.0) + into_ice + nuclei,
            np.maximum(snow - (snow_to_graupel + melted_s) + snow_grows, 0.0) + to_snow,
            np.maximum(graupel - melted_g + graupel_grows, 0.0) + to_graupel,
        ]
    )
    heat = SUBLIMATION * deposited + FUSION * (frozen - (melted_s + melted_g))
    return new, temperature + heat / WARMED


def _share(there: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """By how much what is taken is scaled down to what is there."""
    return there / np.maximum(np.maximum(taken, there), TINY)


def _blow(a: float, b: float, x: np.ndarray) -> np.ndarray:
    """How the wind of their fall adds to the exchange of particles, over the ventilation by air."""
    return np.sqrt(a) * math.gamma((5 + b) / 2) * x ** ((5 + b) / 2)


def _change(
    theta: np.ndarray,
    water: np.ndarray,
    rho: np.ndarray,
    exner: np.ndarray,
    pressure: np.ndarray,
    light: np.ndarray,
    thickness: float,
    dt: float,
    heated: np.ndarray,
) -> None:
    """All but the fall, of the cells of a level."""
    before, start = water.copy(), exner * theta
    cloud, rain = water[CLOUD], water[RAIN]
    made = cloud - (cloud - dt * np.maximum(0.001 * (cloud - 0.001), 0.0)) / (1.0 + dt * 2.2 * rain**0.875)
    water[CLOUD] = np.maximum(cloud - made, 0.0)
    water[RAIN] = np.maximum(rain + made, 0.0)
    water[...], temperature = transfers(water, start, pressure, rho, light, dt)

    vapor, cloud, rain = water[:3].copy()
    grams, scale, above = 0.001 * rho, 380.0 / pressure, temperature - 36.0
    limit = scale * np.exp(F2X * (temperature - 273.0) / above)
    change = (vapor - limit) / (1.0 + limit * F5 / above**2)
    wet = grams * rain
    rate = (1.6 + 124.9 * wet**0.2046) * wet**0.525 / (2.55e6 * scale / (3.8 * limit) + 5.4e5)
    dried = dt * rate * (np.maximum(limit - vapor, 0.0) / (grams * limit))
    dried = np.minimum(np.minimum(dried, np.maximum(-change - cloud, 0.0)), rain)
    change = np.maximum(change, -cloud)
    temperature += HEAT / WARMED * (change - dried)
    water[VAPOR] = np.maximum(vapor - change + dried, 0.0)
    water[CLOUD], water[RAIN] = cloud + change, rain - dried

    glass = np.where(temperature < GLASS, 1.0, 0.0)
    cloud, rain = glass * water[CLOUD], glass * water[RAIN]
    melted = np.minimum(water[ICE], WARMED / FUSION * np.maximum(temperature - MELTING, 0.0))
    temperature += FUSION / WARMED * (cloud + rain - melted)
    water[CLOUD] += melted - cloud
    water[RAIN] -= rain
    water[ICE] += cloud - melted
    water[GRAUPEL] += rain
    theta[...] = temperature / exner

    mass = rho * thickness
    gained = water[ICE] + water[SNOW] + water[GRAUPEL] - (before[ICE] + before[SNOW] + before[GRAUPEL])
    heated[0] += mass * (WARMED * (temperature - start))
    heated[1] += mass * (HEAT * (before[VAPOR] - water[VAPOR]) + FUSION * gained)
