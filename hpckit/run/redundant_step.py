"""A step computed twice from the state that a checkpoint would hold: a difference means silent data corruption."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hpckit.comm.agree import first_of_ranks, plain
from hpckit.errors import SilentCorruptionError
from hpckit.io.checkpoint.state import MakeState, Restored, State

if TYPE_CHECKING:
    from mpi4py import MPI

__communicates__ = True  # its frames are not call sites

Result = TypeVar("Result")


class Replay:
    """Computes every `every`-th step twice, at the cost of two copies of the state in memory and of that step's time.

    It also finds a checkpoint that lacks something a step reads: the second step starts from the checkpoint's content.
    """

    def __init__(self, comm: MPI.Intracomm, every: int) -> None:
        self._comm, self._every, self._next = comm, every, every
        self.count = 0  # steps that were computed twice

    def is_due(self, step: int) -> bool:
        """Whether a step up to `step` is due to be computed twice; the same on every rank."""
        return step >= self._next

    def twice(
        self, step: int, advance: Callable[[], Result], state: MakeState, restore: Callable[[Restored], None]
    ) -> Result:
        """Collective: `advance()` up to `step`, twice from the same state.

        Raises `SilentCorruptionError` on every rank if the two results differ in a bit.
        """
        self._next = step - step % self._every + self._every
        before = Kept(step - 1, state())
        advance()
        first = Kept(step, state())
        restore(before)
        result = advance()
        self.count += 1
        second = Kept(step, state())
        own = first.difference(second)
        found = first_of_ranks(self._comm, None if own is None else {**own, "host": socket.gethostname()})
        if found is not None:
            restore(before)
            advance()
            self._refuse(step, *found, Kept(step, state()), (first, second))
        return result

    def _refuse(self, step: int, rank: int, it: dict[str, Any], third: Kept, before: Sequence[Kept]) -> None:
        """Collective: raise with the difference, and with the result that a third computation does not confirm."""
        other = [first_of_ranks(self._comm, each.difference(third)) is None for each in before]
        likely = "every repetition of the step gives another result: the code is not reproducible"
        if any(other):
            likely = f"a fault of a core or of memory of {it['host']} while the {'second' if other[0] else 'first'}"
            likely += " result was computed: a third computation gave the other one"
        raise SilentCorruptionError(
            f"step {step} computed twice from the same state gave {it['name']} {it['first']} and {it['second']}; "
            f"{it['count']} elements of rank {rank} differ",
            where=f"rank {rank} on {it['host']}, step {step}, {it['name']}[{', '.join(map(str, it['element']))}]",
            likely=likely,
            do=f"exclude {it['host']}, and go on from the last checkpoint: hpckit resume DIR",
        )


class Kept:
    """A state in memory: `hpckit.io.checkpoint.state.Restored` for the rank that made it, on its own blocks."""

    def __init__(self, step: int, state: State) -> None:
        self.step = step
        self.values: dict[str, Any] = json.loads(json.dumps(plain(state.values)))
        self.outputs: dict[str, Any] = {}
        self._pieces: dict[str, list[tuple[tuple[int, ...], tuple[int, ...], np.ndarray]]] = {}
        for piece in state.pieces:
            self._pieces.setdefault(piece.name, []).append((piece.shape, piece.start, piece.block.copy()))

    @property
    def names(self) -> list[str]:
        """The arrays that this rank has a block of."""
        return list(self._pieces)

    def block(self, name: str) -> tuple[tuple[int, ...], np.ndarray]:
        """Where this rank's (first) block of an array starts, and the block itself."""
        _, start, block = self._pieces[name][0]
        return start, block

    def shape(self, name: str) -> tuple[int, ...]:
        """The global shape of an array."""
        return self._pieces[name][0][0]

    def dtype(self, name: str) -> np.dtype[Any]:
        """The type of its elements."""
        return self._pieces[name][0][2].dtype

    def read(self, name: str, start: Sequence[int], shape: Sequence[int]) -> np.ndarray:
        """A copy of a box that lies in one of this rank's blocks."""
        for _, first, block in self._pieces[name]:
            offset = [a - b for a, b in zip(start, first, strict=True)]
            if all(a >= 0 and a + n <= most for a, n, most in zip(offset, shape, block.shape, strict=True)):
                return block[tuple(slice(a, a + n) for a, n in zip(offset, shape, strict=True))].copy()
        raise KeyError(f"no block of {name} holds the box of {tuple(shape)} at {tuple(start)}")

    def difference(self, other: Kept) -> dict[str, Any] | None:
        """The first element whose bits are others: array, place in it, both values, and how many there are."""
        found: dict[str, Any] | None = None
        count = 0
        pairs = [
            (name, *each) for name, own in self._pieces.items() for each in zip(own, other._pieces[name], strict=True)
        ]
        for name, (_, start, block), (_, _, theirs) in pairs:
            places = np.argwhere(_bits(block) != _bits(theirs))
            count += len(places)
            if len(places) and found is None:
                place = tuple(map(int, places[0]))
                found = {
                    "name": name,
                    "element": [a + b for a, b in zip(place, start, strict=True)],
                    "first": repr(block[place].item()),
                    "second": repr(theirs[place].item()),
                }
        return None if found is None else {**found, "count": count}


def _bits(block: np.ndarray) -> np.ndarray:
    """The elements as integers, equal if and only if their bits are: -0.0 differs from 0.0, NaN equals itself."""
    whole = np.ascontiguousarray(block)
    return whole.view(f"u{whole.itemsize}") if whole.itemsize in (1, 2, 4, 8) else whole
