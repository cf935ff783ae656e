"""Operations that move blocks between ranks: broadcast, scatter, gather, all-gather, all-to-all."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.collectives import moving
from hpckit.collectives.axis import axis_of
from hpckit.collectives.buffers import Buffer, checked_counts, same_kind
from hpckit.collectives.choice import IN_NODE, choose, text_of
from hpckit.collectives.node import key_of
from hpckit.collectives.operations.starting import Counts, again, by_messages, bytes_of, digest_of, told
from hpckit.collectives.request import Request
from hpckit.comm.shared.calls import BYTES
from hpckit.plan.inputs.numbers import checked_root

__communicates__ = True  # its frames are not call sites


def broadcast(buffer: Any, mesh_axis: Any, root: int = 0, algorithm: str = "auto", **options: Any) -> Request:
    """Copy the buffer of `root` to the buffers of all ranks, which must have the same size in bytes."""
    if type(root) is int and not options:
        request = again(mesh_axis, ("broadcast", root, algorithm), buffer, None)
        if request is not None:
            return request
    return broadcast_init(buffer, mesh_axis, root, algorithm, **options).start()


def broadcast_init(buffer: Any, mesh_axis: Any, root: int = 0, algorithm: str = "auto", **options: Any) -> Request:
    """A request that runs a `broadcast` at each `start`; the same arguments."""
    axis = axis_of(mesh_axis)
    root = checked_root(root, axis.size)
    given = Buffer(buffer, "the buffer", written=axis.rank != root)
    library = axis.nccl(buffer) if algorithm in ("auto", "nccl") else None
    if library is not None:
        what = told(axis, ("broadcast", "nccl"), given, root=root)
        return Request(axis.observer, what, lambda: library.broadcast(buffer, root))
    how = None if options else ("broadcast", root, algorithm)
    known = axis.calls.find(how, buffer, None)
    if known is not None:
        return known.request(buffer, None)
    chosen = choose("broadcast", algorithm, axis, given.nbytes, options, root=root, given=given)
    what = told(axis, ("broadcast", chosen.algorithm), given, root=root)
    if chosen.algorithm in IN_NODE:
        # Bytes, whatever the ranks take them for.
        return axis.calls.make(*chosen.names, what, how, buffer, None, root=root, kind=BYTES).request(buffer, None)
    result = given.put_back if axis.rank != root else lambda: given.array
    return by_messages(
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
    """Concatenate the blocks of all ranks, in rank order, on every rank.

    out: an array with room for all of them; if omitted, a flat array is allocated. A block that already lies in its
    place in `out` is not copied. counts: the number of elements in each rank's block; if omitted, they follow from the
    size of `out` by the block rule, and without `out` the ranks tell each other.
    """
    if out is not None and not options:
        request = again(mesh_axis, ("all_gather", algorithm, key_of(counts)), block, out)
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
    """A request that runs an `all_gather` at each `start`; the same arguments."""
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
            what = told(axis, ("all_gather", chosen.algorithm), given, count=-1)
            return axis.calls.make(*chosen.names, what, how, block, whole, counts=sizes).request(block, whole)
    run = moving.BlockGather(axis, given, target, sizes, algorithm, options)
    what = told(axis, ("all_gather", algorithm), given, count=-1)
    return by_messages(axis, what, [given, target], run.steps, run.result, text_of(options), bytes_of(sizes))


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
    """Send each rank its block of the buffer of `root`, in rank order; the other ranks may pass None.

    out: where this rank's block goes. counts: the number of elements in each rank's block; if omitted, the ranks tell
    each other the sizes of `out`.
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
    what = told(axis, ("scatter", algorithm), target, count=-1, root=root)
    same = text_of(options), bytes_of(sizes)
    return by_messages(axis, what, [source, target], run.steps, target.put_back, *same).start()


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
    """Concatenate the blocks of all ranks, in rank order, on `root`; the result is None on the other ranks.

    out: an array on `root` with room for all of them; if omitted, a flat array is allocated. counts: the number of
    elements in each rank's block; if omitted, the ranks tell each other.
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
    what = told(axis, ("gather", algorithm), given, count=-1, root=root)
    same = text_of(options), bytes_of(sizes)
    return by_messages(axis, what, [given, target], run.steps, run.result, *same).start()


def all_to_all(
    buffer: Any,
    mesh_axis: Any,
    out: Any = None,
    algorithm: str = "auto",
    *,
    counts: Counts | None = None,
    **options: Any,
) -> Request:
    """Send each rank its block of the buffer, and receive a block from each, in rank order.

    counts: the number of elements for each rank; the ranks then tell each other what to expect. Or a matrix,
    counts[r][q] from rank r to rank q, the same on all ranks. By default the block rule cuts the buffer, which must
    have the same size on every rank. out: where the received blocks go; if omitted, a flat array is allocated.
    """
    if out is not None and not options:
        request = again(mesh_axis, ("all_to_all", algorithm, key_of(counts)), buffer, out)
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
    """A request that runs an `all_to_all` at each `start`; the same arguments."""
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
            what = told(axis, ("all_to_all", chosen.algorithm), given, count=-1)
            call = axis.calls.make(*chosen.names, what, how, buffer, blocks, counts=sizes, out_counts=taken)
            return call.request(buffer, blocks)
    run = moving.AllToAll(axis, given, target, sizes, taken, algorithm, options)
    what = told(axis, ("all_to_all", algorithm), given, count=-1)
    # Of a matrix, all its numbers; where ranks tell each other what comes, that they do.
    form = given.size if counts is None else taken is not None and digest_of(np.asarray(counts, np.int64))
    return by_messages(axis, what, [given, target], run.steps, run.result, text_of(options), form)
