"""Numba kernels of networks against NumPy's, float32 and float64, odd sizes."""

from __future__ import annotations

import numpy as np
import pytest

from hpckit.kernels.nn import dispatch, matmul, memory, reference, simd
from hpckit.kernels.nn.matmul import _form, multiply
from hpckit.kernels.nn.tile import reference as tile_reference
from hpckit.kernels.nn.tile import whole

TOLERANCE = {np.float32: 3e-6, np.float64: 1e-13}
DTYPES = [np.float32, np.float64]


def close(given, wanted, dtype, scale=1.0):
    np.testing.assert_allclose(given, wanted, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * scale)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_erf", "silu"])
def test_activations(name, dtype):
    x = np.concatenate([np.linspace(-30, 30, 1001), [0.0, -200.0, 200.0, 1e-20]]).astype(dtype)
    mine, theirs = x.copy(), x.copy()
    y, wanted = np.empty_like(x), np.empty_like(x)
    getattr(simd, name)(mine, y)
    getattr(reference, name)(theirs, wanted)
    close(y, wanted, dtype)
    close(mine, theirs, dtype)
    for bad in (np.nan, np.inf):
        x = np.full(3, bad, dtype)
        getattr(simd, name)(x, y[:3])
        assert not np.isfinite(y[:3]).any()


def test_the_exact_gelu_is_the_normal_distribution_and_the_other_near_it():
    x = np.array([-6.0, -1.0, 0.5, 1.0, 2.0])
    wanted = [-6 * 9.865876450376981e-10, -0.15865525393145707, 0.34573123063700656, 0.8413447460685429]
    exact, near, slope = np.empty_like(x), np.empty_like(x), x.copy()
    dispatch.gelu_erf(slope, exact)
    np.testing.assert_allclose(exact, [*wanted, 1.9544997361036416], rtol=1e-12)
    dispatch.gelu(x.copy(), near)
    assert 1e-5 < np.abs(near - exact).max() < 1e-3


@pytest.mark.parametrize("dtype", DTYPES)
def test_swiglu(dtype):
    gate, up = np.random.default_rng(0).normal(0, 4, (2, 77)).astype(dtype)
    mine, theirs, y, wanted = (gate.copy(), up.copy()), (gate.copy(), up.copy()), np.empty_like(gate), gate.copy()
    simd.swiglu(*mine, y)
    reference.swiglu(*theirs, wanted)
    close(y, wanted, dtype, 10)
    close(mine, theirs, dtype, 10)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_router_takes_the_largest_scores_and_of_equal_ones_the_first(dtype):
    scores = np.random.default_rng(2).normal(0, 9, (13, 7)).astype(dtype)
    scores[3:6] = np.round(scores[3:6] / 9)  # many are equal
    for count in (1, 3, 7):
        chosen, wanted = np.empty((2, 13, count), np.int64)
        shares, expected = np.empty((2, 13, count), dtype)
        dispatch.choose(scores, chosen, shares)
        reference.choose(scores, wanted, expected)
        np.testing.assert_array_equal(chosen, wanted)
        close(shares, expected, dtype, 10)


