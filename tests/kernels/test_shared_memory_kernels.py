"""The reduction of shared-memory collectives: both forms, all kinds of numbers, against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from hpckit.comm.shared.compiled import reference, simd
from hpckit.comm.shared.compiled.constants import BLOCK, FLOATS, INTEGERS, KINDS, OPS

# A compilation each: every operation, and what treats a kind of number apart. The rest is for the night.
PAIRS = [("float32", op) for op in OPS] + [("float64", "sum"), ("float16", "sum"), ("bfloat16", "average")]
PAIRS += [("int32", "sum"), ("uint8", "max"), ("int64", "min")]
EVERY = [(kind, op) for kind in KINDS for op in OPS if kind in FLOATS or op not in ("mean", "average")]


def parts_of(kind, ranks, count):
    rng = np.random.default_rng([ranks, count])
    if kind in INTEGERS:
        limits = np.iinfo(kind)
        return [rng.integers(limits.min, limits.max, count, dtype=kind, endpoint=True) for _ in range(ranks)]
    values = [
        (rng.standard_normal(count) * 10.0 ** rng.integers(-6, 5, count)).astype(np.float32) for _ in range(ranks)
    ]
    special = [np.inf, np.nan, -0.0, 3e38, 1e-45, 65504.0, -np.inf]
    for rank, part in enumerate(values):
        part[: 7 * (count // 7)].reshape(-1, 7)[::3] = np.roll(special, rank)
    if kind == "bfloat16":
        return [(part.view(np.uint32) >> 16).astype(np.uint16) for part in values]
    with np.errstate(over="ignore"):
        return [part.astype(kind) for part in values]


def check(kind, op):
    for ranks, count in ((1, 5), (2, 0), (2, 1), (2, 3 * BLOCK + 7), (3, BLOCK), (5, 2 * BLOCK + 1)):
        parts = parts_of(kind, ranks, count)
        factors = np.arange(1.0, ranks + 1) / (ranks * (ranks + 1) / 2)
        given, expected = (form.fold(parts, op, factors, kind) for form in (simd, reference))
        assert given.dtype == expected.dtype
        wide = [reference.widen(values, kind) for values in (given, expected)]
        assert np.array_equal(np.isnan(wide[0]), np.isnan(wide[1]))
        same = np.equal(*(array.view(np.uint8).reshape(count, array.itemsize) for array in (given, expected)))
        assert (same.all(axis=1) | np.isnan(wide[0]) | (wide[0] == 0) & (wide[1] == 0)).all(), (kind, op, ranks)


@pytest.mark.parametrize(("kind", "op"), PAIRS)
def test_both_forms_give_the_same_bits(kind, op):
    check(kind, op)


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "op"), [pair for pair in EVERY if pair not in PAIRS])
def test_both_forms_give_the_same_bits_in_every_pairing(kind, op):
    check(kind, op)


def test_the_reference_is_what_numpy_says():
    parts = [np.array([1.0, 2.0, 3e8], np.float32), np.array([0.5, -2.0, 1.0], np.float32), np.ones(3, np.float32)]
    assert reference.fold(parts, "sum").tolist() == [2.5, 1.0, float(np.float32(3e8))]
    assert reference.fold(parts, "max").tolist() == np.max(parts, axis=0).tolist()
    assert reference.fold(parts, "mean").tolist() == (np.sum(parts, axis=0) / np.float32(3)).tolist()
    assert reference.fold(parts, "average", [0.5, 0.25, 0.25]).tolist() == [0.875, 0.75, 1.5e8]
    bits = [np.array([0x3F80, 0x4000], np.uint16)] * 3  # 1 and 2 in bfloat16
    assert reference.fold(bits, "sum", kind="bfloat16").tolist() == [0x4040, 0x40C0]  # 3 and 6


def test_halves_are_rounded_once():
    tiny = np.float16(2.0**-11)  # half an ulp of 1: lost if every addition rounded, and half to even in the end
    parts = [np.array([value], np.float16) for value in (1.0, tiny, tiny, tiny)]
    assert simd.fold(parts, "sum")[0] == np.float16(1 + 3 * 2.0**-11)


@pytest.mark.parametrize(("kind", "op"), [("int32", "mean"), ("float32", "product"), ("complex64", "sum")])
def test_what_cannot_be_reduced_is_refused(kind, op):
    with pytest.raises(TypeError, match=kind if op != "product" else op):
        simd.reducer(kind, op)
