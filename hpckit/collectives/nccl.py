"""Collectives of CuPy arrays by NCCL, where every rank of the axis has a GPU of its own.

They go into CuPy's current stream: what is asked of the GPU there afterwards comes after them, and the host does not
wait. Not run on hardware yet: the calls are tested against a stand-in for CuPy's NCCL.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hpckit.comm.agree import all_of_ranks, share_numbers

if TYPE_CHECKING:
    from mpi4py import MPI

OPS = {"sum": "NCCL_SUM", "mean": "NCCL_SUM", "max": "NCCL_MAX", "min": "NCCL_MIN", "prod": "NCCL_PROD"}
TYPES = {
    "int8": "NCCL_INT8",
    "uint8": "NCCL_UINT8",
    "int32": "NCCL_INT32",
    "uint32": "NCCL_UINT32",
    "int64": "NCCL_INT64",
    "uint64": "NCCL_UINT64",
    "float16": "NCCL_FLOAT16",
    "float32": "NCCL_FLOAT32",
    "float64": "NCCL_FLOAT64",
    "bfloat16": "NCCL_BFLOAT16",
}
PLACE = 32  # bytes of a GPU's place on its bus


class Nccl:
    """NCCL's communicator of the ranks of `comm`. Collective to make; `nccl`: the module `cupy.cuda.nccl`."""

    def __init__(self, comm: MPI.Comm, nccl: Any) -> None:
        self._nccl, self._ranks = nccl, comm.size
        key = np.zeros(128, np.int8)
        if comm.rank == 0:
            key[:] = nccl.get_unique_id()
        share_numbers(comm, key)
        self._communicator = nccl.NcclCommunicator(comm.size, tuple(key.tolist()), comm.rank)

    def all_reduce(self, array: Any, op: str) -> StreamRun:
        """All-reduce of a contiguous array in place."""

        def run(stream: Any) -> None:
            kind, pointer = getattr(self._nccl, TYPES[array.dtype.name]), array.data.ptr
            self._communicator.allReduce(pointer, pointer, array.size, kind, getattr(self._nccl, OPS[op]), stream.ptr)
            if op == "mean":
                np.divide(array, array.dtype.type(self._ranks), out=array)

        return started(array, run)

    def broadcast(self, array: Any, root: int) -> StreamRun:
        """Broadcast of the bytes of a contiguous array."""

        def run(stream: Any) -> None:
            pointer = array.data.ptr
            self._communicator.broadcast(pointer, pointer, array.nbytes, self._nccl.NCCL_UINT8, root, stream.ptr)

        return started(array, run)

    def takes(self, dtype: np.dtype, op: str) -> bool:
        """Whether NCCL combines such numbers; the mean only of those that keep their precision by it."""
        return (
            dtype.name in TYPES
            and hasattr(self._nccl, TYPES[dtype.name])
            and op in OPS
            and (op != "mean" or dtype.name in ("float32", "float64"))
        )


def started(array: Any, run: Callable[[Any], None]) -> StreamRun:
    """Put a collective into CuPy's current stream."""
    import cupy

    stream, event = cupy.cuda.get_current_stream(), cupy.cuda.Event(disable_timing=True)
    run(stream)
    event.record(stream)
    return StreamRun(array, event)


class StreamRun:
    """A collective that is in a stream: `wait` returns at once, and what is asked of that stream later comes after it.
    `test` says whether the GPU has done it.
    """

    __slots__ = ("_array", "_event", "done")

    def __init__(self, array: Any, event: Any) -> None:
        self._array, self._event, self.done = array, event, False

    def test(self) -> bool:
        """Whether the GPU has done it."""
        self.done = self.done or bool(self._event.done)
        return self.done

    def wait(self) -> Any:
        """The array."""
        return self._array


def nccl_of(comm: MPI.Comm, array: Any) -> Nccl | None:
    """NCCL for the ranks of `comm`, None where it is not there or where ranks share a GPU. Collective."""
    place, nccl = b"", None
    if type(array).__module__ == "cupy":
        import cupy

        nccl = importlib.import_module("cupy.cuda.nccl")
        if nccl.available:
            place = str(cupy.cuda.Device().pci_bus_id).encode()
    own = np.zeros(PLACE, np.uint8)
    own[: len(place[:PLACE])] = np.frombuffer(place[:PLACE], np.uint8)
    every = all_of_ranks(comm, own)
    alone = len({row.tobytes() for row in every}) == comm.size and bool(every.any(axis=1).all())
    return Nccl(comm, nccl) if alone and comm.size > 1 else None
