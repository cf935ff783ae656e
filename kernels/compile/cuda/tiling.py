"""How a CUDA kernel that carries tiles of x along y cuts a grid: tiles across, chunks of rows along."""

from __future__ import annotations

import functools
from typing import NamedTuple

from hpckit.kernels.compile.cuda.jit import blocks
from hpckit.kernels.parts import INNER, WHOLE

Rectangle = tuple[int, int, int, int]  # first tile, tiles, first chunk, chunks


class Tiling(NamedTuple):
    """Cells of a tile and rows of a chunk; how many there are of each."""

    cells: int
    rows: int
    tiles: int
    chunks: int


@functools.cache
def tiling(shape: tuple[int, int], most_cells: int, fewest_rows: int, slots: int) -> Tiling:
    """The cut of a grid of shape (rows, cells): tiles of at most `most_cells`, chunks of at least `fewest_rows`.

    slots: blocks of threads that run at once on the device; more blocks would need a second round.
    """
    height, width = shape
    across = blocks(width, most_cells)
    cells = blocks(width, across)
    rows = min(max(blocks(height, max(1, slots // across)), fewest_rows), height)
    return Tiling(cells, rows, blocks(width, cells), blocks(height, rows))


@functools.cache
def rectangles(shape: tuple[int, int], cut: Tiling, halo: int, part: int) -> tuple[Rectangle, ...]:
    """Rectangles of tiles by chunks of a part of the grid (`kernels.parts`); INNER has those that need no halo.

    Where a last tile or chunk is thinner than the halo, or there are fewer than three, all need it.
    """
    thin = [n % size for n, size in zip(shape, (cut.rows, cut.cells), strict=True)]
    if part == WHOLE or min(cut.tiles, cut.chunks) < 3 or any(0 < rest < halo for rest in thin):
        return () if part == INNER else ((0, cut.tiles, 0, cut.chunks),)
    if part == INNER:
        return ((1, cut.tiles - 2, 1, cut.chunks - 2),)
    rim = ((0, cut.tiles, 0, 1), (0, cut.tiles, cut.chunks - 1, 1))
    return (*rim, (0, 1, 1, cut.chunks - 2), (cut.tiles - 1, 1, 1, cut.chunks - 2))
