"""The choice of the next token from the logits of one row: the same numbers give the same token, in any batch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hpckit.errors import InputError

Floats = npt.NDArray[np.float32]
MOST_LOGPROBS = 20


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen; OpenAI's defaults but `temperature`, which is 0: the likeliest token.

    In this order: logit_bias (added by token), penalties (repetition: of all tokens of the text; frequency, presence:
    of what was written), temperature, min_p (at least so much of the largest probability), top_k (0: all), top_p. seed:
    None takes one from the request's name, so that the same request gives the same text.
    """

    max_tokens: int = 16
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_end: bool = False
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: bool = False
    n: int = 1

    def check(self, vocab: int) -> None:
        """Raise `InputError` with every value that cannot be."""
        wrong = {
            f"max_tokens = {self.max_tokens}": self.max_tokens < 0,
            f"temperature = {self.temperature}": not 0 <= self.temperature <= 100,
            f"top_k = {self.top_k}": self.top_k < -1,
            f"top_p = {self.top_p}": not 0 < self.top_p <= 1,
            f"min_p = {self.min_p}": not 0 <= self.min_p <= 1,
            f"repetition_penalty = {self.repetition_penalty}": not 0 < self.repetition_penalty <= 100,
            f"frequency_penalty = {self.frequency_penalty}": not abs(self.frequency_penalty) <= 2,
            f"presence_penalty = {self.presence_penalty}": not abs(self.presence_penalty) <= 2,
            f"n = {self.n}": not 1 <= self.n <= 128,
            f"logprobs = {self.logprobs}": self.logprobs is not None and not 0 <= self.logprobs <= MOST_LOGPROBS,
            f"min_tokens = {self.min_tokens}": not 0 <= self.min_tokens <= self.max_tokens,
            "logit_bias": any(
                not 0 <= token < vocab or not abs(bias) <= 100 for token, bias in self.logit_bias.items()
            ),
            "an empty stop text": "" in self.stop or len(self.stop) > 16,
        }
        if told := [what for what, is_wrong in wrong.items() if is_wrong]:
            raise InputError(
                f"a request with {', '.join(told)}",
                do="temperature 0 to 100, top_p above 0 up to 1, min_p 0 to 1, penalties -2 to 2, n 1 to 128, logprobs"
                f" 0 to {MOST_LOGPROBS}, biases -100 to 100 of tokens below {vocab}, up to 16 stop texts",
            )

    @property
    def changes_logits(self) -> bool:
        """Whether the likeliest token may be another one than that of the largest logit."""
        penalties = self.frequency_penalty or self.presence_penalty or self.repetition_penalty != 1
        return bool(penalties or self.logit_bias)


def seed_of(name: str) -> int:
    """A seed from a name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")


def uniform(seed: int, sample: int, position: int) -> float:
    """A number in [0, 1) of a seed, of the number of a sample of a request, and of the place of a token."""
    words = b"".join((word & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little") for word in (seed, sample, position))
    return (int.from_bytes(hashlib.blake2b(words, digest_size=8).digest(), "little") >> 11) * 2.0**-53


def adjusted(
    logits: Floats, sampling: Sampling, prompt: Sequence[int], written: Sequence[int], ends: Sequence[int]
) -> Floats:
    """The logits after biases and penalties; ends: tokens that may not come before `min_tokens` are written."""
    found = logits.copy()
    if len(written) < sampling.min_tokens:
        found[list(ends)] = -np.inf
    for token, bias in sampling.logit_bias.items():
        found[token] += np.float32(bias)
    if sampling.repetition_penalty != 1:
        seen = np.unique(np.array([*prompt, *written], np.int64))
        factor = np.float32(sampling.repetition_penalty)
        found[seen] = np.where(found[seen] > 0, found[seen] / factor, found[seen] * factor)
    if sampling.frequency_penalty or sampling.presence_penalty:
        tokens, counts = np.unique(np.array(written, np.int64), return_counts=True)
        found[tokens] -= np.float32(sampling.frequency_penalty) * counts.astype(np.float32)
        found[tokens] -= np.float32(sampling.presence_penalty)
    return found


def probabilities(logits: Floats, sampling: Sampling) -> npt.NDArray[np.float64]:
    """The probabilities of tokens after temperature, min_p, top_k and top_p."""
    values = logits.astype(np.float64) / sampling.temperature
    found = np.exp(values - values.max())
    if sampling.min_p:
        found[found < sampling.min_p] = 0  # the largest is 1
    if 0 < sampling.top_k < len(found):
        least = np.partition(found, -sampling.top_k)[-sampling.top_k]
        found[found < least] = 0
    if sampling.top_p < 1:
        order = np.argsort(-found, kind="stable")
        sums = np.cumsum(found[order])
        found[order[1:][sums[:-1] >= sampling.top_p * sums[-1]]] = 0
    return found / found.sum()


def chosen(logits: Floats, sampling: Sampling, draw: float) -> int:
    """The token of adjusted logits; draw: in [0, 1), of which each token has a part as large as it is likely."""
    if sampling.temperature == 0:
        return int(logits.argmax())
    sums = np.cumsum(probabilities(logits, sampling))
    return int(np.searchsorted(sums, min(draw * sums[-1], np.nextafter(sums[-1], 0)), side="right"))


def log_probabilities(logits: Floats) -> npt.NDArray[np.float64]:
    """The logarithms of softmax(logits)."""
    values = logits.astype(np.float64)
    values -= values.max()
    return values - np.log(np.exp(values).sum())


def likeliest(logprobs: npt.NDArray[np.float64], count: int, token: int) -> list[tuple[int, float]]:
    """The `token` and the `count` likeliest ones, each with its logarithm; the token first."""
    order = np.argsort(-logprobs, kind="stable")[:count].tolist()
    return [(one, float(logprobs[one])) for one in [token, *order]]
