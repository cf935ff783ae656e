"""What an engine tells of its requests: what each step brought, and what came of a sample in all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hpckit.serving.step import ServingStep


@dataclass(frozen=True)
class Event:
    """What a step brought to one sample of a request.

    token: None where only text or the end came. logprobs: (token, logarithm) of the chosen one, then of the likeliest.
    prompt: the same for each token of the prompt but the first, at the first event, where that was asked for. reason:
    "stop", "length" or "" while it goes on. found: tokens of the prompt that were there already.
    """

    request: str
    sample: int
    token: int | None
    text: str
    logprobs: tuple[tuple[int, float], ...] = ()
    prompt: tuple[tuple[tuple[int, float], ...], ...] = ()
    reason: str = ""
    found: int = 0


class Completion:
    """A sample of a request at its end: prompt and tokens (lists of numbers), text, logprobs of each token where they
    were asked for (see `Event`), reason; found: tokens of the prompt that were there already.
    """

    def __init__(self, request: str, sample: int, prompt: list[int]) -> None:
        self.request, self.sample, self.prompt, self.found = request, sample, prompt, 0
        self.tokens: list[int] = []
        self.text = self.reason = ""
        self.logprobs: list[tuple[tuple[int, float], ...]] = []
        self.prompt_logprobs: tuple[tuple[tuple[int, float], ...], ...] = ()

    def add(self, event: Event) -> None:
        """What a step brought."""
        self.text += event.text
        self.reason, self.found = event.reason, event.found
        self.prompt_logprobs = event.prompt or self.prompt_logprobs
        if event.token is not None:
            self.tokens.append(event.token)
            if event.logprobs:
                self.logprobs.append(event.logprobs)


@dataclass
class Counters:
    """What an engine has done since it began."""

    steps: int = 0
    prompt_tokens: int = 0
    found_tokens: int = 0
    written_tokens: int = 0
    drafts: int = 0
    accepted: int = 0
    finished: int = 0
    aborted: int = 0
    seconds: float = 0.0


class EngineListener(Protocol):
    """Is called when an engine gets, computes or loses a request."""

    def added(self, name: str, samples: int) -> None:
        """A request has come."""

    def aborted(self, name: str) -> None:
        """A request is gone before its end."""

    def stepped(self, step: ServingStep, events: Sequence[Event], seconds: float) -> None:
        """A step is done."""
