"""The energies of angles, dihedrals and impropers, as LAMMPS names and defines them: functions of cosine and sine of
the angle, the parameters p and the largest number of maxima in a turn, which return the energy and its derivative by
the angle. They are written for numbers and for vectors of them (`compile.vectors`).

Angles have theta at the second of three particles. harmonic: K (theta - theta0)^2. charmm: the same, and between first
and third K_ub (r - r_ub)^2 (Urey and Bradley). cosine: K (1 + cos theta).

Dihedrals have phi around the bond of the second and third of four particles, from -pi to pi, 0 for cis. harmonic:
K (1 + d cos(n phi)). charmm: K (1 + cos(n phi - d)). opls: 1/2 (K1 (1 + cos phi) + K2 (1 - cos 2 phi) +
K3 (1 + cos 3 phi) + K4 (1 - cos 4 phi)). Impropers have |phi| of their four. harmonic: K (chi - chi0)^2.

Angles are in degrees in files and settings; `prepared` makes of their parameters what the functions take.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

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
WIDTH = 4  # of the parameters of a type, as a vector of types loads them


def prepared(name: str, kind: str, parameters: np.ndarray) -> np.ndarray:
    """The parameters of types [types, of the form] as the functions take them, in rows of four: angles in radians; of
    charmm dihedrals the cosine and the sine of d in the places of d and of the weight.
    """
    found = np.zeros((len(parameters), WIDTH))
    found[:, : np.shape(parameters)[1]] = parameters
    if name in ("angles", "impropers") and kind != "cosine":
        found[:, 1] = np.radians(found[:, 1])
    elif (name, kind) == ("dihedrals", "charmm"):
        angle = np.radians(found[:, 2])
        found[:, 2], found[:, 3] = np.cos(angle), np.sin(angle)
    return found


def maxima(name: str, kind: str, parameters: np.ndarray) -> int:
    """The largest number of maxima in a turn of any type, at least 1."""
    names = NAMES[name][kind]
    return max(1, int(parameters[..., names.index("n")].max(initial=1.0))) if "n" in names else 1


@inlined
def _bend(c, s, p, most):
    away = math.atan2(s, c) - p[1]
    return p[0] * away * away, 2.0 * p[0] * away


@inlined
def _cosine(c, s, p, most):
    return p[0] * (1.0 + c), -p[0] * s


@inlined
def _multiple(n, c, s, most):
    """Cosine and sine of n angles of these, of n up to `most`."""
    turned = min(1.0, max(0.0, n))  # 1 or 0: whether there is another one
    found_c, found_s = turned * c + (1.0 - turned), turned * s
    for k in range(1, most):
        turned = min(1.0, max(0.0, n - k))
        one_c, one_s = turned * c + (1.0 - turned), turned * s
        found_c, found_s = found_c * one_c - found_s * one_s, found_s * one_c + found_c * one_s
    return found_c, found_s


@inlined
def _harmonic(c, s, p, most):
    many_c, many_s = _multiple(p[2], c, s, most)
    return p[0] * (1.0 + p[1] * many_c), -p[0] * p[1] * p[2] * many_s


@inlined
def _charmm(c, s, p, most):
    many_c, many_s = _multiple(p[1], c, s, most)
    return p[0] * (1.0 + (many_c * p[2] + many_s * p[3])), -p[0] * p[1] * (many_s * p[2] - many_c * p[3])


@inlined
def _opls(c, s, p, most):
    c2, s2 = c * c - s * s, 2.0 * s * c
    c3, s3 = c2 * c - s2 * s, s2 * c + c2 * s
    c4, s4 = c2 * c2 - s2 * s2, 2.0 * s2 * c2
    energy = p[0] * (1.0 + c) + p[1] * (1.0 - c2) + p[2] * (1.0 + c3) + p[3] * (1.0 - c4)
    slope = -p[0] * s + 2.0 * p[1] * s2 - 3.0 * p[2] * s3 + 4.0 * p[3] * s4
    return 0.5 * energy, 0.5 * slope


@inlined
def _improper(c, s, p, most):
    size = max(s, -s)
    away = math.atan2(size, c) - p[1]
    return p[0] * away * away, 2.0 * p[0] * away * (s / max(size, 1e-300))


FORMS: dict[str, dict[str, Any]] = {
    "angles": {"harmonic": _bend, "charmm": _bend, "cosine": _cosine},
    "dihedrals": {"harmonic": _harmonic, "charmm": _charmm, "opls": _opls},
    "impropers": {"harmonic": _improper},
}


@cache
def bending(kind: str) -> Any:
    """The piece (a, b, p, most), as six numbers, the parameters and `maxima`: the energy of an angle between the ways a
    and b from the second particle to the first and the third, and the forces on the first and the third.
    """
    form, urey_bradley = FORMS["angles"][kind], kind == "charmm"

    @inlined
    def bend(ax, ay, az, bx, by, bz, p, most):
        aa, bb = ax * ax + ay * ay + az * az, bx * bx + by * by + bz * bz
        ab = 1.0 / math.sqrt(aa * bb)
        c = min(1.0, max(-1.0, (ax * bx + ay * by + az * bz) * ab))
        s = math.sqrt((1.0 - c) * (1.0 + c))
        energy, slope = form(c, s, p, most)
        pull = slope / max(s, 1e-3)
        across, own_a, own_b = pull * ab, -pull * c / aa, -pull * c / bb
        fx, fy, fz = across * bx + own_a * ax, across * by + own_a * ay, across * bz + own_a * az
        hx, hy, hz = across * ax + own_b * bx, across * ay + own_b * by, across * az + own_b * bz
        if urey_bradley:
            dx, dy, dz = ax - bx, ay - by, az - bz
            r = math.sqrt(dx * dx + dy * dy + dz * dz)
            away = r - p[3]
            energy = energy + p[2] * away * away
            along = -2.0 * p[2] * away / r
            fx, fy, fz = fx + along * dx, fy + along * dy, fz + along * dz
            hx, hy, hz = hx - along * dx, hy - along * dy, hz - along * dz
        return energy, fx, fy, fz, hx, hy, hz

    return bend


@cache
def turning(name: str, kind: str) -> Any:
    """The piece (u, g, h, p, most), as nine numbers, the parameters and `maxima`: the energy of a dihedral or improper
    of the ways u to the first particle from the second, g to the second from the third and h to the fourth from the
    third; the force on the first, c, and the forces on the third and the fourth. On the second is c less the force on
    the first.
    """
    form = FORMS[name][kind]

    @inlined
    def turn(ux, uy, uz, gx, gy, gz, hx, hy, hz, p, most):
        ax, ay, az = uy * gz - uz * gy, uz * gx - ux * gz, ux * gy - uy * gx
        bx, by, bz = hy * gz - hz * gy, hz * gx - hx * gz, hx * gy - hy * gx
        length = math.sqrt(gx * gx + gy * gy + gz * gz)
        shorter = 1.0 / length
        sx, sy, sz = by * az - bz * ay, bz * ax - bx * az, bx * ay - by * ax
        sine, cosine = (sx * gx + sy * gy + sz * gz) * shorter, ax * bx + ay * by + az * bz
        scale = 1.0 / math.sqrt(sine * sine + cosine * cosine)
        energy, slope = form(cosine * scale, sine * scale, p, most)
        aa, bb = 1.0 / (ax * ax + ay * ay + az * az), 1.0 / (bx * bx + by * by + bz * bz)
        first, last = slope * length * aa, -slope * length * bb
        by_a = -slope * (ux * gx + uy * gy + uz * gz) * shorter * aa
        by_b = slope * (hx * gx + hy * gy + hz * gz) * shorter * bb
        fx, fy, fz = first * ax, first * ay, first * az
        lx, ly, lz = last * bx, last * by, last * bz
        cx, cy, cz = by_a * ax + by_b * bx, by_a * ay + by_b * by, by_a * az + by_b * bz
        return energy, fx, fy, fz, cx, cy, cz, -lx - cx, -ly - cy, -lz - cz, lx, ly, lz

    return turn
