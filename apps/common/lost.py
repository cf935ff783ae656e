"""The first cell of a grid where a solution is lost, for the error that ends the run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from hpckit.comm.agree import least_of_ranks
from hpckit.comm.mesh import Mesh
from hpckit.plan.grid.decomposition import Decomposition


class Lost(NamedTuple):
    """A lost cell: the number of the mask that names it, its rank, its local index, and its place in words."""

    mask: int
    rank: int
    cell: tuple[int, ...]
    where: str


def first_lost(mesh: Mesh, decomposition: Decomposition, masks: Iterable[np.ndarray], step: int) -> Lost:
    """Collective: the first lost cell of the rank that lost one first; of several ranks the lowest.

    masks: bool, of the owned cells of this rank, for each of the ways in which a cell is lost; the first mask with a
    cell counts. step: the one after which this rank has lost a cell. Where no mask has a cell, it is the first cell.
    """
    own = [0, step, *(0 for _ in range(decomposition.ndim))]
    found = False
    for number, mask in enumerate(masks):
        if found := bool(mask.any()):
            own = [number, step, *map(int, np.unravel_index(int(mask.argmax()), mask.shape))]
            break
    rank, (number, step, *cell) = least_of_ranks(mesh.comm, step if found else np.inf, own)
    return Lost(number, rank, tuple(cell), place_of(decomposition, rank, step, cell))


def place_of(decomposition: Decomposition, rank: int, step: int, cell: Sequence[int]) -> str:
    """A cell of a rank, given by its local index, in words."""
    index = [start + own for start, own in zip(decomposition.start(rank), cell, strict=True)]
    words = [f"{name} {i}" for name, i in zip(decomposition.topology.names, index, strict=True)]
    return f"rank {rank}, step {step}, cell ({', '.join(words)})"
