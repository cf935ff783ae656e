"""Maps of heights over a grid from NumPy files: topography and initial elevations."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from tokenize import TokenError

import numpy as np

from hpckit.errors import InputError


def read_heights(path: Path, shape: tuple[int, int], setting: str) -> np.ndarray:
    """The heights (m) in a file of `numpy.save`, [ny, nx] as `shape`, memory-mapped.

    Raises `InputError`, which names `setting`, if the file does not hold finite numbers of this shape.
    """
    try:
        heights = np.lib.format.open_memmap(path, mode="r")  # the part of np.load that reads arrays alone
    except (OSError, ValueError, SyntaxError, TokenError, MemoryError, OverflowError) as error:  # its head is parsed
        raise InputError(
            f"{setting} {path} is not a NumPy file of numbers: {error}",
            do="write it with numpy.save, as an array of numbers [ny, nx]",
        ) from error
    if heights.shape != shape or heights.dtype.kind not in "fiu":
        raise InputError(
            f"{setting} {path} holds {heights.dtype}{list(heights.shape)}, the grid has {list(shape)} cells (y, x)",
            do="make the file and grid.nx, grid.ny agree",
        )
    if not np.isfinite(_extremes(path, _look(path))).all():
        raise InputError(f"{setting} {path} holds values that are not finite", do="fill the gaps")
    return heights


def extremes(path: Path) -> tuple[float, float]:
    """The minimum and maximum height (m) of a file for `read_heights`, read again only if the file changes."""
    return _extremes(path, _look(path))


def _look(path: Path) -> tuple[int, int, int]:
    """Identity of a file's content: inode, size and time."""
    status = os.stat(path)
    return status.st_ino, status.st_size, status.st_mtime_ns


@lru_cache(maxsize=8)
def _extremes(path: Path, look: tuple[int, int, int]) -> tuple[float, float]:
    heights = np.lib.format.open_memmap(path, mode="r")
    return float(heights.min()), float(heights.max())  # both are nan where a height is
