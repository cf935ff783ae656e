"""The routes of an OpenAI server over a `Service`: completions, chats, models, health, metrics, tokens."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

from hpckit.errors import InputError, SetupError
from hpckit.serving.server.answers import Answers, Choice
from hpckit.serving.server.protocol import ChatRequest, CompletionRequest, checked, room_for
from hpckit.serving.server.service import Failed, Service, metrics

try:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
    from starlette.routing import Route
except ImportError:
    raise SetupError(
        "a server needs the packages starlette and uvicorn",
        likely="they are not installed",
        do="pip install 'hpckit[serve]'",
    ) from None

from hpckit.serving.server.guard import UnknownModel, broken, guarded_handler, read_body, refused

MOST_BODY = 16 << 20  # bytes


def application(service: Service, names: Sequence[str], token: str = "", most_body: int = MOST_BODY) -> Starlette:
    """The ASGI application. names: of the model, by which requests may ask for it; the first is that of answers.
    token: what clients must send as bearer, if any.
    """
    ends = Endpoints(service, names, most_body)
    routes = [
        ("/v1/completions", ends.completions, "POST"),
        ("/v1/chat/completions", ends.chats, "POST"),
        ("/v1/models", ends.models, "GET"),
        ("/v1/models/{name:path}", ends.model, "GET"),
        ("/health", ends.health, "GET"),
        ("/metrics", ends.metrics, "GET"),
        ("/tokenize", ends.tokenize, "POST"),
        ("/detokenize", ends.detokenize, "POST"),
    ]

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service.start()
        yield
        service.stop()

    return Starlette(
        routes=[
            Route(path, guarded_handler(handler, path, token), methods=[method]) for path, handler, method in routes
        ],
        lifespan=lifespan,
        exception_handlers={HTTPException: refused, Exception: broken},
    )


class Endpoints:
    """What each route answers, for a model of these names; most_body: bytes."""

    def __init__(self, service: Service, names: Sequence[str], most_body: int) -> None:
        self._service, self._names, self._most_body = service, names, most_body
        self._begun = int(time.time())

    async def completions(self, request: Request) -> Response:
        """Texts after prompts."""
        return await self._complete(request, CompletionRequest)

    async def chats(self, request: Request) -> Response:
        """The next message of a chat."""
        return await self._complete(request, ChatRequest)

    async def models(self, request: Request) -> Response:
        """The names of the model."""
        return JSONResponse({"object": "list", "data": [self._known(name) for name in self._names]})

    async def model(self, request: Request) -> Response:
        """One name of the model."""
        self._require(request.path_params["name"])
        return JSONResponse(self._known(request.path_params["name"]))

    async def health(self, request: Request) -> Response:
        """Whether the server takes requests: 503 if not."""
        why = self._service.failed or ("shutting down" if self._service.draining else "")
        return JSONResponse({"status": why or "ok"}, 503 if why else 200)

    async def metrics(self, request: Request) -> Response:
        """Counters and histograms, in the form of Prometheus."""
        return PlainTextResponse(metrics(self._service), media_type="text/plain; version=0.0.4")

    async def tokenize(self, request: Request) -> Response:
        """The tokens of a text or a chat."""
        body = await read_body(request, self._most_body)
        self._require(body.get("model"))
        engine = self._service.engine
        if "messages" in body:
            (tokens,) = checked(ChatRequest, body).prompts(engine)
        elif isinstance(body.get("prompt"), str):
            tokens = engine.encode(body["prompt"])
        else:
            raise InputError("a text to tokenize is a prompt or messages", do='send {"prompt": "…"}')
        return JSONResponse({"tokens": tokens, "count": len(tokens), "max_model_len": engine.longest})

    async def detokenize(self, request: Request) -> Response:
        """The text of tokens."""
        body = await read_body(request, self._most_body)
        self._require(body.get("model"))
        tokens, vocab = body.get("tokens"), self._service.engine.shape.vocab
        if not isinstance(tokens, list) or not all(type(one) is int and 0 <= one < vocab for one in tokens):
            raise InputError(f"tokens are whole numbers from 0 to {vocab - 1}", do='send {"tokens": [1, 2]}')
        return JSONResponse({"prompt": self._service.engine.tokenizer.decode(tokens)})

    async def _complete(self, request: Request, kind: type[CompletionRequest] | type[ChatRequest]) -> Response:
        self._service.require_room()
        asked = checked(kind, await read_body(request, self._most_body))
        self._require(asked.model)
        engine = self._service.engine
        prompts = asked.prompts(engine)
        ways = [asked.way(room_for(engine, prompt)) for prompt in prompts]
        if not prompts or sum(way.n for way in ways) > 128:
            raise InputError(f"{len(prompts)} prompts, each {asked.n or 1} times", do="ask for 1 to 128 texts at once")
        for prompt, way in zip(prompts, ways, strict=True):
            engine.check(prompt, way)
        name = f"{'chatcmpl' if kind is ChatRequest else 'cmpl'}-{uuid.uuid4().hex}"
        answers = Answers(engine, asked, name, self._names[0], prompts)
        events = self._service.ask(
            name, prompts, ways, request.is_disconnected, priority=asked.priority, salt=asked.cache_salt
        )
        each = asked.n or 1
        if asked.stream:
            return StreamingResponse(_stream(events, answers, each), media_type="text/event-stream")
        choices = [Choice(index) for index in range(len(prompts) * each)]
        found: dict[int, int] = {}
        async for n, event in events:
            choices[n * each + event.sample].add(event)
            found[n] = max(found.get(n, 0), event.found)
        if not all(choice.reason for choice in choices):
            raise ClientDisconnect
        return JSONResponse(answers.whole(choices, sum(found.values())))

    def _require(self, name: object) -> None:
        """Raise `UnknownModel` for another name; a request may leave it out."""
        if not isinstance(name, str | None):
            raise InputError("model is not a name", do=f"send {json.dumps(self._names[0])}, or leave it out")
        if name and name not in self._names:
            raise UnknownModel(f"there is no model {name:.80}; the one that is served is {' or '.join(self._names)}")

    def _known(self, name: str) -> dict[str, Any]:
        one = {"id": name, "object": "model", "created": self._begun, "owned_by": "hpckit"}
        return {**one, "max_model_len": self._service.engine.longest}


async def _stream(events: AsyncIterator[Any], answers: Answers, each: int) -> AsyncIterator[str]:
    """Server-sent events: a chunk for each piece, the usage where it is wanted, and the end."""
    count, found = 0, dict[int, int]()
    try:
        async with contextlib.aclosing(events) as coming:  # type: ignore[type-var]
            async for n, event in coming:
                count += event.token is not None
                found[n] = max(found.get(n, 0), event.found)
                chunk = answers.chunk(n * each + event.sample, event)
                if chunk is not None:
                    yield f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n"
        if answers.wants_usage:
            yield f"data: {json.dumps(answers.last(count, sum(found.values())))}\n\n"
    except Failed as problem:
        yield f"data: {json.dumps({'error': {'message': str(problem), 'type': 'unavailable', 'code': 503}})}\n\n"
    yield "data: [DONE]\n\n"
