"""Calls in shared memory that are kept for buffers that come again: to look one up takes less than it took to bind it.

A call is known by the identities of its buffers and of what was given as the axis, and by how it combines or moves. No
other array can take over an identity: small buffers are kept alive with their call, others are known weakly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.collectives.node_work import Bound
from hpckit.comm.shared.group import NodeGroup

# Calls that are kept; then the oldest goes.
MOST = 64
# By the identities of buffer and axis, how, and the algorithm; and the one that was bound last to a buffer, by the
# identity of that alone: to look this up takes half the time.
calls: dict[tuple, Bound] = {}
latest: dict[int, Bound] = {}


def kept(buffer: Any, out: Any, mesh_axis: Any, how: tuple, algorithm: str) -> Bound | None:
    """The call that was bound to such arguments; None where there is none, or where somebody wants to see the call."""
    try:
        bound = latest.get(id(buffer))
        if bound is None or bound.axis is not mesh_axis or bound.algorithm is not algorithm or bound.how != how:
            bound = calls.get((id(buffer), id(mesh_axis), how, algorithm))
    except (TypeError, ValueError):  # no number, no name: what is wrong with it is told where a call is bound
        return None
    return bound if bound is not None and not bound.observer.on and bound.fits(buffer, out) else None


def keep(bound: Bound) -> None:
    """Keep a call that knows whose it is, until there are too many or its ranks part."""
    if len(calls) >= MOST:
        _drop(next(iter(calls)))
    buffer = id(bound.buffer())
    calls[buffer, id(bound.axis), bound.how, bound.algorithm] = latest[buffer] = bound


def forget(group: NodeGroup | None) -> None:
    """Drop the calls of some ranks."""
    for key in [key for key, bound in calls.items() if bound.group is group]:
        _drop(key)


def _drop(key: tuple) -> None:
    bound = calls.pop(key)
    if latest.get(key[0]) is bound:
        del latest[key[0]]


def key_of(counts: Any) -> tuple | None:
    """What stands for the sizes of blocks: the same for the same numbers."""
    if counts is None:
        return None
    sizes = np.asarray(counts)
    return sizes.dtype.char, sizes.shape, sizes.tobytes()
