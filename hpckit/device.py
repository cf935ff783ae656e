"""Where the arrays of a rank live: in the memory of its cores, on a GPU, or on a simulated GPU.

A device is an argument, like a communicator: `Field.zeros(…, device=device)` makes a field there, exchanges and sums
find it by the field, kernels by the array. Nothing is copied between host and device unless it says so by name.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from hpckit.errors import SetupError
from hpckit.gpu_driver import driver_count, missing, no_gpu
from hpckit.kernels.device_array import SimulatedArray, address, as_host
from hpckit.kernels.simulated_stream import SimulatedEvent, SimulatedStream, current_stream, wait_for_all

if TYPE_CHECKING:
    from mpi4py import MPI


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
        return _aligned_zeros(tuple(shape), np.dtype(dtype))

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
        """A mark in a queue: `record(stream)` sets it, `stream.wait_event` and `synchronize` wait for it."""
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


class SimulatedGpu(Device):
    """Host memory in the place of a GPU's, for tests: kernels run in Numba's simulator, or are compiled only."""

    name = "simulated GPU (Numba's CUDA simulator)"
    is_gpu = True
    direct = False

    def zeros(self, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float64) -> Any:
        """As of any device."""
        return _aligned_zeros(tuple(shape), np.dtype(dtype)).view(SimulatedArray)

    def to_host(self, array: Any) -> np.ndarray:
        """As of any device."""
        current_stream().run()
        return np.array(as_host(array))

    def to_device(self, values: Any) -> Any:
        """As of any device."""
        return np.array(values, order="C").view(SimulatedArray)

    def wait(self) -> None:
        """As of any device."""
        wait_for_all()

    def stream(self) -> Any:
        """As of any device."""
        return SimulatedStream()

    def event(self) -> Any:
        """As of any device."""
        return SimulatedEvent()

    def current_stream(self) -> Any:
        """As of any device."""
        return current_stream()

    def copy_out(self, source: Any, target: np.ndarray) -> None:
        """As of any device."""
        current_stream().give(lambda: np.copyto(target, as_host(source)))

    def copy_in(self, source: np.ndarray, target: Any) -> None:
        """As of any device."""
        current_stream().give(lambda: np.copyto(as_host(target), source))

    def borrowed(self, array: Any) -> Any:
        """As of any device."""
        return super().borrowed(array).view(SimulatedArray)

    def describe(self) -> str:
        """One line for a header."""
        return f"{self.name}, {_ranks_text(self.ranks)}, MPI staged through the host"

    def facts(self) -> dict[str, Any]:
        """What to keep with a run's figures."""
        return {"name": self.name, "simulated": True, "ranks": self.ranks, "mpi": "staged"}


