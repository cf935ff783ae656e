"""The server: OpenAI's answers, streams, clients that hang up, overload, limits, tokens, and its end."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import wait_until
from models import write_model

pytest.importorskip("starlette", reason="starlette is not installed")
uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed")

from hpckit.cli.main import main  # noqa: E402
from hpckit.cli.serving.ranks import ANNOUNCED  # noqa: E402
from hpckit.serving import Engine, Sampling  # noqa: E402
from hpckit.serving.server.http import application  # noqa: E402
from hpckit.serving.server.service import Service  # noqa: E402

PLAIN = {"prompt": "Hello", "max_tokens": 6, "temperature": 0}


class Running:
    """A server in a thread."""

    def __init__(self, folder, token="", waiting=256, most_body=1 << 16, **options):
        self.engine = Engine(folder, texts=4, rows=64, **options)
        self.service = Service(self.engine, waiting)
        app = application(self.service, ["small", "tiny"], token, most_body)
        self.server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        wait_until(lambda: self.server.started)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]

    def close(self):
        self.server.should_exit = True
        self.thread.join()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, path, body=None, headers=None):
        connection = self.connect()
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request("GET" if body is None else "POST", path, data, headers or {})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer, text

    def chunks(self, path, body):
        answer, text = self.ask(path, {**body, "stream": True})
        assert answer.status == 200
        lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
        assert lines.pop() == "[DONE]"
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("http") / "model", "llama", vocab_size=256)


@pytest.fixture(scope="module")
def running(folder):
    it = Running(folder)
    yield it
    it.close()


def test_an_answer_is_that_of_the_engine_whole_and_in_a_stream(running, folder):
    (expected,) = Engine(folder, texts=1).generate(["Hello"], Sampling(max_tokens=6))
    answer, text = running.ask("/v1/completions", PLAIN)
    found = json.loads(text)
    assert answer.status == 200
    assert found["choices"][0]["text"] == expected.text
    assert found["choices"][0]["finish_reason"] == "length"
    assert found["usage"]["prompt_tokens"] == 5
    assert found["usage"]["completion_tokens"] == 6
    chunks = running.chunks("/v1/completions", {**PLAIN, "stream_options": {"include_usage": True}})
    assert "".join(one["choices"][0]["text"] for one in chunks[:-1]) == expected.text
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 6
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"


def test_several_prompts_and_samples_have_their_numbers(running):
    body = {**PLAIN, "prompt": ["ab", [7, 8, 9]], "n": 2, "temperature": 1, "seed": 3, "logprobs": 1, "echo": True}
    found = json.loads(running.ask("/v1/completions", body)[1])
    assert "error" not in found, found
    assert [one["index"] for one in found["choices"]] == [0, 1, 2, 3]
    assert found["choices"][0]["text"].startswith("ab")
    logprobs = found["choices"][2]["logprobs"]
    assert len(logprobs["tokens"]) == len(logprobs["token_logprobs"]) == 3 + 6
    assert logprobs["token_logprobs"][0] is None
    assert max(logprobs["token_logprobs"][1:]) < 0
    texts = {}
    for chunk in running.chunks("/v1/completions", body):
        own = chunk["choices"][0]
        texts[own["index"]] = texts.get(own["index"], "") + own["text"]
    assert texts == {one["index"]: one["text"] for one in found["choices"]}


def test_chats_in_a_stream_and_stop_texts(running):
    body = {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
        "max_tokens": 9,
        "temperature": 0,
    }
    found = json.loads(running.ask("/v1/chat/completions", body)[1])["choices"][0]["message"]
    chunks = running.chunks("/v1/chat/completions", body)
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert "".join(one["choices"][0]["delta"]["content"] for one in chunks) == found["content"]
    stop = found["content"][2:4]
    cut = json.loads(running.ask("/v1/chat/completions", {**body, "stop": stop})[1])["choices"][0]
    assert cut["message"]["content"] == found["content"][: found["content"].index(stop)]
    assert cut["finish_reason"] == "stop"


def test_parts_of_a_character_keep_their_names_and_bytes(running):
    body = {**PLAIN, "logit_bias": {"195": 50, "169": 50}, "frequency_penalty": 2, "max_tokens": 4}
    found = json.loads(running.ask("/v1/completions", {**body, "logprobs": 20})[1])["choices"][0]["logprobs"]
    assert {len(each) for each in found["top_logprobs"]} <= {20, 21}  # no two tokens have one name
    assert set(found["tokens"]) == {r"bytes:\xc3", r"bytes:\xa9"}
    asked = {**body, "messages": [{"role": "user", "content": "Hi"}], "logprobs": True}
    told = json.loads(running.ask("/v1/chat/completions", asked)[1])["choices"][0]
    joined = b"".join(bytes(one["bytes"]) for one in told["logprobs"]["content"])
    assert joined.decode(errors="replace") == told["message"]["content"]


def test_small_routes(running):
    assert [one["id"] for one in json.loads(running.ask("/v1/models")[1])["data"]] == ["small", "tiny"]
    assert json.loads(running.ask("/health")[1]) == {"status": "ok"}
    assert json.loads(running.ask("/tokenize", {"prompt": "ab"})[1])["tokens"] == [97, 98]
    assert json.loads(running.ask("/detokenize", {"tokens": [97, 98]})[1])["prompt"] == "ab"
    lines = [line for line in running.ask("/metrics")[1].splitlines() if not line.startswith("#")]
    assert {line.split("{")[0].split()[0]: float(line.split()[-1]) for line in lines}["hpckit_steps_total"] > 0


CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}


@pytest.mark.parametrize(
    ("path", "body"),
    [("v1/completions", PLAIN), ("v1/chat/completions", CHAT), ("tokenize", PLAIN), ("detokenize", {"tokens": [97]})],
)
def test_a_request_for_another_model_finds_none(running, path, body):
    for name in (None, "", "small", "tiny"):  # its second name
        answer, text = running.ask(f"/{path}", {**body, "model": name})
        assert answer.status == 200
        assert json.loads(text).get("model", "small") == "small"
    answer, text = running.ask(f"/{path}", {**body, "model": "large"})
    found = json.loads(text)["error"]
    assert (answer.status, found["code"], found["param"]) == (404, "model_not_found", "model")
    assert "large" in found["message"]
    assert "small or tiny" in found["message"]
    assert running.ask(f"/{path}", {**body, "model": ["small"]})[0].status == 400
    assert running.ask(f"/{path}", {**body, "model": "\ud800"})[0].status == 404  # half of a character


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"5", b"[" * 5000, {}, {"prompt": 5}, {"prompt": []}, {"prompt": [[]]}, {"prompt": [300]},
        {"prompt": "a", "temperature": "hot"}, {"prompt": "a", "max_tokens": -1}, {"prompt": "a", "max_tokens": 10**9},
        {"prompt": "a", "n": 1000}, {"prompt": "a", "logit_bias": {"9999": 1}}, {"prompt": "a", "stop": [""]},
        {"prompt": "a", "logprobs": 99}, {"prompt": "a", "top_p": float("nan")}, {"prompt": ["a"] * 200},
        {"prompt": "a", "best_of": 3}, {"prompt": "a", "suffix": "b"}, {"prompt": "a", "tool_choice": "required"},
        {"prompt": "a", "response_format": {"type": "json_object"}}, {"prompt": "a", "tools": [{"type": "function"}]},
        {"prompt": "a", "guided_json": {}, "stop_token_ids": [3]},
    ],
)  # fmt: skip
def test_wrong_bodies_get_400_and_a_reason(running, body):
    answer, text = running.ask("/v1/completions", body)
    assert answer.status == 400
    assert json.loads(text)["error"]["message"]


def test_a_body_that_is_too_large_is_refused(running):
    assert running.ask("/v1/completions", {"prompt": "a" * (1 << 17)})[0].status == 413
    assert running.ask("/v1/completions", b"{}", {"Content-Length": str(10**12)})[0].status == 413  # none of it is sent
    answer, text = running.ask("/v1/nothing", {})
    assert answer.status == 404
    assert "/v1/nothing" in json.loads(text)["error"]["message"]


def test_a_body_that_does_not_come_is_refused(running, monkeypatch):
    monkeypatch.setattr("hpckit.serving.server.guard.BODY_SECONDS", 0.2)
    connection = running.connect()
    connection.request("POST", "/v1/completions", b"{", {"Content-Length": "9"})
    answer = connection.getresponse()
    assert answer.status == 408
    assert "0.2 s" in json.loads(answer.read())["error"]["message"]
    connection.close()


def test_random_bodies_crash_nothing(running):
    dice = random.Random(1)
    values = [None, 1, -1, 1e9, "x", [], {}, True, [1, "a"], {"a": [1]}, "\ud800", 2**70]
    names = [
        "prompt",
        "messages",
        "n",
        "stop",
        "seed",
        "logit_bias",
        "stream",
        "stream_options",
        "cache_salt",
        "priority",
    ]
    for _ in range(150):
        body = {"max_tokens": 1} | {name: dice.choice(values) for name in dice.sample(names, 4)}
        answer, _ = running.ask(dice.choice(["/v1/completions", "/v1/chat/completions", "/tokenize"]), body)
        assert answer.status in (200, 400)
    assert json.loads(running.ask("/health")[1]) == {"status": "ok"}


def test_clients_that_hang_up_leave_no_block(running):
    dice, threads = random.Random(2), []

    def hang_up(count):
        connection = running.connect()
        body = {**PLAIN, "max_tokens": 200, "stream": count > 0, "prompt": "abc" * count + "x"}
        connection.request("POST", "/v1/completions", json.dumps(body).encode())
        if count:
            connection.getresponse().read(dice.randrange(1, 400))
        connection.sock and connection.sock.close()
        connection.close()

    for count in [0, 1, 2, 9, 0, 4, 3, 8, 7, 5]:
        threads.append(threading.Thread(target=hang_up, args=(count,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    wait_until(lambda: running.engine.idle and running.engine.blocks.used == 0)
    assert running.engine.counters.aborted > 0


def test_tokens_and_overload(folder):
    it = Running(folder, token="secret", waiting=1)
    try:
        assert it.ask("/v1/completions", PLAIN)[0].status == 401
        assert it.ask("/v1/completions", PLAIN, {"authorization": "Bearer wrong"})[0].status == 401
        assert it.ask("/health")[0].status == 200
        known = {"authorization": "Bearer secret"}
        assert it.ask("/v1/completions", PLAIN, known)[0].status == 200
        it.service._most = 0
        answer, _ = it.ask("/v1/completions", PLAIN, known)
        assert answer.status == 429
        assert int(answer.getheader("retry-after")) >= 1
    finally:
        it.close()


def test_an_engine_that_fails_answers_503(folder):
    it = Running(folder)
    try:
        it.engine.model.run = lambda step: 1 / 0
        answer, text = it.ask("/v1/completions", PLAIN)
        assert answer.status == 503
        assert "division by zero" in text
        assert it.ask("/health")[0].status == 503
        assert isinstance(it.service.problem, ZeroDivisionError)
    finally:
        it.close()


def served(folder, *words):
    """The process of `hpckit serve`, and its port."""
    command = [sys.executable, "-m", "hpckit.cli.main", "serve", str(folder), "--port", "0", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    assert "serving" in line, line
    return process, int(line.split("http://127.0.0.1:")[1].split(":")[0])


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_a_server_that_is_stopped_sends_what_it_has_begun(folder, ranks):
    process, port = served(folder, "-n", str(ranks))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = {**PLAIN, "max_tokens": 240, "stream": True}
    connection.request("POST", "/v1/completions", json.dumps(body).encode())
    answer = connection.getresponse()
    begin = answer.read(10)
    process.send_signal(signal.SIGTERM)
    text = (begin + answer.read()).decode()
    assert text.endswith("data: [DONE]\n\n")
    assert '"finish_reason": "length"' in text
    connection.close()
    assert process.wait(timeout=60) == 0


def process_of(rank, folder):
    """The number of the process of a rank that serves a folder."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words, given = ((path / name).read_bytes() for name in ("cmdline", "environ"))
            if str(folder).encode() in words and f"{ANNOUNCED}=".encode() in given:
                announced = given.split(f"{ANNOUNCED}=".encode())[1].split(b"\0")[0].decode()
                mark = next(name for name in os.listdir(announced) if name.startswith(f"{rank}-"))
                return int(mark.split("-")[1].split(".")[0])
    raise AssertionError("no such rank")


