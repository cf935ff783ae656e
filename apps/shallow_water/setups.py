"""Initial state, bottom, wind, rotation and walls, as arrays for the kernels.

Maps come from files. All other fields are sums of products of a function of y and one of x, computed for the whole grid
on every rank, so the bits do not depend on the decomposition.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import numpy as np

from hpckit.apps.common import topography
from hpckit.apps.shallow_water.config import Config
from hpckit.errors import InputError
from hpckit.kernels.shallow_water.constants import CORNER, FACE, HALO, STRESS, WATER, F

Term = tuple[np.ndarray, np.ndarray]  # a function of y, one of x, over all points of the grid
WAVES = 24  # of random eddies


def start(config: Config) -> tuple[list[Term], list[Term], list[Term]]:
    """Terms of the surface elevation (m, at centers) and of u and v (m/s, at low faces).

    A dim that ends at walls has one face more than cells. The normal velocity on walls is ignored.
    """
    kind, makers = config.start.kind, {"jet": _jet, "eddies": _eddies, "poincare": _poincare, "kelvin": _kelvin}
    if kind in makers:
        return makers[kind](config)
    begin, (y, x) = config.start, centers(config)
    if kind == "step":
        return [(np.full(y.shape, begin.amplitude), np.where(x < config.grid.width / 2, 1.0, -1.0))], [], []
    return ([_hill(config)] if kind == "hill" else []), [], []


def bottom(config: Config) -> list[Term]:
    """Terms of the height of the bottom, m."""
    shape, (y, x) = config.bottom, centers(config)
    if shape.kind == "ridge":
        return [(np.full(y.shape, shape.height), _gauss(x - shape.x, shape.radius))]
    if shape.kind == "seamount":
        return [(shape.height * _gauss(y - shape.y, shape.radius), _gauss(x - shape.x, shape.radius))]
    if shape.kind == "shelf":
        return [(np.full(y.shape, shape.height), 0.5 + 0.5 * np.tanh((x - shape.x) / shape.radius))]
    return []


def map_of(config: Config, section: Literal["bottom", "start"]) -> np.ndarray | None:
    """Heights of the bottom or of the surface from a file, [ny, nx] (m), memory-mapped; None without a file.

    Raises `InputError` for a file that does not fit the grid, and for a bottom that reaches the surface.
    """
    path: Path | None = getattr(config, section).file
    if path is None:
        return None
    found = topography.read_heights(path, (config.grid.ny, config.grid.nx), f"{section}.file")
    if section == "bottom" and topography.extremes(path)[1] >= config.physics.depth:
        y, x = np.unravel_index(found.argmax(), found.shape)
        raise InputError(
            f"bottom.file {path} reaches {found.max():g} m at cell (y {y}, x {x}), the surface is"
            f" {config.physics.depth:g} m above the flat bottom",
            likely="heights above sea level instead of above the flat bottom, or land",
            do="add physics.depth to heights above sea level; this scheme has no dry land, the app flood has",
        )
    return found


def deepest(config: Config) -> float:
    """An upper bound of the initial depth: from the lowest bottom to the highest surface, m."""
    trench = -config.bottom.height if config.bottom.kind not in ("flat", "file") else 0.0
    swell = abs(config.start.amplitude)
    if (bottom := config.bottom.file) is not None:
        map_of(config, "bottom")  # refuses what does not fit
        trench = -topography.extremes(bottom)[0]
    if (surface := config.start.file) is not None:
        map_of(config, "start")
        swell = topography.extremes(surface)[1]
    return config.physics.depth + max(0.0, trench) + max(0.0, swell)


def is_free(config: Config) -> bool:
    """Whether the equations are plain: flat, periodic, without friction and wind."""
    physics = config.physics
    forces = (physics.viscosity, physics.drag, physics.drag_quadratic, config.wind.stress)
    return config.grid.sides == "periodic" and config.bottom.kind == "flat" and not any(forces)


def rows(config: Config, halo: int) -> np.ndarray:
    """`rows` of the kernels for the whole grid and the halo beyond it, float64[5, ny + 2 halo]."""
    grid, wind = config.grid, config.wind
    table = np.empty((5, grid.ny + 2 * halo))
    table[:3] = _factors(config, "y", grid.ny, halo)
    faces = (np.arange(-halo, grid.ny + halo)) * grid.dy
    table[F] = config.physics.f + config.physics.beta * (faces - grid.height / 2)
    turns = {"uniform": 0.0, "single_gyre": 1.0, "double_gyre": 2.0}[wind.shape]
    sign = 1.0 if wind.shape == "uniform" else -1.0
    table[STRESS] = sign * wind.stress / wind.density * np.cos(turns * np.pi * (faces + grid.dy / 2) / grid.height)
    return table


def columns(config: Config, halo: int) -> np.ndarray:
    """`columns` of the kernels for the whole grid and the halo beyond it, float64[3, nx + 2 halo]."""
    return _factors(config, "x", config.grid.nx, halo)


def centers(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """The cell centers in y and x, m."""
    grid = config.grid
    return (np.arange(grid.ny) + 0.5) * grid.dy, (np.arange(grid.nx) + 0.5) * grid.dx


def faces(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """The faces in y and x, m, with the closing one where a dim ends at walls."""
    grid = config.grid
    counts = [n + (axis not in grid.periodic) for axis, n in (("y", grid.ny), ("x", grid.nx))]
    return np.arange(counts[0]) * grid.dy, np.arange(counts[1]) * grid.dx


def _factors(config: Config, axis: str, n: int, halo: int) -> np.ndarray:
    """WATER, FACE and CORNER along an axis."""
    factors = np.ones((3, n + 2 * halo))
    if axis not in config.grid.periodic:
        factors[WATER, :halo] = factors[WATER, n + halo :] = 0.0
        factors[FACE, : halo + 1] = factors[FACE, n + halo :] = 0.0
        factors[CORNER, :halo] = factors[CORNER, n + halo + 1 :] = 0.0
        factors[CORNER, [halo, n + halo]] = 0.0 if config.grid.slip == "free" else 2.0
    return factors


def _gauss(distance: np.ndarray, radius: float) -> np.ndarray:
    return np.exp(-0.5 * (distance / radius) ** 2)


def _hill(config: Config) -> Term:
    begin, (y, x) = config.start, centers(config)
    return begin.amplitude * _gauss(y - begin.y, begin.radius), _gauss(x - begin.x, begin.radius)


def _jet(config: Config) -> tuple[list[Term], list[Term], list[Term]]:
    """A jet along x in geostrophic balance, its surface integrated by the trapezoidal rule, and a bump on it.

    In a basin periodic in y a second, opposite jet half a basin away closes the surface.
    """
    begin, grid, (y, _), ones = config.start, config.grid, centers(config), np.ones(config.grid.nx)
    u = begin.speed / np.cosh((y - begin.y) / begin.radius) ** 2
    if "y" in grid.periodic:
        distance = np.abs(y - begin.y - grid.height / 2) % grid.height
        u -= begin.speed / np.cosh(np.minimum(distance, grid.height - distance) / begin.radius) ** 2
    slope = -rows(config, HALO)[F, HALO + 1 : grid.ny + HALO] / config.physics.gravity * 0.5 * (u[1:] + u[:-1])
    surface = np.concatenate([[0.0], np.cumsum(slope * grid.dy)])
    along = np.ones(len(faces(config)[1]))
    return [(surface - surface.mean(), ones), _hill(config)], [(u, along)], []


def _eddies(config: Config) -> tuple[list[Term], list[Term], list[Term]]:
    """Standing waves of a stream function with random phases and wave numbers near `mode`, without divergence."""
    begin, grid, physics = config.start, config.grid, config.physics
    rng = np.random.default_rng(begin.seed)
    elevation, u, v = [], [], []
    for _ in range(WAVES):
        kx, ky = _random_wave(rng, begin.mode, grid.nx, grid.ny)
        phases = rng.random(2) * 2 * np.pi
        # Corners 0 to n; the last is the first again.
        x = np.cos(2 * np.pi * kx * np.arange(grid.nx + 1) / grid.nx + phases[0])
        y = np.cos(2 * np.pi * ky * np.arange(grid.ny + 1) / grid.ny + phases[1])
        wave = 2 * np.pi * math.hypot(kx / grid.width, ky / grid.height)
        y *= begin.speed * 2 / (wave * math.sqrt(WAVES))  # each product of cosines has a quarter as its mean square
        elevation.append((physics.f / physics.gravity * 0.5 * (y[1:] + y[:-1]), 0.5 * (x[1:] + x[:-1])))
        u.append((-np.diff(y) / grid.dy, x[:-1]))
        v.append((y[:-1], np.diff(x) / grid.dx))
    return elevation, u, v


def _random_wave(rng: np.random.Generator, mode: int, nx: int, ny: int) -> tuple[int, int]:
    """Whole wave numbers in a random direction, their size within a quarter of `mode`."""
    size, angle = mode * (0.75 + 0.5 * rng.random()), rng.random() * np.pi / 2
    kx, ky = round(size * math.cos(angle)), round(size * math.sin(angle))
    return max(1, min(kx, nx // 4)), max(1, min(ky, ny // 4))


def _poincare(config: Config) -> tuple[list[Term], list[Term], list[Term]]:
    """The linear inertia-gravity wave amplitude cos(k x - w t), w**2 = f**2 + g H k**2, at t = 0."""
    begin, grid, physics, (y, x) = config.start, config.grid, config.physics, centers(config)
    k = 2 * np.pi * begin.mode / grid.width
    omega = math.sqrt(physics.f**2 + physics.gravity * physics.depth * k * k)
    at_face, tall, full = faces(config)[1], np.ones(len(faces(config)[0])), np.full(y.shape, begin.amplitude)
    u = full * (omega / (k * physics.depth)), np.cos(k * at_face)
    v = tall * (begin.amplitude * physics.f / (k * physics.depth)), np.sin(k * x)
    return [(full, np.cos(k * x))], [u], [v]


def _kelvin(config: Config) -> tuple[list[Term], list[Term], list[Term]]:
    """The linear Kelvin wave along the wall at y = 0 (f > 0; else at the other), which travels to +x at sqrt(g H)."""
    begin, grid, physics, (y, x) = config.start, config.grid, config.physics, centers(config)
    k, c = 2 * np.pi * begin.mode / grid.width, math.sqrt(physics.gravity * physics.depth)
    off = y if physics.f > 0 else y - grid.height
    decay = begin.amplitude * np.exp(-physics.f * off / c)
    return [(decay, np.cos(k * x))], [(decay * physics.gravity / c, np.cos(k * faces(config)[1]))], []
