"""Chooses the form by the arrays it is given, of any shape; makes arrays of 16 bits and of float32 from each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.kernels.forms import form_for
from hpckit.kernels.nn.memory import copied, empty

KINDS = ("bfloat16", "float16")
PIECE = 1 << 16  # numbers that are rounded at once, in place


def _flat(x: Any, bits: Any = None) -> tuple[Any, ...]:
    """Views of one dim. Raises `ValueError` for other dtypes, and arrays that would be copied."""
    for array, dtype in ((x, np.float32), (bits, np.uint16)):
        if array is not None and (array.dtype != dtype or not array.flags.c_contiguous):
            raise ValueError(f"an array of {np.dtype(dtype)} must be C-contiguous, not {array.dtype}{array.strides}")
    return (x.reshape(-1),) if bits is None else (x.reshape(-1), bits.reshape(-1))


def narrow(x: Any, bits: Any, kind: str) -> None:
    """See `reference.narrow`."""
    form_for(__package__, x).narrow(*_flat(x, bits), kind)


def widen(bits: Any, x: Any, kind: str) -> None:
    """See `reference.widen`."""
    form_for(__package__, x).widen(*reversed(_flat(x, bits)), kind)


def round_to(x: Any, kind: str) -> None:
    """See `reference.round_to`."""
    form_for(__package__, x).round_to(*_flat(x), kind)


def accumulate(bits: Any, x: Any, kind: str) -> None:
    """See `reference.accumulate`."""
    form_for(__package__, x).accumulate(*reversed(_flat(x, bits)), kind)


def narrowed(x: Any, kind: str) -> Any:
    """The bits of the numbers x, an array of its shape."""
    bits = empty(x.shape, x, np.uint16)
    narrow(x, bits, kind)
    return bits


def widened(bits: Any, kind: str) -> Any:
    """The float32 numbers that the bits stand for, an array of their shape."""
    x = empty(bits.shape, bits, np.float32)
    widen(bits, x, kind)
    return x


def packed(x: Any, kind: str) -> Any:
    """The bits of the numbers x [n], in the first half of x's own memory; x is used up."""
    bits = x.view(np.uint16)[: x.size]
    for first in range(0, x.size, PIECE):
        bits[first : first + PIECE] = narrowed(x[first : first + PIECE], kind)
    return bits


def unpack(x: Any, kind: str) -> None:
    """The reverse of `packed`: x has the numbers that its own first half stands for."""
    bits = x.view(np.uint16)[: x.size]
    for first in reversed(range(0, x.size, PIECE)):
        widen(copied(bits[first : first + PIECE]), x[first : first + PIECE], kind)


def summed(left: Any, right: Any, kind: str) -> Any:
    """Add right to left, both bits: in float32, and rounded once."""
    accumulate(left, widened(right, kind), kind)
    return left
