"""A sample of a request that is under way: how its next token is chosen, and what that brings to the client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hpckit.serving.events import Completion, Event
from hpckit.serving.sampler import Floats, Sampling, adjusted, chosen, likeliest, log_probabilities, uniform
from hpckit.serving.scheduler import Text
from hpckit.serving.speculation import Wanted
from hpckit.serving.step import TextPiece
from hpckit.serving.text import TextStream

STOP, LENGTH = "stop", "length"


@dataclass
class SampleState:
    """One of the `n` texts of a request. prompt: log-probabilities of its tokens, where they were asked for."""

    request: str
    number: int
    text: Text
    sampling: Sampling
    seed: int
    stream: TextStream
    prompt: list[tuple[tuple[int, float], ...]] = field(default_factory=list)
    reason: str = ""
    credit: float = 0.0  # tokens that its guesses may cost (`speculation.GuessCost`)

    def completion(self) -> Completion:
        """What will hold the sample when it is complete."""
        return Completion(self.request, self.number, self.text.tokens[: self.text.prompt])

    def wanted(self, most: int) -> Wanted:
        """Up to `most` guesses; none without credit, so that guesses cost little where they fail."""
        room = self.sampling.max_tokens - self.text.count - 1
        count = 0 if self.credit < 0 else max(0, min(most, room))
        return Wanted(self.text.tokens, count, self.sampling, self.seed)

    def keep_prompt(self, piece: TextPiece, logits: Floats) -> None:
        """Keep the log-probabilities of the prompt's tokens that follow those of a piece, where they were asked for."""
        text = self.text
        if text.needs_all and piece.start < text.prompt:
            for row, place in zip(logits, range(piece.start + 1, text.prompt), strict=False):
                if place > len(self.prompt):  # else it is computed again, after a preemption
                    logprobs = log_probabilities(row)
                    self.prompt.append(tuple(likeliest(logprobs, self.sampling.logprobs or 0, text.tokens[place])))

    def without_tokens(self) -> Event:
        """The end of a sample that was to write nothing."""
        self.reason = LENGTH
        return Event(self.request, self.number, None, "", (), tuple(self.prompt), LENGTH, self.text.found)

    def next(self, row: Floats, ends: Sequence[int]) -> Event:
        """Choose the next token by its logits, and write it. ends: tokens that end a text."""
        text, sampling = self.text, self.sampling
        ends = () if sampling.ignore_end else ends
        count, logits = text.count, row
        if sampling.changes_logits or count < sampling.min_tokens:
            logits = adjusted(row, sampling, text.tokens[: text.prompt], text.written, ends)
        draw = uniform(self.seed, self.number, len(text.tokens)) if sampling.temperature else 0.0
        token = chosen(logits, sampling, draw)
        logprobs = (
            () if sampling.logprobs is None else tuple(likeliest(log_probabilities(row), sampling.logprobs, token))
        )
        text.tokens.append(token)
        new = ""
        if token in ends:
            self.reason = STOP
        else:
            new = self.stream.push(token)
            if self.stream.stopped:
                self.reason = STOP
            elif count + 1 >= sampling.max_tokens:
                self.reason = LENGTH
        if self.reason:
            new += self.stream.end()
        before = () if count else tuple(self.prompt)
        return Event(self.request, self.number, token, new, logprobs, before, self.reason, text.found)
