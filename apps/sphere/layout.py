"""What follows from the settings of a planet: its time step, the blocks of its ranks, and the cost of a run."""

from __future__ import annotations

import math

from hpckit.apps.common.layout import grid_dry_run, local_cells
from hpckit.apps.sphere import setups
from hpckit.apps.sphere.config import VARIABLES, Config, spacing
from hpckit.grid.cubed_sphere import CubedSphere
from hpckit.kernels.sphere.constants import HALO
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.panels import PANELS, PanelPlan
from hpckit.plan.topology import Topology
from hpckit.run.context import DryRun
from hpckit.run.steps import frame_count, step_count

AXES = ("panel", "y", "x")
WIDTHS = (0, HALO, HALO)
PARTS = ("depth", "vx", "vy", "vz")


def decompose(config: Config, topology: Topology) -> Decomposition:
    """The cells of each rank."""
    n = config.grid.n
    return Decomposition((PANELS, n, n), topology, halo=WIDTHS)


def axes_of(ranks: int) -> dict[str, int]:
    """The axes of a mesh: as many ranks along the panels as divide them evenly."""
    return {"panel": math.gcd(ranks, PANELS), "y": 0, "x": 0}


def topology_of(config: Config, ranks: int) -> Topology:
    """The ranks of a run. Raises `DecompositionError` if they do not fit."""
    n = config.grid.n
    return Topology.over(ranks, (PANELS, n, n), axes_of(ranks), (), WIDTHS)


def smallest(config: Config) -> float:
    """What the Courant number is counted by, m: the narrowest cell, both directions together."""
    sphere = CubedSphere(config.grid.n, config.physics.radius)
    across = sphere.area / sphere.length_x[:, 1:]
    return float(across.min()) / math.sqrt(2.0)


def time_step(config: Config) -> float:
    """The full time step, s."""
    waves = math.sqrt(config.physics.gravity * setups.highest(config))
    return config.time.cfl * smallest(config) / (waves + config.time.max_speed)


def dry_run(config: Config, ranks: int) -> DryRun:
    """The cost of `run` on that many ranks; raises the errors that it would raise before its start."""
    n = config.grid.n
    decomposition = decompose(config, topology_of(config, ranks))
    plan = PanelPlan(decomposition)
    dt = time_step(config)
    steps = step_count(config, dt)
    return grid_dry_run(
        config,
        decomposition,
        (spacing(config), spacing(config)),
        sides=", a closed sphere",
        halo_bytes=3 * 8 * len(PARTS) * int(plan.sent.max()),
        memory_per_rank=8 * (3 * len(PARTS) + 1) * local_cells(decomposition),
        points=len(VARIABLES) * PANELS * n * n,
        frames=frame_count(config, dt, steps),
        steps=steps,
        note=f"dt {dt:.4g} s; three exchanges a step",
    )
