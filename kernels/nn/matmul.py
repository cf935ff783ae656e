"""Matrix products that begin with a bias, with what a residual carries, or with what is there: none costs a pass over
memory of its own. A gradient adds up over microbatches.

In float32 they are the tile's (`tile.whole`): quicker than OpenBLAS, and the bits of an output depend on its row and
its column alone. Products of few rows, columns or numbers along K, and all in float64, are NumPy's own BLAS, called
with the beta that `numpy.matmul` does not have. The routine is looked up in the library that NumPy has loaded and tried
on a small product; where it is not found, a product goes to scratch and is added.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.kernels.device_array import is_device_array
from hpckit.kernels.nn import cublas
from hpckit.kernels.nn.memory import copied, empty
from hpckit.kernels.nn.narrow.dispatch import narrowed

ROW_MAJOR, AS_IS, TRANSPOSED = 101, 111, 112  # as CBLAS numbers them
NAMES = ("scipy_cblas_{}gemm64_", "cblas_{}gemm64_", "scipy_cblas_{}gemm", "cblas_{}gemm")
THREADS = tuple(f"{prefix}openblas_get_num_threads{suffix}" for prefix in ("scipy_", "") for suffix in ("64_", ""))
LETTERS = {"f": "s", "d": "d"}  # of a dtype, by its character, which is read faster than its name
FEW = 16  # rows, columns or numbers along K below which packing for the tile costs more than it saves
SHARED = 1 << 24  # multiply-adds, a third of a millisecond, from which on threads share a product


def multiply(a: Any, b: Any, out: Any, add: bool = False, bias: Any = None, onto: Any = None) -> None:
    """Out = a @ b, out += a @ b with `add`, or out = a @ b + bias + onto: [m, k] @ [k, n] -> [m, n].

    All are float32 or all float64; bias is [n], onto [m, n]. a and b are matrices or transposes of matrices whose rows
    are contiguous; out and onto have contiguous rows, and out overlaps no other. On a GPU by cuBLAS, which rounds a and
    b to 16 bits within `cublas.products_of`.
    """
    if type(out) is np.ndarray and out.dtype.char == "f" and min(*out.shape, a.shape[1]) >= FEW:
        by_tile = _tile()
        if by_tile is not None:
            by_tile(a, b, out, add, bias, onto)
            return
    if bias is not None or onto is not None:
        add = True
        if bias is None or onto is None:
            out[...] = onto if bias is None else bias
        else:
            np.add(onto, bias, out=out)
    if is_device_array(out):
        _on_device(a, b, out, add)
        return
    gemm = _gemm(out.dtype.char)
    if gemm is not None:
        gemm(a, b, out, add)
    elif add:
        scratch = empty(out.shape, out)
        np.matmul(a, b, out=scratch)
        out += scratch
    else:
        np.matmul(a, b, out=out)


def _on_device(a: Any, b: Any, out: Any, add: bool) -> None:
    kind = cublas.kind_of_products() if out.dtype == np.float32 else ""
    if kind:
        a, b = (_narrowed(each, kind) for each in (a, b))
    cublas.multiply(a, b, out, kind, add=add)


def _narrowed(matrix: Any, kind: str) -> Any:
    """The bits of a matrix, or of a transpose, in the same order in memory."""
    if not matrix.flags.c_contiguous:
        return _narrowed(matrix.T, kind).T if matrix.T.flags.c_contiguous else narrowed(copied(matrix), kind)
    bits = cublas.known_bits(matrix)
    return narrowed(matrix, kind) if bits is None else bits.reshape(matrix.shape)


@functools.cache
def _tile() -> Callable[..., None] | None:
    """The product by the tile, or None on processors where BLAS is as good."""
    from hpckit.kernels.nn.tile import whole

    if not whole.IS_FAST:
        return None
    kernel = whole.multiplier()

    def by_tile(a: np.ndarray, b: np.ndarray, out: np.ndarray, add: bool, bias: Any, onto: Any) -> None:
        (a_form, a_pitch), (b_form, b_pitch), pitch = _forms(a, b, out)
        (rows, inner), columns = a.shape, out.shape[1]
        left, right = (_address(a), a_pitch, a_form == TRANSPOSED), (_address(b), b_pitch, b_form == TRANSPOSED)
        start, carried, down = 0, 0, 0
        if bias is not None:
            if bias.shape != (columns,) or bias.dtype != out.dtype or not bias.flags.c_contiguous:
                raise ValueError(f"a bias of {columns} columns is not {bias.dtype}{list(bias.shape)}")
            start = _address(bias)
        if onto is not None:
            if onto.shape != out.shape or onto.dtype != out.dtype or (held := _form(onto))[0] != AS_IS:
                raise ValueError(f"what goes onto {list(out.shape)} is not {onto.dtype}{list(onto.shape)}")
            carried, down = _address(onto), held[1]

        def run(rows: tuple[int, int], columns: tuple[int, int]) -> None:
            """The stretches of rows and columns, each from one to another."""
            (top, bottom), (first, last) = rows, columns
            room = empty((whole.ROOM,), out)
            kernel(
                (left[0] + 4 * top * (1 if left[2] else a_pitch), *left[1:]),
                (right[0] + 4 * first * (b_pitch if right[2] else 1), *right[1:]),
                (_address(out) + 4 * (top * pitch + first), pitch),
                (bottom - top, last - first, inner),
                (add, start and start + 4 * first, carried and carried + 4 * (top * down + first), down),
                _address(room),
            )

        threads = _threads() if rows * columns * inner >= SHARED else 1
        if threads == 1:
            run((0, rows), (0, columns))
            return
        by_rows = rows >= columns
        unit = whole.HEIGHT if by_rows else whole.WIDTH
        each = -(-(rows if by_rows else columns) // (threads * unit)) * unit
        parts = [
            (first, min(first + each, rows if by_rows else columns)) for first in range(0, max(rows, columns), each)
        ]
        ways = [(part, (0, columns)) if by_rows else ((0, rows), part) for part in parts]
        others = [_pool(os.getpid(), threads).submit(run, *way) for way in ways[1:]]
        run(*ways[0])
        for other in others:
            other.result()

    few = np.zeros((FEW, FEW), np.float32)
    by_tile(few, few, few.copy(), False, None, None)  # compiled by one thread, before several ask for it
    return by_tile


@functools.cache
def _threads() -> int:
    """The threads of NumPy's BLAS, as its variables set them."""
    for path in _libraries():
        library = _library(path)
        for name in THREADS:
            if hasattr(library, name):
                return max(1, int(getattr(library, name)()))
    return 1


