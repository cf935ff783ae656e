"""What a run starts from: bubbles, a band of warm air and the jet (in balance too), as arrays for the kernels."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from hpckit.apps.atmosphere import saturated
from hpckit.apps.atmosphere.base import QUADRATURE_POINTS, QUADRATURE_WEIGHTS, BaseState
from hpckit.apps.atmosphere.profiles import Profile, exner, profile_of, wave_temperature
from hpckit.apps.weather3d.config import Config
from hpckit.apps.weather3d.settings.box import Base
from hpckit.apps.weather3d.settings.starts import Bubble
from hpckit.apps.weather3d.sides import distance, periodic_axes
from hpckit.kernels.euler.box.constants import FIELDS, RHO, RHO_THETA, RHO_U, RHO_V
from hpckit.kernels.euler.constants import C0, GAMMA, GRAVITY, RD
from hpckit.kernels.euler.rain.constants import RV

ROUNDS = 60  # of the balance of a jet
SMALL = 1e-15  # of the density: what the last round may still change
SCALE = 300.0  # K: a bubble in saturated air is lighter by amplitude / SCALE (Bryan and Fritsch 2002)


def column_of(base: Base, moist: bool = False) -> Profile:
    """The atmosphere that the settings ask for, its wind along y too; reads the sounding where there is one.

    moist: with the vapor that it has.
    """
    if base.kind == "saturated":
        profile = saturated.cloudy(base.equivalent, base.water, base.u)
    elif base.kind == "levels":
        wind = None if base.wind else base.u
        profile = saturated.from_levels(np.array(base.levels), base.pressure, wind, moist)
    else:
        profile = profile_of(base, moist)
    return profile if base.wind else dataclasses.replace(profile, wind_v=lambda z: np.full_like(z, base.v))


def initial_state(
    config: Config,
    profile: Profile,
    base: BaseState,
    rows: np.ndarray,
    columns: np.ndarray,
    faces: np.ndarray | None = None,
) -> np.ndarray:
    """Deviations from the base state at the start, float64[5, nz, rows, columns], for cells given by index in y and x.

    faces: heights of the faces between levels by cell over terrain (m), float64[nz + 1, rows, columns]; rows of the
    base state are [nz, rows, columns] then. Warm and cold air are means over each cell by Gauss-Legendre quadrature of
    3 x 3 x 3 points, winds are taken in its middle; rho w is 0, and rho' but for the wave and for a jet in balance.
    """
    grid = config.grid
    edges = grid.edges[:, None, None] if faces is None else faces
    bottom, thick = edges[:-1], np.diff(edges, axis=0)
    y_index, x_index = rows[None, :, None], columns[None, None, :]
    state = np.zeros((FIELDS, grid.nz, len(rows), len(columns)))
    gauss = list(zip(QUADRATURE_POINTS, QUADRATURE_WEIGHTS, strict=True))
    for (point_z, weight_z), (point_y, weight_y), (point_x, weight_x) in itertools.product(gauss, repeat=3):
        z, y, x = bottom + point_z * thick, (y_index + point_y) * grid.dy, (x_index + point_x) * grid.dx
        pressure, theta = profile.pressure(z), profile.theta(z)
        rho = (pressure / C0) ** (1 / GAMMA) / theta
        warmth = _band(config, z, x)
        place, extent = (x, grid.width) if config.wave.along == "x" else (y, grid.length)
        light = wave_temperature(config.wave, config.base, place, z, extent, grid.height) / exner(pressure)
        moist = 1 + RV / RD * profile.vapor(z)
        for bubble in config.bubbles:
            warmer = _bubble(config, bubble, z, y, x)
            if bubble.keeps == "density":
                warmth = warmth + warmer
            else:
                light = light + warmer * (theta / SCALE if profile.water else moist)
        weight = weight_x * weight_y * weight_z
        state[RHO_THETA] += weight * rho * moist * warmth
        state[RHO] -= weight * rho * light / (theta + light)
    if config.noise.amplitude:
        low, drawn = _drawn(config, config.noise.seed, rows, columns)
        warm = base.column[0][low] * (1 + RV / RD * profile.vapor(base.height[low])) * config.noise.amplitude
        state[RHO_THETA, low] += _by_cell(warm) * drawn
    if config.noise.vapor:  # the moist theta has it, too
        dry = base.column[1] / (1 + RV / RD * profile.vapor(base.height))
        state[RHO_THETA] += _by_cell(RV / RD * dry) * vapor_noise(config, profile, base, rows, columns)
    total = _by_cell(base.column[0]) + state[RHO]
    state[RHO_U], state[RHO_V] = total * _by_cell(base.wind), total * _by_cell(base.wind_v)
    if config.jet.speed:
        _add_jet(state, config, base, rows, columns)
    return state


def vapor_noise(config: Config, profile: Profile, base: BaseState, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Random deviations of the mixing ratio of vapor at the start, float64[nz, rows, columns]; none below 0 in all."""
    noise, change = config.noise, np.zeros((config.grid.nz, len(rows), len(columns)))
    if noise.vapor:
        low, drawn = _drawn(config, (noise.seed, 1), rows, columns)
        change[low] = noise.vapor * drawn
    return np.maximum(change, -_by_cell(profile.vapor(base.height)))


