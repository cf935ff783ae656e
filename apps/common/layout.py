"""What a run on a grid costs, found without MPI and kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.halo import halo_plan
from hpckit.run.context import DryRun


def sent_bytes(decompositions: Sequence[Decomposition], itemsize: int = 8) -> int:
    """The most bytes that a rank sends in one exchange of a field on each decomposition."""
    plans = [halo_plan(one) for one in decompositions]
    ranks = decompositions[0].topology.size
    return max(sum(plan.nbytes(rank, itemsize) for plan in plans) for rank in range(ranks))


def local_cells(decomposition: Decomposition) -> int:
    """Cells of the largest block, its halo included."""
    return max(math.prod(decomposition.local_shape(rank)) for rank in range(decomposition.topology.size))


def grid_dry_run(
    config: Any,
    decomposition: Decomposition,
    spacing: Sequence[float],
    *,
    steps: int,
    frames: int,
    points: int,
    note: str,
    halo_bytes: int,
    memory_per_rank: int,
    sides: str = "",
) -> DryRun:
    """The dry run of an app on a grid. spacing: widths of a cell, m; points: values in a frame; sides: text at
    the end of the first line.
    """
    topology, by = decomposition.topology, " x "
    blocks = sorted({decomposition.owned(rank) for rank in range(topology.size)})
    return DryRun(
        ranks=topology.size,
        decomposition=[
            f"{by.join(map(str, decomposition.global_shape))} cells ({', '.join(topology.names)}) of "
            f"{by.join(f'{width:.4g} m' for width in spacing)}{sides}",
            f"{by.join(map(str, topology.sizes))} ranks, blocks of {' or '.join(by.join(map(str, b)) for b in blocks)}",
        ],
        halo_bytes=halo_bytes,
        memory_per_rank=memory_per_rank,
        output_bytes=frames * (4 if config.output.single else 8) * points,
        frames=frames,
        steps=steps,
        notes=[f"{note}; output bytes are before compression"],
    )
