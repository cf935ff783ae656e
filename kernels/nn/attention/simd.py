"""Causal attention and rotary positions, Numba: a block of queries at a time against all keys up to its end.

Keys behind a block's last query are not computed, and the scores of a block never leave the nearer caches. Forward
keeps the logarithm of each softmax's denominator; backward computes the scores again from it. A head's keys and values
are copied side by side first, transposed where a product needs it so, and padded with zeros to whole tiles.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from hpckit.kernels.compile.intrinsics import prefetch
from hpckit.kernels.compile.jit import REORDERED, inlined, jit
from hpckit.kernels.nn.attention.tile import columns, tile_product
from hpckit.kernels.nn.elementary import exponential
from hpckit.kernels.nn.simd import largest
from hpckit.kernels.noise.simd import four_words

u8 = np.uint64
BLOCK = 32  # queries: a multiple of a tile's columns and rows
LINE, AHEAD = 64, 4  # bytes of a cache line; tokens
SKEW = 16  # numbers more from row to row: rows a power of two apart would share a few places of the nearest cache


@inlined
def _ask(array, row):
    """Ask for the same head of a later token: the processor does not foresee rows that lie so far apart."""
    ahead = u8(AHEAD) * u8(array.shape[2]) * u8(row.size)
    for i in range(u8(0), u8(row.size), u8(LINE // row.itemsize)):
        prefetch(row, ahead + i)


@jit(noalias=True, borrowed=True)
def _pack(qkv, sample, first, count, head, factor, out, pitch):
    """out[t pitch + i] = factor qkv[sample, first + t, head, i] for t < count."""
    width = u8(qkv.shape[3])
    for t in range(u8(count)):
        row, at = qkv[u8(sample), u8(first) + t, u8(head)], t * u8(pitch)
        _ask(qkv, row)
        for i in range(width):
            out[at + i] = factor * row[i]


@jit(noalias=True, borrowed=True)
def _pack_across(qkv, sample, head, out, pitch):
    """out[i pitch + t] = qkv[sample, t, head, i]."""
    width = u8(qkv.shape[3])
    for t in range(u8(qkv.shape[1])):
        row = qkv[u8(sample), t, u8(head)]
        _ask(qkv, row)
        for i in range(width):
            out[i * u8(pitch) + t] = row[i]


@functools.cache
def _row_softmax(dtype):
    """(scores, at, count, end): exp(scores - their maximum) of a row, 0 from `count` to `end`; (maximum, sum)."""
    exp, f = exponential(dtype), np.dtype(dtype).type
    lowest, zero = f(-1e30), f(0)

    @inlined(math=REORDERED)
    def row_softmax(scores, at, count, end):
        row = scores[at : at + end]
        for j in range(u8(count), u8(end)):  # whole vectors to the end: no rest of single numbers
            row[j] = lowest
        most, total = largest(row, end), zero
        for j in range(u8(end)):
            value = exp(row[j] - most)
            row[j] = value
            total += value
        for j in range(u8(count), u8(end)):
            row[j] = zero
        return most, total

    return row_softmax


@jit(noalias=True, borrowed=True)
def _draw(mask, pitch, key, step, row, groups, begin, count, ends, most, limit, factor):
    """mask[t pitch + begin % 4 + j] = `factor` or 0 for query t < count and key j < min(ends + t, most), as
    `reference.kept` says.

    row: of the first query in the counter. begin: position of the first key. limit: the least word that is kept.
    """
    zero, four = factor - factor, u8(4)
    lead = u8(begin) % four
    for t in range(u8(count)):
        at, number = t * u8(pitch), (u8(row) + t) * u8(groups) + u8(begin) // four
        for g in range((lead + min(u8(ends) + t, u8(most)) + u8(3)) // four):
            a, b, c, d = four_words(key, step, number + g, u8(0))
            place = at + four * g
            mask[place] = factor if a >= limit else zero
            mask[place + u8(1)] = factor if b >= limit else zero
            mask[place + u8(2)] = factor if c >= limit else zero
            mask[place + u8(3)] = factor if d >= limit else zero


@jit(noalias=True, borrowed=True)
def _times(x, mask, lead, count):
    for i in range(u8(count)):
        x[i] *= mask[u8(lead) + i]


def _drop(dtype, key, step, first, rate):
    """The dropout's arguments as a kernel takes them; a limit of 0 drops nothing."""
    limit = math.floor(rate * 2.0**32 - 0.5) + 1 if rate else 0
    return u8(key), u8(step), u8(first), u8(limit), dtype.type(1 / (1 - rate))


