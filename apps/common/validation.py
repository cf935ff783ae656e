"""Computed numbers against expected ones: the findings of a validation, and whether it passes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

VALIDATION = "validation.json"


@dataclass(frozen=True)
class Check:
    """One number: `ours` must lie within `low` … `high`, both included; a number that is not finite misses.

    `expected` is the exact or published value, None if there is only a bound. `source`: its origin.
    """

    case: str
    quantity: str
    ours: float
    low: float
    high: float
    source: str
    expected: float | None = None
    unit: str = ""

    @property
    def passed(self) -> bool:
        """Whether the number is in its range."""
        return math.isfinite(self.ours) and self.low <= self.ours <= self.high

    @property
    def allowed(self) -> str:
        """The range in words: `12 ± 0.5`, `at most 1e-10`, `1 to 2`."""
        if self.expected is not None and math.isclose(self.high - self.expected, self.expected - self.low):
            return f"{self.expected:.6g} ± {self.high - self.expected:.3g}"
        if math.isinf(self.low):
            return f"at most {self.high:.3g}"
        if math.isinf(self.high):
            return f"at least {self.low:.3g}"
        return f"{self.low:.4g} to {self.high:.4g}"

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values; infinite ends become None in JSON."""
        return {**vars(self), "passed": self.passed, "allowed": self.allowed}


@dataclass(frozen=True)
class Curves:
    """Lines to draw: name -> (x, y). `logarithmic` for errors over resolution."""

    title: str
    x_label: str
    y_label: str
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    logarithmic: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        lines = {name: [list(map(float, x)), list(map(float, y))] for name, (x, y) in self.lines.items()}
        return {**vars(self), "lines": lines}


@dataclass(frozen=True)
class Found:
    """The findings of one case of a validation. `pictures`: (folder of a nested run, field, title)."""

    checks: list[Check] = field(default_factory=list)
    curves: list[Curves] = field(default_factory=list)
    pictures: list[tuple[str, str, str]] = field(default_factory=list)


def near(
    case: str, quantity: str, ours: float, expected: float, tolerance: float, source: str, unit: str = ""
) -> Check:
    """Within `tolerance` (absolute) of `expected`."""
    return Check(case, quantity, float(ours), expected - tolerance, expected + tolerance, source, expected, unit)


def at_most(case: str, quantity: str, ours: float, bound: float, source: str, unit: str = "") -> Check:
    """Not above `bound`."""
    return Check(case, quantity, float(ours), -math.inf, bound, source, None, unit)


def at_least(case: str, quantity: str, ours: float, bound: float, source: str, unit: str = "") -> Check:
    """Not below `bound`."""
    return Check(case, quantity, float(ours), bound, math.inf, source, None, unit)


def convergence_order(spacings: Sequence[float], errors: Sequence[float]) -> float:
    """The order of convergence between the two finest grids (the last two)."""
    return math.log(errors[-2] / errors[-1]) / math.log(spacings[-2] / spacings[-1])


def between(case: str, quantity: str, ours: float, low: float, high: float, source: str, unit: str = "1") -> Check:
    """In a range."""
    return Check(case, quantity, float(ours), low, high, source, unit=unit)
