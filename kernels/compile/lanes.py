"""Vectors of one kind and width: how they are loaded, looked up and gathered.

AVX-512 and AVX2 are served; a host without either takes plain loops. Records are four numbers (x, y, z, w) side by
side: eight half-record loads and three shuffles give four lanes each of x, y and z; of AVX-512, eight whole loads and
seven shuffles give eight. That is faster than the instructions that gather on every processor that was tried, twice as
fast on Zen 4; for parameters of many types one load for each lane is, too.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hpckit.kernels.compile.compress import keeping
from hpckit.kernels.compile.intrinsics import whole
from hpckit.kernels.compile.vectors import (
    BYTES,
    ELEMENT,
    I32,
    I64,
    MOST_TYPES,
    NUMBER,
    Vec,
    address,
    call,
    constant,
    llvm,
    shuffle,
    splat,
)

PERMUTE = {256: "llvm.x86.avx2.permd", 512: "llvm.x86.avx512.permvar.si.512"}  # by the bits of a register
PERMUTE_NEAR = {
    "d": {256: "llvm.x86.avx.vpermilvar.pd.256", 512: "llvm.x86.avx512.vpermilvar.pd.512"},
    "f": {256: "llvm.x86.avx.vpermilvar.ps.256", 512: "llvm.x86.avx512.vpermilvar.ps.512"},
}


class LaneIntrinsics:
    """The intrinsics of n lanes of "d" or "f"; made by `lanes`, which keeps them.

    load(a, i): a[i : i + n] · broadcast(x): x in all lanes · gather(a, offset, index): a[offset + index[lane]] ·
    load_records(a, list, k): x, y, z of the records that start at a[list[k + lane]] · load_records_w: the same with w ·
    store_records(a, i, x, y, z): a[i :] = the records of all lanes, w 0 ·
    load_each(a, list, k): a[list[k + lane] / 4], also of float64 as float32 · types(w): the types that w carries, as
    numbers · keep(out, m, a, k, mask): out[m:] = the lanes of a[k : k + n] in the mask, of int32; keep_lanes(out, m,
    vector, mask): the same of a vector. n entries are written, those behind the last one to be written over.
    """

    def __init__(self, kind: str, n: int) -> None:
        self.kind, self.n = kind, n
        self.vector, self.number = Vec(kind, n), NUMBER[kind]
        self.load, self.broadcast = self._load(), self._broadcast()
        self.gather = self._gather()
        self.load_records, self.load_records_w = self._load_records(3), self._load_records(4)
        self.store_records = self._store_records()
        self.load_each, self.types = self._load_each(), self._type_numbers()
        self.keep, self.keep_lanes = keeping(self.vector, "avx512" if n * BYTES[kind] == 64 else "avx2")

    def load_row(self, count: int) -> Any:
        """The intrinsic `(a, i)`: the `count` vectors that follow each other from a[i], as a tuple."""
        vector = self.vector

        @intrinsic
        def load_row(context, array, index):
            def generate(c, b, signature, values):
                base = address(c, b, signature.args[0], values[0], values[1], llvm(vector))
                rows = [b.load(b.gep(base, [I64(row)]), align=BYTES[vector.kind]) for row in range(count)]
                return c.make_tuple(b, signature.return_type, rows)

            return types.UniTuple(vector, count)(array, types.intp), generate

        return load_row

    def lookup_row(self, count: int) -> Any:
        """The intrinsic `(row, w)`: of each vector of a row the entry of the type that w carries, lane by lane.

        The low bits of w are the places of its type's words in a register (`kernels.particles.records`).
        """
        return self._permute_row(count, self.n * BYTES[self.kind] // 4, PERMUTE, I32)

    def lookup_row_near(self, count: int) -> Any:
        """`lookup_row` for as many types as fit 16 bytes, each vector of the row repeating them: a quicker instruction.

        For float64 it looks at bit 1 of w, for float32 at bits 0 and 1: `kernels.particles.records` has the type there.
        """
        return self._permute_row(count, self.n, PERMUTE_NEAR[self.kind], I64 if self.kind == "d" else I32)

    def _permute_row(self, count: int, places: int, names: dict[int, str], word: Any) -> Any:
        vector, index_kind = self.vector, ir.VectorType(word, places)
        value_kind = llvm(vector) if places == self.n and names is not PERMUTE else index_kind

        @intrinsic
        def lookup_row(context, row, w):
            def generate(c, b, signature, values):
                index, name = b.bitcast(values[1], index_kind), names[places * word.width]
                found = [
                    b.bitcast(call(b, name, value_kind, b.bitcast(one, value_kind), index), llvm(vector))
                    for one in cgutils.unpack_tuple(b, values[0], count)
                ]
                return c.make_tuple(b, signature.return_type, found)

            return row(row, vector), generate

        return lookup_row

    def gather_row(self, count: int, stride: int) -> Any:
        """The intrinsic `(table, first, w)`: table[first + type + stride * k] for k below `count` and the type in w."""
        vector = self.vector

        @intrinsic
        def gather_row(context, table, first, w):
            def generate(c, b, signature, values):
                index = self._types(b, values[2])
                base = address(c, b, signature.args[0], values[0], values[1], ELEMENT[vector.kind])
                found = [self._gathered(b, b.gep(base, [I64(stride * k)]), index) for k in range(count)]
                return c.make_tuple(b, signature.return_type, found)

            return types.UniTuple(vector, count)(table, types.intp, vector), generate

        return gather_row

    def _types(self, b: Any, w: Any) -> Any:
        """The types that w carries, int32."""
        if self.kind == "f":
            return b.and_(
                b.bitcast(w, ir.VectorType(I32, self.n)), constant(ir.VectorType(I32, self.n), MOST_TYPES - 1)
            )
        words = b.bitcast(w, ir.VectorType(I32, 2 * self.n))
        return b.lshr(shuffle(b, words, words, range(0, 2 * self.n, 2)), constant(ir.VectorType(I32, self.n), 1))

    def _gathered(self, b: Any, base: Any, index: Any) -> Any:
        """base[index[lane]]."""
        each = [b.sext(b.extract_element(index, I32(lane)), I64) for lane in range(self.n)]
        return self._assembled(b, [b.load(b.gep(base, [place])) for place in each])

    def _assembled(self, b: Any, numbers: list) -> Any:
        """Numbers as the lanes of a vector."""
        result = ir.Constant(llvm(self.vector), ir.Undefined)
        for lane, number in enumerate(numbers):
            if number.type != result.type.element:
                number = b.fptrunc(number, result.type.element)
            result = b.insert_element(result, number, I32(lane))
        return result

    def _load(self) -> Any:
        vector = self.vector

        @intrinsic
        def load(context, array, index):
            def generate(c, b, signature, values):
                place = address(c, b, signature.args[0], values[0], values[1], llvm(vector))
                return b.load(place, align=BYTES[vector.kind])

            return vector(array, types.intp), generate

        return load

    def _broadcast(self) -> Any:
        vector, number = self.vector, self.number

        @intrinsic
        def broadcast(context, value):
            return vector(number), lambda c, b, s, values: splat(b, values[0], vector.n)

        return broadcast

    def _gather(self) -> Any:
        vector = self.vector

        @intrinsic
        def gather(context, array, offset, index):
            def generate(c, b, signature, values):
                base = address(c, b, signature.args[0], values[0], values[1], ELEMENT[vector.kind])
                return self._gathered(b, base, values[2])

            return vector(array, types.intp, Vec("i", vector.n)), generate

        return gather

    def _load_each(self) -> Any:
        vector = self.vector

        @intrinsic
        def load_each(context, array, list_, k):
            quarter = ir.IntType(array.dtype.bitwidth // 4).as_pointer()

            def generate(c, b, signature, values):
                data = c.make_array(signature.args[0])(c, b, values[0]).data
                entries = address(c, b, signature.args[1], *values[1:], I32)
                quarters = b.bitcast(data, quarter)
                places = [b.gep(quarters, [b.zext(b.load(b.gep(entries, [I64(lane)])), I64)]) for lane in range(self.n)]
                return self._assembled(b, [b.load(b.bitcast(place, data.type)) for place in places])

            return vector(array, list_, types.intp), generate

        return load_each

    def _type_numbers(self) -> Any:
        vector = self.vector

        @intrinsic
        def type_numbers(context, w):
            return vector(vector), lambda c, b, s, values: b.sitofp(self._types(b, values[0]), llvm(vector))

        return type_numbers

    def _store_records(self) -> Any:
        vector = self.vector

        @intrinsic
        def store_records(context, array, index, x, y, z):
            def generate(c, b, signature, values):
                x, y, z = values[2:]
                zero = constant(x.type, 0.0)
                even = [lane + (vector.n - 1) * (lane % 2) for lane in range(vector.n)]
                odd = [lane + 1 for lane in even]
                for lane in range(vector.n):
                    near = odd if lane % 2 else even
                    halves = shuffle(b, x, y, near), shuffle(b, z, zero, near)
                    at = lane // 2 * 2
                    record = shuffle(b, *halves, (at, at + 1, at + vector.n, at + vector.n + 1))
                    place = b.add(values[1], I64(4 * lane))
                    b.store(record, address(c, b, signature.args[0], values[0], place, record.type), align=8)
                return c.get_dummy_value()

            return types.void(array, types.intp, x, y, z), generate

        return store_records

    def _load_records(self, parts: int) -> Any:
        vector, n = self.vector, self.n

        @intrinsic
        def load_records(context, array, list_, k):
            def generate(c, b, signature, values):
                data = c.make_array(signature.args[0])(c, b, values[0]).data
                entries = address(c, b, signature.args[1], *values[1:], I32)
                places = [b.zext(b.load(b.gep(entries, [I64(lane)])), I64) for lane in range(n)]
                found = _transposed(b, [b.gep(data, [place]) for place in places], parts)
                return c.make_tuple(b, signature.return_type, found)

            return types.UniTuple(vector, parts)(array, list_, types.intp), generate

        return load_records


@intrinsic
def look_up(context, array, row):
    """Four vectors: array[4 row[lane] + k] for k = 0 … 3, of rows given as numbers; or four numbers for one row.

    `array` is flat and starts at a multiple of 16 bytes.
    """
    many = isinstance(row, Vec)

    def generate(c, b, signature, values):
        data, rows = c.make_array(signature.args[0])(c, b, values[0]).data, whole(b, values[1])
        each = [b.extract_element(rows, I32(lane)) for lane in range(row.n)] if many else [rows]
        places = [b.gep(data, [b.shl(b.zext(one, I64), I64(2))]) for one in each]
        found = _transposed(b, places, 4) if many else [b.load(b.gep(places[0], [I64(k)])) for k in range(4)]
        return c.make_tuple(b, signature.return_type, found)

    return types.UniTuple(row if many else array.dtype, 4)(array, row), generate


def _transposed(b: Any, records: list, parts: int) -> list:
    """x, y, z (and w) of the records at some places, which start at multiples of 16 bytes; lanes in their order."""
    if records[0].type.pointee == ELEMENT["f"]:
        return _transpose(b, records, parts)
    return (_transpose_eight if len(records) == 8 else _transpose_halves)(b, records, parts)


def _transpose_eight(b: Any, records: list, parts: int) -> list:
    """x, y, z (and w) of eight records of float64, four numbers a load; the lanes in the order of the records.

    Records that stand side by side in a register are two apart: then the last step moves whole quarters.
    """
    four = ir.VectorType(ELEMENT["d"], 4)
    loaded = [b.load(b.bitcast(record, four.as_pointer()), align=16) for record in records]
    both = [shuffle(b, loaded[k], loaded[k + 2], range(8)) for k in (0, 1, 4, 5)]
    found: list = [None] * 4
    for part in range(2):  # x and z come together, and so do y and w
        neighbors = [8 * (lane % 2) + lane // 2 * 2 + part for lane in range(8)]
        first, second = shuffle(b, *both[:2], neighbors), shuffle(b, *both[2:], neighbors)
        for half in range(2):
            quarters = [lane + 2 * half for lane in (0, 1, 4, 5, 8, 9, 12, 13)]
            found[part + 2 * half] = shuffle(b, first, second, quarters)
    return found[:parts]


def _transpose_halves(b: Any, records: list, parts: int) -> list:
    """x, y, z (and w) of records of float64, two numbers a load; the lanes in the order of the records.

    A half that is loaded into the upper part of a register needs no shuffle.
    """
    n = len(records)
    two = ir.VectorType(ELEMENT["d"], 2)
    even = [lane + (n - 1) * (lane % 2) for lane in range(n)]
    odd = [lane + 1 for lane in even]
    found = []
    for half in range((parts + 1) // 2):
        loaded = [b.load(b.bitcast(b.gep(record, [I64(2 * half)]), two.as_pointer()), align=16) for record in records]
        first, second = side_by_side(b, loaded[0::2]), side_by_side(b, loaded[1::2])
        found += [shuffle(b, first, second, even), shuffle(b, first, second, odd)]
    return found[:parts]


def _transpose(b: Any, records: list, parts: int) -> list:
    """x, y, z (and w) of records of float32, four numbers a load; the lanes in the order of the records."""
    n = len(records)
    four = ir.VectorType(ELEMENT["f"], 4)
    loaded = [b.load(b.bitcast(record, four.as_pointer()), align=16) for record in records]
    rows = [side_by_side(b, loaded[row::4]) for row in range(4)]

    def each(low: Sequence[int]) -> list[int]:
        return [start + lane for start in range(0, n, 4) for lane in low]

    def pair(first: Any, second: Any, offset: int) -> Any:
        return shuffle(b, first, second, each((offset, n + offset, offset + 1, n + offset + 1)))

    found = []
    for offset in range(0, parts, 2):
        first, second = pair(rows[0], rows[1], offset), pair(rows[2], rows[3], offset)
        found.append(shuffle(b, first, second, each((0, 1, n, n + 1))))
        found.append(shuffle(b, first, second, each((2, 3, n + 2, n + 3))))
    return found[:parts]


def side_by_side(b: Any, vectors: list) -> Any:
    """All lanes in one vector."""
    while len(vectors) > 1:
        n = 2 * vectors[0].type.count
        vectors = [shuffle(b, *vectors[i : i + 2], range(n)) for i in range(0, len(vectors), 2)]
    return vectors[0]


@functools.cache
def lanes(kind: str, n: int) -> LaneIntrinsics:
    """The intrinsics of n lanes of a kind, made once."""
    return LaneIntrinsics(kind, n)
