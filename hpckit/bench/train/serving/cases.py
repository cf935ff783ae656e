"""The cases of `hpckit bench serving`, each in a process of its own with one thread a rank: `cases KIND …`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from hpckit.bench.measure import Times, interleave
from hpckit.bench.ranks import answer
from hpckit.bench.train.serving.model import (
    decode_seconds,
    each_seconds,
    first_seconds,
    panels,
    read_seconds,
    tokens,
    write,
)
from hpckit.bench.train.serving.perplexity import perplexity
from hpckit.bench.train.serving.rivals import llama_cpp, llama_cpp_batch, openvino
from hpckit.kernels.nn.tile.reference import unpack
from hpckit.serving.engine import Engine
from hpckit.serving.plan.price import rates_here, serving_price
from hpckit.serving.sampler import Sampling
from hpckit.serving.speculation import guessed
from hpckit.serving.step import ServingStep, TextPiece

PROMPT, LONG = 32, 1024
GUESSES = 3
SENT = 0.05  # s in which all clients of a step have their tokens


def decode(folder: Path, rounds: int, kind: str) -> dict[str, Any]:
    """A token of one text, and a plain read of the memory that it reads: medians of seven each in a round."""
    engine = Engine(folder, weights=kind, texts=2, kv_tokens=2048)
    words, times = panels(engine), Times(read=[], token=[])
    decode_seconds(engine, 2)
    read_seconds(words)
    for _ in range(rounds):
        times["read"].append(median(read_seconds(words) for _ in range(7)))
        times["token"].append(median(each_seconds(engine, 7)))
    return {"times": times, "bytes": engine.weights.nbytes}


def prefix(folder: Path, rounds: int) -> dict[str, Any]:
    """The first token after LONG tokens of which none, or all whole blocks, are there already."""
    engine = Engine(folder, texts=2, kv_tokens=8192)
    times = Times(cold=[], found=[])
    for n in range(rounds + 1):
        prompt = tokens(LONG, 10 + n)
        cold, found = (first_seconds(engine, prompt) for _ in range(2))
        if n:
            times["cold"].append(cold)
            times["found"].append(found)
    return {"times": times}


def promise(folder: Path, rounds: int, rows: int) -> dict[str, Any]:
    """A step of some rows with products of the tile, and with those of NumPy's library, which promises no bits: its
    time without the ones and with the others.
    """
    engine = Engine(folder, texts=rows, rows=rows, kv_tokens=rows * 64)
    head = engine.weights.head
    every = ([head] if head else []) + [
        matrix
        for block in engine.weights.blocks
        for matrix in (block.qkv, block.out, *(each for feed in block.feeds for each in feed))
    ]
    many = rows if rows <= 64 else 1  # a batch of texts, or a piece of one
    each = rows // many
    step = ServingStep(
        tuple(
            TextPiece(n, 0, tuple(tokens(each, n)), tuple(range(n * each, n * each + -(-each // 32))), 1)
            for n in range(many)
        )
    )
    random = np.random.default_rng(0)
    given = [random.standard_normal((many if one is head else rows, one.packed.inputs), np.float32) for one in every]
    plain = [unpack(one.packed) for one in every]
    out = np.empty((rows, max(one.packed.outputs for one in every)), np.float32)
    found = [out.reshape(-1)[: len(a) * w.shape[1]].reshape(len(a), -1) for a, w in zip(given, plain, strict=True)]

    def ours() -> None:
        for one, a, to in zip(every, given, found, strict=True):
            one.multiply(a, to)

    def library() -> None:
        for weight, a, to in zip(plain, given, found, strict=True):
            np.matmul(a, weight, out=to)

    for one, a, weight, to in zip(every, given, plain, found, strict=True):
        one.multiply(a, to)
        np.testing.assert_allclose(to, a @ weight, rtol=1e-3, atol=1e-3)
    timed = interleave({"tile": lambda: engine.model.run(step), "ours": ours, "library": library}, rounds)
    each_round = zip(timed["tile"], timed["ours"], timed["library"], strict=True)
    return {"times": {"tile": timed["tile"], "library": [whole - own + other for whole, own, other in each_round]}}


def overhead(folder: Path, rounds: int, rows: int) -> dict[str, Any]:
    """Steps of a server each of whose clients gets a token of its stream, and the bare pass through the model, while
    no client waits for anything.
    """
    import uvicorn

    from hpckit.serving.server.http import application
    from hpckit.serving.server.service import Service

    engine, times = Engine(folder, texts=rows, kv_tokens=rows * 256), Times(step=[], bare=[])
    run, last = engine.model.run, time.perf_counter()

    def timed(step: ServingStep) -> Any:
        nonlocal last
        found, end = run(step), time.perf_counter()
        if step.rows == step.answers == rows:
            times["step"].append(end - last)
            time.sleep(SENT)
            times["bare"].append(_seconds(lambda: run(step)))
        last = time.perf_counter()
        return found

    engine.model.run = timed  # type: ignore[method-assign]
    server = uvicorn.Server(uvicorn.Config(application(Service(engine), ["bench"]), port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(SENT)
    port = server.servers[0].sockets[0].getsockname()[1]
    load = {"requests": rows, "concurrency": rows, "input-words": PROMPT // 5, "output-tokens": rounds + PROMPT}
    clients = [word for name, count in load.items() for word in (f"--{name}", str(count))]
    try:
        command = [sys.executable, "-m", "hpckit.cli.main", "bench", "serve", f"http://127.0.0.1:{port}", *clients]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    finally:
        server.should_exit = True
        thread.join()
    return {"times": {name: each[2 : 2 + rounds] for name, each in times.items()}}


def theirs(folder: Path, rounds: int, kind: str, count: int) -> dict[str, Any]:
    """Tokens of one text by our engine and by transformers, of the same kind of weights; and 512 tokens at once."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    dtype = {"bfloat16": torch.bfloat16, "float32": torch.float32}[kind]
    other: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    own = {"bfloat16": "bfloat16_dot"}.get(kind, kind)  # products of bfloat16, as theirs are
    engine, prompt, long = Engine(folder, weights=own, texts=2, kv_tokens=4096), tokens(8), tokens(512, 5)
    given, many = torch.tensor([prompt]), torch.tensor([long])
    way = {"do_sample": False, "pad_token_id": 0, "attention_mask": torch.ones_like(given)}
    with torch.no_grad():
        mine = engine.model.run(ServingStep((TextPiece(0, 0, tuple(prompt), (0,), 1),)))[0]
        expected = other(given).logits[0, -1].float().numpy()
        assert np.abs(mine - expected).max() <= (0.1 if kind == "bfloat16" else 1e-3) * np.abs(expected).max()
        times = Times(ours=[], theirs=[], our_prompt=[], their_prompt=[])
        for n in range(rounds + 1):
            seconds = {"ours": decode_seconds(engine, count)}
            begin = time.perf_counter()
            other.generate(given, max_new_tokens=1, min_new_tokens=1, **way)
            middle = time.perf_counter()
            other.generate(given, max_new_tokens=count + 1, min_new_tokens=count + 1, **way)
            seconds["theirs"] = (time.perf_counter() - middle - (middle - begin)) / count
            seconds["our_prompt"] = first_seconds(engine, [n + 1, *long[1:]])
            begin = time.perf_counter()
            other(many, logits_to_keep=1)
            seconds["their_prompt"] = time.perf_counter() - begin
            for name, one in seconds.items():
                if n:
                    times[name].append(one)
    return {"times": times}


