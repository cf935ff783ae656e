"""Products in a fixed order: the tile against its reference, to the bit; rows that do not depend on each other."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from conftest import by_day

from hpckit.kernels.compile.vectors import available
from hpckit.kernels.nn.tile import dispatch, reference, simd
from hpckit.kernels.nn.tile.packed import KINDS, to_blocks

SHAPES = [(1, 1, 1), (1, 35, 300), (3, 33, 100), (13, 70, 45), (5, 64, 17)]  # M, K, N
AVX2 = "+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+popcnt,+lzcnt"
per_kind = pytest.mark.parametrize("kind", by_day(KINDS, "float32", "bfloat16"))


def matrices(kind, rows, inputs, outputs, seed=0):
    """Rows of magnitudes far apart, so that another order of additions gives other bits; and a weight."""
    random = np.random.default_rng([seed, rows, inputs, outputs])
    dtype = KINDS[kind].sums
    a = random.standard_normal((rows, inputs)) * 10.0 ** random.integers(-5, 5, (rows, inputs))
    return a.astype(dtype), random.standard_normal((inputs, outputs)).astype(dtype)


def product(form, a, packed, *rest):
    out = np.full((len(a), packed.outputs), np.nan, a.dtype)
    form.multiply(a, packed, out, False, *rest)
    return out


@per_kind
def test_the_tile_has_the_bits_of_the_reference(kind):
    for rows, inputs, outputs in SHAPES:
        a, weight = matrices(kind, rows, inputs, outputs)
        packed, oracle = simd.pack(weight, kind), reference.pack(weight, kind)
        np.testing.assert_array_equal(reference.unpack(packed), reference.unpack(oracle))
        for bounds in (None, np.array([0, 0, inputs // 3, inputs // 2, inputs, inputs])):
            np.testing.assert_array_equal(product(simd, a, packed, bounds), product(reference, a, oracle, bounds))
        out = np.ones((rows, outputs), a.dtype)
        dispatch.multiply(a, packed, out, True)
        np.testing.assert_array_equal(out, 1 + product(reference, a, oracle))


@per_kind
def test_no_row_depends_on_the_number_of_rows_or_on_its_place(kind):
    random = np.random.default_rng(1)
    for _ in range(3):
        inputs, outputs = (int(n) for n in random.integers(1, 300, 2))
        a, weight = matrices(kind, 61, inputs, outputs)
        packed = simd.pack(weight, kind)
        whole, order = product(simd, a, packed), random.permutation(61)
        np.testing.assert_array_equal(product(simd, a[order], packed), whole[order])
        for rows in (1, 2, 3, 5, 8, 11, 12, 13, 26, 60):
            np.testing.assert_array_equal(product(simd, a[:rows], packed), whole[:rows])
    wide = simd.pack(np.repeat(weight, 3, axis=1), kind)  # nor a column on those beside it
    np.testing.assert_array_equal(product(simd, a, wide), np.repeat(whole, 3, axis=1))


@pytest.mark.parametrize("kind", by_day(["q8_0", "q4_0"], "q8_0"))
def test_whole_numbers_at_their_ends_are_summed_exactly(kind):
    random = np.random.default_rng(3)
    inputs, outputs = 96, 70
    blocks = np.zeros((outputs, inputs // 32, 34 if kind == "q8_0" else 18), np.uint8)
    blocks[..., 1] = 0x3C  # a scale of 1
    ends = [0x80, 0x7F] if kind == "q8_0" else [0x00, 0xFF]
    blocks[..., 2:] = random.choice(ends, blocks[..., 2:].shape)
    a = random.choice(np.array([-127, 127], np.float32), (13, inputs))
    a[0], blocks[0, :, 2:] = -127, ends[0]
    found = product(simd, a, simd.pack_gguf(blocks, kind))
    np.testing.assert_array_equal(found, product(reference, a, reference.pack_gguf(blocks, kind)))
    assert found[0, 0] == 127 * inputs * (128 if kind == "q8_0" else 8)


def test_many_rows_in_several_blocks_and_slabs():
    a, weight = matrices("float32", 130, 3001, 40)
    packed = simd.pack(weight, "float32")
    whole = product(simd, a, packed)
    np.testing.assert_array_equal(whole[77:78], product(simd, a[77:78], packed))
    np.testing.assert_array_equal(whole[::50], product(reference, a[::50], packed))


@pytest.mark.parametrize("kind", by_day(["float32", "float64"], "float32"))
def test_the_products_of_training_take_transposes(kind):
    x, weight = matrices(kind, 37, 50, 70)
    dy, _ = matrices(kind, 37, 70, 1)
    products = {
        "forward": (x, weight),
        "input": (dy, weight.T),  # dX = dY W^T
        "weight": (x.T, dy),  # dW = X^T dY, summed over the batch in parts
    }
    for name, (one, other) in products.items():
        bounds = np.linspace(0, one.shape[1], 9).astype(int)
        plain = product(reference, np.ascontiguousarray(one), reference.pack(other, kind), bounds)
        np.testing.assert_array_equal(product(simd, one, simd.pack(other, kind), bounds), plain, err_msg=name)
        np.testing.assert_allclose(plain, one.astype(float) @ other.astype(float), rtol=1e-4, atol=1e-2)
    # Parts that ranks hold add up to the bits of one rank: aligned halves of eight parts.
    halves = [x.T[:, :20], x.T[:, 20:]]
    ends = np.array([0, 5, 10, 15, 20, 25, 30, 34, 37])
    whole = product(simd, x.T, simd.pack(dy, kind), ends)
    parts = [
        product(simd, half, simd.pack(rows, kind), part)
        for half, rows, part in zip(halves, (dy[:20], dy[20:]), (ends[:5], ends[4:] - 20), strict=True)
    ]
    np.testing.assert_array_equal(parts[0] + parts[1], whole)


@per_kind
def test_nothing_is_a_size_too(kind):
    for rows, inputs, outputs in ((0, 5, 5), (5, 0, 5), (5, 5, 0)):
        a, weight = matrices(kind, rows, inputs, outputs)
        for form in (simd, reference):
            np.testing.assert_array_equal(product(form, a, form.pack(weight, kind)), np.zeros((rows, outputs)))


def test_a_fused_sum_is_rounded_once():
    random = np.random.default_rng(2)
    for dtype in (np.float32, np.float64):
        x, y, z = (random.standard_normal(400).astype(dtype) for _ in range(3))
        z[::2] = -(x * y)[::2] * dtype(1 + np.finfo(dtype).eps)  # what is left are the last bits
        found = reference.fused(x, y, z)
        for n in range(400):
            exact = Fraction(float(x[n])) * Fraction(float(y[n])) + Fraction(float(z[n]))
            near = [found[n], *np.nextafter(found[n], dtype([np.inf, -np.inf]))]
            errors = [abs(Fraction(float(each)) - exact) for each in near]
            assert errors[0] == min(errors)


def test_blocks_are_those_of_gguf_files():
    """Written by hand as ggml lays them out: a float16 scale, then numbers; a byte of q4_0 has numbers j and j + 16."""
    _, weight = matrices("q8_0", 1, 96, 7)
    weight[32:64, 2] = 0
    for kind in ("q8_0", "q4_0"):
        whole, scale = to_blocks(weight, kind)
        largest = 127 if kind == "q8_0" else 8
        assert (np.abs(whole).max(axis=1)[scale != 0] == largest).all()
        rows, numbers = np.ascontiguousarray(scale.T)[:, :, None].view(np.uint8), whole.transpose(2, 0, 1)
        if kind == "q4_0":
            low, high = np.split((numbers + 8).astype(np.uint8), 2, axis=2)
            numbers = low | high << 4
        data = np.concatenate([rows, numbers.view(np.uint8)], axis=2)
        given, own = dispatch.pack_gguf(data, kind), dispatch.pack(weight, kind)
        np.testing.assert_array_equal(given.panels, own.panels)
        wide = 0.5 if kind == "q8_0" else 1.0  # there is no 8: the largest number of the other sign is cut
        steps = np.repeat(np.abs(scale.astype(np.float32)), 32, axis=0)
        assert (np.abs(reference.unpack(given) - weight) <= wide * 1.01 * steps + 1e-3).all()


def digest(kinds):
    """A fingerprint of products of these kinds, with many rows and few."""
    found = hashlib.sha256()
    for kind in kinds:
        a, weight = matrices(kind, 29, 130, 75)
        found.update(product(simd, a, simd.pack(weight, kind), np.array([0, 32, 96, 130])).tobytes())
        found.update(product(simd, a[:1], simd.pack(weight, kind)).tobytes())
    return found.hexdigest()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "features", "kinds"), [("haswell", AVX2, tuple(KINDS)), ("x86-64", "+sse2", tuple(KINDS))]
)
def test_other_registers_give_the_same_bits(name, features, kinds):
    """Compiled for AVX2, and for none of the vectors that have fused multiply-adds."""
    if "avx2" not in available():
        pytest.skip("this processor has no AVX2")
    code = f"from test_tile import available, digest; print(available()[0], digest({kinds}))"
    here = os.path.dirname(__file__)
    path = os.pathsep.join((here, os.path.dirname(here)))  # of this file and of conftest
    environment = {**os.environ, "NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    isa, found = done.stdout.split()
    assert isa == ("avx2" if name == "haswell" else "scalar")
    assert found == digest(kinds)


def test_what_does_not_fit_is_refused():
    a, weight = matrices("float32", 3, 40, 5)
    packed, out = dispatch.pack(weight), np.zeros((3, 5), np.float32)
    assert packed.kind == "float32"
    with pytest.raises(ValueError, match=r"no kind 'int4' .* q8_0"):
        dispatch.pack(weight, "int4")
    with pytest.raises(ValueError, match="float32 or float64"):
        dispatch.pack(weight.astype(np.float16))
    with pytest.raises(ValueError, match=r"\[3, 39\] times"):
        dispatch.multiply(a[:, 1:], packed, out)
    with pytest.raises(ValueError, match="float64"):
        dispatch.multiply(a.astype(np.float64), packed, out)
    with pytest.raises(ValueError, match="from 0 to 40"):
        dispatch.multiply(a, packed, out, False, np.array([0, 20, 10, 40]))
    with pytest.raises(ValueError, match="34"):
        dispatch.pack_gguf(np.zeros((5, 2, 18), np.uint8), "q8_0")


@per_kind
def test_panels_go_where_they_are_wanted(kind):
    _, weight = matrices(kind, 1, 70, 45)
    for form in (dispatch, reference):
        expected = form.pack(weight, kind).panels
        room = np.full((len(expected) + 2, *expected.shape[1:]), 77, expected.dtype)
        assert form.pack(weight, kind, room[1:-1]).panels.base is room
        np.testing.assert_array_equal(room[1:-1], expected)
        assert (room[[0, -1]] == 77).all()
        with pytest.raises(ValueError, match="contiguous"):
            form.pack(weight, kind, room)
