"""The choice of the generation that a run restarts from: the newest intact one, agreed on by all ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpckit.comm.agree import broadcast_bytes, first_of_ranks, share_json
from hpckit.errors import CorruptDataError, HpckitError, SetupError
from hpckit.io.checkpoint.manifest import committed, generations, is_refused, parse, read_manifest, refuse
from hpckit.io.checkpoint.reader import Generation


def choose(comm: Any, root: Path) -> tuple[Generation | None, list[str]]:
    """Collective: the newest committed generation whose every byte is intact, and notes on newer ones that are not.

    The ranks share the reading. None if there never was one. Generations passed over are marked, so that a run that
    restarts from an older one never returns to them. Raises `CorruptDataError` if all are damaged.
    """
    numbers, notes = share_json(comm, _numbers(root) if comm.rank == 0 else None)
    for number in reversed(numbers):
        content, problem = b"", ""
        if comm.rank == 0:
            try:
                content = read_manifest(root, number)
            except (HpckitError, OSError) as error:
                problem = str(error)
        content = broadcast_bytes(comm, content, 0)
        generation = None
        if content:
            try:
                generation = Generation(root, parse(content, number))
                generation.verify(comm.rank, comm.size)
            except CorruptDataError as error:
                problem = str(error)
        found = first_of_ranks(comm, problem or None)
        if generation is not None and found is None:
            if comm.rank == 0:
                _refuse_newer(root, number, notes)
            return generation, notes
        notes.append(f"g{number:06d}: {found[1] if found else ''}")
    if numbers:
        raise CorruptDataError(
            "no generation is whole: " + "; ".join(notes),
            where=str(root),
            do="restore a copy, or start the run again: hpckit run DIR/run.toml",
        )
    return None, notes


def _numbers(root: Path) -> tuple[list[int], list[str]]:
    """Committed generations, and a note on each unfinished one that is newer than all of them."""
    numbers = committed(root)
    later = [each for each in generations(root) if each > max(numbers, default=0) and not is_refused(root, each)]
    return numbers, [f"g{each:06d}: was not finished" for each in later]


def _refuse_newer(root: Path, number: int, notes: list[str]) -> None:
    for newer in committed(root):
        if newer > number:
            try:
                refuse(root, newer, next(note for note in notes if note.startswith(f"g{newer:06d}")))
            except OSError as error:
                raise SetupError(f"g{newer:06d} cannot be marked: {error.strerror}", where=str(root)) from None
