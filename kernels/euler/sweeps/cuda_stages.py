"""What the sweeps along and across x on a GPU share: the pieces of a part of the grid, the numbers of the stages."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.euler.constants import HALO, Sweep
from hpckit.kernels.parts import INNER, WHOLE


def parts(count: int, length: int, part: int) -> tuple[int, int, int]:
    """The pieces of `length` of a direction of `count` cells that belong to a part: the first, the stride, how many.

    The first and the last piece need the halo, and the last but one where the last is thinner than the halo.
    """
    pieces = -(-count // length)
    if part == WHOLE or pieces < 3 or length < HALO or count - (pieces - 1) * length < HALO:
        return 0, 1, 0 if part == INNER else pieces
    return (1, 1, pieces - 2) if part == INNER else (0, pieces - 1, 2)


def stage_numbers(dtype: np.dtype, sweep: Sweep, gravity: float) -> tuple:
    """For each stage its time step, that over the spacing, the hyperviscosity; then gravity; in the state's type."""
    spacing, dt, beta, _ = sweep
    numbers: list[float] = []
    for stage in range(3):
        step = dt / (3 - stage)
        numbers += [step, step / spacing, beta * spacing / (16.0 * step)]
    return tuple(dtype.type(number) for number in (*numbers, gravity))
