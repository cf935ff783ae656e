"""The collective operations: arguments are checked, an algorithm is chosen, and a `Work` is started.

All take C-contiguous NumPy or CuPy arrays of any shape, seen as flat: counts and blocks are in elements. `mesh_axis` is
`mesh["x"]`, a mesh for all its ranks, or any communicator. Every rank calls the same operations in the same order. What
is wrong with the arguments raises `InputError` before any message leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hpckit.collectives import moving, reducing
from hpckit.collectives.axis import axis_of
from hpckit.collectives.buffers import Buffer, checked_counts, same_kind
from hpckit.collectives.choice import IN_NODE, choose
from hpckit.collectives.kept import calls, keep, kept, key_of, latest
from hpckit.collectives.node_work import Bound, bind, sent
from hpckit.collectives.reduction import reduction_of
from hpckit.collectives.work import Work, reported, start
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
) -> Work:
    """Combine the buffers of all ranks element by element; every rank's buffer then holds the result.

    op, weight, kind: see `hpckit.collectives.reduction.Reduction`. algorithm: "auto", a plan of `hpckit plan allreduce`
    with its options (as segments=8), "flat", "staged" or "symmetric" (in the shared memory of a node), "ordered" (in
    rank order), or "mpi" (the library's own). deterministic: the same bits on every rank and in every run, element by
    element in the order of the ranks, whatever the algorithm cuts the buffer into.
    """
    bound = latest.get(id(buffer))  # as `kept`, which is a call more
    if bound is None or bound.axis is not mesh_axis or bound.how is not op or bound.algorithm is not algorithm:
        bound = calls.get((id(buffer), id(mesh_axis), op, algorithm))
    if bound is not None and not bound.observer.on and weight is kind is None and not options:
        if bound.small_dtype is buffer.dtype:
            return bound.start_small()
        if bound.fits(buffer, None):
            return bound.start(buffer, None)
    axis = axis_of(mesh_axis)
    given = Buffer(buffer, "the buffer")
    reduction = reduction_of(given.array.dtype, op, weight, kind)
    library = axis.nccl(buffer) if algorithm in ("auto", "nccl") and not deterministic else None
    if library is not None and library.takes(given.array.dtype, op):
        return reported(
            axis.observer, lambda: library.all_reduce(buffer, op), axis.given, ("all_reduce", op, "nccl"), given
        )
    chosen = choose("all_reduce", algorithm, axis, given.nbytes, options, deterministic, given=given, op=op)
    group, what = axis.group, ("all_reduce", op, chosen.algorithm)
    if chosen.algorithm in IN_NODE and group is not None:
        call = Bound(bind(group, chosen, given, **reduction.for_node()))
        if weight is None and kind is None:
            keep(call.known_by(buffer, None, mesh_axis, op, algorithm))
        return reported(axis.observer, lambda: call.start(buffer, None), axis.given, what, given)
    steps = reducing.all_reduce(axis, axis.tag(), given.flat, reduction, chosen)
    return reported(axis.observer, lambda: start(steps, given.put_back), axis.given, what, given)


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
) -> Work:
    """As `all_reduce`, with the result in the buffer of `root` only; the other buffers stay as they are."""
    axis = axis_of(mesh_axis)
    root = checked_root(root, axis.size)
    given = Buffer(buffer, "the buffer", written=axis.rank == root)
    reduction = reduction_of(given.array.dtype, op, weight, kind)
    chosen = choose("reduce", algorithm, axis, given.nbytes, options, deterministic, root)
    steps = reducing.reduce(axis, axis.tag(), given.flat, reduction, root, chosen)
    result = given.put_back if axis.rank == root else lambda: given.array
    what = ("reduce", op, chosen.algorithm)
    return reported(axis.observer, lambda: start(steps, result), axis.given, what, given, root=root)


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
) -> Work:
    """Combine the buffers of all ranks; each rank gets one block of the result, in the order of the ranks.

    counts: elements of each rank's block; by default the block rule cuts the buffer (sizes differ by at most 1). out:
    where this rank's block goes; the buffer is then left as it is. Without it the result is a view of the block in the
    buffer, and the rest of the buffer is used up.
    """
    plain = weight is kind is None and not options
    how = ("reduce_scatter", id(out), op, key_of(counts))
    bound = kept(buffer, out, mesh_axis, how, algorithm) if plain else None
    if bound is not None:
        return bound.start_again(buffer, out)
    axis = axis_of(mesh_axis)
    given = Buffer(buffer, "the buffer", written=out is None)
    reduction = reduction_of(given.array.dtype, op, weight, kind)
    sizes = moving.block_sizes(given.size, axis.size, counts, "the buffer")
    target = None if out is None else moving.sized(Buffer(out, "out"), int(sizes[axis.rank]), given)
    chosen = choose("reduce_scatter", algorithm, axis, given.nbytes, options, deterministic, given=given, op=op)
    begin = int(sizes[: axis.rank].sum())
    own = slice(begin, begin + int(sizes[axis.rank]))
    group, what = axis.group, ("reduce_scatter", op, chosen.algorithm)
    if chosen.algorithm in IN_NODE and group is not None:
        block = buffer.reshape(-1)[own] if target is None else target.array
        source = sent(given, block, begin)
        call = Bound(bind(group, chosen, source, block, counts=sizes, **reduction.for_node()))
        if plain and source is given:
            keep(call.known_by(buffer, out, mesh_axis, how, algorithm, own))
        return reported(axis.observer, lambda: call.start(block, source.array), axis.given, what, given)

    def result() -> Any:
        return given.put_back().reshape(-1)[own] if target is None else target.put_back()

    into = None if target is None else target.flat
    steps = reducing.reduce_scatter(axis, axis.tag(), given.flat, into, sizes, reduction, chosen)
    return reported(axis.observer, lambda: start(steps, result), axis.given, what, given)


def broadcast(buffer: Any, mesh_axis: Any, root: int = 0, algorithm: str = "auto", **options: Any) -> Work:
    """Copy the buffer of `root` to the buffers of all ranks, which hold as many bytes."""
    again = type(root) is int and not options
    bound = kept(buffer, None, mesh_axis, ("broadcast", root), algorithm) if again else None
    if bound is not None:
        return bound.start_again(buffer, None)
    axis = axis_of(mesh_axis)
    root = checked_root(root, axis.size)
    given = Buffer(buffer, "the buffer", written=axis.rank != root)
    library = axis.nccl(buffer) if algorithm in ("auto", "nccl") else None
    if library is not None:
        what = ("broadcast", "nccl")
        return reported(axis.observer, lambda: library.broadcast(buffer, root), axis.given, what, given, root=root)
    chosen = choose("broadcast", algorithm, axis, given.nbytes, options, root=root, given=given)
    group, what = axis.group, ("broadcast", chosen.algorithm)
    if chosen.algorithm in IN_NODE and group is not None:
        call = Bound(bind(group, chosen, given, root=root))
        keep(call.known_by(buffer, None, mesh_axis, ("broadcast", root), algorithm))
        return reported(axis.observer, lambda: call.start(buffer, None), axis.given, what, given, root=root)
    steps = moving.broadcast(axis, axis.tag(), given.flat, chosen)
    result = given.put_back if axis.rank != root else lambda: given.array
    return reported(axis.observer, lambda: start(steps, result), axis.given, what, given, root=root)


def all_gather(
    block: Any,
    mesh_axis: Any,
    out: Any = None,
    algorithm: str = "auto",
    *,
    counts: Counts | None = None,
    **options: Any,
) -> Work:
    """Put the blocks of all ranks one after the other, in the order of the ranks, on every rank.

    out: room for all of them; left out, a flat array is made. A block that is the very part of `out` where it belongs
    is not copied. counts: elements of each rank's block; left out, they follow from the size of `out` by the block
    rule, and without `out` the ranks tell each other.
    """
    how = ("all_gather", id(out), key_of(counts))
    bound = None if out is None or options else kept(block, out, mesh_axis, how, algorithm)
    if bound is not None:
        return bound.start_again(block, out)
    axis = axis_of(mesh_axis)
    given = Buffer(block, "the block", written=False)
    target = None if out is None else Buffer(out, "out")
    sizes = None if counts is None else checked_counts(counts, axis.size)
    if target is not None:
        same_kind(given, target, ("the block", "out"))
        sizes = moving.block_sizes(target.size, axis.size, counts, "out")
    if sizes is not None:
        moving.sized(given, int(sizes[axis.rank]), given, "the block")
        total = int(sizes.sum())
        chosen = choose("all_gather", algorithm, axis, total * given.array.itemsize, options, given=given)
        group = axis.group
        if chosen.algorithm in IN_NODE and group is not None:
            whole = given.empty(total).array if target is None else target.array
            source = sent(given, whole, int(sizes[: axis.rank].sum()))
            call = Bound(bind(group, chosen, source, whole, counts=sizes))
            if out is not None and source is given:
                keep(call.known_by(block, out, mesh_axis, how, algorithm))
            what = ("all_gather", chosen.algorithm)
            return reported(axis.observer, lambda: call.start(whole, source.array), axis.given, what, given, count=-1)
    run = moving.Gather(axis, given, target, sizes, algorithm, options)
    steps = run.steps(axis.tag())
    return reported(
        axis.observer, lambda: start(steps, run.result), axis.given, ("all_gather", algorithm), given, count=-1
    )


def scatter(
    buffer: Any,
    mesh_axis: Any,
    out: Any,
    root: int = 0,
    algorithm: str = "auto",
    *,
    counts: Counts | None = None,
    **options: Any,
) -> Work:
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
    steps, what = run.steps(axis.tag()), ("scatter", algorithm)
    return reported(axis.observer, lambda: start(steps, target.put_back), axis.given, what, target, count=-1, root=root)


def gather(
    block: Any,
    mesh_axis: Any,
    out: Any = None,
    root: int = 0,
    algorithm: str = "auto",
    *,
    counts: Counts | None = None,
    **options: Any,
) -> Work:
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
    run = moving.Gather(axis, given, target, sizes, algorithm, options, root)
    steps, what = run.steps(axis.tag()), ("gather", algorithm)
    return reported(axis.observer, lambda: start(steps, run.result), axis.given, what, given, count=-1, root=root)


def all_to_all(
    buffer: Any,
    mesh_axis: Any,
    out: Any = None,
    algorithm: str = "auto",
    *,
    counts: Counts | None = None,
    **options: Any,
) -> Work:
    """Send each rank its block of the buffer; take one from each, one after the other in the order of the ranks.

    counts: elements of the block for each rank; the ranks then tell each other what comes. Or a matrix, counts[r][q]
    from rank r to rank q, alike on all ranks. By default the block rule cuts the buffer, which is as large on every
    rank. out: where the blocks go; left out, a flat array is made.
    """
    how = ("all_to_all", id(out), key_of(counts))
    bound = None if out is None or options else kept(buffer, out, mesh_axis, how, algorithm)
    if bound is not None:
        return bound.start_again(buffer, out)
    axis = axis_of(mesh_axis)
    given = Buffer(buffer, "the buffer", written=False)
    target = None if out is None else Buffer(out, "out")
    if target is not None:
        same_kind(given, target, ("the buffer", "out"))
        moving.apart(given, target)
    sent, taken = moving.exchanged_sizes(axis, given, target, counts)
    if taken is not None:
        # The mean over the ranks, so that all choose alike.
        nbytes = given.nbytes if counts is None else int(np.sum(counts)) * given.array.itemsize // axis.size
        chosen = choose("all_to_all", algorithm, axis, nbytes, options, given=given)
        group = axis.group
        if chosen.algorithm in IN_NODE and group is not None:
            blocks = given.empty(int(taken.sum())).array if target is None else target.array
            call = Bound(bind(group, chosen, given, blocks, counts=sent, out_counts=taken))
            if out is not None:
                keep(call.known_by(buffer, out, mesh_axis, how, algorithm))
            what = ("all_to_all", chosen.algorithm)
            return reported(axis.observer, lambda: call.start(blocks, buffer), axis.given, what, given, count=-1)
    run = moving.AllToAll(axis, given, target, sent, taken, algorithm, options)
    steps = run.steps(axis.tag())
    return reported(
        axis.observer, lambda: start(steps, run.result), axis.given, ("all_to_all", algorithm), given, count=-1
    )
