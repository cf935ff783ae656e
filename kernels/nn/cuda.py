"""Kernels of neural networks on a GPU. What the functions compute is said in `reference`.

One thread a number where numbers stand alone, a block of threads a row where a row is summed. Sums have a fixed order:
no atomics, the same bits in every run.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.folds import fold_max, fold_sum, folders
from hpckit.kernels.compile.cuda.jit import blocks, cuda, kernel, simulating, threads
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.device_array import from_host
from hpckit.kernels.nn import elementary
from hpckit.kernels.nn.cuda_activations import dropout, gelu, gelu_erf, relu, scale, scale_two, silu, swiglu
from hpckit.kernels.nn.memory import empty

__all__ = [
    "adamw", "add_columns", "choose", "cross_entropy", "cross_entropy_gradient", "dropout", "embed", "embed_gradient",
    "gelu", "gelu_erf", "momentum", "relu", "scale", "scale_two", "silu", "squared_sum", "squared_sums", "swiglu",
]  # fmt: skip

THREADS, WARP = threads(256), threads(32)
FOLDERS = folders(256)
CHUNKS = 2 if simulating() else 64  # blocks that share the squares of a part of a vector
COLUMNS, WALKERS = (4, 2) if simulating() else (32, 8)  # threads of a block that sums columns: across, and down
STRIPES = 2 if simulating() else 64  # blocks that share the rows of a column at most
u8 = np.uint64


# ---- rows


@functools.cache
def _stripe_sums(dtype: str) -> Any:
    real, size = np.dtype(dtype).type, COLUMNS * WALKERS

    @kernel
    def stripe_sums(x, partial):
        """partial[s, d] = the sum of x[n, d] over the rows of stripe s, each w-th w of them."""
        values = cuda.shared.array(size, real)
        across, down = u8(cuda.threadIdx.x), u8(cuda.threadIdx.y)
        column = u8(cuda.blockIdx.x) * u8(COLUMNS) + across
        total = real(0)
        if column < u8(x.shape[1]):
            first = u8(cuda.blockIdx.y) * u8(WALKERS) + down
            for row in range(first, u8(x.shape[0]), u8(cuda.gridDim.y) * u8(WALKERS)):
                total += x[u8(row), column]
        values[down * u8(COLUMNS) + across] = total
        half = u8(WALKERS) >> u8(1)
        while half > u8(0):
            cuda.syncthreads()
            if down < half:
                values[down * u8(COLUMNS) + across] += values[(down + half) * u8(COLUMNS) + across]
            half = half >> u8(1)
        if down == u8(0) and column < u8(x.shape[1]):
            partial[u8(cuda.blockIdx.y), column] = values[across]

    return stripe_sums


@kernel
def _add_stripes(partial, sums):
    column = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if column < u8(sums.size):
        total = sums[column]
        for stripe in range(u8(partial.shape[0])):
            total += partial[u8(stripe), column]
        sums[column] = total


def add_columns(x: Any, sums: Any) -> None:
    stripes = min(STRIPES, blocks(len(x), WALKERS))
    partial = empty((stripes, x.shape[1]), x)
    _stripe_sums(x.dtype.char)[(blocks(x.shape[1], COLUMNS), stripes), (COLUMNS, WALKERS)](x, partial)
    _add_stripes[blocks(sums.size, THREADS), THREADS](partial, sums)


@kernel
def _squares(x, parts, partial):
    """partial[p, c] = the sum of squares of chunk c of the numbers from parts[p, 0] to parts[p, 1]."""
    values, lane = cuda.shared.array(FOLDERS, np.float64), u8(cuda.threadIdx.x)
    chunk, part = u8(cuda.blockIdx.y), u8(cuda.blockIdx.x)
    total = 0.0
    first = u8(parts[part, u8(0)]) + chunk * u8(FOLDERS) + lane
    for i in range(first, u8(parts[part, u8(1)]), u8(CHUNKS) * u8(FOLDERS)):
        value = np.float64(x[u8(i)])
        total += value * value
    values[lane] = total
    total = fold_sum(values, lane)
    if lane == u8(0):
        partial[part, chunk] = total


def squared_sums(x: Any, parts: np.ndarray) -> Any:
    """Sums of squares of parts, on the device, without waiting; see `reference.squared_sums`."""
    partial = empty((len(parts), CHUNKS), x, np.float64)
    if len(parts):
        _squares[(len(parts), CHUNKS), FOLDERS](x, from_host(parts, x), partial)
    return partial.sum(axis=1)


def squared_sum(x: Any) -> float:
    # Waits for the device.
    return float(squared_sums(x, np.array([[0, x.size]]))[0])


@functools.cache
def _choose(dtype: str) -> Any:
    choice = elementary.choice(dtype, math.exp)

    @kernel
    def choose(scores, chosen, shares):
        row = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if row < scores.shape[0]:
            choice(scores, row, chosen, shares)

    return choose


def choose(scores: Any, chosen: Any, shares: Any) -> None:
    if len(scores):
        _choose(scores.dtype.char)[blocks(len(scores), THREADS), THREADS](scores, chosen, shares)


@functools.cache
def _cross_entropy(dtype: str) -> Any:
    real = np.dtype(dtype).type
    lowest = real(-np.inf)

    @kernel
    def cross_entropy(logits, targets, vocab, inverse, losses):
        values, lane, row = cuda.shared.array(FOLDERS, real), u8(cuda.threadIdx.x), u8(cuda.blockIdx.x)
        most = lowest
        for j in range(lane, u8(vocab), u8(FOLDERS)):
            value = logits[row, u8(j)]
            if value > most or value != value:
                most = value
        values[lane] = most
        most = fold_max(values, lane)
        chosen = logits[row, u8(max(targets[row], 0))]
        cuda.syncthreads()
        total = real(0)
        for j in range(lane, u8(logits.shape[1]), u8(FOLDERS)):
            value = real(0)
            if u8(j) < u8(vocab):
                value = math.exp(logits[row, u8(j)] - most)
            logits[row, u8(j)] = value
            total += value
        values[lane] = total
        total = fold_sum(values, lane)
        if lane == u8(0):
            counted = targets[row] >= 0
            inverse[row] = real(1) / total if counted else real(0)
            loss = math.log(np.float64(total)) + (np.float64(most) - np.float64(chosen))
            losses[row] = loss if counted else 0.0

    return cross_entropy


def cross_entropy(logits: Any, targets: Any, vocab: int, inverse: Any) -> Any:
    """The loss, left on the device without waiting; see `reference.cross_entropy`."""
    losses = empty((len(logits),), logits, np.float64)
    if len(logits):
        _cross_entropy(logits.dtype.char)[len(logits), FOLDERS](logits, targets, vocab, inverse, losses)
    return losses.sum()


@kernel
def _cross_entropy_gradient(logits, targets, inverse, factor):
    i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if i < u8(logits.size):
        row, column = i // u8(logits.shape[1]), i % u8(logits.shape[1])
        value = logits[row, column] * (factor * inverse[row])
        if targets[row] >= 0 and u8(targets[row]) == column:
            value -= factor
        logits[row, column] = value


def cross_entropy_gradient(logits: Any, targets: Any, inverse: Any, factor: float) -> None:
    launch = _cross_entropy_gradient[blocks(logits.size, THREADS), THREADS]
    launch(logits, targets, inverse, logits.dtype.type(factor))


# ---- optimizers


@inlined
def part_of(bounds, i):
    """The part of a vector that number i is in: bounds[part] <= i < bounds[part + 1]."""
    low, high = u8(0), u8(bounds.size) - u8(1)
    while high - low > u8(1):
        middle = (low + high) >> u8(1)
        if u8(bounds[middle]) <= i:
            low = middle
        else:
            high = middle
    return low


@kernel
def _adamw(values, grads, mean, square, bounds, decays, settings):
    i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if i < u8(values.size):
        factor, beta1, beta2, rest1, rest2, rate, unbias, eps = settings
        g = factor * grads[i]
        m = beta1 * mean[i] + rest1 * g
        s = beta2 * square[i] + rest2 * g * g
        mean[i] = m
        square[i] = s
        values[i] = decays[part_of(bounds, i)] * values[i] - rate * m / (math.sqrt(s) * unbias + eps)


def adamw(values: Any, grads: Any, mean: Any, square: Any, bounds: Any, decays: Any, settings: Any) -> None:
    """One step of AdamW in place; bounds, decays and settings are host arrays (`reference.adamw`)."""
    if not values.size:  # a stage without parameters
        return
    parts = from_host(bounds, values), from_host(decays, values), tuple(settings)
    _adamw[blocks(values.size, THREADS), THREADS](values, grads, mean, square, *parts)


@kernel
def _momentum(values, grads, velocity, bounds, decays, settings):
    i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if i < u8(values.size):
        factor, mu, rate, nesterov = settings
        g = factor * grads[i] + decays[part_of(bounds, i)] * values[i]
        v = mu * velocity[i] + g
        velocity[i] = v
        values[i] -= rate * (nesterov * (g + mu * v - v) + v)  # nesterov is 0 or 1: g + mu v, or v


def momentum(values: Any, grads: Any, velocity: Any, bounds: Any, decays: Any, settings: Any) -> None:
    """One step of SGD with momentum; bounds, decays and settings are host arrays (`reference.momentum`)."""
    if not values.size:
        return
    parts = from_host(bounds, values), from_host(decays, values), tuple(settings)
    _momentum[blocks(values.size, THREADS), THREADS](values, grads, velocity, *parts)


# ---- embeddings


@kernel
def _embed(tokens, table, positions, y):
    i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    if i < u8(y.size):
        width, length = u8(y.shape[2]), u8(y.shape[1])
        at, column = i // width, i % width
        sample, t = at // length, at % length
        value = table[u8(tokens[sample, t]), column]
        if positions.shape[0] > 0:
            value += positions[t, column]
        y[sample, t, column] = value


def embed(tokens: Any, table: Any, positions: Any, y: Any) -> None:
    _embed[blocks(y.size, THREADS), THREADS](tokens, table, positions, y)


@kernel
def _add_tokens(tokens, order, dy, dtable):
    """The thread of the first of equal tokens, in the order of their sorting, adds the slopes of all of them."""
    column, first = u8(cuda.blockIdx.y) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x), u8(cuda.blockIdx.x)
    if column < u8(dy.shape[1]):
        token = tokens[u8(order[first])]
        if first == u8(0) or tokens[u8(order[first - u8(1)])] != token:
            total, i = dtable[u8(token), column], first
            while i < u8(order.size) and tokens[u8(order[i])] == token:
                total += dy[u8(order[i]), column]
                i += u8(1)
            dtable[u8(token), column] = total


@kernel
def _add_positions(dy, dpositions):
    i = u8(cuda.blockIdx.x) * u8(cuda.blockDim.x) + u8(cuda.threadIdx.x)
    width = u8(dy.shape[2])
    if i < u8(dy.shape[1]) * width:
        t, column = i // width, i % width
        total = dpositions[t, column]
        for sample in range(u8(dy.shape[0])):
            total += dy[u8(sample), t, column]
        dpositions[t, column] = total


def embed_gradient(tokens: Any, dy: Any, dtable: Any, dpositions: Any) -> None:
    """Add dy to the rows of the tables, in the order of the tokens; see `reference.embed_gradient`."""
    flat, width = tokens.reshape(-1), dy.shape[-1]
    wide = min(THREADS, blocks(width, WARP) * WARP)
    launch = _add_tokens[(flat.size, blocks(width, wide)), wide]
    launch(flat, _order(flat), dy.reshape(-1, width), dtable)
    if len(dpositions):
        _add_positions[blocks(dy[0].size, THREADS), THREADS](dy, dpositions)


def _order(tokens: Any) -> Any:
    """Where the tokens stand in sorted order; equal ones in the order in which they came."""
    if type(tokens).__module__ != "cupy":
        return from_host(np.argsort(np.asarray(tokens), kind="stable"), tokens)
    import cupy

    return cupy.argsort(tokens.astype(np.int64) * tokens.size + cupy.arange(tokens.size))  # keys that differ
