"""Activations: functions applied element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hpckit.errors import InputError
from hpckit.kernels.nn import dispatch
from hpckit.kernels.nn.memory import empty_like
from hpckit.nn.layer import Pass
from hpckit.nn.parameters import Parameter


class Activation:
    """y = function(x), element by element. `saved` is the slope, which becomes the gradient in place."""

    def __init__(self, function: Callable[[Any, Any], None]) -> None:
        self.function = function

    def parameters(self) -> list[Parameter]:
        """No parameters."""
        return []

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """Return y and the slope; x stays unchanged."""
        y, slope = empty_like(x), empty_like(x)
        slope[...] = x
        self.function(slope, y)
        step.rounded(slope, y)
        return y, slope

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: the slope times dy."""
        dispatch.scale(saved, dy)
        return saved

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: there are no parameters."""


class ReLU(Activation):
    """max(x, 0)."""

    def __init__(self) -> None:
        super().__init__(dispatch.relu)


class GELU(Activation):
    """The Gaussian error linear unit, approximated by tanh."""

    def __init__(self) -> None:
        super().__init__(dispatch.gelu)


class ExactGELU(Activation):
    """The Gaussian error linear unit by the error function, which is PyTorch's default."""

    def __init__(self) -> None:
        super().__init__(dispatch.gelu_erf)


class SiLU(Activation):
    """x sigmoid(x)."""

    def __init__(self) -> None:
        super().__init__(dispatch.silu)


ACTIVATIONS: dict[str, Callable[[], Activation]] = {"relu": ReLU, "gelu": GELU, "gelu_erf": ExactGELU, "silu": SiLU}
# Names in a config.json of transformers -> ours; the first of one kind is what we write.
IN_TRANSFORMERS = {
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu_fast": "gelu",
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def activation_of(name: str) -> Activation:
    """The activation with this name. Raises `InputError` for an unknown name."""
    if name not in ACTIVATIONS:
        raise InputError(f"{name!r} is not an activation", do=f"choose one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]()
