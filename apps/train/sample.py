"""`hpckit sample DIR "prompt"`: text that a trained language model writes after a prompt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hpckit.apps.train.models import loaded
from hpckit.apps.train.shape import LANGUAGE, read_shape
from hpckit.errors import InputError
from hpckit.io.tokenizers import tokenizer_of
from hpckit.nn.gpt import continued
from hpckit.settings.table import Parser


def main(arguments: list[str]) -> int:
    """The verb `sample`."""
    it = Parser(
        prog="hpckit sample",
        description="Continue a prompt with the weights of a finished run of `train`, or of a Hugging Face folder.",
    )
    it.add_argument("directory", type=Path, metavar="DIR", help="a run directory, or a folder with config.json")
    it.add_argument("prompt", nargs="?", default="\n", help="the text to continue (without one: a line break)")
    it.add_argument("--tokens", type=int, default=200, metavar="N", help="tokens to write (200)")
    it.add_argument("--temperature", type=float, default=0.8, metavar="T", help="0: the likeliest token (0.8)")
    it.add_argument("--top-k", type=int, default=40, metavar="K", help="among the K likeliest tokens; 0: all (40)")
    it.add_argument("--seed", type=int, default=1, metavar="S", help="another seed, another text (1)")
    options = it.parse_args(arguments)
    low = {"tokens": options.tokens, "temperature": options.temperature, "top-k": options.top_k, "seed": options.seed}
    if wrong := [f"--{name} is {value!s:.40}" for name, value in low.items() if not 0 <= value < float("inf")]:
        raise InputError(", ".join(wrong), do="give numbers of 0 or more")
    print(sampled(options.directory, options.prompt, **{name.replace("-", "_"): value for name, value in low.items()}))
    return 0


def sampled(directory: Path, prompt: str, *, tokens: int, temperature: float, top_k: int, seed: int) -> str:
    """The prompt and its continuation, on this machine's cores, without MPI.

    Raises `InputError` for a folder without the weights of a language model, and for an empty prompt.
    """
    folder = _weights(directory)
    kind = _kind(folder)
    if kind not in LANGUAGE:
        raise InputError(f"{folder} holds a network of the kind {kind!r}", do=f"give one of {' or '.join(LANGUAGE)}")
    pieces = folder / "tokenizer.json"
    tokenizer, shape = tokenizer_of(pieces if pieces.exists() else None), read_shape(folder, kind)
    if shape.vocab < tokenizer.vocab:
        raise InputError(
            f"{folder} knows {shape.vocab} tokens, and its tokenizer has {tokenizer.vocab}",
            likely="its tokenizer.json is missing",
            do="put the tokenizer.json of the model beside its config.json",
        )
    begin = tokenizer.encode(prompt)
    if not len(begin):
        raise InputError(f"the prompt {prompt!r} has no token", do="give a prompt of some letters")
    options: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "seed": seed}
    text = continued(
        loaded(shape, folder), begin, tokens, context=shape.context, vocab=min(tokenizer.vocab, shape.vocab), **options
    )
    return tokenizer.decode(text.tolist())


def _weights(directory: Path) -> Path:
    """The folder with config.json and weights."""
    folders = [folder for folder in (directory / "output" / "model", directory) if (folder / "config.json").is_file()]
    if folders:
        return folders[0]
    if not directory.is_dir():
        raise InputError(f"there is no folder {directory}", do="give a run of `train`; `hpckit ls` lists runs")
    raise InputError(
        f"{directory} has no language model: no output/model/config.json",
        likely="the run is not finished, classifies images, or is not a run of `train`",
        do="hpckit resume DIR, or give a folder with config.json and model.safetensors",
    )


def _kind(folder: Path) -> str:
    """The architecture that config.json names."""
    try:
        return str(json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"])
    except (ValueError, LookupError, TypeError):
        raise InputError(f"{folder / 'config.json'} does not name a model_type", do="give another folder") from None
