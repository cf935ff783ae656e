"""Tests of derivatives: the dot-product test and the Taylor test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpckit.adjoint.finite import require_finite
from hpckit.adjoint.models import TracedModel, jvp_graph, vjp
from hpckit.grid.field import Field

__communicates__ = True  # its frames are not call sites


@dataclass(frozen=True)
class AdjointCheck:
    """product: |<J x, y> - <x, J' y>| over |<J x, y>| for random x and y: rounding, about 1e-15.

    order: how the error of the linear forecast of <f(a + h x), y> falls with h: 2 (nan where it is only rounding).
    """

    product: float
    order: float

    @property
    def passed(self) -> bool:
        """Whether the product is below 1e-13 and the order 2, to 5 %."""
        return self.product < 1e-13 and (math.isnan(self.order) or abs(self.order - 2) < 0.1)


def check(step: TracedModel, *args: Any, seed: int = 0, size: float = 1e-4, **options: Any) -> AdjointCheck:
    """Both tests of a model at its arguments, in random directions that do not depend on the number of ranks.

    size: of the larger of the two changes of the Taylor test, relative to the size of each argument (to 1 where it is
    0). Collective. Raises `BlowUpError` if a value or a change of it is nan or inf: the operation, its line and cell.
    """
    rng = np.random.default_rng(seed)
    changes = [_random(arg, rng, _size(arg)) for arg in args]
    graph = jvp_graph(step.graph(*args, **options), [True] * len(args))
    values = [value if isinstance(value, Field) else float(value) for value in (*args, *changes)]
    found = require_finite(step.bound(graph, args), dict(zip(graph.inputs, values, strict=True)))
    results, moved = found[: len(found) // 2], found[len(found) // 2 :]
    seeds = [_random(each, rng, 1.0) for each in results]
    _, pull = vjp(step, *args, **options)
    ahead = _dot(moved, seeds)
    back = _dot(pull(*seeds), changes)
    base = _dot(results, seeds)
    errors = []
    for h in (size, size / 10):
        there = [_moved(arg, change, h) for arg, change in zip(args, changes, strict=True)]
        far = step(*there, **options)
        errors.append(abs(_dot(far if isinstance(far, tuple) else (far,), seeds) - base - h * ahead))
    linear = errors[1] < 1e-12 * max(abs(base), abs(ahead))
    order = math.nan if linear else math.log10(errors[0] / errors[1])
    return AdjointCheck(abs(ahead - back) / max(abs(ahead), np.finfo(float).tiny), order)


def _size(arg: Any) -> float:
    size = arg.norm(math.inf) if isinstance(arg, Field) else abs(float(arg))
    return size or 1.0


def _random(like: Any, rng: np.random.Generator, size: float) -> Any:
    """Normal numbers, the same in every global cell for any number of ranks."""
    if not isinstance(like, Field):
        return size * float(rng.standard_normal())
    whole = rng.standard_normal(like.decomposition.global_shape)
    found = like.like()
    dec, rank = like.decomposition, like.mesh.rank
    part = tuple(slice(a, a + n) for a, n in zip(dec.start(rank), dec.owned(rank), strict=True))
    found.set_from_host(size * whole[part])
    return found


def _moved(arg: Any, change: Any, h: float) -> Any:
    if not isinstance(arg, Field):
        return arg + h * change
    found = arg.like()
    found.interior[...] = arg.interior + h * change.interior
    return found


def _dot(a: Sequence[Any], b: Sequence[Any]) -> float:
    pairs = zip(a, b, strict=True)
    return math.fsum(x.dot(y, repro=True).real if isinstance(x, Field) else x * y for x, y in pairs)
