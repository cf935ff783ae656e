"""The small runs of every app that are resumed on other numbers of ranks: settings, and how many steps they have."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TEXT = "text.txt"  # what the training run learns: made beside the runs


@dataclass(frozen=True)
class Case:
    """A run: an app, the preset and the settings laid over it. It may stop after steps below `steps`, at multiples of
    `every` (where an app takes several steps at once, it stops where a checkpoint belongs by its number).
    """

    app: str
    preset: str
    settings: Mapping[str, Any]
    steps: int
    every: int = 1

    def config(self, folder: Path, ranks: int = 1) -> Any:
        """The checked settings of the app on so many ranks; a pipeline of two stages where that number is even."""
        module = importlib.import_module(f"hpckit.apps.{self.app}.config")
        below = module.PRESETS[self.preset][1] if self.preset else {}
        tree = laid_over(below, self.settings)
        if self.app == "train":
            tree["data"] = {**tree["data"], "file": folder / TEXT}
            tree["mesh"] = {"pp": 1 + (ranks % 2 == 0)}
        return module.Config.model_validate({"app": self.app, **tree})


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables, values of `above` in place of those of `below`."""
    both = dict(below)
    for key, value in above.items():
        both[key] = laid_over(both.get(key, {}), value) if isinstance(value, Mapping) else value
    return both


RESCALING = {"kind": "cell_rescaling", "damping": 0.3, "compressibility": 0.1}


def _md(dynamics: dict[str, Any], barostat: dict[str, Any] | None = None) -> Case:
    settings = {
        "system": {"cells": [5, 4, 4]},
        "time": {"steps": 60, "thermo": 13},
        "output": {"every": 14},
        "repro": True,
        "precision": "double",
        "dynamics": dynamics,
        "barostat": barostat or {},
        "analysis": {"k_max": 0.0},
    }
    return Case("md", "mixture", settings, 60)


BIASED = {
    "variables": [
        {"name": "r", "kind": "distance", "groups": [[1], [7, 9]]},
        {"name": "z", "kind": "position", "groups": [[3]], "axis": "z"},
        {"name": "c", "kind": "coordination", "groups": [[1, 2], [5, 6, 7, 8, 9]], "radius": 1.4},
    ],
    "restraints": [
        {"variable": "c", "strength": 2.0, "center": 3.0, "to": 5.0, "over": 40, "after": 5},
        {"variable": "r", "strength": 3.0, "center": 1.5, "coupled": True},
    ],
    "metadynamics": {
        "variables": ["r", "z"],
        "widths": [0.2, 0.5],
        "height": 0.4,
        "every": 4,
        "lower": [0.2, 0.0],
        "upper": [4.0, 1.0],
    },
    "coupling": {"states": [0.1, 0.6, 1.0], "types": [2], "every": 3},
}


def _with(case: Case, more: Mapping[str, Any]) -> Case:
    return Case(case.app, case.preset, laid_over(case.settings, more), case.steps, case.every)


def _grid(app: str, preset: str, steps: int, every: int = 1, **settings: Any) -> Case:
    return Case(app, preset, laid_over(settings, {"output": {"single": False}}), steps, every)


def _assimilate(kind: str) -> Case:
    settings = {
        "grid": {"ny": 19, "nx": 23},
        "window": {"steps": 9},
        "truth": {"scale": 4.0, "spin_up": 2},
        "background": {"scale": 4.0},
        "observations": {"every": 1, "share": 0.05},
        "method": {"kind": kind, "iterations": 9, "inner": 2, "members": 4},
        "output": {"single": False},
    }
    return Case("assimilate", "", settings, 9)


CASES = {
    "diffusion": _grid("diffusion", "heat", 40, grid={"shape": [23, 31]}, time={"steps": 40, "monitor": 7}),
    "weather": _grid("weather", "thermal", 20, grid={"nx": 31, "nz": 11}, time={"end": 60.0}, output={"every": 15.0}),
    "weather3d": _grid(
        "weather3d",
        "thermal3d",
        15,
        grid={"nx": 25, "ny": 23, "nz": 9},
        time={"end": 50.0},
        output={"every": 12.0},
        sides={"x": "open"},
        smagorinsky={"coefficient": 0.2},
        coriolis=1e-4,
        tracers=[{"name": "dust"}],
    ),
    "shallow_water": _grid(
        "shallow_water",
        "double_gyre",
        20,
        2,
        grid={"nx": 19, "ny": 23},
        time={"end": 150000.0},
        output={"every": 40000.0},
    ),
    "flood": _grid(
        "flood", "partial_dam_break", 16, grid={"nx": 23, "ny": 19}, time={"end": 6.0}, output={"every": 1.5}
    ),
    "md": _md({"kind": "langevin"}),
    "train": Case(
        "train",
        "",
        {
            "model": {"kind": "gpt2", "layers": 4, "width": 24, "heads": 3, "context": 13, "dropout": 0.1},
            "data": {"validation": 0.2},
            "batch": {"size": 12, "microbatches": 2},
            "optimizer": {"lr": 0.01, "warmup": 2},
            "time": {"steps": 15, "validate_every": 0},
            "precision": "float64",
        },
        15,
    ),
}
# The same apps with other physics: of the larger tier.
MORE = {
    "weather_diffusion": _grid(
        "weather", "straka", 22, grid={"nx": 37, "nz": 12}, time={"end": 40.0}, output={"every": 10.0}
    ),
    "storm": _grid(
        "weather3d",
        "supercell",
        24,
        grid={"nx": 25, "ny": 23, "nz": 17, "width": 25e3, "length": 23e3, "height": 12e3, "lowest": 300.0},
        bubbles=[{"amplitude": 8.0, "x": 12e3, "y": 12e3, "z": 1500.0, "radius_x": 4e3, "radius_y": 4e3}],
        lid={"depth": 2000.0},
        time={"end": 200.0, "monitor": 7},
        parcels={"x": [3e3, 22e3, 4], "y": [3e3, 22e3, 3], "z": [200.0, 3000.0, 2]},
        output={"every": 33.0, "statistics": 20.0, "series": 15.0, "stations": [{"name": "a", "x": 1e4, "y": 2e4}]},
    ),
    "sphere": _grid("sphere", "williamson5", 22, grid={"n": 10}, time={"end": 31_000.0}, output={"every": 8_000.0}),
    "assimilate": _assimilate("4dvar"),
    "assimilate_cg": _assimilate("4dvar_cg"),
    "assimilate_letkf": _assimilate("letkf"),
    "md_nve": _md({"kind": "nve"}),
    "md_bussi": _md({"kind": "nve", "equilibrate": 30}),
    "md_nose_hoover": _md({"kind": "nose_hoover"}),
    "md_npt": _md({"kind": "nose_hoover"}, {"kind": "mtk", "coupled": "none", "damping": 1.0}),
    "md_cell_rescaling": _md({"kind": "bussi", "equilibrate": 25}, RESCALING),
    "md_stages": _with(
        _md({"kind": "nose_hoover"}, {"kind": "mtk", "damping": 1.0}),
        {
            "time": {"steps": 20, "thermo": 7},
            "stages": [
                {"steps": 17, "dynamics": {"kind": "fire", "largest_force": 1e-9}, "barostat": {}},
                {
                    "steps": 23,
                    "dt": 0.002,
                    "goes_on": True,
                    "dynamics": {"kind": "nose_hoover", "ramp_to": 2.0},
                    "barostat": {"kind": "mtk", "damping": 1.0},
                },
            ],
        },
    ),
    "md_biases": _with(_md({"kind": "langevin", "temperature": 1.0}), BIASED),
}
