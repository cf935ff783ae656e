"""Perturbations that the weather apps start from, as functions of the place."""

from __future__ import annotations

import numpy as np

from hpckit.apps.atmosphere.settings import Base, Wave
from hpckit.kernels.euler.constants import CP, GRAVITY, P0, RD


def wave_temperature(
    wave: Wave, base: Base, x: np.ndarray, z: np.ndarray, width: float, height: float
) -> np.ndarray | float:
    """Temperature perturbation (K) of `Wave` at x and z (m), around a domain periodic in x."""
    if not wave.amplitude:
        return 0.0
    far = np.abs(x - wave.x)
    far = np.minimum(far, width - far)
    growth = np.exp(GRAVITY * z / (2 * RD * base.temperature))
    return wave.amplitude * growth * np.sin(np.pi * z / height) * np.exp(-((far / wave.half_width) ** 2))


def exner(pressure: np.ndarray) -> np.ndarray:
    """Temperature over theta at a pressure (Pa)."""
    return (pressure / P0) ** (RD / CP)
