"""Requests as JSON, in the words of OpenAI's API and of vLLM's additions to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hpckit.errors import InputError
from hpckit.serving.engine import Engine
from hpckit.serving.sampler import Sampling

Kind = TypeVar("Kind", bound=BaseModel)
# Of OpenAI's and vLLM's requests, what asks for another answer than would come.
NOT_SERVED = (
    "functions",
    "function_call",
    "audio",
    "web_search_options",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "stop_token_ids",
    "bad_words",
    "allowed_token_ids",
    "include_stop_str_in_output",
    "use_beam_search",
    "truncate_prompt_tokens",
    "prompt_logprobs",
    "chat_template",
    "chat_template_kwargs",
    "continue_final_message",
    "documents",
)


class StreamOptions(BaseModel):
    """include_usage: a last chunk without choices counts the tokens."""

    include_usage: bool = False


class ChatMessage(BaseModel):
    """A message of a chat; content: a text, or parts of the type text. Other fields, such as the calls of tools and the
    name of one that answers, are for the template.
    """

    model_config = ConfigDict(extra="allow")
    role: str
    content: str | list[dict[str, Any]] | None = None

    def plain(self) -> dict[str, Any]:
        """For a template: the content is a text. Raises `InputError` for pictures and sounds."""
        content = self.content or ""
        if isinstance(content, list):
            if any(part.get("type") != "text" for part in content):
                raise InputError("a message has parts that are not text", do="send parts of the type text")
            content = "".join(str(part.get("text", "")) for part in content)
        return {"role": self.role, "content": content, **(self.model_extra or {})}


class GenerationRequest(BaseModel):
    """What completions and chats share; see `Sampling`. priority: smaller ones go first. cache_salt: a tenant who
    shares no blocks with others. Fields that are not known are left alone, as other servers do, but for those that ask
    for another answer than would come.
    """

    model_config = ConfigDict(extra="allow")
    model: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    n: int | None = None
    ignore_eos: bool = False
    min_tokens: int | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    priority: int = 0
    cache_salt: str = ""
    user: str | None = None
    best_of: int | None = None
    suffix: str | None = None
    response_format: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = None

    def check(self) -> None:
        """Raise `InputError` for what this server does not do, where a plain answer would be a wrong one."""
        strange = {
            f"best_of = {self.best_of}": self.best_of not in (None, self.n or 1),
            "a suffix": bool(self.suffix),
            "a response_format": (self.response_format or {}).get("type", "text") != "text",
            "stream_options without stream": bool(self.stream_options) and not self.stream,
            "tools": bool(self.tools) and self.tool_choice != "none",
            "a tool_choice": self.tool_choice not in (None, "none", "auto"),
        }
        extra = self.model_extra or {}
        strange |= {name: bool(extra.get(name)) for name in NOT_SERVED}
        strange["modalities other than text"] = extra.get("modalities") not in (None, [], ["text"])
        if wrong := [name for name, is_so in strange.items() if is_so]:
            raise InputError(f"a request with {', with '.join(wrong)}, which is not served", do="leave it out")

    def sampling(self, room: int, default: int | None, **own: Any) -> Sampling:
        """How tokens are chosen. room: tokens that fit behind the prompt; default: max_tokens where none is given, all
        of the room without one. The temperature is 1 where none is given, as at OpenAI.
        """
        self.check()
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
        given = {
            "top_p": self.top_p,
            "top_k": None if self.top_k == -1 else self.top_k,
            "min_p": self.min_p,
            "repetition_penalty": self.repetition_penalty,
            "frequency_penalty": self.frequency_penalty,
            "presence_penalty": self.presence_penalty,
            "logit_bias": self.logit_bias,
            "seed": self.seed,
            "n": self.n,
            "min_tokens": self.min_tokens,
            **own,
        }
        asked = self.max_tokens if self.max_tokens is not None else default
        return Sampling(
            max_tokens=max(0, room) if asked is None else asked,
            temperature=1.0 if self.temperature is None else self.temperature,
            stop=tuple(stop),
            ignore_end=self.ignore_eos,
            **{name: value for name, value in given.items() if value is not None},
        )


class CompletionRequest(GenerationRequest):
    """The body of /v1/completions."""

    prompt: str | list[int] | list[str | list[int]]
    logprobs: int | None = None
    echo: bool = False
    add_special_tokens: bool = True

    def prompts(self, engine: Engine) -> list[list[int]]:
        """The prompts as tokens."""
        given = self.prompt
        if isinstance(given, str):
            return [engine.encode(given, self.add_special_tokens)]
        if given and isinstance(given[0], int):
            return [[int(token) for token in given]]
        special = self.add_special_tokens
        return [engine.encode(one, special) if isinstance(one, str) else list(one) for one in given]  # type: ignore[arg-type]

    def text(self, number: int) -> str | None:
        """A prompt that was given as a text."""
        given = self.prompt if isinstance(self.prompt, str) else self.prompt[number]
        return given if isinstance(given, str) else None

    def way(self, room: int) -> Sampling:
        """See `GenerationRequest.sampling`; 16 tokens by default where they fit, as in OpenAI's API."""
        wants = self.echo and self.logprobs is not None
        default = min(16, max(0, room))
        return self.sampling(room, default, logprobs=self.logprobs, prompt_logprobs=wants or None)


class ChatRequest(GenerationRequest):
    """The body of /v1/chat/completions."""

    messages: list[ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = None

    def prompts(self, engine: Engine) -> list[list[int]]:
        """The prompt as tokens."""
        return [engine.encode(engine.chat.prompt([message.plain() for message in self.messages]), special=False)]

    def way(self, room: int) -> Sampling:
        """See `GenerationRequest.sampling`; by default up to the end of the context."""
        if self.top_logprobs is not None and not self.logprobs:
            raise InputError("top_logprobs without logprobs", do="send logprobs = true, too")
        wanted = (self.top_logprobs or 0) if self.logprobs else None
        return self.sampling(room, self.max_completion_tokens, logprobs=wanted)


def request_of(body: Mapping[str, Any]) -> CompletionRequest | ChatRequest:
    """A request from an object with `prompt` or `messages`. Raises `InputError` with all that is wrong."""
    kind: type[CompletionRequest] | type[ChatRequest] = ChatRequest if "messages" in body else CompletionRequest
    return checked(kind, body)


def checked(kind: type[Kind], body: Any) -> Kind:
    """The body as a request of a kind."""
    try:
        return kind.model_validate(body)
    except ValidationError as problem:
        told = [f"{'.'.join(str(part) for part in one['loc'][:3]) or 'it'}: {one['msg']}" for one in problem.errors()]
        raise InputError(f"the request does not fit: {'; '.join(dict.fromkeys(told))}") from None


def room_for(engine: Engine, prompt: Sequence[int]) -> int:
    """Tokens that fit behind a prompt."""
    return engine.longest - len(prompt)
