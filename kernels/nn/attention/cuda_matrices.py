"""Causal attention on a GPU by matrix products, for short texts: scores go to memory, products to the tensor cores.

The queries of the heads that share keys are one matrix of [heads x tokens] rows, and all samples and heads go into one
product. A block of threads has a row of scores. Within `cublas.products_of` queries, keys, values, weights and slopes
are rounded to 16 bits and the sums are float32. Long texts are left to `cuda`: scores grow with the square.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.folds import fold_max, fold_sum, folders
from hpckit.kernels.compile.cuda.jit import blocks, cuda, kernel, simulating, threads
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.nn.cublas import kind_of_products, multiply
from hpckit.kernels.nn.memory import empty
from hpckit.kernels.nn.narrow.simd import bfloat16_of, float16_of
from hpckit.kernels.noise.simd import four_words

THREADS = threads(256)
LANES = folders(128)  # of a row
LEAST = 64  # tokens; fewer fill no product
MOST_NUMBERS = 1 << 28  # scores at once: 1 GB in single precision
u4, u8 = np.uint32, np.uint64


@inlined
def kept(drop, row, length, j):
    """What dropout multiplies the weight of key j in a row by: see `reference.kept`."""
    key, step, first, limit, factor = drop
    a, b, c, d = four_words(key, step, (first + row) * ((length + u8(3)) >> u8(2)) + (j >> u8(2)), u8(0))
    lane = j & u8(3)
    even, odd = a if lane == u8(0) else c, b if lane == u8(1) else d
    word = even if lane & u8(1) == u8(0) else odd
    return factor if word >= limit else factor - factor


if simulating():

    def _bits(x):
        return np.float32(x).view(np.uint32)

else:

    @cuda.jit(device=True)
    def _bits(x):
        return u4(cuda.libdevice.float_as_int(x))


@cuda.jit(device=True)
def _same(x):
    return x


@cuda.jit(device=True)
def _bfloat16(x):
    return bfloat16_of(_bits(x))


@cuda.jit(device=True)
def _float16(x):
    return float16_of(_bits(x))


ROUNDED = {"": _same, "bfloat16": _bfloat16, "float16": _float16}


def suits(qkv: Any, heads: int, kv_heads: int) -> bool:
    """Whether texts are long enough for products, and the scores of heads that share keys fit the memory."""
    length = qkv.shape[1]
    return length >= LEAST and heads // kv_heads * length * length <= MOST_NUMBERS


def attention(qkv: Any, heads: int, kv_heads: int, out: Any, logs: Any, drop: tuple) -> None:
    """See `reference.attention`; drop: as `cuda` makes it."""
    kind, factor, dropping = _kind(qkv), _factor(qkv), bool(drop[3])
    queries, keys, values = _operands(qkv, heads, kv_heads, kind)
    found = empty(queries.shape, qkv)
    for part in _pieces(queries, keys):
        scores = _scores(queries[part], keys[part], kind, factor, qkv)
        weights = _like_scores(scores, kind)
        rows, first = scores.shape[0] * scores.shape[1], part.start * scores.shape[1]
        launch = _softmax(qkv.dtype.char, kind, dropping)[rows, LANES]
        launch(_rows(scores), _rows(weights), logs.reshape(-1), first, drop)
        multiply(weights, values[part], found[part], kind)
    _to_tokens(found, out, 0, heads)


def attention_gradient(
    qkv: Any, heads: int, kv_heads: int, out: Any, logs: Any, dout: Any, dqkv: Any, drop: tuple
) -> None:
    """See `reference.attention_gradient`."""
    kind, factor, dropping = _kind(qkv), _factor(qkv), bool(drop[3])
    queries, keys, values = _operands(qkv, heads, kv_heads, kind)
    slopes = _by_heads(dout, 0, heads, kind).reshape(queries.shape)
    dots = empty(logs.shape, logs)
    _dots[blocks(dots.size, THREADS), THREADS](out, dout, dots)
    dqueries, dkeys, dvalues = (empty(each.shape, qkv) for each in (queries, keys, values))
    for part in _pieces(queries, keys):
        scores = _scores(queries[part], keys[part], kind, factor, qkv)
        dweights = _scores(slopes[part], values[part], kind, 1.0, qkv)
        weights, dscores = _like_scores(scores, kind), _like_scores(dweights, kind)
        rows, first = scores.shape[0] * scores.shape[1], part.start * scores.shape[1]
        launch = _softmax_gradient(qkv.dtype.char, kind, dropping)[rows, LANES]
        whole = logs.reshape(-1), dots.reshape(-1), first, drop
        launch(_rows(scores), _rows(dweights), _rows(weights), _rows(dscores), *whole)
        multiply(weights.transpose(0, 2, 1), slopes[part], dvalues[part], kind)
        multiply(dscores, keys[part], dqueries[part], kind, factor)
        multiply(dscores.transpose(0, 2, 1), queries[part], dkeys[part], kind, factor)
    for first, count, found in ((0, heads, dqueries), (heads, kv_heads, dkeys), (heads + kv_heads, kv_heads, dvalues)):
        _to_tokens(found, dqkv, first, count)


def _scores(left: Any, right: Any, kind: str, factor: float, like: Any) -> Any:
    """Factor times left right^T, [N, rows, T]."""
    scores = empty((*left.shape[:2], right.shape[1]), like)
    multiply(left, right.transpose(0, 2, 1), scores, kind, factor)
    return scores


def _rows(scores: Any) -> Any:
    return scores.reshape(-1, scores.shape[2])


def _kind(qkv: Any) -> str:
    return kind_of_products() if qkv.dtype == np.float32 else ""


def _factor(qkv: Any) -> float:
    return float(qkv.shape[3] ** -0.5)


def _pieces(queries: Any, keys: Any) -> list[slice]:
    """Heads whose scores fit the memory."""
    at_once = max(1, MOST_NUMBERS // (queries.shape[1] * keys.shape[1]))
    return [slice(first, min(first + at_once, len(keys))) for first in range(0, len(keys), at_once)]


def _operands(qkv: Any, heads: int, kv_heads: int, kind: str) -> tuple[Any, Any, Any]:
    """Queries [B kv_heads, group T, d]; keys and values [B kv_heads, T, d], of 16 bits with a kind."""
    batch, length, _, width = qkv.shape
    queries = _by_heads(qkv, 0, heads, kind).reshape(batch * kv_heads, -1, width)
    keys, values = (_by_heads(qkv, heads + i * kv_heads, kv_heads, kind) for i in range(2))
    return queries, keys.reshape(-1, length, width), values.reshape(-1, length, width)


def _like_scores(scores: Any, kind: str) -> Any:
    """Room for weights: the scores' own, or of 16 bits."""
    return empty(scores.shape, scores, np.uint16) if kind else scores


