"""What Coulomb's 1/r becomes within the cutoff: E = q q' (1/r + a r - P(r^2)), P a polynomial of r^2.

A cut, a reaction field, damped and shifted charges and the near part of Ewald's sum are all of this form: erf(g r) / r
is an entire function of r^2, whose Chebyshev polynomial needs neither exponential nor division. The force is the exact
derivative of this energy. The second kind, `as_lammps`, computes erfc as LAMMPS does without tables (Abramowitz and
Stegun 1964, 7.1.26, within 1.5e-7), for comparisons; the third, `tabulated`, as it does with them: by that formula
where its tables have not begun, exactly beyond; the fourth, `halved`, is the first with a force in half the products;
the fifth, `debye`, is exp(-k r)/r, which is not of this form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

import hpckit.kernels.compile.functions  # noqa: F401  (math.sqrt and math.exp of vectors)
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.particles.loops import REORDERED

REACH2 = 0  # of the constants: the squared cutoff
SCALE, SLOPE, FIRST = 1, 2, 3  # then r^2 to [-1, 1], a, the coefficients of P, those of 2 dP/d(r^2)
MOST_DEGREE, ENOUGH = 30, 1e-13  # of P; error of P times the cutoff, where no other is asked for
# Abramowitz and Stegun 7.1.26; 2 / sqrt(pi) in nine digits.
POINT, FACTORS = 0.3275911, (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
TWO_OVER_ROOT = 1.12837917
TABLES2 = 2.0  # squared distance at which LAMMPS's tables begin


@dataclass(frozen=True, eq=False)
class Screening:
    """kind: smooth, as_lammps, tabulated, halved or debye; degree: of P; constants: float64, as the kernels read them;
    cutoff: of the charges.

    damping: g of erfc(g r), 0 without; own: the energy of a charge with itself, per squared charge.
    """

    kind: str
    degree: int
    constants: np.ndarray
    cutoff: float
    damping: float = 0.0
    own: float = 0.0

    @property
    def key(self) -> tuple:
        """What is compiled into kernels."""
        return self.kind, self.degree


def cut(cutoff: float) -> Screening:
    """1/r up to the cutoff: `coul/cut` of LAMMPS."""
    return _smooth(np.zeros(1), cutoff)


def debye(cutoff: float, screening: float) -> Screening:
    """exp(-k r)/r up to the cutoff, charges among mobile ions (Debye and Hueckel 1923): `coul/debye` of LAMMPS.

    screening: k, an inverse length.
    """
    return Screening("debye", 0, np.array([cutoff**2, screening]), cutoff)


def reaction_field(cutoff: float, dielectric: float) -> Screening:
    """1/r + k r^2 - c beyond which is a medium (Tironi et al. 1995, J. Chem. Phys. 102, 5451); inf: a conductor."""
    k = 0.5 if math.isinf(dielectric) else (dielectric - 1) / (2 * dielectric + 1)
    # c - k (r / rc)^2, as a polynomial of s = 2 (r / rc)^2 - 1.
    return _smooth(np.array([1.0 + 0.5 * k, -0.5 * k]) / cutoff, cutoff)


def damped_shifted(cutoff: float, damping: float, as_lammps: bool = False) -> Screening:
    """Force and energy go to 0 at the cutoff (Fennell and Gezelter 2006, J. Chem. Phys. 124, 234104): `coul/dsf`."""
    edge, fade = math.erfc(damping * cutoff), math.exp(-((damping * cutoff) ** 2))
    slope = edge / cutoff**2 + 2 * damping / math.sqrt(math.pi) * fade / cutoff
    level = edge / cutoff + slope * cutoff
    own = -(0.5 * level + damping / math.sqrt(math.pi))
    return _damped(cutoff, damping, slope, level, own, as_lammps)


def near_part(cutoff: float, damping: float, as_lammps: bool = False, error: float = ENOUGH) -> Screening:
    """erfc(g r) / r, the part of Ewald's sum that pairs have, with an error of at most `error` over the cutoff."""
    return _damped(cutoff, damping, 0.0, 0.0, 0.0, as_lammps, error)


def halved(exact: Screening, error: float) -> Screening:
    """A smooth screening whose force takes half the products, in float64, where that costs at most `error` over the
    cutoff; else the same.

    A polynomial of odd degree is (… ((a y + b)(w - r1) + t1)(w - r2) + …) with w = y^2, where the odd powers of y have
    the roots r1, r2, … in w (Knuth 1962, Commun. ACM 5, 595). They are real for y = s + shift, if most roots of the
    polynomial lie on one side of that (Eve 1964, Numer. Math. 6, 17). The shift costs digits: the best one is taken.
    """
    slopes = exact.constants[FIRST + exact.degree + 1 :]
    if exact.kind != "smooth" or exact.degree < 4 or exact.degree % 2:
        return exact
    s = np.linspace(-1.0, 1.0, 1001)
    wanted, found_at = np.polynomial.polynomial.polyval(s, slopes), None
    least = 10 * error / exact.cutoff**3  # about what the slopes are off
    for shift in np.arange(-3.0, 3.01, 0.05):
        steps = _by_squares(slopes, shift)
        if steps is not None:
            y = s + shift
            found = steps[0] * y + steps[1]
            for root, rest in steps[2:].reshape(-1, 2):
                found = found * (y * y - root) + rest
            off = float(np.abs(found - wanted).max())
            if off < least:
                least, found_at = off, np.array([shift - 1.0, *steps])
    if found_at is None:
        return exact
    return replace(exact, kind="halved", constants=np.concatenate([exact.constants, found_at]))


