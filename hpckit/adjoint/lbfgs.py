"""Minimization of a cost of fields on ranks: L-BFGS, with the same bits on any number of ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hpckit.errors import BlowUpError
from hpckit.grid.field import Field
from hpckit.io.checkpoint.state import Piece, Restored, read_into

__communicates__ = True  # its frames are not call sites
PAIRS = 8  # steps that the curvature is known from
ENOUGH = 1e-4  # share of the forecast decrease that a step must bring (Armijo)
TRIALS = 20

Gradient = Callable[[Sequence[Field]], tuple[float, Sequence[Field]]]


@dataclass(frozen=True)
class Iterate:
    """After an iteration: its number, the cost, the norm of the gradient, how often the cost was computed so far."""

    number: int
    cost: float
    gradient: float
    evaluations: int


class Descent:
    """The state of an L-BFGS minimization between its iterations (Liu and Nocedal 1989, Math. Programming 45, 503-528).

    Collective. gradient: fields -> (cost, its slope in each field). `here` are the fields, `cost` and `slope` those of
    them, `size` the norm of the slope, `number` the iterations done. Sums are reproducible, so every decision is the
    same on any number of ranks. `pieces` and `values` are what a checkpoint keeps; with `restored` it goes on from
    there, with the same bits. Raises `BlowUpError` for a first cost that is not finite.
    """

    def __init__(self, gradient: Gradient, start: Sequence[Field], restored: Restored | None = None) -> None:
        self.gradient, self.here = gradient, [_copy(field) for field in start]
        self.pairs: list[tuple[list[Field], list[Field], float]] = []
        self.number = self.evaluations = 0
        if restored is not None:
            self._restore(restored)
            return
        self.cost, slope = gradient(self.here)
        self.slope = list(slope)
        self.evaluations, self.size = 1, norm(self.slope)
        self.first = self.size
        if not math.isfinite(self.cost + self.first):
            raise BlowUpError(
                f"the cost at the start is {self.cost}, its gradient {self.first}", do="start from a state that runs"
            )

    def step(self) -> bool:
        """One iteration; False, with nothing changed, if no step along the descent lowers the cost enough."""
        way = _direction(self.slope, self.pairs)
        down = dot(self.slope, way)
        length = 1.0 if self.pairs else 1.0 / max(self.size, 1e-300)
        for _ in range(TRIALS):
            there = [_copy(field) for field in self.here]
            add(there, length, way)
            cost, slope = self.gradient(there)
            self.evaluations += 1
            if cost <= self.cost + ENOUGH * length * down:  # false for nan
                break
            length *= 0.5
        else:
            return False
        moved = [_copy(field) for field in there]
        add(moved, -1.0, self.here)
        turned = [_copy(field) for field in slope]
        add(turned, -1.0, self.slope)
        if (curvature := dot(moved, turned)) > 0.0:
            self.pairs = [*self.pairs[-PAIRS + 1 :], (moved, turned, curvature)]
        self.here, self.cost, self.slope = there, cost, list(slope)
        self.size, self.number = norm(self.slope), self.number + 1
        return True

    def pieces(self) -> list[Piece]:
        """The fields of a checkpoint: the point, its gradient, and the pairs that approximate the curvature."""
        groups = {"here": self.here, "slope": self.slope}
        for k, (moved, turned, _) in enumerate(self.pairs):
            groups |= {f"moved{k}": moved, f"turned{k}": turned}
        return [Piece.of_field(field, f"{name}/{n}") for name, each in groups.items() for n, field in enumerate(each)]

    def values(self) -> dict[str, Any]:
        """The numbers of a checkpoint."""
        curvatures = [curvature for _, _, curvature in self.pairs]
        names = ("number", "evaluations", "cost", "size", "first")
        return {"curvatures": curvatures, **{name: getattr(self, name) for name in names}}

    def _restore(self, restored: Restored) -> None:
        values = restored.values["descent"]

        def read(name: str) -> list[Field]:
            fields = [field.like() for field in self.here]
            for n, field in enumerate(fields):
                read_into(restored, field, f"{name}/{n}")
            return fields

        self.number, self.evaluations = values["number"], values["evaluations"]
        self.cost, self.size, self.first = values["cost"], values["size"], values["first"]
        self.here, self.slope = read("here"), read("slope")
        known = enumerate(values["curvatures"])
        self.pairs = [(read(f"moved{k}"), read(f"turned{k}"), curvature) for k, curvature in known]


def minimize(
    gradient: Gradient,
    start: Sequence[Field],
    iterations: int,
    tolerance: float = 1e-6,
    watch: Callable[[Iterate], object] | None = None,
) -> list[Field]:
    """The fields at the lowest cost that L-BFGS finds: a `Descent`.

    It ends after `iterations`, when the gradient has fallen to `tolerance` of the first, or when no step goes down.
    watch: called after each iteration, and before the first.
    """
    it, told = Descent(gradient, start), watch or (lambda _: None)
    told(Iterate(0, it.cost, it.size, it.evaluations))
    while it.number < iterations and it.step():
        told(Iterate(it.number, it.cost, it.size, it.evaluations))
        if it.size <= tolerance * it.first:
            break
    return it.here


def _direction(slope: Sequence[Field], pairs: Sequence[tuple[list[Field], list[Field], float]]) -> list[Field]:
    """Minus the inverse Hessian times the slope, by the two loops over the pairs (Nocedal 1980)."""
    way = [_copy(field) for field in slope]
    shares = []
    for moved, turned, curvature in reversed(pairs):
        shares.append(dot(moved, way) / curvature)
        add(way, -shares[-1], turned)
    scale = pairs[-1][2] / dot(pairs[-1][1], pairs[-1][1]) if pairs else 1.0
    for field in way:
        field.interior[...] *= -scale
    for (moved, turned, curvature), share in zip(pairs, reversed(shares), strict=True):
        add(way, -share - dot(turned, way) / curvature, moved)
    return way


def _copy(field: Field) -> Field:
    made = field.like()
    made.interior[...] = field.interior
    return made


def add(to: Sequence[Field], factor: float, what: Sequence[Field]) -> None:
    """Add factor times the fields `what` to the fields `to`."""
    for own, other in zip(to, what, strict=True):
        own.interior[...] += factor * other.interior


def dot(a: Sequence[Field], b: Sequence[Field]) -> float:
    """The inner product of two lists of fields, the same bits on any number of ranks. Collective."""
    return sum(x.dot(y, repro=True).real for x, y in zip(a, b, strict=True))


def norm(a: Sequence[Field]) -> float:
    """The Euclidean norm of a list of fields. Collective."""
    return math.sqrt(dot(a, a))
