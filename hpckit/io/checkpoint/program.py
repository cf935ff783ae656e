"""Checkpoints of a user's own program, which goes on from the newest one on any number of ranks."""

from __future__ import annotations

import contextlib
import signal
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mpi4py import MPI
from pydantic import ValidationError

from hpckit.checkpoint_settings import Checkpoint
from hpckit.checkpoint_state import Piece, State, read_into
from hpckit.durations import seconds_of
from hpckit.errors import InputError
from hpckit.field import Field
from hpckit.io.checkpoint.keeper import Keeper
from hpckit.mesh import Mesh
from hpckit.step_edge import StepEdge

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class Checkpoints:
    """Checkpoints of `fields` (with names) in `folder`, and going on from the newest whole one that is there.

    every: elapsed time ("10 min"), a number of steps, or "never" (only where the program stops early); keep: how many
    stay; asynchronous: written beside the computation, from a copy; limit: elapsed time ("11 h 50 min") after which
    `edge` asks the program to stop, as after SIGTERM or SIGUSR1 to any rank. A folder is one program's at a time;
    remove it to begin anew.

    Making one is collective: `step` is then the step to go on from, 0 where there is no checkpoint, the fields hold
    what they held, and `values` what was saved with them. Raises `InputError` for fields without names or with other
    shapes than those saved, and `CorruptDataError` where no checkpoint is whole.
    """

    def __init__(
        self,
        mesh: Mesh | MPI.Intracomm,
        folder: str | Path,
        *fields: Field,
        every: str | int = "10 min",
        keep: int = 2,
        asynchronous: bool = True,
        limit: str | None = None,
    ) -> None:
        names = [field.name for field in fields]
        if not all(names) or len(set(names)) < len(names):
            raise InputError(
                f"checkpoints tell fields by their names, and these are {names}",
                do='give each its own, as in Field.zeros(…, name="T")',
            )
        try:
            settings = Checkpoint(every=every, keep=keep, asynchronous=asynchronous)
            self._limit = None if limit is None else seconds_of(limit)
        except (ValidationError, ValueError) as error:
            told = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            raise InputError(f"checkpoints cannot be made so: {told}") from None
        comm: Any = mesh.comm if isinstance(mesh, Mesh) else mesh
        self._fields, self._began, self._asked = fields, time.monotonic(), False
        self._keeper = Keeper(comm, Path(folder), settings, {}, resume=True)
        self._edge = StepEdge(comm, self._keeper, self._is_asked, dict)
        self.values: dict[str, Any] = {}
        self.step = 0
        self._load()
        with contextlib.suppress(ValueError):  # not the main thread
            for number in STOP_SIGNALS:
                signal.signal(number, self._on_signal)

    def _load(self) -> None:
        restored = self._keeper.restored
        if restored is None:
            return
        for field in self._fields:
            shape = (*field.components, *field.decomposition.global_shape)
            saved = restored.shape(field.name) if field.name in restored.names else None
            if saved != shape:
                found = "is not there" if saved is None else f"has {saved} points there"
                raise InputError(
                    f"{field.name} of {shape} points {found}",
                    where=str(restored.path),
                    do="go on with the program that wrote it, or give another folder",
                )
            read_into(restored, field)
        self.step, self.values = restored.step, dict(restored.values)

    def edge(self, step: int, **values: Any) -> bool:
        """Collective, after every step: saves the fields where it is time to; True where the program is to stop early.

        values: what JSON holds, equal on all ranks, to go on with: a time, a seed. A checkpoint is made where the
        answer is True. Raises `BlowUpError` where a field is not finite.
        """
        return self._edge.come(step, lambda: State([Piece.of_field(field) for field in self._fields], values))

    def close(self) -> None:
        """Collective: let the checkpoint that was begun count."""
        self._keeper.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:  # else the other ranks may never come
            self.close()

    def _is_asked(self) -> bool:
        return self._asked or (self._limit is not None and time.monotonic() - self._began >= self._limit)

    def _on_signal(self, number: int, frame: object) -> None:
        self._asked = True
