"""Matrix products of a GPU by cuBLAS: one or many at once, also of numbers of 16 bits on its tensor cores.

CuPy's own products take float32 and float64 only. Here operands may be the bits of bfloat16 or float16 numbers
(`narrow`), whose products are added in float32; the result is float32. The simulated GPU widens and multiplies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.simulated_stream import current_stream
from hpckit.kernels.device_array import address, as_host, is_device_array, is_simulated
from hpckit.kernels.nn.narrow import dispatch as short

NUMBERS = {"f": 0, "d": 1, "float16": 2, "bfloat16": 14}  # as CUDA's libraries call them (cudaDataType)
FLOAT_SUMS, DOUBLE_SUMS = 68, 70  # cublasComputeType_t
DEFAULT = -1  # cublasGemmAlgo_t
Known = dict[tuple[int, int], tuple[Any, Any]]
_active: list[tuple[str, Known]] = []


@contextmanager
def products_of(kind: str, given: Iterable[tuple[Any, Any]] = ()) -> Iterator[Known]:
    """Within it layers on a GPU round float32 operands of their products to `kind` ("bfloat16", "float16"), for its
    tensor cores. Layers that take turns may enter and leave in any order; they are all of one kind.

    given: arrays whose bits are there already, with them: they do not change within it. Yields where `round_to` notes
    more of such.
    """
    known: Known = {(address(array), array.nbytes): (array, bits) for array, bits in given if is_device_array(array)}
    own = kind, known
    _active.append(own)
    try:
        yield known
    finally:
        _active[:] = [each for each in _active if each is not own]


def kind_of_products() -> str:
    """The kind of `products_of`, or ""."""
    return _active[-1][0] if _active else ""


def known_bits(array: Any) -> Any:
    """The bits of an array where they are known, as a vector; else None."""
    if _active:
        key = address(array), array.nbytes
        for _, known in _active:
            if key in known:
                return known[key][1].reshape(-1)
    return None


def round_to(array: Any, kind: str, known: Known | None) -> None:
    """Round an array of a GPU in place; its bits are noted in `known`, while its `products_of` goes on."""
    bits = short.narrowed(array, kind)
    short.widen(bits, array, kind)
    if any(known is each for _, each in _active):
        known[address(array), array.nbytes] = array, bits  # type: ignore[index]


def multiply(a: Any, b: Any, out: Any, kind: str = "", scale: float = 1.0, add: bool = False) -> None:
    """Set out = scale a @ b, or out += scale a @ b with `add`: [m, k] @ [k, n] -> [m, n], or [N, m, k] @ [N, k, n].

    a, b: arrays of the GPU with contiguous rows, or transposes of such; of out's dtype, or with a `kind` the bits of
    such numbers, uint16, where out is float32. out has contiguous rows and overlaps no other.
    """
    if is_simulated(out):
        current_stream().give(lambda: _by_numpy(a, b, out, kind, scale, add))
        return
    cublas, handle = _library()
    numbers = NUMBERS[kind or out.dtype.char]
    of_out = NUMBERS[out.dtype.char]
    alpha, beta = _factors(scale, add, out.dtype.char)
    a_form, a_pitch, a_next = _form(a.shape, a.strides, a.itemsize)
    b_form, b_pitch, b_next = _form(b.shape, b.strides, b.itemsize)
    _, pitch, after = _form(out.shape, out.strides, out.itemsize)
    (rows, inner), columns = a.shape[-2:], out.shape[-1]
    # cuBLAS counts by columns: it sees transposes, and makes that of the result from those of b and a.
    what = handle(), b_form, a_form, columns, rows, inner, alpha.ctypes.data
    kinds = DOUBLE_SUMS if of_out == NUMBERS["d"] else FLOAT_SUMS, DEFAULT
    left, right, result, to = a.data.ptr, b.data.ptr, out.data.ptr, beta.ctypes.data
    if out.ndim == 2:
        cublas.gemmEx(*what, right, numbers, b_pitch, left, numbers, a_pitch, to, result, of_out, pitch, *kinds)
    else:
        cublas.gemmStridedBatchedEx(
            *what, right, numbers, b_pitch, b_next, left, numbers, a_pitch, a_next, to,
            result, of_out, pitch, after, len(out), *kinds,
        )  # fmt: skip


@functools.cache
def _library() -> tuple[Any, Callable[[], int]]:
    from cupy.cuda import cublas, device

    return cublas, device.get_cublas_handle


@functools.cache
def _factors(scale: float, add: bool, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """What a product, and what is there, are multiplied by; cuBLAS reads them when it is called."""
    return np.array([scale], dtype), np.array([float(add)], dtype)


@functools.lru_cache(4096)
def _form(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int, int]:
    """0 for contiguous rows, 1 for a transpose of such; numbers from row to row, and from matrix to matrix."""
    down, across = (each // itemsize for each in strides[-2:])
    rows, columns = shape[-2:]
    further = strides[0] // itemsize if len(shape) == 3 else 0
    if (across == 1 or columns == 1) and (down >= columns or rows == 1):
        return 0, max(down if rows > 1 else columns, columns, 1), further
    if (down == 1 or rows == 1) and (across >= rows or columns == 1):
        return 1, max(across if columns > 1 else rows, rows, 1), further
    raise ValueError(f"a product takes matrices with contiguous rows or columns, not strides {strides}")


def _by_numpy(a: Any, b: Any, out: Any, kind: str, scale: float, add: bool) -> None:
    left, right = (short.widened(_plain(each), kind) if kind else each for each in (a, b))
    found = out.dtype.type(scale) * (as_host(left) @ as_host(right))
    result = as_host(out)
    result[...] = result + found if add else found


def _plain(bits: Any) -> np.ndarray:
    return np.ascontiguousarray(as_host(bits))