@pytest.mark.nightly
def test_a_rank_that_is_killed_ends_the_server_with_its_number(folder, capfd):
    process, port = served(folder, "-n", "2")
    running = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    running.request("POST", "/v1/completions", json.dumps({**PLAIN, "max_tokens": 240, "stream": True}).encode())
    answer = running.getresponse()
    begin = answer.read(10)
    os.kill(process_of(1, folder), signal.SIGKILL)
    said = (begin + answer.read()).decode()  # to its regular end, with the reason
    assert "rank 1 " in said
    assert json.loads(said.split("data: ")[-2])["error"]["code"] == 503  # then [DONE]

    def refused():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("POST", "/v1/completions", json.dumps(PLAIN).encode())
            answer = connection.getresponse()
            return answer.status == 503 and "rank 1 " in json.loads(answer.read())["error"]["message"]
        except (OSError, http.client.HTTPException):  # killed under us, or nobody listens yet
            return False

    wait_until(refused)
    assert process.wait(timeout=60) == 7
    assert "rank 1 " in capfd.readouterr().err


def test_the_openai_client_works_unchanged(running):
    openai = pytest.importorskip("openai", reason="openai is not installed")
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{running.port}/v1", api_key="none")
    messages = [{"role": "user", "content": "Hi"}]
    whole = client.chat.completions.create(model="small", messages=messages, max_tokens=7, temperature=0, logprobs=True)
    assert len(whole.choices[0].logprobs.content) == whole.usage.completion_tokens == 7
    stream = client.chat.completions.create(
        model="small",
        messages=messages,
        max_tokens=7,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    parts = list(stream)
    text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    assert text == whole.choices[0].message.content
    assert parts[-1].usage.completion_tokens == 7
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.completions.create(model="small", prompt="a", temperature=-1)
    assert client.models.list().data[0].id == client.models.retrieve("small").id == "small"
    with pytest.raises(openai.NotFoundError, match="no model large"):
        client.models.retrieve("large")


def test_the_load_of_the_benchmark(running, capsys):
    url = f"http://127.0.0.1:{running.port}/v1"
    words = ["bench", "serve", url, "--json", "--requests", "6", "--output-tokens", "4", "--goodput", "e2el=60000"]
    for load in (["--concurrency", "3"], ["--rate", "50"]):
        assert main([*words, *load]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["totals"]["requests"] == 6
        assert found["totals"]["failed"] == 0
        assert found["totals"]["goodput_per_s"] == found["totals"]["requests_per_s"] > 0
        rows = {row["figure"]: row for row in found["results"]}
        assert 0 < rows["TTFT ms"]["median"] <= rows["E2EL ms"]["median"] <= rows["E2EL ms"]["p99"]
    for wrong in (["--rate", "0"], ["--goodput", "speed=1"], ["--requests", "0"]):
        assert main(["bench", "serve", url, *wrong]) == 2
    assert main(["bench", "serve", "http://127.0.0.1:9"]) == 3


@pytest.mark.nightly
@pytest.mark.parametrize("minutes", [2, 20])
def test_minutes_of_clients_that_hang_up_leave_no_block(minutes, folder):
    prompts = ["ab" * count for count in range(1, 25)]
    known = Engine(folder, texts=8).generate(prompts, Sampling(max_tokens=200))
    texts = {prompt: one.text for prompt, one in zip(prompts, known, strict=True)}
    it, dice, end, wrong = Running(folder, kv_tokens=600), random.Random(3), time.monotonic() + 60 * minutes, []

    def client(seed):
        own = random.Random(seed)
        while time.monotonic() < end:
            connection, prompt = it.connect(), own.choice(prompts)
            body = {**PLAIN, "max_tokens": own.randrange(1, 200), "stream": True, "prompt": prompt}
            body |= {"cache_salt": own.choice(["", "another"]), "priority": own.randrange(2)}
            connection.request("POST", "/v1/completions", json.dumps(body).encode())
            said = connection.getresponse().read(own.choice([1, 50, 500, 10**6])).decode()
            connection.close()
            events = [each.removeprefix("data: ") for each in said.split("\n\n")[:-1] if "[DONE]" not in each]
            told = "".join(json.loads(each)["choices"][0]["text"] for each in events)
            if not texts[prompt].startswith(told.rstrip("\ufffd")):  # of a character that was cut off
                wrong.append((prompt, told))

    threads = [threading.Thread(target=client, args=(dice.random(),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: it.engine.idle)
    assert wrong == []
    assert it.engine.blocks.used == 0
    it.engine.blocks.check()
    assert min(it.engine.counters.aborted, it.engine.counters.finished, it.engine.scheduler.preemptions) > 0
    it.close()
