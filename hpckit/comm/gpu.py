"""A CUDA device with CuPy arrays: which one a rank computes on, whether MPI takes its memory, and what is lacking.

To import this starts neither the driver nor a package for GPUs.
"""

from __future__ import annotations

import ctypes
import importlib.util
import math
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpckit.comm.agree import all_of_ranks, max_of_ranks
from hpckit.comm.device import Device, sharing_text
from hpckit.comm.simulated_gpu import SimulatedGpu
from hpckit.errors import SetupError

if TYPE_CHECKING:
    from mpi4py import MPI

PACKAGES = {"CuPy": "cupy", "numba-cuda": "numba_cuda"}


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
        from hpckit.kernels.compile.cuda.jit import cuda

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

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float64, lead: int = 0) -> Any:
        """An array of zeros, C-contiguous, 512-byte aligned. Raises `SetupError` when the GPU has no room for it."""
        try:
            return self._cupy.zeros(tuple(shape), np.dtype(dtype))
        except self._cupy.cuda.memory.OutOfMemoryError:
            needed = math.prod(shape) * np.dtype(dtype).itemsize
            raise SetupError(
                f"{self.name} has no room for an array of {needed / 1e9:.3g} GB",
                likely=f"it has {self.memory / 1e9:.3g} GB, and {sharing_text(self.ranks)}",
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
        return f"{self.name}, {sharing_text(self.ranks)}, {way}"

    def facts(self) -> dict[str, Any]:
        """What to keep with a run's figures."""
        return {
            "name": self.name,
            "memory": self.memory,
            "ranks": self.ranks,
            "mpi": "direct" if self.direct else "staged",
        }


def first_gpu() -> Device:
    """The first GPU visible to this process, for a program without MPI; in Numba's simulator a simulated one.

    Raises `SetupError` when no GPU is found.
    """
    return SimulatedGpu() if _simulating() else Gpu()


def find_gpu(comm: MPI.Comm, mpi: str = "auto") -> Device:
    """The GPU of this rank. Collective.

    The ranks of a node are assigned to its GPUs in blocks, so that mesh neighbors share a GPU when there are fewer GPUs
    than ranks. If the batch system gives each rank a GPU of its own, the rank uses that one. In Numba's simulator the
    device is a simulated one.

    mpi: "direct" gives MPI the device's memory, "staged" copies through the host, "auto" asks the MPI library.
    Raises `SetupError` on every rank when any rank finds no GPU.
    """
    from hpckit.comm.shared.group import node_comm

    simulated = _simulating()
    problem = "" if simulated else missing()
    if max_of_ranks(comm, np.array(bool(problem), np.int32)):
        raise no_gpu(problem or "another rank of the job has none")
    node = node_comm(comm)
    if simulated:
        device: Device = SimulatedGpu()
        device.ranks = node.size
        return device
    direct = mpi == "direct" or (mpi == "auto" and takes_device_memory())
    device = Gpu(gpu_of(node.rank, node.size, driver_count() or 1), direct)
    places = all_of_ranks(node, np.frombuffer(device.place.encode()[:32].ljust(32), np.uint8))
    device.ranks = int((places == places[node.rank]).all(axis=1).sum())
    return device


def _simulating() -> bool:
    import numba

    return bool(numba.config.ENABLE_CUDASIM)  # type: ignore[attr-defined]


def gpu_of(rank: int, ranks: int, count: int) -> int:
    """The number of the GPU of a rank of a node: one each if there are enough, else blocks of neighbors share one."""
    return rank * count // max(count, ranks)


def takes_device_memory() -> bool:
    """Whether the MPI library reports that it accepts pointers to device memory (Open MPI, MPICH, Cray, MVAPICH)."""
    for query in ("MPIX_Query_cuda_support", "MPIX_GPU_query_support"):
        function = getattr(ctypes.CDLL(None), query, None)
        if function is None:
            continue
        if query == "MPIX_Query_cuda_support":
            return bool(function())
        answer = ctypes.c_int(0)
        cuda = 0  # MPIX_GPU_SUPPORT_CUDA
        return function(cuda, ctypes.byref(answer)) == 0 and bool(answer.value)
    return False


def missing() -> str:
    """What this process lacks to use a GPU, as a sentence; empty if it can use one. Starts no context."""
    absent = [name for name, module in PACKAGES.items() if importlib.util.find_spec(module) is None]
    count = driver_count()
    if count is None:
        return "no CUDA driver (libcuda.so.1) was found" + (f"; {' and '.join(absent)} missing too" if absent else "")
    if count == 0:
        return "the CUDA driver shows no GPU to this process"
    return f"{' and '.join(absent)} not installed" if absent else ""


def no_gpu(problem: str) -> SetupError:
    """The error of a run that asked for a GPU and has none."""
    nodes = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
    return SetupError(
        f"no GPU can be used: {problem}",
        likely=f"looked for an NVIDIA GPU, its driver, CuPy and numba-cuda; device files: {', '.join(nodes) or 'none'}",
        do="pip install 'hpckit[gpu]' and see nvidia-smi (driver 580 or newer); in a batch job ask for a GPU; or leave"
        " --gpu out; to try it without a GPU, slowly: NUMBA_ENABLE_CUDASIM=1",
    )


def driver_count() -> int | None:
    """How many GPUs the driver shows; None without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value
