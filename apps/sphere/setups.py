"""Initial states on the sphere: Williamson et al. (1992, J. Comput. Phys. 102) tests 2, 5 and 6; Galewsky et al. (2004,
Tellus A 56). Each point is a function of its place alone, so that bits do not depend on the number of ranks.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from hpckit.apps.exact.rotating import ROSSBY_HAURWITZ
from hpckit.apps.sphere.config import Config

MOUNTAIN = (-np.pi / 2, np.pi / 6, np.pi / 9)  # longitude, latitude, radius of the cone
JET = (np.pi / 7, np.pi / 2 - np.pi / 7)  # its latitudes
BUMP = (np.pi / 4, 1 / 3, 1 / 15)  # latitude; widths in longitude and latitude
HILL = (0.3, 0.5, 0.1)  # longitude, latitude, radius
INTERVALS = 4096  # of the table of the jet's balance

Start = tuple[np.ndarray, np.ndarray, np.ndarray]


def axis(config: Config) -> np.ndarray:
    """The axis of rotation; a tilted test turns the planet, not the grid."""
    tilt = math.radians(config.start.angle)
    return np.array([-math.sin(tilt), 0.0, math.cos(tilt)])


def is_steady(config: Config) -> bool:
    """Whether the exact solution is the initial state."""
    start = config.start
    return start.kind == "solid_body" or (start.kind == "jet" and start.bump == 0)


def bottom(config: Config, centers: np.ndarray) -> np.ndarray:
    """The height of the bottom at unit vectors [3, …], m."""
    if config.start.kind != "mountain":
        return np.zeros(centers.shape[1:])
    longitude, latitude = places(centers)
    east = (longitude - MOUNTAIN[0] + np.pi) % (2 * np.pi) - np.pi
    away = np.minimum(MOUNTAIN[2], np.hypot(east, latitude - MOUNTAIN[1]))
    return config.start.bump * (1.0 - away / MOUNTAIN[2])


def start(config: Config, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The level of the surface (m) and the velocity in space (m/s, [3, …]) at unit vectors [3, …]."""
    kind = config.start.kind
    if kind in ("solid_body", "mountain"):
        return _solid_body(config, centers)
    longitude, latitude = places(centers)
    if kind == "hill":
        middle = np.array(
            [math.cos(HILL[0]) * math.cos(HILL[1]), math.sin(HILL[0]) * math.cos(HILL[1]), math.sin(HILL[1])]
        )
        away = np.arccos(np.clip(np.einsum("c,c...->...", middle, centers), -1.0, 1.0))
        return config.start.depth + config.start.bump * np.exp(-((away / HILL[2]) ** 2)), np.zeros_like(centers)
    level, east, north = (_jet if kind == "jet" else _rossby_haurwitz)(config, longitude, latitude)
    eastward = np.stack([-np.sin(longitude), np.cos(longitude), 0 * longitude])
    northward = np.stack(
        [-np.sin(latitude) * np.cos(longitude), -np.sin(latitude) * np.sin(longitude), np.cos(latitude)]
    )
    return level, east * eastward + north * northward


def highest(config: Config) -> float:
    """A bound of the depth of the initial state, m, for the time step."""
    start, physics = config.start, config.physics
    if start.kind == "rossby_haurwitz":
        omega = ROSSBY_HAURWITZ[0]
        return start.depth + physics.radius**2 * omega * (2 * abs(physics.rotation) + 4 * omega) / physics.gravity
    if start.kind == "jet":
        table = jet_table(config)[1]
        return start.depth + float(table.max() - table.min()) + abs(start.bump)
    return start.depth + abs(start.bump) * (start.kind == "hill")


