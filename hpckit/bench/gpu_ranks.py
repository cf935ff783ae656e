"""The ranks of `hpckit bench gpu`: halo exchanges of fields on the GPUs, and a run that must agree with one core."""

from __future__ import annotations

import sys
import time
from statistics import median
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.bench.gpu_cases import DOUBLE, difference, size
from hpckit.bench.job import answer
from hpckit.comm.device import Device
from hpckit.comm.gpu_choice import find_gpu
from hpckit.comm.mesh import Mesh
from hpckit.grid.exchange import HaloExchange
from hpckit.grid.field import Field
from hpckit.kernels import stencil
from hpckit.plan.grid.decomposition import Decomposition

ROUNDS, WARM = 50, 5
DT = 0.15


def halo(device: Device, n: int) -> dict[str, Any]:
    """Microseconds of an exchange between blocks of n^3 doubles, periodic, halo 1, until the GPU has done it."""
    comm = MPI.COMM_WORLD
    with Mesh(comm, z=0, y=1, x=1, periodic=("z", "y", "x")) as mesh:
        field = Field.zeros(mesh, Decomposition((n * comm.size, n, n), mesh.topology), device=device)
        with HaloExchange(mesh, field) as exchange:
            times = []
            for _ in range(size(device, ROUNDS, 2)):
                comm.Barrier()
                begin = time.perf_counter()
                exchange(field)
                device.wait()
                times.append(time.perf_counter() - begin)
            sent = exchange.nbytes
    middle = median(times[min(WARM, len(times) - 1) :])
    return {"case": f"halo {n}^3 a rank, {device.describe()}", "microseconds": middle * 1e6, "bytes_sent": sent}


def heat(device: Device) -> dict[str, Any]:
    """The heat equation with the core computed while messages fly, on all ranks, against the same on one core."""
    shape = size(device, (64, 96, 80), (6, 5, 7))
    steps = size(device, 50, 3)
    start = np.random.default_rng(0).normal(size=shape)
    fields = [_heat(MPI.COMM_WORLD, device, start, steps)]
    if MPI.COMM_WORLD.rank == 0:
        fields.append(_heat(MPI.COMM_SELF, Device(), start, steps))
        error = difference(fields[0], fields[1])
    else:
        error = 0.0
    return {
        "check": f"heat equation, {steps} overlapped steps, against one core",
        "dtype": "float64",
        "difference": error,
        "allowed": DOUBLE,
        "passed": bool(error <= DOUBLE),
    }


def _heat(comm: MPI.Intracomm, device: Device, start: np.ndarray, steps: int) -> Any:
    """The whole field at the end, on rank 0 of `comm`."""
    with Mesh(comm, z=0, y=0, x=0, periodic="x", shape=start.shape) as mesh:
        cells = Decomposition(start.shape, mesh.topology)
        now = Field.from_global(mesh, cells, start if mesh.rank == 0 else None, device=device)
        after = now.like()
        with HaloExchange(mesh, now, walls={"z": "mirror", "y": ("zero_gradient", 0.5)}) as exchange:
            for _ in range(steps):
                exchange.start(now)
                stencil.diffuse(after.data, now.data, 1.0, DT, 1.0, now.core)
                exchange.finish(now)
                stencil.diffuse(after.data, now.data, 1.0, DT, 1.0, now.rim)
                now, after = after, now
            return now.gather()


def case(name: str, n: int) -> dict[str, Any]:
    """One case of the bench: "halo" of n^3 blocks, or "heat"."""
    device = find_gpu(MPI.COMM_WORLD)
    return halo(device, n) if name == "halo" else heat(device)


if __name__ == "__main__":
    answer(sys.argv[1:], case)
