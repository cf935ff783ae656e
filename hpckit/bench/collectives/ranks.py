"""What each rank of `hpckit bench collectives` runs: our algorithms, MPI's and gloo's in turn on the same data."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.bench.ranks import answer
from hpckit.collectives import all_gather, all_reduce, broadcast, gather, reduce, reduce_scatter, scatter
from hpckit.collectives.axis import axis_of
from hpckit.collectives.choice import NODE_ALGORITHMS, OTHERS
from hpckit.mesh import Mesh
from hpckit.plan.algorithms import ALGORITHMS
from hpckit.same import broadcast_bytes
from hpckit.shared import empty_shared

Run = Callable[[], object]
# Values repeat after so many numbers, so that right results are known without room for them.
PERIOD = 1024
# Calls of less are timed several in a row, without a barrier between, after some that are not timed: those before were
# another candidate's.
SMALL = 64 * 1024
WARM = 20


class Case:
    """Buffers of one size, float32: a private one and, where the ranks share a node, a symmetric one.

    A buffer is rewritten by its owner before every timed call with whole numbers, whose sums are exact in any order.
    """

    def __init__(self, mesh: Mesh, nbytes: int) -> None:
        self.mesh, self.count = mesh, max(1, nbytes // 4)
        pattern = np.arange(PERIOD, dtype=np.float32)
        self._given = np.resize(pattern + mesh.rank, self.count)
        self._sum = pattern * mesh.size + mesh.size * (mesh.size - 1) / 2
        self.private = np.empty(self.count, np.float32)
        self.nbytes, self.rooted = self.private.nbytes, False
        shares = axis_of(mesh.comm).group is not None
        self.symmetric = empty_shared(mesh.comm, self.count, np.float32).array if shares else None

    def rewrite(self, buffer: np.ndarray) -> None:
        """The values of this rank."""
        np.copyto(buffer, self._given)

    def wrong(self, buffer: np.ndarray) -> int:
        """How many values are not the sum over the ranks; on all ranks together."""
        whole = buffer.size // PERIOD * PERIOD
        count = sum(
            np.count_nonzero(part != self._sum[: part.shape[-1]])
            for part in (buffer[:whole].reshape(-1, PERIOD), buffer[whole:])
            if part.size
        )
        total = np.array(count, np.int64)
        self.mesh.comm.Allreduce(MPI.IN_PLACE, total)
        return int(total)


def candidates(case: Case, names: list[str]) -> dict[str, tuple[Run, np.ndarray]]:
    """What runs and on which buffer, by name; those that cannot be had here are left out."""
    comm, found = case.mesh.comm, dict[str, tuple[Run, np.ndarray]]()
    for name in names:
        x = case.symmetric if name in ("symmetric", "auto_symmetric") else case.private
        if x is None or (name in ("flat", "staged") and case.symmetric is None):
            continue
        x = x[:]  # an array object of its own: what is kept for it is not another candidate's
        if name == "gloo":
            run = _gloo(x)
        elif name == "mpi":
            run = _mpi(x, comm)
        else:
            run = _ours(x, comm, "auto" if name.startswith("auto") else name)
        if run is not None:
            found[name] = (run, x)
    return found


def _mpi(x: np.ndarray, comm: MPI.Comm) -> Run:
    def run() -> None:
        comm.Allreduce(MPI.IN_PLACE, x)

    return run


def _ours(x: np.ndarray, comm: MPI.Comm, algorithm: str) -> Run:
    def run() -> None:
        all_reduce(x, comm, "sum", algorithm).wait()

    return run


def time_in_turn(case: Any, runs: Mapping[str, tuple[Run, Any]], rounds: int) -> tuple[dict, dict]:
    """Seconds a call of each candidate, in turn, the slowest rank's; and how many values were wrong.

    case: a `Case`, or another with its mesh, nbytes, `rewrite`, `wrong`, and whether the operation is `rooted`: ranks
    of one that is do not wait for each other, so that calls in a row would overlap, and begin together.
    """
    comm, nbytes = case.mesh.comm, case.nbytes
    calls = max(1, min(100, 2 * SMALL // nbytes)) if nbytes <= SMALL else 1
    times: dict[str, list[float]] = {name: [] for name in runs}
    wrong = dict.fromkeys(runs, 0)
    for turn in range(-1, rounds):  # the first round compiles, touches the memory, and is checked
        for name, (run, x) in runs.items():
            spent = 0.0
            for call in range(-WARM if calls > 1 else 0, calls):
                case.rewrite(x)
                if calls == 1 or turn < 0 or case.rooted:
                    comm.Barrier()
                begin = time.perf_counter()
                run()
                if call >= 0:
                    spent += time.perf_counter() - begin
            if turn in (-1, rounds - 1):
                wrong[name] += case.wrong(x)
            seconds = np.array(spent / calls)
            comm.Allreduce(MPI.IN_PLACE, seconds, MPI.MAX)
            if turn >= 0:
                times[name].append(float(seconds))
    return times, wrong


def case(nbytes: int, names: list[str], rounds: int) -> dict[str, Any]:
    """Times of an all-reduce of `nbytes` on every rank."""
    with Mesh(MPI.COMM_WORLD, dp=0) as mesh:
        one = Case(mesh, nbytes)
        times, wrong = time_in_turn(one, candidates(one, names), rounds)
        layout = axis_of(mesh.comm).layout
        return {"bytes": one.count * 4, "ranks": mesh.size, "layout": layout, "times": times, "wrong": wrong}


def operation(name: str, nbytes: int, rounds: int) -> dict[str, Any]:
    """Times of the algorithms of another operation than all-reduce, for tuning; nbytes: of all blocks together."""
    with Mesh(MPI.COMM_WORLD, dp=0) as mesh:
        x = np.ones(max(mesh.size, nbytes // 4 // mesh.size * mesh.size), np.float32)
        own = x[: x.size // mesh.size].copy()
        calls: dict[str, Callable[[str], Any]] = {
            "reduce_scatter": lambda algorithm: reduce_scatter(x, mesh, algorithm=algorithm),
            "all_gather": lambda algorithm: all_gather(own, mesh, x, algorithm),
            "broadcast": lambda algorithm: broadcast(x, mesh, 0, algorithm),
            "reduce": lambda algorithm: reduce(x, mesh, "max", 0, algorithm),
            "scatter": lambda algorithm: scatter(x, mesh, own, 0, algorithm),
            "gather": lambda algorithm: gather(own, mesh, x, 0, algorithm),
        }
        names = [*ALGORITHMS[name], *(other for other in OTHERS.get(name, ()) if other != "nccl")]
        if name in NODE_ALGORITHMS and axis_of(mesh.comm).group is not None:
            names.append("staged")
        times: dict[str, list[float]] = {algorithm: [] for algorithm in names}
        for turn in range(-1, rounds):
            for algorithm, found in times.items():
                x[:] = 1
                mesh.comm.Barrier()
                begin = time.perf_counter()
                calls[name](algorithm).wait()
                mesh.comm.Barrier()  # a root that only sends is not done when its call returns
                seconds = np.array(time.perf_counter() - begin)
                mesh.comm.Allreduce(MPI.IN_PLACE, seconds, MPI.MAX)
                if turn >= 0:
                    found.append(float(seconds))
        return {"bytes": x.nbytes, "ranks": mesh.size, "layout": axis_of(mesh.comm).layout, "times": times, "wrong": {}}


def any_case(what: str, *arguments: Any) -> dict[str, Any]:
    """A case by the name of its operation."""
    found = case(*arguments) if what == "all_reduce" else operation(what, *arguments)
    return {"operation": what, **found}


def _gloo(x: np.ndarray) -> Run | None:
    """All-reduce by torch.distributed over gloo; None where torch is not installed."""
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        return None
    if not dist.is_initialized():
        start_gloo(torch, dist)
    tensor = torch.from_numpy(x)
    return lambda: dist.all_reduce(tensor)


def start_gloo(torch: Any, dist: Any) -> None:
    """A process group of all ranks that meets at a port of the first one."""
    comm = MPI.COMM_WORLD
    torch.set_num_threads(1)
    where = b""
    if comm.rank == 0:
        store = dist.TCPStore("localhost", 0, comm.size, is_master=True, wait_for_workers=False)
        where = f"{socket.gethostname()} {store.port}".encode()
    host, port = broadcast_bytes(comm, where, 0).decode().split()
    if comm.rank:
        name = "localhost" if host == socket.gethostname() else host
        store = dist.TCPStore(name, int(port), comm.size, is_master=False)
    dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)


if __name__ == "__main__":
    answer(sys.argv[1:], any_case)
