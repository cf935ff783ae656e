"""The energies of angles, dihedrals and impropers, as LAMMPS names and defines them: functions of the angle and the
parameters p, which return the energy and its derivative by the angle.

Angles have theta at the second of three particles. harmonic: K (theta - theta0)^2. charmm: the same, and between first
and third K_ub (r - r_ub)^2 (Urey and Bradley). cosine: K (1 + cos theta).

Dihedrals have phi around the bond of the second and third of four particles, from -pi to pi, 0 for cis. harmonic:
K (1 + d cos(n phi)). charmm: K (1 + cos(n phi - d)). opls: 1/2 (K1 (1 + cos phi) + K2 (1 - cos 2 phi) +
K3 (1 + cos 3 phi) + K4 (1 - cos 4 phi)). Impropers have |phi| of their four. harmonic: K (chi - chi0)^2.

Angles in the parameters are in radians here, in degrees in files and settings (`ANGLES_AT`).
"""

from __future__ import annotations

import math
from typing import Any

from hpckit.kernels.compile.jit import inlined

NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "angles": {"harmonic": ("K", "theta0"), "charmm": ("K", "theta0", "K_ub", "r_ub"), "cosine": ("K",)},
    "dihedrals": {
        "harmonic": ("K", "d", "n"),
        "charmm": ("K", "n", "d", "weight"),
        "opls": ("K1", "K2", "K3", "K4"),
    },
    "impropers": {"harmonic": ("K", "chi0")},
}
# Which parameters are angles.
ANGLES_AT = {
    ("angles", "harmonic"): (1,),
    ("angles", "charmm"): (1,),
    ("dihedrals", "charmm"): (2,),
    ("impropers", "harmonic"): (1,),
}


@inlined
def _bend(theta, p):
    away = theta - p[1]
    return p[0] * away * away, 2.0 * p[0] * away


@inlined
def _cosine(theta, p):
    return p[0] * (1.0 + math.cos(theta)), -p[0] * math.sin(theta)


@inlined
def _harmonic(phi, p):
    return p[0] * (1.0 + p[1] * math.cos(p[2] * phi)), -p[0] * p[1] * p[2] * math.sin(p[2] * phi)


@inlined
def _charmm(phi, p):
    return p[0] * (1.0 + math.cos(p[1] * phi - p[2])), -p[0] * p[1] * math.sin(p[1] * phi - p[2])


@inlined
def _opls(phi, p):
    energy = p[0] * (1.0 + math.cos(phi)) + p[1] * (1.0 - math.cos(2.0 * phi))
    energy += p[2] * (1.0 + math.cos(3.0 * phi)) + p[3] * (1.0 - math.cos(4.0 * phi))
    slope = -p[0] * math.sin(phi) + 2.0 * p[1] * math.sin(2.0 * phi)
    slope += -3.0 * p[2] * math.sin(3.0 * phi) + 4.0 * p[3] * math.sin(4.0 * phi)
    return 0.5 * energy, 0.5 * slope


@inlined
def _improper(phi, p):
    away = abs(phi) - p[1]
    return p[0] * away * away, 2.0 * p[0] * away if phi >= 0.0 else -2.0 * p[0] * away


FORMS: dict[str, dict[str, Any]] = {
    "angles": {"harmonic": _bend, "charmm": _bend, "cosine": _cosine},
    "dihedrals": {"harmonic": _harmonic, "charmm": _charmm, "opls": _opls},
    "impropers": {"harmonic": _improper},
}
