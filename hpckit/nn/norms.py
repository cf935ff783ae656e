"""Normalization of each row: layer norm and root mean square norm."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.nn.memory import empty, empty_like
from hpckit.kernels.nn.norm import dispatch
from hpckit.nn.layer import Pass
from hpckit.nn.parameters import Parameter, ones, zeros


class LayerNorm:
    """(x - mean) / sqrt(variance + eps) gain + bias over the last dim."""

    def __init__(self, width: int, name: str = "norm", eps: float = 1e-5) -> None:
        self.gain = Parameter(f"{name}.gain", (width,), ones, decay=False)
        self.bias = Parameter(f"{name}.bias", (width,), zeros, decay=False)
        self.eps = eps

    def parameters(self) -> list[Parameter]:
        """Gain, then bias."""
        return [self.gain, self.bias]

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """`saved` is x and the statistics of its rows."""
        y, mean = empty_like(x), empty((x.size // x.shape[-1],), x)
        rstd = empty(mean.shape, x)
        dispatch.layer_norm(x, self.gain.value, self.bias.value, self.eps, y, mean, rstd)
        step.rounded(y)
        return y, (x, mean, rstd)

    def backward_input(self, saved: Any, dy: Any, carry: Any = None) -> Any:
        """B: the gradient of x, added to `carry` if a residual goes around the norm."""
        dx = empty_like(dy)
        dispatch.layer_norm_input(saved[0], self.gain.value, *saved[1:], dy, carry, dx)
        return dx

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add to the gradients of gain and bias."""
        dispatch.layer_norm_weight(*saved, dy, self.gain.grad, self.bias.grad)


class RMSNorm:
    """x / sqrt(mean(x^2) + eps) gain over the last dim."""

    def __init__(self, width: int, name: str = "norm", eps: float = 1e-5) -> None:
        self.gain = Parameter(f"{name}.gain", (width,), ones, decay=False)
        self.eps = eps

    def parameters(self) -> list[Parameter]:
        """The gain."""
        return [self.gain]

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """`saved` is x and the statistics of its rows."""
        y, rstd = empty_like(x), empty((x.size // x.shape[-1],), x)
        dispatch.rms_norm(x, self.gain.value, self.eps, y, rstd)
        step.rounded(y)
        return y, (x, rstd)

    def backward_input(self, saved: Any, dy: Any, carry: Any = None) -> Any:
        """B: the gradient of x, added to `carry` if a residual goes around the norm."""
        dx = empty_like(dy)
        dispatch.rms_norm_input(saved[0], self.gain.value, saved[1], dy, carry, dx)
        return dx

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add to the gradient of the gain."""
        dispatch.rms_norm_weight(*saved, dy, self.gain.grad)
