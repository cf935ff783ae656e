"""Minimization of a cost of fields on ranks: L-BFGS, with the same bits on any number of ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hpckit.errors import BlowUpError
from hpckit.grid.field import Field

__communicates__ = True  # its frames are not call sites
PAIRS = 8  # steps that the curvature is known from
ENOUGH = 1e-4  # share of the forecast decrease that a step must bring (Armijo)
TRIALS = 20


@dataclass(frozen=True)
class Iterate:
    """After an iteration: its number, the cost, the norm of the gradient, how often the cost was computed so far."""

    number: int
    cost: float
    gradient: float
    evaluations: int


def minimize(
    gradient: Callable[[Sequence[Field]], tuple[float, Sequence[Field]]],
    start: Sequence[Field],
    iterations: int,
    tolerance: float = 1e-6,
    watch: Callable[[Iterate], object] | None = None,
) -> list[Field]:
    """The fields at the lowest cost that L-BFGS finds (Liu and Nocedal 1989, Math. Programming 45, 503-528).

    Collective. gradient: fields -> (cost, its slope in each field). It ends after `iterations`, when the gradient has
    fallen to `tolerance` of the first, or when no step goes down. Sums are reproducible, so every decision is the same
    on any number of ranks. watch: called after each iteration, and before the first. Raises `BlowUpError` for a first
    cost that is not finite.
    """
    here = [_copy(field) for field in start]
    cost, slope = gradient(here)
    evaluations, first = 1, math.sqrt(_dot(slope, slope))
    if not math.isfinite(cost + first):
        raise BlowUpError(f"the cost at the start is {cost}, its gradient {first}", do="start from a state that runs")
    told = watch or (lambda _: None)
    told(Iterate(0, cost, first, evaluations))
    pairs: list[tuple[list[Field], list[Field], float]] = []
    for number in range(1, iterations + 1):
        way = _direction(slope, pairs)
        down = _dot(slope, way)
        length = 1.0 if pairs else 1.0 / max(math.sqrt(_dot(slope, slope)), 1e-300)
        for _ in range(TRIALS):
            there = [_copy(field) for field in here]
            _add(there, length, way)
            next_cost, next_slope = gradient(there)
            evaluations += 1
            if next_cost <= cost + ENOUGH * length * down:  # false for nan
                break
            length *= 0.5
        else:
            return here
        moved = [_copy(field) for field in there]
        _add(moved, -1.0, here)
        turned = [_copy(field) for field in next_slope]
        _add(turned, -1.0, slope)
        if (curvature := _dot(moved, turned)) > 0.0:
            pairs = [*pairs[-PAIRS + 1 :], (moved, turned, curvature)]
        here, cost, slope = there, next_cost, next_slope
        size = math.sqrt(_dot(slope, slope))
        told(Iterate(number, cost, size, evaluations))
        if size <= tolerance * first:
            break
    return here


def _direction(slope: Sequence[Field], pairs: Sequence[tuple[list[Field], list[Field], float]]) -> list[Field]:
    """Minus the inverse Hessian times the slope, by the two loops over the pairs (Nocedal 1980)."""
    way = [_copy(field) for field in slope]
    shares = []
    for moved, turned, curvature in reversed(pairs):
        shares.append(_dot(moved, way) / curvature)
        _add(way, -shares[-1], turned)
    scale = pairs[-1][2] / _dot(pairs[-1][1], pairs[-1][1]) if pairs else 1.0
    for field in way:
        field.interior[...] *= -scale
    for (moved, turned, curvature), share in zip(pairs, reversed(shares), strict=True):
        _add(way, -share - _dot(turned, way) / curvature, moved)
    return way


def _copy(field: Field) -> Field:
    made = field.like()
    made.interior[...] = field.interior
    return made


def _add(to: Sequence[Field], factor: float, what: Sequence[Field]) -> None:
    for own, other in zip(to, what, strict=True):
        own.interior[...] += factor * other.interior


def _dot(a: Sequence[Field], b: Sequence[Field]) -> float:
    return sum(x.dot(y, repro=True).real for x, y in zip(a, b, strict=True))
