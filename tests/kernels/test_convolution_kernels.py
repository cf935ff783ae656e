"""Patches and pooling: against a loop over cells, both forms with the same bits, adjoints by the inner product."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hpckit.kernels.nn.convolution import dispatch, reference, simd

CASES = [(1, 0, (3, 3)), (1, 1, (3, 3)), (2, 1, (3, 5)), (3, 2, (5, 2)), (2, 0, (1, 1))]


def images(shape, dtype, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(("stride", "padding", "kernel"), CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_patches(stride, padding, kernel, dtype):
    image = images((2, 7, 11, 3), dtype)
    sizes = [dispatch.out_size(n, k, stride, padding) for n, k in zip((7, 11), kernel, strict=True)]
    patches = np.full((2, *sizes, *kernel, 3), np.nan, dtype)
    dispatch.gather_patches(patches, image, stride, padding)
    expected = np.zeros_like(patches)
    for n, y, x, i, j in itertools.product(range(2), *map(range, (*sizes, *kernel))):
        row, column = y * stride + i - padding, x * stride + j - padding
        if 0 <= row < 7 and 0 <= column < 11:
            expected[n, y, x, i, j] = image[n, row, column]
    np.testing.assert_array_equal(patches, expected)
    written = np.full_like(patches, np.nan)
    reference.gather_patches(written, image, stride, padding)
    np.testing.assert_array_equal(written, expected)
    weights = images(patches.shape, dtype, 2)
    one, other = images(image.shape, dtype, 3), images(image.shape, dtype, 3)
    reference.add_patches(one, weights, stride, padding)
    simd.add_patches(other, weights, stride, padding)
    np.testing.assert_array_equal(one, other)
    added = (one - images(image.shape, dtype, 3)).astype(np.float64)
    inner = (weights.astype(np.float64) * expected).sum()
    assert (added * image).sum() == pytest.approx(inner, rel=1e-4 if dtype == np.float32 else 1e-11)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_pooling(size):
    image = images((2, 7, 11, 3), np.float32)
    image[0, :2, :2] = 0.5  # equals: the first counts
    shape = (2, 7 // size, 11 // size, 3)
    for form in (reference, simd):
        out, place = np.full(shape, np.nan, np.float32), np.full(shape, 99, np.uint8)
        form.max_pool(out, place, image, size)
        for n, y, x, c in itertools.product(*map(range, shape)):
            window = image[n, y * size : (y + 1) * size, x * size : (x + 1) * size, c]
            assert out[n, y, x, c] == window.max()
            assert place[n, y, x, c] == window.argmax()
        back = np.full_like(image, np.nan)
        form.max_pool_back(back, out, place, size)
        assert back.sum(dtype=np.float64) == pytest.approx(out.sum(dtype=np.float64))
        again = np.zeros(shape, np.float32)
        form.max_pool(again, place.copy(), np.where(back == 0, np.float32(-9), back), size)
        np.testing.assert_array_equal(again, out)
    image[1, 0, 1] = image[1, 1, 0] = np.nan  # what is no number is not passed over, and the first of two counts
    found = np.zeros((2, *shape), np.float32), np.zeros((2, *shape), np.uint8)
    for number, form in enumerate((reference, simd)):
        form.max_pool(found[0][number], found[1][number], image, size)
    assert np.isnan(found[0][0]).any()
    for mine, theirs in found:
        np.testing.assert_array_equal(mine, theirs)


def test_wrong_shapes_are_refused():
    image = np.zeros((2, 7, 11, 3))
    with pytest.raises(ValueError, match="do not fit"):
        dispatch.gather_patches(np.zeros((2, 5, 9, 3, 3, 2)), image)
    with pytest.raises(ValueError, match="do not fit"):
        dispatch.add_patches(image, np.zeros((2, 0, 4, 8, 8, 3)))
    with pytest.raises(TypeError, match="float32 or float64"):
        dispatch.add_patches(image, np.zeros((2, 5, 9, 3, 3, 3), np.float32))
    with pytest.raises(ValueError, match="pooling"):
        dispatch.max_pool(np.zeros((2, 3, 5, 2)), np.zeros((2, 3, 5, 3), np.uint8), image, 2)
    strided = np.zeros((2, 11, 7, 3)).transpose(0, 2, 1, 3)
    dispatch.max_pool(np.zeros((2, 3, 5, 3)), np.zeros((2, 3, 5, 3), np.uint8), strided, 2)
