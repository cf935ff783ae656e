"""Rotary positions: the angles by which pairs of numbers turn from token to token."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class RopeScaling:
    """Slows the rotation of a model that was trained on `original` tokens, so that it can use `factor` times as many.

    Pairs with more than `high` rotations within `original` tokens keep their speed, pairs with fewer than `low` turn
    slower by `factor`, with a straight line between (Llama 3.1, "The Llama 3 herd of models", 2024).
    With low = high = inf all pairs turn slower by `factor` (Chen et al., "Extending context window", 2023); with
    `factors` each by its own, as GGUF files say it.
    """

    factor: float
    low: float = math.inf
    high: float = math.inf
    original: int = 1
    factors: tuple[float, ...] = ()

    def scaled(self, speeds: np.ndarray) -> np.ndarray:
        """The slowed speeds of the pairs, radians per token."""
        if self.factors:
            return speeds / np.array(self.factors)
        if math.isinf(self.low):
            return speeds / self.factor
        rounds = self.original * speeds / (2 * math.pi)
        kept = np.clip((rounds - self.low) / (self.high - self.low), 0, 1)
        return speeds * (kept + (1 - kept) / self.factor)


def rope_kind(config: dict[str, Any]) -> str:
    """How a config.json of transformers turns positions: `default`, `linear`, `llama3` or another kind."""
    rope = _described(config)
    return str(rope.get("rope_type", rope.get("type", "default")))


def rope_scaling(config: dict[str, Any]) -> RopeScaling | None:
    """The scaling that it asks for, of the kinds `linear`, `llama3` and `factors`; None for others."""
    kind, rope = rope_kind(config), _described(config)
    if kind == "linear":
        return RopeScaling(_factor(rope["factor"]))
    if kind == "llama3":
        low, high = _factor(rope["low_freq_factor"]), _factor(rope["high_freq_factor"])
        return RopeScaling(_factor(rope["factor"]), low, high, int(rope["original_max_position_embeddings"]))
    if kind == "factors":
        return RopeScaling(1.0, factors=tuple(_factor(one) for one in rope["factors"]))
    return None


def _factor(given: Any) -> float:
    factor = float(given)
    if not 0.0 < factor < math.inf:
        raise ValueError(f"positions scaled by {factor}")
    return factor


def _described(config: dict[str, Any]) -> dict[str, Any]:
    return config.get("rope_scaling") or config.get("rope_parameters") or {}


@functools.lru_cache(maxsize=8)
def angles(length: int, width: int, base: float, scaling: RopeScaling | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine of t base^(-2 i / width), float64 [length, width / 2]: Su et al. 2021, section 3.2.2."""
    speeds = base ** (-2 * np.arange(width // 2) / width)
    turns = np.arange(length)[:, None] * (speeds if scaling is None else scaling.scaled(speeds))
    return np.cos(turns), np.sin(turns)
