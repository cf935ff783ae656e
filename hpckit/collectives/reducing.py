"""All-reduce, reduce and reduce-scatter by the chosen algorithm: the steps of a run."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.collectives import nodes
from hpckit.collectives.axis import Axis
from hpckit.collectives.buffers import PairedSlots, Slots, counted_slots, even_slots, flat_like, segmented_slots
from hpckit.collectives.choice import AlgorithmChoice
from hpckit.collectives.rank_program import rank_program
from hpckit.collectives.reduction import UFUNCS, Reduction
from hpckit.collectives.request import Steps
from hpckit.collectives.runner import Runner
from hpckit.comm.call_order import Lane
from hpckit.plan.protocol import NOBODY

__communicates__ = True  # its frames are not call sites

MPI_OPS = {
    "sum": MPI.SUM, "mean": MPI.SUM, "average": MPI.SUM, "prod": MPI.PROD, "max": MPI.MAX, "min": MPI.MIN,
}  # fmt: skip
NAN_OPS = ("max", "min")  # of floats: the library's own lose a nan on some ranks and keep it on others
# Bytes of a piece: what a rank takes of it from the others stays in its cache.
PIECE = 1 << 20


def all_reduce(axis: Axis, tag: int, values: Any, reduction: Reduction, choice: AlgorithmChoice) -> Steps:
    """All-reduce of flat values in place, by the executor of the chosen algorithm."""
    return ALL_REDUCE.get(choice.algorithm, _all_reduce_by_plan)(axis, tag, values, reduction, choice)


def _all_reduce_by_plan(axis: Axis, tag: int, values: Any, reduction: Reduction, choice: AlgorithmChoice) -> Steps:
    """By the messages of a plan."""
    weights, told = _weights(axis.comm, reduction)
    yield told
    working = reduction.own(values, keep=False)
    program = choice.program(axis)
    yield from Runner(axis, tag, program, even_slots(working, program.slots), reduction.combine).steps()
    reduction.finish(working, weights)
    reduction.narrow(working, values)


def _all_reduce_over_nodes(axis: Axis, tag: int, values: Any, reduction: Reduction, choice: AlgorithmChoice) -> Steps:
    """Through the shared memory of each node; by messages alone where the nodes do not take the values."""
    over = nodes.over_nodes(axis, values, reduction)
    if over is not None:
        yield from nodes.all_reduce(over, values, reduction, *_weights(axis.comm, reduction))
        return
    instead = AlgorithmChoice("all_reduce", "hierarchical", {"node_size": axis.node_size})
    yield from _all_reduce_by_plan(axis, tag, values, reduction, instead)


def all_reduce_by_library(lane: Lane, values: Any, reduction: Reduction) -> Steps:
    """All-reduce of flat values in place by the MPI library, on a communicator of this call's own."""
    weights, told = _weights(lane.comm, reduction)
    working = reduction.own(values, keep=False)
    numbers = working.view(np.uint8) if working.dtype == bool else working
    reduced = lane.comm.Iallreduce(MPI.IN_PLACE, numbers, _op_of(reduction))  # at once, as `_weights` says
    yield told
    yield reduced
    reduction.finish(working, weights)
    reduction.narrow(working, values)


def _op_of(reduction: Reduction) -> MPI.Op:
    """The library's operation."""
    if reduction.op in NAN_OPS and reduction.working.kind == "f":
        return _nan_op(reduction.op, reduction.working)
    return MPI_OPS[reduction.op]


@functools.cache
def _nan_op(name: str, dtype: np.dtype) -> MPI.Op:
    """The maximum or minimum of floats as NumPy has it: nan where any number is."""
    combine = UFUNCS[name]

    def combined(incoming: Any, total: Any, _: MPI.Datatype) -> None:
        values = np.frombuffer(total, dtype)
        combine(np.frombuffer(incoming, dtype), values, out=values)

    return MPI.Op.Create(combined, commute=True)


