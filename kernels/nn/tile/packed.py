"""Weights packed for the tile: panels of columns, in the order in which a product reads them.

A panel holds `width` columns of a weight [K, N]; the last one is filled up with zeros. Along K it is a row of *units*,
each as the processor multiplies it: one number a column (float32, float64, bfloat16), two (bfloat16_dot), or a block
of 32 with its scale (q8_0, q4_0, the formats of GGUF files).

=============== ==================================================== ========================================
kind            unit of a panel                                      a row of the other matrix
=============== ==================================================== ========================================
float32 float64 a number a column                                    as it is
bfloat16        a bfloat16 a column, widened                         float32, as it is
bfloat16_dot    2 bfloat16 a column                                  rounded to bfloat16
q8_0            8 words a column of 4 bytes q + 128; float16 scales  rounded to int8, a float32 scale for each 32
q4_0            4 words a column of 8 nibbles q + 8; float16 scales  as for q8_0
=============== ==================================================== ========================================
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hpckit.kernels import aligned

BLOCK = 32  # numbers with one scale
QUADS = BLOCK // 4


class Kind(NamedTuple):
    """What distinguishes a kind: numbers along K in a unit, bytes a column in it, the dtypes of sums and of memory."""

    along: int
    nbytes: int
    sums: str = "float32"
    memory: str = "uint8"
    offset: int = 0  # of the whole numbers of a block, which are stored without a sign


KINDS = {
    "float32": Kind(1, 4, memory="float32"),
    "float64": Kind(1, 8, "float64", "float64"),
    "bfloat16": Kind(1, 2, memory="uint16"),
    "bfloat16_dot": Kind(2, 4, memory="uint16"),
    "q8_0": Kind(BLOCK, 34, offset=128),
    "q4_0": Kind(BLOCK, 18, offset=8),
}


class Packed(NamedTuple):
    """A weight [inputs, outputs] of a kind as panels: [panels, units, numbers of a unit of `width` columns]."""

    kind: str
    inputs: int
    outputs: int
    width: int
    panels: Any

    @property
    def nbytes(self) -> int:
        """Bytes that a product reads."""
        return int(self.panels.nbytes)


def kind_of(kind: str) -> Kind:
    """The kind of that name; raises `ValueError` for another."""
    if kind not in KINDS:
        raise ValueError(f"there is no kind {kind!r} of weights: choose {', '.join(KINDS)}")
    return KINDS[kind]


def panel_shape(kind: str, inputs: int, outputs: int, width: int) -> tuple[int, int, int]:
    """The shape of the panels."""
    it = kind_of(kind)
    return -(-outputs // width), -(-inputs // it.along), width * it.nbytes // np.dtype(it.memory).itemsize


def room(kind: str, inputs: int, outputs: int, width: int, out: Any = None, make: Any = aligned.empty) -> Any:
    """Memory for the panels: new by `make(shape, dtype)`, or `out`. Raises `ValueError` where that does not fit."""
    shape, memory = panel_shape(kind, inputs, outputs, width), KINDS[kind].memory
    if out is None:
        return make(shape, memory)
    if out.shape != shape or out.dtype != memory or not out.flags.c_contiguous:
        raise ValueError(
            f"panels of this weight are C-contiguous {memory}{list(shape)}, not {out.dtype}{list(out.shape)}"
        )
    return out


def to_bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Rounded to the nearest bfloat16, ties to even; nan stays nan. The bits, uint16 of the same shape."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    nearest = (bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)) >> 16
    return np.where(np.isnan(values), 0x7FC0, nearest).astype(np.uint16)


def from_bfloat16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """The float32 that the bits of a bfloat16 stand for."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_blocks(weight: npt.NDArray[Any], kind: str) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float16]]:
    """A weight [K, N] as whole numbers and scales of blocks of 32 along K: int8[K / 32, 32, N], float16[K / 32, N].

    q8_0: the scale is the largest magnitude / 127; q4_0: the number of the largest magnitude / -8, as GGUF files are
    made. K is filled up with zeros to blocks.
    """
    inputs, outputs = weight.shape
    blocks = np.zeros((-(-inputs // BLOCK), BLOCK, outputs), np.float32)
    blocks.reshape(len(blocks) * BLOCK, outputs)[:inputs] = weight
    if kind == "q8_0":
        scale = np.abs(blocks).max(axis=1, initial=0) / np.float32(127)
    else:
        largest = np.abs(blocks).argmax(axis=1)
        scale = np.take_along_axis(blocks, largest[:, None], 1)[:, 0] / np.float32(-8)
    with np.errstate(divide="ignore"):
        inverse = np.where(scale != 0, 1 / scale, 0).astype(np.float32)
    scaled = blocks * inverse[:, None]
    if kind == "q8_0":
        whole = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))
    else:
        whole = np.minimum(np.trunc(scaled + np.float32(8.5)), 15) - 8
    return whole.astype(np.int8), scale.astype(np.float16)


def from_gguf(data: npt.NDArray[np.uint8], kind: str) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float16]]:
    """The blocks of a tensor of a GGUF file: uint8[N, K / 32, 34 (q8_0) or 18 (q4_0)] -> as `to_blocks` gives them.

    A block is its scale and its numbers; byte j of q4_0 holds number j in its low and j + 16 in its high half.
    """
    it = kind_of(kind)
    if data.dtype != np.uint8 or data.ndim != 3 or data.shape[2] != it.nbytes or it.along != BLOCK:
        raise ValueError(f"blocks of {kind} are uint8[N, K / 32, {it.nbytes}], not {data.dtype}{list(data.shape)}")
    scale = np.ascontiguousarray(data[:, :, :2]).view(np.float16)[:, :, 0].T
    own = data[:, :, 2:]
    if kind == "q8_0":
        whole = own.view(np.int8)
    else:
        whole = np.concatenate([own & 15, own >> 4], axis=2).view(np.int8) - np.int8(8)
    return np.ascontiguousarray(whole.transpose(1, 2, 0)), np.ascontiguousarray(scale)


