"""Numba kernels of transformers against NumPy's, float32 and float64, odd sizes."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import by_day
from test_nn_kernels import DTYPES, TOLERANCE, close

from hpckit.kernels.nn import dispatch, reference, simd
from hpckit.kernels.nn.attention import dispatch as attention
from hpckit.kernels.nn.attention import reference as attention_reference
from hpckit.kernels.nn.attention.reference import Part
from hpckit.kernels.nn.attention.tile import ROWS, columns, tile_product
from hpckit.kernels.nn.norm import dispatch as norm
from hpckit.kernels.nn.norm import reference as norm_reference


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("carried", [True, False])
def test_norms(dtype, carried):
    random = np.random.default_rng(0)
    x, dy, carry = random.normal(3, 2, (3, 5, 37)).astype(dtype)
    gain, bias = random.normal(size=(2, 37)).astype(dtype)
    results = []
    for form in (norm, norm_reference):
        empty = None if form is norm else carry[:0]
        start = carry if carried else empty
        mean, rstd, rms = np.empty((3, 5), dtype)
        y, dx, second, dsecond = np.empty((4, 5, 37), dtype)
        sums = np.ones((3, 37), dtype)
        form.layer_norm(x, gain, bias, 1e-5, y, mean, rstd)
        form.layer_norm_input(x, gain, mean, rstd, dy, start, dx)
        form.layer_norm_weight(x, mean, rstd, dy, *sums[:2])
        form.rms_norm(x, gain, 1e-5, second, rms)
        form.rms_norm_input(x, gain, rms, dy, start, dsecond)
        form.rms_norm_weight(x, rms, dy, sums[2])
        results.append((y, dx, second, dsecond, mean, rstd, rms, sums))
    for mine, theirs in zip(*results, strict=True):
        close(mine, theirs, dtype, 20)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("add", [False, True])
def test_product_in_tiles(dtype, add):
    random, wide = np.random.default_rng(1), columns(np.dtype(dtype).name)
    a, b = random.normal(size=(7, 2 * ROWS)).astype(dtype), random.normal(size=(7, 2 * wide)).astype(dtype)
    c = np.ones((2 * ROWS, 3 * wide), dtype)
    product = tile_product(np.dtype(dtype).name)
    product(
        a.reshape(-1), 0, 1, 2 * ROWS, b.reshape(-1), 0, 2 * wide, c.reshape(-1), 3 * wide, 2 * ROWS, 7, 2 * wide, add
    )
    close(c[:, : 2 * wide], a.T @ b + add, dtype, 10)
    assert (c[:, 2 * wide :] == 1).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("length", "heads", "kv_heads", "width"), [(71, 4, 2, 20), (32, 2, 2, 32), (1, 3, 1, 7)])
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_attention(dtype, length, heads, kv_heads, width, rate):
    random = np.random.default_rng(2)
    qkv = random.normal(0, 2, (2, length, heads + 2 * kv_heads, width)).astype(dtype)
    dout = random.normal(size=(2, length, heads, width)).astype(dtype)
    results = []
    for form in (attention, attention_reference):
        out, logs, dqkv = np.empty_like(dout), np.empty((2, heads, length), dtype), np.full_like(qkv, np.nan)
        form.attention(qkv, heads, kv_heads, out, logs, 2**63 + 5, 7, 3, rate)
        form.attention_gradient(qkv, heads, kv_heads, out, logs, dout, dqkv, 2**63 + 5, 7, 3, rate)
        results.append((out, logs, dqkv))
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=30 * TOLERANCE[dtype], atol=30 * TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [pytest.param(np.float32, marks=pytest.mark.nightly), np.float64])
@pytest.mark.parametrize("cuts", [[71], [37, 71], [3, 38, 70, 71], [0, 1, 2, 71]])
@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("views", by_day([False, True], False))  # views of the whole have kernels of their own
def test_attention_in_parts_is_that_of_the_whole(dtype, cuts, rate, views):
    """All pairs of pieces of queries and of keys, put together by their logs; all heads, and some of them."""
    piece = np.asarray if views else np.ascontiguousarray
    random, length, heads, kv_heads, width = np.random.default_rng(2), 71, 4, 2, 20
    qkv = random.normal(0, 2, (2, length, heads + 2 * kv_heads, width)).astype(dtype)
    dout = random.normal(size=(2, length, heads, width)).astype(dtype)
    drop = 2**63 + 5, 7, 3, rate
    out, logs, dqkv = np.empty_like(dout), np.empty((2, heads, length), dtype), np.empty_like(qkv)
    attention.attention(qkv, heads, kv_heads, out, logs, *drop)
    attention.attention_gradient(qkv, heads, kv_heads, out, logs, dout, dqkv, *drop)
    for form in (attention, attention_reference):
        found, their_logs, dfound = np.zeros_like(out), np.full_like(logs, -np.inf), np.zeros_like(qkv)
        bounds = [slice(a, b) for a, b in zip([0, *cuts], cuts, strict=False) if a < b]
        groups = [(slice(h * 2, h * 2 + 2), h) for h in range(kv_heads)]
        for back in (False, True):
            for rows, head, group in ((rows, head, group) for rows in bounds for head, group in groups):
                columns_of = heads + group, heads + kv_heads + group
                query, mine, mine_logs = piece(qkv[:, rows, head]), found[:, rows, head], their_logs[:, head, rows]
                for seen in bounds:
                    if seen.start > rows.start:
                        continue
                    part = Part(heads, head.start, length, rows.start, seen.start)
                    keys = piece(qkv[:, seen][:, :, columns_of])
                    if back:
                        dkeys, dquery = np.zeros_like(keys), np.zeros_like(query)
                        rest = (mine.copy(), mine_logs.copy(), dout[:, rows, head].copy(), dquery, dkeys, *drop)
                        form.partial_attention_gradient(query, keys, part, *rest)
                        dfound[:, rows, head] += dquery
                        for number, column in enumerate(columns_of):
                            dfound[:, seen, column] += dkeys[:, :, number]
                    else:
                        some, some_logs = np.empty_like(query), np.empty_like(mine_logs)
                        form.partial_attention(query, keys, part, some, some_logs, *drop)
                        form.join(mine, mine_logs, some, some_logs)
        for mine, theirs in ((found, out), (their_logs, logs), (dfound, dqkv)):
            np.testing.assert_allclose(mine, theirs, rtol=50 * TOLERANCE[dtype], atol=50 * TOLERANCE[dtype])
    with pytest.raises(ValueError, match="are not a part like"):
        attention.partial_attention(qkv[:, :5], qkv[:, 5:, :2], Part(8, 0, length, 0, 5), out, logs)


def test_dropped_attention_weights_are_a_function_of_the_sample():
    shape, random = (3, 2, 41), np.random.default_rng(8)
    mask = attention_reference.kept(shape, 5, 2, 10, 0.25)
    assert set(np.unique(mask)) == {0, 1 / 0.75}
    assert mask.mean() == pytest.approx(1, abs=0.03)
    np.testing.assert_array_equal(attention_reference.kept((1, 2, 41), 5, 2, 12, 0.25)[0], mask[2])
    for key, step, first in ((6, 2, 10), (5, 3, 10), (5, 2, 9)):
        assert np.mean(attention_reference.kept(shape, key, step, first, 0.25) != mask) > 0.3
    for one, other in ((mask[0], mask[1]), (mask[:, 0], mask[:, 1]), (mask[..., 0, :], mask[..., 1, :])):
        assert np.mean(one != other) > 0.3
    # Values that are rows of the identity: what comes out are the weights themselves.
    qkv = random.normal(size=(3, 41, 6, 41))
    qkv[:, :, 4:] = np.eye(41)[:, None]
    out, logs = np.empty((3, 41, 2, 41)), np.empty(shape)
    attention.attention(qkv, 2, 2, out, logs)
    weights = out.copy()
    attention.attention(qkv, 2, 2, out, logs, 5, 2, 10, 0.25)
    np.testing.assert_allclose(out, weights * mask.transpose(0, 2, 1, 3), rtol=1e-12)


def test_attention_does_not_look_ahead():
    qkv = np.random.default_rng(3).normal(size=(1, 40, 3, 8))
    outs = []
    for _ in range(2):
        out, logs = np.empty((1, 40, 1, 8)), np.empty((1, 1, 40))
        attention.attention(qkv, 1, 1, out, logs)
        outs.append(out)
        qkv[:, 25:] += 1
    np.testing.assert_array_equal(outs[0][:, :25], outs[1][:, :25])
    assert (outs[0][:, 25:] != outs[1][:, 25:]).all()
    with pytest.raises(ValueError, match=r"3 heads on 2 of keys need \[B, T, 7, d\]"):
        attention.attention(qkv, 3, 2, out, logs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rotary(dtype):
    random = np.random.default_rng(4)
    qkv, turns = random.normal(size=(2, 5, 4, 6)).astype(dtype), random.normal(size=(5, 3)).astype(dtype)
    mine, theirs = qkv.copy(), qkv.copy()
    attention.rotary(mine, 3, np.cos(turns), np.sin(turns))
    attention_reference.rotary(theirs, 3, np.cos(turns), np.sin(turns))
    close(mine, theirs, dtype, 3)
    assert (mine[:, :, 3] == qkv[:, :, 3]).all()
    attention.rotary(mine, 3, np.cos(turns), -np.sin(turns))
    close(mine, qkv, dtype, 3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("positions", [0, 9])
def test_embeddings(dtype, positions):
    random = np.random.default_rng(5)
    table, places = random.normal(size=(11, 7)).astype(dtype), random.normal(size=(positions, 7)).astype(dtype)
    tokens, dy = random.integers(0, 11, (3, 8)), random.normal(size=(3, 8, 7)).astype(dtype)
    results = []
    for form in (dispatch, reference):
        y, dtable, dplaces = np.empty((3, 8, 7), dtype), np.ones_like(table), np.ones_like(places)
        form.embed(tokens, table, places, y)
        form.embed_gradient(tokens, dy, dtable, dplaces)
        results.append((y, dtable, dplaces))
    for mine, theirs in zip(*results, strict=True):
        close(mine, theirs, dtype, 5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dropout_draws_the_same_numbers(dtype):
    key = 2**63 + 5
    whole = np.ones((2, 12), dtype)  # no rest in groups of four words
    mine, theirs = np.empty_like(whole), np.empty_like(whole)
    dispatch.dropout(whole, mine, key, 7, 3, 0.5)
    reference.dropout(whole, theirs, key, 7, 3, 0.5)
    np.testing.assert_array_equal(mine, theirs)
    x = np.ones((4, 1001), dtype)
    mine, theirs = np.empty_like(x), np.empty_like(x)
    for rate in (0.0, 0.3, 0.9):
        dispatch.dropout(x, mine, key, 7, 3, rate)
        reference.dropout(x, theirs, key, 7, 3, rate)
        np.testing.assert_array_equal(mine, theirs)
        assert np.mean(mine == 0) == pytest.approx(rate, abs=0.03)
        np.testing.assert_allclose(mine[mine != 0], 1 / (1 - rate), rtol=1e-6)  # the mean stays
    part = np.empty((1, 1001), dtype)
    simd.dropout(x[:1], part, key, 7, 5, 0.9)
    np.testing.assert_array_equal(part[0], mine[2])
    simd.dropout(x[:1], part, key, 8, 5, 0.9)
    assert (part[0] != mine[2]).any()
