"""The presets of the weather3d app: name, summary, settings."""

from __future__ import annotations

from typing import Any


def _line(z: float, theta: float, total: float, u: float, v: float = 0.0) -> list[float]:
    """A line of base.levels, from the specific humidity of all water (g/kg of moist air)."""
    return [z, theta, total / (1000 - total), u, v]


BOMEX = [
    _line(0.0, 298.7, 17.0, -8.75),
    _line(520.0, 298.7, 16.3, -8.75),
    _line(700.0, 298.7 + 3.7 * 180 / 960, 16.3 - 5.6 * 180 / 960, -8.75),
    _line(1480.0, 302.4, 10.7, -8.75 + 4.14 * 780 / 2300),
    _line(2000.0, 308.2, 4.2, -8.75 + 4.14 * 1300 / 2300),
    _line(3000.0, 311.85, 3.0, -4.61),
]
DYCOMS = [
    _line(0.0, 289.0, 9.0, 7.0, -5.5),
    _line(837.5, 289.0, 9.0, 7.0, -5.5),
    *(_line(840.0 + far, 297.5 + far ** (1 / 3), 1.5, 7.0, -5.5) for far in (2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 150.0)),
    *(_line(840.0 + far, 297.5 + far ** (1 / 3), 1.5, 7.0, -5.5) for far in (250.0, 350.0, 500.0, 660.0)),
]

# Stable air of N = 0.01 1/s over 285 K, a tropopause at 11 km; relative humidity 0.9 up to 4 km, 0.4 at 9 km.
MOIST_FLOW = [
    [z, theta, vapor / 1000, 15.0, 0.0]
    for z, theta, vapor in (
        (0.0, 285.0, 7.861), (500.0, 286.5, 6.633), (1000.0, 287.9, 5.557), (1500.0, 289.4, 4.622),
        (2000.0, 290.9, 3.814), (2500.0, 292.4, 3.122), (3000.0, 293.9, 2.533), (3500.0, 295.4, 2.036),
        (4000.0, 296.9, 1.621), (5000.0, 299.9, 0.885), (6000.0, 303.0, 0.454), (7000.0, 306.1, 0.217),
        (8000.0, 309.2, 0.095), (9000.0, 312.4, 0.037), (10_000.0, 315.6, 0.011), (11_000.0, 318.8, 0.002),
        (12_500.0, 338.9, 0.001), (14_000.0, 360.3, 0.001), (16_000.0, 390.9, 0.001), (18_000.0, 424.1, 0.0),
        (20_000.0, 460.2, 0.0),
    )
]  # fmt: skip

SUPERCELL: dict[str, Any] = {
    "grid": {"nx": 84, "ny": 84, "nz": 40, "width": 168e3, "length": 168e3, "height": 20e3},
    "dynamics": {"kind": "hevi", "step": 8.0},
    "base": {"kind": "weisman_klemp", "shear": 30.0, "u": -15.0},
    "moisture": {"kind": "kessler"},
    "bubbles": [{"x": 84e3, "y": 84e3, "z": 1500.0, "radius_x": 10e3, "radius_y": 10e3, "radius_z": 1500.0}],
    "smagorinsky": {"coefficient": 0.2},
    "lid": {"depth": 5000.0},
    "time": {"end": 7200.0},
    "output": {"every": 600.0, "maps": True},
}

PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "thermal3d": (
        "a warm bubble rises in a neutral atmosphere and rolls up into a ring",
        {
            "bubbles": [{"amplitude": 3.0}],
            "time": {"end": 1000.0},
            "output": {"every": 100.0},
        },
    ),
    "density_current3d": (
        "cold air falls to the ground and spreads in all directions",
        {
            "bubbles": [{"amplitude": -15.0, "z": 4000.0, "radius_x": 3000.0, "radius_y": 3000.0}],
            "diffusion": 75.0,
            "time": {"end": 600.0},
            "output": {"every": 60.0},
        },
    ),
    "thermal3d_hevi": (
        "the warm bubble in large steps of the flow: split dynamics (HEVI) on levels that grow with height",
        {
            "grid": {"nx": 128, "ny": 128, "nz": 56, "lowest": 100.0},
            "dynamics": {"kind": "hevi"},
            "bubbles": [{"amplitude": 3.0}],
            "time": {"end": 1000.0},
            "output": {"every": 100.0},
        },
    ),
    "dry_bubble": (
        "the dry warm bubble of Bryan and Fritsch (2002), in a slab six cells thick",
        {
            "grid": {"nx": 200, "ny": 6, "nz": 100, "length": 600.0},
            "dynamics": {"kind": "hevi"},
            "bubbles": [{"amplitude": 2.0, "y": 300.0, "radius_y": 1e9, "keeps": "pressure"}],
            "time": {"end": 1000.0},
            "output": {"every": 250.0},
        },
    ),
    "moist_bubble": (
        "the moist bubble of Bryan and Fritsch (2002): cloud everywhere, the same buoyancy, in the complete equations",
        {
            "grid": {"nx": 200, "ny": 6, "nz": 100, "length": 600.0},
            "dynamics": {"kind": "hevi"},
            "base": {"kind": "saturated"},
            "moisture": {"kind": "reversible", "equations": "complete", "transport": "linear"},
            "bubbles": [{"amplitude": 2.0, "y": 300.0, "radius_y": 1e9, "keeps": "pressure"}],
            "time": {"end": 1000.0},
            "output": {"every": 250.0, "fields": ["pressure"]},
        },
    ),
    "supercell": (
        "a storm with rain in the sheared air of Weisman and Klemp (1982) splits: split dynamics, Kessler's rain",
        SUPERCELL,
    ),
    "ice_supercell": (
        "the same storm with ice: vapor, cloud, rain, cloud ice, snow and graupel",
        {**SUPERCELL, "moisture": {"kind": "ice"}},
    ),
    "bomex": (
        "shallow cumuli of the trade winds: BOMEX as compared by Siebesma et al. (2003), six hours",
        {
            "grid": {"nx": 64, "ny": 64, "nz": 75, "width": 6400.0, "length": 6400.0, "height": 3000.0},
            "dynamics": {"kind": "hevi", "step": 3.0, "acoustic_cfl": 0.9},
            "base": {"kind": "levels", "pressure": 101_500.0, "wind": True, "levels": BOMEX},
            "moisture": {"kind": "reversible"},
            "bubbles": [],
            "surface": {"heat": 8e-3, "vapor": 5.2e-5 / (1 - 0.017) ** 2, "friction": 0.28},
            "forcing": {
                "cooling": [[0.0, -2 / 86_400], [1500.0, -2 / 86_400], [3000.0, 0.0]],
                "drying": [[0.0, -1.2e-8], [300.0, -1.2e-8], [500.0, 0.0]],
                "subsidence": [[0.0, 0.0], [1500.0, -0.0065], [2100.0, 0.0]],
                "geostrophic_u": [[0.0, -10.0], [3000.0, -4.6]],
                "geostrophic_v": [[0.0, 0.0]],
            },
            "coriolis": 0.376e-4,
            "noise": {"amplitude": 0.1, "vapor": 2.5e-5 / (1 - 0.017) ** 2, "height": 1600.0},
            "smagorinsky": {"coefficient": 0.18},
            "lid": {"depth": 600.0},
            "time": {"end": 21_600.0, "max_speed": 360.0},
            "output": {"every": 3600.0, "statistics": 60.0},
        },
    ),
    "dycoms": (
        "nocturnal stratocumulus under a strong inversion: DYCOMS-II RF01 (Stevens et al. 2005), four hours",
        {
            "grid": {"nx": 96, "ny": 96, "nz": 150, "width": 3360.0, "length": 3360.0, "height": 1500.0},
            "dynamics": {"kind": "hevi", "step": 1.5, "acoustic_cfl": 0.9},
            "base": {"kind": "levels", "pressure": 101_780.0, "wind": True, "levels": DYCOMS},
            "moisture": {"kind": "reversible"},
            "bubbles": [],
            "surface": {
                "heat": 15 / (1.22 * 1004.5),
                "vapor": 115 / (1.22 * 2.5e6) / (1 - 0.009) ** 2,
                "friction": 0.25,
            },
            "forcing": {
                "subsidence": [[0.0, 0.0], [1500.0, -3.75e-6 * 1500.0]],
                "geostrophic_u": [[0.0, 7.0]],
                "geostrophic_v": [[0.0, -5.5]],
            },
            "radiation": {"top": 70.0},
            "coriolis": 7.62e-5,
            "noise": {"amplitude": 0.1, "height": 840.0},
            "smagorinsky": {"coefficient": 0.18},
            "lid": {"depth": 300.0},
            "time": {"end": 14_400.0, "max_speed": 360.0},
            "output": {"every": 1800.0, "statistics": 60.0},
        },
    ),
    "dcmip_supercell": (
        "the supercell of DCMIP2016 (Klemp et al. 2015) on a plane: constant viscosity, linear shear, Kessler's rain",
        {
            "grid": {"nx": 84, "ny": 84, "nz": 40, "width": 168e3, "length": 168e3, "height": 20e3},
            "dynamics": {"kind": "hevi", "step": 8.0},
            "base": {
                "kind": "weisman_klemp",
                "shear": 30.0,
                "shear_depth": 5000.0,
                "shear_shape": "linear",
                "u": -15.0,
            },
            "moisture": {"kind": "kessler"},
            "bubbles": [{"x": 84e3, "y": 84e3, "z": 1500.0, "radius_x": 10e3, "radius_y": 10e3, "radius_z": 1500.0}],
            "diffusion": 500.0,
            "prandtl": 1 / 3,
            "time": {"end": 7200.0},
            "output": {"every": 600.0, "maps": True},
        },
    ),
    "squall_line": (
        "a line of storms along y in shear near the ground (Rotunno et al. 1988), as a slab six cells thick",
        {
            "grid": {"nx": 300, "ny": 6, "nz": 40, "width": 300e3, "length": 6e3, "height": 20e3},
            "dynamics": {"kind": "hevi"},
            "base": {
                "kind": "weisman_klemp",
                "shear": 17.5,
                "shear_depth": 2500.0,
                "shear_shape": "linear",
                "u": -17.5,
            },
            "moisture": {"kind": "kessler"},
            "bubbles": [
                {"x": 150e3, "y": 3e3, "z": 1500.0, "radius_x": 10e3, "radius_y": 1e9, "radius_z": 1500.0},
            ],
            "smagorinsky": {"coefficient": 0.2},
            "lid": {"depth": 5000.0},
            "time": {"end": 10_800.0},
            "output": {"every": 600.0, "maps": True},
        },
    ),
    "convective_boundary_layer": (
        "heat from the ground stirs stable air: the mixed layer grows by encroachment and entrainment",
        {
            "grid": {"nx": 32, "ny": 32, "nz": 40, "width": 3200.0, "length": 3200.0, "height": 1600.0},
            "dynamics": {"kind": "hevi", "step": 2.0},
            "base": {"kind": "stable", "frequency": 0.01},
            "bubbles": [],
            "surface": {"heat": 0.1},
            "noise": {"amplitude": 0.1},
            "smagorinsky": {"coefficient": 0.18},
            "drag": 2e-3,
            "time": {"end": 3600.0},
            "output": {"every": 600.0, "statistics": 60.0},
        },
    ),
    "schaer": (
        "waves over the ridges of Schaer et al. (2002): short ones fade with height, long ones reach the sponge",
        {
            "grid": {"nx": 200, "ny": 6, "nz": 70, "width": 100e3, "length": 3e3, "height": 21e3},
            "dynamics": {"kind": "hevi"},
            "base": {"kind": "stable", "theta": 288.0, "frequency": 0.01, "u": 10.0},
            "terrain": {"kind": "schaer", "height": 250.0, "half_width": 5000.0, "wavelength": 4000.0, "x": 50e3},
            "bubbles": [],
            "lid": {"depth": 9000.0, "time": 200.0},
            "time": {"end": 18_000.0},
            "output": {"every": 3600.0},
        },
    ),
    "linear_hill": (
        "waves over a hill one meter high, as linear theory has them: isothermal air, the hill ten kilometers wide",
        {
            "grid": {"nx": 120, "ny": 6, "nz": 80, "width": 240e3, "length": 12e3, "height": 24e3},
            "dynamics": {"kind": "hevi"},
            "base": {"kind": "isothermal", "temperature": 250.0, "u": 20.0},
            "terrain": {"kind": "bell", "height": 1.0, "half_width": 10e3, "x": 120e3},
            "bubbles": [],
            "lid": {"depth": 10e3, "time": 200.0},
            "time": {"end": 15_000.0},
            "output": {"every": 3000.0, "single": False},
        },
    ),
    "orographic_rain": (
        "moist air rises over a ridge one kilometer high: rain on its windward side, dry air in its lee",
        {
            "grid": {"nx": 150, "ny": 6, "nz": 50, "width": 300e3, "length": 12e3, "height": 20e3, "lowest": 150.0},
            "dynamics": {"kind": "hevi"},
            "base": {"kind": "levels", "wind": True, "levels": MOIST_FLOW},
            "terrain": {"kind": "bell", "height": 1000.0, "half_width": 15e3, "x": 120e3},
            "moisture": {"kind": "kessler"},
            "bubbles": [],
            "smagorinsky": {"coefficient": 0.2},
            "lid": {"depth": 8000.0},
            "time": {"end": 14_400.0},
            "output": {"every": 1800.0, "maps": True},
        },
    ),
    "jet": (
        "a jet in a neutral atmosphere meanders and breaks up into vortices",
        {
            "grid": {"nx": 128, "ny": 128, "nz": 40},
            "bubbles": [],
            "jet": {"speed": 30.0},
            "time": {"end": 3000.0},
            "output": {"every": 300.0},
        },
    ),
    "balanced_jet": (
        "a jet in geostrophic and thermal-wind balance between walls stays as it is",
        {
            "grid": {"nx": 8, "ny": 64, "nz": 20, "width": 200e3, "length": 1600e3},
            "sides": {"y": "walls"},
            "base": {"kind": "stable", "frequency": 0.01},
            "bubbles": [],
            "jet": {
                "speed": 15.0,
                "y": 800e3,
                "z": 6000.0,
                "half_width": 200e3,
                "half_height": 4000.0,
                "wobble": 0.0,
                "balanced": True,
            },
            "coriolis": 1e-4,
            "beta": 0.0,
            "time": {"end": 10_800.0, "monitor": 100, "cfl": 1.2},
            "output": {"every": 1080.0},
        },
    ),
    "inertia_gravity_waves": (
        "waves spread from a band of warm air in a stable wind: the short channel of Skamarock and Klemp (1994)",
        {
            "grid": {"nx": 300, "ny": 6, "nz": 20, "width": 300e3, "length": 6e3},
            "base": {"kind": "stable", "frequency": 0.01, "u": 20.0},
            "bubbles": [],
            "band": {"amplitude": 0.01},
            "time": {"end": 3000.0, "monitor": 50},
            "output": {"every": 300.0},
        },
    ),
    "inertia_gravity_waves_long": (
        "the same under the Coriolis force in a channel of 6000 km: nearly hydrostatic",
        {
            "grid": {"nx": 300, "ny": 6, "nz": 10, "width": 6000e3, "length": 120e3},
            "base": {"kind": "stable", "frequency": 0.01, "u": 20.0},
            "bubbles": [],
            "band": {"amplitude": 0.01, "x": 2000e3, "half_width": 100e3},
            "coriolis": 1e-4,
            "time": {"end": 60_000.0, "monitor": 500},
            "output": {"every": 6000.0},
        },
    ),
    "sounding3d": (
        "a dry thermal in an observed atmosphere with its shear: give base.file=… (WRF input_sounding or Wyoming"
        " listing)",
        {
            "grid": {"nx": 128, "ny": 128, "nz": 60, "height": 9000.0},
            "base": {"kind": "sounding", "wind": True},
            "bubbles": [{"amplitude": 6.0, "z": 1500.0, "radius_z": 1500.0}],
            "time": {"end": 1000.0},
            "output": {"every": 100.0},
        },
    ),
}
