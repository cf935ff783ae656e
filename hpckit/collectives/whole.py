"""Whole arrays of the ranks' parts, and back: rows of any number a rank, and the blocks of a grid."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from hpckit.collectives.axis import axis_of
from hpckit.collectives.operations import all_gather, gather, scatter
from hpckit.comm.agree import all_of_ranks
from hpckit.plan.grid.decomposition import Decomposition

__communicates__ = True  # its frames are not call sites

# Bytes that a root takes or gives at once: what it needs besides the whole array.
ROUND = 1 << 26


def rows_of_ranks(rows: np.ndarray, mesh_axis: Any) -> list[np.ndarray]:
    """Collective: the rows of each rank, of any dtype, on every rank."""
    if mesh_axis.size == 1:
        return [rows]
    axis, row = axis_of(mesh_axis), rows.dtype.itemsize * math.prod(rows.shape[1:])
    counts = row * all_of_ranks(axis.given, np.array(len(rows), np.int64))
    every = np.empty(int(counts.sum()), np.uint8)
    all_gather(_bytes(rows), mesh_axis, every, counts=counts).wait()
    return [part.view(rows.dtype).reshape(-1, *rows.shape[1:]) for part in _parts(every, counts)]


def gather_blocks(block: np.ndarray, decomposition: Decomposition, mesh_axis: Any, root: int = 0) -> np.ndarray | None:
    """Collective: the global array, components + global_shape, on `root`; None on the other ranks.

    block: the cells that this rank owns, components + owned.
    """
    if mesh_axis.size == 1:
        return np.array(block)
    rank, components = axis_of(mesh_axis).rank, block.shape[: block.ndim - decomposition.ndim]
    whole = np.empty((*components, *decomposition.global_shape), block.dtype) if rank == root else None
    rows = block.reshape(-1, *block.shape[len(components) + 1 :])
    for cut, counts in _rounds(decomposition, components, block.dtype.itemsize):
        every = gather(_bytes(rows[cut]), mesh_axis, root=root, counts=counts).wait()
        if whole is not None:
            for source, part in enumerate(_parts(every, counts)):
                place = _place(decomposition, components, source, cut)
                whole[place] = part.view(block.dtype).reshape(-1, *decomposition.owned(source)[1:])
    return whole


def scatter_blocks(
    whole: np.ndarray | None, block: np.ndarray, decomposition: Decomposition, mesh_axis: Any, root: int = 0
) -> None:
    """Collective: fill the contiguous `block` of each rank from the global array of `root`; shapes as in
    `gather_blocks`.
    """
    if mesh_axis.size == 1:
        block[...] = whole
        return
    components, given = block.shape[: block.ndim - decomposition.ndim], None
    rows = block.reshape(-1, *block.shape[len(components) + 1 :])
    for cut, counts in _rounds(decomposition, components, block.dtype.itemsize):
        if whole is not None:
            places = [_place(decomposition, components, target, cut) for target in range(len(counts))]
            given = np.concatenate([_bytes(whole[place]) for place in places])
        scatter(given, mesh_axis, _bytes(rows[cut]), root=root, counts=counts).wait()


def _rounds(
    decomposition: Decomposition, components: tuple[int, ...], itemsize: int
) -> Iterator[tuple[slice, np.ndarray]]:
    """The rows of each round, of the components and the first dim of a block, and the bytes of each rank's."""
    owned = decomposition.all_owned()
    rows, row = math.prod(components) * owned[0], itemsize * owned[1:].prod(axis=0)
    at_once = max(1, ROUND // max(1, int(row.sum())))
    for first in range(0, int(rows.max()), at_once):
        yield slice(first, first + at_once), np.clip(rows - first, 0, at_once) * row


def _place(decomposition: Decomposition, components: tuple[int, ...], rank: int, cut: slice) -> tuple[Any, ...]:
    """Where the rows of a rank's block are in the global array."""
    start, owned = decomposition.start(rank)[0], decomposition.owned(rank)[0]
    number, row = np.divmod(np.arange(math.prod(components) * owned)[cut], owned)
    leading = np.unravel_index(number, components) if components else ()
    return (*leading, start + row, *decomposition.global_slices(rank)[1:])


def _bytes(array: np.ndarray) -> np.ndarray:
    """The memory of an array, or of a contiguous copy: uint8, flat."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _parts(every: np.ndarray, counts: np.ndarray) -> list[np.ndarray]:
    """The part of each rank."""
    return np.split(every, np.cumsum(counts)[:-1])
