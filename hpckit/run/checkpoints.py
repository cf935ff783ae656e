"""Checkpoints of a user's own program, which restarts from the newest one on any number of ranks."""

from __future__ import annotations

import contextlib
import json
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from pydantic import ValidationError

from hpckit.comm.agree import ClosedTogether, together
from hpckit.comm.mesh import Mesh
from hpckit.errors import InputError
from hpckit.grid.field import Field
from hpckit.io.checkpoint import manifest
from hpckit.io.checkpoint.manager import Keeper
from hpckit.io.checkpoint.state import Piece, Restored, State, read_into
from hpckit.io.settings import Checkpoint, seconds_of
from hpckit.particles.swarm import Swarm
from hpckit.plan.blocks import block
from hpckit.plan.inputs.numbers import count
from hpckit.run.context import Run
from hpckit.run.step_boundary import StepEdge

__communicates__ = True  # its frames are not call sites

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
NUMBERS = "biufc"  # kinds of dtypes that files have; others are saved as their bytes


class Checkpoints(ClosedTogether):
    """Checkpoints of fields and swarms in a folder, and restart from its newest intact one.

    fields: saved under their names; name swarms and unnamed fields here: `Checkpoints(mesh, dir, T, flock=swarm)`.
    every: elapsed time ("10 min"), a number of steps, or "never" (only at an early stop); keep: number of generations
    kept; asynchronous: write from a copy while the computation continues; limit: elapsed time ("11 h 50 min") after
    which `edge` asks the program to stop, as after SIGTERM or SIGUSR1 to any rank; `hpckit run` then ends with exit
    code 75. One program at a time may use a folder; to start afresh, remove the folder. folder: a path, or a `hp.Run`,
    whose metrics and output then continue from the checkpoint, too.

    The constructor is collective. Afterwards `step` is the step to continue from (0 without a checkpoint), fields and
    swarms hold their saved values, and `values` what was saved with them; a warning names newer checkpoints that are
    damaged. Raises `InputError` for fields without names or with other shapes than the saved ones, `CorruptDataError`
    if no checkpoint is intact, and `SetupError` for a folder that cannot be written.
    """

    def __init__(
        self,
        mesh: Mesh | MPI.Intracomm,
        folder: str | Path | Run,
        *fields: Field,
        every: str | int = "10 min",
        keep: int = 2,
        asynchronous: bool = True,
        limit: str | None = None,
        **named: Field | Swarm,
    ) -> None:
        self._parts = _by_name(fields, named)
        try:
            settings = Checkpoint(every=every, keep=keep, asynchronous=asynchronous)
            self._limit = None if limit is None else seconds_of(str(limit))
        except (ValidationError, ValueError) as error:
            told = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            raise InputError(f"invalid option of Checkpoints: {told}") from None
        comm: Any = mesh.comm if isinstance(mesh, Mesh) else mesh
        if not isinstance(comm, MPI.Intracomm):
            raise InputError(f"Checkpoints needs a mesh or a communicator, not {mesh!r}")
        self._run = folder if isinstance(folder, Run) else None
        root = self._run.directory.checkpoints if self._run else Path(str(folder))
        together(comm, root, lambda: _require_writable(root) if comm.rank == 0 else 0)
        self._root, self._began, self._asked, self._is_known = root, time.monotonic(), False, False
        self._keeper = Keeper(comm, root, settings, {}, resume=True)
        if self._keeper.notes and comm.rank == 0:
            passed = "; ".join(self._keeper.notes)
            found = self._keeper.restored
            after = f"going on from step {found.step}" if found else "no older one is intact"
            warnings.warn(f"checkpoints in {root} that are not used: {passed}; {after}", stacklevel=2)
        self._edge = StepEdge(comm, self._keeper, self._is_asked, self._run.told_outputs if self._run else dict)
        if self._run is not None:
            self._run.adopt(self._keeper)
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
        for name, part in self._parts.items():
            if isinstance(part, Swarm):
                restore(part, restored, name)
                continue
            shape = (*part.components, *part.decomposition.global_shape)
            saved = restored.shape(name) if name in restored.names else None
            if saved != shape:
                found = "is not there" if saved is None else f"has {saved} points there"
                raise InputError(
                    f"{name} of {shape} points {found}",
                    where=str(restored.path),
                    do="go on with the program that wrote it, or give another folder",
                )
            read_into(restored, part, name)
        self.step, self.values = restored.step, dict(restored.values)

    def edge(self, step: int, **values: Any) -> bool:
        """Collective, after every step: save everything when a checkpoint is due; True if the program must stop early.

        values: JSON values, NumPy numbers and arrays (as lists), equal on all ranks, needed to continue: a time, a
        seed. A return of True has made a checkpoint. Raises `BlowUpError` if a field is not finite, and `InputError`
        for other values (at the first call) and for a step that is not a count.
        """
        if not self._is_known:
            _plain(values)
            self._is_known = True
        step = count(step, "the step")
        stops = self._edge.come(step, lambda: State(list(self._pieces()), _plain(values)))
        if stops:
            stopped_at[self._root] = step
            if self._run is not None:
                self._run.is_stopped = True
        return stops

    def _pieces(self) -> Iterator[Piece]:
        for name, part in self._parts.items():
            yield from pieces_of(part, name) if isinstance(part, Swarm) else [Piece.of_field(part, name)]

    def close(self) -> None:
        """Collective: complete the checkpoint that is being written."""
        self._keeper.close()

    def _is_asked(self) -> bool:
        asked = self._asked or (self._limit is not None and time.monotonic() - self._began >= self._limit)
        return asked or (self._run is not None and self._run.stops.asked())

    def _on_signal(self, number: int, frame: object) -> None:
        self._asked = True


