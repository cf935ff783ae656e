"""Tokens to vectors and back: embeddings with learned positions, and the head that scores the next token."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.device_array import placed
from hpckit.kernels.nn import dispatch
from hpckit.kernels.nn.matmul import multiply
from hpckit.kernels.nn.memory import empty
from hpckit.nn.layer import Pass
from hpckit.nn.linear import rows
from hpckit.nn.parameters import Parameter, whole_numbers


class Embedding:
    """y[i, t] = token[tokens[i, t]] + position[t]: integers [B, T] -> [B, T, width].

    context: number of learned positions, 0 for none (rotary positions belong to the attention). shared: a head uses the
    same table.
    """

    def __init__(
        self, vocab: int, width: int, name: str = "embed", context: int = 0, std: float = 0.02, shared: bool = False
    ) -> None:
        self.token = Parameter(f"{name}.token.weight", (vocab, width), std, shared=shared)
        self.position = Parameter(f"{name}.position.weight", (context, width), std) if context else None

    def parameters(self) -> list[Parameter]:
        """The table of the tokens, then that of the positions."""
        return [self.token] if self.position is None else [self.token, self.position]

    def forward(self, tokens: Any, step: Pass) -> tuple[Any, Any]:
        """`saved` is the tokens; tokens of the host are copied to the GPU of the table.

        Raises `InputError` for tokens outside the table, too many tokens, or numbers that are not integers.
        """
        first, table = 0 if step.cache is None else step.cache.length, self.token.value
        tokens = placed(self.checked(tokens, step), table)
        y = empty((*tokens.shape, table.shape[1]), table)
        dispatch.embed(tokens, table, table[:0] if self.position is None else self.position.value[first:], y)
        return y, tokens

    def places(self, tokens: int, step: Pass) -> Any:
        """The numbers of a pass's tokens in their sample."""
        return np.arange(tokens)

    def checked(self, tokens: Any, step: Pass) -> Any:
        """The tokens as `forward` takes them, else `InputError`."""
        vocab = self.token.whole[0]
        tokens = whole_numbers(tokens, "tokens")
        if tokens.ndim != 2:
            raise InputError(f"tokens are [samples, context], not {list(tokens.shape)}", do="give tokens[None] for one")
        if tokens.size and (int(tokens.min()) < 0 or int(tokens.max()) >= vocab):
            raise InputError(f"tokens range from 0 to {vocab - 1}, not from {tokens.min()} to {tokens.max()}")
        end = max(tokens.shape[1], step.length) + (0 if step.cache is None else step.cache.length)
        if self.position is not None and end > self.position.shape[0]:
            raise InputError(f"{end} tokens per sample exceed the context of {self.position.shape[0]}")
        return tokens

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: None, since tokens have no gradient."""
        return None

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add dy to the rows of its tokens and positions."""
        table = self.token.grad
        dispatch.embed_gradient(saved, dy, table, table[:0] if self.position is None else self.position.grad)


class Unembedding:
    """Logits = x weight^T: [..., width] -> [..., vocab]. The weight [vocab, width] may be an `Embedding`'s table."""

    def __init__(self, vocab: int, width: int, name: str = "head", std: float = 0.02, tied: Parameter | None = None):
        self.weight = Parameter(f"{name}.weight", (vocab, width), std) if tied is None else tied

    def parameters(self) -> list[Parameter]:
        """The weight."""
        return [self.weight]

    def forward(self, x: Any, step: Pass) -> tuple[Any, Any]:
        """`saved` is x."""
        y = empty((*x.shape[:-1], self.weight.shape[0]), x)
        multiply(rows(x), self.weight.value.T, rows(y))
        return y, x

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: dx = dy weight."""
        dx = empty((*dy.shape[:-1], self.weight.shape[1]), dy)
        multiply(rows(dy), self.weight.value, rows(dx))
        return dx

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add dy^T x; for a shared weight, to its second gradient."""
        grad = self.weight.grad if self.weight.second_grad is None else self.weight.second_grad
        multiply(rows(dy).T, rows(saved), grad, add=True)
