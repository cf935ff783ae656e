"""Terrain under the box: its heights, levels that follow it, the base state on them, and what the kernels read.

Level zeta stands at z = zeta + h1 b1(zeta) + h2 b2(zeta) over ground of height h = h1 + h2. "linear": b = 1 - zeta / H
(Gal-Chen and Somerville 1975). "sleve": h1 is the ground smoothed, h2 the rest, and each fades as
b = sinh((H / s)**n - (zeta / s)**n) / sinh((H / s)**n), n = 1.35, s = `terrain.scale` for h1 and `terrain.fine` for h2,
so that small hills fade first (Schaer et al. 2002, MWR 130, 2459-2480; Leuenberger et al. 2010, MWR 138, 3683-3689).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import numpy as np

from hpckit.apps.atmosphere.base import QUADRATURE_POINTS, QUADRATURE_WEIGHTS, BaseState
from hpckit.apps.atmosphere.profiles import Profile
from hpckit.apps.common.topography import read_heights
from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.sides import distance, periodic_axes
from hpckit.errors import InputError
from hpckit.kernels.euler.box.constants import FIELDS, RHO, RHO_THETA, RHO_U, RHO_V, RHO_W
from hpckit.kernels.euler.constants import C0, GAMMA, GRAVITY, RD, REACH
from hpckit.kernels.euler.hevi.constants import ABOVE, BELOW, HALO, PER_FACE
from hpckit.kernels.euler.hevi.terrain.constants import (
    J_U,
    J_V,
    METRICS,
    PER_W,
    SIZE,
    SLOPE_U,
    SLOPE_V,
    SLOPE_X,
    SLOPE_Y,
    STEEP,
    Ground,
)
from hpckit.kernels.euler.rain.constants import RV
from hpckit.plan.grid.decomposition import Decomposition

POWER = 1.35  # of the fading of levels
THINNEST = 0.2  # least thickness of a level, as a share of that over flat ground


class TerrainCells(NamedTuple):
    """The base state in the middles of a rank's cells, each [nz, ny, nx] or [nz, 1, 1], float64 on the host."""

    rho: np.ndarray  # of dry air, kg/m3
    heat: np.ndarray  # rho theta with the moist theta, K kg/m3
    pressure: np.ndarray  # Pa
    theta: np.ndarray  # of dry air, K
    vapor: np.ndarray  # kg/kg
    height: np.ndarray  # m
    volume: np.ndarray  # m3


def flat_cells(base: BaseState, vapor: np.ndarray, edges: np.ndarray, area: float) -> TerrainCells:
    """Of a box over flat ground; vapor: of the levels, kg/kg; area: dx dy, m2."""
    theta = base.theta / (1 + RV / RD * vapor)  # base.theta is the moist theta
    rows = (*base.column, theta, vapor, base.height, np.diff(edges) * area)
    return TerrainCells(*(row[:, None, None] for row in rows))


