"""The protocol of a layer, and layers in sequence.

A backward pass is split in two, so that a pipeline can defer the second half (Qi et al., "Zero bubble pipeline
parallelism", 2023): B computes the gradient of the input, for which the previous stage waits; W adds the gradients of
the parameters, for which only the optimizer waits. A layer keeps no state between microbatches: all that backward needs
is in `saved`, which serves one backward pass.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.device_array import from_host, is_device_array
from hpckit.kernels.nn import cublas
from hpckit.kernels.nn.narrow import dispatch as narrow
from hpckit.nn.parameters import Parameter

Result = TypeVar("Result")
# A pass in turns: it stops wherever a message is under way that it will wait for next, and whoever runs it may do
# something else until then. What it returns is the result of the pass.
Turns = Generator[None, None, Result]


def at_once(turns: Turns[Result]) -> Result:
    """The result of a pass that is run at once, from turn to turn."""
    while True:
        try:
            next(turns)
        except StopIteration as end:
            return end.value


class KeyValues:
    """Keys and values of up to `capacity` tokens of each sample, for all attention layers of a model.

        cache = KeyValues(capacity=1024)
        logits, _ = model.forward(prompt, Pass(training=False, cache=cache))  # [1, n] tokens
        cache.length += n
        logits, _ = model.forward(next_token, Pass(training=False, cache=cache))  # [1, 1]: it sees the n before
        cache.length += 1

    length: number of tokens in the cache. With a cache a forward pass returns the logits of its own tokens, which
    follow those in the cache; it saves nothing for backward.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity, self.length = capacity, 0
        self._kept: dict[str, Any] = {}

    def keep(self, name: str, tokens: Any) -> Any:
        """Add keys and values [B, n, 2 kv_heads, d] of the layer `name`; return all so far, with free room after them.

        Raises `InputError` if the cache is full.
        """
        batch, count, heads, width = tokens.shape
        if self.length + count > self.capacity:
            raise InputError(f"{self.length} + {count} tokens exceed the cache's capacity of {self.capacity}")
        if name not in self._kept:
            self._kept[name] = from_host(np.zeros((batch, self.capacity, heads, width), tokens.dtype), tokens)
        kept = self._kept[name]
        kept[:, self.length : self.length + count] = tokens
        return kept


@dataclass(frozen=True)
class Pass:
    """What a forward pass needs besides its input.

    training: whether dropout is active. seed, step, first_sample: these and the layer's name determine its random
    numbers; `first_sample` is the number of the microbatch's first sample in the whole batch of the step. cache: the
    earlier tokens, if a text is written token by token. tokens: samples of the microbatch and tokens of each, where
    layers hold a part of them (`hpckit.training.tensor`). whole: tokens of a sample, where these are some of them
    (`hpckit.training.context`). scale: what a token counts in the loss, for losses of layers' own. shapes: only the
    shapes of results are wanted, and layers do not talk to other ranks. parts: the samples at which fixed parts of the
    microbatch begin, and its end, where it has several (`hpckit.training.grouped`). storage: "bfloat16" or "float16" in
    mixed precision; marks: where `rounded` notes its arrays then; known: and their bits, on a GPU.
    """

    training: bool = True
    seed: int = 0
    step: int = 0
    first_sample: int = 0
    cache: KeyValues | None = None
    tokens: tuple[int, int] = (0, 0)
    whole: int = 0
    storage: str = ""
    marks: list[Any] | None = None
    known: cublas.Known | None = None
    scale: float = 0.0
    shapes: bool = False
    parts: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        """Tokens of a whole sample, where a pass says it."""
        return self.whole or self.tokens[1]

    def rounded(self, *arrays: Any) -> None:
        """Round numbers that a layer keeps for backward, in place, before anything is computed from them.

        In mixed precision only; what was rounded is kept in 16 bits without a further loss.
        """
        if self.storage:
            for array in arrays:
                if is_device_array(array):
                    cublas.round_to(array, self.storage, self.known)
                else:
                    narrow.round_to(array, self.storage)
                if self.marks is not None:
                    self.marks.append(array)


class Layer(Protocol):
    """A function of arrays with parameters.

    `backward_weight` may be called any time after `backward_input`, once per microbatch, and adds to the gradients; the
    same order of microbatches gives the same bits, however late the calls are.
    """

    def parameters(self) -> list[Parameter]:
        """The parameters, in a fixed order."""

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """The result y, and `saved`: what backward needs."""

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: the gradient of x from that of y; None if x is data. dy stays unchanged."""

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add to the gradients of the parameters."""


def forward_turns(layer: Any, x: Any, step: Pass, **more: Any) -> Turns[tuple[Any, Any]]:
    """The forward pass of a layer in turns: of `forward_turns`, where it has one, as a layer with messages does, else
    a single one. more: keyword arguments.
    """
    if hasattr(layer, "forward_turns"):
        return (yield from layer.forward_turns(x, step, **more))
    return layer.forward(x, step, **more)


def backward_turns(layer: Any, saved: Any, dy: Any) -> Turns[Any]:
    """The same of B."""
    if hasattr(layer, "backward_turns"):
        return (yield from layer.backward_turns(saved, dy))
    return layer.backward_input(saved, dy)


class Sequential:
    """Layers in sequence; a pipeline's stage is a `Sequential` of some of a model's layers.

    names: labels of the layers (by default their numbers). The parameters keep the full names that their layers give.
    """

    def __init__(self, layers: Sequence[Layer], names: Sequence[str] | None = None) -> None:
        self.layers = list(layers)
        self.names = [str(i) for i in range(len(self.layers))] if names is None else list(names)
        if len(self.names) != len(self.layers):
            raise ValueError(f"{len(self.layers)} layers need as many names, not {len(self.names)}")

    def parameters(self) -> list[Parameter]:
        """Those of all layers, each once."""
        return list({id(p): p for layer in self.layers for p in layer.parameters()}.values())

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """`saved` is a list with [what the layer saved, its dy] for each layer."""
        return at_once(self.forward_turns(x, step))

    def forward_turns(self, x: Any, step: Pass) -> Turns[tuple[Any, Any]]:
        """`forward` in turns."""
        saved = []
        for layer in self.layers:
            x, kept = yield from forward_turns(layer, x, step)
            saved.append([kept, None])
        return x, saved

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B of all layers; `saved` keeps the gradients between them for W."""
        return at_once(self.backward_turns(saved, dy))

    def backward_turns(self, saved: Any, dy: Any) -> Turns[Any]:
        """`backward_input` in turns."""
        for layer, entry in zip(reversed(self.layers), reversed(saved), strict=True):
            entry[1] = dy
            dy = yield from backward_turns(layer, entry[0], dy)
        return dy

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W of all layers, the last one first; frees what they saved."""
        for layer in reversed(self.layers):
            layer.backward_weight(*saved.pop())


def backward(layer: Layer, saved: Any, dy: Any) -> Any:
    """B and W of a layer together, layer by layer in a `Sequential`, so that memory is freed early."""
    if not isinstance(layer, Sequential):
        dx = layer.backward_input(saved, dy)
        layer.backward_weight(saved, dy)
        return dx
    for part in reversed(layer.layers):
        dy = backward(part, saved.pop()[0], dy)
    return dy
