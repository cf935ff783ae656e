"""Pair potentials by name, as energies of the squared distance: their forces come out of them."""

from __future__ import annotations

import math
from collections.abc import Callable


def lennard_jones(r2, p):
    """4 epsilon ((sigma/r)^12 - (sigma/r)^6); p: epsilon, sigma."""
    x = p[1] * p[1] / r2
    x3 = x * x * x
    return 4.0 * p[0] * (x3 * x3 - x3)


def morse(r2, p):
    """D (exp(-2 a (r - r0)) - 2 exp(-a (r - r0))), Morse 1929; p: D, a, r0."""
    x = math.exp(-p[1] * (math.sqrt(r2) - p[2]))
    return p[0] * (x * x - 2.0 * x)


def buckingham(r2, p):
    """A exp(-r / rho) - C / r^6, Buckingham 1938; p: A, rho, C."""
    inverse = 1.0 / r2
    return p[0] * math.exp(-math.sqrt(r2) / p[1]) - p[2] * inverse * inverse * inverse


def yukawa(r2, p):
    """A exp(-kappa r) / r; p: A, kappa."""
    r = math.sqrt(r2)
    return p[0] * math.exp(-p[1] * r) / r


# Name -> (energy, names of its parameters).
NAMED: dict[str, tuple[Callable, tuple[str, ...]]] = {
    "lennard_jones": (lennard_jones, ("epsilon", "sigma")),
    "morse": (morse, ("depth", "stiffness", "distance")),
    "buckingham": (buckingham, ("strength", "range", "dispersion")),
    "yukawa": (yukawa, ("strength", "screening")),
}
