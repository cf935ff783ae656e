"""How an operation starts: by a call that its axis keeps, or by messages; and what an observer is told of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from hpckit.collectives.axis import Axis, axis_of
from hpckit.collectives.buffers import Buffer
from hpckit.collectives.request import CollectiveRun, Request, Steps
from hpckit.comm.call_order import Lane

__communicates__ = True  # its frames are not call sites

Counts = Sequence[int] | np.ndarray


def again(mesh_axis: Any, how: Hashable, buffer: Any, out: Any) -> Request | None:
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


def told(axis: Axis, name: tuple[str, ...], given: Buffer, count: int | None = None, root: int = -1) -> tuple:
    """What an observer is told: count is -1 where ranks may differ."""
    return axis.given, name, given.array.dtype, given.size if count is None else count, root


def by_messages(
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
