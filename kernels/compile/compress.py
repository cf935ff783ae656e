"""The lanes of a mask side by side: what lists are made with, for an instruction set.

AVX-512 compresses a register. AVX2 has its words permuted by the row of a table that the mask names: LLVM would write
them one by one to memory and read that back, which waits for the last of them.
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
PERMUTE = {4: "llvm.x86.avx.vpermilvar.ps", 8: "llvm.x86.avx2.permd"}  # by words of 32 bits


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


def compressed(b: Any, value: Any, mask: Any, isa: str) -> Any:
    """The lanes of the mask side by side, the others undefined; for AVX2 in registers of 16 or 32 bytes."""
    n, kind = value.type.count, value.type
    element = {"i32": "i32", "double": "f64", "float": "f32"}[str(kind.element)]
    if isa == "avx512":
        name = f"llvm.experimental.vector.compress.v{n}{element}"
        return call(b, name, kind, value, mask, ir.Constant(kind, ir.Undefined))
    each = 2 if element == "f64" else 1
    words = ir.VectorType(I32, n * each)
    permuted = words if words.count == 8 else ir.VectorType(ir.FloatType(), 4)
    row = b.gep(_words_of_masks(b, n, each), [I32(0), b.zext(b.bitcast(mask, ir.IntType(n)), I64)])
    chosen = b.zext(b.load(row, align=words.count), words)
    return b.bitcast(call(b, PERMUTE[words.count], permuted, b.bitcast(value, permuted), chosen), kind)


def _words_of_masks(b: Any, n: int, each: int) -> Any:
    """A table: row `mask` of n lanes has the numbers of their words, of which there are `each` in a lane."""
    name, kind = f"words_of_masks_{n}_{each}", ir.VectorType(I8, n * each)
    if name in b.module.globals:
        return b.module.globals[name]
    rows = [[each * lane + k for lane in range(n) if row >> lane & 1 for k in range(each)] for row in range(2**n)]
    rows = [ir.Constant(kind, (row + [0] * kind.count)[: kind.count]) for row in rows]
    return cgutils.global_constant(b.module, name, ir.Constant(ir.ArrayType(kind, len(rows)), rows))


def keeping(vector: Vec, isa: str) -> tuple[Any, Any]:
    """The intrinsics `keep`, of int32, and `keep_lanes`, of these vectors; see `Compressing`."""
    ints, mask_type = ir.VectorType(I32, vector.n), Vec("m", vector.n)

    @intrinsic
    def keep(context, out, m, array, k, mask):
        def generate(c, b, signature, values):
            out, m, array, k, mask = values
            entries = b.load(address(c, b, signature.args[2], array, k, ints), align=4)
            b.store(compressed(b, entries, mask, isa), address(c, b, signature.args[0], out, m, ints), align=4)
            return c.get_dummy_value()

        return types.void(out, types.intp, array, types.intp, mask_type), generate

    @intrinsic
    def keep_lanes(context, out, m, value, mask):
        def generate(c, b, signature, values):
            out, m, value, mask = values
            place = address(c, b, signature.args[0], out, m, llvm(vector))
            b.store(compressed(b, value, mask, isa), place, align=BYTES[vector.kind])
            return c.get_dummy_value()

        return types.void(out, types.intp, vector, mask_type), generate

    return keep, keep_lanes


@functools.cache
def compressing(isa: str) -> Compressing:
    """The intrinsics of an instruction set with vectors."""
    n = LANES[isa]
    ints, mask_type = ir.VectorType(I32, n), Vec("m", n)
    keep, keep_lanes = keeping(Vec("f", n), isa)

    @intrinsic
    def append(context, out, m, base, mask):
        def generate(c, b, signature, values):
            out, m, base, mask = values
            entries = b.add(splat(b, base, n), ir.Constant(ints, list(range(0, 4 * n, 4))))
            b.store(compressed(b, entries, mask, isa), address(c, b, signature.args[0], out, m, ints), align=4)
            return c.get_dummy_value()

        return types.void(out, types.intp, types.int32, mask_type), generate

    @intrinsic
    def unlike(context, array, k, value, mask):
        def generate(c, b, signature, values):
            array, k, value, mask = values
            entries = b.load(address(c, b, signature.args[0], array, k, ints), align=4)
            return b.and_(mask, b.icmp_signed("!=", entries, splat(b, value, n)))

        return mask_type(array, types.intp, types.int32, mask_type), generate

    return Compressing(append, keep, keep_lanes, unlike)
