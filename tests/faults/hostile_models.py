"""Language models and prompts made to do harm, given to `generate` and `serve`: one refusal, soon, and nothing for the
terminal to obey. `python -m tests.faults.hostile_models` prints a line a case.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import shutil
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, NoReturn

from hpckit.cli.main import main
from hpckit.launch.scratch import scratch
from tests.faults.hostile import CONTENTS, LIVE, REFUSED

SECONDS = 2.0  # of processor time in which a file is refused
WAITING = 10  # s, after which a case hangs
GOOD = '{"prompt": "ab", "max_tokens": 2}\n'
HUGE = 10**18
Change = Callable[[Path], object]
# Kinds of `hostile.CONTENTS` that are tried in the place of each file.
EVERYWHERE = (
    "brackets",
    "braces",
    "closed brackets",
    "digits",
    "only digits",
    "long line",
    "terminal in JSON",
    "terminal, bare",
    "zeros",
    "noise",
    "nothing",
    "pipe",
    "memory",
    "endless",
    "a folder",
    "a circle",
    "a link to nothing",
    "safetensors brackets",
    "safetensors types",
)
FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "model.safetensors",
         "chat_template.jinja", "p.jsonl", "model.gguf")  # fmt: skip
# A wrong value of a key of config.json.
KEYS: dict[str, Any] = {
    "no heads": {"num_attention_heads": 0},
    "heads below 0": {"num_attention_heads": -6},
    "no heads of keys": {"num_key_value_heads": -1},
    "heads that do not divide": {"num_attention_heads": 7},
    "huge heads": {"num_attention_heads": HUGE},
    "huge width": {"hidden_size": HUGE},
    "huge width and heads": {"hidden_size": HUGE, "num_attention_heads": HUGE, "num_key_value_heads": HUGE},
    "width of text": {"hidden_size": "24; rm"},
    "huge layers": {"num_hidden_layers": 10**9},
    "layers below 0": {"num_hidden_layers": -1},
    "no layers": {"num_hidden_layers": 0},
    "infinite layers": {"num_hidden_layers": float("inf")},
    "huge vocabulary": {"vocab_size": HUGE},
    "no vocabulary": {"vocab_size": 0},
    "huge context": {"max_position_embeddings": HUGE},
    "context below 0": {"max_position_embeddings": -5},
    "no context": {"max_position_embeddings": 0},
    "infinite base": {"rope_theta": float("inf")},
    "base of nan": {"rope_theta": float("nan")},
    "base below 0": {"rope_theta": -1.0},
    "eps of nan": {"rms_norm_eps": float("nan")},
    "eps of text": {"rms_norm_eps": LIVE},
    "kind to obey": {"model_type": LIVE},
    "kind of a list": {"model_type": ["llama"]},
    "activation to obey": {"hidden_act": LIVE},
    "activation of a list": {"hidden_act": []},
    "scaling of text": {"rope_scaling": LIVE},
    "scaling of a list": {"rope_scaling": [1]},
    "scaling by 0": {"rope_scaling": {"rope_type": "linear", "factor": 0}},
    "scaling by nan": {"rope_scaling": {"rope_type": "linear", "factor": float("nan")}},
    "end of text": {"eos_token_id": LIVE},
    "ends in ends": {"eos_token_id": [[1]]},
    "huge end": {"eos_token_id": 10**400},
    "huge head": {"head_dim": HUGE},
    "head below 0": {"head_dim": -4},
    "odd head": {"head_dim": 3},
    "hidden of 0": {"intermediate_size": 0},
    "parameters of text": {"rope_parameters": LIVE},
    "window below 0": {"sliding_window": -1},
}
PROMPTS = {
    "deep prompt": "[" * 100_000,
    "deep object": '{"prompt":' * 100_000,
    "deep and closed": "[" * 100_000 + "]" * 100_000,
    "number": "7",
    "nothing in it": "{}",
    "huge token": f'{{"prompt": [{10**400}]}}',
    "token below 0": '{"prompt": [-1]}',
    "token beyond": '{"prompt": [256]}',
    "token of text": f'{{"prompt": [{json.dumps(LIVE)}]}}',
    "prompt of truth": '{"prompt": [true, null]}',
    "huge max_tokens": f'{{"prompt": "a", "max_tokens": {10**30}}}',
    "max_tokens below 0": '{"prompt": "a", "max_tokens": -1}',
    "temperature of nan": '{"prompt": "a", "temperature": NaN}',
    "temperature below 0": '{"prompt": "a", "temperature": -1}',
    "infinite temperature": '{"prompt": "a", "temperature": Infinity}',
    "huge seed": f'{{"prompt": "a", "seed": {10**40}}}',
    "seed below 0": '{"prompt": "a", "seed": -1}',
    "huge n": f'{{"prompt": "a", "n": {10**12}}}',
    "huge top_k": f'{{"prompt": "a", "top_k": {10**40}}}',
    "bias beyond": '{"prompt": "a", "logit_bias": {"99999": 1}}',
    "bias of nan": '{"prompt": "a", "logit_bias": {"1": NaN}}',
    "many stops": json.dumps({"prompt": "a", "stop": ["a" * 1000] * 10_000}),
    "stop of nothing": '{"prompt": "a", "stop": ""}',
    "role to obey": json.dumps({"messages": [{"role": LIVE, "content": {"a": LIVE}}]}),
    "no messages": '{"messages": []}',
    "deep message": '{"messages": [{"role": "a", "content": ' + "[" * 5000 + "]" * 5000 + "}]}",
    "half a character": '{"prompt": "\\ud800"}',
    "long prompt": json.dumps({"prompt": "a" * 3_000_000}),
    "penalty of 0": '{"prompt": "a", "repetition_penalty": 0}',
    "huge priority": f'{{"prompt": "a", "priority": {10**30}}}',
    "logprobs below 0": '{"prompt": "a", "logprobs": -7}',
    "huge logprobs": f'{{"prompt": "a", "logprobs": {10**20}}}',
}
MAY_RUN = ("role to obey", "token of text", "seed below 0",
           "huge priority", "huge seed", "huge top_k", "many stops", "window below 0", "no messages",
           "generation_config.json", "tokenizer_config.json", "chat_template.jinja", "eps of nan", "long prompt",
           "half a character")  # fmt: skip
TEMPLATES = {
    "template that loops": "{% for i in range(10**9) %}x{% endfor %}",
    "template that grows": "{{ 'x' * 10**11 }}",
    "template that reads": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "template that is open": "{% for",
    "template that calls itself": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "template of powers": "{{ 9 ** 9 ** 9 }}",
}


def json_file(name: str, value: object) -> Change:
    """Another value in the place of a file of JSON."""
    return lambda folder: (folder / name).write_text(json.dumps(value))


def keys_of(changed: dict[str, Any]) -> Change:
    """Other values of keys of config.json."""

    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changed))

    return change


def cut(name: str, share: float) -> Change:
    """A file that ends early."""
    return lambda folder: os.truncate(folder / name, int(share * (folder / name).stat().st_size))


def patched(name: str, at: int, value: bytes) -> Change:
    """Other bytes at a place of a file."""

    def change(folder: Path) -> None:
        with (folder / name).open("r+b") as file:
            file.seek(at)
            file.write(value)

    return change


def replaced(name: str, kind: str) -> Change:
    """One of the contents that every file is tried with."""

    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        CONTENTS[kind](folder / name, Random(7))

    return change


def gguf_value(key: str, raw: bytes) -> Change:
    """Another number of the same size behind a key of a GGUF file's metadata."""

    def change(folder: Path) -> None:
        data = bytearray((folder / "model.gguf").read_bytes())
        at = data.index(key.encode()) + len(key) + 4  # behind the name and the type
        data[at : at + len(raw)] = raw
        (folder / "model.gguf").write_bytes(data)

    return change


