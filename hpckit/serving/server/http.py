"""The routes of an OpenAI server over a `Service`: completions, chats, models, health, metrics, tokens."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from hpckit.errors import HpckitError, InputError, SetupError
from hpckit.serving.server.answers import Answers, Choice
from hpckit.serving.server.protocol import ChatRequest, CompletionRequest, checked, room_for
from hpckit.serving.server.service import Failed, Overload, Service, metrics

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

MOST_BODY = 16 << 20  # bytes
BODY_SECONDS = 60.0  # within which a body must have come
OPEN = ("/health",)  # which need no token
Handler = Callable[[Request], Awaitable[Response]]


class BodyTooLarge(Exception):
    """The body is longer than allowed."""


class BodyTooSlow(Exception):
    """The body does not come to its end."""


class UnknownModel(Exception):
    """The request names another model than is served."""


def application(service: Service, names: Sequence[str], token: str = "", most_body: int = MOST_BODY) -> Starlette:
    """The ASGI application. names: of the model, by which requests may ask for it; the first is that of answers.
    token: what clients must send as bearer, if any.
    """

    def require(name: object) -> None:
        """Raise `UnknownModel` for another name; a request may leave it out."""
        if not isinstance(name, str | None):
            raise InputError("model is not a name", do=f"send {json.dumps(names[0])}, or leave it out")
        if name and name not in names:
            raise UnknownModel(f"there is no model {name:.80}; the one that is served is {' or '.join(names)}")

    async def completions(request: Request) -> Response:
        return await _complete(request, CompletionRequest)

    async def chats(request: Request) -> Response:
        return await _complete(request, ChatRequest)

    async def _complete(request: Request, kind: type[CompletionRequest] | type[ChatRequest]) -> Response:
        service.require_room()
        asked = checked(kind, await _body(request, most_body))
        require(asked.model)
        engine = service.engine
        prompts = asked.prompts(engine)
        ways = [asked.way(room_for(engine, prompt)) for prompt in prompts]
        if not prompts or sum(way.n for way in ways) > 128:
            raise InputError(f"{len(prompts)} prompts, each {asked.n or 1} times", do="ask for 1 to 128 texts at once")
        for prompt, way in zip(prompts, ways, strict=True):
            engine.check(prompt, way)
        name = f"{'chatcmpl' if kind is ChatRequest else 'cmpl'}-{uuid.uuid4().hex}"
        answers = Answers(engine, asked, name, names[0], prompts)
        events = service.ask(
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

    def known(name: str) -> dict[str, Any]:
        one = {"id": name, "object": "model", "created": begun, "owned_by": "hpckit"}
        return {**one, "max_model_len": service.engine.longest}

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [known(name) for name in names]})

    async def named(request: Request) -> Response:
        require(request.path_params["name"])
        return JSONResponse(known(request.path_params["name"]))

    async def health(request: Request) -> Response:
        why = service.failed or ("shutting down" if service.draining else "")
        return JSONResponse({"status": why or "ok"}, 503 if why else 200)

    async def told(request: Request) -> Response:
        return PlainTextResponse(metrics(service), media_type="text/plain; version=0.0.4")

    async def tokenize(request: Request) -> Response:
        body = await _body(request, most_body)
        require(body.get("model"))
        engine = service.engine
        if "messages" in body:
            (tokens,) = checked(ChatRequest, body).prompts(engine)
        elif isinstance(body.get("prompt"), str):
            tokens = engine.encode(body["prompt"])
        else:
            raise InputError("a text to tokenize is a prompt or messages", do='send {"prompt": "…"}')
        return JSONResponse({"tokens": tokens, "count": len(tokens), "max_model_len": engine.longest})

    async def detokenize(request: Request) -> Response:
        body = await _body(request, most_body)
        require(body.get("model"))
        tokens, vocab = body.get("tokens"), service.engine.shape.vocab
        if not isinstance(tokens, list) or not all(type(one) is int and 0 <= one < vocab for one in tokens):
            raise InputError(f"tokens are whole numbers from 0 to {vocab - 1}", do='send {"tokens": [1, 2]}')
        return JSONResponse({"prompt": service.engine.tokenizer.decode(tokens)})

    begun = int(time.time())
    routes: list[tuple[str, Handler, str]] = [
        ("/v1/completions", completions, "POST"),
        ("/v1/chat/completions", chats, "POST"),
        ("/v1/models", models, "GET"),
        ("/v1/models/{name:path}", named, "GET"),
        ("/health", health, "GET"),
        ("/metrics", told, "GET"),
        ("/tokenize", tokenize, "POST"),
        ("/detokenize", detokenize, "POST"),
    ]

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service.start()
        yield
        service.stop()

    return Starlette(
        routes=[Route(path, _guarded(handler, path, token), methods=[method]) for path, handler, method in routes],
        lifespan=lifespan,
        exception_handlers={HTTPException: _refused, Exception: _broken},
    )


def _guarded(handler: Handler, path: str, token: str) -> Handler:
    """The handler behind the token, with its errors as answers."""

    async def guarded(request: Request) -> Response:
        given = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        if token and path not in OPEN and not hmac.compare_digest(given.encode(), token.encode()):
            return _error(401, "the token is missing or wrong", "authentication_error")
        try:
            return await handler(request)
        except BodyTooLarge as problem:
            return _error(413, str(problem), "invalid_request_error")
        except BodyTooSlow as problem:
            return _error(408, str(problem), "invalid_request_error", {"connection": "close"})
        except UnknownModel as problem:
            return _error(404, str(problem), "not_found_error", param="model", code="model_not_found")
        except Overload as problem:
            return _error(429, str(problem), "overloaded", {"retry-after": f"{problem.seconds:.0f}"})
        except Failed as problem:
            return _error(503, str(problem), "unavailable", {"retry-after": "5"})
        except ClientDisconnect:
            return Response(status_code=499)
        except HpckitError as problem:
            status, kind = (400, "invalid_request_error") if isinstance(problem, InputError) else (500, "server_error")
            return _error(status, "; ".join(filter(None, (problem.message, problem.do))), kind)

    return guarded


async def _refused(request: Request, problem: Exception) -> Response:
    """The answer to a path or a method that is not served."""
    assert isinstance(problem, HTTPException)
    told = f"{request.method} {request.url.path}: {problem.detail}"
    return _error(problem.status_code, told, "invalid_request_error", dict(problem.headers or {}))


async def _broken(request: Request, problem: Exception) -> Response:
    """The answer where the server itself has failed; the traceback is in its log."""
    return _error(500, f"the server has failed: {type(problem).__name__}", "server_error")


def _error(
    status: int,
    message: str,
    kind: str,
    headers: dict[str, str] | None = None,
    param: str | None = None,
    code: int | str = 0,
) -> Response:
    """An error in OpenAI's form; code: where it is not the status. What a client sent may hold halves of characters."""
    message = message.encode(errors="replace").decode()
    return JSONResponse(
        {"error": {"message": message, "type": kind, "param": param, "code": code or status}}, status, headers
    )


async def _body(request: Request, most: int) -> dict[str, Any]:
    """The object of a body. Raises `BodyTooLarge` before all of it is read, `BodyTooSlow` if it does not come,
    `InputError` if it is not an object.
    """
    parts, size, told = [], 0, request.headers.get("content-length", "")
    if len(told) > 18 or (told.isdecimal() and int(told) > most):
        raise BodyTooLarge(f"a body has at most {most} bytes")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise BodyTooLarge(f"a body has at most {most} bytes")
                parts.append(part)
    except TimeoutError:
        raise BodyTooSlow(f"the body did not come within {BODY_SECONDS:g} s") from None
    try:
        found = json.loads(b"".join(parts))
    except (ValueError, RecursionError):
        raise InputError("the body is not JSON") from None
    if not isinstance(found, dict):
        raise InputError("the body is not an object")
    return found


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
