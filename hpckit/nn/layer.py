"""What a layer is, and layers one after another.

A backward pass is split in two, so that a pipeline can defer the second half (Qi et al., "Zero bubble pipeline
parallelism", 2023): B gives the gradient of the input, which the stage before waits for; W adds the gradients of the
parameters, which only the optimizer waits for. Nothing is kept in a layer between microbatches: what backward needs is
in `saved`, which serves one backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.device_array import from_host
from hpckit.nn.parameters import Parameter


class KeyValues:
    """Keys and values of up to `capacity` tokens of each sample, for all attention layers of a model.

        cache = KeyValues(capacity=1024)
        logits, _ = model.forward(prompt, Pass(training=False, cache=cache))  # [1, n] tokens
        cache.length += n
        logits, _ = model.forward(next_token, Pass(training=False, cache=cache))  # [1, 1]: it sees the n before
        cache.length += 1

    length: tokens that are kept. With a cache a forward pass gives the logits of the tokens it is given, which come
    behind those; nothing is saved for backward.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity, self.length = capacity, 0
        self._kept: dict[str, Any] = {}

    def keep(self, name: str, tokens: Any) -> Any:
        """Keep keys and values [B, n, 2 kv_heads, d] of the layer `name`; those of all tokens so far, and room behind.

        Raises `InputError` where there is no room left.
        """
        batch, count, heads, width = tokens.shape
        if self.length + count > self.capacity:
            raise InputError(f"{self.length} + {count} tokens are more than the {self.capacity} that there is room for")
        if name not in self._kept:
            self._kept[name] = from_host(np.zeros((batch, self.capacity, heads, width), tokens.dtype), tokens)
        kept = self._kept[name]
        kept[:, self.length : self.length + count] = tokens
        return kept


@dataclass(frozen=True)
class Pass:
    """What a forward pass needs besides its input.

    training: whether dropout is active. seed, step, first_sample: with the layer's name, what its random numbers are a
    function of; `first_sample` is the number of the microbatch's first sample in the whole batch of the step. cache:
    the tokens before, where a text is written token by token.
    """

    training: bool = True
    seed: int = 0
    step: int = 0
    first_sample: int = 0
    cache: KeyValues | None = None


class Layer(Protocol):
    """A function of arrays with parameters.

    `backward_weight` may be called any time after `backward_input`, once a microbatch, and adds to the gradients; in
    the same order of microbatches it gives the same bits, however late.
    """

    def parameters(self) -> list[Parameter]:
        """Its parameters, in a fixed order."""

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """The result y, and what backward needs."""

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: the gradient of x from that of y; None where x is data. Leaves dy as it is."""

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add the parameters' gradients."""


class Sequential:
    """Layers one after another; a pipeline's stage is a `Sequential` of some of a model's layers.

    names: labels of the layers (by default their numbers). Parameters bear their full names from their own layers.
    """

    def __init__(self, layers: Sequence[Layer], names: Sequence[str] | None = None) -> None:
        self.layers = list(layers)
        self.names = [str(i) for i in range(len(self.layers))] if names is None else list(names)
        if len(self.names) != len(self.layers):
            raise ValueError(f"{len(self.layers)} layers need as many names, not {len(self.names)}")

    def parameters(self) -> list[Parameter]:
        """Of all layers, each once."""
        return list({id(p): p for layer in self.layers for p in layer.parameters()}.values())

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """`saved` is a list, for each layer [what it saved, its dy]."""
        saved = []
        for layer in self.layers:
            x, kept = layer.forward(x, step)
            saved.append([kept, None])
        return x, saved

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B of all layers; the gradients between them are kept for W."""
        for layer, entry in zip(reversed(self.layers), reversed(saved), strict=True):
            entry[1] = dy
            dy = layer.backward_input(entry[0], dy)
        return dy

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W of all layers, the last one first; what they saved is let go."""
        for layer in reversed(self.layers):
            layer.backward_weight(*saved.pop())


def backward(layer: Layer, saved: Any, dy: Any) -> Any:
    """B and W of a layer at once, layer by layer in a `Sequential`, so that memory is let go on the way."""
    if not isinstance(layer, Sequential):
        dx = layer.backward_input(saved, dy)
        layer.backward_weight(saved, dy)
        return dx
    for part in reversed(layer.layers):
        dy = backward(part, saved.pop()[0], dy)
    return dy
