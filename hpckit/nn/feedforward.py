"""The feed-forward part of a transformer's block: linear maps with an activation between; and plain MLPs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hpckit.errors import InputError
from hpckit.kernels.nn import dispatch
from hpckit.kernels.nn.memory import empty, empty_like
from hpckit.nn.activations import activation_of
from hpckit.nn.layer import Layer, Pass, Sequential
from hpckit.nn.linear import Linear
from hpckit.nn.parameters import Parameter


class FeedForward:
    """down(activation(up(x))): [..., width] -> [..., width], as in GPT-2; activation: a name of `ACTIVATIONS`."""

    def __init__(
        self,
        width: int,
        hidden: int,
        name: str = "mlp",
        std: float = 0.02,
        out_std: float | None = None,
        activation: str = "gelu",
    ) -> None:
        self.activation = activation_of(activation).function
        self.up = Linear(width, hidden, f"{name}.up", std=std)
        self.down = Linear(hidden, width, f"{name}.down", std=std if out_std is None else out_std)

    def parameters(self) -> list[Parameter]:
        """Those of up, then those of down."""
        return self.up.parameters() + self.down.parameters()

    def forward(self, x: Any, step: Pass, onto: Any = None) -> tuple[Any, Any]:
        """The result, added to `onto` if a residual goes around the layer."""
        slope, _ = self.up.forward(x, step)
        hidden, y = empty_like(slope), empty_like(x)
        self.activation(slope, hidden)
        step.rounded(slope, hidden)
        self.down.apply(hidden, y, onto)
        return y, (x, slope, hidden)

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: the gradient of x. The slope becomes the gradient of the hidden values, which W needs."""
        dispatch.scale(saved[1], self.down.backward_input(None, dy))
        return self.up.backward_input(None, saved[1])

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add to the gradients of down, then of up."""
        x, dhidden, hidden = saved
        self.down.backward_weight(hidden, dy)
        self.up.backward_weight(x, dhidden)


class GatedFeedForward:
    """down(silu(gate(x)) up(x)) without biases: [..., width] -> [..., width], as in Llama (SwiGLU)."""

    def __init__(
        self, width: int, hidden: int, name: str = "mlp", std: float = 0.02, out_std: float | None = None
    ) -> None:
        self.gate = Linear(width, hidden, f"{name}.gate", bias=False, std=std)
        self.up = Linear(width, hidden, f"{name}.up", bias=False, std=std)
        self.down = Linear(hidden, width, f"{name}.down", bias=False, std=std if out_std is None else out_std)

    def parameters(self) -> list[Parameter]:
        """Those of gate, up and down."""
        return self.gate.parameters() + self.up.parameters() + self.down.parameters()

    def forward(self, x: Any, step: Pass, onto: Any = None) -> tuple[Any, Any]:
        """The result, added to `onto` if a residual goes around the layer."""
        (gate, _), (up, _) = self.gate.forward(x, step), self.up.forward(x, step)
        hidden, y = empty_like(gate), empty_like(x)
        dispatch.swiglu(gate, up, hidden)
        step.rounded(gate, up, hidden)
        self.down.apply(hidden, y, onto)
        return y, (x, gate, up, hidden)

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: the gradient of x. The slopes become the gradients of gate and up, which W needs."""
        x, gate, up, _ = saved
        dispatch.scale_two(self.down.backward_input(None, dy), gate, up)
        dx = empty(x.shape, x)
        self.gate.transposed(gate, dx)
        self.up.transposed(up, dx, add=True)
        return dx

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add to the gradients of down, up and gate."""
        x, dgate, dup, hidden = saved
        self.down.backward_weight(hidden, dy)
        self.up.backward_weight(x, dup)
        self.gate.backward_weight(x, dgate)


def mlp(sizes: Sequence[int], activation: str = "relu") -> Sequential:
    """Linear maps sizes[0] -> sizes[1] -> … with activations between them: [n, sizes[0]] -> [n, sizes[-1]].

    activation: "relu", "gelu", "gelu_erf" or "silu". Each linear map with the activation after it is one layer, named
    by its number. The input is data and gets no gradient.
    """
    if len(sizes) < 2 or min(sizes) < 1:
        raise InputError(
            f"an MLP of sizes {list(sizes)} has no layers",
            do="give at least two sizes of 1 or more: input, hidden ones, output, as in mlp([784, 1024, 10])",
        )
    activation_of(activation)  # raises for a wrong name even if no activation is used
    layers: list[Layer] = []
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        linear = Linear(inputs, outputs, str(i), input_gradient=i > 0)
        last = i == len(sizes) - 2
        layers.append(linear if last else Sequential([linear, activation_of(activation)]))
    return Sequential(layers)
