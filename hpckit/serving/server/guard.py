"""What stands before every route: the token, the size and the time of a body, and errors as answers."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from hpckit.errors import HpckitError, InputError
from hpckit.serving.server.service import Failed, Overload

BODY_SECONDS = 60.0  # within which a body must have come
OPEN = ("/health",)  # which need no token
Handler = Callable[[Request], Awaitable[Response]]


class BodyTooLarge(Exception):
    """The body is longer than allowed."""


class BodyTooSlow(Exception):
    """The body does not come to its end."""


class UnknownModel(Exception):
    """The request names another model than is served."""


def guarded_handler(handler: Handler, path: str, token: str) -> Handler:
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


async def refused(request: Request, problem: Exception) -> Response:
    """The answer to a path or a method that is not served."""
    assert isinstance(problem, HTTPException)
    told = f"{request.method} {request.url.path}: {problem.detail}"
    return _error(problem.status_code, told, "invalid_request_error", dict(problem.headers or {}))


async def broken(request: Request, problem: Exception) -> Response:
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


async def read_body(request: Request, most: int) -> dict[str, Any]:
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
