"""The scaling model of the sphere."""

from __future__ import annotations

import math
from typing import Any

from hpckit.apps.common.scaling import Load, Traffic, most_cells
from hpckit.apps.sphere.config import Config
from hpckit.apps.sphere.layout import PARTS, decompose, time_step, topology_of
from hpckit.plan.grid.panels import PanelPlan

UNIT = "cells"


def stepped(config: Config, steps: int) -> dict[str, Any]:
    """The settings with frames and metrics at the start and the end only."""
    end = steps * time_step(config)
    return {"time.end": end, "time.monitor": steps, "output.every": 2 * end, "output.compression": 0}


def grown(config: Config, ranks: int) -> dict[str, Any]:
    """The settings of a finer grid with about as many cells a rank."""
    return {"grid.n": round(config.grid.n * math.sqrt(ranks))}


def load(config: Config, ranks: int) -> Load:
    """The largest block, and an exchange for each stage of a step."""
    decomposition = decompose(config, topology_of(config, ranks))
    traffic = (Traffic((PanelPlan(decomposition),), itemsize=8 * len(PARTS), calls=3.0),) if ranks > 1 else ()
    return Load(most_cells(decomposition), traffic)
