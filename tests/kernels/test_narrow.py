"""Numbers of 16 bits: every form against ml_dtypes and NumPy, all of the 65536 and all ties between them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from hpckit.kernels.nn.narrow import dispatch, reference, simd

ORACLE = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "float16": np.dtype(np.float16)}
per_kind = pytest.mark.parametrize("kind", dispatch.KINDS)
per_form = pytest.mark.parametrize("form", [reference, simd])


def every(kind):
    """All numbers of a kind as bits, and as float32 by the oracle."""
    bits = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    return bits, bits.view(ORACLE[kind]).astype(np.float32)


def samples(kind):
    """float32 numbers: those of the kind, the ties between neighbors, their float32 neighbors, others of all sizes."""
    numbers = np.sort(every(kind)[1][np.isfinite(every(kind)[1])]).astype(np.float64)
    ties = ((numbers[1:] + numbers[:-1]) / 2).astype(np.float32)
    beyond = np.float32(numbers[-1] + (numbers[-1] - numbers[-2]) / 2)  # rounds to inf
    words = np.random.default_rng(1).integers(0, 1 << 32, 100_001, np.uint32).view(np.float32)
    special = np.array([beyond, -beyond, np.nextafter(beyond, np.float32(0)), np.inf, -np.inf, np.nan, 0, -0.0, 1e-45])
    near = [np.nextafter(ties, np.float32(way)) for way in (np.inf, -np.inf)]
    return np.concatenate([numbers.astype(np.float32), ties, *near, special.astype(np.float32), words])


def same(found, expected):
    """Equal bits, every nan taken as one."""
    nan = np.isnan(found.view(expected.dtype)) & np.isnan(expected)
    np.testing.assert_array_equal(np.where(nan, 0, found), np.where(nan, 0, expected.view(found.dtype)))


@per_kind
@per_form
def test_every_number_and_every_tie_is_that_of_the_oracle(kind, form):
    bits, numbers = every(kind)
    x = np.full(bits.size, np.nan, np.float32)
    form.widen(bits, x, kind)
    same(x.view(np.uint32), numbers)
    x = samples(kind)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = x.astype(ORACLE[kind])
    found = np.zeros(x.size, np.uint16)
    form.narrow(x, found, kind)
    same(found, expected)
    assert set(found[np.isnan(x)].tolist()) == {reference.NAN[kind]}
    rounded = x.copy()
    form.round_to(rounded, kind)
    same(rounded.view(np.uint32), expected.astype(np.float32))


@per_kind
def test_accumulation_rounds_the_sum_once(kind):
    random = np.random.default_rng(2)
    x, start = (random.standard_normal(5001).astype(np.float32) for _ in range(2))
    expected = (start.astype(ORACLE[kind]).astype(np.float32) + x).astype(ORACLE[kind])
    for form in (reference, simd):
        bits = start.astype(ORACLE[kind]).view(np.uint16)
        form.accumulate(bits, x, kind)
        same(bits, expected)


def test_what_is_not_float32_is_refused():
    with pytest.raises(ValueError, match="float32"):
        dispatch.narrowed(np.zeros(3), "bfloat16")
