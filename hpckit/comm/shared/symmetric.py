"""Symmetric buffers: memory of which every rank of a node owns a part and sees all.

A collective on them copies nothing, and a rank can read another's part without a message.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from hpckit.comm.agree import require_same
from hpckit.comm.shared.group import NodeGroup, node_comm, node_group
from hpckit.comm.shared.memory import make_segment, whole_pages
from hpckit.errors import InputError

__all__ = ["NodeGroup", "SharedBuffer", "empty_shared", "node_comm", "node_group", "shared_once"]


class SharedBuffer:
    """A symmetric buffer of a group of ranks.

    array: this rank's part. parts: the parts of all ranks, in rank order; the program synchronizes access to them
    (`calls.barrier`). The memory lives as long as any array on it.
    """

    def __init__(self, group: NodeGroup, shape: tuple[int, ...], dtype: np.dtype) -> None:
        nbytes = math.prod(shape) * dtype.itemsize
        part = whole_pages(nbytes)
        segment = make_segment(group.comm, part)
        bases = segment.address + part * np.arange(group.size, dtype=np.int64)
        group.places.make(segment, int(bases[group.rank]), nbytes, bases)
        self.group = group
        self.parts = [np.ndarray(shape, dtype, segment.memory, offset=rank * part) for rank in range(group.size)]
        self.array = self.parts[group.rank]


def empty_shared(comm: MPI.Comm, shape: int | Sequence[int], dtype: npt.DTypeLike = np.float64) -> SharedBuffer:
    """A symmetric buffer over the ranks of `comm` that share this rank's node; collective over `comm`.

    Every rank gives the same shape and dtype; the memory is zeroed. Raises `InputError` if the ranks do not agree,
    `SetupError` if there is not enough memory.
    """
    try:
        wanted = (int(shape),) if isinstance(shape, int | np.integer) else tuple(int(n) for n in shape)
        kind = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise InputError(f"a symmetric buffer has a shape and a dtype: {error}") from None
    if kind.hasobject:
        raise InputError("shared memory cannot hold Python objects", do="give a dtype of numbers")
    require_same(comm, {"shape": str(wanted), "dtype": str(kind)}, "a symmetric buffer is the same on every rank")
    if min(wanted, default=0) < 0:
        raise InputError(f"the shape of a symmetric buffer is {wanted}; no dim may be negative")
    group = node_group(node_comm(comm))
    assert group is not None
    return SharedBuffer(group, wanted, kind)


def shared_once(comm: MPI.Comm, count: int, dtype: npt.DTypeLike) -> np.ndarray:
    """A zeroed vector that exists once for all ranks of `comm`, which share a node; collective.

    Each rank reserves a part of it, in memory next to itself. The program synchronizes access (`calls.barrier`). Raises
    `SetupError` if there is not enough memory.
    """
    kind = np.dtype(dtype)
    segment = make_segment(comm, whole_pages(-(-count // comm.size) * kind.itemsize))
    return np.ndarray((count,), kind, segment.memory)
