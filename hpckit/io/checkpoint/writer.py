"""Writing generations from all ranks: at once, or beside the computation from a copy of the state."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.comm.agree import gather_json, together
from hpckit.errors import HpckitError, InputError, SetupError, write_error
from hpckit.io import disk
from hpckit.io.checkpoint import manifest as mf
from hpckit.io.checkpoint.hashes import BEST, PIECE
from hpckit.io.checkpoint.shard import shard_name, write_shard
from hpckit.io.checkpoint.state import Piece, State
from hpckit.io.checkpoint.stream import PAGE
from hpckit.io.files import utc_now
from hpckit.kernels.aligned import pages

# Bytes beyond the values, at most: of a rank's file and its entry in the manifest, of each piece, for each hash.
ROOM_RANK, ROOM_PIECE, ROOM_HASH = 32 << 10, 8 << 10, 80
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass
class _Pending:
    """A generation that is being written."""

    number: int
    head: dict[str, Any]
    need: int  # bytes that it takes, of all ranks
    begun: float
    entry: dict[str, Any] = field(default_factory=dict)
    error: BaseException | None = None
    thread: threading.Thread | None = None


class Writer:
    """Writes generations below `root`; all methods are collective over `comm`.

    `save` writes and commits. `start` copies the state (one more copy of it in memory from the first time on) and
    writes it in a thread; `finish` waits for it and commits; `is_written` tells whether it would have to wait. `keep`
    generations stay, older ones are removed in a thread of rank 0.

    Raises `SetupError` on all ranks if a generation cannot be written, with the needed and the free bytes; then nothing
    of it stays, and older ones are intact. `count`, `nbytes`, `seconds` (from start to commit) and `stall` (seconds in
    calls of this class) sum up the work so far.
    """

    def __init__(self, comm: Any, root: Path, keep: int = 2, facts: Mapping[str, Any] | None = None) -> None:
        self.comm, self.root, self.keep = comm, root, keep
        self.facts = dict(facts or {})  # additional content of the manifests
        self.count, self.nbytes, self.seconds, self.stall = 0, 0, 0.0, 0.0
        self.latest: int | None = None  # the last generation committed
        self._staging = pages(0)
        self._buffers: list[np.ndarray] = []
        self._pending: _Pending | None = None
        self._pruner: threading.Thread | None = None

    def save(self, step: int, state: State, outputs: Mapping[str, Any] | None = None) -> int:
        """Write a generation and commit it; returns its number."""
        self.finish()
        begin = time.perf_counter()
        pending = self._begin(step, state, outputs)
        self._write(pending, list(state.pieces))
        self._commit(pending)
        self.stall += time.perf_counter() - begin
        return pending.number

    def start(self, step: int, state: State, outputs: Mapping[str, Any] | None = None) -> None:
        """Copy the state and write it in a thread."""
        self.finish()
        begin = time.perf_counter()
        pending = self._begin(step, state, outputs)
        pieces = self._copied(state.pieces)
        pending.thread = threading.Thread(target=self._write, args=(pending, pieces), daemon=True)
        pending.thread.start()
        self._pending = pending
        self.stall += time.perf_counter() - begin

    @property
    def is_pending(self) -> bool:
        """Whether a generation was started and is not committed; the same on all ranks."""
        return self._pending is not None

    @property
    def is_written(self) -> bool:
        """Whether this rank's part of the pending generation is on disk or has failed: `finish` need not wait."""
        return self._pending is None or self._pending.thread is None or not self._pending.thread.is_alive()

    def finish(self) -> int | None:
        """Commit the pending generation, after its writing has ended; returns its number, None without one."""
        if self._pending is None:
            return None
        begin = time.perf_counter()
        pending, self._pending = self._pending, None
        assert pending.thread is not None
        pending.thread.join()
        self._commit(pending)
        self.stall += time.perf_counter() - begin
        return pending.number

    def close(self) -> None:
        """Commit the pending generation, and wait for the removal of old generations."""
        self.finish()
        if self._pruner is not None:
            self._pruner.join()

    def summary(self) -> dict[str, Any]:
        """What was written so far, for `summary.json`."""
        return {
            "count": self.count,
            "bytes": self.nbytes,
            "seconds": self.seconds,
            "stall_seconds": self.stall,
            "latest": None if self.latest is None else f"g{self.latest:06d}",
        }

    def _begin(self, step: int, state: State, outputs: Mapping[str, Any] | None) -> _Pending:
        """Make the folder of a new generation if there is room for it."""
        begun = time.perf_counter()
        need = together(self.comm, self.root, lambda: _checked(state))
        number = together(self.comm, self.root, lambda: self._make_folder(need) if self.comm.rank == 0 else 0)
        head = {
            "format": mf.FORMAT,
            "schema": mf.SCHEMA,
            "generation": number,
            "step": step,
            "written": utc_now(),
            "ranks": self.comm.size,
            "hash": BEST,
            "piece_bytes": PIECE,
            **self.facts,
            "values": state.values,
            "outputs": dict(outputs or {}),
        }
        return _Pending(number, head, need, begun)

    def _make_folder(self, need: int) -> int:
        """Rank 0: make the folder of a new generation, and return its number."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = mf.next_number(self.root)
        if _free(self.root) < need and self._pruner is not None:
            self._pruner.join()
        free = _free(self.root)
        if free < need:
            raise _no_room(self.root, need, free, "the disk is full")
        try:
            disk.make_directory(mf.folder(self.root, number), "generation.mkdir")
        except OSError as error:
            raise self._failure(need, error) from error
        return number

    def _copied(self, pieces: Sequence[Piece]) -> list[Piece]:
        """The pieces in memory of our own, each on whole pages."""
        starts = np.cumsum([0, *(-(-piece.block.nbytes // PAGE) * PAGE for piece in pieces)])
        if len(self._staging) < starts[-1]:
            self._staging = pages(int(starts[-1]))
        copies = []
        for piece, start in zip(pieces, starts, strict=False):
            room = self._staging[start : start + piece.block.nbytes]
            block = room.view(piece.block.dtype).reshape(piece.block.shape)
            np.copyto(block, piece.block)
            copies.append(replace(piece, block=block))
        return copies

    def _write(self, pending: _Pending, pieces: list[Piece]) -> None:
        """Write this rank's shard, in a thread or not; an error is kept for `_commit`."""
        place = mf.folder(self.root, pending.number)
        facts = {"format": mf.FORMAT, "generation": pending.number, "step": pending.head["step"]}
        try:
            pending.entry = write_shard(place / shard_name(self.comm.rank), pieces, facts, buffers=self._buffers)
            pending.entry["dtypes"] = {piece.name: piece.block.dtype.str for piece in pieces}
            pending.entry["shapes"] = {piece.name: list(piece.shape) for piece in pieces}
        except BaseException as error:
            pending.error = error

    def _commit(self, pending: _Pending) -> None:
        """Commit the generation or remove it; raises the error of any rank."""
        place = mf.folder(self.root, pending.number)
        nbytes = pending.entry.get("size", 0)
        try:
            total = together(self.comm, place, lambda: self._told(pending, nbytes))
            entries = gather_json(self.comm, pending.entry)
            together(self.comm, place, lambda: self._publish(pending, entries))
        except HpckitError:
            if self.comm.rank == 0:
                with contextlib.suppress(OSError):
                    mf.remove(self.root, pending.number)
            raise
        self.count, self.nbytes = self.count + 1, self.nbytes + total
        self.seconds += time.perf_counter() - pending.begun
        self.latest = pending.number

    def _told(self, pending: _Pending, nbytes: int) -> int:
        if isinstance(pending.error, OSError):
            raise self._failure(pending.need, pending.error)
        if pending.error is not None:
            raise pending.error
        return nbytes

    def _failure(self, need: int, error: OSError) -> HpckitError:
        """The error for the user, with advice."""
        problem = write_error(error, Path(error.filename or self.root))
        if error.errno in FULL:
            advice = problem.do if error.errno == errno.EFBIG else ""
            return _no_room(self.root, need, _free(self.root), problem.likely, advice)
        return problem

    def _publish(self, pending: _Pending, entries: list[dict[str, Any]] | None) -> int:
        """Rank 0: check that the pieces are whole arrays, and publish."""
        if entries is None:
            return 0
        arrays = _arrays(entries)
        seconds = time.perf_counter() - pending.begun
        try:
            mf.publish(self.root, {**pending.head, "seconds": seconds, "arrays": arrays, "shards": entries})
        except OSError as error:
            raise self._failure(pending.need, error) from error
        self._prune_in_thread(pending.number)
        return 0

    def _prune_in_thread(self, number: int) -> None:
        """Unlinking files of GiB takes as long as a good part of writing them."""
        if self._pruner is not None:
            self._pruner.join()
        self._pruner = threading.Thread(target=_prune, args=(self.root, self.keep, number), daemon=True)
        self._pruner.start()


