"""Matrix products that add to what is there: NumPy's own BLAS, called with the beta that `numpy.matmul` does not have.

A gradient accumulates over microbatches, and a bias or a residual is what a product starts from. With beta = 1 neither
costs a pass over memory of its own. The routine is looked up in the BLAS library that NumPy has loaded and tried on a
small product; where it is not found, a product goes to scratch and is added.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.kernels.device_array import is_device_array
from hpckit.kernels.nn.memory import empty

ROW_MAJOR, AS_IS, TRANSPOSED = 101, 111, 112  # as CBLAS numbers them
NAMES = ("scipy_cblas_{}gemm64_", "cblas_{}gemm64_", "scipy_cblas_{}gemm", "cblas_{}gemm")
LETTERS = {"f": "s", "d": "d"}  # of a dtype, by its character, which is read faster than its name


def multiply(a: Any, b: Any, out: Any, add: bool = False) -> None:
    """Out = a @ b, or out += a @ b with `add`: [m, k] @ [k, n] -> [m, n], all float32 or all float64.

    a and b are matrices or transposes of matrices whose rows are contiguous; out has contiguous rows and overlaps
    neither. On a GPU by cuBLAS, which takes whole matrices and transposes of such without a copy.
    """
    if type(out).__module__ == "cupy":
        from cupy import cublas

        cublas.gemm("N", "N", a, b, out=out, beta=float(add))
        return
    gemm = None if is_device_array(out) else _gemm(out.dtype.char)
    if gemm is not None:
        gemm(a, b, out, add)
    elif add:
        scratch = empty(out.shape, out)
        np.matmul(a, b, out=scratch)
        out += scratch
    else:
        np.matmul(a, b, out=out)


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
        (rows, inner), columns = a.shape, b.shape[1]
        if b.shape[0] != inner or out.shape != (rows, columns):
            raise ValueError(f"a product of {a.shape} and {b.shape} does not go to {out.shape}")
        if not a.dtype == b.dtype == out.dtype:
            raise TypeError(f"a product takes arrays of one dtype, not {a.dtype}, {b.dtype} and {out.dtype}")
        a_form, a_pitch = _form(a)
        b_form, b_pitch = _form(b)
        out_form, out_pitch = _form(out)
        if out_form != AS_IS:
            raise ValueError("the result of a product needs contiguous rows")
        routine(
            ROW_MAJOR, a_form, b_form, rows, columns, inner, one, a.__array_interface__["data"][0], a_pitch,
            b.__array_interface__["data"][0], b_pitch, one if add else zero, out.__array_interface__["data"][0],
            out_pitch,
        )  # fmt: skip

    return gemm


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
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        found += [getattr(library, name.format(letter)) for name in NAMES if hasattr(library, name.format(letter))]
    return found


def _libraries() -> list[str]:
    """Paths of BLAS libraries: beside NumPy (its wheels), else among those mapped into this process (Linux)."""
    home = Path(np.__file__).parent
    beside = [str(path) for folder in (home.parent / "numpy.libs", home / ".dylibs") for path in folder.glob("*blas*")]
    maps = Path("/proc/self/maps")
    lines = maps.read_text(encoding="utf-8").splitlines() if maps.exists() else []
    mapped = {line.split(maxsplit=5)[5] for line in lines if line.count("/")}
    blas = [path for path in sorted(mapped) if any(word in Path(path).name for word in ("blas", "blis", "mkl_rt"))]
    return beside + [path for path in blas if "torch" not in path and "scipy.libs" not in path]
