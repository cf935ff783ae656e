"""Settings of the weather3d app, and its presets."""

from __future__ import annotations

from collections.abc import Iterator

from hpckit.apps.common.settings import CheckedTogether
from hpckit.apps.common.settings import device_problems as device_problems
from hpckit.apps.weather3d.presets import PRESETS as PRESETS
from hpckit.apps.weather3d.settings.physics import WATER
from hpckit.apps.weather3d.settings.sections import Settings
from hpckit.apps.weather3d.settings.together import problems

SUMMARY = "compressible, non-hydrostatic atmosphere in a box: thermals, storms, clouds, terrain, jets, soundings"
METRICS = {
    "mass": "kg",
    "energy": "J",
    "w_max": "m/s",
    "theta_min": "K",
    "theta_max": "K",
    "mass_through_sides": "kg",
    "mass_relaxed": "kg",
    "eddy_viscosity_max": "m2/s",
    **{f"{kind}_mass": "kg" for kind in WATER},
    "rain_on_ground": "kg",
    "snow_on_ground": "kg",
    "graupel_on_ground": "kg",
    "cloud_cover": "1",
    "liquid_water_path": "kg/m2",
    "ice_water_path": "kg/m2",
    "air_heated": "J",
    "water_heat": "J",
}
GPU = True  # supports `hpckit run --gpu`


class Config(CheckedTogether, Settings):
    """All settings of a run, which go together."""

    def problems(self) -> Iterator[str]:
        """What does not go together, and what to do."""
        return problems(self)
