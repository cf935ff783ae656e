"""Lists and forces of charged pairs by clusters, for NumPy arrays; a GPU takes the loop of `charged`."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.particles.cells.columns import ROOM, CellColumns, parts_of, searched
from hpckit.kernels.particles.cells.constants import CLUSTER
from hpckit.kernels.particles.charged.clusters.mixing import rules_of
from hpckit.kernels.particles.charged.clusters.reference import GROUP, ClusterPairs
from hpckit.kernels.particles.charged.clusters.simd import (
    finish,
    force_kernel,
    mask_out,
    pair_clusters,
    to_tiles,
)

__all__ = [
    "GROUP",
    "ClusterPairs",
    "finish",
    "force_kernel",
    "list_pairs",
    "mask_out",
    "room_for_hits",
    "rules_of",
    "to_tiles",
]


def list_pairs(
    positions: np.ndarray,
    own: int,
    ghosts: int,
    grid: CellColumns,
    starts: tuple[np.ndarray, np.ndarray],
    taken: np.ndarray,
    inside: tuple[np.ndarray, np.ndarray],
    isa: str,
    held: ClusterPairs | None,
) -> ClusterPairs:
    """The clusters near each group; see `cells.columns.list_neighbors` for what is given. taken: bool [slots], of
    ghosts: those whose pairs count here.
    """
    clusters, search = own // CLUSTER, searched(positions, own + ghosts, grid)
    groups = own // GROUP
    others, masks, bounds = (
        (held.others, held.masks, held.bounds)
        if held is not None
        else (np.empty(0, np.int32), np.empty(0, np.uint32), np.zeros(1, np.int64))
    )
    if len(bounds) < groups + 1:
        bounds = np.zeros(int(ROOM * groups) + 1, np.int64)
    counting = np.packbits(taken.reshape(-1, CLUSTER), axis=1, bitorder="little").ravel()
    found = np.empty(len(search.boxes) + 1, np.int32)
    build = pair_clusters(isa)
    while True:
        given = search.places, search.boxes, search.reach, *starts, search.where, counting
        count = build(clusters, *given, others, masks, bounds, found)
        if count >= 0:
            break
        room = int(ROOM * -count) + 1000
        others, masks = np.empty(room, np.int32), np.empty(room, np.uint32)
    return ClusterPairs(others, masks, bounds, *parts_of(search.boxes, clusters, inside, grid.reach))


def room_for_hits(pairs: ClusterPairs, clusters: int) -> np.ndarray:
    """What the force kernels write their lists of hits to, for lists of so many own clusters."""
    longest = np.diff(pairs.bounds[: 2 * clusters + 1]).max(initial=0)
    # A cluster is two vectors at most; a list has its length in front and room for one that is no hit behind.
    return np.zeros(GROUP * (2 * int(longest) + 2), np.int64)
