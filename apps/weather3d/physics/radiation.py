"""Longwave radiation by liquid water path, the formula of DYCOMS-II RF01 (Stevens et al. 2005, MWR 133, 1443-1462).

F(z) = top exp(-Q(z, lid)) + base exp(-Q(0, z)) + rho_i c_p D free ((z - z_i)**(4/3) / 4 + z_i (z - z_i)**(1/3)),
Q(a, b) = absorption times the mass of liquid water over an area between a and b, the last term above z_i only, where
all water falls below `water`; D is the divergence of the large scales. Air warms by -dF / dz / (rho c_p).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.apps.atmosphere.settings import Radiation
from hpckit.kernels.euler.constants import CP, P0, RD

DENSITY = 1.12  # kg/m3, of the air at the inversion


def flux(liquid: Any, total: Any, rho: Any, faces: Any, given: Radiation) -> Any:
    """The net upward flux at the faces of levels, W/m2, [nz + 1, ny, nx].

    liquid and total: mixing ratios of liquid and of all water, rho: density of dry air (kg/m3), [nz, ny, nx]; faces:
    their heights, m, [nz + 1, 1, 1].
    """
    path = given.absorption * rho * liquid * (faces[1:] - faces[:-1])
    below = np.concatenate([0.0 * path[:1], path.cumsum(axis=0)])
    above = below[-1:] - below
    found = given.top * np.exp(-above) + given.base * np.exp(-below)
    if given.free:
        far = np.maximum(faces - inversion(total, faces, given.water), 0.0)
        height = faces - far
        root = far ** (1 / 3)
        found = found + DENSITY * CP * given.divergence * given.free * (0.25 * far * root + height * root)
    return found


def inversion(total: Any, faces: Any, water: float) -> Any:
    """Height (m) at which all water, from the ground up, falls below `water`, [ny, nx]; the lid where it does not.

    Linear between the middles of levels.
    """
    middle = 0.5 * (faces[1:] + faces[:-1])[:, 0, 0]
    dry = total < water
    k = dry.argmax(axis=0)
    low = np.maximum(k - 1, 0)
    upper, lower = (np.take_along_axis(total, at[None], 0)[0] for at in (k, low))
    share = np.where(lower > upper, (lower - water) / np.where(lower > upper, lower - upper, 1.0), 0.0)
    height = middle[low] + np.clip(share, 0.0, 1.0) * (middle[k] - middle[low])
    return np.where(dry.any(axis=0), height, faces[-1, 0, 0])


def warming(found: Any, rho: Any, pressure: Any, faces: Any) -> Any:
    """Tendency of theta (K/s) by a flux at the faces."""
    exner = (pressure / P0) ** (RD / CP)
    return -(found[1:] - found[:-1]) / (faces[1:] - faces[:-1]) / (rho * CP * exner)
