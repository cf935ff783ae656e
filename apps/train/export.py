"""`hpckit ckpt export`: a checkpoint of a run as a model that transformers opens."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from hpckit.apps.train.config import Model
from hpckit.apps.train.hugging_face import sources
from hpckit.apps.train.models import model_of
from hpckit.apps.train.shape import CONFIG, hugging_face_config, shape_of
from hpckit.errors import InputError, write_error
from hpckit.io.checkpoint.state import Restored
from hpckit.io.files import replace_file
from hpckit.io.safetensors import SINGLE, stream_safetensors

TABLE = "parameters/embed.token.weight"


def export(values: dict[str, Any], restored: Restored, folder: Path, precision: str = "") -> int:
    """Write `model.safetensors`, `config.json`, and the tokenizer if there was one; returns the bytes of the tensors.

    values: the settings of the run. restored: a checkpoint of it, from any mesh; its numbers are read and written rows
    by rows, so that memory has a part of one tensor at a time. precision: of the tensors, by default that of the run's
    master values, float32 or float64. Raises `InputError` for a run of another kind of network, `SetupError` where the
    folder cannot be written.
    """
    try:
        model = Model.model_validate(values["model"])
    except ValidationError as error:
        told = "; ".join(str(each["msg"]) for each in error.errors())
        raise InputError(f"the settings of the run: {told}", likely="a file or folder that has moved since") from None
    if not model.is_language:
        raise InputError(
            f"the run trains a network of the kind {model.kind!r}, and transformers opens language models",
            do="its weights are in output/model/model.safetensors when it is done",
        )
    shape = shape_of(model, restored.shape(TABLE)[0])
    held = model_of(shape).parameters()
    wrong = [p.name for p in held if restored.shape(f"parameters/{p.name}") != p.shape]
    if wrong:
        raise InputError(f"the checkpoint and the settings of the run differ in {', '.join(wrong)}")
    tensors = sources(shape, held)
    precision = precision or ("float64" if values["precision"] == "float64" else "float32")

    def rows(name: str, first: int, count: int) -> np.ndarray:
        source = tensors[name]
        box = restored.read(f"parameters/{source.ours}", *source.box(first, count))
        return box.T if source.turned else box

    try:
        folder.mkdir(parents=True, exist_ok=True)
        shapes = {name: source.shape for name, source in tensors.items()}
        nbytes = stream_safetensors(folder / SINGLE, shapes, rows, precision, {"format": "pt"})
        replace_file(folder / CONFIG, json.dumps(hugging_face_config(shape, precision), indent=2).encode())
        if tokenizer := values["data"].get("tokenizer"):
            shutil.copyfile(tokenizer, folder / "tokenizer.json")
    except OSError as problem:
        raise write_error(problem, folder) from problem
    return nbytes