def _checked(state: State) -> int:
    """The bytes that this rank's pieces take on disk, after a check of their names and dtypes."""
    for piece in state.pieces:
        if not all(mf.NAME.fullmatch(part) for part in piece.name.split("/")):
            raise InputError(
                f"{piece.name!r} is not a valid array name", do="letters, digits, _ - . in parts joined by /"
            )
        if piece.block.dtype.hasobject or not piece.block.dtype.isnative:
            raise InputError(f"{piece.name} has the dtype {piece.block.dtype}", do="give plain numbers in native order")
    nbytes = sum(piece.block.nbytes for piece in state.pieces)
    return nbytes + ROOM_RANK + ROOM_PIECE * len(state.pieces) + ROOM_HASH * (nbytes // PIECE)


def _arrays(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Shape and type of every array; raises `InputError` if the ranks' pieces do not make up the whole array."""
    arrays: dict[str, Any] = {}
    found: dict[str, int] = {}
    for entry in entries:
        dtypes, shapes = entry.pop("dtypes"), entry.pop("shapes")
        for name in dtypes:
            fact = arrays.setdefault(name, {"shape": shapes[name], "dtype": dtypes[name]})
            if fact != {"shape": shapes[name], "dtype": dtypes[name]}:
                raise InputError(f"{name} is {fact} on one rank and {dtypes[name]} {shapes[name]} on another")
        for piece in entry["pieces"]:
            found[piece["name"]] = found.get(piece["name"], 0) + math.prod(piece["shape"])
    for name, count in found.items():
        if count != math.prod(arrays[name]["shape"]):
            raise InputError(
                f"the pieces of {name} hold {count} elements, the array of shape {arrays[name]['shape']} has"
                f" {math.prod(arrays[name]['shape'])}",
                do="give each element once, whatever the ranks",
            )
    return arrays


def _free(root: Path) -> int:
    """Bytes that this user may still write there."""
    there = next(path for path in (root, *root.parents) if path.exists())
    status = os.statvfs(there)
    return status.f_bavail * status.f_frsize


def _no_room(root: Path, need: int, free: int, reason: str, advice: str = "") -> SetupError:
    advice = advice or f"free {_text(max(need - free, need // 10))} there"
    return SetupError(
        f"a checkpoint takes {_text(need)}, and {_text(free)} are free: {reason}",
        where=str(root),
        likely=reason,
        do=f"{advice}, then hpckit resume; the generation before is intact",
    )


def _text(nbytes: int) -> str:
    """Bytes as text for people."""
    size, unit = float(nbytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size >= 1024:
            size, unit = size / 1024, larger
    return f"{size:.4g} {unit}"


def _prune(root: Path, keep: int, number: int) -> None:
    """Remove old generations; leftovers are harmless, and the next checkpoint tries again."""
    with contextlib.suppress(OSError):
        mf.prune(root, keep, number)
