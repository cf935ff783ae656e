"""Maps of heights over a grid from NumPy files: topography and elevations that a run starts from."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from tokenize import TokenError

import numpy as np

from hpckit.errors import InputError


def read_heights(path: Path, shape: tuple[int, int], setting: str) -> np.ndarray:
    """The heights (m) in a file of `numpy.save`, [ny, nx] as `shape`, not yet in memory.

    Raises `InputError`, which names `setting`, where the file does not hold finite numbers of this shape.
    """
    try:
        heights = np.lib.format.open_memmap(path, mode="r")  # of np.load, the form that takes arrays alone
    except (OSError, ValueError, SyntaxError, TokenError, MemoryError, OverflowError) as error:  # its head is parsed
        raise InputError(
            f"{setting} {path} is no NumPy file of numbers: {error}",
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
    """The least and the greatest height (m) of a file that `read_heights` takes: it is gone through once, as long as
    it stays as it is.
    """
    return _extremes(path, _look(path))


def _look(path: Path) -> tuple[int, int, int]:
    """By which a file that was changed is known."""
    status = os.stat(path)
    return status.st_ino, status.st_size, status.st_mtime_ns


@lru_cache(maxsize=8)
def _extremes(path: Path, look: tuple[int, int, int]) -> tuple[float, float]:
    heights = np.lib.format.open_memmap(path, mode="r")
    return float(heights.min()), float(heights.max())  # both are nan where a height is
