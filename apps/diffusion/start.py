"""The initial temperature, and the wall boundary conditions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hpckit.apps.diffusion.config import Config, Wall
from hpckit.plan.grid.decomposition import Slices


def places(config: Config) -> tuple[np.ndarray, ...]:
    """The cell centers along each dim, m; the whole grid."""
    grid = config.grid
    return tuple((np.arange(n) + 0.5) * h for n, h in zip(grid.shape, grid.spacing, strict=True))


def start(config: Config, part: Slices) -> np.ndarray:
    """The initial temperature in the cells `part` of the grid, K.

    Shapes are products of functions of one coordinate, computed for the whole grid on every rank, so the bits do not
    depend on the decomposition.
    """
    begin = config.start
    shape = tuple(len(range(*cut.indices(n))) for cut, n in zip(part, config.grid.shape, strict=True))
    total = np.zeros(shape)
    for factors in _terms(config):
        term = np.ones(())
        for factor, cut in zip(factors, part, strict=True):
            term = term[..., np.newaxis] * factor[cut]
        total += term
    return begin.background + begin.amplitude * total


def _terms(config: Config) -> list[list[np.ndarray]]:
    """The terms, each with one factor per dim."""
    grid, begin = config.grid, config.start
    if begin.kind == "sine":
        return [[_mode(config, dim, place) for dim, place in enumerate(places(config))]]
    middles = np.array([[0.5] * len(grid.shape)])
    if begin.kind == "spots":
        middles = np.random.default_rng(begin.seed).random((begin.count, len(grid.shape)))
    terms = []
    for middle in middles:
        factors = []
        for axis, place, length, at in zip(grid.axes, places(config), grid.lengths, middle, strict=True):
            distance = np.abs(place - at * length)
            if axis in grid.periodic:
                distance = np.minimum(distance, length - distance)
            factors.append(np.exp(-((distance / begin.radius) ** 2) / 2))
        terms.append(factors)
    return terms


def _mode(config: Config, dim: int, place: np.ndarray) -> np.ndarray:
    """The eigenmode of a dim: whole sine waves if periodic; half waves, cosine from an insulated wall, else sine."""
    axis, length, mode = config.grid.axes[dim], config.grid.lengths[dim], config.start.modes[dim]
    if axis in config.grid.periodic:
        return np.sin(2 * math.pi * mode * place / length) if mode else np.ones_like(place)
    low, high = (wall == "insulated" for wall in config.walls.of(axis))
    # Between an insulated end and a fixed one, a quarter wave less.
    waves = mode if low == high else max(mode, 1) - 0.5
    angle = math.pi * waves * place / length
    return np.cos(angle) if low else np.sin(angle)


def wall_fill(wall: Wall) -> Callable[[np.ndarray, np.ndarray], None]:
    """The fill of the halo beyond a wall, which keeps the scheme of second order up to the wall.

    A wall lies on a face. Insulated: the halo cell repeats the inner cell, so no heat flows. Fixed: the mean of the two
    is the temperature of the wall.
    """
    if wall == "insulated":

        def insulated(halo: np.ndarray, inside: np.ndarray) -> None:
            halo[...] = inside[0]

        return insulated
    double = 2 * float(wall)

    def held(halo: np.ndarray, inside: np.ndarray) -> None:
        np.subtract(double, inside[0], out=halo[0])

    held.__name__ = f"held({wall:g} K)"
    return held
