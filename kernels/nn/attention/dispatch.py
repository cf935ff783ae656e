"""Chooses the form of attention by the arrays it is given."""

from __future__ import annotations

from typing import Any

from hpckit.kernels.forms import form_for
from hpckit.kernels.nn.attention.reference import Part


def _check(qkv: Any, heads: int, kv_heads: int) -> None:
    if kv_heads < 1 or heads % kv_heads or qkv.ndim != 4 or qkv.shape[2] != heads + 2 * kv_heads:
        raise ValueError(f"{heads} heads on {kv_heads} of keys need [B, T, {heads + 2 * kv_heads}, d], not {qkv.shape}")


def attention(
    qkv: Any,
    heads: int,
    kv_heads: int,
    out: Any,
    logs: Any,
    key: int = 0,
    step: int = 0,
    first: int = 0,
    rate: float = 0.0,
) -> None:
    """See `reference.attention`."""
    _check(qkv, heads, kv_heads)
    form_for(__package__, qkv).attention(qkv, heads, kv_heads, out, logs, key, step, first, rate)


def attention_gradient(
    qkv: Any,
    heads: int,
    kv_heads: int,
    out: Any,
    logs: Any,
    dout: Any,
    dqkv: Any,
    key: int = 0,
    step: int = 0,
    first: int = 0,
    rate: float = 0.0,
) -> None:
    """See `reference.attention_gradient`."""
    _check(qkv, heads, kv_heads)
    form_for(__package__, qkv).attention_gradient(qkv, heads, kv_heads, out, logs, dout, dqkv, key, step, first, rate)


def partial_attention(
    queries: Any,
    keys: Any,
    part: Part,
    out: Any,
    logs: Any,
    key: int = 0,
    step: int = 0,
    first: int = 0,
    rate: float = 0.0,
) -> None:
    """See `reference.partial_attention`."""
    _check_part(queries, keys, part)
    form_for(__package__, queries).partial_attention(queries, keys, part, out, logs, key, step, first, rate)


def partial_attention_gradient(
    queries: Any,
    keys: Any,
    part: Part,
    out: Any,
    logs: Any,
    dout: Any,
    dqueries: Any,
    dkeys: Any,
    key: int = 0,
    step: int = 0,
    first: int = 0,
    rate: float = 0.0,
) -> None:
    """See `reference.partial_attention_gradient`."""
    _check_part(queries, keys, part)
    form_for(__package__, queries).partial_attention_gradient(
        queries, keys, part, out, logs, dout, dqueries, dkeys, key, step, first, rate
    )


def join(out: Any, logs: Any, other: Any, other_logs: Any) -> None:
    """See `reference.join`."""
    form_for(__package__, out).join(out, logs, other, other_logs)


def _check_part(queries: Any, keys: Any, part: Part) -> None:
    if queries.shape[2] % max(keys.shape[2] // 2, 1) or keys.shape[2] % 2 or queries.shape[3:] != keys.shape[3:]:
        raise ValueError(f"queries {queries.shape} do not go with keys and values {keys.shape}")
    if not keys.shape[1] or part.query < part.key or part.query + queries.shape[1] > part.tokens:
        raise ValueError(f"queries {queries.shape} over keys {keys.shape} are not a part like {part}")


def cached_attention(qkv: Any, heads: int, kv_heads: int, kept: Any, start: int, out: Any) -> None:
    """See `reference.cached_attention`."""
    _check(qkv, heads, kv_heads)
    if kept.shape[1] < start + qkv.shape[1] or kept.shape[2:] != (2 * kv_heads, qkv.shape[3]):
        raise ValueError(f"{start} + {qkv.shape[1]} tokens do not fit keys and values {kept.shape}")
    form_for(__package__, qkv).cached_attention(qkv, heads, kv_heads, kept, start, out)


def rotary(qkv: Any, rotated: int, cosines: Any, sines: Any) -> None:
    """See `reference.rotary`."""
    form_for(__package__, qkv).rotary(qkv, rotated, cosines, sines)
