"""The presets of the weather3d app: name, what it shows, its settings."""

from __future__ import annotations

from typing import Any

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
