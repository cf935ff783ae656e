"""The Lennard-Jones fluid by the equation of state of Kolafa and Nezbeda (1994, Fluid Phase Equilibria 100, 1-34).

A fit to simulations of the full potential (no cutoff) for T from 0.7 to 20, in reduced units: hard spheres of an
effective diameter, the second virial coefficient, and a polynomial for the rest. The residual free energy per
particle is

    a(T, rho) = T beta_a_hs(eta) + T rho dB(T) exp(-gamma rho^2) + sum C_ij T^(i/2) rho^j,    eta = pi rho d(T)^3 / 6
"""

from __future__ import annotations

import math

GAMMA = 1.92907278
# Powers of sqrt(T) and their factors in the diameter (besides that of ln T) and in dB; of sqrt(T), then of rho, in C.
DIAMETER = {-2: 0.011117524, -1: -0.076383859, 0: 1.080142248, 1: 0.000693129}
DIAMETER_LOG = -0.063920968
VIRIAL = {
    -7: -0.58544978,
    -6: 0.43102052,
    -5: 0.87361369,
    -4: -4.13749995,
    -3: 2.90616279,
    -2: -7.02181962,
    0: 0.02459877,
}
C = {
    0: {2: 2.01546797, 3: -28.17881636, 4: 28.28313847, 5: -10.42402873},
    -1: {2: -19.58371655, 3: 75.62340289, 4: -120.70586598, 5: 93.92740328, 6: -27.37737354},
    -2: {2: 29.34470520, 3: -112.35356937, 4: 170.64908980, 5: -123.06669187, 6: 34.42288969},
    -4: {2: -13.37031968, 3: 65.38059570, 4: -115.09233113, 5: 88.91973082, 6: -25.62099890},
}


def pressure(temperature: float, density: float) -> float:
    """The pressure: rho T + rho^2 da/drho."""
    t, rho = temperature, density
    repulsion = _spheres(_packing(t, rho)) + rho * _virial(t) * math.exp(-GAMMA * rho**2) * (1 - 2 * GAMMA * rho**2)
    rest = sum(j * c * t ** (i / 2) * rho**j for i, row in C.items() for j, c in row.items())
    return rho * (t * repulsion + rest)


def energy(temperature: float, density: float) -> float:
    """The potential energy per particle: -T^2 d(a/T)/dT."""
    t, rho = temperature, density
    growth = DIAMETER_LOG / t + sum(0.5 * i * c * t ** (i / 2 - 1) for i, c in DIAMETER.items())
    virial = sum(0.5 * i * c * t ** (i / 2 - 1) for i, c in VIRIAL.items())
    spheres = 3 * (_spheres(_packing(t, rho)) - 1) * growth / _diameter(t)
    rest = sum((1 - 0.5 * i) * c * t ** (i / 2) * rho**j for i, row in C.items() for j, c in row.items())
    return rest - t**2 * (spheres + rho * virial * math.exp(-GAMMA * rho**2))


def free_energy(temperature: float, density: float) -> float:
    """The residual Helmholtz energy per particle: without that of the ideal gas."""
    t, rho = temperature, density
    eta = _packing(t, rho)
    spheres = 5 / 3 * math.log(1 - eta) + eta * (34 - 33 * eta + 4 * eta**2) / (6 * (1 - eta) ** 2)
    rest = sum(c * t ** (i / 2) * rho**j for i, row in C.items() for j, c in row.items())
    return t * (spheres + rho * _virial(t) * math.exp(-GAMMA * rho**2)) + rest


def _diameter(t: float) -> float:
    return DIAMETER_LOG * math.log(t) + sum(c * t ** (i / 2) for i, c in DIAMETER.items())


def _virial(t: float) -> float:
    """The second virial coefficient less that of the hard spheres."""
    return sum(c * t ** (i / 2) for i, c in VIRIAL.items())


def _packing(t: float, rho: float) -> float:
    return math.pi / 6 * rho * _diameter(t) ** 3


def _spheres(eta: float) -> float:
    """The compressibility of hard spheres."""
    return (1 + eta + eta**2 - 2 / 3 * eta**3 * (1 + eta)) / (1 - eta) ** 3