@pytest.mark.parametrize("dtype", DTYPES)
def test_cross_entropy_with_padding_and_targets_left_out(dtype):
    random = np.random.default_rng(1)
    logits = random.normal(0, 20, (13, 16)).astype(dtype)
    logits[1::3] += 300  # exp overflows but for the maximum that is taken off
    logits[:, 11:] = 1000  # padding: must not be seen
    targets = random.integers(0, 11, 13)
    targets[[2, 12]] = -1
    mine, theirs, inverse, wanted = logits.copy(), logits.copy(), np.empty(13, dtype), np.empty(13, dtype)
    loss = simd.cross_entropy(mine, targets, 11, inverse)
    assert loss == pytest.approx(reference.cross_entropy(theirs, targets, 11, wanted), rel=TOLERANCE[dtype])
    simd.cross_entropy_gradient(mine, targets, inverse, 0.25)
    reference.cross_entropy_gradient(theirs, targets, wanted, 0.25)
    close(mine, theirs, dtype)
    close(mine.sum(axis=1), 0, dtype)
    assert not mine[[2, 12]].any()
    assert not mine[:, 11:].any()
    assert mine[0].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_optimizers_over_parts(dtype):
    random = np.random.default_rng(2)
    start = random.normal(size=(4, 48)).astype(dtype)
    start[3] = np.abs(start[3])
    bounds, decays = np.array([0, 16, 48]), np.array([0.9, 1.0], dtype)
    for name, count, settings in (
        ("adamw", 4, [0.5, 0.9, 0.99, 0.1, 0.01, 0.02, 3.0, 1e-8]),
        ("momentum", 3, [0.5, 0.9, 0.02, 0.0]),
        ("momentum", 3, [0.5, 0.9, 0.02, 1.0]),
    ):
        mine, theirs = start.copy(), start.copy()
        numbers = np.array(settings, dtype)
        getattr(simd, name)(*mine[:count], bounds, decays, numbers)
        getattr(reference, name)(*theirs[:count], bounds, decays, numbers)
        close(mine, theirs, dtype)
        assert (mine[0] != start[0]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums(dtype):
    x = np.random.default_rng(3).normal(size=(11, 7)).astype(dtype)
    mine, theirs = np.ones(7, dtype), np.ones(7, dtype)
    dispatch.add_columns(x, mine)
    reference.add_columns(x, theirs)
    close(mine, theirs, dtype)
    assert dispatch.squared_sum(x) == pytest.approx(reference.squared_sum(x), rel=1e-14)


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_add_to_what_is_there(dtype, monkeypatch):
    random = np.random.default_rng(4)
    a, b = random.normal(size=(5, 7)).astype(dtype), random.normal(size=(7, 3)).astype(dtype)
    wide = random.normal(size=(7, 9)).astype(dtype)
    for form in ("blas", "numpy"):
        if form == "numpy":
            monkeypatch.setattr("hpckit.kernels.nn.matmul._gemm", lambda name: None)
        for left in (a, np.asfortranarray(a)):
            for right in (b, np.asfortranarray(b), wide[:, 2:5], wide[:, 4:5]):
                out = np.ones((5, right.shape[1]), dtype)
                multiply(left, right, out, add=True)
                close(out, 1 + left @ right, dtype, 10)
                multiply(left, right, out)
                close(out, left @ right, dtype, 10)
        multiply(a[:1], b, out := np.ones((1, 3), dtype), add=True)
        close(out, 1 + a[:1] @ b, dtype, 10)
    with pytest.raises(ValueError, match="contiguous rows or columns"):
        _form(wide[:, ::2])


def test_products_of_whole_matrices_are_one_chain_in_the_order_of_k():
    """Begun with nothing, a bias, what a residual carries, both, or what is there; to the bit, also by two threads."""
    if matmul._tile() is None:
        pytest.skip("products are NumPy's BLAS on this processor")
    random = np.random.default_rng(5)
    for rows, inner, columns in ((16, 16, 16), (49, 521, 133), (61, 19, 290), (581, 18, 131)):
        a, b, there, bias = (
            random.standard_normal(shape).astype(np.float32) * random.choice([1e-3, 1, 1e3], shape).astype(np.float32)
            for shape in ((rows, inner), (inner, columns), (rows, columns), (columns,))
        )
        for begun in ({}, {"add": True}, {"bias": bias}, {"onto": there}, {"bias": bias, "onto": there}):
            start = bias if "bias" in begun else np.float32(0)
            wanted = np.broadcast_to(there + start if {"onto", "add"} & begun.keys() else start, there.shape)
            for k in range(inner):
                wanted = tile_reference.fused(a[:, k, None], b[None, k], wanted)
            for left in (a, np.asfortranarray(a)):
                for right in (b, np.asfortranarray(b)):
                    wide = np.full((rows + 1, columns + 9), 7, np.float32)
                    out = wide[:rows, :columns]
                    out[...] = there
                    multiply(left, right, out, **begun)
                    np.testing.assert_array_equal(out, wanted)
                    assert (wide[rows] == 7).all()
                    assert (wide[:, columns:] == 7).all()


def test_threads_share_a_product_with_the_same_bits(monkeypatch):
    if matmul._tile() is None:
        pytest.skip("products are NumPy's BLAS on this processor")
    random, out = np.random.default_rng(6), {}
    for shape in ((300, 170, 190), (170, 300, 190)):
        a, b = (random.standard_normal(size).astype(np.float32) for size in ((shape[0], shape[2]), shape[:0:-1]))
        onto, bias = random.standard_normal(shape[:2]).astype(np.float32), b[0, : shape[1]].copy()
        for threads in (1, 3):
            monkeypatch.setattr(matmul, "_threads", lambda threads=threads: threads)
            out[threads] = np.empty(shape[:2], np.float32)
            multiply(a, b, out[threads], bias=bias, onto=onto)
        np.testing.assert_array_equal(out[1], out[3])
        close(out[1], a.astype(float) @ b + bias + onto, np.float32, 100)


def test_one_thread_compiles_the_product_before_several_ask_for_it(monkeypatch):
    if matmul._tile() is None:
        pytest.skip("products are NumPy's BLAS on this processor")
    kernel = whole.multiplier.__wrapped__()
    monkeypatch.setattr(whole, "multiplier", lambda: kernel)
    by_tile = matmul._tile.__wrapped__()
    assert len(kernel.signatures) == 1
    a = np.ones((20, 20), np.float32)
    for begun in ((True, None, None), (False, a[0], None), (False, None, a), (False, a[0], a)):
        by_tile(a, np.asfortranarray(a), np.ones((20, 20), np.float32), *begun)
    assert len(kernel.signatures) == 1


def test_memory_is_used_again_only_when_nothing_looks_at_it():
    like = np.empty(0, np.float32)
    first = memory.empty((300, 100), like)
    first[...] = 1
    place, view = first.__array_interface__["data"][0], first[1:].reshape(-1)[5:]
    del first
    second = memory.empty((300, 100), like)
    assert second.__array_interface__["data"][0] != place
    second[...] = 2
    assert (view == 1).all()
    del view
    assert memory.empty((300, 100), like).__array_interface__["data"][0] == place
    assert memory.kept_bytes() > 0
    memory.release()
    assert memory.kept_bytes() == 0


def test_what_layers_refuse():
    with pytest.raises(TypeError, match="float32 or float64, not ndarray of int64"):
        dispatch.relu(np.arange(3), np.arange(3))
    with pytest.raises(ValueError, match="C-contiguous"):
        dispatch.relu(np.ones((4, 4))[:, ::2], np.ones((4, 2)))
