"""Which GPU a rank computes on, and whether MPI takes its memory."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

from hpckit.comm.device import Device
from hpckit.comm.gpu import Gpu
from hpckit.comm.gpu_driver import driver_count, missing, no_gpu
from hpckit.comm.simulated_gpu import SimulatedGpu

if TYPE_CHECKING:
    from mpi4py import MPI


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


def _sharing(node: MPI.Comm, place: str) -> int:
    """How many ranks of the node are on the GPU at this place of its bus."""
    own = np.zeros(32, np.uint8)
    text = place.encode()[:32]
    own[: len(text)] = np.frombuffer(text, np.uint8)
    every = np.empty((node.size, 32), np.uint8)
    node.Allgather(own, every)
    return int((every == own).all(axis=1).sum())
