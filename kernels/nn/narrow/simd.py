"""Numbers of 16 bits and float32, Numba. What the functions compute is said in `reference`.

Whole-number arithmetic on the bits, for LLVM to vectorize: processors that convert in one instruction and those that do
not give the same numbers. Only the exponent of a float16 is shifted by a product, which brings its smallest numbers,
that have no leading 1, into the normal range of float32.
"""

from __future__ import annotations

import numpy as np

from hpckit.kernels.compile.jit import STRICT, inlined, jit

u4, u8 = np.uint32, np.uint64
SHIFT = np.float32(2.0**112)  # between the exponents of a float16 and a float32
PIECE = 2048  # numbers that stay in the first cache between two loops


@inlined(math=STRICT)
def bfloat16_of(b):
    """The bits of a bfloat16 from those of a float32."""
    nearest = (b + u4(0x7FFF) + ((b >> u4(16)) & u4(1))) >> u4(16)
    return u4(0x7FC0) if (b & u4(0x7FFFFFFF)) > u4(0x7F800000) else nearest


@inlined(math=STRICT)
def float16_of(b):
    """The bits of a float16 from those of a float32."""
    sign, a = (b >> u4(16)) & u4(0x8000), b & u4(0x7FFFFFFF)
    above = max(a, u4(0x38800000)) - u4(0x38000000)  # the difference of the exponents is 112
    normal = (above + u4(0xFFF) + ((a >> u4(13)) & u4(1))) >> u4(13)
    # Below 2^-14 the mantissa, with its leading 1, is shifted to a multiple of 2^-24.
    mantissa, shift = (a & u4(0x7FFFFF)) | u4(0x800000), min(u4(126) - min(a >> u4(23), u4(125)), u4(25))
    odd = (mantissa >> shift) & u4(1)
    small = (mantissa + ((u4(1) << (shift - u4(1))) - u4(1)) + odd) >> shift
    nearest = normal if a >= u4(0x38800000) else small
    nearest = u4(0x7C00) if a >= u4(0x477FF000) else nearest
    return u4(0x7E00) if a > u4(0x7F800000) else sign | nearest


@inlined(math=STRICT)
def shifted(h):
    """The bits of a float32 that times 2^112 is the float16 of the bits h; inf and nan are themselves."""
    magnitude = (h & u4(0x7FFF)) << u4(13)
    magnitude = magnitude | u4(0x7F800000) if magnitude >= u4(0x0F800000) else magnitude
    return ((h & u4(0x8000)) << u4(16)) | magnitude


@jit(math=STRICT, noalias=True)
def _narrow_bfloat16(x, bits):
    for i in range(u8(x.size)):
        bits[i] = bfloat16_of(x[i])


@jit(math=STRICT, noalias=True)
def _narrow_float16(x, bits):
    for i in range(u8(x.size)):
        bits[i] = float16_of(x[i])


@jit(math=STRICT, noalias=True)
def _widen_bfloat16(bits, x):
    for i in range(u8(x.size)):
        x[i] = u4(bits[i]) << u4(16)


@jit(math=STRICT)
def _widen_float16(bits, x, numbers):
    for first in range(u8(0), u8(x.size), u8(PIECE)):
        end = min(first + u8(PIECE), u8(x.size))
        for i in range(first, end):
            x[i] = shifted(u4(bits[i]))
        for i in range(first, end):
            numbers[i] *= SHIFT


@jit(math=STRICT)
def _round_bfloat16(x):
    for i in range(u8(x.size)):
        x[i] = bfloat16_of(x[i]) << u4(16)


@jit(math=STRICT)
def _round_float16(x, numbers):
    for first in range(u8(0), u8(x.size), u8(PIECE)):
        end = min(first + u8(PIECE), u8(x.size))
        for i in range(first, end):
            x[i] = shifted(float16_of(x[i]))
        for i in range(first, end):
            numbers[i] *= SHIFT


def narrow(x, bits, kind):
    (_narrow_bfloat16 if kind == "bfloat16" else _narrow_float16)(x.view(np.uint32), bits)


def widen(bits, x, kind):
    if kind == "bfloat16":
        _widen_bfloat16(bits, x.view(np.uint32))
    else:
        _widen_float16(bits, x.view(np.uint32), x)


def round_to(x, kind):
    if kind == "bfloat16":
        _round_bfloat16(x.view(np.uint32))
    else:
        _round_float16(x.view(np.uint32), x)


@jit(math=STRICT)
def _add(x, y):
    for i in range(u8(x.size)):
        x[i] += y[i]


def accumulate(bits, x, kind):
    sums = np.empty(min(x.size, PIECE), np.float32)
    for first in range(0, x.size, PIECE):
        piece = slice(first, min(first + PIECE, x.size))
        part = sums[: piece.stop - first]
        widen(bits[piece], part, kind)
        _add(part, x[piece])
        narrow(part, bits[piece], kind)
