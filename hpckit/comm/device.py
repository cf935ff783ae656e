"""Where the arrays of a rank live: in the memory of its cores, or on a GPU (`hpckit.comm.gpu`), real or simulated.

A device is an argument, like a communicator: `Field.zeros(…, device=device)` makes a field there, exchanges and sums
find it by the field, kernels by the array. Nothing is copied between host and device unless it says so by name.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.kernels.device_array import address


class Device:
    """The host: NumPy arrays, no streams. `Gpu` and `SimulatedGpu` are the others.

    `name` is what it is called, `is_gpu` whether kernels on it are CUDA kernels, `xp` the module of its arrays (NumPy
    or CuPy), `ranks` how many ranks of the job share it, `direct` whether MPI takes its memory.
    """

    name = "CPU"
    is_gpu = False
    ranks = 1
    direct = True

    @property
    def xp(self) -> ModuleType:
        """The module of its arrays: NumPy, or CuPy, which has the same names."""
        return np

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float64) -> Any:
        """An array of zeros, C-contiguous, 64-byte aligned."""
        return aligned_zeros(tuple(shape), np.dtype(dtype))

    def to_host(self, array: Any) -> np.ndarray:
        """The values as a NumPy array: the array itself where it is one, else a copy, complete when this returns."""
        return array

    def to_device(self, values: Any) -> Any:
        """NumPy values as an array of this device, C-contiguous: as they are on the host, else a copy."""
        return np.ascontiguousarray(values)

    def borrowed(self, array: Any) -> Any:
        """The memory of a C-contiguous array as a flat array that does not keep it alive."""
        memory: Any = (ctypes.c_char * array.nbytes).from_address(address(array))
        return np.frombuffer(memory, array.dtype)

    def wait(self) -> None:
        """Return when all that was asked of the device is done; for timing."""

    def stream(self) -> Any:
        """A queue of work beside the current one, whose work goes first: `with stream:` makes it the current one."""
        return _NoStream()

    def event(self) -> Any:
        """A mark in a queue: `record(stream)` sets it, `done`, `stream.wait_event`, `synchronize` ask and wait."""
        return _NoEvent()

    def current_stream(self) -> Any:
        """The queue that kernels, copies and array expressions go to."""
        return _NoStream()

    def pinned(self, nbytes: int) -> np.ndarray:
        """Host memory, uint8, which the device copies to and from while the host does something else."""
        return np.zeros(nbytes, np.uint8)

    def copy_out(self, source: Any, target: np.ndarray) -> None:
        """Copy a contiguous array of the device to pinned memory, in the current stream."""
        target[...] = source

    def copy_in(self, source: np.ndarray, target: Any) -> None:
        """Copy pinned memory to a contiguous array of the device, in the current stream."""
        target[...] = source

    def describe(self) -> str:
        """One line for a header."""
        return self.name

    def facts(self) -> dict[str, Any]:
        """What to keep with a run's figures."""
        return {"name": self.name}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.describe()})"


HOST = Device()


def ranks_text(ranks: int) -> str:
    """How many ranks are on a device."""
    return "1 rank on it" if ranks == 1 else f"{ranks} ranks share it"


def aligned_zeros(shape: tuple[int, ...], dtype: np.dtype, alignment: int = 64) -> np.ndarray:
    """Zeros that start at a multiple of `alignment` bytes, as full-width vector loads want it."""
    nbytes = math.prod(shape) * dtype.itemsize
    raw = np.zeros(nbytes + alignment, np.uint8)
    offset = -raw.ctypes.data % alignment
    return raw[offset : offset + nbytes].view(dtype).reshape(shape)


class _NoStream(contextlib.nullcontext):
    """The stream of a device without streams: everything is done when it is asked for."""

    def wait_event(self, event: Any) -> None:
        """Nothing to wait for."""


class _NoEvent:
    """The event of a device without streams: it has come."""

    def record(self, stream: Any) -> None:
        """Nothing to mark."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    @property
    def done(self) -> bool:
        """It has come."""
        return True
