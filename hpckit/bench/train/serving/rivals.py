"""`hpckit bench serving` beside llama.cpp (xllamacpp's wheel) and OpenVINO: in this process, on a thread."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from hpckit.bench.measure import Times
from hpckit.bench.train.serving.model import (
    decode_seconds,
    first_seconds,
    panels,
    read_seconds,
    tokens,
    write_gguf,
)
from hpckit.serving.engine import Engine
from hpckit.serving.sampler import Sampling

STORAGE = {"float32": "F32", "bfloat16": "BF16", "bfloat16_dot": "BF16", "q8_0": "Q8_0"}
TEXTS = 32
NEAR = 20  # of 32,000 tokens: rounded weights and activations decide between those that are nearly alike


def llama_cpp(folder: Path, rounds: int, kind: str, count: int) -> dict[str, Any]:
    """Tokens of one text, and the first one after 512, by our engine and by llama.cpp from the same GGUF file; and a
    plain read of the weights, which are as many bytes for both.
    """
    path = write_gguf(folder / "model.gguf", folder, STORAGE[kind])
    engine, server = Engine(path, weights=kind, texts=2, kv_tokens=4096), _server(path, 1, 2048)
    prompt, long = tokens(8), tokens(512, 5)
    (ours,) = engine.generate([prompt], Sampling(max_tokens=1, ignore_end=True, logprobs=NEAR))
    (token,) = _asked(server, prompt, 1)[0]
    assert token in dict(ours.logprobs[0]), f"llama.cpp's token is not among our {NEAR} likeliest"
    times, words = Times(read=[], ours=[], theirs=[], our_prompt=[], their_prompt=[]), panels(engine)
    for n in range(rounds + 1):
        seconds = {"read": median(read_seconds(words) for _ in range(7)), "ours": decode_seconds(engine, count)}
        told = _asked(server, prompt, count + 1)[1]["timings"]
        seconds["theirs"] = told["predicted_ms"] / 1000 / count  # the first token is that of the prompt
        seconds["our_prompt"] = first_seconds(engine, [n + 3, *long[1:]])
        begin = time.perf_counter()
        _asked(server, [n + 3, *long[1:]], 1)
        seconds["their_prompt"] = time.perf_counter() - begin
        for name, one in seconds.items():
            if n:
                times[name].append(one)
    return {"times": times, "bytes": engine.weights.nbytes}


def openvino(folder: Path, rounds: int, kind: str, count: int) -> dict[str, Any]:
    """Tokens of one text, and the first one after 512, by our engine and by OpenVINO from the same GGUF file."""
    import openvino
    import openvino_genai

    path = write_gguf(folder / "model.gguf", folder, STORAGE[kind])
    engine = Engine(path, weights=kind, texts=2, kv_tokens=4096)
    theirs = openvino_genai.LLMPipeline(str(path), "CPU", INFERENCE_NUM_THREADS=1)
    prompt, long = tokens(8), tokens(512, 5)

    def asked(given: list[int], most: int) -> Any:
        way = openvino_genai.GenerationConfig(max_new_tokens=most, min_new_tokens=most, ignore_eos=True)
        row = np.array([given], np.int64)
        inputs = (openvino.Tensor(each) for each in (row, np.ones_like(row)))
        return theirs.generate(openvino_genai.TokenizedInputs(*inputs), way)

    (ours,) = engine.generate([prompt], Sampling(max_tokens=1, ignore_end=True, logprobs=NEAR))
    (token,) = asked(prompt, 1).tokens[0]
    assert token in dict(ours.logprobs[0]), f"OpenVINO's token is not among our {NEAR} likeliest"
    times, words = Times(read=[], ours=[], theirs=[], our_prompt=[], their_prompt=[]), panels(engine)
    for n in range(rounds + 1):
        seconds = {"read": median(read_seconds(words) for _ in range(7)), "ours": decode_seconds(engine, count)}
        seconds["theirs"] = asked(prompt, count + 1).perf_metrics.get_tpot().mean / 1000
        seconds["our_prompt"] = first_seconds(engine, [n + 3, *long[1:]])
        seconds["their_prompt"] = asked([n + 3, *long[1:]], 1).perf_metrics.get_ttft().mean / 1000
        for name, one in seconds.items():
            times[name] += [one] if n else []
    return {"times": times, "bytes": engine.weights.nbytes}


def llama_cpp_batch(folder: Path, rounds: int, most: int) -> dict[str, Any]:
    """Useful tokens of 32 texts of most / 8 to `most` tokens: our engine, and as many slots of llama.cpp, float32."""
    path = write_gguf(folder / "model.gguf", folder, "F32")
    prompts = [tokens(32, n) for n in range(TEXTS)]
    counts = np.linspace(most // 8, most, TEXTS).astype(int).tolist()
    engine = Engine(path, texts=TEXTS, kv_tokens=TEXTS * 256, prefixes=False)
    server, times = _server(path, TEXTS, TEXTS * 256), Times(ours=[], theirs=[])
    with ThreadPoolExecutor(TEXTS) as pool:
        for n in range(rounds):
            begin = time.perf_counter()
            mine = engine.generate(prompts, [_way(count) for count in counts])
            middle = time.perf_counter()
            found = list(pool.map(lambda each: _asked(server, *each)[0], zip(prompts, counts, strict=True)))
            times["ours"].append(middle - begin)
            times["theirs"].append(time.perf_counter() - middle)
            if not n:
                _alike([one.tokens[:1] for one in mine], [one[:1] for one in found])
    return {"times": times, "tokens": sum(counts)}


def _way(count: int) -> Sampling:
    return Sampling(max_tokens=count, ignore_end=True)


def _alike(ours: list[list[int]], theirs: list[list[int]]) -> None:
    """Outputs begin alike; later ones part where llama.cpp's keys of float16 decide."""
    same = float(np.mean([mine == other for mine, other in zip(ours, theirs, strict=True)]))
    assert same > 0.9, f"only {same:.0%} of the texts begin alike"


def _server(path: Path, texts: int, context: int) -> Any:
    """llama.cpp with its own defaults but one thread and so many slots."""
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path, settings.n_ctx, settings.n_parallel = str(path), context, texts
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.verbosity = 0
    return xllamacpp.Server(settings)


def _asked(server: Any, prompt: list[int], count: int) -> tuple[list[int], dict[str, Any]]:
    """The tokens that it writes, and all that it says."""
    own = {"prompt": prompt, "max_tokens": count, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
    told = server.handle_completions(own | {"logprobs": 1})
    return [one["id"] for one in told["choices"][0]["logprobs"]["content"]], told
