"""Multilayer perceptrons."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hpckit.errors import InputError
from hpckit.nn.activations import activation_of
from hpckit.nn.layer import Layer, Sequential
from hpckit.nn.linear import Linear


def mlp(sizes: Sequence[int], activation: str = "relu") -> Sequential:
    """Linear maps sizes[0] -> sizes[1] -> …, an activation between each two: [n, sizes[0]] -> [n, sizes[-1]].

    activation: "relu", "gelu", "gelu_erf" or "silu". Each linear map and the activation behind it is one layer, named
    by its number. The input is data: it gets no gradient.
    """
    if len(sizes) < 2 or min(sizes) < 1:
        raise InputError(
            f"an MLP of sizes {list(sizes)} has no layer",
            do="give at least two sizes of 1 and more: input, hidden ones, output, as in mlp([784, 1024, 10])",
        )
    activation_of(activation)  # raises, where none is used too
    layers: list[Layer] = []
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        linear = Linear(inputs, outputs, str(i), input_gradient=i > 0)
        last = i == len(sizes) - 2
        layers.append(linear if last else Sequential([linear, activation_of(activation)]))
    return Sequential(layers)
