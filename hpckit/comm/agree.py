"""A check that all ranks were given the same thing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import numpy as np
from mpi4py import MPI

from hpckit.errors import InputError

__communicates__ = True  # its frames are not call sites


def require_same(comm: MPI.Comm, facts: Mapping[str, str], what: str) -> None:
    """Raise `InputError` on every rank alike unless `facts` are equal on all; names the first difference.

    Collective. In the good case 8 bytes a rank are exchanged.
    """
    text = json.dumps(facts).encode()
    mine = np.frombuffer(hashlib.sha256(text).digest()[:8], np.int64)
    digests = np.empty(comm.size, np.int64)
    comm.Allgather(mine, digests)
    if (digests == digests[0]).all():
        return
    other = int(np.argmax(digests != digests[0]))
    first, second = (json.loads(broadcast_bytes(comm, text, root)) for root in (0, other))
    differing = [name for name in {**first, **second} if first.get(name) != second.get(name)]
    name = differing[0]
    here, there = first.get(name, "missing"), second.get(name, "missing")
    raise InputError(
        f"{what}, but {name} is {here} on rank 0 and {there} on rank {other}",
        likely="a shape, dtype or option that depends on the rank",
    )


def broadcast_bytes(comm: MPI.Comm, data: bytes, root: int) -> bytes:
    """The bytes of `root` on every rank."""
    length = np.array(len(data), np.int64)
    comm.Bcast(length, root)
    buffer = np.frombuffer(bytearray(data) if comm.rank == root else bytearray(int(length)), np.uint8)
    comm.Bcast(buffer, root)
    return buffer.tobytes()
