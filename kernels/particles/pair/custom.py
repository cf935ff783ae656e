"""Pair potentials from a Python function of the squared distance: its energy alone, or its force too.

`energy(r2, parameters)` is written with + - * / **, `math.sqrt`, `math.exp`, `math.log`, `max`, `min` and numbers; the
force comes out of it by dual numbers (`compile.dual`), within the same vector loop that the built-in potentials run in.
"""

from __future__ import annotations

import hashlib
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from hpckit.kernels.compile import dual
from hpckit.kernels.compile.jit import compiled, inlined
from hpckit.kernels.particles.loops import REORDERED
from hpckit.kernels.particles.pair.potential import OWN, Potential

NODES = 400  # of the quadrature of tails


def make_potential(
    name: str, energy: Callable, parameters: int, force: Callable | None = None, switched: bool = False
) -> Potential:
    """A potential with `parameters` numbers of its own for each pair of types.

    energy(r2, parameters) -> E; force(r2, parameters) -> -dE/dr / r where it is given, else by dual numbers. switched:
    E is taken to 0 smoothly from an inner distance on, whose square is one more parameter, the last:
    E (rc2 - r2)^2 (rc2 + 2 r2 - 3 ri2) / (rc2 - ri2)^3 (Brooks et al. 1983, J. Comput. Chem. 4).
    """
    function = compiled(energy, math=REORDERED)
    given: Any = None if force is None else compiled(force, math=REORDERED)
    last = OWN + parameters
    seed, value_of, slope_of = dual.force_seed, dual.value_of, dual.slope_of

    @inlined(math=REORDERED)
    def plain(r2, p):
        return function(r2, p[OWN:])

    @inlined(math=REORDERED)
    def faded(r2, p):
        outer, inner = p[0], p[last]
        x = max(r2, inner)
        width = outer - inner
        rest = outer - x
        fade = rest * rest * (outer + 2.0 * x - 3.0 * inner) / (width * width * width)
        return function(r2, p[OWN:last]) * fade

    whole = faded if switched else plain

    @inlined(math=REORDERED)
    def derived(r2, p):
        return slope_of(whole(seed(r2), p))

    @inlined(math=REORDERED)
    def derived_both(r2, p):
        result = whole(seed(r2), p)
        return value_of(result), slope_of(result)

    @inlined(math=REORDERED)
    def own_force(r2, p):
        return given(r2, p[OWN:])

    @inlined(math=REORDERED)
    def own_both(r2, p):
        return function(r2, p[OWN:]), given(r2, p[OWN:])

    key = ("custom", name, fingerprint(energy), fingerprint(force), parameters, switched)
    count = last + (1 if switched else 0)
    pieces = (own_force, own_both) if given is not None and not switched else (derived, derived_both)
    clamp = _may_vanish(energy) or _may_vanish(force)
    return Potential(key, count, *pieces, clamp=clamp, energy=whole if pieces[0] is derived else None)


def tails(energy: Callable, own: np.ndarray, cutoff: float) -> tuple[float, float]:
    """4 pi times the integrals of E r^2 and (r . F) r^2 from the cutoff on, by quadrature in cutoff / r."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    t = 0.5 * (nodes + 1)
    r = cutoff / t
    values = np.array([energy(float(x * x), tuple(own)) for x in r])
    volume = 0.5 * weights * cutoff / t**2 * 4 * np.pi * r**2
    # By parts: the integral of -dE/dr r^3 is E(rc) rc^3 + 3 times that of E r^2.
    energy_tail = float((values * volume).sum())
    at_cutoff = float(energy(cutoff * cutoff, tuple(own)))
    return energy_tail, 4 * np.pi * at_cutoff * cutoff**3 + 3 * energy_tail


def fingerprint(function: Any) -> str | None:
    """A name of all that a function computes: code, constants, and what it refers to; None where that cannot be told.

    Kernels without a name are compiled in every process, in place of being kept on disk.
    """
    parts: list[str] = []
    return hashlib.sha256("\0".join(parts).encode()).hexdigest() if _describe(function, parts, set()) else None


def _may_vanish(function: Any) -> bool:
    """Whether a function has exponentials, which lose all their bits far out: or may have, as one cannot tell."""
    parts: list[str] = []
    return not _describe(function, parts, set()) or any("exp" in part or "pow" in part for part in parts)


def _describe(value: Any, parts: list[str], seen: set[int]) -> bool:
    value = getattr(value, "py_func", value)
    if isinstance(value, types.ModuleType):
        parts.append(value.__name__)
        return True
    if value is None or isinstance(value, bool | int | float | str | np.number):
        parts.append(repr(value))
        return True
    if isinstance(value, tuple):
        return all(_describe(each, parts, seen) for each in value)
    if isinstance(value, types.BuiltinFunctionType):
        parts.append(f"{value.__module__}.{value.__qualname__}")
        return True
    if not isinstance(value, types.FunctionType):
        return False
    if id(value) in seen:
        return True
    seen.add(id(value))
    code = value.__code__
    parts += [code.co_code.hex(), repr(code.co_consts), repr(code.co_names), repr(value.__defaults__)]
    held = [cell.cell_contents for cell in value.__closure__ or ()]
    named = [value.__globals__[name] for name in code.co_names if name in value.__globals__]
    return all(_describe(each, parts, seen) for each in (*held, *named))
