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

from hpckit.kernels.compile.cuda_jit import blocks, cuda, kernel, simulating, threads
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.nn.memory import empty
from hpckit.kernels.noise.simd import four_words

BLOCK = threads(64)  # queries or keys of a block: many small blocks even out the triangle
ROTATE = threads(256)
MOST_TILE = 3 if simulating() else 16  # keys, or queries, in shared memory at once
SHARED_BYTES = 32 << 10  # of a tile of two matrices
CHAINS = 4  # sums that a thread has under way: one alone would wait for itself
u8 = np.uint64


def tile_of(width: int, itemsize: int) -> int:
    """How many keys and values of a width are in shared memory at once."""
    return max(1, min(MOST_TILE, SHARED_BYTES // (2 * width * itemsize)))


@inlined
def _kept(drop, row, length, j):
    """What dropout multiplies the weight of key j in a row by: see `reference.kept`."""
    key, step, first, limit, factor = drop
    a, b, c, d = four_words(key, step, (first + row) * ((length + u8(3)) >> u8(2)) + (j >> u8(2)), u8(0))
    lane = j & u8(3)
    even, odd = a if lane == u8(0) else c, b if lane == u8(1) else d
    word = even if lane & u8(1) == u8(0) else odd
    return factor if word >= limit else factor - factor


@functools.cache
def _forward(dtype: str, width: int, dropping: bool) -> Any:
    real = np.dtype(dtype).type
    tile = tile_of(width, np.dtype(dtype).itemsize)
    size, lowest = tile * width, real(-1e30)

    @kernel
    def attention(qkv, heads, kv_heads, factor, source, base, begin, out, logs, drop):
        """Queries of qkv, number `begin` and on of a text; keys and values of `source`, from its head `base` on."""
        keys = cuda.shared.array(size, real)
        values = cuda.shared.array(size, real)
        query, found = cuda.local.array(width, real), cuda.local.array(width, real)
        scores, parts = cuda.local.array(tile, real), cuda.local.array(CHAINS, real)
        lane, head, sample = u8(cuda.threadIdx.x), u8(cuda.blockIdx.y), u8(cuda.blockIdx.z)
        group = u8(heads) // u8(kv_heads)
        key_head, length = u8(base) + head // group, u8(begin) + u8(qkv.shape[1])
        first = (u8(cuda.gridDim.x) - u8(1) - u8(cuda.blockIdx.x)) * u8(BLOCK)  # the longest first
        own = first + lane
        here, end = u8(begin) + own, min(u8(begin) + first + u8(BLOCK), length)
        for i in range(width):
            found[i] = real(0)
            query[i] = factor * qkv[sample, own, head, i] if here < length else real(0)
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
                if u8(start) + u8(k) <= here:
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
                if u8(start) + u8(k) <= here:
                    weight = math.exp(scores[k] - largest)
                    total += weight
                    if dropping:
                        weight *= _kept(drop, (sample * u8(heads) + head) * length + here, length, u8(start) + u8(k))
                    for i in range(width):
                        found[i] += weight * values[k * width + i]
            most = largest
        if here < length:
            inverse = real(1) / total
            logs[sample, head, own] = most + math.log(total)
            for i in range(width):
                out[sample, own, head, i] = found[i] * inverse

    return attention


@functools.cache
def _query_gradient(dtype: str, width: int, dropping: bool) -> Any:
    real = np.dtype(dtype).type
    tile = tile_of(width, np.dtype(dtype).itemsize)
    size = tile * width

    @kernel
    def query_gradient(qkv, heads, kv_heads, factor, out, logs, dout, dqkv, dots, drop):
        keys = cuda.shared.array(size, real)
        values = cuda.shared.array(size, real)
        query, slope = cuda.local.array(width, real), cuda.local.array(width, real)
        dquery, parts = cuda.local.array(width, real), cuda.local.array(CHAINS, real)
        lane, head, sample = u8(cuda.threadIdx.x), u8(cuda.blockIdx.y), u8(cuda.blockIdx.z)
        group = u8(heads) // u8(kv_heads)
        key_head, length = u8(heads) + head // group, u8(qkv.shape[1])
        first = (u8(cuda.gridDim.x) - u8(1) - u8(cuda.blockIdx.x)) * u8(BLOCK)
        here, end = first + lane, min(first + u8(BLOCK), length)
        log, dot = real(0), real(0)
        for i in range(width):
            dquery[i] = real(0)
            query[i] = real(0)
            slope[i] = real(0)
        if here < length:
            log = logs[sample, head, here]
            for i in range(width):
                query[i] = factor * qkv[sample, here, head, i]
                slope[i] = dout[sample, here, head, i]
                dot += slope[i] * out[sample, here, head, i]
            dots[sample, head, here] = dot
        for start in range(u8(0), end, u8(tile)):
            cuda.syncthreads()
            for place in range(lane, u8(size), u8(BLOCK)):
                j, column = u8(start) + u8(place) // u8(width), u8(place) % u8(width)
                if j < length:
                    keys[u8(place)] = qkv[sample, j, key_head, column]
                    values[u8(place)] = qkv[sample, j, key_head + u8(kv_heads), column]
            cuda.syncthreads()
            for k in range(tile):
                if u8(start) + u8(k) <= here and here < length:
                    for i in range(CHAINS):
                        parts[i] = real(0)
                    for i in range(width):
                        parts[i % 2] += query[i] * keys[k * width + i]
                        parts[2 + i % 2] += slope[i] * values[k * width + i]
                    dweight = parts[2] + parts[3]
                    if dropping:
                        dweight *= _kept(drop, (sample * u8(heads) + head) * length + here, length, u8(start) + u8(k))
                    dscore = math.exp(parts[0] + parts[1] - log) * (dweight - dot)
                    for i in range(width):
                        dquery[i] += dscore * keys[k * width + i]
        if here < length:
            for i in range(width):
                dqkv[sample, here, head, i] = factor * dquery[i]

    return query_gradient


@functools.cache
def _key_gradient(dtype: str, width: int, dropping: bool) -> Any:
    real = np.dtype(dtype).type
    tile = tile_of(width, np.dtype(dtype).itemsize)
    size = tile * width

    @kernel
    def key_gradient(qkv, heads, kv_heads, factor, logs, dout, dqkv, dots, drop):
        queries = cuda.shared.array(size, real)
        slopes = cuda.shared.array(size, real)
        key, value = cuda.local.array(width, real), cuda.local.array(width, real)
        dkey, dvalue = cuda.local.array(width, real), cuda.local.array(width, real)
        parts = cuda.local.array(CHAINS, real)
        lane, kv_head, sample = u8(cuda.threadIdx.x), u8(cuda.blockIdx.y), u8(cuda.blockIdx.z)
        group = u8(heads) // u8(kv_heads)
        key_head, length = u8(heads) + kv_head, u8(qkv.shape[1])
        first = u8(cuda.blockIdx.x) * u8(BLOCK)
        here = first + lane
        for i in range(width):
            dkey[i] = real(0)
            dvalue[i] = real(0)
            key[i] = factor * qkv[sample, here, key_head, i] if here < length else real(0)
            value[i] = qkv[sample, here, key_head + u8(kv_heads), i] if here < length else real(0)
        for member in range(group):
            head = kv_head * group + u8(member)
            for start in range(first, length, u8(tile)):  # queries before the first key do not see any
                cuda.syncthreads()
                for place in range(lane, u8(size), u8(BLOCK)):
                    t, column = u8(start) + u8(place) // u8(width), u8(place) % u8(width)
                    if t < length:
                        queries[u8(place)] = qkv[sample, t, head, column]
                        slopes[u8(place)] = dout[sample, t, head, column]
                cuda.syncthreads()
                for k in range(tile):
                    t = u8(start) + u8(k)
                    if here <= t and t < length:
                        for i in range(CHAINS):
                            parts[i] = real(0)
                        for i in range(width):
                            parts[i % 2] += key[i] * queries[k * width + i]
                            parts[2 + i % 2] += value[i] * slopes[k * width + i]
                        weight, dweight = math.exp(parts[0] + parts[1] - logs[sample, head, t]), parts[2] + parts[3]
                        dropped = weight
                        if dropping:
                            part = _kept(drop, (sample * u8(heads) + head) * length + t, length, here)
                            dropped, dweight = weight * part, dweight * part
                        dscore = weight * (dweight - dots[sample, head, t])
                        for i in range(width):
                            dkey[i] += dscore * queries[k * width + i]
                            dvalue[i] += dropped * slopes[k * width + i]
        if here < length:
            for i in range(width):
                dqkv[sample, here, key_head, i] = factor * dkey[i]
                dqkv[sample, here, key_head + u8(kv_heads), i] = dvalue[i]

    return key_gradient


def attention(
    qkv: Any, heads: int, kv_heads: int, out: Any, logs: Any,
    key: int = 0, step: int = 0, first: int = 0, rate: float = 0.0,
) -> None:  # fmt: skip
    batch, length, _, width = qkv.shape
    launch = _forward(qkv.dtype.name, width, rate > 0)[(blocks(length, BLOCK), heads, batch), BLOCK]
    drop = _drop(logs, key, step, first, rate)
    launch(qkv, heads, kv_heads, qkv.dtype.type(width**-0.5), qkv, heads, 0, out, logs, drop)


def cached_attention(qkv: Any, heads: int, kv_heads: int, kept: Any, start: int, out: Any) -> None:
    batch, count, _, width = qkv.shape
    logs = empty((batch, heads, count), qkv)
    launch = _forward(qkv.dtype.name, width, False)[(blocks(count, BLOCK), heads, batch), BLOCK]
    launch(qkv, heads, kv_heads, qkv.dtype.type(width**-0.5), kept, 0, start, out, logs, _drop(logs, 0, 0, 0, 0.0))


def attention_gradient(
    qkv: Any, heads: int, kv_heads: int, out: Any, logs: Any, dout: Any, dqkv: Any,
    key: int = 0, step: int = 0, first: int = 0, rate: float = 0.0,
) -> None:  # fmt: skip
    batch, length, _, width = qkv.shape
    factor, dots, drop = qkv.dtype.type(width**-0.5), empty(logs.shape, logs), _drop(logs, key, step, first, rate)
    launch = _query_gradient(qkv.dtype.name, width, rate > 0)[(blocks(length, BLOCK), heads, batch), BLOCK]
    launch(qkv, heads, kv_heads, factor, out, logs, dout, dqkv, dots, drop)
    launch = _key_gradient(qkv.dtype.name, width, rate > 0)[(blocks(length, BLOCK), kv_heads, batch), BLOCK]
    launch(qkv, heads, kv_heads, factor, logs, dout, dqkv, dots, drop)


def _drop(logs: Any, key: int, step: int, first: int, rate: float) -> tuple[Any, ...]:
    """What `kept` needs: key, step, first row of the counter, the least word that is kept, and its factor."""
    limit = math.floor(rate * 2.0**32 - 0.5) + 1
    return u8(key), u8(step), u8(first * logs.shape[1] * logs.shape[2]), u8(limit), logs.dtype.type(1 / (1 - rate))


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
