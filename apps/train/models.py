"""The networks of the app, made by their shape, or from the files of a checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hpckit.apps.train.hugging_face import from_hugging_face, require_fit
from hpckit.apps.train.shape import KERNEL, SIDE, Shape
from hpckit.io.safetensors import Safetensors
from hpckit.nn.activations import ReLU
from hpckit.nn.convolution import Convolution, Flatten, MaxPool
from hpckit.nn.feedforward import mlp
from hpckit.nn.gpt import gpt2, llama
from hpckit.nn.layer import Layer, Sequential
from hpckit.nn.linear import Linear
from hpckit.nn.parameters import Parameters


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