def places(centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Longitude and latitude of unit vectors, radians."""
    return np.arctan2(centers[1], centers[0]), np.arcsin(np.clip(centers[2], -1.0, 1.0))


def _solid_body(config: Config, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    physics, speed, turns = config.physics, config.start.speed, axis(config)
    along = np.einsum("c,c...->...", turns, centers)
    fall = (physics.radius * physics.rotation * speed + speed**2 / 2) / physics.gravity
    velocity = speed * np.cross(np.broadcast_to(turns.reshape(3, *[1] * along.ndim), centers.shape), centers, axis=0)
    return config.start.depth - fall * along**2, velocity


def _rossby_haurwitz(config: Config, longitude: np.ndarray, latitude: np.ndarray) -> Start:
    physics, (omega, n) = config.physics, ROSSBY_HAURWITZ
    radius, spin, c = physics.radius, physics.rotation, np.cos(latitude)
    a = omega / 2 * (2 * spin + omega) * c**2 + omega**2 / 4 * c ** (2 * n) * (
        (n + 1) * c**2 + (2 * n * n - n - 2) - 2 * n * n / np.where(c > 0, c, 1.0) ** 2
    )
    b = 2 * (spin + omega) * omega / ((n + 1) * (n + 2)) * c**n * ((n * n + 2 * n + 2) - (n + 1) ** 2 * c**2)
    d = omega**2 / 4 * c ** (2 * n) * ((n + 1) * c**2 - (n + 2))
    level = config.start.depth + radius**2 / physics.gravity * (
        a + b * np.cos(n * longitude) + d * np.cos(2 * n * longitude)
    )
    wave = radius * omega * c ** (n - 1)
    east = radius * omega * c + wave * (n * np.sin(latitude) ** 2 - c**2) * np.cos(n * longitude)
    return level, east, -wave * n * np.sin(latitude) * np.sin(n * longitude)


def jet_speed(config: Config, latitude: np.ndarray) -> np.ndarray:
    """The jet's zonal wind at latitudes, m/s."""
    low, high = JET
    inside = (latitude > low) & (latitude < high)
    safe = np.where(inside, latitude, 0.5 * (low + high))
    most = np.exp(-4.0 / (high - low) ** 2)
    return np.where(inside, config.start.speed / most * np.exp(1.0 / ((safe - low) * (safe - high))), 0.0)


def _slope(config: Config, latitude: np.ndarray) -> np.ndarray:
    """The fall of the surface per radian to the north that balances the jet, m."""
    physics, u = config.physics, jet_speed(config, latitude)
    spin = 2 * physics.rotation * np.sin(latitude) + np.tan(latitude) / physics.radius * u
    return physics.radius / physics.gravity * u * spin


@lru_cache(maxsize=4)
def _table(speed: float, gravity: float, radius: float, rotation: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Latitudes across the jet, the fall of the surface there, and its mean over the sphere, by Gauss's rule."""
    config = Config.model_validate(
        {
            "start": {"kind": "jet", "speed": speed, "bump": 0.0},
            "physics": {"gravity": gravity, "radius": radius, "rotation": rotation},
            "time": {"max_speed": speed},
        }
    )
    points, weights = np.polynomial.legendre.leggauss(5)
    edges = np.linspace(*JET, INTERVALS + 1)
    half = 0.5 * (edges[1] - edges[0])
    inside = (0.5 * (edges[1:] + edges[:-1]))[:, None] + half * points
    fall = np.concatenate([[0.0], np.cumsum((_slope(config, inside) * weights).sum(axis=1) * half)])
    # The mean over the sphere, by parts: of fall cos(latitude) / 2.
    rest = (_slope(config, inside) * (1.0 - np.sin(inside)) * weights).sum() * half
    return edges, fall, 0.5 * float(rest)


def jet_table(config: Config) -> tuple[np.ndarray, np.ndarray, float]:
    """See `_table`."""
    physics = config.physics
    return _table(config.start.speed, physics.gravity, physics.radius, physics.rotation)


def _jet(config: Config, longitude: np.ndarray, latitude: np.ndarray) -> Start:
    edges, fall, mean = jet_table(config)
    inside = np.clip(latitude, *JET)
    step = edges[1] - edges[0]
    at = np.clip(((inside - edges[0]) / step).astype(int), 0, INTERVALS - 1)
    part = (inside - edges[at]) / step
    # Hermite's cubic of the integral and its slope.
    slopes = _slope(config, edges) * step
    low, high = fall[at], fall[at + 1]
    cubic = (
        low * (1 + 2 * part) * (1 - part) ** 2
        + slopes[at] * part * (1 - part) ** 2
        + high * part**2 * (3 - 2 * part)
        + slopes[at + 1] * part**2 * (part - 1)
    )
    middle, wide, high_wide = BUMP
    bump = (
        config.start.bump
        * np.cos(latitude)
        * np.exp(-((longitude / wide) ** 2))
        * np.exp(-(((middle - latitude) / high_wide) ** 2))
    )
    return config.start.depth + mean - cubic + bump, jet_speed(config, latitude), np.zeros_like(latitude)
