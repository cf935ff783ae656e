"""Binned sums: as exact as math.fsum where a double can show it, in any order and grouping, and far from overflow."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from hpckit.kernels import sums
from hpckit.kernels.device_array import SimulatedArray
from hpckit.kernels.sums import reference, simd


def whole(values: np.ndarray, squared: bool = False, count: int | None = None) -> float:
    exponent = sums.exponent_above(float(np.abs(values).max(initial=0.0)))
    count = values.size if count is None else count
    return sums.combine(sums.bin_sums(values, exponent, count, squared), exponent, count, squared)


def wild(size: int, seed: int = 0, decades: float = 12) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.choice([-1.0, 1.0], size) * 10 ** rng.uniform(-decades, decades, size)


@pytest.mark.parametrize("size", [0, 1, 7, 1001, 40_013])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_fsum(size, dtype):
    values = wild(size).astype(dtype)
    assert whole(values) == math.fsum(values.tolist())


def test_cancellation_leaves_what_fsum_leaves():
    values = wild(20_011)
    values = np.concatenate([values, [1.0, -3e-9], -values])
    np.random.default_rng(1).shuffle(values)
    assert whole(values) == math.fsum(values.tolist()) == 1.0 - 3e-9


@pytest.mark.parametrize("count", [2**20, 2**40])
def test_error_stays_below_that_of_a_plain_sum_when_the_bins_leave_room_for_more(count):
    values = wild(10_007)
    bound = values.size * np.abs(values).max() * 2.0**-66
    assert abs(whole(values, count=count) - math.fsum(values.tolist())) <= bound + np.spacing(abs(math.fsum(values)))


def test_any_order_and_grouping_gives_the_same_bits():
    values = wild(30_011, seed=3, decades=30)
    exponent = sums.exponent_above(float(np.abs(values).max()))
    expected = sums.bin_sums(values, exponent, values.size)
    rng = np.random.default_rng(4)
    for parts in (1, 2, 3, 5, 17):
        pieces = np.array_split(rng.permutation(values), parts)
        got = sum(sums.bin_sums(piece, exponent, values.size) for piece in pieces)
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("scale", [1e-308, 5e-324, 1e-150, 1.0, 1e150, 1.7e308])
def test_simd_equals_reference_at_every_scale(scale, squared):
    values = wild(1013, decades=5) / 1e5 * scale
    values[0] = scale
    exponent = sums.exponent_above(float(np.abs(values).max()))
    expected = reference.bin_sums(values, exponent, 1013, squared)
    np.testing.assert_array_equal(simd.bin_sums(values, exponent, 1013, squared), expected)
    assert expected.any()


def test_the_bins_hold_two_to_the_forty_of_the_largest_number():
    largest = np.array([np.nextafter(2.0, 0)])
    one = reference.bin_sums(largest, 1, 2**40)
    total = [int(part) * 2**40 for part in one]
    assert all(abs(part) < 2**63 for part in total)
    assert sums.combine(np.array(total, np.int64), 1, 2**40) == 2**40 * largest[0]
    with pytest.raises(ValueError, match=r"0 to 2\*\*40 numbers"):
        sums.bin_sums(largest, 1, 2**40 + 1)


def test_a_sum_beyond_the_largest_double_is_inf():
    assert whole(np.full(3, -1e308)) == -math.inf
    assert whole(np.full(3, 1e200), squared=True) == math.inf


@pytest.mark.parametrize("shape", [(37,), (33, 41), (7, 31, 29), (3, 5, 11, 13), (2, 40, 41, 43)])
def test_views_without_halo_are_summed_in_place(shape):
    data = wild(math.prod(n + 4 for n in shape)).reshape(tuple(n + 4 for n in shape))
    interior = data[tuple(slice(2, -2) for _ in shape)]
    assert whole(interior) == math.fsum(interior.ravel().tolist())
    assert whole(interior[::-2]) == math.fsum(interior[::-2].ravel().tolist())
    assert whole(interior.T) == whole(interior)
    assert whole(interior, squared=True) == pytest.approx(math.fsum((interior**2).ravel().tolist()), rel=1e-15)


def test_what_cannot_be_summed_is_refused():
    with pytest.raises(TypeError, match="float32 or float64, not ndarray of int64"):
        sums.bin_sums(np.arange(3), 2, 3)
    with pytest.raises(TypeError, match="not list"):
        sums.bin_sums([1.0], 2, 3)
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="finite"):
            sums.exponent_above(bad)


def test_sums_of_products_are_exact_in_any_grouping_of_the_rows():
    """Against exact arithmetic, and with more rows than a block holds."""
    x, y = wild(3 * 9001, 5, 3).reshape(-1, 3), wild(2 * 9001, 6, 3).reshape(-1, 2)
    x[:, 1] = 0.0
    count = len(x)
    up, across = (sums.exponents(np.abs(each).max(0)) for each in (x, y))
    expected = sums.product_sums(x, y, up, across, count)
    order = np.random.default_rng(7).permutation(count)
    parts = [sums.product_sums(x[rows], y[rows], up, across, count) for rows in np.array_split(order, 5)]
    np.testing.assert_array_equal(sum(parts), expected)
    on_gpu = sums.product_sums(x.view(SimulatedArray), y.view(SimulatedArray), up, across, count)
    np.testing.assert_array_equal(on_gpu, expected)
    found = sums.combine_products(expected, up, across, count)
    for i, j in np.ndindex(found.shape):
        pairs = zip(x[:, i].tolist(), y[:, j].tolist(), strict=True)
        exact = float(sum((Fraction(a) * Fraction(b) for a, b in pairs), Fraction(0)))
        most = float(np.abs(x[:, i]).max() * np.abs(y[:, j]).max())
        assert abs(found[i, j] - exact) <= count * most * 2.0**-57 + np.spacing(abs(exact))
    wide = sums.product_sums(x, y, up, across, 2**30)  # narrower digits, for more rows over all ranks
    np.testing.assert_allclose(sums.combine_products(wide, up, across, 2**30), found, rtol=1e-11)
