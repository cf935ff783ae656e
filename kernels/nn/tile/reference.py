"""Matrix products in a fixed order, in NumPy: what the tile computes, to the bit.

Each output is one chain of fused multiply-adds in the order of K, from zero, so its bits depend on its row and its
column alone: not on the number of rows, on the place of the row, or on how columns are split over ranks. A library of
linear algebra does not promise that: its kernels for one row, for few rows and for many add in different orders.

Fused multiply-adds are computed from exact products and sums that are rounded once: Boldo and Melquiond, "Emulation of
FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008. Exact for magnitudes of which a product
neither overflows nor underflows in float64.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.kernels.nn.tile.packed import (
    BLOCK,
    KINDS,
    Packed,
    from_bfloat16,
    from_gguf,
    kind_of,
    pack_blocks,
    panel_shape,
    room,
    to_bfloat16,
    to_blocks,
    unpack_blocks,
)

WIDTH = 8  # of a panel
Values = npt.NDArray[np.floating]


def pack(weight: Values, kind: str, out: npt.NDArray[Any] | None = None) -> Packed:
    """A weight [K, N] of a kind (`packed.KINDS`) as panels; numbers are rounded to the nearest of that kind.

    weight: float32 or float64, of any strides: the transpose of a weight is packed as its other view is. out: the
    memory of the panels (`packed.panel_shape`), by default new.
    """
    it = kind_of(kind)
    inputs, outputs = weight.shape
    panels, units, _ = panel_shape(kind, inputs, outputs, WIDTH)
    if it.along == BLOCK:
        return Packed(kind, inputs, outputs, WIDTH, pack_blocks(*to_blocks(weight, kind), kind, WIDTH, out))
    numbers = to_bfloat16(weight.astype(np.float32)) if it.memory == "uint16" else weight.astype(it.memory)
    filled = np.zeros((units * it.along, panels * WIDTH), it.memory)
    filled[:inputs, :outputs] = numbers
    ordered = filled.reshape(units, it.along, panels, WIDTH).transpose(2, 0, 3, 1)
    out = room(kind, inputs, outputs, WIDTH, out)
    out[...] = ordered.reshape(out.shape)
    return Packed(kind, inputs, outputs, WIDTH, out)


def pack_gguf(data: npt.NDArray[np.uint8], kind: str) -> Packed:
    """The weight of a tensor of a GGUF file, whose rows are outputs: uint8[N, K / 32, 34 (q8_0) or 18 (q4_0)]."""
    blocks = pack_blocks(*from_gguf(data, kind), kind, WIDTH)
    return Packed(kind, BLOCK * data.shape[1], len(data), WIDTH, blocks)


def unpack(weight: Packed) -> Values:
    """The numbers that a packed weight stands for, [K, N], float32 or float64."""
    it, panels = KINDS[weight.kind], weight.panels
    if it.along == BLOCK:
        whole, scale = unpack_blocks(weight)
        values = whole * scale.astype(np.float32)[:, None]
        return values.reshape(len(whole) * BLOCK, weight.outputs)[: weight.inputs]
    ordered = panels.reshape(*panels.shape[:2], weight.width, it.along).transpose(1, 3, 0, 2)
    columns = len(panels) * weight.width
    numbers = ordered.reshape(panels.shape[1] * it.along, columns)[: weight.inputs, : weight.outputs]
    return from_bfloat16(numbers) if it.memory == "uint16" else numbers.copy()


def multiply(a: Values, weight: Packed, out: Values, add: bool = False, bounds: np.ndarray | None = None) -> None:
    """Out = a @ weight, or out += a @ weight with `add`: [M, K] times [K, N].

    a and out: float64 for a weight of float64, else float32. bounds: int64[parts + 1], from 0 to K: each part of K is a
    chain of its own from zero, and neighbors are added in pairs until one is left (((0 + 1) + (2 + 3)) + 4), so ranks
    that hold aligned halves, quarters, … of the parts add up to the same bits. A bound within a pair or a block of the
    kind counts to the end of it.
    """
    bounds = np.array([0, weight.inputs]) if bounds is None else np.asarray(bounds)
    along = KINDS[weight.kind].along
    sums = [_chain(a, weight, -(-begin // along), -(-end // along)) for begin, end in pairwise(bounds.tolist())]
    while len(sums) > 1:
        pairs = [one + other for one, other in zip(sums[::2], sums[1::2], strict=False)]
        sums = pairs + sums[2 * len(pairs) :]
    out[...] = out + sums[0] if add else sums[0]


def _chain(a: Values, weight: Packed, begin: int, end: int) -> Values:
    """The products of some units, added one after the other."""
    total = np.zeros((len(a), weight.outputs), KINDS[weight.kind].sums)
    if KINDS[weight.kind].along == BLOCK:
        whole, scale = unpack_blocks(weight)
        own, factor = round_blocks(a)
        for n in range(begin, end):
            dots = own[:, n].astype(np.int32) @ whole[n].astype(np.int32)
            total = fused(dots.astype(np.float32), np.multiply.outer(factor[:, n], scale[n].astype(np.float32)), total)
        return total
    values = unpack(weight)
    if KINDS[weight.kind].along == 1:
        order = list(range(begin, end))
    else:
        a = from_bfloat16(to_bfloat16(a))
        order = [k for unit in range(begin, end) for k in (2 * unit + 1, 2 * unit) if k < weight.inputs]
    for k in order:
        total = fused(a[:, k, None], values[None, k], total)
    return total


def round_blocks(a: Values) -> tuple[npt.NDArray[np.int8], Values]:
    """Rows as int8[M, K / 32, 32] and the scales float32[M, K / 32] of their blocks: the largest magnitude / 127."""
    blocks = np.zeros((len(a), -(-a.shape[1] // BLOCK), BLOCK), np.float32)
    blocks.reshape(len(a), blocks.shape[1] * BLOCK)[:, : a.shape[1]] = a
    largest = np.abs(blocks).max(axis=2, initial=0)
    with np.errstate(divide="ignore"):
        inverse = np.where(largest > 0, np.float32(127) / largest, 0).astype(np.float32)
    return np.rint(blocks * inverse[:, :, None]).astype(np.int8), largest / np.float32(127)


def fused(x: Values, y: Values, z: Values) -> Values:
    """The sum x y + z, rounded once: all float32 or all float64."""
    if z.dtype == np.float32:
        high, low = _two_sum(x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64))
        return _to_odd(high, low).astype(np.float32)
    product, rest = _two_product(x, y)
    upper, lower = _two_sum(z, rest)
    high, low = _two_sum(product, upper)
    return high + _to_odd(*_two_sum(low, lower))


def _two_sum(a: Values, b: Values) -> tuple[Values, Values]:
    """A sum and what its rounding lost."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _two_product(a: Values, b: Values) -> tuple[Values, Values]:
    """A product of float64 and what its rounding lost: Dekker, 1971."""

    def halves(x: Values) -> tuple[Values, Values]:
        wide = x * 134217729.0  # 2^27 + 1
        high = wide - (wide - x)
        return high, x - high

    product = a * b
    (a_high, a_low), (b_high, b_low) = halves(a), halves(b)
    return product, a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


def _to_odd(total: Values, lost: Values) -> Values:
    """A rounded sum with a last bit of 1 where its rounding lost something: rounded again it is as if rounded once."""
    bits = total.view(np.int64)
    even = (bits & 1 == 0) & (lost != 0) & np.isfinite(lost)
    toward = np.where((lost > 0) == (total > 0), 1, -1)  # away from zero or to it; bits count magnitudes
    return np.where(even, bits + toward, bits).view(np.float64)
