"""Causal self-attention: multi-head or grouped-query, with or without rotary positions."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.device_array import from_host
from hpckit.kernels.nn.attention import dispatch
from hpckit.kernels.nn.memory import empty, empty_like
from hpckit.nn.dropout import checked, numbers_of
from hpckit.nn.layer import Pass
from hpckit.nn.linear import Linear
from hpckit.nn.parameters import Parameter


class Attention:
    """x -> qkv (one product) -> attention -> out: [B, T, width] -> [B, T, width].

    The columns of the weight `qkv` are the queries of all heads, then the keys, then the values of `kv_heads` heads.
    kv_heads: fewer than heads for grouped-query attention. head_width: by default width / heads. rope_base: of rotary
    positions (10000 in Su et al. 2021), 0 for none. out_std: of the initial values of `out`. dropout: of the
    weights that the softmax gives, drawn as `Dropout` draws, again in backward instead of kept.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        name: str = "attention",
        kv_heads: int | None = None,
        head_width: int | None = None,
        rope_base: float = 0.0,
        bias: bool = True,
        std: float = 0.02,
        out_std: float | None = None,
        dropout: float = 0.0,
    ) -> None:
        self.heads, self.kv_heads = heads, heads if kv_heads is None else kv_heads
        self.head_width, self.rope_base = head_width or width // max(heads, 1), rope_base
        if heads < 1 or self.kv_heads < 1 or heads % self.kv_heads or (head_width is None and width % heads):
            raise InputError(
                f"a width of {width} does not divide into {heads} heads on {self.kv_heads} heads of keys and values",
                do="choose heads that divide the width, and kv_heads that divide heads",
            )
        if rope_base and self.head_width % 2:
            raise InputError(f"rotary positions turn pairs of numbers, and a head has {self.head_width}")
        self.dropout, self.name = checked(dropout), f"{name}.dropout"
        every = (heads + 2 * self.kv_heads) * self.head_width
        self.qkv = Linear(width, every, f"{name}.qkv", bias, std)
        self.out = Linear(heads * self.head_width, width, f"{name}.out", bias, std if out_std is None else out_std)

    def parameters(self) -> list[Parameter]:
        """Of qkv, then of out."""
        return self.qkv.parameters() + self.out.parameters()

    def forward(self, x: Any, step: Pass, onto: Any = None) -> tuple[Any, Any]:
        """The result, added to `onto` where a residual goes around the attention."""
        (batch, length, _), width = x.shape, self.head_width
        flat, _ = self.qkv.forward(x, step)
        qkv = flat.reshape(batch, length, -1, width)
        self._rotate(qkv)
        mixed = empty((batch, length, self.heads, width), x)
        logs = empty((batch, self.heads, length), x)
        drop = (*numbers_of(step, self.name), self.dropout if step.training else 0.0)
        dispatch.attention(qkv, self.heads, self.kv_heads, mixed, logs, *drop)
        y = empty_like(x)
        self.out.apply(mixed.reshape(batch, length, -1), y, onto)
        return y, {"x": x, "qkv": qkv, "mixed": mixed, "logs": logs, "drop": drop}

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """The gradient of x; that of qkv is kept for W."""
        mixed = saved["mixed"]
        dmixed = self.out.backward_input(None, dy).reshape(mixed.shape)
        dqkv = empty_like(saved["qkv"])
        dispatch.attention_gradient(
            saved["qkv"], self.heads, self.kv_heads, mixed, saved.pop("logs"), dmixed, dqkv, *saved["drop"]
        )
        del saved["qkv"]
        self._rotate(dqkv, back=True)
        saved["dqkv"] = dqkv.reshape(*dy.shape[:-1], -1)
        return self.qkv.backward_input(None, saved["dqkv"])

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """Adds to the gradients of out, then of qkv."""
        self.out.backward_weight(saved["mixed"].reshape(*dy.shape[:-1], -1), dy)
        self.qkv.backward_weight(saved["x"], saved["dqkv"])

    def _rotate(self, qkv: Any, back: bool = False) -> None:
        if self.rope_base:
            cosines, sines = angles(qkv.shape[1], self.head_width, self.rope_base)
            tables = [from_host(table.astype(qkv.dtype), qkv) for table in (cosines, -sines if back else sines)]
            dispatch.rotary(qkv, self.heads + self.kv_heads, *tables)


@functools.lru_cache(maxsize=8)
def angles(length: int, width: int, base: float) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine of t base^(-2 i / width), float64 [length, width / 2]: Su et al. 2021, section 3.2.2."""
    turns = np.arange(length)[:, None] * base ** (-2 * np.arange(width // 2) / width)
    return np.cos(turns), np.sin(turns)
