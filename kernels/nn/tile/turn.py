"""Float32 brought into the order of the tile: numbers side by side as they are, and rows turned into columns."""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from hpckit.kernels.compile.vectors import I64, address, constant, shuffle
from hpckit.kernels.nn.tile.tile import SHAPE

LANES = SHAPE.lanes("float32")


@functools.cache
def moved(count: int) -> Any:
    """The intrinsic `(a, at, packed, place)`: packed[place : place + count] = a[at : at + count]."""
    kind = ir.VectorType(ir.FloatType(), count)

    @intrinsic
    def moved(context, a, at, packed, place):
        def generate(c, b, signature, values):
            a, at, packed, place = values
            line = b.load(address(c, b, signature.args[0], a, at, kind), align=4)
            b.store(line, address(c, b, signature.args[2], packed, place, kind), align=4)
            return c.get_dummy_value()

        return types.void(a, types.int64, packed, types.int64), generate

    return moved


@functools.cache
def turned(count: int) -> Any:
    """The intrinsic `(a, at, pitch, packed, place, step)`: LANES columns of `count` rows, which are `pitch` apart from
    a[at] on, one column behind the other and `step` apart from packed[place] on.

    A whole register is stored for a column, in the order of the columns: what it holds beyond its rows is written over
    by the next one, or lies behind the last.
    """
    kind = ir.VectorType(ir.FloatType(), LANES)

    @intrinsic
    def turned(context, a, at, pitch, packed, place, step):
        def generate(c, b, signature, values):
            a, at, pitch, packed, place, step = values
            lines = [constant(kind, 0.0)] * LANES
            for r in range(count):
                source = address(c, b, signature.args[0], a, b.add(at, b.mul(pitch, I64(r))), kind)
                lines[r] = b.load(source, align=4)
            apart = LANES // 2
            while apart:  # trade halves, then quarters of each half, and so on
                for r in (r for r in range(LANES) if not r & apart):
                    one, other = lines[r], lines[r + apart]
                    low = [lane if not lane & apart else LANES + lane - apart for lane in range(LANES)]
                    lines[r] = shuffle(b, one, other, low)
                    lines[r + apart] = shuffle(b, one, other, [lane + apart for lane in low])
                apart //= 2
            for k, line in enumerate(lines):
                target = address(c, b, signature.args[3], packed, b.add(place, b.mul(step, I64(k))), kind)
                b.store(line, target, align=4)
            return c.get_dummy_value()

        return types.void(a, types.int64, types.int64, packed, types.int64, types.int64), generate

    return turned