@functools.cache
def _attention(dtype):
    product, row_softmax, f, tile = tile_product(dtype), _row_softmax(dtype), np.dtype(dtype).type, columns(dtype)
    one = f(1)

    @jit(math=REORDERED, key=("attention", dtype, tile))
    def kernel(queries, source, base, heads, kv_heads, factor, out, logs, whole, key, step, start, limit, kept):
        (batch, length, _, width), most = queries.shape, source.shape[1]
        all_heads, first_head, tokens, begin, key_begin = whole
        padded, wide, shift = -(-most // BLOCK) * BLOCK, -(-width // tile) * tile, begin - key_begin
        pitch = padded + SKEW
        keys, values = np.zeros(wide * pitch, queries.dtype), np.zeros(pitch * wide, queries.dtype)
        query, found = np.zeros(BLOCK * wide, queries.dtype), np.zeros(BLOCK * wide, queries.dtype)
        scores, group = np.zeros(BLOCK * pitch, queries.dtype), heads // kv_heads
        mask = np.zeros(BLOCK * pitch + SKEW if limit else 0, queries.dtype)
        for sample in range(batch):
            for head in range(heads):
                if head % group == 0:
                    _pack_across(source, sample, base + head // group, keys, pitch)
                    _pack(source, sample, 0, most, base + kv_heads + head // group, one, values, wide)
                for first in range(0, length, BLOCK):
                    count = min(BLOCK, length - first)
                    end = min(-(-(shift + first + BLOCK) // BLOCK) * BLOCK, padded)
                    _pack(queries, sample, first, count, head, factor, query, wide)
                    product(query, 0, wide, 1, keys, 0, pitch, scores, pitch, BLOCK, width, end, False)
                    for t in range(count):
                        most_of, total = row_softmax(scores, t * pitch, min(shift + first + t + 1, most), end)
                        logs[sample, head, first + t] = most_of + f(math.log(total))
                        query[t * wide] = one / total  # the queries are done: their place holds the factors
                    if limit:
                        row = ((start + u8(sample)) * u8(all_heads) + u8(first_head + head)) * u8(tokens)
                        row, ends = row + u8(begin + first), shift + first + 1
                        _draw(mask, pitch, key, step, row, -(-tokens // 4), key_begin, count, ends, most, limit, kept)
                        _times(scores, mask, key_begin % 4, BLOCK * pitch)
                    product(scores, 0, pitch, 1, values, 0, wide, found, wide, BLOCK, end, wide, False)
                    for t in range(u8(count)):
                        target, at = out[u8(sample), u8(first) + t, u8(head)], t * u8(wide)
                        inverse = query[at]
                        for i in range(u8(width)):
                            target[i] = found[at + i] * inverse

    return kernel


def attention(qkv, heads, kv_heads, out, logs, key=0, step=0, first=0, rate=0.0):
    factor, drop = qkv.dtype.type(qkv.shape[3] ** -0.5), _drop(qkv.dtype, key, step, first, rate)
    whole = heads, 0, qkv.shape[1], 0, 0
    _attention(qkv.dtype.name)(qkv, qkv, heads, heads, kv_heads, factor, out, logs, whole, *drop)


def partial_attention(queries, keys, part, out, logs, key=0, step=0, first=0, rate=0.0):
    factor, drop = queries.dtype.type(queries.shape[3] ** -0.5), _drop(queries.dtype, key, step, first, rate)
    heads, kv_heads = queries.shape[2], keys.shape[2] // 2
    _attention(queries.dtype.name)(queries, keys, 0, heads, kv_heads, factor, out, logs, tuple(part), *drop)


@functools.cache
def _block_gradient(dtype):
    """The kernel that turns a block's scores and dweights into weights and dscores."""
    exp, zero = exponential(dtype), np.dtype(dtype).type(0)

    @jit(math=REORDERED, noalias=True, borrowed=True, key=("block_gradient", dtype))
    def kernel(scores, dweights, pitch, out, slope, wide, logs, sample, head, first, count, ends, most, end):
        for t in range(u8(count)):
            query, at = u8(first) + t, t * u8(pitch)
            row, drow = scores[at : at + u8(end)], dweights[at : at + u8(end)]
            result, place = out[u8(sample), query, u8(head)], t * u8(wide)
            log, dot = logs[u8(sample), u8(head), query], zero
            _ask(out, result)
            for i in range(u8(result.size)):
                dot += result[i] * slope[place + i]
            for j in range(u8(end)):
                weight = exp(row[j] - log)
                row[j] = weight
                drow[j] = weight * (drow[j] - dot)
            for j in range(min(u8(ends) + t, u8(most)), u8(end)):
                row[j] = zero
                drow[j] = zero
        for j in range(u8(count * pitch), u8(BLOCK * pitch)):  # queries behind the last one
            scores[j] = zero
            dweights[j] = zero

    return kernel


@functools.cache
def _attention_gradient(dtype):
    product, block_gradient, tile = tile_product(dtype), _block_gradient(dtype), columns(dtype)
    f = np.dtype(dtype).type
    one, zero = f(1), f(0)

    @jit(math=REORDERED, key=("attention_gradient", dtype, tile))
    def kernel(
        queries, source, base, heads, kv_heads, factor, out, logs, dout, dqueries, dsource, add,
        whole, key, step, start, limit, kept,
    ):  # fmt: skip
        (batch, length, _, width), most = queries.shape, source.shape[1]
        all_heads, first_head, tokens, begin, key_begin = whole
        padded, wide, shift = -(-most // BLOCK) * BLOCK, -(-width // tile) * tile, begin - key_begin
        pitch = padded + SKEW
        across, keys = np.zeros((2, wide * pitch), queries.dtype), np.zeros(pitch * wide, queries.dtype)
        dkeys, dvalues = np.zeros(pitch * wide, queries.dtype), np.zeros(pitch * wide, queries.dtype)
        # One array each: rows that an array is unpacked to count as strided, and no loop over them would vectorize.
        query, slope = np.zeros(BLOCK * wide, queries.dtype), np.zeros(BLOCK * wide, queries.dtype)
        dquery = np.zeros(BLOCK * wide, queries.dtype)
        scores, dweights = np.zeros(BLOCK * pitch, queries.dtype), np.zeros(BLOCK * pitch, queries.dtype)
        mask, group = np.zeros(BLOCK * pitch + SKEW if limit else 0, queries.dtype), heads // kv_heads
        for sample in range(batch):
            for head in range(heads):
                key_head = base + head // group
                if head % group == 0:
                    _pack_across(source, sample, key_head, across[0], pitch)
                    _pack_across(source, sample, key_head + kv_heads, across[1], pitch)
                    _pack(source, sample, 0, most, key_head, one, keys, wide)
                    dkeys[:] = zero
                    dvalues[:] = zero
                for first in range(0, length, BLOCK):
                    count, ends = min(BLOCK, length - first), shift + first + 1
                    end = min(-(-(shift + first + BLOCK) // BLOCK) * BLOCK, padded)
                    _pack(queries, sample, first, count, head, factor, query, wide)
                    _pack(dout, sample, first, count, head, one, slope, wide)
                    product(query, 0, wide, 1, across[0], 0, pitch, scores, pitch, BLOCK, width, end, False)
                    product(slope, 0, wide, 1, across[1], 0, pitch, dweights, pitch, BLOCK, width, end, False)
                    if limit:
                        row = ((start + u8(sample)) * u8(all_heads) + u8(first_head + head)) * u8(tokens)
                        row += u8(begin + first)
                        _draw(mask, pitch, key, step, row, -(-tokens // 4), key_begin, count, ends, most, limit, kept)
                        _times(dweights, mask, key_begin % 4, BLOCK * pitch)
                    block_gradient(
                        scores, dweights, pitch, out, slope, wide, logs, sample, head, first, count, ends, most, end
                    )
                    if limit:
                        _times(scores, mask, key_begin % 4, BLOCK * pitch)
                    product(scores, 0, 1, pitch, slope, 0, wide, dvalues, wide, end, BLOCK, wide, True)
                    product(dweights, 0, 1, pitch, query, 0, wide, dkeys, wide, end, BLOCK, wide, True)
                    product(dweights, 0, pitch, 1, keys, 0, wide, dquery, wide, BLOCK, end, wide, False)
                    _unpack(dquery, wide, factor, dqueries, sample, first, count, head, add)
                if head % group == group - 1:
                    _unpack(dkeys, wide, one, dsource, sample, 0, most, key_head, add)
                    _unpack(dvalues, wide, one, dsource, sample, 0, most, key_head + kv_heads, add)

    return kernel


@jit(noalias=True, borrowed=True)
def _unpack(packed, pitch, factor, dqkv, sample, first, count, head, add):
    """dqkv[sample, first + t, head, i] = factor packed[t pitch + i] for t < count, or with `add` as much more."""
    width = u8(dqkv.shape[3])
    for t in range(u8(count)):
        row, at = dqkv[u8(sample), u8(first) + t, u8(head)], t * u8(pitch)
        if add:
            for i in range(width):
                row[i] += factor * packed[at + i]
        else:
            for i in range(width):
                row[i] = factor * packed[at + i]


def attention_gradient(qkv, heads, kv_heads, out, logs, dout, dqkv, key=0, step=0, first=0, rate=0.0):
    factor, drop = qkv.dtype.type(qkv.shape[3] ** -0.5), _drop(qkv.dtype, key, step, first, rate)
    whole = heads, 0, qkv.shape[1], 0, 0
    _attention_gradient(qkv.dtype.name)(
        qkv, qkv, heads, heads, kv_heads, factor, out, logs, dout, dqkv, dqkv, False, whole, *drop
    )


def partial_attention_gradient(queries, keys, part, out, logs, dout, dqueries, dkeys, key=0, step=0, first=0, rate=0.0):
    factor, drop = queries.dtype.type(queries.shape[3] ** -0.5), _drop(queries.dtype, key, step, first, rate)
    heads, kv_heads = queries.shape[2], keys.shape[2] // 2
    _attention_gradient(queries.dtype.name)(
        queries, keys, 0, heads, kv_heads, factor, out, logs, dout, dqueries, dkeys, True, tuple(part), *drop
    )


@jit
def join(out, logs, other, other_logs):
    for sample in range(out.shape[0]):
        for head in range(out.shape[2]):
            for t in range(out.shape[1]):
                a, b = logs[sample, head, t], other_logs[sample, head, t]
                most = max(a, b)
                x, y = math.exp(a - most), math.exp(b - most)
                total = x + y
                x, y = x / total, y / total
                mine, theirs = out[sample, t, head], other[sample, t, head]
                for i in range(mine.size):
                    mine[i] = x * mine[i] + y * theirs[i]
                logs[sample, head, t] = most + math.log(total)


@functools.cache
def _cached_attention(dtype):
    row_softmax, zero = _row_softmax(dtype), np.dtype(dtype).type(0)

    @jit(math=REORDERED, key=("cached_attention", dtype))
    def kernel(qkv, heads, kv_heads, factor, kept, start, out):
        batch, count, _, width = qkv.shape
        group, scores = heads // kv_heads, np.empty(start + count, qkv.dtype)
        for sample in range(batch):
            for head in range(heads):
                place = head // group
                for t in range(count):
                    query, found, seen = qkv[sample, t, head], out[sample, t, head], start + t + 1
                    for j in range(seen):
                        key, dot = kept[sample, j, place], zero
                        for i in range(u8(width)):
                            dot += query[i] * key[i]
                        scores[j] = factor * dot
                    _, total = row_softmax(scores, 0, seen, seen)
                    found[:] = zero
                    for j in range(seen):
                        value, weight = kept[sample, j, kv_heads + place], scores[j] / total
                        for i in range(u8(width)):
                            found[i] += weight * value[i]

    return kernel


def cached_attention(qkv, heads, kv_heads, kept, start, out):
    factor = qkv.dtype.type(qkv.shape[3] ** -0.5)
    _cached_attention(qkv.dtype.name)(qkv, heads, kv_heads, factor, kept, start, out)


@jit
def rotary(qkv, rotated, cosines, sines):
    half = u8(qkv.shape[3] // 2)
    for sample in range(u8(qkv.shape[0])):
        for t in range(u8(qkv.shape[1])):
            c, s = cosines[t], sines[t]
            for head in range(u8(rotated)):
                row = qkv[sample, t, head]
                for i in range(half):
                    x, y = row[i], row[i + half]
                    row[i] = x * c[i] - y * s[i]
                    row[i + half] = y * c[i] + x * s[i]
