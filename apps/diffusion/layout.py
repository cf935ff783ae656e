"""What follows from the settings of a body: its time step, the blocks of its ranks, and the cost of a run."""

from __future__ import annotations

import math

import numpy as np

from hpckit.apps.common.layout import grid_dry_run, local_cells, sent_bytes
from hpckit.apps.diffusion.config import Config
from hpckit.kernels.stencil import largest_step
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.topology import Topology
from hpckit.run.context import DryRun
from hpckit.run.steps import count_steps


def time_step(config: Config) -> tuple[float, int]:
    """The time step (s), at most `safety` times the stability limit, and the number of steps.

    Raises `InputError` if no such step exists, or the run needs more than 2**53 steps.
    """
    with np.errstate(all="ignore"):  # cells too small for floats: count_steps reports them
        limit = config.time.safety * float(largest_step(config.diffusivity, config.grid.spacing))
    if config.time.steps is not None:
        return limit, count_steps(config.time.steps * limit, limit, 0.5)
    steps = count_steps(config.time.end, limit)
    return config.time.end / steps, steps


def dry_run(config: Config, ranks: int) -> DryRun:
    """The cost of `run` on that many ranks; raises the errors that it would raise before its start."""
    grid = config.grid
    topology = Topology.over(ranks, grid.shape, dict.fromkeys(grid.axes, 0), grid.periodic)
    decomposition = Decomposition(grid.shape, topology, halo=1)
    dt, steps = time_step(config)
    return grid_dry_run(
        config,
        decomposition,
        grid.spacing,
        halo_bytes=sent_bytes([decomposition]),
        memory_per_rank=2 * 8 * local_cells(decomposition),
        points=math.prod(grid.shape),
        frames=1 + min(config.output.frames, steps),
        steps=steps,
        note=f"dt {dt:.4g} s; one halo exchange a step",
    )
