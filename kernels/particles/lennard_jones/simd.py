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
def _force_by_inverse(y, r2, p):
    """-dE/dr / r; y: 1/r2."""
    y3 = y * y * y
    return (y3 * y) * (p[2] * y3 - p[3])


@inlined(math=REORDERED)
def _both_by_inverse(y, r2, p):
    """E and -dE/dr / r; y: 1/r2."""
    y3 = y * y * y
    repulsion, attraction = p[2] * y3, p[3]
    return y3 * (repulsion * (1.0 / 12.0) - attraction * (1.0 / 6.0)), (y3 * y) * (repulsion - attraction)


@inlined(math=REORDERED)
def _force(r2, p):
    return _force_by_inverse(1.0 / r2, r2, p)


@inlined(math=REORDERED)
def _energy_and_force(r2, p):
    return _both_by_inverse(1.0 / r2, r2, p)


POTENTIAL = Potential(
    ("lennard_jones",),
    PARAMETERS,
    _force,
    _energy_and_force,
    clamp=False,
    by_inverse=(_force_by_inverse, _both_by_inverse),
)


@inlined(math=REORDERED)
def _faded(y, r2, p):
    """Parts of E and -dE/dr / r that fade: x3 = (sigma^2 / r2)^3; 48 epsilon x3 rest / width^3; the fade
    rest^2 (3 width - 2 rest) / width^3 less its first rest and the division; and width - rest. What is the same for all
    pairs is left to be joined with epsilon outside of a loop.
    """
    x, rest, width = p[3] * p[3] * y, p[0] - max(r2, p[4]), p[0] - p[4]
    x3 = x * x * x
    depth = p[2] * (48.0 / (width * width * width))
    return x3, depth * x3 * rest, rest * (3.0 * width - 2.0 * rest), width - rest


@inlined(math=REORDERED)
def _faded_force(y, r2, p):
    x3, scale, fade, gone = _faded(y, r2, p)
    return scale * ((x3 - 0.5) * (y * fade) + (x3 - 1.0) * gone)


@inlined(math=REORDERED)
def _faded_both(y, r2, p):
    x3, scale, fade, gone = _faded(y, r2, p)
    return scale * ((x3 - 1.0) * fade) * (1.0 / 12.0), scale * ((x3 - 0.5) * (y * fade) + (x3 - 1.0) * gone)


# Of epsilon, sigma and the square of an inner distance, between which and the cutoff it fades (`pair.custom.faded`).
FADED = _faded_force, _faded_both


def parameters(epsilon: np.ndarray, sigma: np.ndarray, cutoff: np.ndarray, shifted: bool = False) -> np.ndarray:
    """The table [types, types, 4] of well depths, diameters and cutoffs [types, types]; shifted: E(cutoff) = 0."""
    c6 = 4.0 * epsilon * sigma**6
    c12 = c6 * sigma**6
    shift = c12 / cutoff**12 - c6 / cutoff**6 if shifted else np.zeros_like(c6)
    return np.stack([cutoff**2, shift, 12.0 * c12, 6.0 * c6], axis=-1)
