"""Causal self-attention: multi-head or grouped-query, with or without rotary positions."""

from __future__ import annotations

from typing import Any

from hpckit.errors import InputError
from hpckit.kernels.device_array import from_host
from hpckit.kernels.nn.attention import dispatch
from hpckit.kernels.nn.memory import empty, empty_like
from hpckit.nn.dropout import checked, numbers_of
from hpckit.nn.layer import KeyValues, Pass
from hpckit.nn.linear import Linear
from hpckit.nn.parameters import Parameter
from hpckit.nn.transformer.rotary import RopeScaling, angles

MOST_TABLES = 16
_placed: dict[tuple[Any, ...], tuple[Any, Any, Any]] = {}


class Attention:
    """x -> qkv (one product) -> attention -> out: [B, T, width] -> [B, T, width].

    The columns of the weight `qkv` are the queries of all heads, then the keys, then the values of `kv_heads` heads.
    kv_heads: fewer than heads for grouped-query attention. head_width: by default width / heads. rope_base: the base of
    rotary positions (10000 in Su et al. 2021), 0 for none; rope_scaling: how they are slowed. out_std: the standard
    deviation of the initial values of `out`. dropout: rate for the softmax weights, drawn as in `Dropout`, and drawn
    again in backward instead of stored. recompute: keep x only, and work out queries, keys, values and what they give
    again in backward (selective recomputation: Korthikanti et al. 2022, section 5).
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
        rope_scaling: RopeScaling | None = None,
        recompute: bool = False,
    ) -> None:
        self.heads, self.kv_heads = heads, heads if kv_heads is None else kv_heads
        self.head_width, self.rope_base = head_width or width // max(heads, 1), rope_base
        self.rope_scaling, self.recompute = rope_scaling, recompute
        if heads < 1 or self.kv_heads < 1 or heads % self.kv_heads or (head_width is None and width % heads):
            raise InputError(
                f"a width of {width} does not divide into {heads} heads on {self.kv_heads} heads of keys and values",
                do="choose heads that divide the width, and kv_heads that divide heads",
            )
        if rope_base and self.head_width % 2:
            raise InputError(f"rotary positions need heads of an even width, not {self.head_width}")
        self.dropout, self.name = checked(dropout), name
        self.share = 0, 1  # the heads are this one of so many equal shares of all heads
        every = (heads + 2 * self.kv_heads) * self.head_width
        self.qkv = Linear(width, every, f"{name}.qkv", bias, std)
        self.out = Linear(heads * self.head_width, width, f"{name}.out", bias, std if out_std is None else out_std)

    def parameters(self) -> list[Parameter]:
        """Those of qkv, then those of out."""
        return self.qkv.parameters() + self.out.parameters()

    def forward(self, x: Any, step: Pass, onto: Any = None) -> tuple[Any, Any]:
        """The result, added to `onto` if a residual goes around the attention."""
        saved = self.meet(x, self.qkv.forward(x, step)[0], step)
        y = empty_like(x)
        self.out.apply(saved["mixed"].reshape(*x.shape[:-1], self.heads * self.head_width), y, onto)
        if step.cache is not None:
            return y, None
        return y, {"x": x, "pass": step} if self.recompute else saved

    def meet(self, x: Any, flat: Any, step: Pass) -> dict[str, Any]:
        """What is between the products, where the tokens of a sample meet: what backward needs of it, `mixed` for the
        last product among it. flat: queries, keys and values of x.
        """
        (batch, length, _), width = x.shape, self.head_width
        qkv = flat.reshape(batch, length, flat.shape[-1] // width, width)
        mixed = empty((batch, length, self.heads, width), x)
        if step.cache is not None:
            self._continue(qkv, step.cache, mixed)
            return {"mixed": mixed}
        self._rotate(qkv, self._places(length, step))
        step.rounded(qkv)
        drop = (*numbers_of(step, f"{self.name}.dropout"), self.dropout if step.training else 0.0)
        core = self._mix(qkv, mixed, drop, step)
        step.rounded(mixed)
        return {"x": x, "mixed": mixed, "core": core, "drop": drop, "pass": step}

    def backward_input(self, saved: Any, dy: Any) -> Any:
        """B: the gradient of x. `saved` keeps that of qkv for W."""
        self.met_again(saved)
        return self.qkv.backward_input(None, self.meet_gradient(saved, self.out.backward_input(None, dy)))

    def met_again(self, saved: dict[str, Any]) -> None:
        """With `recompute`: add to `saved` what `meet` gave."""
        if self.recompute:
            flat, _ = self.qkv.forward(saved["x"], saved["pass"])
            saved |= self.meet(saved["x"], flat, saved["pass"])

    def meet_gradient(self, saved: dict[str, Any], dmixed: Any) -> Any:
        """The gradient of `flat` of `meet`, from that of `mixed`; `saved` keeps it for W."""
        mixed = saved["mixed"]
        dqkv = self._mix_gradient(saved, dmixed.reshape(mixed.shape))
        self._rotate(dqkv, self._places(dqkv.shape[1], saved["pass"]), back=True)
        saved["dqkv"] = dqkv.reshape(*dqkv.shape[:2], dqkv.shape[-2] * dqkv.shape[-1])
        return saved["dqkv"]

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add to the gradients of out, then of qkv."""
        self.out.backward_weight(saved["mixed"].reshape(*dy.shape[:-1], self.heads * self.head_width), dy)
        self.qkv.backward_weight(saved["x"], saved["dqkv"])

    def _places(self, tokens: int, step: Pass) -> tuple[Any, int]:
        """The places of a pass's tokens in their sample, and how many it has: for rotary positions."""
        return slice(tokens), tokens

    def _mix(self, qkv: Any, mixed: Any, drop: tuple[int, int, int, float], step: Pass) -> Any:
        """Set mixed to what the heads give; returns what `_mix_gradient` needs besides."""
        logs = empty((len(qkv), self.heads, qkv.shape[1]), qkv)
        for at, numbers in self._draws(len(qkv), drop):
            dispatch.attention(qkv[at], self.heads, self.kv_heads, mixed[at], logs[at], *numbers)
        return qkv, logs

    def _mix_gradient(self, saved: Any, dmixed: Any) -> Any:
        """The gradient of qkv, from that of mixed."""
        (qkv, logs), mixed = saved.pop("core"), saved["mixed"]
        dqkv = empty_like(qkv)
        for at, numbers in self._draws(len(qkv), saved["drop"]):
            dispatch.attention_gradient(
                qkv[at], self.heads, self.kv_heads, mixed[at], logs[at], dmixed[at], dqkv[at], *numbers
            )
        return dqkv

    def _draws(self, batch: int, drop: tuple[int, int, int, float]) -> list[tuple[slice, tuple[int, int, int, float]]]:
        """Samples to compute at once, and what determines their dropout. It counts the heads of all samples one after
        the other: with a share of the heads, those of a sample are at a place of their own.
        """
        (key, step, first, rate), (share, shares) = drop, self.share
        if shares == 1 or not rate:
            return [(slice(None), drop)]
        return [(slice(k, k + 1), (key, step, (first + k) * shares + share, rate)) for k in range(batch)]

    def _continue(self, qkv: Any, cache: KeyValues, mixed: Any) -> None:
        """Attention of tokens that follow those of a cache; the cache then keeps their keys and values too."""
        first, count = cache.length, qkv.shape[1]
        self._rotate(qkv, (slice(first, first + count), max(cache.capacity, first + count)))
        kept = cache.keep(self.name, qkv[:, :, self.heads :])
        if first == 0 and count > 1:
            logs = empty((len(qkv), self.heads, count), qkv)
            dispatch.attention(qkv, self.heads, self.kv_heads, mixed, logs)
        else:
            dispatch.cached_attention(qkv, self.heads, self.kv_heads, kept, first, mixed)

    def _rotate(self, qkv: Any, places: tuple[Any, int], back: bool = False) -> None:
        """Turn queries and keys of tokens at some places of so many."""
        if self.rope_base:
            at, length = places
            cosines, sines, inverse = _tables((length, self.head_width, self.rope_base, self.rope_scaling), qkv)
            dispatch.rotary(qkv, self.heads + self.kv_heads, cosines[at], (inverse if back else sines)[at])


def _tables(key: tuple[Any, ...], like: Any) -> tuple[Any, Any, Any]:
    """Cosines, sines and negated sines of `angles(*key)` on the device and in the dtype of `like`; a cache of a few."""
    kept = (key, like.dtype.name, type(like))
    if kept not in _placed:
        if len(_placed) >= MOST_TABLES:
            _placed.clear()
        cosines, sines = angles(*key)
        made = [from_host(table.astype(like.dtype), like) for table in (cosines, sines, -sines)]
        _placed[kept] = made[0], made[1], made[2]
    return _placed[kept]
