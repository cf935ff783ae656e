"""`hpckit generate MODEL PROMPTS.jsonl`: what a model writes after many prompts, in the steps of one engine."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpckit.cli.serving.ranks import add_engine, engine_of, on_ranks, recorded
from hpckit.errors import InputError
from hpckit.io.files import replace_file
from hpckit.plan.inputs.text import parse_json, read_bytes
from hpckit.settings.table import Parser

if TYPE_CHECKING:
    from hpckit.serving.engine import Engine
    from hpckit.serving.events import Completion
    from hpckit.serving.server.answers import Answers

MOST_PROMPTS = 1 << 30  # bytes
KEYS = ("prompt", "messages")


def main(arguments: list[str]) -> int:
    """The verb `generate`."""
    it = Parser(
        prog="hpckit generate",
        description="Continue many prompts at once. Each line of the file is a text, or an object as for"
        " /v1/completions (prompt) or /v1/chat/completions (messages); each line of the output is an object with index,"
        " text, finish_reason, logprobs and usage, in the order of the prompts.",
    )
    add_engine(it)
    it.add_argument("prompts", type=Path, metavar="PROMPTS.jsonl", help="a prompt a line")
    it.add_argument("--out", type=Path, metavar="FILE", help="where results go (standard output)")
    it.add_argument("--max-tokens", type=int, default=128, metavar="N", help="tokens to write where a line is silent")
    it.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0: the likeliest token (0)")
    it.add_argument("--seed", type=int, metavar="S", help="of lines without one")
    options = it.parse_args(arguments)
    bodies = _bodies(options.prompts, {key: getattr(options, key) for key in ("max_tokens", "temperature", "seed")})

    def work(comm: Any) -> int:
        engine = engine_of(options, comm)
        with recorded(engine, options, "generate"):
            lines = _written(engine, bodies)
        if comm is None or comm.rank == 0:
            text = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
            if options.out is None:
                print(text, end="", flush=True)
            else:
                replace_file(options.out, text.encode())
        return 0

    return on_ranks("generate", arguments, options, work)


def _bodies(path: Path, common: dict[str, Any]) -> list[dict[str, Any]]:
    """The requests of a file. Raises `InputError` with the lines that are none."""
    found, wrong = [], []
    content = read_bytes(path, "the prompts", MOST_PROMPTS, "give a file with a prompt on each line")
    for number, line in enumerate(content.decode(errors="replace").splitlines(), 1):
        if not line.strip():
            continue
        try:
            given = parse_json(line)
        except ValueError:
            given = None
        given = {"prompt": given} if isinstance(given, str) else given
        if isinstance(given, dict) and any(key in given for key in KEYS):
            found.append({**{key: value for key, value in common.items() if value is not None}, **given})
        else:
            wrong.append(number)
    if wrong or not found:
        told = f"line {', '.join(map(str, wrong[:5]))} of {path} is not a prompt" if wrong else f"{path} has no prompt"
        raise InputError(told, do='write a text in quotes, or an object, on each line: {"prompt": "To be", "seed": 1}')
    return found


def _written(engine: Engine, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines of the output, on rank 0. Collective."""
    from hpckit.serving.server.answers import Answers
    from hpckit.serving.server.protocol import request_of, room_for

    prompts, ways, answers = [], [], []
    for number, body in enumerate(bodies):
        try:
            request = request_of(body)
            (prompt,) = request.prompts(engine)
            ways.append(request.way(room_for(engine, prompt)))
            ways[-1].check(engine.shape.vocab)
            prompts.append(prompt)
            answers.append(Answers(engine, request, "", "", [prompt]))
        except InputError as problem:
            raise InputError(f"prompt {number}: {problem.message}", likely=problem.likely, do=problem.do) from None
        except ValueError:
            raise InputError(f"prompt {number} is a list of texts", do="write each on a line of its own") from None
    begin = time.perf_counter()
    done = engine.generate(prompts, ways)
    if engine.team.rank:
        return []
    seconds, counts = time.perf_counter() - begin, engine.counters
    print(
        f"{len(bodies)} prompts of {counts.prompt_tokens + counts.found_tokens} tokens, {counts.found_tokens} of them"
        f" shared; {counts.written_tokens} tokens written in {seconds:.3g} s:"
        f" {counts.written_tokens / max(seconds, 1e-9):.1f} tokens/s",
        file=sys.stderr,
        flush=True,
    )
    lines, index = [], -1
    for one in done:
        index += one.sample == 0
        lines.append(_line(index, one, answers[index]))
    return lines


def _line(index: int, one: Completion, answers: Answers) -> dict[str, Any]:
    """A sample of the prompt with that index; logprobs, in OpenAI's form, where they were asked for."""
    from hpckit.serving.server.answers import Choice

    choice = Choice(one.sample)
    choice.text, choice.tokens, choice.prompt = one.text, one.logprobs, one.prompt_logprobs
    told = answers.choice(choice)
    text = told["text"] if "text" in told else told["message"]["content"]
    more = {} if told["logprobs"] is None else {"logprobs": told["logprobs"]}
    usage = {"prompt_tokens": len(one.prompt), "completion_tokens": len(one.tokens), "cached_tokens": one.found}
    return {"index": index, "sample": one.sample, "text": text, "finish_reason": one.reason, **more, "usage": usage}