class Terrain:
    """The terrain of a rank: `ground` for the kernels, `cells` and `size` (J of the owned cells) on the host."""

    def __init__(
        self, config: Config, profile: Profile, levels: np.ndarray, place: tuple[Decomposition, int], table: Callable
    ) -> None:
        """levels: `split.state.level_tables`. place: decomposition and rank. table: takes an array to the device."""
        grid, (decomposition, rank) = config.grid, place
        edges = grid.edges
        require_thick(config)
        start, owned = decomposition.start(rank)[1:], decomposition.owned(rank)[1:]
        margin = HALO + 1
        around = tuple(slice(low, low + count + 2 * margin) for low, count in zip(start, owned, strict=True))
        parts = [_padded(config, each, margin)[around] for each in parts_of(config, heights(config))]
        z = level_heights(config, edges, *parts)  # faces, with a cell more than the halo around
        middle, thick = 0.5 * (z[1:] + z[:-1]), np.diff(z, axis=0)
        size = thick / np.diff(edges)[:, None, None]
        inside = (slice(None), slice(1, -1), slice(1, -1))
        per_face, below, above = (levels[row, :-1, None, None] for row in (PER_FACE, BELOW, ABOVE))
        wide = size.shape

        def west(a: np.ndarray) -> np.ndarray:
            return a[:, 1:-1, :-2]

        def south(a: np.ndarray) -> np.ndarray:
            return a[:, :-2, 1:-1]

        metric = np.zeros((METRICS, wide[0], wide[1] - 2, wide[2] - 2))
        metric[J_U] = 0.5 * (west(size) + size[inside])
        metric[J_V] = 0.5 * (south(size) + size[inside])
        metric[SLOPE_U] = (middle[inside] - west(middle)) / grid.dx
        metric[SLOPE_V] = (middle[inside] - south(middle)) / grid.dy
        metric[SLOPE_X] = (z[:-1, 1:-1, 2:] - z[:-1, 1:-1, :-2]) / (2 * grid.dx)
        metric[SLOPE_Y] = (z[:-1, 2:, 1:-1] - z[:-1, :-2, 1:-1]) / (2 * grid.dy)
        metric[SIZE] = size[inside]
        between = np.ones_like(size[inside])
        between[0] = size[0, 1:-1, 1:-1]
        between[1:] = np.diff(middle[inside], axis=0) * per_face[1:]
        metric[PER_W] = 1 / between
        metric[STEEP] = (1 + metric[SLOPE_X] ** 2 + metric[SLOPE_Y] ** 2) / between
        heat = np.zeros_like(size)
        for point, weight in zip(QUADRATURE_POINTS, QUADRATURE_WEIGHTS, strict=True):
            heat += weight * (profile.pressure(z[:-1] + point * thick) / C0) ** (1 / GAMMA)
        vapor = profile.vapor(middle)
        water = vapor + profile.cloud(middle)
        rho = -np.diff(profile.pressure(z), axis=0) / (GRAVITY * thick * (1 + water))
        base = np.array([rho * size, heat * size, C0 * heat**GAMMA, water])
        wind = []
        for blowing, beside in ((profile.wind, west), (profile.wind_v, south)):
            momentum = base[0] * blowing(middle)
            wind.append((beside(momentum) + momentum[inside]) / (beside(base[0]) + base[0][inside]))
        self.ground = Ground(
            table(base[:, :, 1:-1, 1:-1]), table(metric), table(np.array(wind)), table(tilt_of(levels, edges))
        )
        own = (slice(None), slice(margin, -margin), slice(margin, -margin))
        self.size, self.height, self.thick = size[own], middle[own], thick[own]
        self.faces = z[own]
        self.winds = profile.wind(self.height), profile.wind_v(self.height)
        theta = heat / (rho * (1 + RV / RD * vapor))
        volume = thick[own] * grid.dx * grid.dy
        self.cells = TerrainCells(rho[own], heat[own], base[2][own], theta[own], vapor[own], self.height, volume)
        near = slice(margin - REACH, REACH - margin)
        self.cloud = (water - vapor)[own]  # of the base state, kg/kg
        self.vapor = vapor[:, near, near]  # of the base state, with the halo of mixing ratios
        self._base = base[:2][(slice(None), *inside)]
        self.base_density = self._base[0]  # J rho with the halo, kg/m3
        self.edges, self._flow = edges, np.array(wind)
        self._metric, self._below, self._above = metric, below, above
        self.density = table(self.size * rho[own])

    @property
    def base(self) -> BaseState:
        """The base state of the owned cells, rows of which are arrays [nz, ny, nx] here."""
        none = np.zeros((0, 0))
        cells = self.cells
        column = np.array([cells.rho, cells.heat, cells.pressure])
        return BaseState(self.height, column, none, none, cells.heat / cells.rho, *self.winds, none)

    def lowest(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """J rho of the base state (kg/m3), thickness (m) of the lowest level, in "cells" and at faces of "u", "v"."""
        inner, before = slice(HALO, -HALO), slice(HALO - 1, -HALO - 1)
        rho, metric, thick = self.base_density[0], self._metric[:, 0, inner, inner], self.edges[1] - self.edges[0]
        own = rho[inner, inner]
        at = {"cells": own, "u": 0.5 * (rho[inner, before] + own), "v": 0.5 * (rho[before, inner] + own)}
        return {place: (at[place], thick * metric[row]) for place, row in (("cells", SIZE), ("u", J_U), ("v", J_V))}

    def still(self) -> np.ndarray:
        """The state in which the air flows as the base state does, with its halo, float64[5, nz, ny + 12, nx + 12]."""
        flow = self._flow
        density = self._base[0]
        under = np.concatenate([density[:1], density[:-1]])
        mass = (self._below * under + self._above * density) * self._metric[PER_W]
        state = np.zeros((FIELDS, *density.shape))
        state[RHO_U] = 0.5 * (np.roll(density, 1, 2) + density) * flow[0]
        state[RHO_V] = 0.5 * (np.roll(density, 1, 1) + density) * flow[1]
        for wind, dim, slope in ((flow[0], 2, SLOPE_X), (flow[1], 1, SLOPE_Y)):
            mean = 0.5 * (wind + np.roll(wind, -1, dim))
            low = np.concatenate([mean[:1], mean[:-1]])
            state[RHO_W] -= mass * self._metric[slope] * (self._below * low + self._above * mean)
        state[RHO_W, 0] = 0.0
        return state

    def turned(self, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """What vertical vorticity of the owned cells has beside that along levels (1/s), by their u and v (m/s)."""
        own = (slice(None), slice(HALO, -HALO), slice(HALO, -HALO))
        across, along = self._metric[SLOPE_U], self._metric[SLOPE_V]
        slope_x, slope_y = 0.5 * (across + np.roll(across, -1, 2))[own], 0.5 * (along + np.roll(along, -1, 1))[own]
        gap = np.gradient(self.height, axis=0)
        return slope_y * (np.gradient(u, axis=0) / gap) - slope_x * (np.gradient(v, axis=0) / gap)

    def middles(self, data: np.ndarray) -> tuple[np.ndarray, ...]:
        """As `split.state.SplitState.middles`."""
        inner, beyond = slice(HALO, -HALO), slice(HALO, 1 - HALO)
        rho, heat = data[RHO] + self._base[0], data[RHO_THETA] + self._base[1]
        with np.errstate(all="ignore"):
            u = data[RHO_U] / (0.5 * (np.roll(rho, 1, 2) + rho))
            v = data[RHO_V] / (0.5 * (np.roll(rho, 1, 1) + rho))
            under = np.concatenate([rho[:1], rho[:-1]])
            density = (self._below * under + self._above * rho) * self._metric[PER_W]
            w = data[RHO_W] / density
            for speed, dim, slope in ((u, 2, SLOPE_X), (v, 1, SLOPE_Y)):
                mean = 0.5 * (speed + np.roll(speed, -1, dim))
                low = np.concatenate([mean[:1], mean[:-1]])
                w = w + self._metric[slope] * (self._below * low + self._above * mean)
            w = np.concatenate([w[:, inner, inner], np.zeros_like(rho[:1, inner, inner])])
            u, v = u[:, inner, beyond], v[:, beyond, inner]
            rho, heat = rho[:, inner, inner] / self.size, heat[:, inner, inner] / self.size
            return rho, 0.5 * (u[..., 1:] + u[..., :-1]), 0.5 * (v[:, 1:] + v[:, :-1]), 0.5 * (w[1:] + w[:-1]), heat


def heights(config: Config) -> np.ndarray:
    """The height of the ground in the middles of all cells, float64[ny, nx] (m). Raises `InputError` for a bad file."""
    grid, shape = config.grid, config.terrain
    if shape.kind == "file":
        assert shape.file is not None  # the settings were checked
        found = np.array(read_heights(shape.file, (grid.ny, grid.nx), "terrain.file"), np.float64)
        if found.min() < 0:
            raise InputError(
                f"terrain.file {shape.file} falls to {found.min():g} m: the base state begins at 0 m",
                do="add a constant, so that the lowest ground is at 0 m or above",
            )
        return found
    wraps = periodic_axes(config)
    x = distance((np.arange(grid.nx) + 0.5) * grid.dx - shape.x, grid.width, "x" in wraps)[None, :]
    y = distance((np.arange(grid.ny) + 0.5) * grid.dy - shape.y, grid.length, "y" in wraps)[:, None]
    far = (x**2 + (0.0 if shape.ridge else 1.0) * y**2) / shape.half_width**2
    if shape.kind == "bell":
        return shape.height / (1 + far) ** (1.0 if shape.ridge else 1.5)
    return shape.height * np.exp(-far) * np.cos(np.pi * x / shape.wavelength) ** 2


def parts_of(config: Config, ground: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The smooth part of the ground and the rest, float64[ny, nx] (m); the rest is 0 where levels are "linear"."""
    smooth = ground
    for _ in range(config.terrain.smoothings if config.terrain.levels == "sleve" else 0):
        for dim in range(2):
            beside = _padded(config, smooth, 1)
            low, high = (beside[:-2, 1:-1], beside[2:, 1:-1]) if dim == 0 else (beside[1:-1, :-2], beside[1:-1, 2:])
            smooth = 0.5 * smooth + 0.25 * (low + high)
    return smooth, ground - smooth


def corners(config: Config) -> np.ndarray:
    """Where the corners of cells stand, m: float64[nz + 1, ny + 1, nx + 1, 3] with x, y, z; the ground is a mean of
    four cells there.
    """
    grid = config.grid
    around = [_padded(config, part, 1) for part in parts_of(config, heights(config))]
    smooth, rest = (0.25 * (a[1:, 1:] + a[1:, :-1] + a[:-1, 1:] + a[:-1, :-1]) for a in around)
    z = level_heights(config, grid.edges, smooth, rest)
    y, x = (np.arange(n + 1) * step for n, step in ((grid.ny, grid.dy), (grid.nx, grid.dx)))
    return np.stack(np.broadcast_arrays(x, y[:, None], z), axis=-1)


def level_heights(config: Config, zeta: np.ndarray, smooth: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Heights of the levels zeta (m) over ground of these two parts, float64[len(zeta), …] (m)."""
    return np.array(list(_heights_by_level(config, zeta, smooth, rest)))


def _heights_by_level(config: Config, zeta: np.ndarray, smooth: np.ndarray, rest: np.ndarray) -> Iterator[np.ndarray]:
    top, shape = config.grid.height, config.terrain
    if shape.levels == "linear":
        fading = np.array([1 - zeta / top] * 2)
    else:
        fading = np.array([_fade(zeta, top, scale) for scale in (shape.scale, shape.fine)])
    for height, one, two in zip(zeta, *fading, strict=True):
        yield height + (one * smooth + two * rest)


def _fade(zeta: np.ndarray, top: float, scale: float) -> np.ndarray:
    """1 at the ground, 0 at the top; of differences of exponentials, which may not overflow."""
    whole, part = (top / scale) ** POWER, (np.minimum(zeta, top) / scale) ** POWER
    return (np.exp(-part) - np.exp(part - 2 * whole)) / (1 - np.exp(-2 * whole))


def require_thick(config: Config) -> float:
    """The least thickness of a level (m). Raises `InputError` if it is under a fifth of that over flat ground."""
    edges = config.grid.edges
    ground = heights(config)
    least, low = np.inf, None
    for k, z in enumerate(_heights_by_level(config, edges, *parts_of(config, ground))):
        if low is not None:
            thin = float((z - low).min())
            least = min(least, thin)
            if thin < THINNEST * (edges[k] - edges[k - 1]):
                raise InputError(
                    f"level {k} is {thin:.3g} m thick at its thinnest over terrain up to {ground.max():g} m, and"
                    f" {edges[k] - edges[k - 1]:.3g} m over flat ground",
                    where="terrain",
                    do="lower the terrain, raise grid.height, or take a greater terrain.scale and terrain.fine",
                )
        low = z
    return least


def tilt_of(levels: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Weights of a vertical gradient in the middle of a level, float64[2, nz]; at the ground extrapolated linearly."""
    per_face = levels[PER_FACE]
    tilt = 0.5 * np.array([per_face[:-1], per_face[1:]])
    ratio = (edges[1] - edges[0]) / (edges[2] - edges[1])
    tilt[:, 0] = 0.5 * (2 + ratio) * per_face[1], -0.5 * ratio * per_face[2]
    tilt[:, -1] = 0.0, per_face[-2]
    return tilt


def _padded(config: Config, values: np.ndarray, count: int) -> np.ndarray:
    """With cells around it: those across where an axis is periodic, mirrored at walls, the last one's where open."""
    modes: dict[str, Literal["wrap", "symmetric", "edge"]] = {"periodic": "wrap", "walls": "symmetric", "open": "edge"}
    for dim, axis in enumerate("yx"):
        widths = [(count, count) if dim == each else (0, 0) for each in range(2)]
        values = np.pad(values, widths, mode=modes[getattr(config.sides, axis)])
    return values
