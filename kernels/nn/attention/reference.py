"""Causal attention and rotary positions, NumPy: definition and test oracle of the compiled forms.

qkv [B, T, heads + 2 kv_heads, d]: the queries of all heads, then the keys, then the values; head h attends to the keys
and values of head h // (heads / kv_heads) (Ainslie et al., "GQA", 2023). out [B, T, heads, d]; logs [B, heads, T].
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.noise.reference import uniforms


def _parts(qkv: np.ndarray, heads: int, kv_heads: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Views [B, kv_heads, heads of a group or 1, T, d] of queries, keys and values."""
    batch, length, _, width = qkv.shape
    shape = (batch, length, kv_heads, -1, width)
    cuts = (qkv[:, :, :heads], qkv[:, :, heads : heads + kv_heads], qkv[:, :, heads + kv_heads :])
    query, key, value = (part.reshape(shape).transpose(0, 2, 3, 1, 4) for part in cuts)
    return query, key, value


def _scores(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Query key^T / sqrt(d), -inf where a key comes after its query: [B, kv_heads, group, T, T]."""
    length, width = query.shape[-2:]
    scores = query @ key.swapaxes(-1, -2) / query.dtype.type(np.sqrt(width))
    return np.where(np.tri(length, dtype=bool), scores, -np.inf).astype(query.dtype)


def kept(shape: tuple[int, int, int], key: int, step: int, first: int, rate: float) -> np.ndarray:
    """The factors of dropout on the weights: 0 with probability `rate`, else 1 / (1 - rate); [B, heads, T, T].

    That of key j for query t of head h in sample `first` + k depends on (key, step, first + k, h, t, j) alone: word
    j % 4 of Philox under the counter (((first + k) heads + h) T + t) ceil(T / 4) + j // 4, below 2^48. shape: [B,
    heads, T].
    """
    batch, heads, length = shape
    groups = -(-length // 4)
    rows = first * heads * length + np.arange(batch * heads * length)
    ids = rows[:, None] * groups + np.arange(groups)
    words = np.empty((ids.size, 4))
    uniforms(key, step, ids.reshape(-1), 0, words)
    return np.where(words.reshape(*shape, -1)[..., :length] > rate, 1 / (1 - rate), 0)


def attention(
    qkv: np.ndarray,
    heads: int,
    kv_heads: int,
    out: np.ndarray,
    logs: np.ndarray,
    key: int = 0,
    step: int = 0,
    first: int = 0,
    rate: float = 0.0,
) -> None:
    """Set out = dropout(softmax(query key^T / sqrt(d))) value over the keys up to each query.

    Vaswani et al., "Attention is all you need", 2017, equation 1. logs: the logarithm of each softmax's denominator.
    key, step, first, rate: of the dropout of weights, see `kept`.
    """
    query, keys, value = _parts(qkv, heads, kv_heads)
    scores = _scores(query, keys)
    largest = scores.max(axis=-1)
    weights = np.exp(scores - largest[..., None])
    sums = weights.sum(axis=-1)
    logs[...] = (largest + np.log(sums)).reshape(logs.shape)
    weights /= sums[..., None]
    if rate:
        weights *= kept(logs.shape, key, step, first, rate).astype(qkv.dtype).reshape(weights.shape)
    found = weights @ value
    out[...] = found.transpose(0, 3, 1, 2, 4).reshape(out.shape)


def attention_gradient(
    qkv: np.ndarray,
    heads: int,
    kv_heads: int,
    out: np.ndarray,
    logs: np.ndarray,
    dout: np.ndarray,
    dqkv: np.ndarray,
    key: int = 0,
    step: int = 0,
    first: int = 0,
    rate: float = 0.0,
) -> None:
    """Set dqkv from dout, recomputing the softmax from `logs` (Dao et al., "FlashAttention", 2022).

    The dropout mask is drawn again.
    """
    query, keys, value = _parts(qkv, heads, kv_heads)
    scores = _scores(query, keys)
    weights = np.exp(scores - logs.reshape(scores.shape[:-1])[..., None])
    batch, length = qkv.shape[:2]
    shape = (batch, length, kv_heads, -1, qkv.shape[3])
    slope, result = (array.reshape(shape).transpose(0, 2, 3, 1, 4) for array in (dout, out))
    dweights = slope @ value.swapaxes(-1, -2)
    dropped = weights
    if rate:
        mask = kept(logs.shape, key, step, first, rate).astype(qkv.dtype).reshape(weights.shape)
        dweights *= mask
        dropped = weights * mask
    dscores = weights * (dweights - (slope * result).sum(axis=-1, keepdims=True))
    dscores /= query.dtype.type(np.sqrt(qkv.shape[3]))
    dquery = dscores @ keys
    dkey = (dscores.swapaxes(-1, -2) @ query).sum(axis=2, keepdims=True)
    dvalue = (dropped.swapaxes(-1, -2) @ slope).sum(axis=2, keepdims=True)
    back = [part.transpose(0, 3, 1, 2, 4).reshape(batch, length, -1, qkv.shape[3]) for part in (dquery, dkey, dvalue)]
    dqkv[...] = np.concatenate(back, axis=2)


def cached_attention(qkv: np.ndarray, heads: int, kv_heads: int, kept: np.ndarray, start: int, out: np.ndarray) -> None:
    """Set out = softmax(query key^T / sqrt(d)) value for tokens `start` … of a text whose keys and values are `kept`.

    kept: [B, start + T or more, 2 kv_heads, d], the keys' heads, then the values', including those of the T tokens
    of qkv; query t sees the first start + t + 1.
    """
    batch, count, _, width = qkv.shape
    shape = (batch, -1, kv_heads, 1, width)
    query = qkv[:, :, :heads].reshape(batch, count, kv_heads, -1, width).transpose(0, 2, 3, 1, 4)
    seen = kept[:, : start + count]
    keys, values = (
        part.reshape(shape).transpose(0, 2, 3, 1, 4) for part in (seen[:, :, :kv_heads], seen[:, :, kv_heads:])
    )
    scores = query @ keys.swapaxes(-1, -2) / query.dtype.type(np.sqrt(width))
    scores = np.where(np.tri(count, start + count, start, dtype=bool), scores, -np.inf).astype(query.dtype)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    found = (weights / weights.sum(axis=-1, keepdims=True)) @ values
    out[...] = found.transpose(0, 3, 1, 2, 4).reshape(out.shape)


def rotary(qkv: np.ndarray, rotated: int, cosines: np.ndarray, sines: np.ndarray) -> None:
    """Rotate the first `rotated` heads in place: numbers i and i + d / 2 at position t by the angle [t, i].

    Su et al., "RoFormer", 2021, in the pairing of Llama's published weights. Negated sines give the inverse and
    the gradient. cosines, sines: [T, d / 2].
    """
    half = qkv.shape[3] // 2
    x, y = qkv[:, :, :rotated, :half].copy(), qkv[:, :, :rotated, half:].copy()
    c, s = cosines[:, None], sines[:, None]
    qkv[:, :, :rotated, :half] = x * c - y * s
    qkv[:, :, :rotated, half:] = y * c + x * s
