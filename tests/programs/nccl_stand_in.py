"""What is asked of NCCL, with MPI in its place: arrays that look like CuPy's on the host, a GPU for every rank."""

from __future__ import annotations

import sys
import types

import numpy as np
from mpi4py import MPI

import hpckit as hp
from hpckit.errors import InputError

COMM = MPI.COMM_WORLD
P, RANK = COMM.size, COMM.rank
asked = []
ALONE = sys.argv[1] == "alone"


class ndarray(np.ndarray):
    """Host memory with CuPy's way to its address."""

    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.__array_interface__["data"][0])


ndarray.__module__ = "cupy"


class Communicator:
    def __init__(self, ranks, key, rank):
        assert (ranks, rank, key) == (P, RANK, tuple(range(-64, 64)))

    def allReduce(self, source, target, count, kind, op, stream):
        assert source == target
        asked.append((kind, op, stream))
        values = np.frombuffer(MPI.memory.fromaddress(target, count * np.dtype(kind).itemsize), kind)
        COMM.Allreduce(MPI.IN_PLACE, values, {"sum": MPI.SUM, "max": MPI.MAX}[op])

    def broadcast(self, source, target, count, kind, root, stream):
        asked.append((kind, root, stream))
        COMM.Bcast(np.frombuffer(MPI.memory.fromaddress(target, count), kind), root)


class Event:
    done = True

    def __init__(self, disable_timing):
        pass

    def record(self, stream):
        assert stream.ptr == 7


def stand_in():
    nccl = types.ModuleType("cupy.cuda.nccl")
    nccl.available, nccl.NcclCommunicator = True, Communicator
    nccl.get_unique_id = lambda: tuple(range(-64, 64))
    nccl.NCCL_FLOAT32, nccl.NCCL_FLOAT64, nccl.NCCL_UINT8, nccl.NCCL_SUM, nccl.NCCL_MAX = "f4", "f8", "u1", "sum", "max"
    cuda = types.ModuleType("cupy.cuda")
    cuda.get_current_stream = lambda: types.SimpleNamespace(ptr=7, synchronize=lambda: None)
    place = f"0000:0{RANK if ALONE else 0}:00.0"
    cuda.Event, cuda.Device, cuda.nccl = Event, lambda: types.SimpleNamespace(pci_bus_id=place), nccl
    cupy = types.ModuleType("cupy")
    cupy.cuda, cupy.ndarray, cupy.empty = cuda, ndarray, lambda n, dtype: np.empty(n, dtype).view(ndarray)
    sys.modules |= {"cupy": cupy, "cupy.cuda": cuda, "cupy.cuda.nccl": nccl}


def forced(x):
    try:
        hp.all_reduce(x, COMM, algorithm="nccl")
    except InputError as error:
        return error.message
    return ""


stand_in()
x = np.full(5, RANK + 1.0, np.float32).view(ndarray)
if ALONE:
    work = hp.all_reduce(x, COMM)
    assert work.wait() is x
    assert work.test()
    assert (np.asarray(x) == P * (P + 1) / 2).all()
    hp.all_reduce(x, COMM, "mean").wait()
    assert (np.asarray(x) == P * (P + 1) / 2).all()
    assert asked == [("f4", "sum", 7)] * 2
    y = np.full(3, RANK).view(ndarray)
    hp.broadcast(y, COMM, P - 1).wait()
    assert (np.asarray(y) == P - 1).all()
    assert asked[2:] == [("u1", P - 1, 7)]
    assert "NCCL adds" in forced(np.ones(3))
    hp.all_reduce(np.ones(3), COMM).wait()
    assert len(asked) == 3
else:  # the ranks share a GPU
    assert "NCCL adds" in forced(x)
    assert not asked
hp.print_root("all good")
