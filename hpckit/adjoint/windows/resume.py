"""A gradient that goes on where it was killed: the walk backward through a window, in hpckit's own checkpoints."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError

from hpckit.adjoint.models import TracedModel
from hpckit.adjoint.windows.pool import Pool
from hpckit.comm.agree import max_of_ranks
from hpckit.errors import InputError
from hpckit.grid.field import Field
from hpckit.io.checkpoint.manager import Keeper
from hpckit.io.checkpoint.state import Piece, Restored, State, read_into
from hpckit.io.settings import Checkpoint


class WalkPlace(NamedTuple):
    """How far a walk has come: its moves that are done, of the schedule with `kept` states; the costs so far."""

    moves: int
    kept: int
    costs: dict[int, Any]


class Walks:
    """The checkpoints of a window's gradients, in a folder of their own. Collective.

    every: a time span or a number of moves (steps forward or backward). A gradient goes on from the newest intact
    checkpoint if that is of the same window and the same arguments, bit by bit; else it begins anew.
    """

    def __init__(self, comm: Any, folder: str | Path, every: str | int) -> None:
        try:
            settings = Checkpoint(every=every, keep=1, asynchronous=False)
        except ValidationError as error:
            raise InputError(f"checkpoints every {every!r}: {error.errors()[0]['msg']}") from None
        root = Path(folder)
        if comm.rank == 0:
            root.mkdir(parents=True, exist_ok=True)
        self._comm = comm
        self._keeper = Keeper(comm, root, settings, {}, resume=True)
        self._restored: Restored | None = self._keeper.restored

    def place(self, pool: Pool, window: str) -> WalkPlace | None:
        """Where the walk goes on, with the pool as it was there; None if it has to begin."""
        restored, self._restored = self._restored, None
        if restored is None or restored.values["window"] != window:
            return None
        given = [*_named("state/0", pool.states[0]), *_named("parameter", pool.parameters)]
        numbers = [_written(value) for value in pool.parameters if not isinstance(value, Field)]
        if numbers != restored.values["numbers"]:
            return None
        differs = np.zeros(1)
        for name, field in given:
            saved = field.like()
            read_into(restored, saved, name)
            differs[0] += not np.array_equal(saved.to_host(), field.to_host())
        max_of_ranks(self._comm, differs)
        if differs[0]:
            return None
        values = restored.values
        pool.hold(values["states"], values["held"])
        for name, field in self._fields(pool):
            read_into(restored, field, name)
        slopes = iter(values["slopes"])
        pool.slopes = [each if isinstance(each, Field) else _read(next(slopes)) for each in pool.slopes]
        costs = {int(k): _read(cost) for k, cost in values["costs"].items()}
        return WalkPlace(values["moves"], values["kept"], costs)

    def come(self, pool: Pool, window: str, place: WalkPlace) -> None:
        """After a move: save everything if a checkpoint is due."""
        due = np.array([float(self._keeper.is_due_after(place.moves) or self._keeper.is_due_now())])
        max_of_ranks(self._comm, due)
        if not due[0]:
            return
        pool.settle()
        values = {
            "window": window,
            "moves": place.moves,
            "kept": place.kept,
            "costs": {str(k): _written(cost) for k, cost in place.costs.items()},
            "states": sorted(pool.states),
            "held": sorted(pool.held),
            "numbers": [_written(value) for value in pool.parameters if not isinstance(value, Field)],
            "slopes": [_written(value) for value in pool.slopes if not isinstance(value, Field)],
        }
        named = [*self._fields(pool), *_named("parameter", pool.parameters)]
        pieces = [Piece.of_field(field, name) for name, field in named]
        self._keeper.save(place.moves, State(pieces, values), {}, now=True)

    @staticmethod
    def _fields(pool: Pool) -> list[tuple[str, Field]]:
        """What changes on the way: states, sensitivities, and the slopes in the parameters."""
        states = [pair for k, state in sorted(pool.states.items()) for pair in _named(f"state/{k}", state)]
        return [*states, *_named("now", pool.now), *_named("slope", pool.slopes)]


def name_of(graph: Any, shape: Sequence[int], steps: int, at: Sequence[int], cost: TracedModel) -> str:
    """What tells windows apart: a hash of the step's graph and the grid, of what the cost's function does, and of the
    times.
    """
    code = getattr(cost.function, "__code__", None)
    told = cost.name, code and _code(code)
    said = f"{graph}\n{[node.value for node in graph.inputs]}\n{graph.grid}\n{shape}\n{told}\n{steps}\n{list(at)}"
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def _code(code: CodeType) -> tuple:
    """What a function does, wherever it stands in its file."""
    constants = [_code(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return code.co_code.hex(), code.co_names, constants


def _named(kind: str, values: Sequence[Any]) -> list[tuple[str, Field]]:
    return [(f"{kind}/{n}", field) for n, field in enumerate(values) if isinstance(field, Field)]


def _written(value: Any) -> str:
    """A number or a vector, to the bit."""
    return " ".join(float(each).hex() for each in np.atleast_1d(value))


def _read(words: str) -> Any:
    found = [float.fromhex(each) for each in words.split()]
    return found[0] if len(found) == 1 else np.array(found)
