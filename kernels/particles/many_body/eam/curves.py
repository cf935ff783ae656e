"""Tabulated functions of the embedded-atom method as cubic polynomials, in the rows that the kernels look up.

Values stand at equal steps; between them LAMMPS, and these kernels, take the cubic polynomial with the slopes of a
fourth-order difference at both ends (Hermite), so that the two agree to rounding (LAMMPS manual, pair_style eam).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hpckit.kernels import aligned

Floats = npt.NDArray[np.float64]


class EamTables(NamedTuple):
    """What the kernels read; NumPy arrays.

    pairs: flat rows of four, for each pair of types (a, b) and each of `points` steps of r: the coefficients of r times
    the pair energy and of the density at a from b; of several types also of the density at b from a, and a row of
    zeros. embedding: [types, steps of the density, 4]. scale: steps per distance; density_scale: steps per density;
    cutoff2: squared cutoff.
    """

    pairs: Floats
    embedding: Floats
    points: int
    scale: float
    density_scale: float
    cutoff2: float


def rows_of_pair(types: int) -> int:
    """Rows of `EamTables.pairs` per pair of types and step."""
    return 2 if types == 1 else 4


def cubics(values: Floats) -> Floats:
    """The coefficients c of c0 + x (c1 + x (c2 + x c3)) on each step, x from 0 to 1: [..., n, 4] for values [..., n].

    The last row is the value and slope at the end. n: 5 or more.
    """
    f = np.asarray(values, np.float64)
    slope = np.empty_like(f)
    slope[..., 0], slope[..., -1] = f[..., 1] - f[..., 0], f[..., -1] - f[..., -2]
    slope[..., 1], slope[..., -2] = 0.5 * (f[..., 2] - f[..., 0]), 0.5 * (f[..., -1] - f[..., -3])
    slope[..., 2:-2] = ((f[..., :-4] - f[..., 4:]) + 8.0 * (f[..., 3:-1] - f[..., 1:-3])) / 12.0
    found = np.zeros((*f.shape, 4))
    found[..., 0], found[..., 1] = f, slope
    rise = f[..., 1:] - f[..., :-1]
    found[..., :-1, 2] = 3.0 * rise - 2.0 * slope[..., :-1] - slope[..., 1:]
    found[..., :-1, 3] = slope[..., :-1] + slope[..., 1:] - 2.0 * rise
    return found


def tables(
    embedding: Floats, density: Floats, pair: Floats, density_step: float, step: float, cutoff: float
) -> EamTables:
    """Tables of values: embedding [types, m] at density = 0, density_step, …; density [types, types, n], that at a from
    b, and pair [types, types, n], r times the energy, at r = 0, step, ….
    """
    types, points = len(embedding), density.shape[-1]
    width = rows_of_pair(types)
    flat = aligned.zeros((types * types * points * width * 4,), np.float64)
    rows = flat.reshape(types, types, points, width, 4)
    rows[:, :, :, 0], rows[:, :, :, 1] = cubics(pair), cubics(density)
    if width == 4:
        rows[:, :, :, 2] = cubics(density.transpose(1, 0, 2))
    return EamTables(flat, cubics(embedding), points, 1.0 / step, 1.0 / density_step, cutoff * cutoff)


def in_single(given: EamTables) -> EamTables:
    """The same with the pair table in float32."""
    flat = aligned.zeros((given.pairs.size,), np.float32)
    flat[:] = given.pairs
    return given._replace(pairs=flat)
