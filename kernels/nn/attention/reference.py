"""Causal attention and rotary positions, NumPy: definition and test oracle of the compiled forms.

qkv [B, T, heads + 2 kv_heads, d]: the queries of all heads, then the keys, then the values; head h attends to the keys
and values of head h // (heads / kv_heads) (Ainslie et al., "GQA", 2023). out [B, T, heads, d]; logs [B, heads, T].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hpckit.kernels.noise.reference import uniforms


class Part(NamedTuple):
    """Which queries and keys of a whole attention are given.

    heads: of the whole; head: the first of those given. tokens: of a sample of the whole; query, key: the numbers of
    the first query and of the first key given there.
    """

    heads: int
    head: int
    tokens: int
    query: int
    key: int


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


def partial_attention(
    queries: np.ndarray,
    keys: np.ndarray,
    part: Part,
    out: np.ndarray,
    logs: np.ndarray,
    key: int = 0,
    step: int = 0,
    first: int = 0,
    rate: float = 0.0,
) -> None:
    """The same for some tokens' queries over some tokens' keys: out, and logs, are those of these keys alone.

    queries [B, n, heads, d]; keys [B, m, 2 kv_heads, d], the keys' heads, then the values'; a query sees keys up to its
    own place, of which there must be one. Results over several keys are put together by their logs: see `join`.
    """
    weights, values, logs[...] = _partial(queries, keys, part)
    if rate:
        weights = weights * _kept_part(logs.shape, part, keys.shape[1], key, step, first, rate, weights.shape)
    out[...] = (weights @ values).transpose(0, 3, 1, 2, 4).reshape(out.shape)


def partial_attention_gradient(
    queries: np.ndarray,
    keys: np.ndarray,
    part: Part,
    out: np.ndarray,
    logs: np.ndarray,
    dout: np.ndarray,
    dqueries: np.ndarray,
    dkeys: np.ndarray,
    key: int = 0,
    step: int = 0,
    first: int = 0,
    rate: float = 0.0,
) -> None:
    """Add to dqueries and dkeys what these keys give; out and logs are those over all keys that the queries see."""
    grouped = keys.shape[2] // 2
    query, *_ = _grouped(queries, grouped)
    some, values = _grouped(keys, 2 * grouped, grouped)
    weights = _partial(queries, keys, part, logs)[0]
    slope, result = _grouped(dout, grouped)[0], _grouped(out, grouped)[0]
    dweights, dropped = slope @ values.swapaxes(-1, -2), weights
    if rate:
        mask = _kept_part(logs.shape, part, keys.shape[1], key, step, first, rate, weights.shape)
        dweights, dropped = dweights * mask, weights * mask
    dscores = weights * (dweights - (slope * result).sum(axis=-1, keepdims=True)) / np.sqrt(queries.shape[3])
    dqueries += (dscores @ some).transpose(0, 3, 1, 2, 4).reshape(queries.shape)
    for at, found in ((0, dscores.swapaxes(-1, -2) @ query), (grouped, dropped.swapaxes(-1, -2) @ slope)):
        dkeys[:, :, at : at + grouped] += found.sum(axis=2).transpose(0, 2, 1, 3)


def _grouped(array: np.ndarray, kv_heads: int, cut: int = 0) -> list[np.ndarray]:
    """Views [B, kv_heads, heads of a group, T, d] of an array [B, T, heads, d], cut in two at head `cut`."""
    batch, length, _, width = array.shape
    whole = array.reshape(batch, length, kv_heads, -1, width).transpose(0, 2, 3, 1, 4)
    return [whole[:, :cut], whole[:, cut:]] if cut else [whole]


def _partial(
    queries: np.ndarray, keys: np.ndarray, part: Part, logs: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights [B, kv_heads, group, n, m], values, and the logarithms of the sums where `logs` do not say them."""
    kv_heads = keys.shape[2] // 2
    (query,), (key, value) = _grouped(queries, kv_heads), _grouped(keys, 2 * kv_heads, kv_heads)
    scores = query @ key.swapaxes(-1, -2) / queries.dtype.type(np.sqrt(queries.shape[3]))
    seen = np.tri(queries.shape[1], keys.shape[1], part.query - part.key, dtype=bool)
    scores = np.where(seen, scores, -np.inf)
    if logs is None:
        most = scores.max(axis=-1)
        logs = (most + np.log(np.exp(scores - most[..., None]).sum(axis=-1))).reshape(
            queries.shape[0], queries.shape[2], -1
        )
    return np.exp(scores - logs.reshape(scores.shape[:-1])[..., None]).astype(queries.dtype), value, logs


def _kept_part(
    shape: tuple[int, int, int], part: Part, keys: int, key: int, step: int, first: int, rate: float, wanted: tuple
) -> np.ndarray:
    """Of what `kept` says of the whole attention this part, in the shape of its weights."""
    batch, heads, length = shape
    whole = kept((batch, part.heads, part.tokens), key, step, first, rate)
    rows, columns = slice(part.query, part.query + length), slice(part.key, part.key + keys)
    return whole[:, part.head : part.head + heads, rows, columns].reshape(wanted)


def join(out: np.ndarray, logs: np.ndarray, other: np.ndarray, other_logs: np.ndarray) -> None:
    """Make out [B, n, heads, d] and logs [B, heads, n] those over the keys of both of two results.

    Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018. A log of -inf is that of no keys.
    """
    total = np.logaddexp(logs, other_logs)
    mine, theirs = (np.exp(each - total).swapaxes(1, 2)[..., None] for each in (logs, other_logs))
    out *= mine
    out += theirs * other
    logs[...] = total


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
