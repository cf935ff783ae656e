"""The energies of bonds: functions of the squared length r2 and the parameters p, as LAMMPS names and defines them.

harmonic: K (r - r0)^2. morse: D (1 - exp(-alpha (r - r0)))^2. fene: -K R0^2 / 2 ln(1 - (r / R0)^2), and Lennard-Jones
of epsilon and sigma up to its minimum, raised to 0 there (Kremer and Grest, J. Chem. Phys. 92, 1990); nan from R0 on.
"""

from __future__ import annotations

import math
from typing import Any

from hpckit.kernels.compile.jit import inlined

NAMES = {"harmonic": ("K", "r0"), "morse": ("D", "alpha", "r0"), "fene": ("K", "R0", "epsilon", "sigma")}


@inlined
def _harmonic(r2, p):
    r = math.sqrt(r2)
    away = r - p[1]
    return p[0] * away * away, -2.0 * p[0] * away / r


@inlined
def _morse(r2, p):
    r = math.sqrt(r2)
    fade = math.exp(-p[1] * (r - p[2]))
    return p[0] * (1.0 - fade) * (1.0 - fade), -2.0 * p[0] * p[1] * (1.0 - fade) * fade / r


@inlined
def _fene(r2, p):
    longest2, inverse = p[1] * p[1], 1.0 / r2
    left = longest2 - r2
    energy = -0.5 * p[0] * longest2 * math.log(left / longest2) if left > 0.0 else math.nan
    force = -p[0] * longest2 / left
    y = p[3] * p[3] * inverse
    y3 = y * y * y
    near = y3 > 0.5  # r below 2^(1/6) sigma
    energy += 4.0 * p[2] * y3 * (y3 - 1.0) + p[2] if near else 0.0
    force += 48.0 * p[2] * y3 * (y3 - 0.5) * inverse if near else 0.0
    return energy, force


FORMS: dict[str, Any] = {"harmonic": _harmonic, "morse": _morse, "fene": _fene}
