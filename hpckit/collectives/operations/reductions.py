"""Operations that combine numbers of all ranks: all-reduce, reduce, reduce-scatter."""

from __future__ import annotations

from typing import Any

from hpckit.collectives import moving, reducing
from hpckit.collectives.axis import axis_of
from hpckit.collectives.buffers import Buffer
from hpckit.collectives.choice import IN_NODE, choose
from hpckit.collectives.node import key_of
from hpckit.collectives.operations.starting import Counts, again, by_messages, told
from hpckit.collectives.reduction import reduction_of
from hpckit.collectives.request import Request, Steps
from hpckit.comm.call_order import Lane
from hpckit.plan.inputs.numbers import checked_root

__communicates__ = True  # its frames are not call sites


def all_reduce(
    buffer: Any,
    mesh_axis: Any,
    op: str = "sum",
    algorithm: str = "auto",
    deterministic: bool = False,
    *,
    weight: float | None = None,
    kind: str | None = None,
    **options: Any,
) -> Request:
    """Combine the buffers of all ranks element by element; every rank's buffer then holds the result.

    op, weight, kind: see `hpckit.collectives.reduction.Reduction`. algorithm: "auto", a plan of `hpckit plan allreduce`
    with its options (such as segments=8), "flat", "staged" or "symmetric" (in the shared memory of a node), "ordered"
    (in rank order), or "mpi" (the library's own). deterministic: the same bits on every rank and in every run, element
    by element in the order of the ranks, whatever the algorithm cuts the buffer into.
    """
    if weight is kind is None and not options:
        request = again(mesh_axis, ("all_reduce", op, algorithm), buffer, None)
        if request is not None:
            return request
    return all_reduce_init(buffer, mesh_axis, op, algorithm, deterministic, weight=weight, kind=kind, **options).start()


def all_reduce_init(
    buffer: Any,
    mesh_axis: Any,
    op: str = "sum",
    algorithm: str = "auto",
    deterministic: bool = False,
    *,
    weight: float | None = None,
    kind: str | None = None,
    **options: Any,
) -> Request:
    """A request that runs an `all_reduce` at each `start`; the same arguments."""
    axis = axis_of(mesh_axis)
    given = Buffer(buffer, "the buffer")
    reduction = reduction_of(given.array.dtype, op, weight, kind)
    library = axis.nccl(buffer) if algorithm in ("auto", "nccl") and not deterministic else None
    if library is not None and library.takes(given.array.dtype, op):
        return Request(
            axis.observer, told(axis, ("all_reduce", op, "nccl"), given), lambda: library.all_reduce(buffer, op)
        )
    how = ("all_reduce", op, algorithm) if weight is kind is None and not options else None
    known = axis.calls.find(how, buffer, None)
    if known is not None:
        return known.request(buffer, None)
    chosen = choose("all_reduce", algorithm, axis, given.nbytes, options, deterministic, given=given, op=op)
    what = told(axis, ("all_reduce", op, chosen.algorithm), given)
    if chosen.algorithm in IN_NODE:
        return axis.calls.make(*chosen.names, what, how, buffer, None, **reduction.for_node()).request(buffer, None)

    def steps(tag: int) -> Steps:
        return reducing.all_reduce(axis, tag, given.flat, reduction, chosen)

    def by_library(lane: Lane) -> Steps:
        return reducing.all_reduce_by_library(lane, given.flat, reduction)

    own = by_library if chosen.algorithm == "mpi" else None
    return by_messages(axis, what, [given], steps, given.put_back, chosen.text, kind, by_library=own)


def reduce(
    buffer: Any,
    mesh_axis: Any,
    op: str = "sum",
    root: int = 0,
    algorithm: str = "auto",
    deterministic: bool = False,
    *,
    weight: float | None = None,
    kind: str | None = None,
    **options: Any,
) -> Request:
    """Like `all_reduce`, with the result in the buffer of `root` only; the other buffers are not changed."""
    axis = axis_of(mesh_axis)
    root = checked_root(root, axis.size)
    given = Buffer(buffer, "the buffer", written=axis.rank == root)
    reduction = reduction_of(given.array.dtype, op, weight, kind)
    chosen = choose("reduce", algorithm, axis, given.nbytes, options, deterministic, root)
    result = given.put_back if axis.rank == root else lambda: given.array
    return by_messages(
        axis,
        told(axis, ("reduce", op, chosen.algorithm), given, root=root),
        [given],
        lambda tag: reducing.reduce(axis, tag, given.flat, reduction, root, chosen),
        result,
        chosen.text,
        kind,
    ).start()


def reduce_scatter(
    buffer: Any,
    mesh_axis: Any,
    op: str = "sum",
    out: Any = None,
    algorithm: str = "auto",
    deterministic: bool = False,
    *,
    counts: Counts | None = None,
    weight: float | None = None,
    kind: str | None = None,
    **options: Any,
) -> Request:
    """Combine the buffers of all ranks; each rank gets one block of the result, in rank order.

    counts: the number of elements in each rank's block; by default the block rule cuts the buffer (sizes differ by at
    most 1). out: where this rank's block goes; the buffer is then not changed. Without it the result is a view of the
    block in the buffer, and the rest of the buffer is overwritten.
    """
    if weight is kind is None and not options:
        request = again(mesh_axis, ("reduce_scatter", op, algorithm, key_of(counts)), buffer, out)
        if request is not None:
            return request
    return reduce_scatter_init(
        buffer, mesh_axis, op, out, algorithm, deterministic, counts=counts, weight=weight, kind=kind, **options
    ).start()


def reduce_scatter_init(
    buffer: Any,
    mesh_axis: Any,
    op: str = "sum",
    out: Any = None,
    algorithm: str = "auto",
    deterministic: bool = False,
    *,
    counts: Counts | None = None,
    weight: float | None = None,
    kind: str | None = None,
    **options: Any,
) -> Request:
    """A request that runs a `reduce_scatter` at each `start`; the same arguments."""
    axis = axis_of(mesh_axis)
    given = Buffer(buffer, "the buffer", written=out is None)
    reduction = reduction_of(given.array.dtype, op, weight, kind)
    sizes = moving.block_sizes(given.size, axis.size, counts, "the buffer")
    target = None if out is None else moving.sized(Buffer(out, "out"), int(sizes[axis.rank]), given)
    how = ("reduce_scatter", op, algorithm, key_of(counts)) if weight is kind is None and not options else None
    known = axis.calls.find(how, buffer, out)
    if known is not None:
        return known.request(buffer, out)
    chosen = choose("reduce_scatter", algorithm, axis, given.nbytes, options, deterministic, given=given, op=op)
    what = told(axis, ("reduce_scatter", op, chosen.algorithm), given)
    begin = int(sizes[: axis.rank].sum())
    own = slice(begin, begin + int(sizes[axis.rank]))
    if chosen.algorithm in IN_NODE:
        call = axis.calls.make(*chosen.names, what, how, buffer, out, own, counts=sizes, **reduction.for_node())
        return call.request(buffer, out)

    def result() -> Any:
        return given.put_back().reshape(-1)[own] if target is None else target.put_back()

    def steps(tag: int) -> Steps:
        into = None if target is None else target.flat
        return reducing.reduce_scatter(axis, tag, given.flat, into, sizes, reduction, chosen)

    return by_messages(axis, what, [given, target], steps, result, chosen.text, kind, sizes.tobytes())
