"""Kernels of neural networks, Numba. What the functions compute is said in `reference`.

Loops over numbers are plain, for LLVM to vectorize; sums along a row may be reordered. Constants bear the dtype of the
arrays: a float64 constant would turn float32 arithmetic into float64.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from hpckit.kernels.compile.jit import FINITE, REORDERED, inlined, jit
from hpckit.kernels.nn import elementary
from hpckit.kernels.nn.elementary import exponential, normal_tail
from hpckit.kernels.noise.simd import four_words

u8 = np.uint64


# ---- activations


@jit
def relu(x, y):
    zero, one = x.dtype.type(0), x.dtype.type(1)
    for i in range(u8(x.size)):
        v = x[i]
        y[i] = v if v > zero else (v if v != v else zero)
        x[i] = one if v > zero else zero


@functools.cache
def gelu_kernel(dtype):
    piece = elementary.gelu(dtype, exponential(dtype))

    @jit(key=("gelu", dtype))
    def kernel(x, y):
        for i in range(u8(x.size)):
            y[i], x[i] = piece(x[i])

    return kernel


def gelu(x, y):
    gelu_kernel(x.dtype.name)(x, y)


@functools.cache
def gelu_erf_kernel(dtype):
    piece = elementary.gelu_erf(dtype, normal_tail(dtype))

    @jit(key=("gelu_erf", dtype))
    def kernel(x, y):
        for i in range(u8(x.size)):
            y[i], x[i] = piece(x[i])

    return kernel


def gelu_erf(x, y):
    gelu_erf_kernel(x.dtype.name)(x, y)


@functools.cache
def silu_kernel(dtype):
    piece = elementary.silu(dtype, exponential(dtype))

    @jit(key=("silu", dtype))
    def kernel(x, y):
        for i in range(u8(x.size)):
            y[i], x[i] = piece(x[i])

    return kernel


def silu(x, y):
    silu_kernel(x.dtype.name)(x, y)


@functools.cache
def swiglu_kernel(dtype):
    piece = elementary.silu(dtype, exponential(dtype))

    @jit(noalias=True, key=("swiglu", dtype))
    def kernel(gate, up, y):
        for i in range(u8(gate.size)):
            other = up[i]
            value, slope = piece(gate[i])
            y[i] = value * other
            gate[i] = slope * other
            up[i] = value

    return kernel


def swiglu(gate, up, y):
    swiglu_kernel(gate.dtype.name)(gate, up, y)


@jit
def scale(x, factor):
    for i in range(u8(x.size)):
        x[i] *= factor[i]


@jit(noalias=True)
def scale_two(dy, first, second):
    for i in range(u8(dy.size)):
        first[i] *= dy[i]
        second[i] *= dy[i]


# ---- rows


@jit(noalias=True)
def add_columns(x, sums):
    """Add column sums, four rows per pass; see `reference.add_columns`."""
    n = len(x)
    whole = n - n % 4
    for i in range(0, whole, 4):
        a, b, c, d = x[i], x[i + 1], x[i + 2], x[i + 3]
        for j in range(u8(sums.size)):
            sums[j] += (a[j] + b[j]) + (c[j] + d[j])
    for i in range(whole, n):
        a = x[i]
        for j in range(u8(sums.size)):
            sums[j] += a[j]


@jit(math=REORDERED)
def squared_sum(x):
    total = 0.0
    for i in range(u8(x.size)):
        total += np.float64(x[i]) * np.float64(x[i])
    return total


@inlined(math=FINITE | REORDERED)
def largest(row, count):
    """The largest of the first numbers of a row."""
    most = row[0]
    for j in range(u8(count)):
        most = max(most, row[j])
    return most


@jit
def _squared_sums(x, parts, sums):
    for k in range(u8(len(sums))):
        sums[k] = squared_sum(x[u8(parts[k, 0]) : u8(parts[k, 1])])


def squared_sums(x, parts):
    sums = np.zeros(len(parts))
    _squared_sums(x, parts, sums)
    return sums


@functools.cache
def choose_kernel(dtype):
    choice = elementary.choice(dtype, exponential(dtype))

    @jit(key=("choose", dtype))
    def kernel(scores, chosen, shares):
        for row in range(len(scores)):
            choice(scores, row, chosen, shares)

    return kernel


def choose(scores, chosen, shares):
    choose_kernel(scores.dtype.name)(scores, chosen, shares)


@functools.cache
def _cross_entropy(dtype):
    exp, zero, one = exponential(dtype), np.dtype(dtype).type(0), np.dtype(dtype).type(1)

    @jit(math=REORDERED, key=("cross_entropy", dtype))
    def kernel(logits, targets, vocab, inverse):
        loss = 0.0
        for i in range(u8(len(logits))):
            row = logits[i]
            most = largest(row, vocab)
            chosen = row[u8(max(targets[i], 0))]
            total = zero
            for j in range(u8(vocab)):
                value = exp(row[j] - most)
                row[j] = value
                total += value
            for j in range(u8(vocab), u8(row.size)):
                row[j] = zero
            inverse[i] = zero
            if targets[i] >= 0:
                inverse[i] = one / total
                loss += math.log(np.float64(total)) + (np.float64(most) - np.float64(chosen))
        return loss

    return kernel


def cross_entropy(logits, targets, vocab, inverse):
    return _cross_entropy(logits.dtype.name)(logits, targets, vocab, inverse)


@jit
def _cross_entropy_gradient(logits, targets, inverse, factor):
    for i in range(u8(len(logits))):
        row, each = logits[i], factor * inverse[i]
        for j in range(u8(row.size)):
            row[j] *= each
        if targets[i] >= 0:
            row[u8(targets[i])] -= factor


def cross_entropy_gradient(logits, targets, inverse, factor):
    _cross_entropy_gradient(logits, targets, inverse, logits.dtype.type(factor))


# ---- optimizers


@jit(noalias=True)
def adamw(values, grads, mean, square, bounds, decays, settings):
    factor, beta1, beta2, rest1 = settings[0], settings[1], settings[2], settings[3]
    rest2, rate, unbias, eps = settings[4], settings[5], settings[6], settings[7]
    for part in range(u8(decays.size)):
        decay = decays[part]
        for i in range(u8(bounds[part]), u8(bounds[part + u8(1)])):
            g = factor * grads[i]
            m = beta1 * mean[i] + rest1 * g
            s = beta2 * square[i] + rest2 * g * g
            mean[i] = m
            square[i] = s
            values[i] = decay * values[i] - rate * m / (np.sqrt(s) * unbias + eps)


@jit(noalias=True)
def momentum(values, grads, velocity, bounds, decays, settings):
    factor, mu, rate, nesterov = settings[0], settings[1], settings[2], settings[3]
    for part in range(u8(decays.size)):
        decay = decays[part]
        for i in range(u8(bounds[part]), u8(bounds[part + u8(1)])):
            g = factor * grads[i] + decay * values[i]
            v = mu * velocity[i] + g
            velocity[i] = v
            # nesterov is 0 or 1: g + mu v, or v
            values[i] -= rate * (nesterov * (g + mu * v - v) + v)


# ---- embeddings, dropout


@jit(noalias=True)
def embed(tokens, table, positions, y):
    for i in range(u8(tokens.shape[0])):
        for t in range(u8(tokens.shape[1])):
            row, out = table[u8(tokens[i, t])], y[i, t]
            if len(positions):
                place = positions[t]
                for j in range(u8(out.size)):
                    out[j] = row[j] + place[j]
            else:
                for j in range(u8(out.size)):
                    out[j] = row[j]


@jit(noalias=True)
def embed_gradient(tokens, dy, dtable, dpositions):
    for i in range(u8(tokens.shape[0])):
        for t in range(u8(tokens.shape[1])):
            row, slope = dtable[u8(tokens[i, t])], dy[i, t]
            for j in range(u8(slope.size)):
                row[j] += slope[j]
            if len(dpositions):
                place = dpositions[t]
                for j in range(u8(slope.size)):
                    place[j] += slope[j]


@jit
def _dropout(x, y, key, step, first, limit, factor):
    zero, four = x.dtype.type(0), u8(4)
    samples, each = u8(x.shape[0]), u8(x.shape[1])
    groups = (each + u8(3)) // four
    for k in range(samples):
        row, out = x[k], y[k]
        for g in range(groups):
            words = four_words(u8(key), u8(step), (u8(first) + k) * groups + g, u8(0))
            for lane in range(u8(min(four, each - four * g))):
                i = four * g + lane
                out[i] = row[i] * factor if words[lane] >= limit else zero


def dropout(x, y, key, step, first, rate):
    """Set y to x / (1 - rate) or 0: numbers above `rate` begin at a threshold word (`reference.dropout`)."""
    limit = u8(math.floor(rate * 2.0**32 - 0.5) + 1)
    _dropout(x, y, u8(key), u8(step), u8(first), limit, x.dtype.type(1 / (1 - rate)))
