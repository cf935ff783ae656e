"""Exponential, logarithm and angle of vectors and numbers, as LLVM's instructions: used by `compile.functions`."""

from __future__ import annotations

import math
import struct
from typing import Any

from llvmlite import ir

from hpckit.kernels.compile.vectors import ELEMENT, I32, I64, arithmetic, constant, overloaded, shuffle

REGISTER = 32  # bytes, on every processor with vectors


def _words(x: Any) -> tuple[Any, int, bool]:
    """The integer type that has the bits of x, bits of the mantissa, double or not."""
    vector = isinstance(x.type, ir.VectorType)
    double = (x.type.element if vector else x.type) == ELEMENT["d"]
    word = I64 if double else I32
    return (ir.VectorType(word, x.type.count) if vector else word), 52 if double else 23, double


def spilled(b: Any, value: Any) -> Any:
    """A constant vector, the same in all lanes, as a value that LLVM does not see through.

    It has too few registers for all constants of a polynomial, and would load each again in every turn of a loop. What
    it takes for a variable it keeps in memory and reads within the arithmetic, at no cost.
    """
    if not isinstance(value.type, ir.VectorType):
        return value
    lanes = value.type.count
    held = min(lanes, REGISTER // (8 if value.type.element == ELEMENT["d"] else 4))
    kind = ir.VectorType(value.type.element, held)
    asm = ir.InlineAsm(ir.FunctionType(kind, [kind]), "", "=x,0", side_effect=False)
    one = b.call(asm, [ir.Constant(kind, value.constant[:held])], attrs=("nounwind", "readnone"))
    return shuffle(b, one, one, [lane % held for lane in range(lanes)]) if lanes > held else one


def exp(b: Any, x: Any) -> Any:
    """2^k times a Taylor polynomial of the rest, below 2 units in the last place; x is held to what has an answer.

    k comes as the low bits of a large number, since AVX2 has no conversion to 64-bit integers. Bounds are compared so
    that nan stays nan; LLVM's minnum would take three instructions.
    """
    words, mantissa, double = _words(x)
    limit, shift, degree = (708.0, 1.5 * 2.0**52, 12) if double else (87.0, 1.5 * 2.0**23, 7)
    high, low = (6.93147180369123816490e-01, 1.90821492927058770002e-10) if double else (0.693359375, -2.12194440e-4)

    def number(value: float) -> Any:
        return spilled(b, constant(x.type, value))

    x = b.select(b.fcmp_ordered(">", x, number(limit)), number(limit), x)
    x = b.select(b.fcmp_ordered("<", x, number(-limit)), number(-limit), x)
    shifted = overloaded(b, "fma", x, number(1 / math.log(2)), number(shift))
    k = b.fsub(shifted, number(shift), flags=("nsz",))
    rest = overloaded(b, "fma", k, number(-high), x)
    rest = overloaded(b, "fma", k, number(-low), rest)
    power = _polynomial(b, [1 / math.factorial(order) for order in range(degree + 1)], rest)
    exponent = b.shl(b.bitcast(shifted, words), constant(words, mantissa))
    return b.bitcast(b.add(b.bitcast(power, words), exponent), x.type)


def _polynomial(b: Any, coefficients: list[float], x: Any) -> Any:
    """The sum of coefficients[k] x^k, in pairs (Estrin 1960): a third of the time to the result of Horner's chain."""
    terms = [spilled(b, constant(x.type, coefficient)) for coefficient in coefficients]
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2], strict=False)
        rest = terms[-1:] if len(terms) % 2 else []
        terms = [overloaded(b, "fma", high, x, low) for low, high in pairs] + rest
        x = arithmetic(b, "fmul", x, x)
    return terms[0]


def log(b: Any, x: Any) -> Any:
    """Log of a positive normal number: of its exponent, and of its mantissa by 2 atanh((m - 1) / (m + 1))."""
    words, mantissa, double = _words(x)
    shift = 1.5 * 2.0**52 if double else 1.5 * 2.0**23

    def number(value: float) -> Any:
        return constant(x.type, value)

    bits = b.bitcast(x, words)
    # Counted from sqrt(1/2), so that the mantissa lies on both sides of 1.
    half = 0x3FE6A09E667F3BCD if double else 0x3F3504F3
    offset = b.sub(bits, constant(words, half))
    exponent = b.ashr(offset, constant(words, mantissa))
    m = b.bitcast(b.sub(bits, b.shl(exponent, constant(words, mantissa))), x.type)
    magic = int.from_bytes(struct.pack("<d" if double else "<f", shift), "little")
    k = b.fsub(b.bitcast(b.add(exponent, constant(words, magic)), x.type), number(shift), flags=("nsz",))
    s = arithmetic(b, "fdiv", b.fsub(m, number(1.0)), b.fadd(m, number(1.0)))
    s2 = arithmetic(b, "fmul", s, s)
    series = number(0.0)
    for order in range(21 if double else 11, 0, -2):
        series = overloaded(b, "fma", series, s2, number(2.0 / order))
    return overloaded(b, "fma", k, number(math.log(2)), arithmetic(b, "fmul", s, series))


def angle(b: Any, y: Any, x: Any) -> Any:
    """The angle of (x, y), as atan2: twice that of half of it, by a series, from the nearer axis; 0 of (0, 0)."""

    def number(value: float) -> Any:
        return constant(x.type, value)

    def size(value: Any) -> Any:
        return overloaded(b, "fabs", value)

    wide, high = size(x), size(y)
    steep = b.fcmp_ordered(">", high, wide)
    large, small = b.select(steep, high, wide), b.select(steep, wide, high)
    ratio = arithmetic(b, "fdiv", small, b.select(b.fcmp_ordered(">", large, number(0.0)), large, number(1.0)))
    root = overloaded(b, "sqrt", overloaded(b, "fma", ratio, ratio, number(1.0)))
    half = arithmetic(b, "fdiv", ratio, arithmetic(b, "fadd", root, number(1.0)))  # the tangent, below 0.4143
    square = arithmetic(b, "fmul", half, half)
    series = _polynomial(b, [2.0 * (-1) ** k / (2 * k + 1) for k in range(21)], square)
    found = arithmetic(b, "fmul", half, series)
    found = b.select(steep, arithmetic(b, "fsub", number(0.5 * math.pi), found), found)
    found = b.select(b.fcmp_ordered("<", x, number(0.0)), arithmetic(b, "fsub", number(math.pi), found), found)
    return overloaded(b, "copysign", found, y)