def cases() -> Iterator[tuple[str, Change]]:
    """Name and change of each case."""
    for file in FILES:
        for kind in EVERYWHERE:
            yield f"{kind} as {file}", replaced(file, kind)
    for name, changed in KEYS.items():
        yield f"{name} in config.json", keys_of(changed)
    for share in (0.0, 0.02, 0.5, 0.999):
        for file in ("config.json", "model.safetensors", "model.gguf"):
            yield f"{share:.1%} of {file}", cut(file, share)
    for name, line in PROMPTS.items():
        yield f"{name} in p.jsonl", lambda folder, line=line: (folder / "p.jsonl").write_text(line + "\n")
    for name, template in TEMPLATES.items():
        yield f"{name} in tokenizer_config.json", json_file("tokenizer_config.json", {"chat_template": template})
    yield "templates without names in tokenizer_config.json", json_file("tokenizer_config.json", {"chat_template": [1]})
    for what, value in (("text", LIVE), ("a list of texts", [LIVE]), ("a huge number", 10**400), ("a table", {})):
        yield (
            f"an end of {what} in generation_config.json",
            json_file("generation_config.json", {"eos_token_id": value}),
        )
    for count, name in ((8, "tensors"), (16, "keys")):
        for number in (2**63, 2**40, 10**6):
            yield f"{number} {name} in model.gguf", patched("model.gguf", count, struct.pack("<Q", number))
    yield "another version in model.gguf", patched("model.gguf", 4, struct.pack("<I", 99))
    for key in ("attention.head_count", "block_count", "embedding_length", "context_length", "feed_forward_length"):
        for number in (0, 2**31, 2**32 - 1):
            yield f"{key} = {number} in model.gguf", gguf_value(f"llama.{key}", struct.pack("<I", number))
    yield "a long name in model.gguf", patched("model.gguf", 24, struct.pack("<Q", 2**50))


