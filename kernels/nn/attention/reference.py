"""Causal attention and rotary positions, NumPy: the oracle, and the documentation of what the other forms compute.

qkv [B, T, heads + 2 kv_heads, d]: the queries of all heads, then the keys, then the values; head h looks at the keys
and values number h // (heads / kv_heads) (Ainslie et al., "GQA", 2023). out [B, T, heads, d]; logs [B, heads, T].
"""

from __future__ import annotations

import numpy as np


def _parts(qkv: np.ndarray, heads: int, kv_heads: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Views [B, kv_heads, heads of a group or 1, T, d] of queries, keys and values."""
    batch, length, _, width = qkv.shape
    shape = (batch, length, kv_heads, -1, width)
    cuts = (qkv[:, :, :heads], qkv[:, :, heads : heads + kv_heads], qkv[:, :, heads + kv_heads :])
    query, key, value = (part.reshape(shape).transpose(0, 2, 3, 1, 4) for part in cuts)
    return query, key, value


def _scores(query: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Query key^T / sqrt(d), -inf where a key lies behind its query: [B, kv_heads, group, T, T]."""
    length, width = query.shape[-2:]
    scores = query @ key.swapaxes(-1, -2) / query.dtype.type(np.sqrt(width))
    return np.where(np.tri(length, dtype=bool), scores, -np.inf).astype(query.dtype)


def attention(qkv: np.ndarray, heads: int, kv_heads: int, out: np.ndarray, logs: np.ndarray) -> None:
    """Out = softmax(query key^T / sqrt(d)) value over the keys up to each query.

    Vaswani et al., "Attention is all you need", 2017, equation 1. logs: the logarithm of each softmax's denominator.
    """
    query, key, value = _parts(qkv, heads, kv_heads)
    scores = _scores(query, key)
    largest = scores.max(axis=-1)
    weights = np.exp(scores - largest[..., None])
    sums = weights.sum(axis=-1)
    logs[...] = (largest + np.log(sums)).reshape(logs.shape)
    found = (weights / sums[..., None]) @ value
    out[...] = found.transpose(0, 3, 1, 2, 4).reshape(out.shape)


def attention_gradient(
    qkv: np.ndarray, heads: int, kv_heads: int, out: np.ndarray, logs: np.ndarray, dout: np.ndarray, dqkv: np.ndarray
) -> None:
    """Dqkv from dout; the softmax is computed again from `logs`, as Dao et al. do ("FlashAttention", 2022)."""
    query, key, value = _parts(qkv, heads, kv_heads)
    scores = _scores(query, key)
    weights = np.exp(scores - logs.reshape(scores.shape[:-1])[..., None])
    batch, length = qkv.shape[:2]
    shape = (batch, length, kv_heads, -1, qkv.shape[3])
    slope, result = (array.reshape(shape).transpose(0, 2, 3, 1, 4) for array in (dout, out))
    dscores = weights * (slope @ value.swapaxes(-1, -2) - (slope * result).sum(axis=-1, keepdims=True))
    dscores /= query.dtype.type(np.sqrt(qkv.shape[3]))
    dquery = dscores @ key
    dkey = (dscores.swapaxes(-1, -2) @ query).sum(axis=2, keepdims=True)
    dvalue = (weights.swapaxes(-1, -2) @ slope).sum(axis=2, keepdims=True)
    back = [part.transpose(0, 3, 1, 2, 4).reshape(batch, length, -1, qkv.shape[3]) for part in (dquery, dkey, dvalue)]
    dqkv[...] = np.concatenate(back, axis=2)


def rotary(qkv: np.ndarray, rotated: int, cosines: np.ndarray, sines: np.ndarray) -> None:
    """Rotate the first `rotated` heads in place: numbers i and i + d / 2 at position t by the angle [t, i].

    Su et al., "RoFormer", 2021, in the pairing of Llama's published weights. With the sines negated it is the inverse,
    and the gradient. cosines, sines: [T, d / 2].
    """
    half = qkv.shape[3] // 2
    x, y = qkv[:, :, :rotated, :half].copy(), qkv[:, :, :rotated, half:].copy()
    c, s = cosines[:, None], sines[:, None]
    qkv[:, :, :rotated, :half] = x * c - y * s
    qkv[:, :, :rotated, half:] = y * c + x * s
