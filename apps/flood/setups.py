"""Ground, initial water and exact solutions of the flood app, at the cells that a rank owns.

Inexact arithmetic is done along whole dims and cut afterwards, so bits do not depend on the decomposition. Heights and
levels are whole multiples of a small step: level - bottom + bottom is then exact, and a lake at rest has a level
surface to the bit.
"""

from __future__ import annotations

import math

import numpy as np

from hpckit.apps.common import topography
from hpckit.apps.exact.shallow_water import bowl, stoker, thacker_planar, thacker_radial
from hpckit.apps.flood.config import Config

LEVEL_STEP = 2.0**-30  # m
Cuts = tuple[slice, slice]  # of y and x, owned by a rank


def places(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """The cell centers in y and x, m."""
    grid = config.grid
    return (np.arange(grid.ny) + 0.5) * grid.dy, (np.arange(grid.nx) + 0.5) * grid.dx


def bottom(config: Config, cuts: Cuts) -> np.ndarray:
    """The height of the ground, float64[ny, nx] (m). Raises `InputError` for a file that does not fit."""
    ground, (y, x) = config.bottom, places(config)
    shape = y[cuts[0]].size, x[cuts[1]].size
    if ground.kind == "file":
        height = read_heights(config)[cuts]
    elif ground.kind == "bowl":
        height = bowl(x[cuts[1]] - ground.x, y[cuts[0], None] - ground.y, ground.radius, ground.height)
    elif ground.kind == "island":
        height = ground.height * _gauss(y - ground.y, ground.radius)[cuts[0], None]
        height = height * _gauss(x - ground.x, ground.radius)[cuts[1]]
    elif ground.kind == "beach":
        height = np.broadcast_to(ground.height * np.maximum(x - ground.x, 0.0)[cuts[1]] / ground.radius, shape)
    elif ground.kind == "barrier":
        closed = np.abs(y - ground.y)[cuts[0], None] >= ground.breach / 2
        height = np.where(closed & (np.abs(x - ground.x)[cuts[1]] < ground.radius), ground.height, 0.0)
    else:
        height = np.zeros(shape)
    return _whole(height)


def start(config: Config, cuts: Cuts, ground: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Initial depth (m) and velocities (m/s), float64[ny, nx] each."""
    begin = config.start
    if begin.kind.startswith("bowl"):
        depth, u, v = _thacker(config, cuts, 0.0)
        return np.where(depth > 0, depth, 0.0), u, v
    y, x = places(config)
    level: np.ndarray = np.full(ground.shape, begin.level)
    if begin.kind == "dam":
        level = np.where(x[cuts[1]] < begin.x, begin.behind_level, level)
    elif begin.kind == "circular_dam":
        square = (x[cuts[1]] - begin.x) ** 2 + (y[cuts[0], None] - begin.y) ** 2
        level = np.where(square < begin.radius**2, begin.behind_level, level)
    elif begin.kind == "hump":
        hump = begin.amplitude * _gauss(y - begin.y, begin.radius)[cuts[0], None]
        wet = level > ground
        level = level + np.where(wet, hump * _gauss(x - begin.x, begin.radius)[cuts[1]], 0.0)
    depth = np.maximum(_whole(level) - ground, 0.0)
    return depth, np.zeros_like(depth), np.zeros_like(depth)


def exact_depth(config: Config, cuts: Cuts, time: float) -> np.ndarray | None:
    """The exact depth if it is known, float64[ny, nx] (m), else None.

    Known: dam breaks over a flat bottom until a wave reaches an end of x, and the lakes of Thacker; both without
    friction and rotation.
    """
    grid, physics, begin = config.grid, config.physics, config.start
    if physics.manning or physics.drag or physics.f:
        return None
    if begin.kind.startswith("bowl"):
        return _thacker(config, cuts, time)[0]
    levels = begin.behind_level, begin.level
    if begin.kind != "dam" or config.bottom.kind != "flat" or not levels[0] > max(levels[1], 0.0):
        return None
    speed = math.sqrt(physics.gravity * levels[0])
    if grid.sides_x == "periodic" or begin.x < speed * time or begin.x + 2 * speed * time > grid.width:
        return None
    depth, _ = stoker(places(config)[1] - begin.x, time, levels[0], max(levels[1], 0.0), physics.gravity)
    return np.broadcast_to(depth[cuts[1]], (places(config)[0][cuts[0]].size, depth[cuts[1]].size))


def _thacker(config: Config, cuts: Cuts, time: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ground, (y, x) = config.bottom, places(config)
    solution = thacker_planar if config.start.kind == "bowl_planar" else thacker_radial
    at = x[cuts[1]] - ground.x, y[cuts[0], None] - ground.y
    return solution(*at, time, ground.radius, ground.height, config.start.amplitude, config.physics.gravity)


def _gauss(distance: np.ndarray, radius: float) -> np.ndarray:
    return np.exp(-0.5 * (distance / radius) ** 2)


def _whole(height: np.ndarray) -> np.ndarray:
    return np.rint(height / LEVEL_STEP) * LEVEL_STEP


def read_heights(config: Config) -> np.ndarray:
    """The heights of bottom.file, memory-mapped. Raises `InputError` if the file does not fit."""
    assert config.bottom.file is not None  # as bottom.kind says
    return topography.read_heights(config.bottom.file, (config.grid.ny, config.grid.nx), "bottom.file")
