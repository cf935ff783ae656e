"""Vectors in compiled code: every intrinsic on every instruction set of this host; AVX-512 at least compiles."""

from __future__ import annotations

import json
import math
import operator
import os
import subprocess
import sys

import numpy as np
import pytest

import hpckit.kernels.compile.functions  # noqa: F401  (makes functions of vectors known)
from hpckit.kernels.compile import intrinsics
from hpckit.kernels.compile import lanes as vectors
from hpckit.kernels.compile import vectors as simd
from hpckit.kernels.compile.compress import LANES, compressing
from hpckit.kernels.compile.jit import jit
from hpckit.kernels.particles.records.reference import HIGH_SINGLE, type_words

VECTOR_ISAS = [isa for isa in simd.available() if isa != "scalar"]
SHAPES = [("d", 4), ("f", 8)] * bool(VECTOR_ISAS) + [("d", 8), ("f", 16)] * ("avx512" in VECTOR_ISAS)
DTYPE = {"d": np.float64, "f": np.float32}
per_shape = pytest.mark.parametrize(("kind", "n"), SHAPES)


def numbers(kind, count, seed=1):
    """Random numbers whose memory starts at a multiple of 64 bytes, as records must."""
    raw = np.zeros(count * 8 + 64, np.uint8)
    start = -raw.ctypes.data % 64
    aligned = raw[start:].view(np.float64)[:count] if kind == "d" else raw[start:].view(np.float32)[:count]
    aligned[:] = np.random.default_rng(seed).uniform(0.5, 2.0, count)
    return aligned


def test_the_host_has_plain_loops_at_least():
    assert simd.available()[-1] == "scalar"


@per_shape
@pytest.mark.parametrize("op", ["add", "sub", "mul", "truediv"])
def test_arithmetic(kind, n, op):
    function = getattr(operator, op)
    load, store = vectors.lanes(kind, n).load, intrinsics.store

    @jit
    def kernel(a, b, out):
        x, y = load(a, 0), load(b, 1)
        store(out, 0, function(x, y))
        store(out, n, function(x, 4))
        store(out, 2 * n, function(0.5, y))
        store(out, 3 * n, -x)

    a, b, out = numbers(kind, n), numbers(kind, n + 1, 2), np.zeros(4 * n, DTYPE[kind])
    kernel(a, b, out)
    half = DTYPE[kind](0.5)
    expected = [function(a, b[1:]), function(a, DTYPE[kind](4)), function(half, b[1:]), -a]
    # divisions by the same number may become one division and products
    rounding = 2 * np.finfo(DTYPE[kind]).eps if op == "truediv" else 0
    np.testing.assert_allclose(out, np.concatenate(expected), rtol=rounding, atol=0)


@per_shape
def test_comparisons_masks_and_minimum(kind, n):
    lanes, store = vectors.lanes(kind, n), intrinsics.store
    load, broadcast = lanes.load, lanes.broadcast
    select, zero_unless, minimum, bits, count = (
        intrinsics.select,
        intrinsics.zero_unless,
        intrinsics.minimum,
        intrinsics.bits,
        intrinsics.count_ones,
    )
    inf = DTYPE[kind](np.inf)

    @jit
    def kernel(a, b, out, found):
        x, y = load(a, 0), load(b, 0)
        below = x < y
        store(out, 0, select(below, x, y + 10))
        store(out, n, zero_unless(below, broadcast(inf)))
        store(out, 2 * n, minimum(x, y))
        found[0], found[1], found[2], found[3] = bits(below), bits(x >= y), bits(below & (x > 1)), bits(x <= 1.0)
        found[4] = count(bits(below))

    a, b = numbers(kind, n), numbers(kind, n, 2)
    b[1] = a[1]
    out, found = np.zeros(3 * n, DTYPE[kind]), np.zeros(5, np.int64)
    kernel(a, b, out, found)
    masks = [a < b, a >= b, (a < b) & (a > 1), a <= 1]
    expected = [np.where(a < b, a, b + 10), np.where(a < b, inf, 0), np.minimum(a, b)]
    np.testing.assert_array_equal(out, np.concatenate(expected).astype(DTYPE[kind]))
    assert found.tolist() == [int((mask << np.arange(n)).sum()) for mask in masks] + [(a < b).sum()]


