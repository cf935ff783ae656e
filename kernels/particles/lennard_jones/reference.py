"""The Lennard-Jones potential in textbook form, NumPy: test oracle of `simd`."""

from __future__ import annotations

import numpy as np


def energy_at(r: np.ndarray, epsilon: float, sigma: float) -> np.ndarray:
    """4 epsilon ((sigma/r)^12 - (sigma/r)^6)."""
    return 4 * epsilon * ((sigma / r) ** 12 - (sigma / r) ** 6)


def force_at(r: np.ndarray, epsilon: float, sigma: float) -> np.ndarray:
    """-dE/dr."""
    return 24 * epsilon * (2 * (sigma / r) ** 12 - (sigma / r) ** 6) / r


def tail(epsilon: float, sigma: float, cutoff: float) -> tuple[float, float]:
    """4 pi times the integrals of E r^2 and of (r . F) r^2 from the cutoff on: a pair's contribution in unit volume.

    Allen and Tildesley, Computer Simulation of Liquids (2017), section 2.8.
    """
    x3 = (sigma / cutoff) ** 3
    energy = 16 * np.pi * epsilon * sigma**3 * (x3**3 / 9 - x3 / 3)
    virial = 96 * np.pi * epsilon * sigma**3 * (2 * x3**3 / 9 - x3 / 3)
    return float(energy), float(virial)
