"""What the kernels of the split dynamics pass around; state, halo and physics are those of the box."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

U, V, W, THETA, PRESSURE, STIFFNESS, DRY, WEIGHT = range(8)  # rows of `work`
WORKS = 8
PER_CELL, PER_FACE, BELOW, ABOVE, WATER = range(5)  # rows of `levels`
LEVELS = 5
FACES_BACK = 3  # cells that an upwind face reaches to either side
HALO = FACES_BACK + 1  # cells in x and y: the momentum at a face is carried from a cell further, which means join
# A deviation smaller than that is 0: waves far from their source would fade into numbers that processors are slow with.
SMALLEST = 1e-25
FIXED = HALO + 4  # rows, from the first on, that keep their place in arrays of fewer rows: of `turns.rims`
ELSEWHERE, WRAPPED, MIRRORED = range(3)  # where the pressure beyond the ends of rows comes from
NO_WALLS = False, False, False, False  # in the west, east, south and north
NO_WATER = np.zeros((0, 0, 0))  # of dry air


class LargeStage(NamedTuple):
    """The numbers of a large stage."""

    dx: float  # m
    dy: float  # m
    coriolis: float  # 1/s
    wet: bool = True  # False: the rows DRY and WEIGHT of `work` are those of dry air, 1 and rho'


class Substep(NamedTuple):
    """The numbers of an acoustic substep."""

    dx: float  # m
    dy: float  # m
    dt: float  # s
    implicit: float  # share of the new level in the vertical, 1/2 to 1
    damping: float  # of the divergence: how far the pressure is extrapolated, 0 to 0.25
    share: float  # of this substep in the mean mass fluxes; 0: they are left alone
    wet: bool = True  # False: the row DRY of `work` is 1


def upwind_weights(order: int, weno: bool = False) -> np.ndarray:
    """Weights of the three sums and the three differences of cells at a face, float64[3, 7].

    Row 0: second order, centered, for the face next to ground or lid; row 1: third order upwind, for the next one;
    row 2: `order`, upwind 3 or 5 or centered 6, elsewhere (Wicker and Skamarock 2002, eqs. 4 and 5). The last number of
    a row is 1 where the weights follow the flow (`weno`, instead of fifth order).
    """
    second = [1 / 2, 0, 0, 0, 0, 0, 0]
    third = [7 / 12, -1 / 12, 0, 3 / 12, -1 / 12, 0, 0]
    fifth = [37 / 60, -8 / 60, 1 / 60, 10 / 60, -5 / 60, 1 / 60, float(weno)]
    return np.array([second, third, {3: third, 5: fifth, 6: [*fifth[:3], 0, 0, 0, 0]}[order]])
