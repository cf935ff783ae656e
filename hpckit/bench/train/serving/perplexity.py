"""`hpckit bench serving`: what a coarser format of the weights costs in perplexity, of a model that is trained here."""

from __future__ import annotations

import inspect
import json.decoder
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hpckit.jobs.graph.pool import without_launcher
from hpckit.serving.engine import Engine
from hpckit.serving.sampler import Sampling

FORMATS = "float32", "bfloat16", "bfloat16_dot", "q8_0", "q4_0"
TEXTS, LENGTH = 16, 256  # texts, and bytes of each, a token a byte
SETTINGS = "batch.window=256", "batch.size=8", "model.context=256", "time.validate_samples=4", "sample.tokens=0"


def perplexity(folder: Path, rounds: int, steps: int) -> dict[str, Any]:
    """The perplexity of each format, on a text that the model has not seen; it learns the sources of hpckit."""
    run = folder / "trained"
    words = ["run", "llama", *SETTINGS, f"time.steps={steps}", f"--directory={run}", "--no-report", "--no-watch"]
    command = [sys.executable, "-m", "hpckit.cli.main", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=without_launcher(os.environ))
    return {"perplexity": {kind: perplexity_of(run, kind) for kind in FORMATS}}


def perplexity_of(run: Path, kind: str) -> float:
    """That of a model whose tokens are bytes, with weights of a kind, on the text of `TEXTS` pieces."""
    engine, text = Engine(run, weights=kind, texts=4), inspect.getsource(json.decoder)
    prompts = [engine.encode(text[n * LENGTH : (n + 1) * LENGTH]) for n in range(TEXTS)]
    way = Sampling(max_tokens=0, prompt_logprobs=True)
    done = engine.generate(prompts, way)
    chosen = [logprobs[0][1] for one in done for logprobs in one.prompt_logprobs]
    assert len(chosen) == sum(len(prompt) - 1 for prompt in prompts)
    return math.exp(-sum(chosen) / len(chosen))
