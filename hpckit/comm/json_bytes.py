"""Plain values between ranks, as the bytes of their JSON: no pickle."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mpi4py import MPI

__communicates__ = True  # its frames are not call sites


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: NumPy scalars and arrays, paths and tuples become plain; not finite becomes null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, (str, int, bool)):
        return value
    if hasattr(value, "tolist"):  # NumPy scalars and arrays
        return plain(value.tolist())
    return str(value)


def gather_json(comm: MPI.Intracomm, value: Any) -> list[Any] | None:
    """Collective: the values of all ranks, in the order of ranks, on rank 0; None elsewhere. JSON bytes, no pickle."""
    data = np.frombuffer(json.dumps(plain(value)).encode(), dtype=np.uint8)
    sizes = np.zeros(comm.size, dtype=np.int64)
    comm.Gather(np.array([data.size], dtype=np.int64), sizes, root=0)
    if comm.rank:
        comm.Gatherv(data, None, root=0)
        return None
    every = np.empty(sizes.sum(), dtype=np.uint8)
    comm.Gatherv(data, (every, sizes), root=0)
    return [json.loads(part.tobytes()) for part in np.split(every, np.cumsum(sizes)[:-1])]


def share_json(comm: MPI.Intracomm, value: Any) -> Any:
    """Collective: the value of rank 0, on every rank."""
    data = np.frombuffer(json.dumps(plain(value)).encode(), dtype=np.uint8)
    size = np.array([data.size], dtype=np.int64)
    comm.Bcast(size, root=0)
    received = np.array(data) if comm.rank == 0 else np.empty(size[0], dtype=np.uint8)
    comm.Bcast(received, root=0)
    return json.loads(received.tobytes())
