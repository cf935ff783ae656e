"""The tile: a few rows times one panel, as one intrinsic whose sums stay in registers.

Each output is one chain of fused multiply-adds in the order of K. Its bits depend on its row and its column alone: not
on the number of rows, on the place of the row, or on the width of the registers.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from hpckit.kernels.compile.vectors import I8, I32, I64, available, call, constant, features, overloaded, shuffle, splat
from hpckit.kernels.nn.tile.packed import BLOCK, KINDS, QUADS

I16 = ir.IntType(16)
SECOND_CACHE = 2  # where the panel is asked for ahead, as llvm.prefetch numbers the caches
FLOAT = {"float32": ir.FloatType(), "float64": ir.DoubleType()}


class TileShape(NamedTuple):
    """Registers: bytes of one, how many stand side by side in a panel, and the heights of tiles; how many panels a
    single row meets at once, where the chains of sums of one panel are too few for the memory. A single stream of
    memory is what a core reads fastest.
    """

    nbytes: int
    across: int
    heights: tuple[int, int, int, int]
    beside: int

    def lanes(self, sums: str) -> int:
        """Numbers in a register."""
        return self.nbytes // (8 if sums == "float64" else 4)


# Heights fill the 32 or 16 registers with sums. "scalar" is any other processor: LLVM makes NEON of its vectors.
SHAPES = {
    "avx512": TileShape(64, 2, (12, 8, 4, 1), 1),
    "avx2": TileShape(32, 2, (6, 4, 2, 1), 2),
    "scalar": TileShape(16, 4, (6, 4, 2, 1), 2),
}
SHAPE = SHAPES[available()[0]]
LOWER = 4, 3, 2, 1  # heights of tiles that fill registers with more than sums
# Of AVX2: sums of two products of bytes, the first ones without a sign; of 16-bit numbers; bytes times signs of others.
BYTE_PAIRS, PAIRS, SIGNED = "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd", "llvm.x86.avx2.psign.b"


def width_of(kind: str) -> int:
    """The columns of a panel on this processor."""
    return SHAPE.across * SHAPE.lanes(KINDS[kind].sums)


def words_of(kind: str) -> int:
    """Numbers, of the dtype of its sums, that a unit of a row takes: for a block eight words of four int8, the scale
    and the sum, times the offset, that the dot product has too much.
    """
    return QUADS + 2 if KINDS[kind].along == BLOCK else 1


class _BFloats(ir.Type):
    """Lanes of bfloat16, a type that llvmlite does not have."""

    def __init__(self, count: int) -> None:
        self.count = count

    def _to_string(self) -> str:
        return f"<{self.count} x bfloat>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloats) and other.count == self.count

    def __hash__(self) -> int:
        return hash(("bfloat", self.count))


def instruction(kind: str) -> str:
    """The name of the dot product of this processor that a kind is multiplied by; "" for none."""
    bits = {"avx512": 512, "avx2": 256}.get(available()[0], 0)
    if not bits:
        return ""
    named = features()
    if kind == "bfloat16_dot":
        return f"llvm.x86.avx512bf16.dpbf16ps.{bits}" if {"avx512bf16", "avx512vl"} <= named else ""
    if KINDS[kind].along == BLOCK:
        if "avx512vnni" in named or (bits == 256 and "avxvnni" in named):
            return f"llvm.x86.avx512.vpdpbusd.{bits}"
        if bits == 256:
            return BYTE_PAIRS
        return "llvm.x86.avx512.pmaddw.d.512" if "avx512bw" in named else ""
    return ""


def heights_of(kind: str) -> tuple[int, int, int, int]:
    """The heights of tiles of a kind: lower ones where halves of words, or sums of whole numbers, need registers of
    their own.
    """
    is_full = SHAPE.nbytes == 32 and KINDS[kind].along > 1 and instruction(kind) in ("", BYTE_PAIRS)
    return LOWER if is_full else SHAPE.heights


class _Emitter:
    """Code of one tile. Panels and packed rows are addressed in bytes from the start of their arrays."""

    def __init__(self, kind: str, rows: int, beside: int, asks: bool, c: Any, b: Any) -> None:
        it = KINDS[kind]
        self.kind, self.rows, self.asks, self.c, self.b = kind, rows, asks, c, b
        self.across = beside * SHAPE.across
        self.number, lanes = FLOAT[it.sums], SHAPE.lanes(it.sums)
        self.size = 8 if it.sums == "float64" else 4
        self.lanes, self.vector, self.ints = lanes, ir.VectorType(self.number, lanes), ir.VectorType(I32, lanes)
        self.unit = SHAPE.across * lanes * it.nbytes
        self.instruction = instruction(kind)

    def grid(self, kind: Any) -> list[list[Any]]:
        """A register for each row and vector."""
        return [[cgutils.alloca_once(self.b, kind) for _ in range(self.across)] for _ in range(self.rows)]

    def load(self, base: Any, offset: Any, kind: Any, align: int) -> Any:
        """What stands so many bytes from the base."""
        place = self.b.bitcast(self.b.gep(base, [offset]), kind.as_pointer())
        return self.b.load(place, align=align)

    def plus(self, offset: Any, nbytes: int) -> Any:
        """An offset and a constant."""
        return self.b.add(offset, I64(nbytes))

    def place(self, panel: Any, v: int, nbytes: int) -> Any:
        """The offset of a byte of the panel that vector v belongs to."""
        return self.plus(panel[1][v // SHAPE.across], nbytes)

    def number_unit(self, rows: Any, panel: Any, sums: Any) -> None:
        """One number a column: a fused multiply-add for each row."""
        b = self.b
        weights = []
        for v in range(self.across):
            at = self.place(panel, v, v % SHAPE.across * self.lanes * KINDS[self.kind].nbytes)
            if self.kind == "bfloat16":
                short = self.load(panel[0], at, ir.VectorType(I16, self.lanes), 2)
                weights.append(b.bitcast(b.shl(b.zext(short, self.ints), constant(self.ints, 16)), self.vector))
            else:
                weights.append(self.load(panel[0], at, self.vector, self.size))
        for r in range(self.rows):
            x = splat(b, self.load(rows[0], self.plus(rows[1], r * self.size), self.number, self.size), self.lanes)
            for v in range(self.across):
                b.store(overloaded(b, "fma", x, weights[v], b.load(sums[r][v])), sums[r][v])

    def pair_unit(self, rows: Any, panel: Any, sums: Any) -> None:
        """Two bfloat16 a column: the odd one is added first, as the instruction does it."""
        b = self.b
        words = [
            self.load(panel[0], self.place(panel, v, 4 * (v % SHAPE.across) * self.lanes), self.ints, 2)
            for v in range(self.across)
        ]
        for r in range(self.rows):
            x = splat(b, self.load(rows[0], self.plus(rows[1], 4 * r), I32, 4), self.lanes)
            for v in range(self.across):
                total = b.load(sums[r][v])
                if self.instruction:
                    pair = _BFloats(2 * self.lanes)
                    total = call(b, self.instruction, self.vector, total, b.bitcast(x, pair), b.bitcast(words[v], pair))
                else:
                    for widen in (self._high, self._low):
                        total = overloaded(b, "fma", widen(x), widen(words[v]), total)
                b.store(total, sums[r][v])

    def _high(self, words: Any) -> Any:
        return self.b.bitcast(self.b.and_(words, constant(self.ints, 0xFFFF0000)), self.vector)

    def _low(self, words: Any) -> Any:
        return self.b.bitcast(self.b.shl(words, constant(self.ints, 16)), self.vector)

    def block_unit(self, rows: Any, panel: Any, sums: Any, dots: Any) -> None:
        """A block: dot products of whole numbers, exact, times both scales."""
        b, height = self.b, 4 * self.rows
        does = self._nibble_dots if self.kind == "q4_0" else self._byte_dots
        (does if self.instruction == BYTE_PAIRS else self._word_dots)(rows, panel, dots)
        for v in range(self.across):
            halves = ir.VectorType(I16, self.lanes)
            at = self.place(panel, v, self.unit - 2 * self.lanes * (SHAPE.across - v % SHAPE.across))
            scale = self._from_half(self.load(panel[0], at, halves, 2))
            for r in range(self.rows):
                own = self.load(rows[0], self.plus(rows[1], QUADS * height + 4 * r), self.number, 4)
                both = b.fmul(scale, splat(b, own, self.lanes))
                whole = b.sitofp(b.load(dots[r][v]), self.vector)
                b.store(overloaded(b, "fma", whole, both, b.load(sums[r][v])), sums[r][v])

    def _byte_dots(self, rows: Any, panel: Any, dots: Any) -> None:
        """The dot products of a block by `BYTE_PAIRS`, whose sums of two fit 16 bits: |q| of at most 128 times numbers
        of at most 127 that have the sign of q. The loop is one, as its quads at once would not fit the registers.
        """
        b, row = self.b, 4 * SHAPE.across * self.lanes
        whole = ir.VectorType(I8, 4 * self.lanes)
        ones = constant(ir.VectorType(I16, 2 * self.lanes), 1)
        for r, v in self._each():
            b.store(constant(self.ints, 0), dots[r][v])
        with cgutils.for_range(b, I64(QUADS)) as loop:
            own, words = b.add(rows[1], b.mul(loop.index, I64(4 * self.rows))), []
            for v in range(self.across):
                at = b.add(self.place(panel, v, 4 * (v % SHAPE.across) * self.lanes), b.mul(loop.index, I64(row)))
                word = b.xor(self.load(panel[0], at, whole, 1), constant(whole, -128))
                words.append((word, call(b, SIGNED, whole, word, word)))
            for r in range(self.rows):
                x = b.bitcast(self._row_words(rows[0], own, r), whole)
                for v, (word, size) in enumerate(words):
                    pairs = call(b, BYTE_PAIRS, ones.type, size, call(b, SIGNED, whole, x, word))
                    b.store(b.add(b.load(dots[r][v]), call(b, PAIRS, self.ints, pairs, ones)), dots[r][v])

    def _nibble_dots(self, rows: Any, panel: Any, dots: Any) -> None:
        """The dot products of a block by `BYTE_PAIRS` of numbers up to 15, whose sums over a block fit 16 bits."""
        b, height = self.b, 4 * self.rows
        whole, shorts = ir.VectorType(I8, 4 * self.lanes), ir.VectorType(I16, 2 * self.lanes)
        for r, v in self._each():
            b.store(constant(self.ints, 0), dots[r][v])
        for quad in range(QUADS):
            words = [b.bitcast(self._words(panel, quad, v), whole) for v in range(self.across)]
            for r in range(self.rows):
                x = b.bitcast(self._row_words(rows[0], self.plus(rows[1], quad * height), r), whole)
                for v in range(self.across):
                    total = b.add(b.bitcast(b.load(dots[r][v]), shorts), call(b, BYTE_PAIRS, shorts, words[v], x))
                    b.store(b.bitcast(total, self.ints), dots[r][v])
        for r in range(self.rows):
            surplus = self._row_words(rows[0], self.plus(rows[1], (QUADS + 1) * height), r)
            for v in range(self.across):
                total = call(b, PAIRS, self.ints, b.bitcast(b.load(dots[r][v]), shorts), constant(shorts, 1))
                b.store(b.add(total, surplus), dots[r][v])

    def _row_words(self, base: Any, offset: Any, r: int) -> Any:
        """The word of row r of those from an offset on, in all lanes."""
        return splat(self.b, self.load(base, self.plus(offset, 4 * r), I32, 4), self.lanes)

    def _word_dots(self, rows: Any, panel: Any, dots: Any) -> None:
        """The dot products of a block by those of four bytes, or of 16-bit halves: q + offset, less their surplus."""
        b, height = self.b, 4 * self.rows
        for r in range(self.rows):
            surplus = self._row_words(rows[0], self.plus(rows[1], (QUADS + 1) * height), r)
            for v in range(self.across):
                b.store(surplus, dots[r][v])
        for quad in range(QUADS):
            words = [self._words(panel, quad, v) for v in range(self.across)]
            for r in range(self.rows):
                x = self._row_words(rows[0], self.plus(rows[1], quad * height), r)
                for v in range(self.across):
                    b.store(self._dot(b.load(dots[r][v]), words[v], x), dots[r][v])

    def _words(self, panel: Any, quad: int, v: int) -> Any:
        """Four bytes q + offset for each column."""
        b, row, own = self.b, 4 * SHAPE.across * self.lanes, 4 * (v % SHAPE.across) * self.lanes
        if self.kind == "q8_0":
            return self.load(panel[0], self.place(panel, v, quad * row + own), self.ints, 1)
        words = self.load(panel[0], self.place(panel, v, quad // 2 * row + own), self.ints, 1)
        words = b.lshr(words, constant(self.ints, 4)) if quad % 2 else words
        return b.and_(words, constant(self.ints, 0x0F0F0F0F))

    def _dot(self, total: Any, words: Any, x: Any) -> Any:
        """Total + the sum of four products of bytes: words without a sign, x with one."""
        b = self.b
        if "dpbusd" in self.instruction:
            return call(b, self.instruction, self.ints, total, words, x)
        shorts = ir.VectorType(I16, 2 * self.lanes)
        eight = constant(shorts, 8)
        w, s = b.bitcast(words, shorts), b.bitcast(x, shorts)
        for mine, its in (
            (b.and_(w, constant(shorts, 0xFF)), b.ashr(b.shl(s, eight), eight)),
            (b.lshr(w, eight), b.ashr(s, eight)),
        ):
            total = b.add(total, self._pairs(mine, its))
        return total

    def _pairs(self, one: Any, other: Any) -> Any:
        """The sums of the products of neighbors, int16 to int32."""
        b = self.b
        if self.instruction:
            return call(b, self.instruction, self.ints, one, other)
        whole = b.mul(*(b.sext(each, ir.VectorType(I32, 2 * self.lanes)) for each in (one, other)))
        even, odd = range(0, 2 * self.lanes, 2), range(1, 2 * self.lanes, 2)
        return b.add(shuffle(b, whole, whole, even), shuffle(b, whole, whole, odd))

    def _from_half(self, bits: Any) -> Any:
        """The float32 of a finite float16: by its instruction where there is one; else its exponent is 112 smaller."""
        b = self.b
        if "f16c" in features():
            return b.fpext(b.bitcast(bits, ir.VectorType(ir.HalfType(), self.lanes)), self.vector)
        wide = b.zext(bits, self.ints)
        magnitude = b.shl(b.and_(wide, constant(self.ints, 0x7FFF)), constant(self.ints, 13))
        scaled = b.fmul(b.bitcast(magnitude, self.vector), constant(self.vector, 2.0**112))
        sign = b.shl(b.and_(wide, constant(self.ints, 0x8000)), constant(self.ints, 16))
        return b.bitcast(b.or_(b.bitcast(scaled, self.ints), sign), self.vector)

    def run(
        self,
        rows: tuple[Any, Any],
        panel: tuple[Any, list[Any]],
        units: Any,
        out: Any,
        pitch: Any,
        goes_on: Any,
        ahead: Any,
    ) -> None:
        """All units; `out` is rows of the width of all panels, `pitch` numbers apart, read first if the sums go on."""
        b = self.b
        sums = self.grid(self.vector)
        dots = self.grid(self.ints) if KINDS[self.kind].along == BLOCK else None
        step = self.rows * words_of(self.kind) * self.size
        places = [
            [
                b.bitcast(b.gep(out, [self.plus(b.mul(pitch, I64(r)), v * self.lanes)]), self.vector.as_pointer())
                for v in range(self.across)
            ]
            for r in range(self.rows)
        ]
        with b.if_else(goes_on) as (yes, no):
            with yes:
                for r, v in self._each():
                    b.store(b.load(places[r][v], align=self.size), sums[r][v])
            with no:
                for r, v in self._each():
                    b.store(constant(self.vector, 0.0), sums[r][v])
        with cgutils.for_range(b, units) as loop:
            own = rows[0], b.add(rows[1], b.mul(loop.index, I64(step)))
            theirs = panel[0], [b.add(start, b.mul(loop.index, I64(self.unit))) for start in panel[1]]
            for start in theirs[1] if self.asks else ():
                soon = b.gep(panel[0], [b.add(start, ahead)])
                for line in range(0, self.unit, 64):
                    place = b.gep(soon, [I64(line)])
                    call(b, "llvm.prefetch.p0", ir.VoidType(), place, I32(0), I32(SECOND_CACHE), I32(1))
            if dots is not None:
                self.block_unit(own, theirs, sums, dots)
            elif self.kind == "bfloat16_dot":
                self.pair_unit(own, theirs, sums)
            else:
                self.number_unit(own, theirs, sums)
        for r, v in self._each():
            b.store(b.load(sums[r][v]), places[r][v], align=self.size)

    def _each(self) -> list[tuple[int, int]]:
        return [(r, v) for r in range(self.rows) for v in range(self.across)]


@functools.cache
def tile(kind: str, rows: int, beside: int = 1, asks: bool = True) -> Any:
    """The intrinsic `(packed, first, panels, start, stride, units, out, place, pitch, goes_on, ahead)` for so many rows
    of a kind and so many panels beside each other, `stride` bytes apart.

    From out[place] on stand rows of the width of all panels, `pitch` numbers apart: the products of packed rows from
    number `first` on with the units of the panels from byte `start` on; added to what is there if the sums go on.
    asks: the panels are in memory, and are asked for `ahead` bytes before they are used.
    """

    @intrinsic
    def tile(context, packed, first, panels, start, stride, units, out, place, pitch, goes_on, ahead):
        def generate(c, b, signature, values):
            _, first, _, start, stride, units, _, place, pitch, goes_on, ahead = values
            data = [c.make_array(signature.args[i])(c, b, values[i]).data for i in (0, 2, 6)]
            it = _Emitter(kind, rows, beside, asks, c, b)
            row_bytes, panel_bytes = (b.bitcast(each, I8.as_pointer()) for each in data[:2])
            offset = b.mul(first, I64(it.size))
            starts = [b.add(start, b.mul(stride, I64(n))) for n in range(beside)]
            it.run((row_bytes, offset), (panel_bytes, starts), units, b.gep(data[2], [place]), pitch, goes_on, ahead)
            return c.get_dummy_value()

        arguments = (
            packed,
            types.int64,
            panels,
            types.int64,
            types.int64,
            types.int64,
            out,
            types.int64,
            types.int64,
            types.boolean,
            types.int64,
        )
        return types.void(*arguments), generate

    return tile
