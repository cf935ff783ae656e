"""Answers as JSON, in the shapes of OpenAI's API: whole ones, and chunks of a stream."""

from __future__ import annotations

import codecs
import time
from typing import Any

from hpckit.serving.engine import Engine
from hpckit.serving.events import Event
from hpckit.serving.server.protocol import ChatRequest, CompletionRequest

Pairs = tuple[tuple[int, float], ...]


class Choice:
    """One sample of an answer, as its events come."""

    def __init__(self, index: int) -> None:
        self.index, self.text, self.reason = index, "", ""
        self.tokens: list[Pairs] = []
        self.prompt: tuple[Pairs, ...] = ()
        self.count = 0

    def add(self, event: Event) -> None:
        """What a step brought."""
        self.text += event.text
        self.reason = event.reason
        self.prompt = event.prompt or self.prompt
        self.count += event.token is not None
        if event.logprobs:
            self.tokens.append(event.logprobs)


class Answers:
    """Makes the answers to one request; model: the name that they carry."""

    def __init__(
        self, engine: Engine, request: CompletionRequest | ChatRequest, name: str, model: str, prompts: list[list[int]]
    ) -> None:
        self._engine, self._request, self._prompts = engine, request, prompts
        self._chat = isinstance(request, ChatRequest)
        kind = "chat.completion" if self._chat else "text_completion"
        self._head = {"id": name, "object": kind, "created": int(time.time()), "model": model}
        self._begun: set[int] = set()
        self._offsets: dict[int, int] = {}
        self.wants_usage = bool(request.stream_options and request.stream_options.include_usage)

    def whole(self, choices: list[Choice], found: int) -> dict[str, Any]:
        """The answer with all choices."""
        told = [self.choice(choice) for choice in choices]
        return {**self._head, "choices": told, "usage": self.usage(sum(choice.count for choice in choices), found)}

    def choice(self, choice: Choice) -> dict[str, Any]:
        """One of them."""
        own: dict[str, Any] = {"index": choice.index, "finish_reason": choice.reason, "logprobs": None}
        if self._chat:
            own["message"] = {"role": "assistant", "content": choice.text, "refusal": None}
            if self._request.logprobs:
                own["logprobs"] = self._chat_logprobs(choice.tokens)
        else:
            own["text"] = self._echo(choice.index) + choice.text
            if self._request.logprobs is not None:
                own["logprobs"] = self._logprobs(self._echoed(choice.index, choice.prompt) + choice.tokens, 0)
        return own

    def chunk(self, index: int, event: Event) -> dict[str, Any] | None:
        """A chunk of a stream; None if there is nothing to send."""
        begins = index not in self._begun
        if not (event.text or event.reason or event.logprobs or begins):
            return None
        self._begun.add(index)
        own: dict[str, Any] = {"index": index, "finish_reason": event.reason or None, "logprobs": None}
        tokens = [event.logprobs] if event.logprobs else []
        if self._chat:
            own["delta"] = ({"role": "assistant"} if begins else {}) | {"content": event.text}
            if tokens:
                own["logprobs"] = self._chat_logprobs(tokens)
        else:
            own["text"] = (self._echo(index) if begins else "") + event.text
            if begins:
                tokens = self._echoed(index, event.prompt) + tokens
            if tokens:
                own["logprobs"] = self._logprobs(tokens, self._offsets.get(index, 0))
            self._offsets[index] = self._offsets.get(index, 0) + len(own["text"])
        return {**self._stream_head(), "choices": [own]} | ({"usage": None} if self.wants_usage else {})

    def last(self, count: int, found: int) -> dict[str, Any]:
        """The chunk without choices that counts the tokens."""
        return {**self._stream_head(), "choices": [], "usage": self.usage(count, found)}

    def usage(self, count: int, found: int) -> dict[str, Any]:
        """The tokens of prompts and answers; found: those that were there already."""
        asked = sum(map(len, self._prompts))
        return {
            "prompt_tokens": asked,
            "completion_tokens": count,
            "total_tokens": asked + count,
            "prompt_tokens_details": {"cached_tokens": found},
        }

    def _stream_head(self) -> dict[str, Any]:
        return {**self._head, "object": "chat.completion.chunk"} if self._chat else self._head

    def _echo(self, index: int) -> str:
        """The prompt of a choice, where it is to be repeated: as it was given, without the mark of its start."""
        if not isinstance(self._request, CompletionRequest) or not self._request.echo:
            return ""
        given = self._request.text(index // (self._request.n or 1))
        return self._engine.tokenizer.decode(self._prompt(index)) if given is None else given

    def _echoed(self, index: int, prompt: tuple[Pairs, ...]) -> list[Pairs]:
        """The logarithms of the prompt's tokens: the first has none."""
        return [((self._prompt(index)[0], float("nan")),), *prompt] if self._echo(index) and prompt else []

    def _prompt(self, index: int) -> list[int]:
        return self._prompts[index // (self._request.n or 1)]

    def _bytes(self, token: int) -> bytes:
        return self._engine.tokenizer.bytes_of(token)

    def _token(self, token: int) -> str:
        """A name that no other token has: the bytes of a part of a character are spelled as in OpenAI's API."""
        told = self._bytes(token)
        try:
            return told.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in told)

    def _logprobs(self, tokens: list[Pairs], offset: int) -> dict[str, Any]:
        reader, offsets = codecs.getincrementaldecoder("utf-8")("replace"), []
        for pairs in tokens:
            offsets.append(offset)
            offset += len(reader.decode(self._bytes(pairs[0][0])))
        return {
            "tokens": [self._token(pairs[0][0]) for pairs in tokens],
            "token_logprobs": [None if pairs[0][1] != pairs[0][1] else pairs[0][1] for pairs in tokens],
            "top_logprobs": [
                None if pairs[0][1] != pairs[0][1] else {self._token(token): value for token, value in pairs[::-1]}
                for pairs in tokens
            ],
            "text_offset": offsets,
        }

    def _chat_logprobs(self, tokens: list[Pairs]) -> dict[str, Any]:
        def told(token: int, value: float) -> dict[str, Any]:
            own = self._bytes(token)
            return {"token": own.decode(errors="replace"), "logprob": value, "bytes": list(own)}

        return {
            "content": [told(*pairs[0]) | {"top_logprobs": [told(*pair) for pair in pairs[1:]]} for pairs in tokens],
            "refusal": None,
        }