def _drawn(
    config: Config, seed: int | tuple[int, int], rows: np.ndarray, columns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Which levels have noise, and random numbers from -1 to 1 there, the rank's share of those of the whole box."""
    grid = config.grid
    low = 0.5 * (grid.edges[1:] + grid.edges[:-1]) < config.noise.height
    drawn = np.random.default_rng(seed).uniform(-1, 1, (int(low.sum()), grid.ny, grid.nx))
    return low, drawn[:, rows][:, :, columns]


def _by_cell(rows: np.ndarray) -> np.ndarray:
    return rows if rows.ndim == 3 else rows[:, None, None]


def initial_water(profile: Profile, base: BaseState, state: np.ndarray) -> np.ndarray:
    """Vapor, cloud and rain at the start, float64[3, …] of cells as in state, from `initial_state` or zeros."""
    rho, heat = (_by_cell(base.column[each]) + state[field] for each, field in ((0, RHO), (1, RHO_THETA)))
    if profile.water:
        return saturated.parts(rho, heat, profile.water)
    vapor, cloud = (_by_cell(each(base.height)) + np.zeros_like(rho) for each in (profile.vapor, profile.cloud))
    return np.array([vapor, cloud, np.zeros_like(rho)])


def _bubble(config: Config, bubble: Bubble, z: np.ndarray, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Theta' of a bubble, K."""
    wraps = periodic_axes(config)
    far_x = distance(x - bubble.x, config.grid.width, "x" in wraps) / bubble.radius_x
    far_y = distance(y - bubble.y, config.grid.length, "y" in wraps) / bubble.radius_y
    squares = far_x**2 + far_y**2 + ((z - bubble.z) / bubble.radius_z) ** 2
    return bubble.amplitude * np.where(squares < 1, np.cos(np.pi / 2 * np.sqrt(squares)) ** 2, 0.0)


def _band(config: Config, z: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Theta' of the band of Skamarock and Klemp, K."""
    band = config.band
    far = distance(x - band.x, config.grid.width, "x" in periodic_axes(config)) / band.half_width
    return band.amplitude * np.sin(np.pi * z / config.grid.height) / (1 + far**2)


def _add_jet(state: np.ndarray, config: Config, base: BaseState, rows: np.ndarray, columns: np.ndarray) -> None:
    """The jet on top of what is there; its pressure and density too where it is to be in balance."""
    grid, jet = config.grid, config.jet
    rho = base.column[0][:, None]
    if jet.balanced:
        u = jet.speed * jet_shape(config, base.height, np.arange(grid.ny))
        rho_change, rho_theta = balanced_flow(u, base, grid.dy, grid.dz, config.coriolis)
        state[RHO] += rho_change[:, rows, None]
        state[RHO_THETA] += rho_theta[:, rows, None]
        state[RHO_U] += (rho_change * base.wind[:, None] + (rho + rho_change) * u)[:, rows, None]
        state[RHO_V] += (rho_change * base.wind_v[:, None])[:, rows, None]
    else:
        state[RHO_U] += (rho * jet.speed * jet_shape(config, base.height, rows))[:, :, None]
    wave = np.sin(2 * np.pi * jet.waves * (columns + 0.5) / grid.nx)
    state[RHO_V] += (rho * jet.wobble * jet_shape(config, base.height, rows))[:, :, None] * wave


def jet_shape(config: Config, height: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The jet's wind over its speed in the middle, [nz, rows], at these heights (m) and rows of cells."""
    grid, jet = config.grid, config.jet
    far = distance((rows + 0.5) * grid.dy - jet.y, grid.length, "y" in periodic_axes(config)) / jet.half_width
    high = (height[:, None] - jet.z) / jet.half_height
    return 1 / (np.cosh(far) * np.cosh(high)) ** 2


def balanced_flow(
    u: np.ndarray, base: BaseState, dy: float, dz: float, coriolis: float
) -> tuple[np.ndarray, np.ndarray]:
    """Deviations rho' and (rho theta)', float64[nz, ny], that hold u' (m/s, [nz, ny]) between walls in y.

    With v = w = 0 the box's sweeps (`kernels.euler.box.reference`) then give, but for their hyperviscosity,

        -(p'_north - p'_south) / dy = f (rho u)'     and     -(p'_above - p'_below) / dz = g rho'

    in each cell, with the pressures p' interpolated to the faces from (rho theta)' as the sweeps do it, mirrored beyond
    the walls and repeated beyond ground and lid. The first is solved for (rho theta)' level by level, up to a constant,
    which makes the mean of p' at the faces 0; the second is rho'. Thermal wind follows. The grid's two-cell wave has no
    pressure at faces: that part of f rho u, none of a jet that is resolved, remains (least squares).
    """
    nz, ny = u.shape
    rho_bar, rho_theta_bar, pressure_bar = base.column[:, :, None]
    level_rho_theta, level_pressure = base.faces_3d[1][:, None], base.faces_3d[2][:, None]
    north = _interpolation(ny, "symmetric").T
    south_to_cells = np.linalg.pinv(north)
    upward = _interpolation(nz, "edge")
    rho = np.zeros((nz, ny))
    for _ in range(ROUNDS):
        pressure = np.zeros((nz, ny + 1))
        np.cumsum(-coriolis * dy * (rho_bar + rho) * u, axis=1, out=pressure[:, 1:])
        pressure -= pressure.mean(axis=1, keepdims=True)
        excess = np.expm1(np.log1p(pressure / pressure_bar) / GAMMA)
        rho_theta = rho_theta_bar * (excess @ south_to_cells)
        lifted = np.expm1(GAMMA * np.log1p(upward @ rho_theta / level_rho_theta)) * level_pressure
        new = -np.diff(lifted, axis=0) / (GRAVITY * dz)
        change, rho = np.abs(new - rho).max(), new
        if change <= SMALL:
            break
    return rho, rho_theta


def _interpolation(n: int, beyond: str) -> np.ndarray:
    """Values at the n + 1 faces from n cells, fourth order, with two rows beyond either end made as `beyond` says."""
    rows = np.pad(np.eye(n), ((2, 2), (0, 0)), mode=beyond)  # type: ignore[call-overload]
    return 7 / 12 * (rows[1:-2] + rows[2:-1]) - 1 / 12 * (rows[:-3] + rows[3:])
