"""What each rank runs of the operations that were asked for: buffers, candidates in turn, values that are wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.bench.collectives.calls import Call, Run, of_gloo, of_mpi, ours
from hpckit.bench.collectives.ranks import start_gloo, time_in_turn
from hpckit.bench.collectives.rows import NO_TORCH
from hpckit.bench.collectives.values import BLOCKS, ROOTED, Values, array_dtype, count_wrong
from hpckit.bench.ranks import answer
from hpckit.collectives.axis import axis_of
from hpckit.errors import HpckitError
from hpckit.mesh import Mesh
from hpckit.shared import empty_shared

POISON = 101  # no value is this: what was not written shows
REFUSALS = (HpckitError, MPI.Exception, RuntimeError, TypeError, ValueError, KeyError, NotImplementedError)


class Case:
    """Buffers of one operation and size, which are rewritten by their owner before every timed call."""

    def __init__(self, mesh: Mesh, asked: dict[str, Any]) -> None:
        self.mesh, self.asked = mesh, asked
        self.operation, self.count = asked["operation"], asked["count"]
        self.nbytes, self.rooted = asked["bytes"], asked["operation"] in ROOTED
        self.root = asked["root"] or 0
        self.values = Values(self.operation, asked["dtype"], mesh.size, asked["reduce"], self.root)
        self.whole = self.count * (mesh.size if self.operation in BLOCKS else 1)
        gives = self.count if self.operation in ("all_gather", "gather") else self.whole
        if self.operation == "scatter" and mesh.rank != self.root:
            gives = 0
        self._given = np.resize(self.values.given[mesh.rank], gives)
        self._private: tuple[np.ndarray, np.ndarray] | None = None

    def call(self, name: str) -> Call:
        """The operation of a candidate: on private buffers, which all share, or sent from a symmetric one."""
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
        return Call(operation, self.mesh.comm, send, out, result, self.count, *kinds, self.root, in_place)

    def _buffers(self, symmetric: bool) -> tuple[np.ndarray, np.ndarray]:
        """Room for what is sent and for what is taken; array objects of their own: what hpckit keeps for one is not
        another candidate's.
        """
        dtype, here = array_dtype(self.asked["dtype"]), self.mesh.rank == self.root
        takes = {"all_gather": self.whole, "gather": self.whole if here else 0, "all_to_all": self.whole}
        sent, taken = self._given.size, takes.get(self.operation, self.count)
        if self.asked["place"] == "in" and self.operation in ("all_gather", "gather"):
            sent = max(sent, taken)  # the block is a part of the result
        if symmetric:
            return empty_shared(self.mesh.comm, sent, dtype).array, np.empty(taken, dtype)
        self._private = self._private or (np.empty(sent, dtype), np.empty(taken, dtype))
        return self._private[0][:], self._private[1][:]

    def rewrite(self, call: Call) -> None:
        """The values of this rank."""
        np.copyto(call.send, self._given)

    def wrong(self, call: Call) -> int:
        """How many values are not what they must be, on all ranks together; none are there any more."""
        found = count_wrong(call.result, self.values.wanted(self.mesh.rank, self.count))
        call.result.fill(POISON)
        total = np.array(found, np.int64)
        self.mesh.comm.Allreduce(MPI.IN_PLACE, total)
        return int(total)


def candidates(case: Case) -> tuple[dict[str, tuple[Run, Call]], dict[str, str]]:
    """What runs and on which buffers, by name, each tried once; and why others cannot be had here."""
    comm, found, left_out = case.mesh.comm, dict[str, tuple[Run, Call]](), dict[str, str]()
    shares = axis_of(comm).group is not None
    for name in case.asked["names"]:
        if not shares and name in ("flat", "staged", "symmetric", "auto_symmetric"):
            left_out[name] = "the ranks share no memory"
            continue
        made: tuple[Run, Call] | None = None
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
            left_out[name] = why or "it cannot be had on another rank"
    return found, left_out


def _maker(name: str) -> Callable[[Call], Run]:
    if name == "mpi":
        return of_mpi
    if name == "gloo":
        return _of_gloo
    return lambda call: ours(call, "auto" if name.startswith("auto") else name)


def _of_gloo(call: Call) -> Run:
    import torch
    import torch.distributed as dist

    if not dist.is_initialized():
        start_gloo(torch, dist)
    return of_gloo(call, dist)


def measured(asked: dict[str, Any], comm: MPI.Intracomm = MPI.COMM_WORLD) -> dict[str, Any]:
    """Times of one case on every rank, and how many values were wrong. Collective."""
    with Mesh(comm, dp=0) as mesh:
        case = Case(mesh, asked)
        runs, left_out = candidates(case)
        times, wrong = time_in_turn(case, runs, asked["rounds"])
        about = {key: value for key, value in asked.items() if key not in ("names", "rounds")}
        return {**about, "ranks": mesh.size, "times": times, "wrong": wrong, "left_out": left_out}


if __name__ == "__main__":
    answer(sys.argv[1:], measured)