@functools.cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads beside the one that asks, of this process: a fork has none of its parent's."""
    return ThreadPoolExecutor(threads - 1)


@functools.cache
def _gemm(dtype: str) -> Callable[[np.ndarray, np.ndarray, np.ndarray, bool], None] | None:
    """The product by BLAS for the character of a dtype, or None where it is not found or gives wrong numbers."""
    a, b = np.arange(6, dtype=dtype).reshape(2, 3), np.arange(12, dtype=dtype).reshape(4, 3).T
    for routine in _routines(LETTERS[dtype]):
        gemm = _wrapped(routine, ctypes.c_float if dtype == "f" else ctypes.c_double)
        out = np.ones((2, 4), dtype)
        gemm(a, b, out, True)
        if np.array_equal(out, 1 + a @ b):
            return gemm
    return None


def _wrapped(routine: Any, scalar: Any) -> Callable[[np.ndarray, np.ndarray, np.ndarray, bool], None]:
    # Integers go as 64 bits: a library that expects 32 reads the lower half of the register or stack slot.
    integer, pointer = ctypes.c_int64, ctypes.c_void_p
    routine.argtypes = [ctypes.c_int] * 3 + [integer] * 3 + [scalar, pointer, integer, pointer, integer]
    routine.argtypes += [scalar, pointer, integer]
    routine.restype = None
    one, zero = scalar(1), scalar(0)

    def gemm(a: np.ndarray, b: np.ndarray, out: np.ndarray, add: bool) -> None:
        (a_form, a_pitch), (b_form, b_pitch), out_pitch = _forms(a, b, out)
        (rows, inner), columns = a.shape, b.shape[1]
        routine(
            ROW_MAJOR, a_form, b_form, rows, columns, inner, one, _address(a), a_pitch,
            _address(b), b_pitch, one if add else zero, _address(out), out_pitch,
        )  # fmt: skip

    return gemm


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _forms(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> tuple[tuple[int, int], tuple[int, int], int]:
    """The forms of both matrices, and numbers from row to row of the result. Raises where they do not fit."""
    if b.shape[0] != a.shape[1] or out.shape != (a.shape[0], b.shape[1]):
        raise ValueError(f"a product of {a.shape} and {b.shape} does not go to {out.shape}")
    if not a.dtype == b.dtype == out.dtype:
        raise TypeError(f"a product takes arrays of one dtype, not {a.dtype}, {b.dtype} and {out.dtype}")
    out_form, out_pitch = _form(out)
    if out_form != AS_IS:
        raise ValueError("the result of a product needs contiguous rows")
    return _form(a), _form(b), out_pitch


def _form(matrix: np.ndarray) -> tuple[int, int]:
    """Whether a matrix is stored by rows or is the transpose of one that is, and numbers from row to row."""
    (rows, columns), (down, across), size = matrix.shape, matrix.strides, matrix.itemsize
    if (across == size or columns == 1) and (down >= columns * size or rows == 1):
        return AS_IS, max(down // size if rows > 1 else columns, columns, 1)
    if (down == size or rows == 1) and (across >= rows * size or columns == 1):
        return TRANSPOSED, max(across // size if columns > 1 else rows, rows, 1)
    raise ValueError(f"a product takes matrices with contiguous rows or columns, not strides {matrix.strides}")


def _routines(letter: str) -> list[Any]:
    """Candidates for gemm of a letter, in the libraries that this process has loaded for NumPy."""
    found = []
    for path in _libraries():
        library = _library(path)
        found += [getattr(library, name.format(letter)) for name in NAMES if hasattr(library, name.format(letter))]
    return found


def _library(path: str) -> Any:
    """A library, or None where it cannot be loaded."""
    try:
        return ctypes.CDLL(path)
    except OSError:
        return None


def _libraries() -> list[str]:
    """Paths of BLAS libraries: beside NumPy (its wheels), else among those mapped into this process (Linux)."""
    home = Path(np.__file__).parent
    beside = [str(path) for folder in (home.parent / "numpy.libs", home / ".dylibs") for path in folder.glob("*blas*")]
    maps = Path("/proc/self/maps")
    lines = maps.read_text(encoding="utf-8").splitlines() if maps.exists() else []
    mapped = {line.split(maxsplit=5)[5] for line in lines if line.count("/")}
    blas = [path for path in sorted(mapped) if any(word in Path(path).name for word in ("blas", "blis", "mkl_rt"))]
    return beside + [path for path in blas if "torch" not in path and "scipy.libs" not in path]
