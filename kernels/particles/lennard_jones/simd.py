"""Lennard-Jones (1924): E = 4 eps ((sigma/r)^12 - (sigma/r)^6), written for the pair loop of `kernels.particles.pair`.

Parameters behind the common two: 48 eps sigma^12 and 24 eps sigma^6. One division and no root for each pair.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.particles.loops import REORDERED
from hpckit.kernels.particles.pair.potential import OWN, Potential

PARAMETERS = OWN + 2


@inlined(math=REORDERED)
def _force(r2, p):
    """-dE/dr / r."""
    y = 1.0 / r2
    y3 = y * y * y
    return (y3 * y) * (p[2] * y3 - p[3])


@inlined(math=REORDERED)
def _energy_and_force(r2, p):
    """E and -dE/dr / r."""
    y = 1.0 / r2
    y3 = y * y * y
    repulsion, attraction = p[2] * y3, p[3]
    return y3 * (repulsion * (1.0 / 12.0) - attraction * (1.0 / 6.0)), (y3 * y) * (repulsion - attraction)


POTENTIAL = Potential(("lennard_jones",), PARAMETERS, _force, _energy_and_force, clamp=False)


def parameters(epsilon: np.ndarray, sigma: np.ndarray, cutoff: np.ndarray, shifted: bool = False) -> np.ndarray:
    """The table [types, types, 4] of well depths, diameters and cutoffs [types, types]; shifted: E(cutoff) = 0."""
    c6 = 4.0 * epsilon * sigma**6
    c12 = c6 * sigma**6
    shift = c12 / cutoff**12 - c6 / cutoff**6 if shifted else np.zeros_like(c6)
    return np.stack([cutoff**2, shift, 12.0 * c12, 6.0 * c6], axis=-1)
