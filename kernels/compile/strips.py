"""Strips of a grid side by side in a vector, one a lane, so that the western neighbor of a vector is another vector.

A stencil along x needs neither shuffles nor unaligned loads then: what was computed for the vector before is that of
the western neighbors (Henretty et al. 2011, Compiler Construction, 225-245, call the layout dimension-lifted). Fields
are turned into it and back two columns at a time.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from hpckit.kernels.compile.lanes import lanes, side_by_side
from hpckit.kernels.compile.vectors import BYTES, ELEMENT, I64, Vec, address, available, llvm, shuffle

KIND = "w"
LANES = 8 if available()[0] == "avx512" else 4
VECTOR, PAIR = Vec(KIND, LANES), ir.VectorType(ELEMENT[KIND], 2)
# Of two vectors, in which the lanes stand in pairs of neighbors: what is first in each pair, what is second.
LOW = [lane if lane % 2 == 0 else LANES + lane - 1 for lane in range(LANES)]
HIGH = [lane + 1 if lane % 2 == 0 else LANES + lane for lane in range(LANES)]
load = lanes(KIND, LANES).load


@intrinsic
def spread(context, field, place, strips, out, at):
    """out[at + LANES * k + lane] = field[place + strips[lane] + k] for the columns k = 0 and 1; flat arrays."""

    def generate(c, b, signature, values):
        field, place, strips, out, at = values
        pairs = [b.load(p, align=BYTES[KIND]) for p in _pairs(c, b, signature.args, field, place, strips)]
        even, odd = side_by_side(b, pairs[0::2]), side_by_side(b, pairs[1::2])
        for k, pattern in enumerate((LOW, HIGH)):
            target = address(c, b, signature.args[3], out, b.add(at, I64(LANES * k)), llvm(VECTOR))
            b.store(shuffle(b, even, odd, pattern), target, align=BYTES[KIND])
        return c.get_dummy_value()

    return types.void(field, types.intp, strips, out, types.intp), generate


@intrinsic
def collect(context, field, place, strips, first, second):
    """field[place + strips[lane] + k] = lane of `first` (k = 0) and of `second` (k = 1); flat arrays."""

    def generate(c, b, signature, values):
        field, place, strips, first, second = values
        halves = shuffle(b, first, second, LOW), shuffle(b, first, second, HIGH)
        for lane, target in enumerate(_pairs(c, b, signature.args, field, place, strips)):
            half, low = halves[lane % 2], lane // 2 * 2
            b.store(shuffle(b, half, half, (low, low + 1)), target, align=BYTES[KIND])
        return c.get_dummy_value()

    return types.void(field, types.intp, strips, VECTOR, VECTOR), generate


def _pairs(c: Any, b: Any, kinds: Any, field: Any, place: Any, strips: Any) -> list[Any]:
    """Pointers to two columns at `place` of each strip."""
    begin = c.make_array(kinds[2])(c, b, strips).data
    starts = [b.load(b.gep(begin, [I64(lane)])) for lane in range(LANES)]
    return [address(c, b, kinds[0], field, b.add(place, start), PAIR) for start in starts]