def pack_blocks(
    whole: npt.NDArray[np.int8], scale: npt.NDArray[np.float16], kind: str, width: int, out: Any = None
) -> npt.NDArray[Any]:
    """Whole numbers and scales of blocks (`to_blocks`) as panels, in `out` if that is given."""
    count, _, outputs = whole.shape
    panels, units, nbytes = panel_shape(kind, count * BLOCK, outputs, width)
    columns = panels * width
    numbers = np.full((count, BLOCK, columns), KINDS[kind].offset, np.uint8)
    numbers[:, :, :outputs] = (whole.astype(np.int16) + KINDS[kind].offset).astype(np.uint8)
    scales = np.zeros((count, columns), np.float16)
    scales[:, :outputs] = scale
    # [unit, quad, 4, panel, column] -> [panel, unit, quad, column, 4]
    words = numbers.reshape(units, QUADS, 4, panels, width).transpose(3, 0, 1, 4, 2)
    if kind == "q4_0":
        words = words[:, :, 0::2] | words[:, :, 1::2] << np.uint8(4)
    out = room(kind, count * BLOCK, outputs, width, out)
    out[:, :, : -2 * width] = words.reshape(panels, units, nbytes - 2 * width)
    own = np.ascontiguousarray(scales.reshape(units, panels, width).transpose(1, 0, 2))
    out[:, :, -2 * width :] = own.view(np.uint8)
    return out


def unpack_blocks(weight: Packed) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float16]]:
    """The whole numbers and scales of packed blocks, as `to_blocks` gives them."""
    panels, units, _ = weight.panels.shape
    halves = 2 if weight.kind == "q4_0" else 1
    words = weight.panels[:, :, : -2 * weight.width].reshape(panels, units, QUADS // halves, weight.width, 4)
    if halves == 2:
        words = np.stack([words & 15, words >> 4], axis=3).reshape(panels, units, QUADS, weight.width, 4)
    numbers = words.transpose(1, 2, 4, 0, 3).reshape(units, BLOCK, panels * weight.width)[:, :, : weight.outputs]
    scales = np.ascontiguousarray(weight.panels[:, :, -2 * weight.width :]).view(np.float16)
    whole = (numbers.astype(np.int16) - KINDS[weight.kind].offset).astype(np.int8)
    return whole, scales.transpose(1, 0, 2).reshape(units, panels * weight.width)[:, : weight.outputs]
