"""Texts of a served model: tokens as they become text, the texts that end it, and chats as prompts."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpckit.errors import InputError, SetupError
from hpckit.io.tokenizers import Tokenizer
from hpckit.plan.inputs.text import parse_json, read_bytes, read_text

UNKNOWN = "\ufffd"  # of bytes that are not a character yet
MARKS = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token")
PLAIN = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}assistant:"


class TextStream:
    """Text from tokens that come one by one, up to one of the texts `stop`.

    A character that takes several tokens comes with its last one, and what may be the beginning of a stop text is held
    back until that is known.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self._tokenizer, self._stop = tokenizer, stop
        self._tokens: list[int] = []
        self._before = self._read = 0
        self._held = ""
        self.stopped = False

    def push(self, token: int) -> str:
        """The text that is certain now; `stopped` says whether a stop text has come."""
        self._tokens.append(token)
        return self._passed(self._decoded(final=False), final=False)

    def end(self) -> str:
        """What was held back."""
        return "" if self.stopped else self._passed(self._decoded(final=True), final=True)

    def _decoded(self, final: bool) -> str:
        """The new text, decoded after some tokens before it: how it is spaced depends on them."""
        before = self._tokenizer.decode(self._tokens[self._before : self._read])
        whole = self._tokenizer.decode(self._tokens[self._before :])
        if len(whole) <= len(before) or (whole.endswith(UNKNOWN) and not final):
            return ""
        self._before, self._read = self._read, len(self._tokens)
        return whole[len(before) :]

    def _passed(self, new: str, final: bool) -> str:
        self._held += new
        places = [place for place in (self._held.find(stop) for stop in self._stop) if place >= 0]
        if places:
            self.stopped = True
            text, self._held = self._held[: min(places)], ""
            return text
        kept = 0
        if not final:
            for stop in self._stop:
                for size in range(min(len(stop) - 1, len(self._held)), kept, -1):
                    if self._held.endswith(stop[:size]):
                        kept = size
                        break
        text = self._held[: len(self._held) - kept]
        self._held = self._held[len(text) :]
        return text


class Chat:
    """Chats as prompts, by the template of a model's folder (`chat_template.jinja`, or in tokenizer_config.json), or a
    plain one of roles and texts.

    settings: in the place of the folder's files. Raises `SetupError` at its first use without the package jinja2,
    `InputError` for a template that fails.
    """

    def __init__(self, folder: Path, settings: dict[str, Any] | None = None) -> None:
        self._settings = _json(folder / "tokenizer_config.json") if settings is None else settings
        template = self._settings.get("chat_template")
        if settings is None and (folder / "chat_template.jinja").is_file():
            template = read_text(folder / "chat_template.jinja", "the template of chats")
        if isinstance(template, list):
            named = {str(one.get("name")): one.get("template") for one in template if isinstance(one, dict)}
            template = named.get("default", next(iter(named.values()), None))
        self.has_template = isinstance(template, str)
        self._template: str = template if isinstance(template, str) else PLAIN

    def prompt(self, messages: Sequence[dict[str, Any]]) -> str:
        """The prompt of a chat: messages with role and content."""
        try:
            from jinja2 import TemplateError
            from jinja2.ext import Extension
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError:
            raise SetupError(
                "chats need the package jinja2", do="pip install 'hpckit[serve]', or ask /v1/completions"
            ) from None

        def refuse(message: str) -> None:
            raise TemplateError(message)

        class Sandbox(ImmutableSandboxedEnvironment):
            """Powers, and texts times numbers, could take all memory."""

            intercepted_binops = frozenset({"**", "*"})

            def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
                if operator == "**" or not all(isinstance(one, (int, float)) for one in (left, right)):
                    raise TemplateError(f"a template may not compute {operator} here")
                return left * right

        class AssistantPart(Extension):
            """The tag around what an assistant says, by which training finds it, and nothing here."""

            tags = {"generation"}  # noqa: RUF012

            def parse(self, parser: Any) -> Any:
                next(parser.stream)
                return parser.parse_statements(("name:endgeneration",), drop_needle=True)

        extensions = ["jinja2.ext.loopcontrols", AssistantPart]
        environment = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
        environment.globals |= {"raise_exception": refuse, "strftime_now": time.strftime}
        environment.filters["tojson"] = _as_json
        told = {name: self._special(name) for name in MARKS}
        try:
            template = environment.from_string(self._template)
            return template.render(messages=messages, add_generation_prompt=True, tools=None, documents=None, **told)
        except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError, RecursionError) as problem:
            raise InputError(f"the chat does not fit the model's template: {problem}") from None

    def _special(self, name: str) -> str:
        found = self._settings.get(name) or ""
        return str(found.get("content", "")) if isinstance(found, dict) else str(found)


def ends_of(folder: Path) -> tuple[int, ...]:
    """The tokens that end a text, as generation_config.json says."""
    path = folder / "generation_config.json"
    found = _json(path).get("eos_token_id")
    ends = found if isinstance(found, list) else [] if found is None else [found]
    if not all(isinstance(end, int) and 0 <= end < 1 << 31 for end in ends):
        raise InputError(f"{path}: eos_token_id is {found!r:.60}", do="give the number of a token, or a list of them")
    return tuple(ends)


def _as_json(value: Any, indent: int | None = None, sort_keys: bool = False, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent, sort_keys=sort_keys)


def _json(path: Path) -> dict[str, Any]:
    """The object of a file; an empty one where there is none. Raises `InputError` for another kind of file."""
    if not path.is_file():
        return {}
    try:
        found = parse_json(read_bytes(path, "the description"))
    except ValueError as problem:
        raise InputError(f"{path} is not JSON: {problem}") from None
    return found if isinstance(found, dict) else {}
