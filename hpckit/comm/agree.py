"""Agreement between ranks: numbers and plain values that all ranks must know, checks that they gave the same, and
errors that all raise together.

What stands here is collective and small; arrays of the size of the data go by plans (`hpckit.collectives`). Plain
values travel as JSON bytes: no pickle.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from hpckit.errors import CorruptDataError, HpckitError, InputError, SetupError, write_error

if TYPE_CHECKING:
    from mpi4py import MPI

__communicates__ = True  # its frames are not call sites

Numbers = TypeVar("Numbers", bound=np.ndarray)
_KINDS = {kind.code: kind for kind in (InputError, SetupError, CorruptDataError)}


class ClosedTogether:
    """Closes at the end of a `with` block, unless it ends by an error: `close` is collective, and after an error the
    other ranks may never reach it; the job is about to end anyway.
    """

    def close(self) -> None:
        """Collective: free what is held."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()


def sum_of_ranks(comm: MPI.Comm, numbers: Numbers) -> Numbers:
    """Add up the numbers of all ranks, element by element and in place; returns them.

    The last bits of a sum of floating-point numbers may depend on the number of ranks.
    """
    from mpi4py import MPI

    comm.Allreduce(MPI.IN_PLACE, numbers, MPI.SUM)
    return numbers


def max_of_ranks(comm: MPI.Comm, numbers: Numbers) -> Numbers:
    """As `sum_of_ranks`, the largest. What becomes of nan is left to the MPI library."""
    from mpi4py import MPI

    comm.Allreduce(MPI.IN_PLACE, numbers, MPI.MAX)
    return numbers


def min_of_ranks(comm: MPI.Comm, numbers: Numbers) -> Numbers:
    """As `sum_of_ranks`, the smallest. What becomes of nan is left to the MPI library."""
    from mpi4py import MPI

    comm.Allreduce(MPI.IN_PLACE, numbers, MPI.MIN)
    return numbers


def all_of_ranks(comm: MPI.Comm, numbers: Any) -> np.ndarray:
    """The numbers of every rank, which give an array of the same shape and dtype each: [ranks, *shape]."""
    own = np.ascontiguousarray(numbers)
    every = np.empty((comm.size, *np.shape(numbers)), own.dtype)
    comm.Allgather(own, every)
    return every


def share_numbers(comm: MPI.Comm, numbers: Numbers, root: int = 0) -> Numbers:
    """Set the numbers of all ranks to those of `root`, in place; returns them."""
    comm.Bcast(numbers, root)
    return numbers


def wait_for_ranks(comm: MPI.Comm) -> None:
    """Wait until every rank has come here."""
    comm.Barrier()


def first_of_ranks(comm: MPI.Comm, own: Any) -> tuple[int, Any] | None:
    """The lowest rank whose plain value is not None, and its value; None where there is none."""
    lacking = all_of_ranks(comm, np.array(own is None, np.int64))
    return None if lacking.all() else least_of_ranks(comm, float(own is None), own)


def least_of_ranks(comm: MPI.Comm, order: float, own: Any) -> tuple[int, Any]:
    """The rank with the least `order`, of several the lowest, and its plain value."""
    rank = int(all_of_ranks(comm, np.array(order, np.float64)).argmin())
    return rank, json.loads(broadcast_bytes(comm, json.dumps(own).encode(), rank))


def require_same(comm: MPI.Comm, facts: Mapping[str, str], what: str) -> None:
    """Raise `InputError` on every rank unless `facts` are equal on all; names the first difference.

    Exchanges 8 bytes per rank when all agree.
    """
    text = json.dumps(facts).encode()
    other = first_other(comm, text)
    if other is None:
        return
    first, second = (json.loads(broadcast_bytes(comm, text, root)) for root in (0, other))
    differing = [name for name in {**first, **second} if first.get(name) != second.get(name)]
    name = differing[0]
    here, there = first.get(name, "missing"), second.get(name, "missing")
    raise InputError(
        f"{what}, but {name} is {here} on rank 0 and {there} on rank {other}",
        likely="a shape, dtype or option that depends on the rank",
    )


def first_other(comm: MPI.Comm, data: bytes | memoryview) -> int | None:
    """The lowest rank whose bytes differ from those of rank 0, by 64 bits of SHA-256; None where all are equal."""
    digests = all_of_ranks(comm, np.frombuffer(hashlib.sha256(data).digest()[:8], np.int64))[:, 0]
    return int(np.argmax(digests != digests[0])) or None


def broadcast_bytes(comm: MPI.Comm, data: bytes, root: int) -> bytes:
    """The bytes of `root` on every rank."""
    length = np.array(len(data), np.int64)
    comm.Bcast(length, root)
    buffer = np.frombuffer(bytearray(data) if comm.rank == root else bytearray(int(length)), np.uint8)
    comm.Bcast(buffer, root)
    return buffer.tobytes()


def plain(value: Any) -> Any:
    """`value` in JSON types: NumPy scalars and arrays, paths and tuples are converted; non-finite becomes null."""
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
    """The values of all ranks, in the order of ranks, on rank 0; None elsewhere."""
    data = np.frombuffer(json.dumps(plain(value)).encode(), dtype=np.uint8)
    sizes = np.zeros(comm.size, dtype=np.int64)
    comm.Gather(np.array([data.size], dtype=np.int64), sizes, root=0)
    if comm.rank:
        comm.Gatherv(data, None, root=0)
        return None
    every = np.empty(sizes.sum(), dtype=np.uint8)
    comm.Gatherv(data, (every, sizes), root=0)
    return [json.loads(part.tobytes()) for part in np.split(every, np.cumsum(sizes)[:-1])]


def share_json(comm: MPI.Comm, value: Any, root: int = 0) -> Any:
    """The value of `root`, on every rank."""
    return json.loads(broadcast_bytes(comm, json.dumps(plain(value)).encode(), root))


def together(comm: MPI.Comm, path: Path, action: Callable[[], int]) -> int:
    """Run `action` on every rank and return the sum of what it returned.

    `path` names what is written, for the message. If `action` raises `OSError` or `HpckitError` on any rank, every rank
    raises, so that no rank waits for one that gave up: that rank its own error, the others the same error with that
    rank named.
    """
    error: HpckitError | None = None
    count = 0
    try:
        count = action()
    except HpckitError as problem:
        error = problem
    except OSError as problem:
        error = write_error(problem, Path(problem.filename or path))
        error.__cause__ = problem
    every = all_of_ranks(comm, np.array([count, error is not None], np.int64))
    failed = np.flatnonzero(every[:, 1])
    if not failed.size:
        return int(every[:, 0].sum())
    first = int(failed[0])
    told = share_json(comm, None if error is None else error.to_dict(), root=first)
    if error is not None:
        raise error
    where = ", ".join(part for part in (f"rank {first}", told["where"]) if part)
    raise _KINDS.get(told["code"], SetupError)(told["message"], where=where, likely=told["likely"], do=told["do"])