class Gpu(Device):
    """A CUDA device with CuPy arrays, by its number among those that this process sees.

    Making it selects it for the process and opens a stream, on which kernels, copies and array expressions then go in
    order. Raises `SetupError` where there is none.
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
        from hpckit.kernels.cuda_jit import cuda

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
        """As of any device; 512-byte aligned. Raises `SetupError` where the GPU has no room for it."""
        try:
            return self._cupy.zeros(tuple(shape), np.dtype(dtype))
        except self._cupy.cuda.memory.OutOfMemoryError:
            needed = math.prod(shape) * np.dtype(dtype).itemsize
            raise SetupError(
                f"{self.name} has no room for an array of {needed / 1e9:.3g} GB",
                likely=f"of its {self.memory / 1e9:.3g} GB, {_ranks_text(self.ranks)}",
                do="use more GPUs, or a smaller grid",
            ) from None

    def to_host(self, array: Any) -> np.ndarray:
        """As of any device."""
        return self._cupy.asnumpy(array)

    def to_device(self, values: Any) -> Any:
        """As of any device."""
        return self._cupy.array(np.ascontiguousarray(values), order="C")

    def borrowed(self, array: Any) -> Any:
        """As of any device."""
        memory = self._cupy.cuda.UnownedMemory(array.data.ptr, array.nbytes, None, self.number)
        return self._cupy.ndarray((array.size,), array.dtype, self._cupy.cuda.MemoryPointer(memory, 0))

    def wait(self) -> None:
        """As of any device."""
        self.handle.synchronize()

    def stream(self) -> Any:
        """As of any device."""
        return self._cupy.cuda.Stream(non_blocking=True, priority=-1)

    def event(self) -> Any:
        """As of any device."""
        return self._cupy.cuda.Event(disable_timing=True)

    def current_stream(self) -> Any:
        """As of any device."""
        return self._cupy.cuda.get_current_stream()

    def copy_out(self, source: Any, target: np.ndarray) -> None:
        """As of any device."""
        self._copy(target.ctypes.data, source.data.ptr, target.nbytes, self._cupy.cuda.runtime.memcpyDeviceToHost)

    def copy_in(self, source: np.ndarray, target: Any) -> None:
        """As of any device."""
        self._copy(target.data.ptr, source.ctypes.data, source.nbytes, self._cupy.cuda.runtime.memcpyHostToDevice)

    def _copy(self, target: int, source: int, nbytes: int, kind: int) -> None:
        self._cupy.cuda.runtime.memcpyAsync(target, source, nbytes, kind, self.current_stream().ptr)

    def pinned(self, nbytes: int) -> np.ndarray:
        """As of any device."""
        memory = self._cupy.cuda.alloc_pinned_memory(max(1, nbytes))
        return np.frombuffer(memory, np.uint8, nbytes)

    def describe(self) -> str:
        """One line for a header."""
        way = "MPI takes its memory" if self.direct else "MPI staged through the host"
        return f"{self.name}, {_ranks_text(self.ranks)}, {way}"

    def facts(self) -> dict[str, Any]:
        """What to keep with a run's figures."""
        return {
            "name": self.name,
            "memory": self.memory,
            "ranks": self.ranks,
            "mpi": "direct" if self.direct else "staged",
        }


def first_gpu() -> Device:
    """The first GPU that this process sees, for a program without MPI; in Numba's simulator a simulated one.

    Raises `SetupError` where there is none.
    """
    return SimulatedGpu() if _simulating() else Gpu()


def find_gpu(comm: MPI.Comm, mpi: str = "auto") -> Device:
    """The GPU of this rank. Collective.

    The ranks of a node are dealt to its GPUs in blocks, so that neighbors on a mesh share one where there are fewer
    GPUs than ranks; where the batch system shows each rank a GPU of its own, that one is taken. In Numba's simulator
    the device is a simulated one.

    mpi: "direct" gives MPI the device's memory, "staged" copies through the host, "auto" asks the MPI library.
    Raises `SetupError` on every rank alike where a rank finds no GPU.
    """
    from mpi4py import MPI

    simulated = _simulating()
    problem = "" if simulated else missing()
    lacking = np.array([bool(problem)], np.int32)
    comm.Allreduce(MPI.IN_PLACE, lacking, MPI.MAX)
    if lacking[0]:
        raise no_gpu(problem or "another rank of the job has none")
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    device: Device
    if simulated:
        device = SimulatedGpu()
        device.ranks = node.size
    else:
        count = driver_count() or 1
        direct = mpi == "direct" or (mpi == "auto" and takes_device_memory())
        device = Gpu(gpu_of(node.rank, node.size, count), direct)
        device.ranks = _sharing(node, device.place)
    node.Free()
    return device


def _simulating() -> bool:
    import numba

    return bool(numba.config.ENABLE_CUDASIM)  # type: ignore[attr-defined]


def gpu_of(rank: int, ranks: int, count: int) -> int:
    """The GPU of a rank of a node, by number: one each while there are enough, else blocks of neighbors share one."""
    return rank * count // max(count, ranks)


def takes_device_memory() -> bool:
    """Whether the MPI library says that it takes pointers to device memory (Open MPI, MPICH, Cray, MVAPICH)."""
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


def _sharing(node: MPI.Comm, place: str) -> int:
    """How many ranks of the node are on the GPU at this place of its bus."""
    own = np.zeros(32, np.uint8)
    text = place.encode()[:32]
    own[: len(text)] = np.frombuffer(text, np.uint8)
    every = np.empty((node.size, 32), np.uint8)
    node.Allgather(own, every)
    return int((every == own).all(axis=1).sum())


def _ranks_text(ranks: int) -> str:
    return "1 rank on it" if ranks == 1 else f"{ranks} ranks share it"


def _aligned_zeros(shape: tuple[int, ...], dtype: np.dtype, alignment: int = 64) -> np.ndarray:
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
