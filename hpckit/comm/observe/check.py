"""The comparison of an operation over its ranks before it runs: operation, dtype, count and root must agree.

The first rank of the communicator gathers the calls of the others and answers each. All messages are polled, so that
the alarm of the watcher reaches a rank that waits for a message that never comes; the rank then raises.
"""

from __future__ import annotations

import json
import mmap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from mpi4py import MPI

from hpckit.comm.observe.diagnosis import Call, ranks_text
from hpckit.comm.observe.table import ALARM, alarmed
from hpckit.comm.progress import progress
from hpckit.errors import MismatchError, StallError

__communicates__ = True  # its frames are not call sites

SAID, ANSWERED = 512, 2048  # bytes of the messages
SPIN, LONGEST_SLEEP = 2e-4, 2e-3  # s of polling at full speed, and the longest of the growing sleeps after that


@dataclass(slots=True)
class Comparison:
    """A comparison under way: the first of the members gathers `said`, the others wait for the answer."""

    members: Sequence[int]
    tag: int
    mine: np.ndarray
    said: list[np.ndarray]
    requests: list[MPI.Request]
    answered: bool = False
    over: bool = False
    answer: str = ""


class Checker:
    """Compares over a communicator of its own, which the watch frees."""

    def __init__(self, comm: MPI.Intracomm, table: mmap.mmap, folder: Path) -> None:
        self._comm = comm.Dup()
        self._table = table
        self._alarm = folder / ALARM
        self._tags = min(comm.Get_attr(MPI.TAG_UB) or 32767, 2**30) // 2

    def start(self, members: Sequence[int], key: str, number: int, told: Mapping[str, Any]) -> Comparison:
        """Send the call that this rank is about to make; never waits. key: of the communicator; number: of the call."""
        tag = 2 * ((crc32(key.encode()) + number) % self._tags)
        mine = _message(_shortened(told), SAID)
        comm, root = self._comm, members[0]
        if comm.rank == root:
            said = [np.empty(SAID, np.uint8) for _ in members[1:]]
            requests = [comm.Irecv(buffer, rank, tag) for buffer, rank in zip(said, members[1:], strict=True)]
        else:
            said = [np.empty(ANSWERED, np.uint8)]
            requests = [comm.Irecv(said[0], root, tag + 1), comm.Isend(mine, root, tag)]
        return Comparison(members, tag, mine, said, requests)

    def test(self, check: Comparison) -> bool:
        """Whether the calls of all ranks have come and are the same; never waits. Raises `MismatchError` on each of
        them if the calls differ, `StallError` if the watcher has found that a rank never comes.
        """
        if not check.over:
            if not MPI.Request.Testall(check.requests):
                if alarmed(self._table):
                    raise StallError(
                        self._alarm.read_text(encoding="utf-8"),
                        likely="a rank that took another branch, raised, or ended early",
                        do="look at the lines named",
                    )
                return False
            if self._comm.rank == check.members[0] and not check.answered:
                check.answer = _difference(check.members, [_text(said) for said in (check.mine, *check.said)])
                message = _message(check.answer, ANSWERED)
                check.answered = True
                check.requests = [self._comm.Isend(message, rank, check.tag + 1) for rank in check.members[1:]]
                return self.test(check)
            if not check.answered:
                check.answer = _text(check.said[0])
            check.over = True
        if check.answer:
            raise MismatchError(
                f"ranks called different operations on one axis, {check.answer}",
                likely="a branch, a loop count or a shape that depends on the rank",
                do="let all ranks of the axis call the same operations in the same order, with as many elements",
            )
        return True

    def finish(self, check: Comparison) -> None:
        """Wait for the calls of all ranks, while what is under way goes on. Raises as `test` does."""
        begin, others = time.perf_counter(), progress()
        while not self.test(check):
            waited = time.perf_counter() - begin
            if not others.advance() and waited > SPIN:
                time.sleep(min(waited / 16, LONGEST_SLEEP))

    def close(self) -> None:
        """Free the communicator. Collective."""
        self._comm.Free()


def _difference(members: Sequence[int], texts: Sequence[str]) -> str:
    """The calls of the ranks and their places; "" if all calls are the same."""
    if len(set(texts)) == 1:
        return ""
    calls = [Call(group="", members=(), inside=True, **json.loads(text)) for text in texts]
    agreed = next((call for call in calls if call.count >= 0), calls[0])
    if all(call.same(agreed) for call in calls):
        return ""
    places: dict[str, list[int]] = {}
    for rank, call in zip(members, calls, strict=True):
        places.setdefault(f"{call.what()} at {call.where()}", []).append(rank)
    return f"number {calls[0].number}: " + "; ".join(f"{ranks_text(who)} {what}" for what, who in places.items())


def _shortened(told: Mapping[str, Any]) -> str:
    """JSON that fits a message: the end of the file's path, the beginnings of names."""
    short = {name: value[-80:] if isinstance(value, str) else value for name, value in told.items()}
    return json.dumps(short, ensure_ascii=True)[:SAID]


def _message(text: str, size: int) -> np.ndarray:
    buffer = np.zeros(size, np.uint8)
    raw = np.frombuffer(text.encode()[: size - 1], np.uint8)
    buffer[: len(raw)] = raw
    return buffer


def _text(message: np.ndarray) -> str:
    return message.tobytes().split(b"\0", 1)[0].decode(errors="replace")