@functools.cache
def _arranged(dtype: str, kind: str) -> Any:
    rounded = ROUNDED[kind]

    @kernel
    def arranged(source, first, found):
        """found[b, h, t, i] = source[b, t, first + h, i]."""
        at = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
        if at < u8(found.size):
            width, length, heads = u8(found.shape[3]), u8(found.shape[2]), u8(found.shape[1])
            i, row = at % width, at // width
            t, h, b = row % length, (row // length) % heads, row // (length * heads)
            found[b, h, t, i] = rounded(source[b, t, u8(first) + h, i])

    return arranged


def _by_heads(source: Any, first: int, heads: int, kind: str) -> Any:
    """[B, heads, T, d] from heads of [B, T, all, d]."""
    batch, length, _, width = source.shape
    found = empty((batch, heads, length, width), source, np.uint16 if kind else None)
    _arranged(source.dtype.char, kind)[blocks(found.size, THREADS), THREADS](source, first, found)
    return found


@kernel
def _put(found, first, target):
    """target[b, t, first + h, i] = found[b, h, t, i]."""
    at = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if at < u8(found.size):
        width, heads, length = u8(found.shape[3]), u8(found.shape[1]), u8(found.shape[2])
        i, row = at % width, at // width
        h, t, b = row % heads, (row // heads) % length, row // (heads * length)
        target[b, t, u8(first) + h, i] = found[b, h, t, i]


def _to_tokens(found: Any, target: Any, first: int, heads: int) -> None:
    """Heads `first` and on of [B, T, all, d] from [B heads, T, d]."""
    batch, length, _, width = target.shape
    _put[blocks(found.size, THREADS), THREADS](found.reshape(batch, heads, length, width), first, target)


@kernel
def _dots(out, dout, dots):
    """dots[b, h, t] = the product of out and dout over a head's numbers."""
    at = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if at < u8(dots.size):
        length, heads = u8(dots.shape[2]), u8(dots.shape[1])
        t, h, b = at % length, (at // length) % heads, at // (length * heads)
        total = out[b, t, h, u8(0)] * dout[b, t, h, u8(0)]
        for i in range(u8(1), u8(out.shape[3])):
            total += out[b, t, h, i] * dout[b, t, h, i]
        dots[b, h, t] = total


@functools.cache
def _softmax(dtype: str, kind: str, dropping: bool) -> Any:
    real, rounded = np.dtype(dtype).type, ROUNDED[kind]
    lowest = real(-1e30)

    @kernel
    def softmax(scores, weights, logs, first, drop):
        """Weights of a row of scores, 0 behind its own token; scores are used up."""
        values = cuda.shared.array(LANES, real)
        lane, row, length = u8(cuda.threadIdx.x), u8(cuda.blockIdx.x), u8(scores.shape[1])
        whole = u8(first) + row
        end = whole % length + u8(1)
        most, total = lowest, real(0)
        for j in range(lane, end, u8(LANES)):
            score = scores[row, u8(j)]
            if score > most:
                total *= math.exp(most - score)
                most = score
            total += math.exp(score - most)
        values[lane] = most
        largest = fold_max(values, lane)
        values[lane] = total * math.exp(most - largest)
        total = fold_sum(values, lane)
        inverse = real(1) / total
        for j in range(lane, length, u8(LANES)):
            weight = real(0)
            if u8(j) < end:
                weight = math.exp(scores[row, u8(j)] - largest) * inverse
                if dropping:
                    weight *= kept(drop, whole, length, u8(j))
            weights[row, u8(j)] = rounded(weight)
        if lane == u8(0):
            logs[whole] = largest + math.log(total)

    return softmax


@functools.cache
def _softmax_gradient(dtype: str, kind: str, dropping: bool) -> Any:
    real, rounded = np.dtype(dtype).type, ROUNDED[kind]

    @kernel
    def softmax_gradient(scores, dweights, weights, dscores, logs, dots, first, drop):
        """Weights again, and the slopes of scores from those of weights, 0 behind a row's own token."""
        lane, row, length = u8(cuda.threadIdx.x), u8(cuda.blockIdx.x), u8(scores.shape[1])
        whole = u8(first) + row
        end = whole % length + u8(1)
        log, dot = logs[whole], dots[whole]
        for j in range(lane, length, u8(LANES)):
            weight, slope = real(0), real(0)
            if u8(j) < end:
                weight, slope = math.exp(scores[row, u8(j)] - log), dweights[row, u8(j)]
                factor = real(1)
                if dropping:
                    factor = kept(drop, whole, length, u8(j))
                slope = weight * (slope * factor - dot)
                weight *= factor
            weights[row, u8(j)] = rounded(weight)
            dscores[row, u8(j)] = rounded(slope)

    return softmax_gradient
