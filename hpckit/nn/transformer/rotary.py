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
    `factors` each by its own, as GGUF files say it. yarn: the straight line goes over the numbers of the pairs, from
    that of `high` rotations to that of `low`, whole ones if `whole`, and cosines and sines are multiplied by `gain`
    (Peng et al., "YaRN", 2023).
    """

    factor: float
    low: float = math.inf
    high: float = math.inf
    original: int = 1
    factors: tuple[float, ...] = ()
    yarn: bool = False
    whole: bool = True
    gain: float = 1.0

    def scaled(self, speeds: np.ndarray, base: float) -> np.ndarray:
        """The slowed speeds of the pairs, radians per token; base: of which they are powers."""
        if self.factors:
            return speeds / np.array(self.factors)
        if math.isinf(self.low):
            return speeds / self.factor
        if self.yarn:
            kept = self._kept(len(speeds), base)
        else:
            rounds = self.original * speeds / (2 * math.pi)
            kept = np.clip((rounds - self.low) / (self.high - self.low), 0, 1)
        return speeds * (kept + (1 - kept) / self.factor)

    def _kept(self, pairs: int, base: float) -> np.ndarray:
        """The share of its speed that each pair keeps."""
        first, last = (
            pairs * math.log(self.original / (rounds * 2 * math.pi)) / math.log(base)
            for rounds in (self.high, self.low)
        )
        if self.whole:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, 2 * pairs - 1)
        last += 0.001 * (first == last)  # transformers' way out of a division by zero
        return 1 - np.clip((np.arange(pairs) - first) / (last - first), 0, 1)


def rope_kind(config: dict[str, Any]) -> str:
    """How a config.json of transformers turns positions: `default`, `linear`, `llama3`, `yarn` or another kind."""
    rope = _described(config)
    return str(rope.get("rope_type", rope.get("type", "default")))


def rope_scaling(config: dict[str, Any]) -> RopeScaling | None:
    """The scaling that it asks for, of the kinds `linear`, `llama3`, `yarn` and `factors`; None for others, also for
    `dynamic`, which slows nothing within the context of the model.
    """
    kind, rope = rope_kind(config), _described(config)
    if kind == "linear":
        return RopeScaling(_factor(rope["factor"]))
    if kind == "llama3":
        low, high = _factor(rope["low_freq_factor"]), _factor(rope["high_freq_factor"])
        return RopeScaling(_factor(rope["factor"]), low, high, int(rope["original_max_position_embeddings"]))
    if kind == "yarn":
        return _yarn(rope, int(rope.get("original_max_position_embeddings") or config["max_position_embeddings"]))
    if kind == "factors":
        return RopeScaling(1.0, factors=tuple(_factor(one) for one in rope["factors"]))
    return None


def _yarn(rope: dict[str, Any], original: int) -> RopeScaling:
    factor, scale, scale_of_all = _factor(rope["factor"]), rope.get("mscale"), rope.get("mscale_all_dim")

    def gain(scale: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0

    given = rope.get("attention_factor")
    if given is None:
        given = gain(float(scale)) / gain(float(scale_of_all)) if scale and scale_of_all else gain(1.0)
    low, high = _factor(rope.get("beta_slow") or 1), _factor(rope.get("beta_fast") or 32)
    if original < 1:
        raise ValueError(f"positions scaled from {original}")
    whole = bool(rope.get("truncate", True))
    return RopeScaling(factor, low, high, original, yarn=True, whole=whole, gain=_factor(given))


def _factor(given: Any) -> float:
    factor = float(given)
    if not 0.0 < factor < math.inf:
        raise ValueError(f"positions scaled by {factor}")
    return factor


def _described(config: dict[str, Any]) -> dict[str, Any]:
    return config.get("rope_scaling") or config.get("rope_parameters") or {}


@functools.lru_cache(maxsize=8)
def angles(length: int, width: int, base: float, scaling: RopeScaling | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine of t base^(-2 i / width), float64 [length, width / 2]: Su et al. 2021, section 3.2.2; scaled."""
    speeds = base ** (-2 * np.arange(width // 2) / width)
    turns = np.arange(length)[:, None] * (speeds if scaling is None else scaling.scaled(speeds, base))
    gain = 1.0 if scaling is None else scaling.gain
    return gain * np.cos(turns), gain * np.sin(turns)