@per_shape
def test_sums_over_the_lanes(kind, n):
    load, sum_lanes, store_sums = vectors.lanes(kind, n).load, intrinsics.sum_lanes, intrinsics.store_sums

    @jit
    def kernel(a, out):
        x, y, z, w = load(a, 0), load(a, n), load(a, 2 * n), load(a, 3 * n)
        store_sums(out, 4, x, y, z, w)
        out[0] = sum_lanes(x)

    a, out = np.arange(1.0, 4 * n + 1).astype(DTYPE[kind]), np.zeros(12)
    kernel(a, out)
    sums = a.reshape(4, n).sum(axis=1)
    np.testing.assert_array_equal(out, [sums[0], 0, 0, 0, *sums, 0, 0, 0, 0])


@per_shape
def test_records_gathers_and_tuples_of_numbers(kind, n):
    lanes, store = vectors.lanes(kind, n), intrinsics.store
    load3, load4, load_row = lanes.load_records, lanes.load_records_w, lanes.load_row(3)
    apart = intrinsics.numbers(3, 5)

    @jit
    def kernel(records, entries, out):
        for k, each in enumerate(load4(records, entries, 1)):
            store(out, k * n, each)
        for k, each in enumerate(load3(records, entries, 1)):
            store(out, (4 + k) * n, each)
        for k, each in enumerate(load_row(records, 8)):
            store(out, (7 + k) * n, each)
        out[10 * n], out[10 * n + 1], out[10 * n + 2] = apart(records, 2)

    records = numbers(kind, 4 * 50)
    entries = (4 * np.random.default_rng(3).integers(0, 50, n + 1)).astype(np.int32)
    out = np.zeros(10 * n + 3, DTYPE[kind])
    kernel(records, entries, out)
    each = np.array([records[e : e + 4] for e in entries[1:]]).T
    expected = [each.ravel(), each[:3].ravel(), records[8 : 8 + 3 * n], records[[2, 7, 12]]]
    np.testing.assert_array_equal(out, np.concatenate(expected))


