"""Networks as nodes of a graph: rows of features through linear maps and activations, forward and backward.

A network is a tuple of `Linear` maps and names of activations, its weights stand in one vector. Each row is a cell. The
bits of a row do not depend on the rows beside it: products are those of the tile, chains of fused multiply-adds, and
rows come in multiples of `ROWS`, so that no activation is computed by the scalar end of a loop. Rows on a GPU are
computed there, with the bits of a processor but for the exponential function of activations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hpckit.kernels.device_array import contiguous, empty, is_device_array
from hpckit.kernels.nn import dispatch
from hpckit.kernels.nn.memory import copied, empty_like
from hpckit.kernels.nn.tile import dispatch as tile

ROWS = 64
ACTIVATIONS: dict[str, Callable[[Any, Any], None]] = {
    "relu": dispatch.relu,
    "gelu": dispatch.gelu,
    "gelu_erf": dispatch.gelu_erf,
    "silu": dispatch.silu,
}
"""Of each activation the function (x, y) that sets y to its value and x to its slope."""


class Map(NamedTuple):
    """A linear map x weight + bias. weight, bias: where they begin in the vector of weights; bias None for none."""

    inputs: int
    outputs: int
    weight: int
    bias: int | None = None

    def matrix(self, weights: Any) -> Any:
        """[inputs, outputs], a view."""
        return weights[self.weight : self.weight + self.inputs * self.outputs].reshape(self.inputs, self.outputs)

    def offset(self, weights: Any) -> Any:
        """[outputs], a view; 0 without a bias."""
        return 0.0 if self.bias is None else weights[self.bias : self.bias + self.outputs]


Layers = tuple[Map | str, ...]
Pairs = list[tuple[Map, Any, Any]]


def forward(layers: Layers, weights: Any, x: Any) -> tuple[Any, list[Any]]:
    """The result for rows x [n, inputs], n a multiple of `ROWS`; of each layer what `backward` needs. Rows and weights
    are of one dtype, float64 or float32, and both NumPy's or both a GPU's.
    """
    saved = []
    for layer in layers:
        if isinstance(layer, Map):
            saved.append(x)
            x = _product(x, layer.matrix(weights)) + layer.offset(weights)
        else:
            slope, x = copied(x), empty_like(x)
            ACTIVATIONS[layer](slope, x)
            saved.append(slope)
    return x, saved


def pushed(layers: Layers, weights: Any, change: Any, x: Any, dx: Any) -> Any:
    """How the result changes with the weights (by a vector, or None) and with the rows."""
    _, saved = forward(layers, weights, x)
    for layer, kept in zip(layers, saved, strict=True):
        if isinstance(layer, Map):
            dx = _product(dx, layer.matrix(weights))
            if change is not None:
                dx += _product(kept, layer.matrix(change)) + layer.offset(change)
        else:
            dx = dx * kept
    return dx


def backward(layers: Layers, weights: Any, x: Any, dy: Any) -> tuple[Any, Pairs]:
    """The sensitivity to the rows; and for each map the rows x and dy whose products are those to its weights."""
    _, saved = forward(layers, weights, x)
    pairs: Pairs = []
    for layer, kept in zip(reversed(layers), reversed(saved), strict=True):
        if isinstance(layer, Map):
            pairs.append((layer, kept, dy))
            dy = _product(dy, layer.matrix(weights).T)
        else:
            dy = dy * kept
    return dy, pairs[::-1]


def _product(x: Any, matrix: Any) -> Any:
    out = empty((len(x), matrix.shape[1]), x)
    if is_device_array(x):
        matrix = copied(matrix)
    tile.multiply(contiguous(x, x.dtype), tile.pack(matrix), out)
    return out


def operations(layers: Sequence[Map | str]) -> int:
    """Multiplications and additions of a row, forward."""
    return sum(2 * layer.inputs * layer.outputs for layer in layers if isinstance(layer, Map))


__all__ = ["ACTIVATIONS", "ROWS", "Layers", "Map", "Pairs", "backward", "forward", "operations", "pushed"]
