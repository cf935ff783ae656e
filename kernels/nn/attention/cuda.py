"""Causal attention and rotary positions on a GPU. What the functions compute is said in `reference`.

A thread has a query, whose numbers it keeps; a block of threads goes over the keys and values up to its last query, a
tile of them at a time in shared memory. The largest score so far, the sum and the result are brought up to date with
each tile (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al., "FlashAttention",
2022), so that scores never go to memory. Backward computes them again: once with a thread a query, for the gradient of
queries, once with a thread a key, for those of keys and values. No atomics: the same bits in every run.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import blocks, cuda, kernel, simulating, threads
from hpckit.kernels.nn.attention import cuda_matrices as by_matrices
from hpckit.kernels.nn.attention.cuda_matrices import kept
from hpckit.kernels.nn.attention.reference import Part
from hpckit.kernels.nn.memory import empty

BLOCK = threads(64)  # queries or keys of a block: many small blocks even out the triangle
ROTATE = threads(256)
MOST_TILE = 3 if simulating() else 16  # keys, or queries, in shared memory at once
SHARED_BYTES = 32 << 10  # of a tile of two matrices
CHAINS = 4  # sums that a thread has under way: one alone would wait for itself
u8 = np.uint64


def tile_of(width: int, itemsize: int) -> int:
    """How many keys and values of a width are in shared memory at once."""
    return max(1, min(MOST_TILE, SHARED_BYTES // (2 * width * itemsize)))


@functools.cache
def _forward(dtype: str, width: int, dropping: bool) -> Any:
    real = np.dtype(dtype).type
    tile = tile_of(width, np.dtype(dtype).itemsize)
    size, lowest = tile * width, real(-1e30)

    @kernel
    def attention(qkv, heads, kv_heads, factor, source, base, part, out, logs, drop):
        """Queries of qkv; keys and values of `source`, from its head `base` on; part: a `Part` as numbers."""
        keys = cuda.shared.array(size, real)
        values = cuda.shared.array(size, real)
        query, found = cuda.local.array(width, real), cuda.local.array(width, real)
        scores, parts = cuda.local.array(tile, real), cuda.local.array(CHAINS, real)
        lane, head, sample = u8(cuda.threadIdx.x), u8(cuda.blockIdx.y), u8(cuda.blockIdx.z)
        group = u8(heads) // u8(kv_heads)
        key_head, shift, count = u8(base) + head // group, u8(part[3]) - u8(part[4]), u8(qkv.shape[1])
        length = min(u8(source.shape[1]), shift + count)  # keys that are seen
        first = (u8(cuda.gridDim.x) - u8(1) - u8(cuda.blockIdx.x)) * u8(BLOCK)  # the longest first
        own = first + lane
        here, end = shift + own, min(shift + first + u8(BLOCK), length)
        row = (sample * u8(part[0]) + u8(part[1]) + head) * u8(part[2]) + u8(part[3]) + own
        for i in range(width):
            found[i] = real(0)
            query[i] = factor * qkv[sample, own, head, i] if own < count else real(0)
        most, total = lowest, real(0)
        for start in range(u8(0), end, u8(tile)):
            cuda.syncthreads()
            for place in range(lane, u8(size), u8(BLOCK)):
                j, column = u8(start) + u8(place) // u8(width), u8(place) % u8(width)
                if j < length:
                    keys[u8(place)] = source[sample, j, key_head, column]
                    values[u8(place)] = source[sample, j, key_head + u8(kv_heads), column]
                else:
                    keys[u8(place)] = real(0)
                    values[u8(place)] = real(0)
            cuda.syncthreads()
            largest = most
            for k in range(tile):
                score = lowest
                if u8(start) + u8(k) <= here and u8(start) + u8(k) < length:
                    for i in range(CHAINS):
                        parts[i] = real(0)
                    for i in range(width):
                        parts[i % CHAINS] += query[i] * keys[k * width + i]
                    score = (parts[0] + parts[1]) + (parts[2] + parts[3])
                scores[k] = score
                largest = max(largest, score)
            shrunk = math.exp(most - largest)
            total *= shrunk
            for i in range(width):
                found[i] *= shrunk
            for k in range(tile):
                if u8(start) + u8(k) <= here and u8(start) + u8(k) < length:
                    weight = math.exp(scores[k] - largest)
                    total += weight
                    if dropping:
                        weight *= kept(drop, row, u8(part[2]), u8(part[4]) + u8(start) + u8(k))
                    for i in range(width):
                        found[i] += weight * values[k * width + i]
            most = largest
        if own < count:
            inverse = real(1) / total
            logs[sample, head, own] = most + math.log(total)
            for i in range(width):
                out[sample, own, head, i] = found[i] * inverse

    return attention


@functools.cache
def _query_gradient(dtype: str, width: int, dropping: bool, adding: bool) -> Any:
    real = np.dtype(dtype).type
    tile = tile_of(width, np.dtype(dtype).itemsize)
    size = tile * width

    @kernel
    def query_gradient(qkv, heads, kv_heads, factor, source, base, part, out, logs, dout, dqkv, dots, drop):
        keys = cuda.shared.array(size, real)
        values = cuda.shared.array(size, real)
        query, slope = cuda.local.array(width, real), cuda.local.array(width, real)
        dquery, parts = cuda.local.array(width, real), cuda.local.array(CHAINS, real)
        lane, head, sample = u8(cuda.threadIdx.x), u8(cuda.blockIdx.y), u8(cuda.blockIdx.z)
        group = u8(heads) // u8(kv_heads)
        key_head, shift, count = u8(base) + head // group, u8(part[3]) - u8(part[4]), u8(qkv.shape[1])
        length = min(u8(source.shape[1]), shift + count)
        first = (u8(cuda.gridDim.x) - u8(1) - u8(cuda.blockIdx.x)) * u8(BLOCK)
        own = first + lane
        here, end = shift + own, min(shift + first + u8(BLOCK), length)
        row = (sample * u8(part[0]) + u8(part[1]) + head) * u8(part[2]) + u8(part[3]) + own
        log, dot = real(0), real(0)
        for i in range(width):
            dquery[i] = real(0)
            query[i] = real(0)
            slope[i] = real(0)
        if own < count:
            log = logs[sample, head, own]
            for i in range(width):
                query[i] = factor * qkv[sample, own, head, i]
                slope[i] = dout[sample, own, head, i]
                dot += slope[i] * out[sample, own, head, i]
            dots[sample, head, own] = dot
        for start in range(u8(0), end, u8(tile)):
            cuda.syncthreads()
            for place in range(lane, u8(size), u8(BLOCK)):
                j, column = u8(start) + u8(place) // u8(width), u8(place) % u8(width)
                if j < length:
                    keys[u8(place)] = source[sample, j, key_head, column]
                    values[u8(place)] = source[sample, j, key_head + u8(kv_heads), column]
            cuda.syncthreads()
            for k in range(tile):
                if u8(start) + u8(k) <= here and u8(start) + u8(k) < length and own < count:
                    for i in range(CHAINS):
                        parts[i] = real(0)
                    for i in range(width):
                        parts[i % 2] += query[i] * keys[k * width + i]
                        parts[2 + i % 2] += slope[i] * values[k * width + i]
                    dweight = parts[2] + parts[3]
                    if dropping:
                        dweight *= kept(drop, row, u8(part[2]), u8(part[4]) + u8(start) + u8(k))
                    dscore = math.exp(parts[0] + parts[1] - log) * (dweight - dot)
                    for i in range(width):
                        dquery[i] += dscore * keys[k * width + i]
        if own < count:
            for i in range(width):
                gradient = factor * dquery[i]
                dqkv[sample, own, head, i] = dqkv[sample, own, head, i] + gradient if adding else gradient

    return query_gradient


@functools.cache
def _key_gradient(dtype: str, width: int, dropping: bool, adding: bool) -> Any:
    real = np.dtype(dtype).type
    tile = tile_of(width, np.dtype(dtype).itemsize)
    size = tile * width

    @kernel
    def key_gradient(qkv, heads, kv_heads, factor, source, base, part, logs, dout, dsource, dots, drop):
        queries = cuda.shared.array(size, real)
        slopes = cuda.shared.array(size, real)
        key, value = cuda.local.array(width, real), cuda.local.array(width, real)
        dkey, dvalue = cuda.local.array(width, real), cuda.local.array(width, real)
        parts = cuda.local.array(CHAINS, real)
        lane, kv_head, sample = u8(cuda.threadIdx.x), u8(cuda.blockIdx.y), u8(cuda.blockIdx.z)
        group = u8(heads) // u8(kv_heads)
        key_head, shift, count = u8(base) + kv_head, u8(part[3]) - u8(part[4]), u8(qkv.shape[1])
        length = u8(source.shape[1])
        first = u8(cuda.blockIdx.x) * u8(BLOCK)
        here = first + lane
        for i in range(width):
            dkey[i] = real(0)
            dvalue[i] = real(0)
            key[i] = factor * source[sample, here, key_head, i] if here < length else real(0)
            value[i] = source[sample, here, key_head + u8(kv_heads), i] if here < length else real(0)
        for member in range(group):
            head = kv_head * group + u8(member)
            early = first - shift if first > shift else u8(0)  # queries before the first key do not see any
            for start in range(early, count, u8(tile)):
                cuda.syncthreads()
                for place in range(lane, u8(size), u8(BLOCK)):
                    t, column = u8(start) + u8(place) // u8(width), u8(place) % u8(width)
                    if t < count:
                        queries[u8(place)] = qkv[sample, t, head, column]
                        slopes[u8(place)] = dout[sample, t, head, column]
                cuda.syncthreads()
                for k in range(tile):
                    t = u8(start) + u8(k)
                    if here <= t + shift and t < count:
                        for i in range(CHAINS):
                            parts[i] = real(0)
                        for i in range(width):
                            parts[i % 2] += key[i] * queries[k * width + i]
                            parts[2 + i % 2] += value[i] * slopes[k * width + i]
                        weight, dweight = math.exp(parts[0] + parts[1] - logs[sample, head, t]), parts[2] + parts[3]
                        dropped = weight
                        if dropping:
                            row = (sample * u8(part[0]) + u8(part[1]) + head) * u8(part[2]) + u8(part[3]) + t
                            share = kept(drop, row, u8(part[2]), u8(part[4]) + here)
                            dropped, dweight = weight * share, dweight * share
                        dscore = weight * (dweight - dots[sample, head, t])
                        for i in range(width):
                            dkey[i] += dscore * queries[k * width + i]
                            dvalue[i] += dropped * slopes[k * width + i]
        if here < length:
            for i in range(width):
                slope, value_head = factor * dkey[i], key_head + u8(kv_heads)
                dsource[sample, here, key_head, i] = dsource[sample, here, key_head, i] + slope if adding else slope
                slope = dvalue[i]
                dsource[sample, here, value_head, i] = dsource[sample, here, value_head, i] + slope if adding else slope

    return key_gradient


def attention(
    qkv: Any, heads: int, kv_heads: int, out: Any, logs: Any,
    key: int = 0, step: int = 0, first: int = 0, rate: float = 0.0,
) -> None:  # fmt: skip
    part = heads, 0, qkv.shape[1], 0, 0
    drop = _drop(qkv, part, key, step, first, rate)
    if by_matrices.suits(qkv, heads, kv_heads):
        by_matrices.attention(qkv, heads, kv_heads, out, logs, drop)
    else:
        _attend(qkv, heads, kv_heads, qkv, heads, part, out, logs, drop)


def partial_attention(
    queries: Any, keys: Any, part: Part, out: Any, logs: Any,
    key: int = 0, step: int = 0, first: int = 0, rate: float = 0.0,
) -> None:  # fmt: skip
    if queries.shape[1]:
        drop = _drop(queries, part, key, step, first, rate)
        _attend(queries, queries.shape[2], keys.shape[2] // 2, keys, 0, tuple(part), out, logs, drop)


def cached_attention(qkv: Any, heads: int, kv_heads: int, kept: Any, start: int, out: Any) -> None:
    batch, count, _, _ = qkv.shape
    part = heads, 0, start + count, start, 0
    logs = empty((batch, heads, count), qkv)
    _attend(qkv, heads, kv_heads, kept, 0, part, out, logs, _drop(qkv, part, 0, 0, 0, 0.0))


def _attend(
    queries: Any,
    heads: int,
    kv_heads: int,
    source: Any,
    base: int,
    part: tuple[int, ...],
    out: Any,
    logs: Any,
    drop: Any,
) -> None:
    batch, count, _, width = queries.shape
    launch = _forward(queries.dtype.char, width, bool(drop[3]))[(blocks(count, BLOCK), heads, batch), BLOCK]
    launch(queries, heads, kv_heads, queries.dtype.type(width**-0.5), source, base, part, out, logs, drop)


def attention_gradient(
    qkv: Any, heads: int, kv_heads: int, out: Any, logs: Any, dout: Any, dqkv: Any,
    key: int = 0, step: int = 0, first: int = 0, rate: float = 0.0,
) -> None:  # fmt: skip
    part = heads, 0, qkv.shape[1], 0, 0
    drop = _drop(qkv, part, key, step, first, rate)
    if by_matrices.suits(qkv, heads, kv_heads):
        by_matrices.attention_gradient(qkv, heads, kv_heads, out, logs, dout, dqkv, drop)
    else:
        _differentiate(qkv, heads, kv_heads, qkv, heads, part, out, logs, dout, dqkv, dqkv, False, drop)


def partial_attention_gradient(
    queries: Any, keys: Any, part: Part, out: Any, logs: Any, dout: Any, dqueries: Any, dkeys: Any,
    key: int = 0, step: int = 0, first: int = 0, rate: float = 0.0,
) -> None:  # fmt: skip
    if queries.shape[1]:
        heads, kv_heads, drop = queries.shape[2], keys.shape[2] // 2, _drop(queries, part, key, step, first, rate)
        _differentiate(queries, heads, kv_heads, keys, 0, tuple(part), out, logs, dout, dqueries, dkeys, True, drop)


def _differentiate(
    queries: Any, heads: int, kv_heads: int, source: Any, base: int, part: tuple[int, ...], out: Any, logs: Any,
    dout: Any, dqueries: Any, dsource: Any, adding: bool, drop: Any,
) -> None:  # fmt: skip
    (batch, count, _, width), name = queries.shape, queries.dtype.char
    factor, dots, how = queries.dtype.type(width**-0.5), empty(logs.shape, logs), (width, bool(drop[3]), adding)
    launch = _query_gradient(name, *how)[(blocks(count, BLOCK), heads, batch), BLOCK]
    launch(queries, heads, kv_heads, factor, source, base, part, out, logs, dout, dqueries, dots, drop)
    launch = _key_gradient(name, *how)[(blocks(source.shape[1], BLOCK), kv_heads, batch), BLOCK]
    launch(queries, heads, kv_heads, factor, source, base, part, logs, dout, dsource, dots, drop)


def _drop(like: Any, part: tuple[int, ...], key: int, step: int, first: int, rate: float) -> tuple[Any, ...]:
    """What `kept` needs: key, step, first row of the counter, the least word that is kept (0: all), and its factor."""
    limit = math.floor(rate * 2.0**32 - 0.5) + 1 if rate else 0
    return u8(key), u8(step), u8(first * part[0] * part[2]), u8(limit), like.dtype.type(1 / (1 - rate))


@kernel
def _join(out, logs, other, other_logs):
    at = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    heads, count = u8(out.shape[2]), u8(out.shape[1])
    if at < u8(out.shape[0]) * heads * count:
        t, head, sample = at % count, (at // count) % heads, at // (count * heads)
        a, b = logs[sample, head, t], other_logs[sample, head, t]
        most = max(a, b)
        x, y = math.exp(a - most), math.exp(b - most)
        total = x + y
        for i in range(u8(out.shape[3])):
            out[sample, t, head, i] = (x * out[sample, t, head, i] + y * other[sample, t, head, i]) / total
        logs[sample, head, t] = most + math.log(total)


def join(out: Any, logs: Any, other: Any, other_logs: Any) -> None:
    if logs.size:
        _join[blocks(logs.size, ROTATE), ROTATE](out, logs, other, other_logs)


@kernel
def _rotary(qkv, rotated, cosines, sines):
    half = u8(qkv.shape[3]) >> u8(1)
    at = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if at < u8(qkv.shape[0]) * u8(qkv.shape[1]) * u8(rotated) * half:
        i, at = at % half, at // half
        head, at = at % u8(rotated), at // u8(rotated)
        t, sample = at % u8(qkv.shape[1]), at // u8(qkv.shape[1])
        x, y = qkv[sample, t, head, i], qkv[sample, t, head, i + half]
        qkv[sample, t, head, i] = x * cosines[t, i] - y * sines[t, i]
        qkv[sample, t, head, i + half] = y * cosines[t, i] + x * sines[t, i]


def rotary(qkv: Any, rotated: int, cosines: Any, sines: Any) -> None:
    count = qkv.shape[0] * qkv.shape[1] * rotated * (qkv.shape[3] // 2)
    _rotary[blocks(count, ROTATE), ROTATE](qkv, rotated, cosines, sines)
