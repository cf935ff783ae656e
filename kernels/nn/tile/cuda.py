"""The tile on a GPU: a thread an output, the same chain of fused multiply-adds as on processors, the same bits.

Blocks are rounded to whole numbers by a kernel of their own, before the products.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import blocks, cuda, kernel, simulating
from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.device_array import empty, from_host
from hpckit.kernels.nn.tile.packed import BLOCK, KINDS, Packed, kind_of, room

WIDTH = 4 if simulating() else 32  # of a panel that is packed here, and threads across
DOWN = 2 if simulating() else 8  # threads of a block along the rows
LEVELS = 16  # the tree of 2^15 parts


@inlined
def _from_bfloat16(bits):
    return np.uint32(np.uint32(bits) << np.uint32(16)).view(np.float32)


@inlined
def _bfloat16(value):
    """A float32 rounded to bfloat16, as float32."""
    bits = np.float32(value).view(np.uint32)
    nearest = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return np.float32(value) if value != value else np.uint32(nearest & np.uint32(0xFFFF0000)).view(np.float32)


@inlined
def _from_half(low, high):
    """The float32 of a float16 by its bytes."""
    exponent, fraction = (int(high) >> 2) & 31, ((int(high) & 3) << 8) | int(low)
    size = math.ldexp(float(fraction + (1024 if exponent > 0 else 0)), max(exponent, 1) - 25)
    return np.float32(-size if int(high) & 128 else size)


@inlined
def _whole(panels, panel, unit, k, column, width):
    """Number k of a block, with its offset."""
    if panels.shape[2] == 34 * width:
        return int(panels[panel, unit, (k // 4 * width + column) * 4 + k % 4])
    pair = int(panels[panel, unit, (k // 8 * width + column) * 4 + k % 4])
    return pair >> 4 if k % 8 > 3 else pair & 15


@functools.cache
def _round_rows() -> Any:
    @kernel
    def round_rows(a, whole, scales):
        """A thread a block of a row."""
        unit, row = cuda.grid(2)
        if row < a.shape[0] and unit < scales.shape[1]:
            begin = unit * BLOCK
            count = min(BLOCK, a.shape[1] - begin)
            largest = np.float32(0)
            for k in range(count):
                largest = max(largest, abs(a[row, begin + k]))
            inverse = np.float32(127) / largest if largest > 0 else np.float32(0)
            for k in range(BLOCK):
                value = np.float32(a[row, begin + k] * inverse) if k < count else np.float32(0)
                low = math.floor(value)
                rest = value - low
                up = rest > 0.5 or (rest == 0.5 and int(low) % 2 != 0)
                whole[row, begin + k] = int(low) + (1 if up else 0)
            scales[row, unit] = largest / np.float32(127)

    return round_rows


@functools.cache
def _products(kind: str) -> Any:
    """The kernel of a kind: a thread an output."""
    real, along, short = np.dtype(KINDS[kind].sums).type, KINDS[kind].along, kind == "bfloat16"
    offset = KINDS[kind].offset

    if along == 1:

        @inlined
        def unit_of(a, scales, row, panels, panel, unit, column, width, total):
            weight = panels[panel, unit, column]
            return cuda.fma(a[row, unit], _from_bfloat16(weight) if short else weight, total)

    elif along == 2:

        @inlined
        def unit_of(a, scales, row, panels, panel, unit, column, width, total):
            if 2 * unit + 1 < a.shape[1]:
                odd = _from_bfloat16(panels[panel, unit, 2 * column + 1])
                total = cuda.fma(_bfloat16(a[row, 2 * unit + 1]), odd, total)
            return cuda.fma(_bfloat16(a[row, 2 * unit]), _from_bfloat16(panels[panel, unit, 2 * column]), total)

    else:

        @inlined
        def unit_of(a, scales, row, panels, panel, unit, column, width, total):
            dot = 0
            for k in range(BLOCK):
                own = int(a[row, unit * BLOCK + k])
                dot += own * (_whole(panels, panel, unit, k, column, width) - offset)
            at = panels.shape[2] - 2 * (width - column)
            scale = _from_half(panels[panel, unit, at], panels[panel, unit, at + 1])
            return cuda.fma(np.float32(dot), np.float32(scale * scales[row, unit]), total)

    @kernel
    def products(a, scales, panels, width, out, add, bounds):
        column, row = cuda.grid(2)
        if row < out.shape[0] and column < out.shape[1]:
            waiting = cuda.local.array(LEVELS, real)
            level, parts = 0, bounds.shape[0] - 1
            panel, own = column // width, column % width
            for n in range(parts):
                total = real(0)
                for unit in range(bounds[n], bounds[n + 1]):
                    total = unit_of(a, scales, row, panels, panel, unit, own, width, total)
                waiting[level] = total
                level += 1
                merged = n + 1
                while level > 1 and (merged % 2 == 0 or n == parts - 1):
                    waiting[level - 2] += waiting[level - 1]
                    level -= 1
                    merged = merged // 2
            out[row, column] = out[row, column] + waiting[0] if add else waiting[0]

    return products


@functools.cache
def _packer(kind: str) -> Any:
    short = kind.startswith("bfloat16")

    @kernel
    def pack_panels(weight, panels, along, width):
        place, unit = cuda.grid(2)
        if unit < panels.shape[1] and place < panels.shape[0] * panels.shape[2]:
            panel, rest = place // panels.shape[2], place % panels.shape[2]
            k, column = unit * along + rest % along, panel * width + rest // along
            there = k < weight.shape[0] and column < weight.shape[1]
            if short:
                bits = _bfloat16(weight[k, column]).view(np.uint32) >> np.uint32(16) if there else np.uint32(0)
                panels[panel, unit, rest] = bits
            else:
                panels[panel, unit, rest] = weight[k, column] if there else 0

    return pack_panels


def pack(weight: Any, kind: str, out: Any = None) -> Packed:
    """See `reference.pack`; weights of blocks are packed on the host, and their panels copied."""
    it = kind_of(kind)
    if it.along == BLOCK:
        raise TypeError(f"pack {kind} on the host, then copy its panels to the device")
    inputs, outputs = weight.shape
    panels = room(kind, inputs, outputs, WIDTH, out, lambda shape, memory: empty(shape, weight, memory))
    shape = blocks(panels.shape[0] * panels.shape[2], WIDTH), blocks(panels.shape[1], DOWN)
    if panels.size:
        _packer(kind)[shape, (WIDTH, DOWN)](weight, panels, it.along, WIDTH)
    return Packed(kind, inputs, outputs, WIDTH, panels)


def multiply(a: Any, weight: Packed, out: Any, add: bool = False, bounds: np.ndarray | None = None) -> None:
    """See `reference.multiply`."""
    it, units = KINDS[weight.kind], weight.panels.shape[1]
    ends = np.array([0, units]) if bounds is None else -(-np.asarray(bounds, np.int64) // it.along)
    scales = empty((1, 1), a, np.float32)
    if it.along == BLOCK and a.size:
        whole, scales = empty((len(a), units * BLOCK), a, np.int8), empty((len(a), units), a, np.float32)
        _round_rows()[(blocks(units, WIDTH), blocks(len(a), DOWN)), (WIDTH, DOWN)](a, whole, scales)
        a = whole
    if out.size:
        shape = blocks(weight.outputs, WIDTH), blocks(len(a), DOWN)
        _products(weight.kind)[shape, (WIDTH, DOWN)](
            a, scales, weight.panels, weight.width, out, add, from_host(ends, a)
        )
