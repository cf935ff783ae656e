"""Host memory in the place of a GPU's, for tests of what runs on GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.comm.device import Device, sharing_text
from hpckit.kernels import aligned
from hpckit.kernels.compile.cuda.simulated_stream import SimulatedEvent, SimulatedStream, current_stream, wait_for_all
from hpckit.kernels.device_array import SimulatedArray, as_host


class SimulatedGpu(Device):
    """Host memory in the place of a GPU's, for tests: kernels run in Numba's simulator, or are compiled only."""

    name = "simulated GPU (Numba's CUDA simulator)"
    is_gpu = True
    direct = False

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float64, lead: int = 0) -> Any:
        """An array of zeros, C-contiguous, 64-byte aligned."""
        return aligned.zeros(tuple(shape), dtype).view(SimulatedArray)

    def to_host(self, array: Any) -> np.ndarray:
        """A copy of the values as a NumPy array, complete when this returns."""
        current_stream().run()
        return np.array(as_host(array))

    def to_device(self, values: Any) -> Any:
        """A C-contiguous copy of NumPy values on the GPU."""
        return np.array(values, order="C").view(SimulatedArray)

    def wait(self) -> None:
        """Return when the GPU has finished all its work; for timing."""
        wait_for_all()

    def stream(self) -> Any:
        """A new stream: `with stream:` makes it the current one."""
        return SimulatedStream()

    def event(self) -> Any:
        """An event: `record(stream)` sets it, `done`, `stream.wait_event` and `synchronize` query it or wait for it."""
        return SimulatedEvent()

    def current_stream(self) -> Any:
        """The stream that kernels, copies and array expressions go to."""
        return current_stream()

    def copy_out(self, source: Any, target: np.ndarray) -> None:
        """Copy a contiguous array to pinned memory, in the current stream."""
        current_stream().give(lambda: np.copyto(target, as_host(source)))

    def copy_in(self, source: np.ndarray, target: Any) -> None:
        """Copy pinned memory to a contiguous array, in the current stream."""
        current_stream().give(lambda: np.copyto(as_host(target), source))

    def borrowed(self, array: Any) -> Any:
        """The memory of a C-contiguous array as a flat array that does not keep it alive."""
        return super().borrowed(array).view(SimulatedArray)

    def describe(self) -> str:
        """One line for a header."""
        return f"{self.name}, {sharing_text(self.ranks)}, MPI staged through the host"

    def facts(self) -> dict[str, Any]:
        """What to keep with a run's figures."""
        return {"name": self.name, "simulated": True, "ranks": self.ranks, "mpi": "staged"}
