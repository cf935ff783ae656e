"""The base state on the grid: rows of density, rho theta and pressure in discrete hydrostatic balance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpckit.apps.atmosphere.profiles import Profile
from hpckit.errors import InputError
from hpckit.kernels.euler.constants import C0, GAMMA, GRAVITY

QUADRATURE_POINTS = np.array([0.5 - np.sqrt(0.15), 0.5, 0.5 + np.sqrt(0.15)])  # Gauss-Legendre on [0, 1]
QUADRATURE_WEIGHTS = np.array([5, 8, 5]) / 18


@dataclass(frozen=True)
class BaseState:
    """Rows of a base state, from the ground up; `column`, `faces`, `ghost` as `kernels.euler.slab.reference` has them.

    height: z of the cells (m), float64[nz]. theta: (rho theta) / rho of the cells (K). wind, wind_v: u and v of the
    cells (m/s). faces_3d: float64[5, nz + 1], as `kernels.euler.box.reference` has it. `levels_state` has no faces.
    """

    height: np.ndarray
    column: np.ndarray
    faces: np.ndarray
    ghost: np.ndarray
    theta: np.ndarray
    wind: np.ndarray
    wind_v: np.ndarray
    faces_3d: np.ndarray


def require_top(profile: Profile, nz: int, dz: float) -> None:
    """Raise `InputError` if the profile ends below the top of nz cells of dz (m)."""
    if nz * dz > profile.top * (1 + 1e-12):
        observed = profile.name == "sounding"
        raise InputError(
            f"the {profile.name} base state ends at {profile.top:.0f} m, below the top of the model at {nz * dz:.0f} m",
            where="grid.height",
            likely="the last complete level of the sounding is lower than the grid" if observed else "",
            do=f"set grid.height to at most {np.floor(profile.top):.0f}"
            + (", or base.extrapolate = true (isothermal above)" if observed else ""),
        )


def base_state(profile: Profile, nz: int, dz: float, compat: bool = False) -> BaseState:
    """The profile on nz cells of dz (m), from the ground up.

    The density of a cell satisfies the discrete balance (p_above - p_below) / dz = -g rho with the pressures of its two
    interfaces exactly; it is also the exact mean of the density over the cell. Hyperviscosity acts on deviations
    from the base wind only. compat: like the mini-app, values at cell centers instead of means, and
    hyperviscosity acts on all of rho u. Raises `InputError` if the profile ends below the top of the model.
    """
    require_top(profile, nz, dz)
    edges = np.arange(-2, nz + 3) * dz  # two rows outside each wall
    middles = edges[:-1] + dz / 2
    pressure = profile.pressure(edges)
    if compat:
        rho_theta = _rho_theta(profile.pressure(middles))
        rho = rho_theta / profile.theta(middles)
    else:
        rho_theta = _rho_theta(profile.pressure(edges[:-1, None] + QUADRATURE_POINTS * dz)) @ QUADRATURE_WEIGHTS
        rho = -np.diff(pressure) / (GRAVITY * dz)
    rho_theta, height = rho_theta[2:-2], middles[2:-2]
    ghost = np.array([rho[0] / rho[2], rho[1] / rho[2], rho[-2] / rho[-3], rho[-1] / rho[-3]])
    wind, wind_v = profile.wind(height), profile.wind_v(height)
    shear = [_shear(rho[2:-2] * each, ghost) * (not compat) for each in (wind, wind_v)]
    faces_rho_theta = _rho_theta(pressure[2:-2])
    faces = [faces_rho_theta / profile.theta(edges[2:-2]), faces_rho_theta, pressure[2:-2], *shear]
    return BaseState(
        height=height,
        column=np.array([rho[2:-2], rho_theta, C0 * rho_theta**GAMMA]),
        faces=np.array(faces[:4]),
        ghost=ghost,
        theta=rho_theta / rho[2:-2],
        wind=wind,
        wind_v=wind_v,
        faces_3d=np.array(faces),
    )


def levels_state(profile: Profile, edges: np.ndarray) -> BaseState:
    """The profile between levels at any heights (m, from the ground up), float64[nz + 1]: rows of cells alone.

    Densities are exact means over the cells, as in `base_state`; of moist air that of the dry part. Raises
    `InputError` as it does.
    """
    require_top(profile, 1, float(edges[-1]))
    thick, height = np.diff(edges), 0.5 * (edges[1:] + edges[:-1])
    rho_theta = _rho_theta(profile.pressure(edges[:-1, None] + QUADRATURE_POINTS * thick[:, None])) @ QUADRATURE_WEIGHTS
    water = profile.water or profile.vapor(height) + profile.cloud(height)
    rho = -np.diff(profile.pressure(edges)) / (GRAVITY * thick * (1 + water))
    none = np.zeros((0, 0))
    return BaseState(
        height=height,
        column=np.array([rho, rho_theta, C0 * rho_theta**GAMMA]),
        faces=none,
        ghost=none,
        theta=rho_theta / rho,
        wind=profile.wind(height),
        wind_v=profile.wind_v(height),
        faces_3d=none,
    )


def _shear(momentum: np.ndarray, ghost: np.ndarray) -> np.ndarray:
    """Third difference in z of a base momentum at the interfaces."""
    rows = np.pad(momentum, 2, mode="edge")
    rows[[0, 1, -2, -1]] *= ghost
    return 3 * (rows[1:-2] - rows[2:-1]) + (rows[3:] - rows[:-3])


def _rho_theta(pressure: np.ndarray) -> np.ndarray:
    return (pressure / C0) ** (1 / GAMMA)
