"""Pieces of loops over neighbor lists: sums with and without rounding, and what numbers have in place of vectors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hpckit.kernels.compile import intrinsics
from hpckit.kernels.compile import lanes as vectors
from hpckit.kernels.compile import vectors as simd
from hpckit.kernels.compile.jit import FUSED, STRICT, inlined, jit
from hpckit.kernels.particles.pair.potential import Form

AHEAD = 2048  # entries of a list, ahead of the loop
REORDERED = FUSED | {"reassoc", "arcp"}  # what vectors of `kernels.compile.vectors` may have done to them

# Forces that are added without rounding are cut into two parts on fixed scales (Demmel and Nguyen, IEEE Trans. Comput.
# 64, 2015): a multiple of 2^-28, and a multiple of 2^-70 for the rest. Sums of multiples are exact below 2^53 of their
# unit: up to 2^25 units of force, and 2^12 neighbors.
COARSE, FINE = 1.5 * 2.0 ** (52 - 28), 1.5 * 2.0 ** (52 - 70)


def sums(form: Form) -> tuple:
    """What sums over neighbors are made of: `nothing()` is an empty sum, `add(sum, x, y)` adds x y to it, `store(array,
    index, a, b, c, d)` stores four, and `total(sum)` is the number.
    """
    scalar = form.isa == "scalar"
    number = np.float32 if form.kind == "f" else np.float64
    broadcast = itself if scalar else vectors.lanes(form.kind, form.lanes).broadcast
    of_lanes = itself if scalar else intrinsics.sum_lanes

    @inlined
    def zero():
        return broadcast(number(0.0))

    if not form.exact:
        return zero, _add, store_numbers if scalar else intrinsics.store_sums, of_lanes
    rounded = rounded_number if scalar else intrinsics.rounded

    @inlined
    def two_zeros():
        return broadcast(number(0.0)), broadcast(number(0.0))

    @inlined(math=REORDERED)
    def add_exactly(sums, factor, other):
        product = factor * other
        coarse = rounded(product, broadcast(COARSE))
        return sums[0] + coarse, sums[1] + rounded(product - coarse, broadcast(FINE))

    @inlined(math=REORDERED)
    def total_exactly(sums):
        return of_lanes(sums[0]) + of_lanes(sums[1])

    @inlined(math=REORDERED)
    def store_exactly(array, index, x, y, z, w):
        array[index], array[index + 1] = total_exactly(x), total_exactly(y)
        array[index + 2], array[index + 3] = total_exactly(z), total_exactly(w)

    return two_zeros, add_exactly, store_exactly, total_exactly


@inlined(math=REORDERED)
def _add(total, factor, other):
    return total + factor * other


@inlined
def type_of_double(w):
    """The type in w of a record."""
    return (np.float64(w).view(np.int64) & 0xFFFFFFFF) >> 1


@inlined
def type_of_float(w):
    """The type in w of a float32 record."""
    return np.int64(np.float32(w).view(np.int32) & (simd.MOST_TYPES - 1))


# ---- the same pieces for numbers


@inlined
def load_one(records, entries, k):
    """The record of a list's entry."""
    j = np.uint64(np.uint32(entries[np.uint64(k)]))  # a signed index may be negative: the test for it takes as long
    return records[j], records[j + np.uint64(1)], records[j + np.uint64(2)], records[j + np.uint64(3)]


@inlined
def itself(value):
    """A number in all lanes."""
    return value


@inlined
def put_number(array, index, value):
    """`vectors.store` of a number."""
    array[index] = value


@inlined
def zero_unless_number(within, value):
    """`vectors.zero_unless` of a number."""
    return value if within else 0.0


@inlined
def smaller(first, second):
    """`vectors.minimum` of numbers."""
    return min(first, second)


@inlined
def no_prefetch(entries, k):
    """Nothing: plain loops are not that fast."""


@inlined
def store_numbers(array, index, x, y, z, w):
    """`vectors.store_sums` of numbers."""
    array[index], array[index + 1], array[index + 2], array[index + 3] = x, y, z, w


@jit(math=STRICT)
def rounded_number(value, shift):
    """`simd.rounded` of a number; compiled by itself, so that the caller's freedom to reorder ends here."""
    return (value + shift) - shift


@inlined
def coarse_and_fine(value):
    """The parts of a value on the grids of an exact sum: they add up without rounding, in any order."""
    coarse = rounded_number(value, COARSE)
    return coarse, rounded_number(value - coarse, FINE)


class LoopPieces(NamedTuple):
    """What the loops are made of: vectors of a form (`lanes.LaneIntrinsics`), or numbers. `load` has w only of several
    types, `load_four` always.
    """

    load: Any
    broadcast: Any
    load_lanes: Any
    keep: Any
    keep_lanes: Any
    ones: Any
    types: Any
    zero_unless: Any
    minimum: Any
    prefetch: Any
    load_each: Any
    load_four: Any


def pieces(form: Form) -> LoopPieces:
    """What loops over the neighbors in a list are made of, for a form."""
    if form.isa == "scalar":
        of_word = type_of_float if form.kind == "f" else type_of_double

        @inlined
        def type_number(w):
            return float(of_word(w))

        numbers = load_one, itself, _number_at, _keep_entry, _keep_number, _one, type_number
        return LoopPieces(*numbers, zero_unless_number, smaller, no_prefetch, _value_of, load_one)
    it = vectors.lanes(form.kind, form.lanes)
    bits, count_ones = intrinsics.bits, intrinsics.count_ones

    @inlined
    def ones(mask):
        return count_ones(bits(mask))

    load = it.load_records_w
    if form.types == 1:
        load_records = it.load_records

        @inlined
        def load(records, entries, k):
            x, y, z = load_records(records, entries, k)
            return x, y, z, z

    many = load, it.broadcast, it.load, it.keep, it.keep_lanes, ones, it.types
    return LoopPieces(
        *many, intrinsics.zero_unless, intrinsics.minimum, intrinsics.prefetch, it.load_each, it.load_records_w
    )


@inlined
def _number_at(array, k):
    return array[k]


@inlined
def _keep_entry(out, m, array, k, within):
    out[m] = array[k]


@inlined
def _keep_number(out, m, value, within):
    out[m] = value


@inlined
def _one(within):
    return 1 if within else 0


@inlined
def _value_of(array, entries, k):
    return array[entries[k] >> 2]
