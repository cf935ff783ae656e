"""The collective operations: arguments are checked, an algorithm is chosen, and a `Request` is started.

All take C-contiguous NumPy or CuPy arrays of any shape, seen as flat: counts and blocks are in elements. `mesh_axis` is
`mesh["x"]`, a mesh for all its ranks, or any communicator. Every rank calls the same operations in the same order. What
is wrong with the arguments raises `InputError` before any message leaves.

Each has a form that only makes the request, `all_reduce_init` and so on, for programs that keep it and start it again
and again with the same buffers: arguments are checked and an algorithm is chosen once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from hpckit.collectives import moving, reducing
from hpckit.collectives.axis import Axis, axis_of
from hpckit.collectives.buffers import Buffer, checked_counts, same_kind
from hpckit.collectives.choice import IN_NODE, choose, text_of
from hpckit.collectives.node import key_of
from hpckit.collectives.reduction import reduction_of
from hpckit.collectives.request import CollectiveRun, Request, Steps
from hpckit.comm.call_order import Lane
from hpckit.comm.shared.calls import BYTES
from hpckit.plan.numbers import checked_root

__communicates__ = True  # its frames are not call sites

Counts = Sequence[int] | np.ndarray


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
    with its options (as segments=8), "flat", "staged" or "symmetric" (in the shared memory of a node), "ordered" (in
    rank order), or "mpi" (the library's own). deterministic: the same bits on every rank and in every run, element by
    element in the order of the ranks, whatever the algorithm cuts the buffer into.
    """
    if weight is kind is None and not options:
        request = _again(mesh_axis, ("all_reduce", op, algorithm), buffer, None)
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
    """The request of an `all_reduce`; arguments as there."""
    axis = axis_of(mesh_axis)
    given = Buffer(buffer, "the buffer")
    reduction = reduction_of(given.array.dtype, op, weight, kind)
    library = axis.nccl(buffer) if algorithm in ("auto", "nccl") and not deterministic else None
    if library is not None and library.takes(given.array.dtype, op):
        return Request(
            axis.observer, _told(axis, ("all_reduce", op, "nccl"), given), lambda: library.all_reduce(buffer, op)
        )
    how = ("all_reduce", op, algorithm) if weight is kind is None and not options else None
    known = axis.calls.find(how, buffer, None)
    if known is not None:
        return known.request(buffer, None)
    chosen = choose("all_reduce", algorithm, axis, given.nbytes, options, deterministic, given=given, op=op)
    what = _told(axis, ("all_reduce", op, chosen.algorithm), given)
    if chosen.algorithm in IN_NODE:
        return axis.calls.make(*chosen.names, what, how, buffer, None, **reduction.for_node()).request(buffer, None)

    def steps(tag: int) -> Steps:
        return reducing.all_reduce(axis, tag, given.flat, reduction, chosen)

    def by_library(lane: Lane) -> Steps:
        return reducing.all_reduce_by_library(lane, given.flat, reduction)

    own = by_library if chosen.algorithm == "mpi" else None
    return _by_messages(axis, what, [given], steps, given.put_back, chosen.text, kind, by_library=own)


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
    """As `all_reduce`, with the result in the buffer of `root` only; the other buffers stay as they are."""
    axis = axis_of(mesh_axis)
    root = checked_root(root, axis.size)
    given = Buffer(buffer, "the buffer", written=axis.rank == root)
    reduction = reduction_of(given.array.dtype, op, weight, kind)
    chosen = choose("reduce", algorithm, axis, given.nbytes, options, deterministic, root)
    result = given.put_back if axis.rank == root else lambda: given.array
    return _by_messages(
        axis,
        _told(axis, ("reduce", op, chosen.algorithm), given, root=root),
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
    """Combine the buffers of all ranks; each rank gets one block of the result, in the order of the ranks.

    counts: elements of each rank's block; by default the block rule cuts the buffer (sizes differ by at most 1). out:
    where this rank's block goes; the buffer is then left as it is. Without it the result is a view of the block in the
    buffer, and the rest of the buffer is used up.
    """
    if weight is kind is None and not options:
        request = _again(mesh_axis, ("reduce_scatter", op, algorithm, key_of(counts)), buffer, out)
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
    """The request of a `reduce_scatter`; arguments as there."""
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
    what = _told(axis, ("reduce_scatter", op, chosen.algorithm), given)
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

    return _by_messages(axis, what, [given, target], steps, result, chosen.text, kind, sizes.tobytes())


def broadcast(buffer: Any, mesh_axis: Any, root: int = 0, algorithm: str = "auto", **options: Any) -> Request:
    """Copy the buffer of `root` to the buffers of all ranks, which hold as many bytes."""
    if type(root) is int and not options:
        request = _again(mesh_axis, ("broadcast", root, algorithm), buffer, None)
        if request is not None:
            return request
    return broadcast_init(buffer, mesh_axis, root, algorithm, **options).start()


def broadcast_init(buffer: Any, mesh_axis: Any, root: int = 0, algorithm: str = "auto", **options: Any) -> Request:
    """The request of a `broadcast`; arguments as there."""
    axis = axis_of(mesh_axis)
    root = checked_root(root, axis.size)
    given = Buffer(buffer, "the buffer", written=axis.rank != root)
    library = axis.nccl(buffer) if algorithm in ("auto", "nccl") else None
    if library is not None:
        what = _told(axis, ("broadcast", "nccl"), given, root=root)
        return Request(axis.observer, what, lambda: library.broadcast(buffer, root))
    how = None if options else ("broadcast", root, algorithm)
    known = axis.calls.find(how, buffer, None)
    if known is not None:
        return known.request(buffer, None)
    chosen = choose("broadcast", algorithm, axis, given.nbytes, options, root=root, given=given)
    what = _told(axis, ("broadcast", chosen.algorithm), given, root=root)
    if chosen.algorithm in IN_NODE:
        # Bytes, whatever the ranks take them for.
        return axis.calls.make(*chosen.names, what, how, buffer, None, root=root, kind=BYTES).request(buffer, None)
    result = given.put_back if axis.rank != root else lambda: given.array
    return _by_messages(
        axis,
        what,
        [given],
        lambda tag: moving.broadcast(axis, tag, given.flat, chosen),
        result,
        chosen.text,
        data=given.nbytes,
    )


def all_gather(
    block: Any,
    mesh_axis: Any,
    out: Any = None,
    algorithm: str = "auto",
    *,
    counts: Counts | None = None,
    **options: Any,
) -> Request:
    """Put the blocks of all ranks one after the other, in the order of the ranks, on every rank.

    out: room for all of them; left out, a flat array is made. A block that is the very part of `out` where it belongs
    is not copied. counts: elements of each rank's block; left out, they follow from the size of `out` by the block
    rule, and without `out` the ranks tell each other.
    """
    if out is not None and not options:
        request = _again(mesh_axis, ("all_gather", algorithm, key_of(counts)), block, out)
        if request is not None:
            return request
    return all_gather_init(block, mesh_axis, out, algorithm, counts=counts, **options).start()


def all_gather_init(
    block: Any,
    mesh_axis: Any,
    out: Any = None,
    algorithm: str = "auto",
    *,
    counts: Counts | None = None,
    **options: Any,
) -> Request:
    """The request of an `all_gather`; arguments as there."""
    axis = axis_of(mesh_axis)
    given = Buffer(block, "the block", written=False)
    target = None if out is None else Buffer(out, "out")
    sizes = None if counts is None else checked_counts(counts, axis.size)
    if target is not None:
        same_kind(given, target, ("the block", "out"))
        sizes = moving.block_sizes(target.size, axis.size, counts, "out")
    if sizes is not None:
        moving.sized(given, int(sizes[axis.rank]), given, "the block")
        how = None if out is None or options else ("all_gather", algorithm, key_of(counts))
        known = axis.calls.find(how, block, out)
        if known is not None:
            return known.request(block, out)
        total = int(sizes.sum())
        chosen = choose("all_gather", algorithm, axis, total * given.array.itemsize, options, given=given)
        if chosen.algorithm in IN_NODE:
            whole = given.empty(total).array if target is None else target.array
            what = _told(axis, ("all_gather", chosen.algorithm), given, count=-1)
            return axis.calls.make(*chosen.names, what, how, block, whole, counts=sizes).request(block, whole)
    run = moving.BlockGather(axis, given, target, sizes, algorithm, options)
    what = _told(axis, ("all_gather", algorithm), given, count=-1)
    return _by_messages(axis, what, [given, target], run.steps, run.result, text_of(options), bytes_of(sizes))


def scatter(
    buffer: Any,
    mesh_axis: Any,
    out: Any,
    root: int = 0,
    algorithm: str = "auto",
    *,
    counts: Counts | None = None,
    **options: Any,
) -> Request:
    """Give each rank its block of the buffer of `root`, in the order of the ranks; other ranks may give None.

    out: where this rank's block goes. counts: elements of each rank's block; left out, the ranks tell each other the
    sizes of `out`.
    """
    axis = axis_of(mesh_axis)
    root = checked_root(root, axis.size)
    target = Buffer(out, "out")
    source = Buffer(buffer, "the buffer", written=False) if axis.rank == root else None
    if source is not None:
        same_kind(source, target, ("the buffer", "out"))
    sizes = None
    if counts is not None:
        sizes = checked_counts(counts, axis.size)
        moving.sized(target, int(sizes[axis.rank]), target)
        if source is not None:
            moving.sized(source, int(sizes.sum()), source, "the buffer")
    run = moving.Scatter(axis, source, target, sizes, algorithm, options, root)
    what = _told(axis, ("scatter", algorithm), target, count=-1, root=root)
    same = text_of(options), bytes_of(sizes)
    return _by_messages(axis, what, [source, target], run.steps, target.put_back, *same).start()


def gather(
    block: Any,
    mesh_axis: Any,
    out: Any = None,
    root: int = 0,
    algorithm: str = "auto",
    *,
    counts: Counts | None = None,
    **options: Any,
) -> Request:
    """Put the blocks of all ranks one after the other on `root`; the result is None on the other ranks.

    out: room for all of them on `root`; left out, a flat array is made. counts: elements of each rank's block; left
    out, the ranks tell each other.
    """
    axis = axis_of(mesh_axis)
    root = checked_root(root, axis.size)
    given = Buffer(block, "the block", written=False)
    target = Buffer(out, "out") if out is not None and axis.rank == root else None
    if target is not None:
        same_kind(given, target, ("the block", "out"))
    sizes = None
    if counts is not None:
        sizes = checked_counts(counts, axis.size)
        moving.sized(given, int(sizes[axis.rank]), given, "the block")
        if target is not None:
            moving.sized(target, int(sizes.sum()), target)
    run = moving.BlockGather(axis, given, target, sizes, algorithm, options, root)
    what = _told(axis, ("gather", algorithm), given, count=-1, root=root)
    same = text_of(options), bytes_of(sizes)
    return _by_messages(axis, what, [given, target], run.steps, run.result, *same).start()


def all_to_all(
    buffer: Any,
    mesh_axis: Any,
    out: Any = None,
    algorithm: str = "auto",
    *,
    counts: Counts | None = None,
    **options: Any,
) -> Request:
    """Send each rank its block of the buffer; take one from each, one after the other in the order of the ranks.

    counts: elements of the block for each rank; the ranks then tell each other what comes. Or a matrix, counts[r][q]
    from rank r to rank q, alike on all ranks. By default the block rule cuts the buffer, which is as large on every
    rank. out: where the blocks go; left out, a flat array is made.
    """
    if out is not None and not options:
        request = _again(mesh_axis, ("all_to_all", algorithm, key_of(counts)), buffer, out)
        if request is not None:
            return request
    return all_to_all_init(buffer, mesh_axis, out, algorithm, counts=counts, **options).start()


def all_to_all_init(
    buffer: Any,
    mesh_axis: Any,
    out: Any = None,
    algorithm: str = "auto",
    *,
    counts: Counts | None = None,
    **options: Any,
) -> Request:
    """The request of an `all_to_all`; arguments as there."""
    axis = axis_of(mesh_axis)
    given = Buffer(buffer, "the buffer", written=False)
    target = None if out is None else Buffer(out, "out")
    if target is not None:
        same_kind(given, target, ("the buffer", "out"))
        moving.apart(given, target)
    sizes, taken = moving.exchanged_sizes(axis, given, target, counts)
    if taken is not None:
        how = None if out is None or options else ("all_to_all", algorithm, key_of(counts))
        known = axis.calls.find(how, buffer, out)
        if known is not None:
            return known.request(buffer, out)
        # The mean over the ranks, so that all choose alike.
        nbytes = given.nbytes if counts is None else int(np.sum(counts)) * given.array.itemsize // axis.size
        chosen = choose("all_to_all", algorithm, axis, nbytes, options, given=given)
        if chosen.algorithm in IN_NODE:
            blocks = given.empty(int(taken.sum())).array if target is None else target.array
            what = _told(axis, ("all_to_all", chosen.algorithm), given, count=-1)
            call = axis.calls.make(*chosen.names, what, how, buffer, blocks, counts=sizes, out_counts=taken)
            return call.request(buffer, blocks)
    run = moving.AllToAll(axis, given, target, sizes, taken, algorithm, options)
    what = _told(axis, ("all_to_all", algorithm), given, count=-1)
    # Of a matrix, all its numbers; where ranks tell each other what comes, that they do.
    form = given.size if counts is None else taken is not None and digest_of(np.asarray(counts, np.int64))
    return _by_messages(axis, what, [given, target], run.steps, run.result, text_of(options), form)


def _again(mesh_axis: Any, how: Hashable, buffer: Any, out: Any) -> Request | None:
    """The collective, started by a call that the axis keeps; None where there is none, or where somebody observes."""
    axis = getattr(mesh_axis, "axis", None)
    if type(axis) is not Axis:
        axis = axis_of(mesh_axis)
    if axis.observer.on:
        return None
    try:
        return axis.calls.start(how, buffer, out)
    except TypeError:  # what was given for a name is none: told where a call is made
        return None


def digest_of(sizes: np.ndarray) -> bytes:
    """Many sizes as a small plain value."""
    return blake2b(np.ascontiguousarray(sizes).data, digest_size=16).digest()


def bytes_of(sizes: np.ndarray | None) -> bytes | None:
    """Sizes of blocks as a plain value."""
    return None if sizes is None else sizes.tobytes()


def _told(axis: Axis, name: tuple[str, ...], given: Buffer, count: int | None = None, root: int = -1) -> tuple:
    """What an observer is told: count is -1 where ranks may differ."""
    return axis.given, name, given.array.dtype, given.size if count is None else count, root


def _by_messages(
    axis: Axis,
    what: tuple,
    buffers: Sequence[Buffer | None],
    steps: Callable[[int], Steps],
    result: Callable[[], Any],
    *same: Any,
    data: Any = None,
    by_library: Callable[[Lane], Steps] | None = None,
) -> Request:
    """A request that runs by messages. steps: of a run with a tag; by_library: instead, of one by the MPI library. What
    must be the same on all ranks besides `what`: plain values `same`; data: instead of dtype and count.
    """
    _, name, dtype, count, root = what
    key = (name, data or (dtype.str, count), root, *same)

    def begin() -> CollectiveRun:
        for buffer in filter(None, buffers):
            buffer.renew()
        return axis.run(what, key, steps, result, by_library)

    return Request(axis.observer, what, begin)
