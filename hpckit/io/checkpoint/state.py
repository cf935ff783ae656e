"""The state of a run as checkpoints hold it: blocks of named global arrays, and values, for any split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hpckit.errors import InputError

if TYPE_CHECKING:
    from hpckit.grid.field import Field


@dataclass(frozen=True)
class Piece:
    """One rank's part of the global array `name`: `block` lies at `start` in the array of the global `shape`.

    block: host memory, any strides, dtype of numbers; name: parts of letters, digits, `_`, `-` and `.`, joined by `/`.
    All pieces of an array, over all ranks, tile it: only one rank gives replicated data.
    """

    name: str
    shape: tuple[int, ...]
    start: tuple[int, ...]
    block: np.ndarray

    def __post_init__(self) -> None:
        ends = [first + n for first, n in zip(self.start, self.block.shape, strict=False)]
        fits = len(self.shape) == len(self.start) == self.block.ndim
        if not fits or any(end > n for end, n in zip(ends, self.shape, strict=True)) or min(self.start, default=0) < 0:
            raise InputError(
                f"the piece of {self.name} has shape {self.block.shape} at {self.start}, which is not in {self.shape}"
            )

    @classmethod
    def of_field(cls, field: Field, name: str = "") -> Piece:
        """The owned cells of a field, leading components whole; from a GPU they are copied."""
        leading, where = field.components, field.decomposition
        start, rank = (0,) * len(leading), field.mesh.rank
        return cls(name or field.name, (*leading, *where.global_shape), (*start, *where.start(rank)), field.to_host())


@dataclass(frozen=True)
class State:
    """All that a run needs to continue with the same bits: the pieces of this rank, and JSON values.

    Values are the same on every rank (those of rank 0 are kept): step, time, states of thermostats or of random
    numbers. Neither may depend on the number of ranks.
    """

    pieces: Sequence[Piece]
    values: dict[str, Any] = field(default_factory=dict)


MakeState = Callable[[], State]


class Restored(Protocol):
    """A saved state as each rank reads it: any box of any array, whichever ranks wrote it."""

    @property
    def step(self) -> int:
        """The step that it was saved after."""

    @property
    def values(self) -> dict[str, Any]:
        """The values of the state."""

    @property
    def outputs(self) -> dict[str, Any]:
        """The extents of output files, by name."""

    @property
    def names(self) -> list[str]:
        """The arrays that it has."""

    def shape(self, name: str) -> tuple[int, ...]:
        """The global shape of an array."""

    def dtype(self, name: str) -> np.dtype[Any]:
        """The type of its elements."""

    def read(self, name: str, start: Sequence[int], shape: Sequence[int]) -> np.ndarray:
        """The box of `shape` at `start` of an array; every byte is checked against its hash.

        Raises `CorruptDataError` if a file has changed since the generation was chosen.
        """


def read_into(restored: Restored, field: Field, name: str = "") -> None:
    """Set the owned cells of a field, wherever they live, from the array of its name."""
    leading, where, rank = field.components, field.decomposition, field.mesh.rank
    start = (*(0 for _ in leading), *where.start(rank))
    field.set_from_host(restored.read(name or field.name, start, (*leading, *where.owned(rank))))
