"""Where a model is that is given as a folder or a file, and how its texts and chats become tokens."""

from __future__ import annotations

import os
from pathlib import Path

from hpckit.errors import InputError
from hpckit.io.tokenizers import Pieces, Tokenizer, tokenizer_of
from hpckit.serving.checkpoint.gguf import SUFFIX, Gguf
from hpckit.serving.checkpoint.shape import CONFIG
from hpckit.serving.checkpoint.vocabulary import chat_settings, tokenizer_in
from hpckit.serving.text import Chat


def model_folder(folder: Path) -> Path:
    """The folder with config.json and weights: of a run of `train`, or this one; a GGUF file itself. Raises
    `InputError`.
    """
    if folder.suffix == SUFFIX and not folder.is_dir():
        return folder
    for one in (folder / "output" / "model", folder):
        if (one / CONFIG).is_file():
            return one
    if not folder.is_dir():
        raise InputError(
            f"there is no folder {folder}", do="give a run of `train`, a Hugging Face folder or a .gguf file"
        )
    raise InputError(
        f"{folder} has no language model: no {CONFIG}, and no output/model/{CONFIG}",
        likely="the run is not finished, classifies images, or is not a run of `train`",
        do="hpckit resume DIR, or give a folder with config.json and model.safetensors",
    )


def spoken(folder: Path) -> tuple[Tokenizer, Chat]:
    """How texts and chats of a model become tokens: by the files of its folder, or by a GGUF file, beside which a
    tokenizer.json goes first.
    """
    is_file = folder.suffix == SUFFIX
    path = (folder.parent if is_file else folder) / "tokenizer.json"
    found = os.path.lexists(path)  # a link that leads nowhere is refused, not left out
    if not is_file:
        return tokenizer_of(path if found else None), Chat(folder)
    metadata = Gguf(folder).metadata
    return Pieces(path) if found else tokenizer_in(metadata, folder.name), Chat(folder, chat_settings(metadata))
