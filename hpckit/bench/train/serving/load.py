"""A load on any OpenAI server: closed (so many requests at once) or open (a rate); figures as in vLLM's benchmark.

TTFT: from the request to the first text. ITL: between two pieces of text. TPOT: (whole time - TTFT) / (tokens - 1).
E2EL: the whole time. Goodput: requests a second that keep all limits which are given (`--goodput ttft=500,tpot=50`).
Prompts are random words, other ones for each request.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import ssl
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from hpckit.bench.measure import Rows, result
from hpckit.errors import InputError, SetupError

LIMITS = ("ttft", "tpot", "e2el")
LETTERS = "etaoinshrdlucmfw"
MOST_WAIT = 600.0  # s for the next piece of an answer


@dataclass
class Answer:
    """How a request went: seconds from its start; `tokens` by the server's count; error: "" for none."""

    begin: float
    first: float = 0.0
    whole: float = 0.0
    gaps: list[float] = field(default_factory=list)
    asked: int = 0
    tokens: int = 0
    error: str = ""

    @property
    def tpot(self) -> float:
        """Seconds of a token behind the first."""
        return (self.whole - self.first) / max(1, self.tokens - 1)


def add_options(it: Any) -> tuple[str, ...]:
    """The options of this benchmark, and their names for `run`."""
    it.add_argument("url", metavar="URL", help="of the server, as http://127.0.0.1:8000")
    it.add_argument("--requests", type=int, default=64, metavar="N", help="requests in all (64; with --quick 16)")
    it.add_argument("--concurrency", type=int, default=8, metavar="N", help="most requests at once (8)")
    it.add_argument("--rate", type=float, metavar="R", help="open load: requests a second, a Poisson process")
    it.add_argument("--input-words", type=int, default=32, metavar="N", help="words of a prompt (32)")
    it.add_argument("--output-tokens", type=int, default=32, metavar="N", help="tokens of an answer (32)")
    it.add_argument("--shared-words", type=int, default=0, metavar="N", help="words with which all prompts begin (0)")
    it.add_argument("--goodput", default="", metavar="LIMITS", help="milliseconds, as ttft=500,tpot=50,e2el=3000")
    it.add_argument("--seed", type=int, default=0, metavar="S", help="of prompts and arrivals (0)")
    return "url", "requests", "concurrency", "rate", "input_words", "output_tokens", "shared_words", "goodput", "seed"


def run(
    quick: bool = False,
    *,
    url: str,
    requests: int = 64,
    concurrency: int = 8,
    rate: float | None = None,
    input_words: int = 32,
    output_tokens: int = 32,
    shared_words: int = 0,
    goodput: str = "",
    seed: int = 0,
) -> dict[str, Any]:
    """Put the load on the server. Raises `InputError` for numbers that cannot be, `SetupError` without a server."""
    requests = min(requests, 16) if quick else requests
    if (
        min(requests, concurrency, input_words, output_tokens) < 1
        or shared_words < 0
        or (rate is not None and rate <= 0)
    ):
        raise InputError("a load of no requests, words or tokens", do="give 1 or more of each, and a rate above 0")
    limits, server = _limits(goodput), _Server(url)
    dice = random.Random(seed)

    def words(count: int) -> str:
        return " ".join("".join(dice.choices(LETTERS, k=4)) for _ in range(count))

    shared = words(shared_words)
    prompts = [f"{shared} {words(input_words)}".strip() for _ in range(requests)]
    server.ask(prompts[0], 1)  # what is compiled or read at the first request
    arrivals = [0.0] * requests
    for n in range(1, requests if rate else 1):
        arrivals[n] = arrivals[n - 1] + dice.expovariate(rate or 1.0)
    answers, begin = _load(server, prompts, output_tokens, arrivals, requests if rate else concurrency)
    seconds = time.perf_counter() - begin
    good = [one for one in answers if not one.error]
    if not good:
        raise SetupError(f"no request to {url} was answered: {answers[0].error}", do="look at what the server says")
    kept = [one for one in good if _keeps(one, limits)]
    output = sum(one.tokens for one in good)
    rows: Rows = [
        _row("TTFT ms", [1e3 * one.first for one in good]),
        _row("TPOT ms", [1e3 * one.tpot for one in good if one.tokens > 1]),
        _row("ITL ms", [1e3 * gap for one in good for gap in one.gaps]),
        _row("E2EL ms", [1e3 * one.whole for one in good]),
    ]
    totals = {
        "requests": len(good),
        "failed": len(answers) - len(good),
        "seconds": round(seconds, 3),
        "requests_per_s": round(len(good) / seconds, 3),
        "output_tokens_per_s": round(output / seconds, 2),
        "total_tokens_per_s": round((output + sum(one.asked for one in good)) / seconds, 2),
    }
    if limits:
        totals["goodput_per_s"] = round(len(kept) / seconds, 3)
    rows += [{"figure": name, "mean": value} for name, value in totals.items()]
    return result("serve", [row for row in rows if row], {}, totals=totals)


