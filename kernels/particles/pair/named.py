"""Pair potentials by name, as energies of the squared distance: their forces come out of them."""

from __future__ import annotations

import math
from collections.abc import Callable

SERIES = 12  # terms of the cosine of at most pi / 2


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


def born(r2, p):
    """A exp((sigma - r) / rho) - C / r^6 + D / r^8, Born, Mayer, Huggins; p: A, rho, sigma, C, D."""
    inverse = 1.0 / r2
    cube = inverse * inverse * inverse
    return p[0] * math.exp((p[2] - math.sqrt(r2)) / p[1]) - p[3] * cube + p[4] * cube * inverse


def mie(r2, p):
    """C epsilon ((sigma/r)^n - (sigma/r)^m), Mie 1903, with C = n / (n - m) (n / m)^(m / (n - m)), which makes epsilon
    the depth; p: epsilon, sigma, n, m.
    """
    n, m = p[2], p[3]
    well = n / (n - m) * math.exp(m / (n - m) * math.log(n / m)) * p[0]
    x = 0.5 * math.log(p[1] * p[1] / r2)
    return well * (math.exp(n * x) - math.exp(m * x))


def lj96(r2, p):
    """4 epsilon ((sigma/r)^9 - (sigma/r)^6); p: epsilon, sigma."""
    x = p[1] * p[1] / r2
    x3 = x * math.sqrt(x)
    return 4.0 * p[0] * (x3 * x3 * x3 - x3 * x3)


def lj_expand(r2, p):
    """Lennard-Jones of the distance less delta; p: epsilon, sigma, delta."""
    far = math.sqrt(r2) - p[2]
    return lennard_jones(far * far, p)


def lj_force_shifted(r2, p):
    """Lennard-Jones whose force and energy go to 0 at a reach: E(r) - E(c) - (r - c) E'(c); p: epsilon, sigma, c."""
    square = p[2] * p[2]
    x = p[1] * p[1] / square
    x3 = x * x * x
    slope = -24.0 * p[0] * (2.0 * x3 * x3 - x3) / p[2]
    return lennard_jones(r2, p) - lennard_jones(square, p) - (math.sqrt(r2) - p[2]) * slope


def soft(r2, p):
    """A (1 + cos(pi r / c)), which pushes apart even what lies on top of each other; p: A, c, beyond which it is 0.

    It is 2 A cos(pi r / (2 c))^2. The series of the cosine needs r^2 alone; what it leaves out is below 1e-16.
    """
    x = r2 * (0.25 * math.pi**2) / (p[1] * p[1])
    cosine = 1.0
    for k in range(SERIES, 0, -1):
        cosine = 1.0 - cosine * x * (1.0 / (2 * k * (2 * k - 1)))
    return 2.0 * p[0] * cosine * cosine


# Name -> (energy, names of its parameters).
NAMED: dict[str, tuple[Callable, tuple[str, ...]]] = {
    "lennard_jones": (lennard_jones, ("epsilon", "sigma")),
    "morse": (morse, ("depth", "stiffness", "distance")),
    "buckingham": (buckingham, ("strength", "range", "dispersion")),
    "yukawa": (yukawa, ("strength", "screening")),
    "born": (born, ("strength", "range", "distance", "dispersion", "higher")),
    "mie": (mie, ("epsilon", "sigma", "repulsive", "attractive")),
    "lj96": (lj96, ("epsilon", "sigma")),
    "lj_expand": (lj_expand, ("epsilon", "sigma", "delta")),
    "soft": (soft, ("strength", "reach")),
    "lj_force_shifted": (lj_force_shifted, ("epsilon", "sigma", "reach")),
}
