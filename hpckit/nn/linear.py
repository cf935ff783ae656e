"""A linear map, with or without bias."""

from __future__ import annotations

import math
from typing import Any

from hpckit.errors import InputError
from hpckit.kernels.nn import dispatch
from hpckit.kernels.nn.matmul import multiply
from hpckit.kernels.nn.memory import empty
from hpckit.nn.layer import Pass
from hpckit.nn.parameters import Parameter


def rows(x: Any) -> Any:
    """[..., d] as a matrix [n, d]."""
    return x.reshape(-1, x.shape[-1])


def _unfit(weight: Parameter, x: Any) -> InputError:
    """The error for an input that does not fit a linear map."""
    if weight.value is None:
        return InputError(
            f"{weight.name} has no values yet", do="make Parameters(model.parameters()) and initialize them"
        )
    takes, given = weight.value.dtype, x.dtype
    return InputError(
        f"{weight.name} takes {takes}[..., {weight.shape[0]}], not {given}{list(x.shape)}",
        do=f"give x.astype(np.{takes}), or make the parameters with dtype=np.{given}" if takes != given else "",
    )


class Linear:
    """y = x weight + bias: [..., inputs] -> [..., outputs]; the weight is [inputs, outputs].

    std: standard deviation of the weight's initial values; by default weight and bias are uniform within 1 /
    sqrt(inputs), as in PyTorch. input_gradient=False if x is data: `backward_input` then returns None at no cost.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        name: str = "linear",
        bias: bool = True,
        std: float | None = None,
        input_gradient: bool = True,
    ) -> None:
        if inputs < 1 or outputs < 1:
            raise InputError(f"{name} maps {inputs} numbers to {outputs}", do="give 1 or more of each")
        bound = 1 / math.sqrt(inputs)
        shape = (inputs, outputs)
        self.weight = Parameter(
            f"{name}.weight", shape, (lambda random: random.uniform(-bound, bound, shape)) if std is None else std
        )
        bias_init = (lambda random: random.uniform(-bound, bound, outputs)) if std is None else 0.0
        self.bias = Parameter(f"{name}.bias", (outputs,), bias_init, decay=False) if bias else None
        self.input_gradient = input_gradient

    def parameters(self) -> list[Parameter]:
        """Weight, then bias."""
        return [self.weight] if self.bias is None else [self.weight, self.bias]

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """`saved` is x. Raises `InputError` for an x with another number of inputs or another dtype."""
        value = self.weight.value
        if value is None or x.dtype != value.dtype or x.shape[-1:] != value.shape[:1]:
            raise _unfit(self.weight, x)
        y = empty((*x.shape[:-1], value.shape[1]), x)
        self.apply(x, y)
        return y, x

    def apply(self, x: Any, y: Any, onto: Any = None) -> None:
        """Set y = x weight + bias, plus `onto` if it is given."""
        bias, carried = None if self.bias is None else self.bias.value, None if onto is None else rows(onto)
        multiply(rows(x), self.weight.value, rows(y), bias=bias, onto=carried)

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: dx = dy weight^T."""
        if not self.input_gradient:
            return None
        dx = empty((*dy.shape[:-1], self.weight.shape[0]), dy)
        self.transposed(dy, dx)
        return dx

    def transposed(self, dy: Any, dx: Any, add: bool = False) -> None:
        """Set dx = dy weight^T, or add to dx with `add`."""
        multiply(rows(dy), self.weight.value.T, rows(dx), add)

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add x^T dy to the weight's gradient, and the sum of dy over the rows to the bias's."""
        multiply(rows(saved).T, rows(dy), self.weight.grad, add=True)
        if self.bias is not None:
            dispatch.add_columns(dy, self.bias.grad)
