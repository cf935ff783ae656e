"""Initial state and forcing: bubbles, the vertical force, the jet, as arrays for the kernels."""

from __future__ import annotations

import numpy as np

from hpckit.apps.atmosphere.base import QUADRATURE_POINTS, QUADRATURE_WEIGHTS, BaseState
from hpckit.apps.atmosphere.profiles import Profile, exner, wave_temperature
from hpckit.apps.weather.config import Bubble, Config, Source
from hpckit.kernels.euler.constants import C0, GAMMA, RHO, RHO_THETA, RHO_U

SOURCE_PASSES = 3  # how often the mini-app adds the vertical force to a tendency


def initial_state(config: Config, profile: Profile, base: BaseState, columns: np.ndarray) -> np.ndarray:
    """Initial deviations from the base state, float64[4, nz, columns], for columns of cells given by index.

    Means over each cell by Gauss-Legendre quadrature of 3 x 3 points; the air moves with the base wind. compat: like
    the mini-app, the momentum of that wind is such a mean too, but the base density is the one at the center.
    """
    grid, nz = config.grid, config.grid.nz
    state = np.zeros((4, nz, len(columns)))
    mean = np.zeros(nz)  # of the base momentum
    for point_z, weight_z in zip(QUADRATURE_POINTS, QUADRATURE_WEIGHTS, strict=True):
        z = (np.arange(nz) + point_z)[:, None] * grid.dz
        pressure, theta = profile.pressure(z), profile.theta(z)
        rho = (pressure / C0) ** (1 / GAMMA) / theta
        mean += weight_z * (rho * profile.wind(z))[:, 0]
        for point_x, weight_x in zip(QUADRATURE_POINTS, QUADRATURE_WEIGHTS, strict=True):
            x = (columns + point_x)[None, :] * grid.dx
            light = wave_temperature(config.wave, config.base, x, z, grid.width, grid.height) / exner(pressure)
            for bubble in config.bubbles:
                warmer = _hill(bubble, x, z, grid.width)
                if bubble.of == "temperature":
                    warmer = warmer / exner(pressure)
                if bubble.keeps == "density":
                    state[RHO_THETA] += weight_x * weight_z * rho * warmer
                else:
                    light = light + warmer
            state[RHO] -= weight_x * weight_z * rho * light / (theta + light)
    if config.compat:
        state[RHO_U] = mean[:, None] + state[RHO] * base.wind[:, None]
    else:
        state[RHO_U] = (base.column[0][:, None] + state[RHO]) * base.wind[:, None]
    return state


def vertical_force(config: Config, base: BaseState, columns: np.ndarray) -> np.ndarray:
    """Tendency of rho w (kg m-2 s-2) that raises mountain waves, float64[nz, columns]; [0, 0] without one."""
    if not config.source.amplitude:
        return np.zeros((0, 0))
    x = (columns + 0.5)[None, :] * config.grid.dx
    force = base.column[0][:, None] * _hill(config.source, x, base.height[:, None], config.grid.width)
    return force * SOURCE_PASSES if config.compat else force


def inflow_rows(config: Config, base: BaseState) -> np.ndarray:
    """U and theta of the jet by rows, float64[2, nz], 0 in the other rows; [2, 0] without a jet."""
    jet = config.inflow
    if not jet.speed:
        return np.zeros((2, 0))
    inside = np.abs(base.height - jet.z) <= jet.half_height
    return np.array([jet.speed * inside, jet.theta * inside])


def _hill(shape: Bubble | Source, x: np.ndarray, z: np.ndarray, width: float) -> np.ndarray:
    """Amplitude cos(pi d / 2)**2 where the elliptic distance d is below 1, around the periodic slab."""
    far = np.abs(x - shape.x)
    far = np.minimum(far, width - far)
    distance = np.sqrt((far / shape.radius_x) ** 2 + ((z - shape.z) / shape.radius_z) ** 2)
    return np.where(distance < 1, shape.amplitude * np.cos(np.pi / 2 * distance) ** 2, 0.0)
