"""Layers of image networks: 2-D convolution, max pooling, and images flattened for a classifier.

Images are [n, height, width, channels], channels last.
"""

from __future__ import annotations

import math
from typing import Any

from hpckit.kernels.nn.convolution import dispatch as kernels
from hpckit.kernels.nn.dispatch import add_columns
from hpckit.kernels.nn.matmul import multiply
from hpckit.kernels.nn.memory import empty, empty_like
from hpckit.nn.layer import Pass
from hpckit.nn.parameters import Parameter, zeros


class Convolution:
    """y = patches(x) @ weight + bias: each pixel of y sees `size` x `size` pixels of x, [n, h, w, inputs] ->
    [n, (h + 2 padding - size) // stride + 1, …, outputs].

    weight: [size, size, inputs, outputs], normal with variance 2 / (size^2 inputs) (He et al. 2015, arXiv:1502.01852);
    bias: [outputs], 0. input_gradient=False if x is data. Backward makes the patches of x again for the
    weights' gradient, since storing them would take size^2 times the memory of x.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int = 3,
        *,
        stride: int = 1,
        padding: int = 0,
        input_gradient: bool = True,
        name: str = "convolution",
    ) -> None:
        self.size, self.stride, self.padding, self.input_gradient = size, stride, padding, input_gradient
        deviation = math.sqrt(2 / (size * size * inputs))
        self.weight = Parameter(f"{name}.weight", (size, size, inputs, outputs), deviation)
        self.bias = Parameter(f"{name}.bias", (outputs,), zeros, decay=False)

    def parameters(self) -> list[Parameter]:
        """Weight and bias."""
        return [self.weight, self.bias]

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """`saved` is x."""
        patches = self._patches(x)
        y = empty((*patches.shape[:3], self.bias.size), x)
        y[...] = self.bias.value
        multiply(_rows(patches), self._matrix(self.weight.value), y.reshape(-1, self.bias.size), add=True)
        return y, x

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: the gradients of all patches, added where patches overlap."""
        if not self.input_gradient:
            return None
        patches = empty((*dy.shape[:3], *self.weight.shape[:3]), dy)
        multiply(dy.reshape(-1, self.bias.size), self._matrix(self.weight.value).T, _rows(patches))
        dx = empty_like(saved)
        dx[...] = 0
        kernels.add_patches(dx, patches, self.stride, self.padding)
        return dx

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: the product of all patches with the gradients of their pixels."""
        rows = dy.reshape(-1, self.bias.size)
        multiply(_rows(self._patches(saved)).T, rows, self._matrix(self.weight.grad), add=True)
        add_columns(rows, self.bias.grad)

    def _patches(self, x: Any) -> Any:
        n, height, width, channels = x.shape
        sizes = (kernels.out_size(m, self.size, self.stride, self.padding) for m in (height, width))
        patches = empty((n, *sizes, self.size, self.size, channels), x)
        kernels.gather_patches(patches, x, self.stride, self.padding)
        return patches

    def _matrix(self, weight: Any) -> Any:
        return weight.reshape(-1, self.bias.size)


class MaxPool:
    """The largest of each `size` x `size` pixels: [n, h, w, c] -> [n, h // size, w // size, c]."""

    def __init__(self, size: int = 2) -> None:
        self.size = size

    def parameters(self) -> list[Parameter]:
        """No parameters."""
        return []

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """`saved` is the place of the largest pixel in each window, and the shape of x."""
        n, height, width, channels = x.shape
        y = empty((n, height // self.size, width // self.size, channels), x)
        place = empty(y.shape, x.view("u1"))
        kernels.max_pool(y, place, x, self.size)
        return y, (place, x.shape)

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: each gradient goes to the place of the largest pixel."""
        place, shape = saved
        dx = empty(shape, dy)
        kernels.max_pool_back(dx, dy, place, self.size)
        return dx

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: there are no parameters."""


class Flatten:
    """An image as a row of numbers: [n, h, w, c] -> [n, h w c]."""

    def parameters(self) -> list[Parameter]:
        """No parameters."""
        return []

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """`saved` is the shape."""
        return x.reshape(len(x), -1), x.shape

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: the gradient in the shape of the image; None if the image is data."""
        return None if dy is None else dy.reshape(saved)

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: there are no parameters."""


def _rows(patches: Any) -> Any:
    """Patches as the rows of a matrix."""
    return patches.reshape(math.prod(patches.shape[:3]), -1)
