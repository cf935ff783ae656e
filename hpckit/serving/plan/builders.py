"""Steps of a plan while they are collected, a computation and a message at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.plan.protocol import NOTHING, Ends, Ints, Step, Work


class WorkBuilder:
    """Computations of a step while they are collected."""

    def __init__(self) -> None:
        self._all: list[tuple[int, float, list, list, str]] = []

    def add(self, rank: int, seconds: float, reads: list, writes: list, name: str) -> None:
        """A computation of a rank; reads, writes: cells, and what must be in them before and is in them then."""
        self._all.append((rank, seconds, reads, writes, name))

    def made(self) -> Work | None:
        """All of them, None for none."""
        if not self._all:
            return None
        ranks, seconds, reads, writes, names = zip(*self._all, strict=True)
        read, need = _tables(reads)
        write, make = _tables(writes)
        return Work(np.array(ranks), np.array(seconds, np.float64), read, need, write, make, list(names))


class MessageBuilder:
    """Messages of a step while they are collected."""

    def __init__(self) -> None:
        self._pairs: list[tuple[int, int]] = []
        self._from: list[int] = []
        self._into: list[int] = []
        self._starts = [0]
        self._amounts: list[float] = []
        self._texts: list[str] = []

    @property
    def empty(self) -> bool:
        """Whether there is no message."""
        return not self._pairs

    def add(self, sender: int, receiver: int, cells: list[int], into: list[int], nbytes: float, text: str) -> None:
        """A message of some cells of the sender, into as many of the receiver; text: what it is."""
        self._texts.append(text)
        self._pairs.append((sender, receiver))
        self._from += cells
        self._into += into
        self._starts.append(len(self._from))
        self._amounts.append(nbytes)

    def step(self, name: str, place: Any = "memory", work: Work | None = None) -> Step:
        """The step of these messages and computations."""
        sends, receives = self._ends()
        texts = self._texts
        return Step(sends, receives, itemsize=1.0, place=place, work=work, name=name, texts=lambda: texts)

    def _ends(self) -> tuple[Ends, Ends]:
        sender, receiver = np.array(self._pairs, np.int64).reshape(-1, 2).T
        first, last = np.array(self._starts[:-1], np.int64), np.array(self._starts[1:], np.int64)
        amount, out, into = np.array(self._amounts), np.array(self._from, np.int64), np.array(self._into, np.int64)
        return (
            Ends(receiver, first, last, rank=sender, amount=amount, cells=out),
            Ends(sender, first, last, rank=receiver, amount=amount, cells=into),
        )


def _tables(rows: tuple[list, ...]) -> tuple[Ints, Ints]:
    """Cells and contents of some computations as tables, filled up with NOTHING."""
    width = max(map(len, rows))
    cells, contents = (np.full((len(rows), width), NOTHING) for _ in range(2))
    for at, row in enumerate(rows):
        if row:
            cells[at, : len(row)], contents[at, : len(row)] = zip(*row, strict=True)
    return np.maximum(cells, 0), contents
