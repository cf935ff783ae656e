"""A CUDA device with CuPy arrays."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.comm.device import Device, ranks_text
from hpckit.comm.gpu_driver import missing, no_gpu
from hpckit.errors import SetupError


class Gpu(Device):
    """A CUDA device with CuPy arrays; `number` counts the devices visible to this process.

    Making it selects the device for the process and opens a stream, on which kernels, copies and array expressions then
    run in order. Raises `SetupError` when the device does not exist.
    """

    is_gpu = True

    def __init__(self, number: int = 0, direct: bool = False) -> None:
        problem = missing()
        if problem:
            raise no_gpu(problem)
        import cupy

        self._cupy = cupy
        self.number, self.direct = number, direct
        self.handle = cupy.cuda.Device(number)
        self.handle.use()
        from hpckit.kernels.compile.cuda_jit import cuda

        cuda.select_device(number)
        properties = cupy.cuda.runtime.getDeviceProperties(number)
        name = properties["name"]
        self.name = name.decode() if isinstance(name, bytes) else str(name)
        self.memory = int(properties["totalGlobalMem"])
        self.place = str(self.handle.pci_bus_id)
        self._main = cupy.cuda.Stream(non_blocking=True)
        self._main.use()

    @property
    def xp(self) -> ModuleType:
        """CuPy."""
        return self._cupy

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float64) -> Any:
        """An array of zeros, C-contiguous, 512-byte aligned. Raises `SetupError` when the GPU has no room for it."""
        try:
            return self._cupy.zeros(tuple(shape), np.dtype(dtype))
        except self._cupy.cuda.memory.OutOfMemoryError:
            needed = math.prod(shape) * np.dtype(dtype).itemsize
            raise SetupError(
                f"{self.name} has no room for an array of {needed / 1e9:.3g} GB",
                likely=f"it has {self.memory / 1e9:.3g} GB, and {ranks_text(self.ranks)}",
                do="use more GPUs, or a smaller grid",
            ) from None

    def to_host(self, array: Any) -> np.ndarray:
        """A copy of the values as a NumPy array, complete when this returns."""
        return self._cupy.asnumpy(array)

    def to_device(self, values: Any) -> Any:
        """A C-contiguous copy of NumPy values on the GPU."""
        return self._cupy.array(np.ascontiguousarray(values), order="C")

    def borrowed(self, array: Any) -> Any:
        """The memory of a C-contiguous array as a flat array that does not keep it alive."""
        memory = self._cupy.cuda.UnownedMemory(array.data.ptr, array.nbytes, None, self.number)
        return self._cupy.ndarray((array.size,), array.dtype, self._cupy.cuda.MemoryPointer(memory, 0))

    def wait(self) -> None:
        """Return when the GPU has finished all its work; for timing."""
        self.handle.synchronize()

    def stream(self) -> Any:
        """A new stream of high priority: `with stream:` makes it the current one."""
        return self._cupy.cuda.Stream(non_blocking=True, priority=-1)

    def event(self) -> Any:
        """An event: `record(stream)` sets it, `done`, `stream.wait_event` and `synchronize` query it or wait for it."""
        return self._cupy.cuda.Event(disable_timing=True)

    def current_stream(self) -> Any:
        """The stream that kernels, copies and array expressions go to."""
        return self._cupy.cuda.get_current_stream()

    def copy_out(self, source: Any, target: np.ndarray) -> None:
        """Copy a contiguous array to pinned memory, in the current stream."""
        self._copy(target.ctypes.data, source.data.ptr, target.nbytes, self._cupy.cuda.runtime.memcpyDeviceToHost)

    def copy_in(self, source: np.ndarray, target: Any) -> None:
        """Copy pinned memory to a contiguous array, in the current stream."""
        self._copy(target.data.ptr, source.ctypes.data, source.nbytes, self._cupy.cuda.runtime.memcpyHostToDevice)

    def _copy(self, target: int, source: int, nbytes: int, kind: int) -> None:
        self._cupy.cuda.runtime.memcpyAsync(target, source, nbytes, kind, self.current_stream().ptr)

    def pinned(self, nbytes: int) -> np.ndarray:
        """Page-locked host memory, uint8, for copies that overlap with work of the host."""
        memory = self._cupy.cuda.alloc_pinned_memory(max(1, nbytes))
        return np.frombuffer(memory, np.uint8, nbytes)

    def describe(self) -> str:
        """One line for a header."""
        way = "MPI takes its memory" if self.direct else "MPI staged through the host"
        return f"{self.name}, {ranks_text(self.ranks)}, {way}"

    def facts(self) -> dict[str, Any]:
        """What to keep with a run's figures."""
        return {
            "name": self.name,
            "memory": self.memory,
            "ranks": self.ranks,
            "mpi": "direct" if self.direct else "staged",
        }
