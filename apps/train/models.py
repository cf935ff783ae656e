"""The networks of the app, made by their shape, read from the files of Hugging Face, or written to such."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from hpckit.apps.train.hugging_face import from_hugging_face, require_fit, sources
from hpckit.apps.train.settings.network import Model
from hpckit.apps.train.shape import CONFIG, KERNEL, SIDE, Shape, hugging_face_config, shape_of
from hpckit.errors import InputError, write_error
from hpckit.io.checkpoint.state import Restored
from hpckit.io.files import replace_file
from hpckit.io.safetensors import SINGLE, Safetensors, stream_safetensors
from hpckit.nn.activations import ReLU
from hpckit.nn.convolution import Convolution, Flatten, MaxPool
from hpckit.nn.feedforward import mlp
from hpckit.nn.gpt import gpt2, llama
from hpckit.nn.layer import Layer, Sequential
from hpckit.nn.linear import Linear
from hpckit.nn.parameters import Parameters

TABLE = "parameters/embed.token.weight"  # whose rows are the vocabulary, in a checkpoint of a run


def model_of(shape: Shape) -> Sequential:
    """The network, without numbers yet. Raises `InputError` for a shape that cannot be."""
    if shape.kind == "gpt2":
        return gpt2(
            shape.vocab,
            shape.layers,
            shape.width,
            shape.heads,
            shape.context,
            tied=shape.tied,
            dropout=shape.dropout,
            recompute=shape.recompute if shape.recompute in ("attention", "blocks") else False,
            attention_dropout=shape.attention_dropout,
            activation=shape.activation,
            hidden=shape.hidden,
            eps=shape.norm_eps,
        )
    if shape.kind == "llama":
        return llama(
            shape.vocab,
            shape.layers,
            shape.width,
            shape.heads,
            shape.kv_heads,
            shape.hidden,
            shape.context,
            shape.rope_base,
            tied=shape.tied,
            eps=shape.norm_eps,
            recompute=shape.recompute if shape.recompute in ("attention", "blocks") else False,
            attention_dropout=shape.attention_dropout,
            rope_scaling=shape.rope_scaling,
            experts=shape.experts,
            top_k=shape.top_k,
            balance=shape.expert_balance,
            router_z=shape.router_z,
            shared=shape.shared_expert,
            capacity=shape.expert_capacity,
        )
    if shape.kind == "mlp":
        first, *others = mlp([SIDE * SIDE, *[shape.width] * shape.layers, shape.vocab], shape.activation).layers
        # One layer: a stage must not begin with a map whose input is data, unless it is the first one.
        return Sequential([Sequential([Flatten(), first]), *others])
    return convolutions(shape.channels, shape.vocab)


def loaded(shape: Shape, folder: Path) -> Sequential:
    """The network with the float32 weights of a Hugging Face checkpoint. Raises `InputError` if they do not fit."""
    model, tensors = model_of(shape), Safetensors(folder)
    held = Parameters(model.parameters(), np.dtype(np.float32))
    require_fit(shape, tensors, held.list)
    for parameter in held.list:
        parameter.value[...] = from_hugging_face(shape, tensors, parameter.name)
    return model


def convolutions(channels: tuple[int, ...], classes: int) -> Sequential:
    """A 3 x 3 convolution, ReLU and pooling by 2 for each of the `channels`, then a linear map to the classes."""
    blocks: list[Layer] = []
    side, inputs = SIDE, 1
    for number, outputs in enumerate(channels):
        convolution = Convolution(
            inputs, outputs, KERNEL, padding=KERNEL // 2, input_gradient=number > 0, name=f"convolution.{number}"
        )
        blocks.append(Sequential([convolution, ReLU(), MaxPool(2)]))
        side, inputs = side // 2, outputs
    head = Sequential([Flatten(), Linear(side * side * inputs, classes, "head")])
    return Sequential([*blocks, head], [*(f"convolution.{number}" for number in range(len(channels))), "head"])


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
        return source.rows(restored.read(f"parameters/{source.ours}", *source.box(first, count)))

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