stopped_at: dict[Path, int] = {}  # of this process's checkpoints: where `edge` asked to stop; for the front end


def _require_writable(folder: Path) -> int:
    """Make the folder and a temporary file in it, to fail now: the first checkpoint may be due only after hours."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        return 0


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """A copy of the values, as JSON returns them, that later steps do not change. Raises `InputError`."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
            return value.tolist()
        raise TypeError(f"{type(value).__name__} is not a JSON type")

    try:
        return json.loads(json.dumps(values, default=plain))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"values of a checkpoint cannot be saved: {error}",
            do="give numbers, texts, lists and dicts; large arrays are fields",
        ) from None


def _by_name(fields: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Field | Swarm]:
    """The fields and swarms to save, by name; raises `InputError` for one without a name and for other objects."""
    for key, part in [*enumerate(fields), *named.items()]:
        if isinstance(part, Swarm) and isinstance(key, int):
            raise InputError("a swarm has no name", do='name it, as in Checkpoints(mesh, "saved", flock=swarm)')
        if not isinstance(part, Field | Swarm):
            what = "what is to be saved" if isinstance(key, int) else f"{key}, which is not an option,"
            raise InputError(
                f"{what} is neither Field nor Swarm, but {type(part).__name__}",
                do="plain numbers go to edge(step, name=value); options are every, keep, asynchronous and limit",
            )
    names = [field.name for field in fields] + list(named)
    if not all(names) or len(set(names)) < len(names):
        raise InputError(
            f"fields need different names in a checkpoint; here they are {names}",
            do='name each field, as in Field.zeros(…, name="T"), or Checkpoints(mesh, "saved", T=field)',
        )
    parts = dict(zip(names, (*fields, *named.values()), strict=True))
    inner = [field for part in named.values() if isinstance(part, Swarm) for field in part.data.dtype.names or ()]
    for name in (*names, *inner):
        if not all(manifest.NAME.fullmatch(each) for each in name.split("/")) or name.startswith("-"):
            raise InputError(f"{name!r} is not a valid name", do="take letters, digits and _, at most 100")
    return parts


def pieces_of(swarm: Swarm, name: str) -> list[Piece]:
    """Collective: this rank's part of all particles, as arrays `name`/field; rank 0 adds `-box` and `-counts`."""
    counts = swarm.counts()
    first, total = int(counts[: swarm.mesh.rank].sum()), int(counts.sum())
    pieces = []
    for field in _names(swarm.data):
        values = _numbers(swarm.data[field])
        rest = values.shape[1:]
        pieces.append(Piece(f"{name}/{field}", (total, *rest), (first, *(0 for _ in rest)), values))
    if swarm.mesh.rank == 0:
        box = np.stack([swarm.lower, swarm.upper])
        pieces += [Piece(f"{name}/{key}", a.shape, (0,) * a.ndim, a) for key, a in (("-box", box), ("-counts", counts))]
    return pieces


def restore(swarm: Swarm, restored: Restored, name: str) -> None:
    """Collective: replace the swarm's particles by those of a checkpoint, each on its home rank.

    On as many ranks as wrote the checkpoint, every rank has its particles in their old order. Raises `InputError` if
    the saved swarm has other fields or another box.
    """
    where = str(getattr(restored, "path", ""))
    problem = _difference(swarm, restored, name)
    if problem:
        do = "go on with the program that wrote it, or give another folder"
        raise InputError(f"the swarm {name} {problem}", where=where, do=do)
    counts = restored.read(f"{name}/-counts", (0,), restored.shape(f"{name}/-counts"))
    size, rank = swarm.mesh.size, swarm.mesh.rank
    total = int(counts.sum())
    first, own = (int(counts[:rank].sum()), int(counts[rank])) if len(counts) == size else block(total, size, rank)
    data = np.zeros(own, swarm.data.dtype)
    for field in _names(data):
        rest = restored.shape(f"{name}/{field}")[1:]
        values = restored.read(f"{name}/{field}", (first, *(0 for _ in rest)), (own, *rest))
        data[field] = values.view(data.dtype[field].base).reshape(data[field].shape)
    swarm.data = data
    swarm.migrate()


def _difference(swarm: Swarm, restored: Restored, name: str) -> str:
    """How the swarm in the checkpoint differs, in words; "" if it does not."""
    if f"{name}/-box" not in restored.names:
        return "is not there"
    fields = _names(swarm.data)
    saved = [key.rpartition("/")[2] for key in restored.names if key.startswith(f"{name}/")]
    found = [key for key in saved if not key.startswith("-")]
    if sorted(found) != sorted(fields):
        return f"has the fields {', '.join(sorted(found))} there, and {', '.join(sorted(fields))} here"
    for field in fields:
        values, key = _numbers(swarm.data[field][:0]), f"{name}/{field}"
        if (restored.dtype(key), restored.shape(key)[1:]) != (values.dtype, values.shape[1:]):
            return f"has another {field} there: {restored.dtype(key)} {list(restored.shape(key)[1:])} a particle"
    box = np.stack([swarm.lower, swarm.upper])
    if restored.shape(f"{name}/-box") != box.shape:
        return f"has {restored.shape(f'{name}/-box')[1]} dims there, and {swarm.dims} here"
    low, high = there = restored.read(f"{name}/-box", (0, 0), box.shape)
    return "" if np.array_equal(there, box) else f"has the box from {low.tolist()} to {high.tolist()} there"


def _names(data: npt.NDArray[Any]) -> tuple[str, ...]:
    return data.dtype.names or ()


def _numbers(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values, or for dtypes that files cannot hold (texts, times, records) their bytes along one more dim."""
    if values.dtype.kind in NUMBERS:
        return values
    packed = np.ascontiguousarray(values)
    return packed.view(np.uint8).reshape(*values.shape, values.dtype.itemsize)
