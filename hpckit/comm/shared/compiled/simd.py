"""The reduction of shared-memory collectives, Numba: one small kernel for each kind of number and operation.

The collectives themselves know addresses and bytes only and call these by their address: a new kind or operation
compiles one loop. A block of the result is accumulated in L1 and then copied to all targets, because targets may be
sources too (a symmetric all-reduce writes all parts in place): a loop over both would not be vectorized.
STRICT: a product and a sum stay two roundings, as in NumPy.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpckit.comm.shared.compiled import reference
from hpckit.comm.shared.compiled.atomics import (
    REDUCER,
    copy_bytes,
    float_bits,
    float_of,
    narrow_half,
    widen_half,
)
from hpckit.comm.shared.compiled.constants import BLOCK, SCRATCH_BYTES
from hpckit.kernels.compile.addresses import address_of, values_at
from hpckit.kernels.compile.jit import STRICT, inlined, jit


@inlined(math=STRICT)
def _same(x):
    return x


@inlined(math=STRICT)
def _widen_bfloat(bits):
    return float_of(np.uint32(bits) << np.uint32(16))


@inlined(math=STRICT)
def _narrow_bfloat(value):
    bits = float_bits(value)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.uint16(rounded if value == value else quiet)


@inlined(math=STRICT)
def _add(x, y):
    return x + y


@inlined(math=STRICT)
def _times(x, y):
    return x * y


@inlined(math=STRICT)
def _larger(x, y):
    return x if x > y or x != x else y


@inlined(math=STRICT)
def _smaller(x, y):
    return x if x < y or x != x else y


_WIDEN = {"float16": widen_half, "bfloat16": _widen_bfloat}
_NARROW = {"float16": narrow_half, "bfloat16": _narrow_bfloat}
_COMBINE = {"max": _larger, "min": _smaller, "prod": _times}


@functools.cache
def reducer(kind: str, op: str) -> tuple[int, Any]:
    """The address of the kernel that reduces numbers of a kind, and the kernel, which must be kept as long.

    It is called with the address of int64[ranks] addresses of sources, ranks, the address of int64[copies] addresses of
    targets, copies, count, the address of float64[ranks] factors (read for "average" only) and that of scratch memory.
    Raises `TypeError` for what cannot be reduced.
    """
    reference.check(kind, op)
    half = kind in _WIDEN
    stored = values_at("uint16" if half else kind)
    wide = values_at("float32" if half else kind)
    number = np.dtype("float32" if half else kind).type
    item, wide_item = np.dtype("uint16" if half else kind).itemsize, 4
    widen, narrow, combine = _WIDEN.get(kind, _same), _NARROW.get(kind, _same), _COMBINE.get(op, _add)
    rounded_at = BLOCK * wide_item if half else 0  # in the scratch memory
    averaged, divided = op == "average", op == "mean"
    addresses, doubles = values_at("int64"), values_at("float64")

    @jit(math=STRICT, key=("shared-memory reducer", kind, op), by_address=True)
    def reduce(sources, ranks, targets, copies, count, factors, scratch):
        source, target, factor = addresses(sources, ranks), addresses(targets, copies), doubles(factors, ranks)
        total, rounded = wide(scratch, BLOCK), stored(scratch + rounded_at, BLOCK)
        for start in range(0, count, BLOCK):
            n = np.uint64(min(BLOCK, count - start))
            first = stored(source[0] + start * item, BLOCK)
            if averaged:
                scale = number(factor[0])
                for i in range(n):
                    total[i] = widen(first[i]) * scale
                for rank in range(1, ranks):
                    part, scale = stored(source[rank] + start * item, BLOCK), number(factor[rank])
                    for i in range(n):
                        total[i] = combine(total[i], widen(part[i]) * scale)
            else:
                if ranks == 1:
                    for i in range(n):
                        total[i] = widen(first[i])
                else:
                    part = stored(source[1] + start * item, BLOCK)
                    for i in range(n):
                        total[i] = combine(widen(first[i]), widen(part[i]))
                for rank in range(2, ranks):
                    part = stored(source[rank] + start * item, BLOCK)
                    for i in range(n):
                        total[i] = combine(total[i], widen(part[i]))
            if divided:
                for i in range(n):
                    total[i] = total[i] / number(ranks)
            if half:
                for i in range(n):
                    rounded[i] = narrow(total[i])
            for copy in range(copies):
                copy_bytes(target[copy] + start * item, scratch + rounded_at, np.int64(n) * item)

    return address_of(reduce, REDUCER), reduce


def fold(parts: Sequence[np.ndarray], op: str, factors: Sequence[float] | None = None, kind: str = "") -> np.ndarray:
    """The reduction of the arrays of all ranks; see `reference.fold`."""
    _, kernel = reducer(kind or parts[0].dtype.name, op)
    sources = np.array([part.ctypes.data for part in parts], np.int64)
    result = np.empty_like(parts[0])
    targets = np.array([result.ctypes.data], np.int64)
    factor = np.ones(len(parts)) if factors is None else np.array(factors, np.float64)
    scratch = np.empty(SCRATCH_BYTES, np.uint8)
    kernel(
        sources.ctypes.data,
        len(parts),
        targets.ctypes.data,
        1,
        result.size,
        factor.ctypes.data,
        scratch.ctypes.data,
    )
    return result
