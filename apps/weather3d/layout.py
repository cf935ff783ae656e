"""What follows from the settings of a box: the blocks of its ranks, and the cost of a run."""

from __future__ import annotations

import math

from hpckit.apps.atmosphere.base import require_top
from hpckit.apps.atmosphere.output import variables
from hpckit.apps.common.layout import grid_dry_run, local_cells, sent_bytes
from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.setups import column_of
from hpckit.apps.weather3d.sides import periodic_axes
from hpckit.apps.weather3d.terrain import require_thick
from hpckit.kernels.euler.box.constants import FIELDS
from hpckit.kernels.euler.constants import HALO, REACH
from hpckit.kernels.euler.hevi.constants import HALO as SPLIT_HALO
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.topology import Topology
from hpckit.run.context import DryRun
from hpckit.run.steps import frame_count, step_count

AXES = {"z": 1, "y": 0, "x": 0}  # the vertical stays whole
TRACER_HALOS = (0, REACH, REACH)
SPLIT_ARRAYS = 4 * FIELDS + 8 + 1 + 3 + 1  # state, its start, two kinds of tendencies; work space, pressure, fluxes, mu
SLOPING_ARRAYS = 17  # as many more over terrain


def halos_of(config: Config) -> tuple[int, int, int]:
    """Cells of the state's halo along z, y and x."""
    width = SPLIT_HALO if config.dynamics.kind == "hevi" else HALO
    return 0, width, width


def dry_run(config: Config, ranks: int) -> DryRun:
    """The cost of `run` on that many ranks; raises the errors that it would raise before its start."""
    grid = config.grid
    shape = (grid.nz, grid.ny, grid.nx)
    topology = Topology.over(ranks, shape, AXES, periodic_axes(config), halos_of(config))
    decomposition = Decomposition(shape, topology, halo=halos_of(config))
    require_top(column_of(config.base), grid.nz, grid.dz)
    is_split, sloping = config.dynamics.kind == "hevi", config.terrain.kind != "flat"
    if sloping:
        require_thick(config)
    dt = config.full_step
    steps, tracers = step_count(config, dt), len(config.tracers) + len(config.moisture.water)
    mixes = bool(config.diffusion) + bool(config.smagorinsky.coefficient)
    sent = sent_bytes([decomposition], 8 * FIELDS)
    carried = sent_bytes([Decomposition(shape, topology, halo=TRACER_HALOS)], 8 * tracers) if tracers else 0
    # State and work space; of the tracers two copies, the density before a sweep and the mass fluxes.
    arrays = FIELDS * (2 if mixes else 1) + min(mixes, 1) + (2 * tracers + 4 if tracers else 0)
    if is_split:
        arrays = SPLIT_ARRAYS + SLOPING_ARRAYS * sloping + (2 * tracers + 3 if tracers else 0)
        around = Decomposition(shape, topology, halo=(0, 1, 1))
        halo_bytes = (3 + min(mixes, 1) + (sloping and config.lid.depth > 0)) * sent + (2 + min(mixes, 1)) * carried
        halo_bytes += (sum(config.substeps) - 3) * sent_bytes([around], 8)
        note = f"large steps of {dt:.4g} s with {config.substeps[-1]} acoustic substeps; a halo of pressure in each"
    else:
        halo_bytes, note = (1 + mixes) * (sent + carried), f"dt {dt:.4g} s; the halo in x and that in y once a step"
    owned = max(math.prod(decomposition.owned(rank)) for rank in range(ranks))
    written = len(variables("uvw", config.output.fields)) + tracers
    return grid_dry_run(
        config,
        decomposition,
        (grid.dz, grid.dy, grid.dx),
        halo_bytes=halo_bytes,
        memory_per_rank=8 * local_cells(decomposition) * arrays
        + (8 + (4 if config.output.single else 8)) * written * owned,
        points=written * math.prod(shape),
        frames=frame_count(config, dt, steps),
        steps=steps,
        note=note,
    )
