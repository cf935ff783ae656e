"""A sum of Gaussian hills on a grid of one to three dims, with its slopes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from hpckit.errors import InputError

FEWEST = 4  # points along a dim


class HillGrid:
    """The sum of hills at points of a grid, and between them by Hermite's polynomials, whose slope is continuous.

    lower, upper: ends along each dim; points along each; widths: standard deviations of hills. periodic: dims whose
    upper end is the lower one again. Beyond the ends of other dims the sum is that at the end, and its slope 0.
    Raises `InputError` for a grid that hills do not fit on.
    """

    def __init__(
        self,
        lower: Sequence[float],
        upper: Sequence[float],
        points: Sequence[int],
        widths: Sequence[float],
        periodic: Sequence[bool],
    ) -> None:
        self.lower, self.upper, self.widths = (np.array(each, np.float64) for each in (lower, upper, widths))
        self.points, self.periodic = tuple(points), np.array(periodic, bool)
        if not 1 <= len(self.points) <= 3 or not (self.upper > self.lower).all() or min(self.points) < FEWEST:
            raise InputError(
                f"hills are on a grid of 1 to 3 dims from lower to upper ends, of {FEWEST} points or more, not"
                f" {list(lower)} to {list(upper)}, {list(points)}"
            )
        parts = np.array(self.points) - np.where(self.periodic, 0, 1)
        self.step = (self.upper - self.lower) / parts
        if not (self.widths > 0).all() or (self.widths < self.step).any():
            raise InputError(
                f"hills of widths {list(widths)} are too narrow for a grid of steps {self.step.tolist()}",
                do="give more points, at least one for each width",
            )
        self.axes = [low + step * np.arange(n) for low, step, n in zip(self.lower, self.step, self.points, strict=True)]
        dims = len(self.points)
        self._orders = list(itertools.product((0, 1), repeat=dims))  # of derivatives at the points
        self.sums = np.zeros((2**dims, *self.points))

    @property
    def values(self) -> np.ndarray:
        """The sum at the points."""
        return np.asarray(self.sums[0])

    def add(self, center: np.ndarray, height: float) -> None:
        """Add a hill; one beyond an end that is not periodic counts with what of it is on the grid."""
        bells = []
        for d, axis in enumerate(self.axes):
            x = axis - center[d]
            if self.periodic[d]:
                width = self.upper[d] - self.lower[d]
                x = x - width * np.rint(x / width)
            bell = np.exp(-0.5 * (x / self.widths[d]) ** 2)
            bells.append((bell, -x / self.widths[d] ** 2 * bell))
        for number, orders in enumerate(self._orders):
            product = np.asarray(height)
            for d, order in enumerate(orders):
                product = np.multiply.outer(product, bells[d][order])
            self.sums[number] += product

    def at(self, place: np.ndarray) -> tuple[float, np.ndarray]:
        """The sum at a place, and its slope along each dim."""
        cells, weights, slopes = [], [], []
        for d, n in enumerate(self.points):
            u = (place[d] - self.lower[d]) / self.step[d]
            inside = self.periodic[d] or 0.0 <= u <= n - 1
            if self.periodic[d]:
                u -= n * np.floor(u / n)
            u = min(max(float(u), 0.0), float(n if self.periodic[d] else n - 1))
            cell = min(int(u), n - 1 if self.periodic[d] else n - 2)
            t, h = u - cell, self.step[d]
            cells.append((cell, (cell + 1) % n))
            # By corner and order: of the value, of the slope.
            weights.append(
                [[(1 + 2 * t) * (1 - t) ** 2, h * t * (1 - t) ** 2], [t * t * (3 - 2 * t), h * t * t * (t - 1)]]
            )
            by = [[6 * t * (t - 1) / h, (1 - t) * (1 - 3 * t)], [6 * t * (1 - t) / h, t * (3 * t - 2)]]
            slopes.append(by if inside else [[0.0, 0.0], [0.0, 0.0]])
        value, slope = 0.0, np.zeros(len(self.points))
        for corner in self._orders:
            where = tuple(cells[d][side] for d, side in enumerate(corner))
            for number, orders in enumerate(self._orders):
                found = float(self.sums[(number, *where)])
                each = [weights[d][corner[d]][orders[d]] for d in range(len(corner))]
                value += found * float(np.prod(each))
                for d in range(len(corner)):
                    others = [each[e] for e in range(len(corner)) if e != d]
                    slope[d] += found * slopes[d][corner[d]][orders[d]] * float(np.prod(others))
        return value, slope
