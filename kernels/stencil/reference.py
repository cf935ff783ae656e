"""Stencils, NumPy: definition and test oracle of the compiled forms, bit by bit.

In all forms a cell's new value depends on its operands alone, not on the bounds of a region: a grid computed in pieces
equals the grid computed whole. Terms are added from the last dim to the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hpckit.kernels.stencil.region import Box, grown


def factors(dt: float, spacing: Sequence[float], dtype: np.dtype, faces: bool = False) -> tuple[Any, ...]:
    """The factor of each dim, dt / h^2, halved if a face is the sum of two cells; rounded once to `dtype`."""
    return tuple(dtype.type(dt / (h * h * (2 if faces else 1))) for h in spacing)


def prk_weights(radius: int) -> tuple[float, ...]:
    """Weights of the divergence star of the Parallel Research Kernels: 1 / (2 k radius) for k = 1 .. radius."""
    if radius < 1:
        raise ValueError(f"a star needs a radius of at least 1, not {radius}")
    return tuple(1.0 / (2 * k * radius) for k in range(1, radius + 1))


def largest_step(coefficient: float, spacing: float | Sequence[float]) -> float:
    """The stability limit of `diffuse` in s: 1 / (2 coefficient sum_d 1/h_d^2).

    coefficient: the largest diffusivity, m2/s; spacing: m. At the limit the shortest wave keeps its amplitude and
    changes sign every step.
    """
    return 1.0 / (2.0 * coefficient * sum(1.0 / (h * h) for h in np.atleast_1d(spacing)))


def _at(array: np.ndarray, box: Box, dim: int = 0, shift: int = 0) -> np.ndarray:
    """The cells of the box, shifted by `shift` along `dim`."""
    return array[
        tuple(slice(a + shift * (d == dim), b + shift * (d == dim)) for d, (a, b) in enumerate(zip(*box, strict=True)))
    ]


def diffuse(out: np.ndarray, field: np.ndarray, coefficient: Any, factor: Sequence[Any], box: Box) -> None:
    """Set f + c sum_d factor_d ((f_-d + f_+d) - 2 f) in the box; c: a number, or an array with a value per cell."""
    here = _at(field, box)
    total = None
    for dim in reversed(range(field.ndim)):
        term = factor[dim] * ((_at(field, box, dim, -1) + _at(field, box, dim, 1)) - (here + here))
        total = term if total is None else term + total
    own = _at(coefficient, box) if isinstance(coefficient, np.ndarray) else coefficient
    _at(out, box)[...] = here + own * total


def diffuse_twice(out: np.ndarray, field: np.ndarray, coefficient: Any, factor: Sequence[Any], box: Box) -> None:
    """Two steps of `diffuse`, the first in the box and the cells at its sides."""
    between = np.empty_like(out)
    diffuse(between, field, coefficient, factor, grown(box, 1))
    diffuse(out, between, coefficient, factor, box)


def diffuse_flux(out: np.ndarray, field: np.ndarray, conductivity: Any, factor: Sequence[Any], box: Box) -> None:
    """Set f + sum_d factor_d ((k + k_+d)(f_+d - f) - (k_-d + k)(f - f_-d)): both cells of a face see the same flux."""
    here, own = _at(field, box), _at(conductivity, box)
    total = None
    for dim in reversed(range(field.ndim)):
        above = (own + _at(conductivity, box, dim, 1)) * (_at(field, box, dim, 1) - here)
        below = (_at(conductivity, box, dim, -1) + own) * (here - _at(field, box, dim, -1))
        term = factor[dim] * (above - below)
        total = term if total is None else term + total
    _at(out, box)[...] = here + total


def star(out: np.ndarray, field: np.ndarray, weights: Sequence[Any], box: Box) -> None:
    """Add sum_k w_k sum_d (f_+kd - f_-kd), k = 1 .. radius: a divergence (Parallel Research Kernels, `stencil`)."""
    total = None
    for distance, weight in enumerate(weights, start=1):
        arms = None
        for dim in reversed(range(field.ndim)):
            arm = _at(field, box, dim, distance) - _at(field, box, dim, -distance)
            arms = arm if arms is None else arm + arms
        total = weight * arms if total is None else total + weight * arms
    _at(out, box)[...] += total


def star_laplacian(out: np.ndarray, field: np.ndarray, weights: Sequence[Any], box: Box) -> None:
    """Set w_0 f + sum_k w_k sum_d (f_+kd + f_-kd): w_0 is the weight of the cell in all dims together."""
    total = weights[0] * _at(field, box)
    for distance, weight in enumerate(weights[1:], start=1):
        arms = None
        for dim in reversed(range(field.ndim)):
            arm = _at(field, box, dim, distance) + _at(field, box, dim, -distance)
            arms = arm if arms is None else arm + arms
        total = total + weight * arms
    _at(out, box)[...] = total
