"""Guesses of the next tokens: those that followed an earlier occurrence of the same tokens, or a smaller model's.

A guess is checked by computing it with the step: the token of each place is chosen as without guesses (greedy, or with
the number that is drawn for the place), and guesses count up to the first that differs. So the text is the same with
and without them, and a sampled one has the same distribution (Leviathan et al., "Fast inference from transformers via
speculative decoding", 2023, where the draft is certain of its tokens). A smaller model draws with the same numbers, so
that it often guesses what is sampled, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple, Protocol

import numpy as np

from hpckit.serving.sampler import Sampling

LONGEST, SHORTEST = 4, 2  # tokens at the end of the text that are looked for
WINDOW = 4096  # tokens that are looked through
SHARE, MOST_CREDIT = 0.01, 4.0  # of a text's tokens that wrong guesses may cost; tokens that a text may have saved
FIRST_COST, RECENT = 0.5, 9  # tokens that a step with guesses is thought to cost before any was seen; steps


def guessed(tokens: Sequence[int], count: int) -> tuple[int, ...]:
    """Up to `count` tokens that followed the last place where the text had its last tokens: as many as occur again."""
    every = np.array(tokens[-WINDOW:], np.int64)
    for size in range(LONGEST, SHORTEST - 1, -1):
        if len(every) <= size:
            continue
        windows = np.lib.stride_tricks.sliding_window_view(every[:-1], size)
        places = np.flatnonzero((windows == every[-size:]).all(axis=1))
        if len(places):
            begin = int(places[-1]) + size
            return tuple(every[begin : begin + count].tolist())
    return ()


class GuessCost:
    """What the guesses of a text cost, in tokens that it could have written meanwhile: the median of the last steps.

    A text has a credit: each token that it writes adds SHARE to it, each right guess adds 1, and each step with guesses
    takes away what it cost. Without credit it goes on without guesses. So a text whose guesses are all wrong loses at
    most SHARE of its time and one such step, whatever a row costs on this machine or in this batch.
    """

    def __init__(self) -> None:
        self._plain: dict[int, deque[float]] = {}  # seconds of steps without guesses, by the number of texts
        self._costs = deque([FIRST_COST], RECENT)

    @property
    def tokens(self) -> float:
        """What a step costs each text that guesses."""
        return median(self._costs)

    def took(self, seconds: float, texts: int, guessing: int) -> None:
        """A step of so many texts, all after their prompts, of which some had guesses."""
        plain = self._plain.setdefault(texts, deque(maxlen=RECENT))
        if not guessing:
            plain.append(seconds)
        elif plain:
            self._costs.append(max(0.0, seconds / median(plain) - 1) * texts / guessing)

    def credit(self, before: float, written: int, right: int, has_guesses: bool) -> float:
        """The credit of a text after a step in which it has written some tokens."""
        return min(MOST_CREDIT, before + SHARE * written + right - has_guesses * self.tokens)


class Wanted(NamedTuple):
    """A text that wants up to `most` guesses, and how its tokens are chosen."""

    tokens: Sequence[int]
    most: int
    sampling: Sampling
    seed: int


class Writes(Protocol):
    """The part of an engine that a draft model uses."""

    @property
    def longest(self) -> int:
        """Tokens that a text may have."""

    @property
    def idle(self) -> bool:
        """Whether no text waits or runs."""

    def add(self, prompt: Sequence[int], sampling: Sampling, *, name: str) -> str:
        """Add a request to those that wait."""

    def step(self) -> Sequence[Any]:
        """Compute one step, and return what it brought."""


class Draft:
    """Guesses of a smaller model: an engine of its own, which finds the blocks of a text that it has seen, and computes
    the others and the guesses of all texts together.
    """

    def __init__(self, engine: Writes) -> None:
        self._engine = engine

    def guesses(self, wanted: Sequence[Wanted]) -> list[tuple[int, ...]]:
        """The tokens that the model would write after each text; none for a text that wants none, or is longer than its
        context.
        """
        engine = self._engine
        found: dict[str, list[int]] = {str(n): [] for n in range(len(wanted))}
        for name, (tokens, most, sampling, seed) in zip(found, wanted, strict=True):
            if most and len(tokens) + most <= engine.longest:
                own = replace(
                    sampling, max_tokens=most, min_tokens=0, seed=seed, n=1, stop=(), logprobs=None, ignore_end=True
                )
                engine.add(tokens, replace(own, prompt_logprobs=False), name=name)
        while not engine.idle:
            for event in engine.step():
                if event.token is not None:
                    found[event.request].append(event.token)
        return [tuple(tokens) for tokens in found.values()]
