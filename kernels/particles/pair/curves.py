"""Tabulated functions, NumPy: cubic splines through given points, and the rows that the pair loops look up.

The rows hold f = -dE/dr / r and E over r^2, at equal steps from an inner distance to the cutoff, as `pair_style table`
of LAMMPS has them (LAMMPS manual; splines as in Press et al., Numerical Recipes, section 3.3): what is given is
interpolated by a spline over r, at `points` places; between these by straight lines, or by a spline over r^2.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
SECANT = 0.1  # of a step, over which slopes at the ends are taken where none are given


def spline(x: Floats, y: Floats, first: float, last: float) -> Floats:
    """Second derivatives, at each x, of the cubic spline through (x, y) with the slopes `first` and `last` at its ends.

    x: growing, at least 2.
    """
    gaps, rises = np.diff(x), np.diff(y)
    middle = np.concatenate([[gaps[0] / 3], (gaps[:-1] + gaps[1:]) / 3, [gaps[-1] / 3]])
    slopes = rises / gaps
    right = np.concatenate([[slopes[0] - first], np.diff(slopes), [last - slopes[-1]]])
    for i in range(1, len(x)):  # Thomas: the matrix is symmetric, with gaps / 6 beside the diagonal
        factor = gaps[i - 1] / 6 / middle[i - 1]
        middle[i] -= factor * gaps[i - 1] / 6
        right[i] -= factor * right[i - 1]
    found = np.empty(len(x))
    found[-1] = right[-1] / middle[-1]
    for i in range(len(x) - 2, -1, -1):
        found[i] = (right[i] - gaps[i] / 6 * found[i + 1]) / middle[i]
    return found


def interpolate(x: Floats, y: Floats, second: Floats, at: npt.ArrayLike) -> Floats:
    """The spline of `spline` at some places, those beyond its ends by its outer pieces."""
    at = np.asarray(at, np.float64)
    k = np.clip(np.searchsorted(x, at, side="right") - 1, 0, len(x) - 2)
    gap = x[k + 1] - x[k]
    a, b = (x[k + 1] - at) / gap, (at - x[k]) / gap
    bend = (a**3 - a) * second[k] + (b**3 - b) * second[k + 1]
    return np.asarray(a * y[k] + b * y[k + 1] + bend * gap**2 / 6)


def rows(
    r: Floats,
    energy: Floats,
    force: Floats,
    inner: float,
    cutoff: float,
    points: int,
    cubic: bool,
    slopes: tuple[float, float] | None = None,
) -> Floats:
    """What pair loops look up: [2 points, 4], the polynomials of f = F / r (even rows) and E (odd) in each step of r^2.

    energy, force: E and F = -dE/dr at the distances r [n]; slopes: dF/dr at both ends; cubic: splines between the
    `points` places inner^2 … cutoff^2, else straight lines. The last two rows are constant: they serve the cutoff.
    """
    ends = slopes or ((force[1] - force[0]) / (r[1] - r[0]), (force[-1] - force[-2]) / (r[-1] - r[-2]))
    of_energy, of_force = spline(r, energy, -force[0], -force[-1]), spline(r, force, *ends)

    def force_at(r2: npt.ArrayLike) -> Floats:
        root = np.sqrt(np.asarray(r2, np.float64))
        return interpolate(r, force, of_force, root) / root

    step = (cutoff**2 - inner**2) / (points - 1)
    places: Floats = inner**2 + step * np.arange(points, dtype=np.float64)
    values = interpolate(r, energy, of_energy, np.sqrt(places))
    ratios = force_at(places)
    bends: tuple[Floats, Floats] = (np.zeros(points), np.zeros(points))
    if cubic:
        near = SECANT * step
        low = float(force_at(inner**2 + near) - ratios[0]) / near
        high = float(ratios[-1] - force_at(cutoff**2 - near)) / near
        if slopes is not None:
            low = (slopes[0] - ratios[0]) / (2 * inner**2)
            if cutoff == r[-1]:
                high = (slopes[1] - ratios[-1]) / (2 * cutoff**2)
        bends = spline(places, ratios, low, high), spline(places, values, -ratios[0] / 2, -ratios[-1] / 2)
    found = np.zeros((points, 2, 4))
    for column, (y, second) in enumerate(zip((ratios, values), bends, strict=True)):
        low_bend, high_bend = second[:-1] * step**2 / 6, second[1:] * step**2 / 6
        found[:, column, 0] = y
        found[:-1, column, 1] = np.diff(y) - 2 * low_bend - high_bend
        found[:-1, column, 2] = 3 * low_bend
        found[:-1, column, 3] = high_bend - low_bend
    return found.reshape(-1, 4)


def energy_and_force(r2: Floats, p: npt.ArrayLike, data: Floats) -> tuple[Floats, Floats]:
    """E and -dE/dr / r at squared distances, from rows: the oracle. p: parameters as of `tabulated`, data: all rows.

    nan below the inner distance.
    """
    inner2, scale, last, first = np.asarray(p)[2:6]
    t = np.clip((r2 - inner2) * scale, 0, last)
    k = np.floor(t)
    row = (first + 2 * k).astype(np.int64)
    found = [sum(data[row + which, order] * (t - k) ** order for order in range(4)) for which in (0, 1)]
    force, energy = (np.where(r2 < inner2, np.nan, each) for each in found)
    return energy, force