def batch(folder: Path, rounds: int, most: int) -> dict[str, Any]:
    """Useful tokens of 32 texts of most / 8 to `most` tokens: our engine, and one padded batch of transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    other: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    prompts = [tokens(PROMPT, n) for n in range(32)]
    counts = np.linspace(most // 8, most, 32).astype(int).tolist()
    ways = [Sampling(max_tokens=count, ignore_end=True) for count in counts]
    engine, given = Engine(folder, texts=32, kv_tokens=32 * 256, prefixes=False), torch.tensor(prompts)
    settings = {"do_sample": False, "pad_token_id": 0, "attention_mask": torch.ones_like(given)}
    times, same = Times(ours=[], theirs=[]), 0.0
    for n in range(rounds):
        begin = time.perf_counter()
        mine = engine.generate(prompts, ways)
        middle = time.perf_counter()
        with torch.no_grad():
            found = other.generate(given, max_new_tokens=most, min_new_tokens=most, **settings)
        times["ours"].append(middle - begin)
        times["theirs"].append(time.perf_counter() - middle)
        if not n:
            texts = [row[PROMPT : PROMPT + count].tolist() for row, count in zip(found, counts, strict=True)]
            same = float(np.mean([one.tokens[:8] == text[:8] for one, text in zip(mine, texts, strict=True)]))
            assert same > 0.9, f"only {same:.0%} of the texts begin alike"
    return {"times": times, "tokens": sum(counts)}


def plan(folder: Path, rounds: int, kind: str) -> dict[str, Any]:
    """A token of one text, and the first after 512, as `hpckit plan serve` predicts and as measured just after."""
    engine, times = Engine(folder, weights=kind, texts=2, kv_tokens=4096), Times()
    for n in range(rounds + 1):
        priced = serving_price(engine.shape, kind, 1, rates_here(kind), context=512, texts=1)
        found = {
            "decode, predicted": priced.decode[1],
            "decode": decode_seconds(engine, 8, 508),
            "first token, predicted": priced.first[512],
            "first token": first_seconds(engine, tokens(512, 20 + n)),
        }
        for name, seconds in found.items():
            times.setdefault(name, []).extend([seconds] if n else [])
    return {"times": times}


def ranks(folder: Path, rounds: int, kind: str) -> dict[str, Any]:
    """A token of one text on all ranks, on rank 0 alone, and half of its layers on every rank at once: the ceiling."""
    from mpi4py import MPI

    from hpckit.bench.ranks import wait_asleep

    world = MPI.COMM_WORLD
    together, alone = (Engine(folder, weights=kind, texts=1, kv_tokens=512, comm=comm) for comm in (world, None))
    times: Times = {"all ranks": [], "1 rank": [], "1 rank each": []}

    def of_all(count: int) -> float:
        if world.rank:
            together.follow()
            return 0.0
        seconds = decode_seconds(together, count)
        together.close()
        return seconds

    for n in range(rounds + 1):
        world.Barrier()
        seconds = {"all ranks": of_all(8)}
        wait_asleep(world)
        seconds["1 rank"] = decode_seconds(alone, 8) if not world.rank else 0.0
        wait_asleep(world)
        own = np.array([decode_seconds(alone, 8)])
        world.Allreduce(MPI.IN_PLACE, own, MPI.MAX)
        seconds["1 rank each"] = float(own[0])
        for name, one in seconds.items():
            if n:
                times[name].append(one)
    return {"times": times}


def speculation(folder: Path, rounds: int, kind: str, count: int) -> dict[str, Any]:
    """A text with K guesses of which 7 in 10 are right, with guesses that are all wrong, and without; a pass of K + 1
    rows and of one. `gain`: what the formula (1 - a^(K + 1)) / (1 - a) and the cost of a pass make of the guesses that
    were right.
    """
    engine = Engine(folder, weights=kind, texts=2, kv_tokens=4096, speculate=GUESSES)
    prompt, way = tokens(PROMPT), Sampling(max_tokens=count, ignore_end=True)
    times = Times(plain=[], right=[], wrong=[], row=[], rows=[])
    engine._guesses = lambda sample: ()  # type: ignore[method-assign]
    (known,) = engine.generate([prompt], way)
    gains, dice = list[float](), np.random.default_rng(0)

    def guesser(share: float, pauses: bool) -> Callable[[Any], tuple[int, ...]]:
        def told_by(sample: Any) -> tuple[int, ...]:
            if pauses and not sample.wanted(GUESSES).most:
                return ()
            guessed(sample.text.tokens, GUESSES)  # what it costs to look
            at = len(sample.text.written)
            told = known.tokens[at : at + min(GUESSES, count - at - 1)]
            return tuple(token if dice.random() < share else (token + 1) % 1000 for token in told)

        return told_by

    guessers: dict[str, Any] = {
        "plain": lambda sample: (),
        "right": guesser(0.7, pauses=False),
        "wrong": guesser(0.0, pauses=True),
    }

    def passes(rows: int) -> float:
        step = ServingStep((TextPiece(0, PROMPT, tuple(tokens(rows)), (0, 1), rows),))
        return median(_seconds(lambda: engine.model.run(step)) for _ in range(7))

    for n in range(rounds + 1):
        seconds = {}
        for name, each in guessers.items():
            engine._guesses = each  # type: ignore[method-assign]
            before = engine.counters.accepted, engine.counters.steps
            seconds[name] = _seconds(lambda: engine.generate([prompt], way))
            if name == "right":
                accepted, steps = engine.counters.accepted - before[0], engine.counters.steps - before[1]
        seconds |= {"row": passes(1), "rows": passes(GUESSES + 1)}
        a = _acceptance(accepted / max(1, steps - 1))
        gains += [(1 - a ** (GUESSES + 1)) / (1 - a) * seconds["row"] / seconds["rows"]] if n else []
        for name, one in seconds.items():
            times[name] += [one] if n else []
    return {"times": times, "gain": gains}


def _acceptance(accepted: float) -> float:
    """The chance of a guess by how many of GUESSES a step accepts: a + a^2 + … = accepted."""
    low, high = 0.0, 1.0 - 1e-9
    for _ in range(60):
        middle = (low + high) / 2
        is_less = sum(middle**k for k in range(1, GUESSES + 1)) < accepted
        low, high = (middle, high) if is_less else (low, middle)
    return low


def _seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


CASES: dict[str, Callable[..., dict[str, Any]]] = {
    one.__name__: one
    for one in (
        decode,
        prefix,
        promise,
        overhead,
        theirs,
        batch,
        plan,
        ranks,
        speculation,
        perplexity,
        llama_cpp,
        llama_cpp_batch,
        openvino,
    )
}


def case(name: str, layers: int, rounds: int, *more: Any) -> dict[str, Any]:
    """A case on a model with so many layers, which rank 0 writes."""
    from mpi4py import MPI

    from hpckit.comm.agree import share_json, wait_for_ranks

    with tempfile.TemporaryDirectory() as own:
        folder = Path(share_json(MPI.COMM_WORLD, own))
        if MPI.COMM_WORLD.rank == 0:
            write(folder, layers)
        wait_for_ranks(MPI.COMM_WORLD)
        found = CASES[name](folder, rounds, *more)
        wait_for_ranks(MPI.COMM_WORLD)
    return found


if __name__ == "__main__":
    answer(sys.argv[1:], case)
