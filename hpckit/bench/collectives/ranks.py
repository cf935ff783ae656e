"""The ranks of `hpckit bench collectives`: buffers, candidates in turn on the same data, counts of wrong values."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.bench.collectives.calls import BenchCall, Run, of_gloo, of_mpi, ours
from hpckit.bench.collectives.rows import NO_TORCH
from hpckit.bench.collectives.values import BLOCKS, ROOTED, OperationValues, array_dtype, count_wrong
from hpckit.bench.measure import Times
from hpckit.bench.ranks import answer, slowest
from hpckit.collectives.axis import axis_of
from hpckit.comm.agree import broadcast_bytes
from hpckit.comm.mesh import Mesh
from hpckit.comm.shared.symmetric import empty_shared
from hpckit.errors import HpckitError

# Smaller calls are timed several in a row without a barrier, after some untimed ones, as the last calls were
# of another candidate.
SMALL = 64 * 1024
WARM = 20
POISON = 101  # not a valid value: unwritten elements show
REFUSALS = (HpckitError, MPI.Exception, RuntimeError, TypeError, ValueError, KeyError, NotImplementedError)


class CollectiveCase:
    """Buffers of one operation and size, which are rewritten by their owner before every timed call."""

    def __init__(self, mesh: Mesh, asked: dict[str, Any]) -> None:
        self.mesh, self.asked = mesh, asked
        self.operation, self.count = asked["operation"], asked["count"]
        self.nbytes, self.rooted = asked["bytes"], asked["operation"] in ROOTED
        self.root = asked["root"] or 0
        self.values = OperationValues(self.operation, asked["dtype"], mesh.size, asked["reduce"], self.root)
        self.whole = self.count * (mesh.size if self.operation in BLOCKS else 1)
        gives = self.count if self.operation in ("all_gather", "gather") else self.whole
        if self.operation == "scatter" and mesh.rank != self.root:
            gives = 0
        self._given = np.resize(self.values.given[mesh.rank], gives)
        self._rooms: dict[bool, tuple[np.ndarray, np.ndarray]] = {}

    def call(self, name: str) -> BenchCall:
        """The operation of a candidate: on private buffers, common to all candidates, or on a symmetric one."""
        rank, here, operation = self.mesh.rank, self.mesh.rank == self.root, self.operation
        in_place, own = self.asked["place"] == "in", slice(rank * self.count, (rank + 1) * self.count)
        send, taken = self._buffers(name in ("symmetric", "auto_symmetric"))
        out: np.ndarray | None = taken
        if operation in ("all_reduce", "reduce", "broadcast"):
            out = None
        elif in_place and (operation == "all_gather" or (operation == "gather" and here)):
            send, out = send[own], send
        elif in_place and operation == "scatter" and here:
            out = send[own]
        elif in_place and operation == "reduce_scatter":
            out = None
        result = send if out is None else out
        if operation == "reduce_scatter" and out is None:
            result = send[: self.count] if name == "mpi" else send[own]
        kinds = self.asked["dtype"], self.asked["reduce"] or "sum"
        return BenchCall(operation, self.mesh.comm, send, out, result, self.count, *kinds, self.root, in_place)

    def _buffers(self, symmetric: bool) -> tuple[np.ndarray, np.ndarray]:
        """Buffers for input and output; new array objects, so that hpckit's cache for one does not serve another
        candidate.
        """
        dtype, here = array_dtype(self.asked["dtype"]), self.mesh.rank == self.root
        takes = {"all_gather": self.whole, "gather": self.whole if here else 0, "all_to_all": self.whole}
        sent, taken = self._given.size, takes.get(self.operation, self.count)
        if self.asked["place"] == "in" and self.operation in ("all_gather", "gather"):
            sent = max(sent, taken)  # the block is a part of the result
        if symmetric not in self._rooms:
            send = empty_shared(self.mesh.comm, sent, dtype).array if symmetric else np.empty(sent, dtype)
            self._rooms[symmetric] = send, np.empty(taken, dtype)
        send, take = self._rooms[symmetric]
        return send[:], take[:]

    def rewrite(self, call: BenchCall) -> None:
        """The values of this rank."""
        np.copyto(call.send, self._given)

    def wrong(self, call: BenchCall) -> int:
        """The number of wrong values on all ranks together; clears the result."""
        found = count_wrong(call.result, self.values.wanted(self.mesh.rank, self.count))
        call.result.fill(POISON)
        total = np.array(found, np.int64)
        self.mesh.comm.Allreduce(MPI.IN_PLACE, total)
        return int(total)


def candidates(case: CollectiveCase) -> tuple[dict[str, tuple[Run, BenchCall]], dict[str, str]]:
    """The candidates with their buffers, by name, each tried once; and the reasons against others here."""
    comm, found, left_out = case.mesh.comm, dict[str, tuple[Run, BenchCall]](), dict[str, str]()
    shares = axis_of(comm).group is not None
    for name in case.asked["names"]:
        if not shares and name in ("flat", "staged", "symmetric", "auto_symmetric"):
            left_out[name] = "the ranks share no memory"
            continue
        made: tuple[Run, BenchCall] | None = None
        why = ""
        try:
            call = case.call(name)
            made = _maker(name)(call), call
            case.rewrite(call)
            made[0]()
        except ImportError:
            why = NO_TORCH
        except REFUSALS as error:
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
        fine = np.array(not why)
        comm.Allreduce(MPI.IN_PLACE, fine, MPI.LAND)
        if fine and made is not None:
            found[name] = made
        else:
            left_out[name] = why or "it is not available on another rank"
    return found, left_out


def _maker(name: str) -> Callable[[BenchCall], Run]:
    if name == "mpi":
        return of_mpi
    if name == "gloo":
        return _of_gloo
    return lambda call: ours(call, "auto" if name.startswith("auto") else name)


def _of_gloo(call: BenchCall) -> Run:
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        start_gloo(torch, dist)
    return of_gloo(call, dist)


def time_in_turn(
    case: CollectiveCase, runs: Mapping[str, tuple[Run, BenchCall]], rounds: int
) -> tuple[Times, dict[str, int]]:
    """Seconds a call of each candidate, in turn, the slowest rank's; and how many values were wrong.

    Ranks of a rooted operation do not wait for each other, so that calls in a row would overlap: they begin together.
    """
    comm, nbytes = case.mesh.comm, case.nbytes
    calls = max(1, min(100, 2 * SMALL // nbytes)) if nbytes <= SMALL else 1
    times: Times = {name: [] for name in runs}
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
            seconds = slowest(comm, spent / calls)
            if turn >= 0:
                times[name].append(seconds)
    return times, wrong


def measured(asked: dict[str, Any], comm: MPI.Intracomm = MPI.COMM_WORLD) -> dict[str, Any]:
    """Times of one case on every rank, and how many values were wrong. Collective."""
    with Mesh(comm, dp=0) as mesh:
        case = CollectiveCase(mesh, asked)
        runs, left_out = candidates(case)
        times, wrong = time_in_turn(case, runs, asked["rounds"])
        about = {key: value for key, value in asked.items() if key not in ("names", "rounds")}
        where = {"ranks": mesh.size, "layout": axis_of(mesh.comm).layout}
        return {**about, **where, "times": times, "wrong": wrong, "left_out": left_out}


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
    answer(sys.argv[1:], measured)
