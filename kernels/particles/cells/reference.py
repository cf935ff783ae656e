"""Cells and neighbor lists, NumPy: definition and test oracle of the compiled forms.

Particles are sorted into columns along z over a grid in x and y, by z within a column, and cut into clusters of eight
slots; empty slots, at distinct places far away, fill up the last cluster of a column. A search first compares whole
clusters by their bounding boxes. Positions are records [slots, 4].
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hpckit.kernels.particles.cells.constants import CLUSTER, FAR, FAR_STEP, RECORD


class Lists(NamedTuple):
    """The neighbors of a rank's own slots, as the force kernels of the same form read them.

    On the host `entries` are record offsets (RECORD x slot); slot s has entries[bounds[s] : bounds[s + 1]], padded to
    whole vectors with an empty slot. On a GPU they are slots, int32 [capacity, stride]; slot s has
    entries[: bounds[s], s]. `inner`: the clusters (on a GPU, slots) whose neighbors are own particles and their images;
    `outer`: the others; `inner_parts`: `inner` in pieces; `every`: all clusters, on the host. near_ends: on the host,
    [parts, slots], where the parts of each list end that come first and have all neighbors within shorter reaches, and
    maybe others.
    """

    entries: Any
    bounds: Any
    inner: Any
    outer: Any
    inner_parts: list[Any]
    near_ends: Any = None
    every: Any = None


def assign_columns(
    positions: np.ndarray,
    count: int,
    lower: np.ndarray,
    scale: np.ndarray,
    shape: np.ndarray,
    z_low: float,
    z_high: float,
    zones: int,
    columns: np.ndarray,
    sizes: np.ndarray,
    column_start: np.ndarray,
) -> int:
    """The column of each of the first `count` slots, -1 if empty; the number of particles in each column; the cluster
    at which each begins, and their number, which is returned, too.

    lower, scale, shape: corner in x and y, columns per length, and columns along x and y; particles beyond
    belong to the outermost. With 3 zones three columns are stacked: below z_low, up to z_high, above.
    """
    x, y, z = positions[:count, :3].T
    ix = np.clip(((x - lower[0]) * scale[0]).astype(np.int64), 0, shape[0] - 1)
    iy = np.clip(((y - lower[1]) * scale[1]).astype(np.int64), 0, shape[1] - 1)
    zone = np.where(z < z_low, 0, np.where(z >= z_high, 2, 1)) if zones == 3 else 0
    columns[:count] = np.where(x > 0.5 * FAR, -1, (zone * shape[1] + iy) * shape[0] + ix)
    sizes[:] = np.bincount(columns[:count][columns[:count] >= 0], minlength=len(sizes))
    column_start[0], column_start[1:] = 0, np.cumsum(-(-sizes // CLUSTER))
    return int(column_start[-1])


def sort_columns(
    positions: np.ndarray,
    count: int,
    columns: np.ndarray,
    sizes: np.ndarray,
    column_start: np.ndarray,
    order: np.ndarray,
) -> None:
    """order[slot]: the particle that goes to a slot, -1 for none; column c starts at cluster column_start[c]."""
    order[: column_start[-1] * CLUSTER] = -1
    for c in range(len(sizes)):
        members = np.flatnonzero(columns[:count] == c)
        members = members[np.argsort(positions[members, 2], kind="stable")]
        order[column_start[c] * CLUSTER : column_start[c] * CLUSTER + len(members)] = members


def place(source: np.ndarray, order: np.ndarray, slots: int, first: int, target: np.ndarray) -> None:
    """target[first + s] = source[order[s]]; empty slots get distinct places far away."""
    order = order[:slots]
    target[first : first + slots] = np.where(order[:, None] >= 0, source[order], FAR)
    target[first : first + slots, 0] += np.where(order < 0, FAR_STEP * (first + np.arange(slots)), 0.0)


def ghost_slots(order: np.ndarray, slots: int, first: int, where: np.ndarray) -> None:
    """where[i]: the slot, from `first` on, into which `order` puts particle i."""
    filled = np.flatnonzero(order[:slots] >= 0)
    where[order[filled]] = first + filled


def pack_places(
    positions: np.ndarray, clusters: int, center: np.ndarray, places: np.ndarray, boxes: np.ndarray
) -> None:
    """x, y, z of the slots of clusters relative to `center`, float32[3, at least the slots], far away behind them; and
    the corners of each cluster's bounding box.
    """
    slots = clusters * CLUSTER
    places[:, :slots], places[:, slots:] = (positions[:slots, :3] - center).T, FAR
    for c in range(clusters):
        own = positions[c * CLUSTER : (c + 1) * CLUSTER, :3]
        filled = own[own[:, 0] < 0.5 * FAR]
        boxes[c, :3], boxes[c, 3:] = filled.min(axis=0), filled.max(axis=0)


def corners(boxes: np.ndarray, lowest: np.ndarray, highest: np.ndarray) -> None:
    """Extend the box `lowest` to `highest` to enclose all boxes."""
    lowest[:], highest[:] = np.minimum(lowest, boxes[:, :3].min(axis=0)), np.maximum(highest, boxes[:, 3:].max(axis=0))


def neighbors(positions: np.ndarray, own: int, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """All pairs (slot below `own`, any other slot) closer than `reach`, by brute force.

    `build_list` writes them as lists: entries[start[s] : start[s + 1]] are RECORD x slot of the neighbors of slot s, in
    no particular order, padded to whole vectors; they may include a few slightly farther than `reach`.
    """
    filled = np.flatnonzero(positions[:, 0] < 0.5 * FAR)
    first = filled[filled < own]
    gaps = positions[first, None, :3] - positions[None, filled, :3]
    hits = ((gaps**2).sum(axis=2) < reach * reach) & (first[:, None] != filled[None, :])
    i, j = np.nonzero(hits)
    return first[i], filled[j]


def split_clusters(
    boxes: np.ndarray,
    clusters: int,
    lower: np.ndarray,
    upper: np.ndarray,
    reach: float,
    inner: np.ndarray,
    outer: np.ndarray,
) -> int:
    """Clusters whose box, extended by `reach`, lies within lower <= x < upper go to `inner`, the others to `outer`."""
    low, high = boxes[:clusters, :3] - reach, boxes[:clusters, 3:] + reach
    inside = ((low >= lower) & (high < upper)).all(axis=1)
    count = int(inside.sum())
    inner[:count], outer[: clusters - count] = np.flatnonzero(inside), np.flatnonzero(~inside)
    return count


def list_entries(start: np.ndarray, entries: np.ndarray, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of slots in a list, padding included."""
    counts = np.diff(start[: slots + 1])
    return np.repeat(np.arange(slots), counts), entries[: start[slots]] // RECORD