def reduce(axis: Axis, tag: int, values: Any, reduction: Reduction, root: int, choice: AlgorithmChoice) -> Steps:
    """Reduce flat values to `root`, where they are replaced; elsewhere they stay."""
    weights, told = _weights(axis.comm, reduction)
    yield told
    if choice.algorithm == "ordered":
        slots = even_slots(values if axis.rank == root else values.copy(), axis.size)
        yield from _reduce_scatter_in_order(axis, tag, slots, reduction, weights)
        gather = AlgorithmChoice("gather", "naive", {"root": root}).program(axis)
        yield from Runner(axis, tag, gather, slots).steps()
        return
    program = choice.program(axis)
    takes = any(move.recv_from != NOBODY for move in program.moves)
    working = reduction.own(values, keep=axis.rank != root and takes)
    yield from Runner(axis, tag, program, even_slots(working, program.slots), reduction.combine).steps()
    if axis.rank == root:
        reduction.finish(working, weights)
        reduction.narrow(working, values)


def reduce_scatter(
    axis: Axis, tag: int, values: Any, into: Any, sizes: np.ndarray, reduction: Reduction, choice: AlgorithmChoice
) -> Steps:
    """Reduce-scatter of flat values in blocks of these sizes; into `into`, or in place where it is None."""
    weights, told = _weights(axis.comm, reduction)
    yield told
    if choice.algorithm == "ordered":
        slots = counted_slots(values if into is None else values.copy(), sizes)
        yield from _reduce_scatter_in_order(axis, tag, slots, reduction, weights)
        if into is not None:
            into[...] = slots.view(axis.rank, axis.rank + 1)
        return
    program = choice.program(axis)
    working = reduction.own(values, keep=into is not None)
    slots = segmented_slots(working, sizes, program.slots)
    yield from Runner(axis, tag, program, slots, reduction.combine).steps()
    own = slice(int(sizes[: axis.rank].sum()), int(sizes[: axis.rank + 1].sum()))
    reduction.finish(working[own], weights)
    if into is None:
        reduction.narrow(working[own], values[own])
    elif reduction.working == reduction.dtype and not reduction.is_brain:
        into[...] = working[own]
    else:
        reduction.narrow(working[own], into)


def _weights(comm: MPI.Intracomm, reduction: Reduction) -> tuple[np.ndarray, MPI.Request]:
    """The weights of all ranks, float64[ranks], once the request is over: 1 unless it is an average.

    They are asked for now. Ranks go on with what is under way at their own pace, and call the library in one order only
    where they do so as collectives are started.
    """
    weights = np.ones(comm.size)
    if reduction.op != "average":
        return weights, MPI.REQUEST_NULL
    return weights, comm.Iallgather(np.array([reduction.weight]), weights)


def _all_reduce_in_order(axis: Axis, tag: int, values: Any, reduction: Reduction, choice: AlgorithmChoice) -> Steps:
    """In the order of the ranks, in pieces that stay in the cache."""
    weights, told = _weights(axis.comm, reduction)
    yield told
    length = max(1, PIECE // values.itemsize)
    gather = rank_program("all_gather", "ring", axis.size, axis.rank)
    for start in range(0, values.size, length):
        slots = even_slots(values[start : start + length], axis.size)
        yield from _reduce_scatter_in_order(axis, tag, slots, reduction, weights)
        yield from Runner(axis, tag, gather, slots).steps()


ALL_REDUCE = {"nodes": _all_reduce_over_nodes, "ordered": _all_reduce_in_order}


def _reduce_scatter_in_order(axis: Axis, tag: int, slots: Slots, reduction: Reduction, weights: np.ndarray) -> Steps:
    """Reduce-scatter of a slot a rank: the own slot ends with the result."""
    own = slots.view(axis.rank, axis.rank + 1)
    incoming = flat_like(own, axis.size * own.size)
    taken = counted_slots(incoming, np.full(axis.size, own.size))
    incoming = incoming.reshape(axis.size, own.size)
    plan = rank_program("all_to_all", "pairwise", axis.size, axis.rank)
    yield from Runner(axis, tag, plan, PairedSlots(slots, taken)).steps()
    total = reduction.weighed(reduction.widened(incoming[0]), weights[0])
    for rank in range(1, axis.size):
        reduction.combine(total, reduction.weighed(reduction.widened(incoming[rank]), weights[rank]))
    reduction.finish(total, weights)
    if total.dtype == own.dtype and not reduction.is_brain:
        own[...] = total
    else:
        reduction.narrow(total, own)
