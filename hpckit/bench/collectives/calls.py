"""The calls that are timed: an operation by hpckit, by the MPI library, and by torch's gloo, on the same buffers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit import collectives
from hpckit.bench.collectives.values import REDUCING
from hpckit.collectives.reducing import MPI_OPS
from hpckit.collectives.reduction import BFLOAT16
from hpckit.errors import InputError

Run = Callable[[], object]


@dataclass(frozen=True)
class BenchCall:
    """One operation on the buffers of this rank.

    send: the input; out: the output, None if `send` is also the output; result: the array with the result. count:
    elements of the buffer, or of each rank's block.
    """

    operation: str
    comm: Any
    send: np.ndarray
    out: np.ndarray | None
    result: np.ndarray
    count: int
    dtype: str
    op: str
    root: int
    in_place: bool


def ours(call: BenchCall, algorithm: str) -> Run:
    """The operation by one of our algorithms."""
    x, comm, out, root, op = call.send, call.comm, call.out, call.root, call.op
    run: Callable[..., Any] = getattr(collectives, call.operation)
    if call.dtype == BFLOAT16 and call.operation in REDUCING:
        run = partial(run, kind=BFLOAT16)
    counts = np.full(comm.size, call.count)
    runs: dict[str, Run] = {
        "all_reduce": lambda: run(x, comm, op, algorithm).wait(),
        "reduce": lambda: run(x, comm, op, root, algorithm).wait(),
        "reduce_scatter": lambda: run(x, comm, op, out, algorithm).wait(),
        "broadcast": lambda: run(x, comm, root, algorithm).wait(),
        "all_gather": lambda: run(x, comm, out, algorithm).wait(),
        "gather": lambda: run(x, comm, out, root, algorithm, counts=counts).wait(),
        "scatter": lambda: run(x if comm.rank == root else None, comm, out, root, algorithm, counts=counts).wait(),
        "all_to_all": lambda: run(x, comm, out, algorithm).wait(),
    }
    return runs[call.operation]


def of_mpi(call: BenchCall) -> Run:
    """The MPI library's own operation. Raises `InputError` for numbers that MPI does not know."""
    comm, root, here = call.comm, call.root, call.comm.rank == call.root
    combines = call.operation in REDUCING
    if combines and call.dtype == BFLOAT16:
        raise InputError("MPI has no bfloat16")
    op = MPI_OPS[call.op] if combines else MPI.SUM
    x, out = (None if one is None else _numbers(one, combines) for one in (call.send, call.out))
    whole = MPI.IN_PLACE if call.in_place else x
    runs: dict[str, Run] = {
        "all_reduce": lambda: comm.Allreduce(MPI.IN_PLACE, x, op),
        "reduce": lambda: comm.Reduce(MPI.IN_PLACE if here else x, x if here else None, op, root),
        "reduce_scatter": lambda: comm.Reduce_scatter_block(whole, x if call.in_place else out, op),
        "broadcast": lambda: comm.Bcast(x, root),
        "all_gather": lambda: comm.Allgather(whole, out),
        "gather": lambda: comm.Gather(whole if here else x, out if here else None, root),
        "scatter": lambda: comm.Scatter(x if here else None, MPI.IN_PLACE if call.in_place and here else out, root),
        "all_to_all": lambda: comm.Alltoall(x, out),
    }
    run = runs[call.operation]
    if call.op != "mean" or not combines:
        return run
    result, ranks = call.result, call.result.dtype.type(comm.size)

    def mean() -> None:
        run()
        if call.operation != "reduce" or here:
            np.divide(result, ranks, out=result)

    return mean


def _numbers(array: np.ndarray, combines: bool) -> np.ndarray:
    """The array in a dtype that MPI knows: if the operation only moves data, as integers of the same size."""
    if array.dtype == bool:
        return array.view(np.uint8)
    return array.view(np.uint16) if array.dtype == np.float16 and not combines else array


def of_gloo(call: BenchCall, dist: Any) -> Run:
    """The operation by torch.distributed, whose process group must exist. Raises what torch raises."""
    x, out, root, here = _tensor(call, call.send), _tensor(call, call.out), call.root, call.comm.rank == call.root
    ops = {"sum": "SUM", "prod": "PRODUCT", "max": "MAX", "min": "MIN"}
    if call.operation in REDUCING and call.op not in ops:
        raise InputError(f"gloo has no {call.op}")
    op = getattr(dist.ReduceOp, ops.get(call.op, "SUM"))

    def parts(tensor: Any) -> Any:
        return list(tensor.split(call.count)) if here else None

    into = _tensor(call, call.result)
    pieces = parts(out if call.operation == "gather" else x) if call.operation in ("gather", "scatter") else None
    runs: dict[str, Run] = {
        "all_reduce": lambda: dist.all_reduce(x, op),
        "reduce": lambda: dist.reduce(x, root, op),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(into, x, op),
        "broadcast": lambda: dist.broadcast(x, root),
        "all_gather": lambda: dist.all_gather_into_tensor(out, x),
        "gather": lambda: dist.gather(x, pieces, root),
        "scatter": lambda: dist.scatter(out, pieces, root),
        "all_to_all": lambda: dist.all_to_all_single(out, x),
    }
    return runs[call.operation]


def _tensor(call: BenchCall, array: np.ndarray | None) -> Any:
    import torch

    if array is None:
        return None
    if call.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
