"""From pieces of kernels (`jit.inlined`) and kernels in double precision, what a GPU compiles quickly, in a precision.

- Numba and NumPy promote a float32 that meets a float64 constant, and every constant of a Python text is one: a kernel
  written once would compute in double precision whatever its arrays hold. In single precision all constants are
  float32 here, through everything that a kernel calls.
- A piece may have another body for GPUs (`on_gpu`): what vectorizes on a CPU is a call of the library there.
- Numba inlines pieces by copying their text, which takes a minute for a kernel of many. Here they become functions of
  the GPU, which its compiler inlines: the same machine code, compiled five times faster.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.jit import Dispatcher, Kernel, cuda, kernel, simulating


def in_precision(function: Callable, dtype: Any) -> Any:
    """The twin of a kernel's function for arrays of `dtype`, float64 or float32.

    Constants that change are the numbers in its text, in its closure and among the globals it names, and the type
    numpy.float64 itself; functions compiled by Numba that it names are replaced by their twins. A default argument
    keeps its type.
    """
    assert isinstance(function, types.FunctionType)
    constant = functools.partial(_constant, dtype=np.dtype(dtype))
    code = function.__code__.replace(co_consts=tuple(map(constant, function.__code__.co_consts)))
    names = dict(function.__globals__)
    for name in function.__code__.co_names:
        if name in names:
            names[name] = constant(names[name])
    cells = tuple(types.CellType(constant(cell.cell_contents)) for cell in function.__closure__ or ())
    twin = types.FunctionType(code, names, function.__name__, function.__defaults__, cells or None)
    return functools.update_wrapper(twin, function)


@functools.cache
def _piece(function: Any, dtype: np.dtype) -> Any:
    twin = in_precision(getattr(function, "on_gpu", function.py_func), dtype)
    return twin if simulating() else cuda.jit(twin, device=True, forceinline=True)


def _constant(value: Any, dtype: np.dtype) -> Any:
    if isinstance(value, Dispatcher):
        return _piece(value, dtype)
    if type(value) is tuple:
        return tuple(_constant(each, dtype) for each in value)
    if dtype == np.float32 and type(value) is float:
        return np.float32(value)
    if dtype == np.float32 and value is np.float64:
        return np.float32
    return value


@functools.cache
def typed_kernel(function: Callable, dtype: np.dtype) -> Kernel:
    """The kernel of a function, `in_precision`."""
    return kernel(in_precision(function, dtype))