def _by_squares(coefficients: np.ndarray, shift: float) -> np.ndarray | None:
    """a, b, r1, t1, r2, t2, … of a polynomial of s, see `halved`; None where a root is not real."""
    shifted = np.zeros(1)
    for each in coefficients[::-1]:
        shifted = np.polynomial.polynomial.polyadd(np.polynomial.polynomial.polymul(shifted, [-shift, 1.0]), [each])
    even, odd = shifted[0::2], shifted[1::2]
    roots = np.polynomial.polynomial.polyroots(odd)
    if (np.abs(roots.imag) > 1e-9 * np.abs(roots).max()).any():
        return None
    rests: list[float] = []
    for root in np.sort(roots.real)[::-1]:  # the other way around digits are lost
        even, rest = np.polynomial.polynomial.polydiv(even, [-root, 1.0])
        rests = [root, rest[0], *rests]
    return np.array([odd[-1], even[0], *rests])


def tabulated(exact: Screening) -> Screening:
    """A `near_part`, but up to a squared distance of TABLES2 by LAMMPS's formula."""
    formula = near_part(exact.cutoff, exact.damping, as_lammps=True)
    constants = np.concatenate([exact.constants[: count_of("smooth", exact.degree)], formula.constants[1:]])
    return replace(exact, kind="tabulated", constants=constants)


def _damped(
    cutoff: float, damping: float, slope: float, level: float, own: float, as_lammps: bool, error: float = ENOUGH
) -> Screening:
    if as_lammps:
        two = 2 / math.sqrt(math.pi) if slope else TWO_OVER_ROOT  # of Ewald's sum LAMMPS has nine digits
        return Screening("as_lammps", 0, np.array([cutoff**2, damping, slope, level, two]), cutoff, damping, own)

    def smooth(s: np.ndarray) -> np.ndarray:
        r = cutoff * np.sqrt(0.5 * (s + 1))
        errors = np.array([math.erf(damping * x) for x in r])
        return np.where(r > 0, errors / np.where(r > 0, r, 1.0), 2 * damping / math.sqrt(math.pi)) + level

    points = np.polynomial.chebyshev.chebpts1(4 * MOST_DEGREE)
    whole = np.polynomial.chebyshev.chebfit(points, smooth(points), MOST_DEGREE)
    tails = np.abs(whole)[::-1].cumsum()[::-1] * cutoff
    degree = int(np.argmax(tails < error)) if (tails < error).any() else MOST_DEGREE
    if error > ENOUGH:
        degree += degree % 2
    found = _smooth(np.polynomial.chebyshev.cheb2poly(whole[: max(degree, 1) + 1]), cutoff, slope)
    return Screening(found.kind, found.degree, found.constants, cutoff, damping, own)


def _smooth(coefficients: np.ndarray, cutoff: float, slope: float = 0.0) -> Screening:
    """P by its coefficients of powers of s = 2 (r / cutoff)^2 - 1."""
    scale = 2.0 / cutoff**2
    slopes = 2.0 * scale * np.polynomial.polynomial.polyder(coefficients)
    constants = np.concatenate([[cutoff**2, scale, slope], coefficients, slopes])
    return Screening("smooth", len(coefficients) - 1, constants, cutoff)


def count_of(kind: str, degree: int) -> int:
    """How many constants the functions read."""
    smooth = FIRST + degree + 1 + max(degree, 1)
    more = {"tabulated": 4, "halved": degree + 1}
    return {"as_lammps": 5, "debye": 2}.get(kind) or smooth + more.get(kind, 0)


@cache
def functions(kind: str, degree: int) -> tuple[Any, Any]:
    """The pieces force(r2, c), -dE/dr / r, and energy_and_force(r2, c) of a unit of charges; c: the constants."""
    own_force, own_both = by_inverse(kind, degree)

    @inlined(math=REORDERED)
    def force(r2, c):
        return own_force(1.0 / math.sqrt(r2), r2, c)

    @inlined(math=REORDERED)
    def energy_and_force(r2, c):
        return own_both(1.0 / math.sqrt(r2), r2, c)

    return force, energy_and_force


