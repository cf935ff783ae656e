"""The lanes of a mask side by side: what lists are made with, for an instruction set.

AVX-512 compresses a register. AVX2 has eight lanes permuted by the row of a table that the mask names.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hpckit.kernels.compile.vectors import BYTES, I8, I32, I64, Vec, address, call, llvm, splat

LANES = {"avx512": 16, "avx2": 8}  # of 32 bits
EIGHT = ir.VectorType(I8, 8)
ROWS = 256  # masks of eight lanes


class Compressing(NamedTuple):
    """Intrinsics that write whole vectors, of which the lanes behind the last one that is kept are left to be written
    over: the caller advances m by the ones of the mask.

    append(out, m, base, mask): out[m:] = base + 4 lane · keep(out, m, a, k, mask): out[m:] = the lanes of a[k:], of
    int32 · keep_lanes(out, m, vector, mask): those of a vector of float32 · unlike(a, k, value, mask): the lanes of the
    mask where a[k + lane], of int32, is another.
    """

    append: Any
    keep: Any
    keep_lanes: Any
    unlike: Any


def _lanes_of_masks(b: Any) -> Any:
    """The table of AVX2: row `mask` has the numbers of its lanes."""
    name, kind = "lanes_of_masks", ir.ArrayType(EIGHT, ROWS)
    if name in b.module.globals:
        return b.module.globals[name]
    rows = [[lane for lane in range(8) if row >> lane & 1] for row in range(ROWS)]
    table = ir.Constant(kind, [ir.Constant(EIGHT, (row + [0] * 8)[:8]) for row in rows])
    return cgutils.global_constant(b.module, name, table)


@functools.cache
def compressing(isa: str) -> Compressing:
    """The intrinsics of an instruction set with vectors."""
    n = LANES[isa]
    ints, mask_type = ir.VectorType(I32, n), Vec("m", n)

    def compressed(b: Any, value: Any, mask: Any) -> Any:
        if isa == "avx512":
            name = f"llvm.experimental.vector.compress.v{n}{'f32' if value.type != ints else 'i32'}"
            return call(b, name, value.type, value, mask, ir.Constant(value.type, ir.Undefined))
        row = b.gep(_lanes_of_masks(b), [I32(0), b.zext(b.bitcast(mask, I8), I64)])
        chosen = b.zext(b.load(row, align=8), ints)
        return b.bitcast(call(b, "llvm.x86.avx2.permd", ints, b.bitcast(value, ints), chosen), value.type)

    @intrinsic
    def append(context, out, m, base, mask):
        def generate(c, b, signature, values):
            out, m, base, mask = values
            entries = b.add(splat(b, base, n), ir.Constant(ints, list(range(0, 4 * n, 4))))
            b.store(compressed(b, entries, mask), address(c, b, signature.args[0], out, m, ints), align=4)
            return c.get_dummy_value()

        return types.void(out, types.intp, types.int32, mask_type), generate

    @intrinsic
    def keep(context, out, m, array, k, mask):
        def generate(c, b, signature, values):
            out, m, array, k, mask = values
            entries = b.load(address(c, b, signature.args[2], array, k, ints), align=4)
            b.store(compressed(b, entries, mask), address(c, b, signature.args[0], out, m, ints), align=4)
            return c.get_dummy_value()

        return types.void(out, types.intp, array, types.intp, mask_type), generate

    @intrinsic
    def keep_lanes(context, out, m, value, mask):
        def generate(c, b, signature, values):
            out, m, value, mask = values
            place = address(c, b, signature.args[0], out, m, llvm(Vec("f", n)))
            b.store(compressed(b, value, mask), place, align=BYTES["f"])
            return c.get_dummy_value()

        return types.void(out, types.intp, Vec("f", n), mask_type), generate

    @intrinsic
    def unlike(context, array, k, value, mask):
        def generate(c, b, signature, values):
            array, k, value, mask = values
            entries = b.load(address(c, b, signature.args[0], array, k, ints), align=4)
            return b.and_(mask, b.icmp_signed("!=", entries, splat(b, value, n)))

        return mask_type(array, types.intp, types.int32, mask_type), generate

    return Compressing(append, keep, keep_lanes, unlike)
