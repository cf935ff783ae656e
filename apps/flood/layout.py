"""What follows from the settings of a flood: the rate of its waves, the blocks of its ranks, and the cost of a run."""

from __future__ import annotations

import math

from hpckit.apps.common.layout import grid_dry_run, local_cells, sent_bytes
from hpckit.apps.flood.config import VARIABLES, Config
from hpckit.kernels.flood.constants import HALO
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.topology import Topology
from hpckit.run.context import DryRun
from hpckit.run.steps import count_steps, frame_count, step_count

AXES = ("y", "x")


def first_rate(config: Config) -> float:
    """An estimate of the wave rate of moving water, 1/s, for the number of steps of a run."""
    grid, begin, ground = config.grid, config.start, config.bottom
    deepest = max(begin.level, begin.behind_level) - min(0.0, ground.height)
    if begin.kind.startswith("bowl"):
        deepest = ground.height + abs(begin.amplitude)
    elif begin.kind in ("lake", "hump"):
        deepest = begin.level + abs(begin.amplitude)
    speed = 1.5 * math.sqrt(config.physics.gravity * max(deepest, config.physics.dry))
    return speed * (1 / grid.dx + 1 / grid.dy)


def dry_run(config: Config, ranks: int) -> DryRun:
    """The cost of `run` on that many ranks; raises the errors that it would raise before its start."""
    grid, shape = config.grid, (config.grid.ny, config.grid.nx)
    topology = Topology.over(ranks, shape, dict.fromkeys(AXES, 0), grid.periodic, HALO)
    decomposition = Decomposition(shape, topology, halo=HALO)
    dt = min(config.time.cfl / first_rate(config), config.output.every)
    steps = step_count(config, dt)
    count_steps(config.time.end, config.output.every)
    return grid_dry_run(
        config,
        decomposition,
        (grid.dy, grid.dx),
        sides=f", x {grid.sides_x}, y {grid.sides_y}",
        halo_bytes=sent_bytes([decomposition], 3 * 8),
        memory_per_rank=10 * 8 * local_cells(decomposition),
        points=len(VARIABLES) * grid.ny * grid.nx,
        frames=frame_count(config, dt, steps),
        steps=steps,
        note=f"steps follow the waves, about {dt:.3g} s each; two halo exchanges a step",
    )
