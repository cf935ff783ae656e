"""Dropout, whose random numbers are a function of seed, step, sample and layer."""

from __future__ import annotations

import hashlib
from typing import Any

from hpckit.errors import InputError
from hpckit.kernels.device_array import zeros
from hpckit.kernels.nn import dispatch
from hpckit.kernels.nn.memory import empty, empty_like
from hpckit.nn.layer import Pass
from hpckit.nn.parameters import Parameter


class Dropout:
    """Each element becomes 0 with probability `rate`, else is divided by 1 - rate; no change if a pass is not training.

    The choice is a function of (seed, step, the sample's number in the whole batch, name): it does not depend on how
    samples are spread over ranks and microbatches, and backward draws it again instead of storing it.
    """

    def __init__(self, rate: float, name: str = "dropout") -> None:
        self.rate, self.name = checked(rate), name

    def parameters(self) -> list[Parameter]:
        """No parameters."""
        return []

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """x: [samples, …]. `saved` is the pass."""
        return self._drop(x, step), step

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: drop the same elements of dy."""
        return self._drop(dy, saved)

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: there are no parameters."""

    def runs(self, own: slice, step: Pass) -> list[tuple[slice, int]]:
        """Of some rows of a pass's tokens, those that follow each other: their place, and the number of the first one
        among all tokens.
        """
        return [(slice(0, own.stop - own.start), own.start)]

    def _drop(self, x: Any, step: Pass) -> Any:
        if not self.rate or not step.training:
            return x
        y = empty_like(x)
        dispatch.dropout(x, y, *numbers_of(step, self.name), self.rate)
        return y


def drop_tokens(x: Any, start: int, step: Pass, name: str, rate: float) -> Any:
    """What `Dropout` makes of some tokens of a microbatch: x [n, d], from token `start` on of all of them, which are
    counted over the samples, one after the other. `step` says how many a sample has.
    """
    (key, number, first), length = numbers_of(step, name), step.length
    width, end = x.shape[-1], start + len(x)
    if not len(x):
        return x
    if width % 4 == 0:  # four numbers are drawn at once: rows of such a width begin at a draw
        y = empty(x.shape, x)
        dispatch.dropout(x, y, key, number, first * length + start, rate)
        return y
    begin, behind = start // length, -(-end // length)  # samples of which there are tokens
    whole = zeros((behind - begin, length * width), x)
    part = whole.reshape(-1, width)[start - begin * length : end - begin * length]
    part[...] = x
    dispatch.dropout(whole, whole, key, number, first + begin, rate)
    return part


def checked(rate: float) -> float:
    """The rate. Raises `InputError` unless it is at least 0 and below 1."""
    if not 0 <= rate < 1:
        raise InputError(f"a dropout rate must be at least 0 and below 1, not {rate}", do="give a rate such as 0.1")
    return rate


def numbers_of(step: Pass, name: str) -> tuple[int, int, int]:
    """The numbers that determine the random numbers of the layer with this name: key, step, first sample."""
    digest = hashlib.sha256(f"{step.seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "little"), step.step, step.first_sample
