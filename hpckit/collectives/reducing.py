"""All-reduce, reduce and reduce-scatter by the chosen algorithm: steps of a `Work`."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.collectives import nodes
from hpckit.collectives.axis import Axis
from hpckit.collectives.buffers import PairedSlots, Slots, counted_slots, even_slots, flat_like, segmented_slots
from hpckit.collectives.choice import Choice
from hpckit.collectives.rank_program import rank_program
from hpckit.collectives.reduction import Reduction
from hpckit.collectives.request import Steps
from hpckit.collectives.runner import Runner
from hpckit.plan.protocol import NOBODY

__communicates__ = True  # its frames are not call sites

MPI_OPS = {
    "sum": MPI.SUM, "mean": MPI.SUM, "average": MPI.SUM, "prod": MPI.PROD, "max": MPI.MAX, "min": MPI.MIN,
}  # fmt: skip
# Bytes of a piece: what a rank takes of it from the others stays in its cache.
PIECE = 1 << 20


def all_reduce(axis: Axis, tag: int, values: Any, reduction: Reduction, choice: Choice) -> Steps:
    """All-reduce of flat values in place."""
    over = nodes.over_nodes(axis, choice, values, reduction)
    if over is not None:
        yield from nodes.all_reduce(over, values, reduction, *_weights(axis, reduction))
        return
    if choice.algorithm == "nodes":  # what comes next to it, by messages alone
        choice = Choice("all_reduce", "hierarchical", {"node_size": axis.node_size})
    weights, told = _weights(axis, reduction)
    if choice.algorithm == "mpi":
        working = reduction.own(values, keep=False)
        numbers = working.view(np.uint8) if working.dtype == bool else working
        reduced = axis.comm.Iallreduce(MPI.IN_PLACE, numbers, MPI_OPS[reduction.op])  # at once, as `_weights` says
        yield told
        yield reduced
        reduction.finish(working, weights)
        reduction.narrow(working, values)
        return
    yield told
    if choice.algorithm == "ordered":
        yield from all_reduce_in_order(axis, tag, values, reduction, weights)
        return
    working = reduction.own(values, keep=False)
    program = choice.program(axis)
    yield from Runner(axis, tag, program, even_slots(working, program.slots), reduction.combine).steps()
    reduction.finish(working, weights)
    reduction.narrow(working, values)


def reduce(axis: Axis, tag: int, values: Any, reduction: Reduction, root: int, choice: Choice) -> Steps:
    """Reduce flat values to `root`, where they are replaced; elsewhere they stay."""
    weights, told = _weights(axis, reduction)
    yield told
    if choice.algorithm == "ordered":
        slots = even_slots(values if axis.rank == root else values.copy(), axis.size)
        yield from reduce_scatter_in_order(axis, tag, slots, reduction, weights)
        gather = Choice("gather", "naive", {"root": root}).program(axis)
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
    axis: Axis, tag: int, values: Any, into: Any, sizes: np.ndarray, reduction: Reduction, choice: Choice
) -> Steps:
    """Reduce-scatter of flat values in blocks of these sizes; into `into`, or in place where it is None."""
    weights, told = _weights(axis, reduction)
    yield told
    if choice.algorithm == "ordered":
        slots = counted_slots(values if into is None else values.copy(), sizes)
        yield from reduce_scatter_in_order(axis, tag, slots, reduction, weights)
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


def _weights(axis: Axis, reduction: Reduction) -> tuple[np.ndarray, MPI.Request]:
    """The weights of all ranks, float64[ranks], once the request is over: 1 unless it is an average.

    They are asked for now. Ranks go on with what is under way at their own pace, and call the library in one order only
    where they do so as collectives are started.
    """
    weights = np.ones(axis.size)
    if reduction.op != "average":
        return weights, MPI.REQUEST_NULL
    return weights, axis.comm.Iallgather(np.array([reduction.weight]), weights)


def all_reduce_in_order(axis: Axis, tag: int, values: Any, reduction: Reduction, weights: np.ndarray) -> Steps:
    """All-reduce of flat values in place."""
    length = max(1, PIECE // values.itemsize)
    gather = rank_program("all_gather", "ring", axis.size, axis.rank)
    for start in range(0, values.size, length):
        slots = even_slots(values[start : start + length], axis.size)
        yield from reduce_scatter_in_order(axis, tag, slots, reduction, weights)
        yield from Runner(axis, tag, gather, slots).steps()


def reduce_scatter_in_order(axis: Axis, tag: int, slots: Slots, reduction: Reduction, weights: np.ndarray) -> Steps:
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
