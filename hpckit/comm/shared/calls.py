"""Collectives on shared memory as prepared calls: their buffers are checked before any data moves.

A call is prepared for one dtype and size, and runs on any such buffers: one compiled call of about a microsecond.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.comm.shared.compiled import all_reduce, direct, movement, scattering
from hpckit.comm.shared.compiled import constants as c
from hpckit.comm.shared.compiled.entry import entry, nothing, wanted
from hpckit.comm.shared.compiled.simd import reducer
from hpckit.comm.shared.failures import ALGORITHMS, OPERATIONS, fail, signature
from hpckit.comm.shared.group import FLAT_BYTES, NodeGroup, SymmetricBuffer
from hpckit.errors import InputError
from hpckit.kernels.compile.addresses import address_of
from hpckit.plan.blocks import block_starts

__communicates__ = True  # its frames are not call sites

KERNELS: dict[tuple[str, str], Any] = {
    ("all_reduce", "flat"): all_reduce.flat,
    ("all_reduce", "staged"): all_reduce.staged,
    ("all_reduce", "symmetric"): all_reduce.symmetric,
    ("all_reduce", "direct"): direct.all_reduce,
    ("reduce_scatter", "staged"): scattering.staged_reduce_scatter,
    ("reduce_scatter", "symmetric"): scattering.symmetric_reduce_scatter,
    ("all_gather", "staged"): movement.staged_all_gather,
    ("all_gather", "symmetric"): movement.symmetric_all_gather,
    ("broadcast", "staged"): movement.staged_broadcast,
    ("broadcast", "symmetric"): movement.symmetric_broadcast,
    ("all_to_all", "staged"): scattering.staged_all_to_all,
    ("all_to_all", "symmetric"): scattering.symmetric_all_to_all,
}
REDUCTIONS = ("all_reduce", "reduce_scatter")
DIRECT_FROM = 2**25  # bytes from which a staged all-reduce reads the memory of other processes, if permitted
SMALL = 4096  # bytes up to which the copies of a flat all-reduce cost less than another poll of the flags
BYTES = "bytes"
PATIENCE = 50  # polls of a flag in an attempt


class GroupCall:
    """A collective of a group, prepared for buffers of one dtype and size. Made by `prepare`.

    `run(buffer, out)` attempts it and returns a status for `came`: if the other ranks do not enter within some
    microseconds, run it again, with no other collective of the group in between. Arrays that do not fit give the status
    `constants.UNFIT` and are left unchanged; `fits` only checks them.
    """

    __slots__ = ("_kept", "fits", "group", "record", "run")

    def __init__(self, group: NodeGroup, kernel: Any, record: np.ndarray, kept: Any) -> None:
        self.group, self.record, self._kept = group, record, kept
        record[c.GROUP] = group.record.ctypes.data
        record[c.PATIENCE] = min(8 * PATIENCE, int(group.record[c.SPINS]))
        self.run: Callable[[Any, Any], int] = functools.partial(entry(kernel), record.ctypes.data)
        self.fits: Callable[[Any, Any], int] = functools.partial(entry(nothing), record.ctypes.data)

    def came(self, status: int) -> bool:
        """Whether all ranks took part. Raises on every rank: `InputError` if their calls differ, `StallError` if a rank
        missed the deadline, `RankLostError` if its process is gone; after the last two the group is unusable.
        """
        if status and status != c.NOT_YET:
            fail(self.group, status)
        return status == c.GOOD

    @property
    def weight(self) -> float:
        """The weight of this rank in an average; may be set before a call."""
        return float(self.record[c.WEIGHT : c.WEIGHT + 1].view(np.float64)[0])

    @weight.setter
    def weight(self, value: float) -> None:
        self.record[c.WEIGHT : c.WEIGHT + 1].view(np.float64)[0] = value


class BoundCall:
    """A call with its buffers: `bound()` runs it on their values. Raises like `GroupCall.came`. Made by `bind`."""

    def __init__(self, call: GroupCall, buffer: Any, out: Any) -> None:
        self.call, self._buffers = call, (buffer, out)

    def __call__(self) -> None:
        """Run it."""
        self._with_patience(0)

    def attempt(self) -> bool:
        """Run it if the other ranks enter within a few polls; returns whether it ran. If not, attempt it again."""
        return self._with_patience(PATIENCE)

    def _with_patience(self, patience: int) -> bool:
        self.call.record[c.PATIENCE] = patience
        return self.call.came(self.call.run(*self._buffers))


def bind(group: NodeGroup, operation: str, buffer: np.ndarray, **options: Any) -> BoundCall:
    """One collective of a group on its buffers; arguments as in `prepare`."""
    return BoundCall(prepare(group, operation, buffer, **options), buffer, options.get("out"))


def barrier(group: NodeGroup) -> None:
    """Wait for all ranks of a group."""
    barrier_call(group)()


def barrier_call(group: NodeGroup) -> BoundCall:
    """The call that waits for all ranks of a group."""
    if "barrier" not in group.calls:
        record = np.zeros(c.CALL_FIELDS, np.int64)
        record[c.SIGNATURE] = signature("barrier", "flat", "sum", "uint8", 0, 0)
        record[c.SENT : c.SENT + c.ARRAY_FIELDS] = record[c.TAKEN : c.TAKEN + c.ARRAY_FIELDS] = wanted(None, False)
        group.calls["barrier"] = BoundCall(GroupCall(group, movement.barrier, record, None), None, None)
    return group.calls["barrier"]


def barrier_addresses(group: NodeGroup) -> tuple[int, int]:
    """Of a kernel that waits for all ranks of a group, and of its argument, for kernels that call it: it returns a
    status for `GroupCall.came`.
    """
    record = barrier_call(group).call.record
    record[c.PATIENCE] = 0
    return address_of(movement.barrier_at, "int64(int64)"), record.ctypes.data


def takes(
    group: NodeGroup,
    operation: str,
    algorithm: str,
    dtype: npt.DTypeLike,
    nbytes: int,
    buffer: Any = None,
    op: str = "sum",
) -> bool:
    """Whether a group has the algorithm for this data: "flat" is for small data, "symmetric" for `empty_shared`."""
    if (operation, algorithm) not in KERNELS:
        return False
    if operation in REDUCTIONS and kind_of(np.dtype(dtype), op) is None:
        return False
    if algorithm == "direct":
        return group.reads
    if algorithm == "flat":
        return nbytes <= FLAT_BYTES
    return algorithm == "staged" or group.places.of(buffer) is not None


def prepare(
    group: NodeGroup,
    operation: str,
    buffer: np.ndarray,
    *,
    out: np.ndarray | None = None,
    op: str = "sum",
    algorithm: str | None = None,
    root: int = 0,
    weight: float = 1.0,
    kind: str | None = None,
    counts: Sequence[int] | None = None,
    out_counts: Sequence[int] | None = None,
) -> GroupCall:
    """One collective of a group as a call for buffers of this dtype and size.

    operation and buffers, with p ranks:

    - "all_reduce", "broadcast" (from `root`): `buffer` is sent and received, equal on every rank afterwards.
    - "reduce_scatter": `buffer` has n elements; rank r receives the reduced block r in `out`.
    - "all_gather": `buffer` is block r of the n elements of `out`.
    - "all_to_all": block q of `buffer` goes to rank q; `out` receives one block of each rank, in rank order.

    Blocks are those of `hpckit.plan.blocks`, or have the sizes `counts` (p numbers, the same on every rank except for
    all_to_all, where `out_counts` are the sizes received from each rank). `out` may be this rank's block of `buffer`,
    or `buffer` this rank's block of `out`; otherwise they must not overlap. A reduce_scatter without `out` leaves this
    rank's block in `buffer`.

    op: "sum", "max", "min", "mean" or "average", with the `weight` of this rank. algorithm: "flat" (all_reduce of
    small data), "staged" (any buffer), "symmetric" (the send buffer is from `empty_shared`); by default the best that
    the buffer allows. A "staged" all_reduce of 32 MiB and more is "direct" if ranks may read each other's memory.
    kind: "bfloat16" if arrays of uint16 hold bfloat16 bits; `BYTES` to move bytes, whose dtype may differ by rank.

    Raises `InputError` for a buffer, op or algorithm that does not fit.
    """
    if operation not in OPERATIONS[:-1]:
        raise InputError(
            f"no collective on shared memory is called {operation!r}; there are {', '.join(OPERATIONS[:-1])}"
        )
    if not 0 <= root < group.size:
        raise InputError(f"the root {root} is not one of the ranks 0 to {group.size - 1}")
    in_place = out is None and (operation, group.rank) != ("broadcast", root)
    _check_arrays(operation, buffer, out, in_place)
    number, item, scale = _element(operation, buffer, op, kind)
    place = group.places.of(buffer)
    chosen = algorithm or _choose(operation, buffer, place)
    if operation == "all_reduce" and chosen == "staged" and group.reads and buffer.nbytes >= DIRECT_FROM:
        chosen = "direct"
    _check_algorithm(group, operation, chosen, buffer, place)
    record = np.zeros(c.CALL_FIELDS, np.int64)
    starts, into = _blocks(group, operation, buffer, out, counts, out_counts)
    own = int(starts[group.rank]) * buffer.dtype.itemsize  # from the start of the long buffer
    _check_overlap(operation, buffer, out, own)
    starts, into = starts * scale, into * scale
    kept: list[Any] = [buffer.dtype, type(buffer), type(out), place, starts, into]
    if operation in REDUCTIONS:
        try:
            record[c.REDUCER], kernel = reducer(number, op)
        except TypeError as problem:
            raise InputError(str(problem)) from None
        kept.append(kernel)
    chosen_blocks = 0 if operation == "all_to_all" else zlib.crc32(starts.tobytes())
    record[c.SIGNATURE] = signature(operation, chosen, op, number, root, chosen_blocks)
    record[c.COUNT] = 0 if operation == "all_to_all" else starts[-1]
    record[c.ITEM], record[c.ROOT], record[c.AVERAGED] = item, root, op == "average"
    record[c.STARTS], record[c.FROM] = starts.ctypes.data, into.ctypes.data
    record[c.SENT : c.SENT + c.ARRAY_FIELDS] = wanted(buffer, in_place)
    record[c.TAKEN : c.TAKEN + c.ARRAY_FIELDS] = wanted(out, True)
    record[c.BLOCK_AT] = {"reduce_scatter": own, "all_gather": -own, "all_to_all": c.APART}.get(operation, 0)
    if place is not None:
        record[c.WITHIN], record[c.BASES] = place.number, place.bases.ctypes.data
        record[c.SYMMETRIC] = place.number if chosen == "symmetric" else 0
    call = GroupCall(group, KERNELS[operation, chosen], record, kept)
    call.weight = weight
    return call


def kind_of(dtype: np.dtype, op: str = "sum") -> str | None:
    """The kind of number that the elements of a buffer are reduced as; None if they cannot be reduced.

    Complex numbers are added as pairs; the maximum of booleans is a logical or.
    """
    if dtype.name in c.KINDS:
        return dtype.name
    if dtype == np.bool_ and op in ("max", "min"):
        return "uint8"
    if dtype.kind == "c" and op in ("sum", "mean", "average") and dtype.itemsize in (8, 16):
        return f"float{4 * dtype.itemsize}"
    return None


def _element(operation: str, buffer: np.ndarray, op: str, kind: str | None) -> tuple[str, int, int]:
    """The kind of number, its bytes, and how many of them an element of the buffer is."""
    if kind == BYTES and operation not in REDUCTIONS:
        return "uint8", 1, buffer.dtype.itemsize
    if kind is not None and (kind != "bfloat16" or buffer.dtype != np.uint16):
        raise InputError(f"kind={kind!r} of a buffer of {buffer.dtype}: only uint16 can be taken for bfloat16")
    number = kind or kind_of(buffer.dtype, op)
    if number is None and operation not in REDUCTIONS:
        return "uint8", 1, buffer.dtype.itemsize  # bytes can be moved whatever they mean
    if number is None:
        raise InputError(
            f"cannot reduce {buffer.dtype} by {op}", do=f"use one of {', '.join(c.KINDS)}, or complex numbers for sums"
        )
    item = 2 if number == "bfloat16" else np.dtype(number).itemsize
    return number, item, buffer.dtype.itemsize // item


def _blocks(
    group: NodeGroup,
    operation: str,
    buffer: np.ndarray,
    out: np.ndarray | None,
    counts: Sequence[int] | None,
    out_counts: Sequence[int] | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Where the blocks of the long buffer start and end, and for an all-to-all those of `out`: int64[p + 1] each."""
    if operation in ("all_reduce", "broadcast"):
        return block_starts(buffer.size, group.size), np.zeros(0, np.int64)
    whole = out.size if out is not None and operation == "all_gather" else buffer.size
    starts = block_starts(whole, group.size) if counts is None else _starts(group, counts, "counts")
    own = int(starts[group.rank + 1] - starts[group.rank])
    into = np.zeros(0, np.int64)
    if out is None:
        sizes = {"the buffer": (buffer.size, int(starts[-1]))}
    elif operation == "all_to_all":
        into = np.arange(group.size + 1) * own if out_counts is None else _starts(group, out_counts, "out_counts")
        sizes = {"the buffer": (buffer.size, int(starts[-1])), "out": (out.size, int(into[-1]))}
    elif operation == "all_gather":
        sizes = {"out": (out.size, int(starts[-1])), "the buffer": (buffer.size, own)}
    else:
        sizes = {"the buffer": (buffer.size, int(starts[-1])), "out": (out.size, own)}
    for name, (given, right) in sizes.items():
        if given != right:
            raise InputError(f"{name} of {operation} has {given} elements on rank {group.rank} and needs {right}")
    return starts, into