def _load(
    server: _Server, prompts: Sequence[str], tokens: int, arrivals: Sequence[float], at_once: int
) -> tuple[list[Answer], float]:
    """The answers, and when the load began."""
    begin = time.perf_counter()

    def one(n: int) -> Answer:
        time.sleep(max(0.0, begin + arrivals[n] - time.perf_counter()))
        return server.ask(prompts[n], tokens)

    with ThreadPoolExecutor(min(at_once, 512)) as pool:
        return list(pool.map(one, range(len(prompts)))), begin


class _Server:
    """The server of a URL; a connection for each request."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"{url} is not the address of a server", do="give one as http://127.0.0.1:8000")
        self._parts = parts
        base = parts.path.rstrip("/").removesuffix("/v1")
        self._path = f"{base}/v1/completions"
        self._headers = {"content-type": "application/json"}
        token = os.environ.get("HPCKIT_TOKEN") or os.environ.get("OPENAI_API_KEY")
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        try:
            connection = self._connect()
            connection.request("GET", f"{base}/v1/models", headers=self._headers)
            told = json.loads(connection.getresponse().read())
            self._model = told["data"][0]["id"]
        except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as problem:
            raise SetupError(
                f"no OpenAI server answers at {url}: {problem!r}", do="start one: hpckit serve MODEL --port 8000"
            ) from None

    def ask(self, prompt: str, tokens: int) -> Answer:
        """One request, as a stream."""
        body = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        found, connection = Answer(time.perf_counter()), self._connect()
        try:
            connection.request("POST", self._path, json.dumps(body), self._headers)
            answer = connection.getresponse()
            if answer.status != 200:
                found.error = f"{answer.status} {answer.read()[:200].decode(errors='replace')}"
            else:
                self._read(answer, found)
        except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as problem:
            found.error = repr(problem)
        finally:
            connection.close()
        return found

    def _read(self, answer: http.client.HTTPResponse, found: Answer) -> None:
        last, done = 0.0, False
        for raw in answer:
            line = raw.strip()
            if not line.startswith(b"data:"):
                continue
            text = line.removeprefix(b"data:").strip()
            if text == b"[DONE]":
                done = True
                break
            chunk, now = json.loads(text), time.perf_counter() - found.begin
            if "error" in chunk:
                raise ValueError(str(chunk["error"]))
            if chunk.get("choices"):
                if found.first:
                    found.gaps.append(now - last)
                found.first = found.first or now
                last = found.whole = now
            if chunk.get("usage"):
                found.asked, found.tokens = chunk["usage"]["prompt_tokens"], chunk["usage"]["completion_tokens"]
        if not done:
            raise ValueError("the stream ended early")

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=MOST_WAIT, context=ssl.create_default_context())
        return http.client.HTTPConnection(host, port, timeout=MOST_WAIT)


def _limits(text: str) -> dict[str, float]:
    """Seconds by the name of a figure."""
    found = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        try:
            found[name.strip().lower()] = float(value) / 1e3
        except ValueError:
            found[""] = 0.0
    if set(found) - set(LIMITS):
        raise InputError(f"--goodput {text}", do=f"give milliseconds for {', '.join(LIMITS)}, as ttft=500,tpot=50")
    return found


def _keeps(one: Answer, limits: dict[str, float]) -> bool:
    each = {"ttft": one.first, "tpot": one.tpot, "e2el": one.whole}
    return all(each[name] <= limit for name, limit in limits.items())


def _row(figure: str, values: Sequence[float]) -> dict[str, Any]:
    """Mean and percentiles of a figure."""
    if not values:
        return {}
    low, high = np.percentile(values, [90, 99]).tolist()
    told = {"mean": mean(values), "median": median(values), "p90": low, "p99": high}
    return {"figure": figure} | {name: round(value, 2) for name, value in told.items()}