@cache
def by_inverse(kind: str, degree: int) -> tuple[Any, Any]:
    """`functions` of (1/r, r2, c), for loops that have the inverse at hand."""
    if kind == "halved":
        return _halved(degree)
    if kind == "debye":
        return _debye()
    if kind == "tabulated":
        return _either(_as_lammps(count_of("smooth", degree)), _polynomial(degree))
    return _as_lammps(1) if kind == "as_lammps" else _polynomial(degree)


def _polynomial(degree: int) -> tuple[Any, Any]:
    energy, slope = _polynomial_of(degree, FIRST), _polynomial_of(max(degree - 1, 0), FIRST + degree + 1)

    @inlined(math=REORDERED)
    def force(y, r2, c):
        return y * (y * y - c[2]) + slope(c[1] * r2 - 1.0, c)

    @inlined(math=REORDERED)
    def energy_and_force(y, r2, c):
        s = c[1] * r2 - 1.0
        return y + c[2] * (r2 * y) - energy(s, c), y * (y * y - c[2]) + slope(s, c)

    return force, energy_and_force


def _debye() -> tuple[Any, Any]:
    @inlined(math=REORDERED)
    def energy_and_force(y, r2, c):
        energy = y * math.exp(-c[1] * (r2 * y))
        return energy, energy * (y + c[1]) * y

    @inlined(math=REORDERED)
    def force(y, r2, c):
        return energy_and_force(y, r2, c)[1]

    return force, energy_and_force


def _halved(degree: int) -> tuple[Any, Any]:
    first = count_of("smooth", degree)
    energy, steps = _polynomial_of(degree, FIRST), _steps(degree // 2 - 1, first + 1)

    @inlined(math=REORDERED)
    def slope(r2, c):
        y = c[1] * r2 + c[first]
        return steps(y, y * y, c)

    @inlined(math=REORDERED)
    def force(y, r2, c):
        return y * (y * y - c[2]) + slope(r2, c)

    @inlined(math=REORDERED)
    def energy_and_force(y, r2, c):
        return y + c[2] * (r2 * y) - energy(c[1] * r2 - 1.0, c), force(y, r2, c)

    return force, energy_and_force


def _steps(count: int, first: int) -> Any:
    """`count` steps of `halved`; c[first], …: a, b and what each step takes."""
    second = first + 1
    if count == 0:

        @inlined(math=REORDERED)
        def value(y, w, c):
            return c[first] * y + c[second]

    else:
        before, root, rest = _steps(count - 1, first), first + 2 * count, first + 2 * count + 1

        @inlined(math=REORDERED)
        def value(y, w, c):
            return before(y, w, c) * (w - c[root]) + c[rest]

    return value


def _polynomial_of(degree: int, first: int) -> Any:
    """The piece (s, c) for a polynomial whose coefficients are c[first], …, as two of s^2: those of even powers, and
    those of odd ones. One chain of products as long as the degree would keep the processor waiting.
    """
    even, odd = _horner(degree // 2 + 1, first), _horner((degree + 1) // 2, first + 1)

    @inlined(math=REORDERED)
    def value(s, c):
        s2 = s * s
        return even(s2, c) + s * odd(s2, c)

    @inlined(math=REORDERED)
    def constant(s, c):
        return s * 0.0 + c[first]

    return value if degree else constant


def _horner(count: int, first: int) -> Any:
    """Every second of `count` coefficients from c[first]."""
    if count <= 1:

        @inlined(math=REORDERED)
        def value(x, c):
            return c[first]

    else:
        rest = _horner(count - 1, first + 2)

        @inlined(math=REORDERED)
        def value(x, c):
            return c[first] + x * rest(x, c)

    return value


def _either(near: tuple[Any, Any], far: tuple[Any, Any]) -> tuple[Any, Any]:
    """Numbers only, not vectors: one up to TABLES2, the other beyond."""
    (near_force, near_both), (far_force, far_both) = near, far

    @inlined(math=REORDERED)
    def force(y, r2, c):
        return near_force(y, r2, c) if r2 < TABLES2 else far_force(y, r2, c)

    @inlined(math=REORDERED)
    def energy_and_force(y, r2, c):
        return near_both(y, r2, c) if r2 < TABLES2 else far_both(y, r2, c)

    return force, energy_and_force


def _as_lammps(first: int) -> tuple[Any, Any]:
    """c[first], …: the damping, a, the level and 2 / sqrt(pi)."""
    a, b, c3, d, e = FACTORS
    point, second, third, fourth = POINT, first + 1, first + 2, first + 3

    @inlined
    def both(y, r2, c):
        x = c[first] * (r2 * y)
        fade = math.exp(-(x * x))
        t = 1.0 / (1.0 + point * x)
        rest = t * (a + t * (b + t * (c3 + t * (d + t * e)))) * fade
        energy = rest * y + c[second] * (r2 * y) - c[third]
        return energy, ((rest + c[fourth] * x * fade) * y * y - c[second]) * y

    @inlined
    def force(y, r2, c):
        return both(y, r2, c)[1]

    return force, both
