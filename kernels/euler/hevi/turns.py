"""In which order rows of columns are advanced by several acoustic substeps, so that memory sees them once.

A row waits for the pressure of its two neighbors in the substep before: as soon as the next row has it, this one may
take the next substep. Substeps then follow each other over the rows, a row apart, and what they share is still in the
cache. At either end of a rank the pressure comes from elsewhere: the rims. Those of the first substep come first, and
their pressure is on the way during the core, which is a row narrower at both ends with each substep; the rims of the
other substeps follow, each after an exchange. Where the neighbors share memory the first rims are rows of the core:
there is nothing to be gained by an early start.

A turn is a substep, a row, and whether the momenta along y at its south and north faces are advanced with it: a face
between two rows is advanced with the one whose turn comes first.
"""

from __future__ import annotations

import functools

import numpy as np

MOST = 4  # substeps at once: more of them share no more
WITHIN = 8 << 20  # bytes of rows that wait in the cache
SHARED = 12  # numbers of a cell that a substep reads


def deepest(rows: int, columns: int, levels: int) -> int:
    """How many substeps may be made at once on so many rows of columns."""
    fit = WITHIN // (8 * SHARED * columns * levels) - 1
    return max(1, min(MOST, (rows + 1) // 2, fit))


@functools.lru_cache(maxsize=64)
def whole(rows: int) -> np.ndarray:
    """A substep of all rows, int64[turns, 4]: substep, row, south, north."""
    return np.array([(0, row, row == 0, 1) for row in range(rows)], np.int64)


@functools.lru_cache(maxsize=64)
def rims(rows: int, substep: int) -> np.ndarray:
    """What waits for the pressure beyond: of the first substep before `core`, of each other one after it."""
    width = max(substep, 1)
    south = [(substep, row, row == 0, substep == 0 or row < width - 1) for row in range(width)]
    north = [(substep, row, substep == 0, 1) for row in range(rows - width, rows)]
    return np.array(south + north, np.int64)


@functools.lru_cache(maxsize=64)
def core(rows: int, substeps: int, after_rims: bool = True) -> np.ndarray:
    """What does not wait for it, of so many substeps. after_rims: whether the rims of the first came before."""
    turns = []
    for turn in range(rows + substeps - 1):
        for substep in range(substeps):
            row, width = turn - substep, substep or int(after_rims)
            if width <= row < rows - width:
                met = substep == 0 and after_rims  # faces between rims and core came with the rims
                turns.append((substep, row, row == width and not met, not (met and row == rows - 2)))
    return np.array(turns, np.int64)