def _starts(group: NodeGroup, counts: Sequence[int], name: str) -> np.ndarray:
    sizes = np.asarray(counts, np.int64)
    if sizes.shape != (group.size,) or (sizes < 0).any():
        raise InputError(f"{name} must be {group.size} numbers, 0 or more, one per rank, not {list(counts)}")
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


def _check_arrays(operation: str, buffer: Any, out: Any, in_place: bool) -> None:
    given = {"the buffer": buffer}
    if operation in ("all_reduce", "broadcast") and out is not None:
        raise InputError(f"{operation} works in place and takes no `out`")
    if operation in ("all_gather", "all_to_all") or out is not None:
        given["out"] = out
    for name, array in given.items():
        if not isinstance(array, np.ndarray):
            raise InputError(f"{name} of {operation} is a {type(array).__name__}, not a NumPy array")
        receives = array is out or in_place
        if not array.flags.c_contiguous or (receives and not array.flags.writeable):
            raise InputError(
                f"{name} of {operation} must be C-contiguous, and writable where it receives",
                do="give the whole array, or a copy of a slice",
            )
        if array.dtype != buffer.dtype or array.dtype.hasobject:
            raise InputError(f"{name} of {operation} is of {array.dtype}, the buffer to send of {buffer.dtype}")


def _check_overlap(operation: str, buffer: np.ndarray, out: np.ndarray | None, own: int) -> None:
    if out is None or not np.may_share_memory(buffer, out):
        return
    long, short = (out, buffer) if operation == "all_gather" else (buffer, out)
    if operation == "all_to_all" or short.ctypes.data != long.ctypes.data + own:
        raise InputError(
            f"the buffers of {operation} overlap",
            do="give separate arrays" + ("" if operation == "all_to_all" else ", or this rank's block as one of them"),
        )


def _choose(operation: str, buffer: np.ndarray, place: SymmetricBuffer | None) -> str:
    if operation == "all_reduce" and buffer.nbytes <= SMALL:
        return "flat"
    return "symmetric" if place is not None else "staged"


def _check_algorithm(
    group: NodeGroup, operation: str, algorithm: str, buffer: np.ndarray, place: SymmetricBuffer | None
) -> None:
    if (operation, algorithm) not in KERNELS:
        there = ", ".join(name for name in ALGORITHMS if (operation, name) in KERNELS)
        raise InputError(f"{operation} has no algorithm {algorithm!r}; there are {there}")
    if algorithm == "direct" and not group.reads:
        raise InputError("the ranks may not read each other's memory", do="use staged")
    if algorithm == "symmetric" and place is None:
        raise InputError(
            "the buffer is not symmetric memory of this group", do="make it by empty_shared with this communicator"
        )
    largest = int(group.record[c.FLAT_BYTES])
    if algorithm == "flat" and buffer.nbytes > largest:
        raise InputError(f"a flat all_reduce takes up to {largest} bytes, not {buffer.nbytes}", do="use staged")