def judged(words: list[str], codes: tuple[int, ...], most: float | None = None, waiting: int = WAITING) -> str:
    """What is wrong with the way in which a verb ended; "" for nothing."""
    out, error = io.StringIO(), io.StringIO()
    begin = time.process_time()
    signal.alarm(waiting)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            code = main(words)
    except TimeoutError:
        return f"no answer in {waiting} s"
    except BaseException as problem:
        return f"{type(problem).__name__}: {problem}"[:200]
    finally:
        signal.alarm(0)
    seconds = time.process_time() - begin
    told = error.getvalue()
    said = out.getvalue() + told
    bad = sorted({character for character in told if not character.isprintable() and character not in "\n\t"})
    return "; ".join(
        text
        for wrong, text in (
            (code not in codes, f"exit code {code}: {said[-200:]!r}"),
            (seconds > (SECONDS if most is None else most), f"{seconds:.1f} s of processor time"),
            (bool(bad), f"printed {bad}"),
            ("Traceback" in said, "a traceback"),
            (max(map(len, told.splitlines()), default=0) > 5000, "a line of more than 5000 characters"),
        )
        if wrong
    )


def tried(name: str, change: Change, good: Path, place: Path) -> Iterator[tuple[str, str]]:
    """A case with each verb that reads the file: what was tried, and what was wrong with its end."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(good, place)
    for file in place.glob("*.json"):
        file.chmod(0o644)
    change(place)
    is_gguf, is_prompts = "gguf" in name, name.endswith("p.jsonl")
    if name.endswith(("chat_template.jinja", "tokenizer_config.json")):
        (place / "p.jsonl").write_text('{"messages": [{"role": "a", "content": "b"}], "max_tokens": 2}\n')
    model = str(place / "model.gguf") if is_gguf else str(place)
    may_run = any(part in name for part in MAY_RUN)
    codes = (*REFUSED, 0, 3) if may_run else REFUSED
    yield f"generate: {name}", judged(["generate", model, str(place / "p.jsonl"), "--max-tokens", "2"], codes)
    if not (is_prompts or may_run):
        yield f"serve: {name}", judged(["serve", model, "--port", "0"], codes)


def _no_answer(number: int, frame: object) -> NoReturn:
    raise TimeoutError


def campaign(first: int = 0, step: int = 1) -> Iterator[tuple[str, str]]:
    """Every `step`-th case from `first` on: what was tried, and what was wrong, "" for nothing."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "serving"))  # where its tests have their models
    write_model = import_module("models").write_model
    write_gguf = import_module("test_gguf").write_gguf
    signal.signal(signal.SIGALRM, _no_answer)
    os.environ["HPCKIT_CONFIG"] = os.devnull
    with scratch("hpckit-models-") as folder:
        good = write_model(Path(folder) / "good", "llama", vocab_size=256)
        write_gguf(good / "model.gguf", good)
        (good / "p.jsonl").write_text(GOOD)
        (good / "tokenizer_config.json").write_text("{}")
        (good / "generation_config.json").write_text("{}")
        for model in (good, good / "model.gguf"):  # imports and compiling are no part of a case's time
            problem = judged(["generate", str(model), str(good / "p.jsonl")], (0,), math.inf, 250)
            assert not problem, problem
        for name, change in list(cases())[first::step]:
            yield from tried(name, change, good, Path(folder) / "bad")


if __name__ == "__main__":
    failed = 0
    for case, problem in campaign(*map(int, sys.argv[1:3])):
        failed += bool(problem)
        print(f"{'FAILED' if problem else 'held  '} {case}{': ' * bool(problem)}{problem}", flush=True)
    sys.exit(bool(failed))
