"""What a run starts from: bubbles and the jet, as arrays for the kernels."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from hpckit.apps.weather3d.config import Base, Config
from hpckit.apps.weather3d.sides import distance, periodic_axes
from hpckit.atmosphere.base import QUADRATURE_POINTS, QUADRATURE_WEIGHTS, BaseState
from hpckit.atmosphere.profiles import Profile, profile_of
from hpckit.kernels.euler2d.constants import C0, GAMMA
from hpckit.kernels.euler3d.constants import FIELDS, RHO_THETA, RHO_U, RHO_V


def column_of(base: Base) -> Profile:
    """The atmosphere that the settings ask for, its wind along y too; reads the sounding where there is one."""
    profile = profile_of(base)
    return profile if base.wind else dataclasses.replace(profile, wind_v=lambda z: np.full_like(z, base.v))


def initial_state(
    config: Config, profile: Profile, base: BaseState, rows: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    """Deviations from the base state at the start, float64[5, nz, rows, columns], for cells given by index in y and x.

    Bubbles are means over each cell by Gauss-Legendre quadrature of 3 x 3 x 3 points, winds are taken in its middle;
    rho' and rho w are 0.
    """
    grid = config.grid
    levels = np.arange(grid.nz)[:, None, None]
    y_index, x_index = rows[None, :, None], columns[None, None, :]
    state = np.zeros((FIELDS, grid.nz, len(rows), len(columns)))
    wraps, extents = periodic_axes(config), {"x": grid.width, "y": grid.length}

    def far_from(way: np.ndarray, axis: str) -> np.ndarray:
        return distance(way, extents[axis], axis in wraps)

    gauss = list(zip(QUADRATURE_POINTS, QUADRATURE_WEIGHTS, strict=True))
    for (point_z, weight_z), (point_y, weight_y), (point_x, weight_x) in itertools.product(gauss, repeat=3):
        z = (levels + point_z) * grid.dz
        x, y = (x_index + point_x) * grid.dx, (y_index + point_y) * grid.dy
        rho = (profile.pressure(z) / C0) ** (1 / GAMMA) / profile.theta(z)
        for bubble in config.bubbles:
            far_x, far_y = far_from(x - bubble.x, "x"), far_from(y - bubble.y, "y")
            squares = (
                (far_x / bubble.radius_x) ** 2
                + (far_y / bubble.radius_y) ** 2
                + ((z - bubble.z) / bubble.radius_z) ** 2
            )
            hill = np.where(squares < 1, np.cos(np.pi / 2 * np.sqrt(squares)) ** 2, 0.0)
            state[RHO_THETA] += weight_x * weight_y * weight_z * bubble.amplitude * rho * hill
    state[RHO_U] = (base.column[0] * base.wind)[:, None, None]
    state[RHO_V] = (base.column[0] * base.wind_v)[:, None, None]
    jet = config.jet
    if jet.speed:
        far = far_from((y_index + 0.5) * grid.dy - jet.y, "y")
        high = (base.height[:, None, None] - jet.z) / jet.half_height
        momentum = base.column[0][:, None, None] / (np.cosh(far / jet.half_width) * np.cosh(high)) ** 2
        state[RHO_U] += jet.speed * momentum
        state[RHO_V] += jet.wobble * momentum * np.sin(2 * np.pi * jet.waves * (x_index + 0.5) / grid.nx)
    return state
