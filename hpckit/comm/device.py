"""Where the arrays of a rank live: in the memory of its cores, or on a GPU (`hpckit.comm.gpu`), real or simulated.

A device is an argument, like a communicator: `Field.zeros(…, device=device)` makes a field there; exchanges and sums
find the device from the field, kernels from the array. Only functions named for it copy between host and device.
"""

from __future__ import annotations

import contextlib
import ctypes
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.kernels import aligned
from hpckit.kernels.device_array import address


class Device:
    """The host: NumPy arrays, no streams. `Gpu` and `SimulatedGpu` are the others.

    `name` is its display name, `is_gpu` whether its kernels are CUDA kernels, `xp` the module of its arrays (NumPy or
    CuPy), `ranks` how many ranks of the job share it, `direct` whether MPI accepts its memory.
    """

    name = "CPU"
    is_gpu = False
    ranks = 1
    direct = True

    @property
    def xp(self) -> ModuleType:
        """The module of its arrays: NumPy, or CuPy, which has the same names."""
        return np

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float64, lead: int = 0) -> Any:
        """An array of zeros, C-contiguous, 64-byte aligned: its first element, or in host memory its element `lead`."""
        return aligned.zeros(tuple(shape), dtype, lead)

    def to_host(self, array: Any) -> np.ndarray:
        """The values as a NumPy array: the array itself if it is one, else a copy, complete when this returns."""
        return array

    def to_device(self, values: Any) -> Any:
        """NumPy values as a C-contiguous array of this device; a GPU always makes a copy."""
        return np.ascontiguousarray(values)

    def borrowed(self, array: Any) -> Any:
        """The memory of a C-contiguous array as a flat array that does not keep it alive."""
        memory: Any = (ctypes.c_char * array.nbytes).from_address(address(array))
        return np.frombuffer(memory, array.dtype)

    def wait(self) -> None:
        """Return when the device has finished all its work; for timing."""

    def stream(self) -> Any:
        """A stream of higher priority than the main one: `with stream:` makes it the current one."""
        return _NoStream()

    def event(self) -> Any:
        """An event: `record(stream)` sets it, `done`, `stream.wait_event` and `synchronize` query it or wait for it."""
        return _NoEvent()

    def current_stream(self) -> Any:
        """The stream that kernels, copies and array expressions go to."""
        return _NoStream()

    def pinned(self, nbytes: int) -> np.ndarray:
        """Page-locked host memory, uint8, for copies that overlap with work of the host."""
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


def sharing_text(ranks: int) -> str:
    """How many ranks are on a device."""
    return "1 rank on it" if ranks == 1 else f"{ranks} ranks share it"


class _NoStream(contextlib.nullcontext):
    """The stream of a device without streams: all work is synchronous."""

    def wait_event(self, event: Any) -> None:
        """Nothing to wait for."""


class _NoEvent:
    """The event of a device without streams: it has always completed."""

    def record(self, stream: Any) -> None:
        """Nothing to mark."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    @property
    def done(self) -> bool:
        """Always True."""
        return True
