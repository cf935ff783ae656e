"""The errors of collectives on shared memory, and the signature by which ranks compare their calls."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from hpckit.comm.shared.compiled import constants as c
from hpckit.comm.shared.group import NodeGroup
from hpckit.errors import InputError, MismatchError, RankLostError, StallError

__communicates__ = True  # its frames are not call sites

OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "barrier")
ALGORITHMS = ("flat", "staged", "symmetric", "direct")


def signature(operation: str, algorithm: str, op: str, kind: str, root: int, blocks: int) -> int:
    """The call of a rank as one number, which must be equal on all ranks. blocks: a number for the block sizes."""
    number = blocks & 0x7FFF
    for part in (root >> 8, root & 255, OPERATIONS.index(operation), ALGORITHMS.index(algorithm), c.OPS.index(op)):
        number = number << 8 | part
    return number << 8 | c.KINDS.index(kind)


def _words(number: int, count: int) -> str:
    """A signature as text."""
    kind, op = c.KINDS[number & 255], c.OPS[number >> 8 & 255]
    algorithm, operation = ALGORITHMS[number >> 16 & 255], OPERATIONS[number >> 24 & 255]
    if operation == "barrier":
        return "barrier"
    detail = {"all_reduce": f", {op}", "reduce_scatter": f", {op}", "broadcast": f" from rank {number >> 32 & 0xFFFF}"}
    size = "" if operation == "all_to_all" else f" of {count}"
    return f"{operation} ({algorithm}){size} {kind}{detail.get(operation, '')}"


def fail(group: NodeGroup, status: int) -> NoReturn:
    """Raise the error for a status of a collective other than GOOD and NOT_YET."""
    if status == c.UNFIT:
        raise InputError(
            "a buffer does not fit the call: its size or dtype differs, or it is no longer writable",
            do="prepare a new call",
        )
    sequence = int(group.record[c.SEQUENCE])
    lines = group.lines(sequence)
    own = _words(int(lines[group.rank][1]), int(lines[group.rank][2]))
    if status == c.MISMATCH:
        raise MismatchError(
            f"collective {sequence} differs between the ranks of a node: {_difference(lines)}",
            likely="a branch, shape or dtype that depends on the rank",
        )
    if status == c.UNMATCHED:
        raise MismatchError(
            f"collective {sequence}, {own}: the block sizes sent and received differ between ranks",
            do="out_counts[q] on rank r must equal counts[r] on rank q",
        )
    if status == c.NO_WEIGHT:
        raise InputError("the sum of the weights of an average is not above 0", do="give some rank a weight above 0")
    waited_for = int(group.record[c.LATE])
    if status == c.ABORTED and (lost := group.gone()) >= 0:
        status, waited_for = c.LOST, lost  # another rank has seen it first
    where = f"rank {group.rank}, collective {sequence}: {own}"
    if status == c.LOST:
        raise RankLostError(
            f"rank {waited_for} is gone: its process ended while rank {group.rank} waited for it",
            where=where,
            likely="it was killed, for lack of memory or by hand, or it crashed",
        )
    absent = [rank for rank, line in enumerate(lines) if line[0] < sequence]
    if status == c.ABORTED:
        what = f"rank {group.gave_up} has given up waiting for the others"
    elif absent:
        what = f"{_ranks(absent)} did not come to it within {group.deadline:g} s"
    else:
        what = f"{_ranks([waited_for])} came to it but did not go on within {group.deadline:g} s"
    raise StallError(
        what,
        where=where,
        likely="a rank that took another branch, waits elsewhere, or is much slower than the others",
        do="raise the deadline of the group if the rank is only slow",
    )


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _difference(lines: np.ndarray) -> str:
    """How the calls of the ranks differ."""
    called = [_words(int(line[1]), int(line[2])) for line in lines]
    for rank, words in enumerate(called):
        if words != called[0]:
            return f"rank 0 called {called[0]}, rank {rank} called {words}"
    blocks = [rank for rank, line in enumerate(lines) if line[1] != lines[0][1]]
    if blocks:
        return f"rank {blocks[0]} gave other sizes of blocks than rank 0 to {called[0]}"
    return f"the ranks gave different symmetric buffers to {called[0]}"
