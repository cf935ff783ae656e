"""Collectives on shared memory that are bound to their buffers once, and called often."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from hpckit.errors import InputError, RankLostError, StallError
from hpckit.kernels.shared_memory import all_reduce
from hpckit.kernels.shared_memory import constants as c
from hpckit.kernels.shared_memory.simd import reducer
from hpckit.segments import Place, place_of

if TYPE_CHECKING:
    from hpckit.node import NodeGroup

OPERATIONS = ("all_reduce",)
ALGORITHMS = ("flat", "staged", "symmetric")
KERNELS: dict[tuple[str, str], Callable[[np.ndarray], int]] = {
    ("all_reduce", "flat"): all_reduce.flat,
    ("all_reduce", "staged"): all_reduce.staged,
    ("all_reduce", "symmetric"): all_reduce.symmetric,
}


class Call:
    """A bound collective: `call()` runs it, in one compiled call, on what the buffer then holds.

    Raises on every rank alike: `InputError` where the ranks called different things, `StallError` where one did not
    come before the deadline, `RankLostError` where its process is gone. After the last two the group is of no use.
    """

    __slots__ = ("_group", "_kept", "_kernel", "_record")

    def __init__(self, group: NodeGroup, kernel: Callable[[np.ndarray], int], record: np.ndarray, kept: Any) -> None:
        self._group, self._kernel, self._record, self._kept = group, kernel, record, kept

    def __call__(self) -> None:
        """Run it."""
        status = self._kernel(self._record)
        if status:
            _fail(self._group, status)

    @property
    def weight(self) -> float:
        """The weight of this rank in an average; may be set before a call."""
        return float(self._record[c.WEIGHT : c.WEIGHT + 1].view(np.float64)[0])

    @weight.setter
    def weight(self, value: float) -> None:
        self._record[c.WEIGHT : c.WEIGHT + 1].view(np.float64)[0] = value


def kind_of(dtype: np.dtype, op: str = "sum") -> str | None:
    """The kind of number that the elements of a buffer are reduced as, None where there is none.

    Complex numbers are added as pairs; the largest of truth values is that any of them is true.
    """
    name = dtype.name
    if name in c.KINDS:
        return name
    if dtype == np.bool_ and op in ("max", "min"):
        return "uint8"
    if dtype.kind == "c" and op in ("sum", "mean", "average") and dtype.itemsize in (8, 16):
        return f"float{4 * dtype.itemsize}"
    return None


def bind(
    group: NodeGroup,
    operation: str,
    buffer: np.ndarray,
    *,
    op: str = "sum",
    algorithm: str | None = None,
    weight: float = 1.0,
    kind: str | None = None,
) -> Call:
    """One collective of a group on one buffer, as a call.

    operation: "all_reduce". op: "sum", "max", "min", "mean" or "average", with the `weight` of this rank. algorithm:
    "flat" for small data, "staged" for any buffer, "symmetric" for one of `empty_shared`; by default the best that the
    buffer allows. kind: "bfloat16" where a buffer of uint16 holds the bits of such numbers.

    Raises `InputError`, before anything is shared, for a buffer, op or algorithm that does not fit.
    """
    if operation not in OPERATIONS:
        raise InputError(f"no collective on shared memory is called {operation!r}; there are {', '.join(OPERATIONS)}")
    _check_array(buffer, "the buffer")
    number = kind or kind_of(buffer.dtype, op)
    if number is None:
        raise InputError(
            f"cannot reduce {buffer.dtype} by {op}", do=f"use one of {', '.join(c.KINDS)}, or complex numbers for sums"
        )
    if kind is not None and (kind != "bfloat16" or buffer.dtype != np.uint16):
        raise InputError(f"kind={kind!r} of a buffer of {buffer.dtype}: only uint16 can be taken for bfloat16")
    place = place_of(buffer)
    if place is not None and place.group is not group:
        place = None
    chosen = algorithm or _choose(group, buffer, place)
    _check_algorithm(group, chosen, buffer, place)
    try:
        address, kernel = reducer(number, op)
    except TypeError as problem:
        raise InputError(str(problem)) from None
    record = np.zeros(c.CALL_FIELDS, np.int64)
    item = 2 if number == "bfloat16" else np.dtype(number).itemsize
    record[c.GROUP] = group.record.ctypes.data
    record[c.SIGNATURE] = _signature(operation, chosen, op, number, 0)
    record[c.COUNT], record[c.ITEM] = buffer.nbytes // item, item
    record[c.SEND], record[c.REDUCER] = buffer.ctypes.data, address
    record[c.AVERAGED] = op == "average"
    if chosen == "symmetric" and place is not None:
        record[c.SYMMETRIC], record[c.OFFSET] = place.number, buffer.ctypes.data - place.address
        record[c.BASES] = place.bases.ctypes.data
    call = Call(group, KERNELS[operation, chosen], record, (buffer, place, kernel))
    call.weight = weight
    return call


def _check_array(buffer: Any, name: str) -> None:
    if not isinstance(buffer, np.ndarray):
        raise InputError(f"{name} is a {type(buffer).__name__}, not a NumPy array")
    if not buffer.flags.c_contiguous or not buffer.flags.writeable:
        raise InputError(
            f"{name} of a collective must be C-contiguous and writable", do="give the whole array, or a copy of a slice"
        )


def _choose(group: NodeGroup, buffer: np.ndarray, place: Place | None) -> str:
    if buffer.nbytes <= SMALL:
        return "flat"
    return "symmetric" if place is not None else "staged"


SMALL = 4096  # bytes up to which the copies of a flat all-reduce cost less than its second look at the flags


def _check_algorithm(group: NodeGroup, algorithm: str, buffer: np.ndarray, place: Place | None) -> None:
    if algorithm not in ALGORITHMS:
        raise InputError(f"no algorithm is called {algorithm!r}; there are {', '.join(ALGORITHMS)}")
    if algorithm == "symmetric" and place is None:
        raise InputError(
            "the buffer is not a symmetric one of this group", do="make it by empty_shared with this communicator"
        )
    largest = int(group.record[c.FLAT_BYTES])
    if algorithm == "flat" and buffer.nbytes > largest:
        raise InputError(f"a flat all-reduce takes up to {largest} bytes, not {buffer.nbytes}", do="use staged")


# ---- what the ranks agree on


def _signature(operation: str, algorithm: str, op: str, kind: str, root: int) -> int:
    """What a rank calls as one number."""
    parts = OPERATIONS.index(operation), ALGORITHMS.index(algorithm), c.OPS.index(op), c.KINDS.index(kind)
    number = root
    for part in parts:
        number = number << 8 | part
    return number


def _words(signature: int, count: int) -> str:
    """The same as words."""
    kind, op = c.KINDS[signature & 255], c.OPS[signature >> 8 & 255]
    algorithm, operation = ALGORITHMS[signature >> 16 & 255], OPERATIONS[signature >> 24 & 255]
    return f"{operation} ({algorithm}) of {count} {kind}, {op}"


def _fail(group: NodeGroup, status: int) -> NoReturn:
    """Raise what a status of a collective stands for."""
    sequence = int(group.record[c.SEQUENCE])
    lines = group.lines(sequence & 1)
    if status == c.MISMATCH:
        called = [_words(int(line[1]), int(line[2])) for line in lines]
        other = next((rank for rank, words in enumerate(called) if words != called[0]), None)
        what = (
            "the ranks gave different symmetric buffers"
            if other is None
            else f"rank 0 called {called[0]}, rank {other} called {called[other]}"
        )
        raise InputError(
            f"collective {sequence} differs between the ranks of a node: {what}",
            likely="a branch, shape or dtype that depends on the rank",
        )
    if status == c.NO_WEIGHT:
        raise InputError("the weights of an average add up to nothing above 0", do="give some rank a weight above 0")
    absent = [rank for rank, line in enumerate(lines) if line[0] < sequence]
    waited_for = int(group.record[c.LATE])
    own = _words(int(lines[group.rank][1]), int(lines[group.rank][2]))
    if status == c.LOST:
        raise RankLostError(
            f"rank {waited_for} is gone: its process ended while rank {group.rank} waited for it",
            where=f"collective {sequence}: {own}",
            likely="it was killed, for lack of memory or by hand, or it crashed",
        )
    late = absent or [waited_for]
    what = "has not come to it" if absent else "has come to it but does not go on"
    limit = "another rank gave up" if status == c.ABORTED else f"waited for {group.deadline:g} s"
    raise StallError(
        f"rank{'s' if len(late) > 1 else ''} {', '.join(map(str, late))} {what}: {limit}",
        where=f"rank {group.rank}, collective {sequence}: {own}",
        likely="a rank that took another branch, waits elsewhere, or is much slower than the others",
        do="raise the deadline of the group if the rank is only slow",
    )
