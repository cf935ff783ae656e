"""Arrays of a GPU, distinguished from NumPy's without importing CuPy.

A device array is a CuPy array, or a `SimulatedArray`: host memory that stands for device memory where kernels run in
Numba's CUDA simulator, or are only compiled. All must be C-contiguous where a kernel takes them.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from hpckit.kernels.compile.cuda.simulated_stream import current_stream


class SimulatedArray(np.ndarray):
    """Memory of a simulated GPU. As CuPy does, it refuses to be mixed with NumPy arrays: copy with the device first.

    Writes to it go through the current simulated stream.
    """

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """A NumPy function of simulated arrays and numbers."""
        for each in (*inputs, *(options.get("out") or ())):
            _refuse_host(each)
        plain = [as_host(each) for each in inputs]
        out = options.pop("out", None)
        if out:
            options["out"] = tuple(as_host(each) for each in out)
            current_stream().give(lambda: getattr(ufunc, method)(*plain, **options))
            return out[0] if len(out) == 1 else out
        current_stream().run()
        result = getattr(ufunc, method)(*plain, **options)
        return result.view(SimulatedArray) if isinstance(result, np.ndarray) else result

    def __setitem__(self, index: Any, value: Any) -> None:
        """Apply a ufunc to numbers and simulated arrays only."""
        _refuse_host(value)
        target = as_host(self)
        current_stream().give(lambda: target.__setitem__(index, as_host(value)))


def _refuse_host(value: Any) -> None:
    if isinstance(value, np.ndarray) and not isinstance(value, SimulatedArray) and value.ndim:
        raise TypeError("a NumPy array meets an array of a GPU: copy it with device.to_device first")


def as_host(array: Any) -> Any:
    """A simulated array as the NumPy array of its memory; anything else as it is."""
    return array.view(np.ndarray) if isinstance(array, SimulatedArray) else array


def is_device_array(array: object) -> bool:
    """Whether an array lives on a GPU (CuPy) or on a simulated one."""
    kind = type(array)
    if kind is np.ndarray:  # the usual case, fast
        return False
    return kind.__module__ == "cupy" or isinstance(array, SimulatedArray)


def is_simulated(array: object) -> bool:
    """Whether an array lives on a simulated GPU."""
    return isinstance(array, SimulatedArray)


def address(array: Any) -> int:
    """The start address of an array's memory."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # a fifth of the time of what follows
    except (TypeError, ValueError):  # on a GPU, read-only, with gaps, empty, or of values that are not C's
        pass
    return int(array.data.ptr) if type(array).__module__ == "cupy" else int(array.__array_interface__["data"][0])


def may_share_memory(one: Any, other: Any) -> bool:
    """Whether two arrays of one kind could overlap in memory; for device arrays, both C-contiguous."""
    if not is_device_array(one) or isinstance(one, SimulatedArray):
        return bool(np.may_share_memory(one, other))
    first, second = address(one), address(other)
    return first < second + other.nbytes and second < first + one.nbytes


def empty(shape: int | tuple[int, ...], like: Any, dtype: Any = None) -> Any:
    """An array of that shape, of the kind of another and, where no dtype is given, of its dtype; not filled."""
    dtype = like.dtype if dtype is None else dtype
    if type(like).__module__ != "cupy":
        return np.empty(shape, dtype).view(type(like))
    import cupy

    return cupy.empty(shape, dtype)


def stretch(first: Any, count: int) -> Any:
    """`count` numbers of a device's memory from where an array starts; the caller knows that they are there."""
    if type(first).__module__ != "cupy":
        return np.lib.stride_tricks.as_strided(first.reshape(-1), (count,), subok=True)
    import cupy

    return cupy.ndarray((count,), first.dtype, first.data)


def zeros(shape: int | tuple[int, ...], like: Any) -> Any:
    """As `empty`, of zeros."""
    if type(like).__module__ != "cupy":
        return np.zeros(shape, like.dtype).view(type(like))
    import cupy

    return cupy.zeros(shape, like.dtype)


def from_host(values: np.ndarray, like: Any) -> Any:
    """A copy of NumPy values as an array of the kind of `like`."""
    if type(like).__module__ != "cupy":
        return np.array(values, order="C").view(type(like))
    import cupy

    return cupy.array(values, order="C")


def to_host(array: Any) -> np.ndarray:
    """The values as a NumPy array, complete when this returns."""
    return array.get() if type(array).__module__ == "cupy" else as_host(array)


def contiguous(array: Any, dtype: Any) -> Any:
    """The array in that dtype, C-contiguous, where it is: itself where it is so already."""
    if type(array).__module__ != "cupy":
        return np.ascontiguousarray(as_host(array), dtype).view(type(array))
    import cupy

    return cupy.ascontiguousarray(array, dtype)


def argsort(array: Any) -> Any:
    """The stable order of an array, wherever it is."""
    if type(array).__module__ != "cupy":
        return np.argsort(array, kind="stable")
    import cupy

    return cupy.argsort(array, kind="stable")


def set_from_host(array: Any, values: Any) -> None:
    """array[...] = NumPy values, broadcast and converted, wherever the array is."""
    wanted = np.broadcast_to(np.asarray(values, array.dtype), array.shape)
    array[...] = from_host(wanted, array) if is_device_array(array) else wanted


def placed(values: Any, like: Any) -> Any:
    """NumPy values as they are, or copied to the GPU where `like` is on one; arrays of a GPU as they are."""
    return from_host(values, like) if is_device_array(like) and not is_device_array(values) else values