@per_shape
@pytest.mark.parametrize("types", [2, 4, 8, 13])
def test_parameters_are_looked_up_by_type(kind, n, types):
    lanes, store = vectors.lanes(kind, n), intrinsics.store
    near = 2 if kind == "d" else 4
    stride = -(-types // n) * n
    load, load_row, gather = lanes.load, lanes.load_row(2), lanes.gather_row(2, stride)
    lookup = lanes.lookup_row_near(2) if types <= near else lanes.lookup_row(2)

    @jit
    def look_up(table, w, out):
        first, second = lookup(load_row(table, 0), load(w, 0))
        store(out, 0, first)
        store(out, n, second)

    @jit
    def gathered(table, w, out):
        first, second = gather(table, 0, load(w, 0))
        store(out, 0, first)
        store(out, n, second)

    kinds = np.random.default_rng(types).integers(0, types, n)
    w = type_words(kinds) if kind == "d" else (HIGH_SINGLE + kinds).astype(np.int32).view(np.float32)
    table, out = numbers(kind, 2 * stride).reshape(2, stride), np.zeros(2 * n, DTYPE[kind])
    expected = table[:, kinds].ravel()
    gathered(table.ravel(), w, out)
    np.testing.assert_array_equal(out, expected)
    if types <= n:
        if types <= near:
            table[:] = table[:, np.arange(stride) % near]
        look_up(table.ravel(), w, out)
        np.testing.assert_array_equal(out, table[:, kinds].ravel())


@per_shape
def test_pairs_within_reach_are_put_side_by_side(kind, n):
    lanes, store_whole, mask_of = vectors.lanes(kind, n), intrinsics.store_whole, intrinsics.mask_of(n)
    keep, keep_lanes, load, load_each, store = (
        lanes.keep,
        lanes.keep_lanes,
        lanes.load,
        lanes.load_each,
        intrinsics.store,
    )

    @jit
    def kernel(given, values, doubles, word, kept, lanes, each, rows):
        mask, value = mask_of(word), load(values, 1)
        keep(kept, 3, given, 1, mask)
        keep_lanes(lanes, 3, value, mask)
        store(each, 1, load_each(doubles, given, 1))
        store_whole(rows, 2, 1000 * value)

    rng = np.random.default_rng(1)
    given, values, doubles = 4 * rng.permutation(n + 1).astype(np.int32), numbers(kind, n + 1), rng.uniform(1, 2, n + 1)
    for word in (*range(min(1 << n, 256)), *rng.integers(0, 1 << n, 50)):
        kept, rows = np.full(n + 5, -1, np.int32), np.full(n + 5, -1, np.int32)
        lanes, each = np.full(n + 5, -1, DTYPE[kind]), np.full(n + 2, -1, DTYPE[kind])
        kernel(given, values, doubles, word, kept, lanes, each, rows)
        chosen = [1 + lane for lane in range(n) if word >> lane & 1]
        for array, expected in ((kept, given), (lanes, values)):
            np.testing.assert_array_equal(array[3 : 3 + len(chosen)], expected[chosen])
            assert set(array[:3]) | set(array[3 + n :]) == {-1}
        np.testing.assert_array_equal(each[1:-1], doubles[given[1:] // 4].astype(DTYPE[kind]))
        np.testing.assert_array_equal(rows[2:-3], (1000 * values[1:]).astype(np.int32))


@pytest.mark.parametrize("isa", VECTOR_ISAS)
def test_lists_get_the_lanes_that_are_set(isa):
    n, (append, keep, keep_lanes, unlike) = LANES[isa], compressing(isa)
    load, mask_of, bits = vectors.lanes("f", n).load, intrinsics.mask_of(n), intrinsics.bits

    @jit
    def kernel(given, word, out, kept, lanes, floats):
        mask = mask_of(word)
        append(out, 3, np.int32(1000), mask)
        keep(kept, 3, given, 1, mask)
        keep_lanes(lanes, 3, load(floats, 1), mask)
        return bits(unlike(given, 1, given[2], mask))

    given, floats = np.arange(70, 90, dtype=np.int32), np.arange(20, dtype=np.float32)
    rng = np.random.default_rng(1)
    for word in (*range(256), *rng.integers(0, 1 << n, 50)):
        out, kept, lanes = (np.full(3 + n + 2, -1, kind) for kind in (np.int32, np.int32, np.float32))
        left = kernel(given, word, out, kept, lanes, floats)
        chosen = [lane for lane in range(n) if word >> lane & 1]
        assert left & ((1 << n) - 1) == word & ~2
        for array, expected in (
            (out, [1000 + 4 * lane for lane in chosen]),
            (kept, [71 + lane for lane in chosen]),
            (lanes, [1 + lane for lane in chosen]),
        ):
            assert array[3 : 3 + len(chosen)].tolist() == expected
            assert set(array[:3]) | set(array[3 + n :]) == {-1}


@per_shape
def test_rounded_is_kept_as_written(kind, n):
    lanes, store, rounded = vectors.lanes(kind, n), intrinsics.store, intrinsics.rounded
    load, broadcast = lanes.load, lanes.broadcast
    shift = DTYPE[kind](1.5 * 2.0 ** (np.finfo(DTYPE[kind]).nmant - 8))

    @jit(math=frozenset({"reassoc", "contract", "nsz", "arcp"}))
    def kernel(a, out):
        store(out, 0, rounded(load(a, 0) * 3, broadcast(shift)))

    a, out = numbers(kind, n), np.zeros(n, DTYPE[kind])
    kernel(a, out)
    np.testing.assert_array_equal(out, np.rint(a * DTYPE[kind](3) * 256) / 256)


def test_prefetch_may_look_beyond_the_end():
    prefetch = intrinsics.prefetch

    @jit
    def kernel(a):
        prefetch(a, 1 << 40)
        return a[0]

    assert kernel(np.ones(1)) == 1


AVX512 = """
import json
import math
from numba import types as t
from hpckit.kernels.compile import jit as options
options._keep_on_disk = lambda *_: None  # a kernel from disk has no text to look at
from hpckit.kernels.compile import vectors as simd
from hpckit.kernels.particles.cells.simd import list_builder
from hpckit.kernels.particles.lennard_jones.simd import POTENTIAL
from hpckit.kernels.particles.pair.simd import Form, force_kernel
assert simd.available() == ("avx512", "avx2", "scalar"), simd.available()
vector, matrix, places = (t.Array(t.float64, 1, "C"), t.Array(t.float64, 2, "C"), t.Array(t.float32, 2, "C"))
ints, longs = t.Array(t.int32, 1, "C"), t.Array(t.int64, 1, "C")
found = {}
for types, kind in ((1, "d"), (2, "d"), (5, "d"), (12, "d"), (3, "f")):
    kernel = force_kernel(POTENTIAL, Form("avx512", kind, types))
    records = vector if kind == "d" else t.Array(t.float32, 1, "C")
    kernel.compile((ints, records, longs, longs, ints, records, vector, vector))
    found[f"{types}{kind}"] = "".join(kernel.inspect_asm().values())
grid = t.Tuple((vector, vector, longs, vector, longs, vector, vector))
kernel = list_builder("avx512")
given = t.int64, places, matrix, t.float64, vector, t.int64, t.int32, longs, longs, grid, longs, ints
kernel.compile((*given, longs, t.Array(t.int64, 2, "C"), ints))
found["list"] = "".join(kernel.inspect_asm().values())
words = ("zmm", "vgather", "vshuff64x2", "vpermilpd", "vpermilps", "vperm", "vpcompressd")
print(json.dumps({name: {word: text.count(word) for word in words} for name, text in found.items()}))
"""


@pytest.mark.nightly
def test_the_kernels_compile_for_avx512_on_any_host():
    """What LLVM makes of them is looked at, not run: this host need not have the instructions."""
    features = ("avx", "avx2", "fma", "bmi", "bmi2", "popcnt", *(f"avx512{part}" for part in ("f", "vl", "dq", "bw")))
    target = {"NUMBA_CPU_NAME": "skylake-avx512", "NUMBA_CPU_FEATURES": ",".join(f"+{name}" for name in features)}
    command = [sys.executable, "-c", AVX512]
    done = subprocess.run(command, env={**os.environ, **target}, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    for name in ("1d", "2d", "5d", "12d"):
        assert found[name]["zmm"] > 20, name
        assert found[name]["vgather"] == 0, name
        assert found[name]["vshuff64x2"] >= 3, name
    assert found["2d"]["vpermilpd"] >= 2
    assert found["5d"]["vperm"] >= 2
    assert found["3f"]["vpermilps"] >= 2
    assert found["list"]["vpcompressd"] >= 1


@per_shape
def test_angles_have_all_digits_in_every_quarter(kind, n):
    load, store = vectors.lanes(kind, n).load, intrinsics.store

    @jit
    def kernel(y, x, out):
        for first in range(0, len(y), n):
            store(out, first, math.atan2(load(y, first), load(x, first)))

    turns = np.arange(16 * n) / 64 * np.pi  # with the axes and the diagonals between
    y, x = (2.5 * wave(turns) for wave in (np.sin, np.cos))
    y[:4], x[:4] = (0.0, 1e-9, -1e-9, 0.0), (1.0, 1.0, -1.0, 0.0)
    y, x = y.astype(DTYPE[kind]), x.astype(DTYPE[kind])
    out = np.full(len(y), np.nan, DTYPE[kind])
    kernel(y, x, out)
    np.testing.assert_allclose(out, np.arctan2(y, x), rtol=4 * np.finfo(DTYPE[kind]).eps, atol=0)


@per_shape
def test_records_are_stored_as_they_are_loaded(kind, n):
    lanes = vectors.lanes(kind, n)
    load, put = lanes.load, lanes.store_records

    @jit
    def kernel(a, out):
        put(out, 2, load(a, 0), load(a, n), load(a, 2 * n))

    a, out = numbers(kind, 3 * n), np.ones(4 * n + 4, DTYPE[kind])
    kernel(a, out)
    expected = np.vstack([a.reshape(3, n), np.zeros(n)]).T.ravel()
    np.testing.assert_array_equal(out, [1, 1, *expected, 1, 1])
