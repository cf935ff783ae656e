"""What decides the results of a run: its settings, and the content of the files that they name.

Checkpoints hold it, so that a run never goes on as another one than was begun.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hpckit.comm.agree import plain
from hpckit.errors import InputError
from hpckit.io.checkpoint.hashes import BEST, HASHES
from hpckit.settings.apps import App
from hpckit.settings.schema import Schema, dotted, repr_toml

# Settings and sections that may change at a resume: how the run is split over ranks, saved and watched.
CHANGEABLE = (
    "mesh",
    "pipeline",
    "batch.microbatches",
    "ranks",
    "checkpoint",
    "watch",
    "checks",
    "report",
    "time.limit",
)
WHOLE = 1 << 30  # bytes of a file that are read for its hash; of a longer one, so many pieces spread evenly over it
PIECE, PIECES = 1 << 20, 1024
MOST_TOLD = 5  # differences in one message


def is_changeable(key: str) -> bool:
    """Whether a resumed run may have another value of this setting."""
    return any(key == allowed or key.startswith(f"{allowed}.") for allowed in CHANGEABLE)


def inputs(app: App, values: Mapping[str, Any]) -> dict[str, str]:
    """Key -> hash of the content of the file (or folder) that the setting names.

    Raises `InputError` if one cannot be read.
    """
    schema, found = Schema(app.config), {}
    for path in schema.leaves():
        value: Any = values
        for part in path:
            value = value.get(part) if isinstance(value, Mapping) else None
        if isinstance(value, str) and value and schema.is_input_file(path):
            file, colon, _ = value.rpartition(":")  # a function is given as file.py:name
            place = Path(file if colon and not Path(value).exists() else value)
            try:
                found[dotted(path)] = content_hash(place)
            except OSError as error:
                raise InputError(f"{dotted(path)}: {place} cannot be read: {error.strerror}") from None
    return found


def content_hash(path: Path) -> str:
    """`blake3:…` (`sha256:…` without its package) of a file: of its size and content, see `WHOLE`; of a folder: of the
    names and content of its files. Raises `OSError`.
    """
    hasher = HASHES[BEST]()
    for file in [path] if not path.is_dir() else sorted(each for each in path.rglob("*") if each.is_file()):
        name = file.relative_to(path).as_posix()
        with file.open("rb") as content:
            size = content.seek(0, 2)
            hasher.update(memoryview(f"{name}\0{size}\0".encode()))
            starts = range(0, size, PIECE) if size <= WHOLE else (size * n // PIECES for n in range(PIECES))
            for start in starts:
                content.seek(start)
                hasher.update(memoryview(content.read(PIECE)))
    return f"{BEST}:{hasher.hexdigest()}"


def identity(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a run's record (`resolved.json`) says of it: {"app", "gpu", "settings": {key: value}, "inputs"}."""
    return {
        "app": record["app"],
        "gpu": bool(record.get("gpu")),
        "settings": dict(_leaves(plain(record["values"]))),
        "inputs": dict(record.get("inputs") or {}),
    }


def require_same(before: Mapping[str, Any], now: Mapping[str, Any], where: str) -> list[str]:
    """Raise `InputError` unless a run of identity `now` may go on from a checkpoint of identity `before`.

    where: the checkpoint. Returns a line for each setting that has changed and may.
    """
    wrong: list[str] = []
    told: list[str] = []
    for key in ("app", "gpu"):
        if before[key] != now[key]:
            wrong.append(f"{key} is {now[key]!r}, and was {before[key]!r}")
    for key in dict.fromkeys([*before["settings"], *now["settings"]]):
        old, new = (
            repr_toml(side["settings"][key]) if side["settings"].get(key) is not None else "not given"
            for side in (before, now)
        )
        if old != new:
            (told if is_changeable(key) else wrong).append(f"{key} is {new}, and was {old}")
    for key in dict.fromkeys([*before["inputs"], *now["inputs"]]):
        if before["inputs"].get(key) != now["inputs"].get(key):
            wrong.append(f"the content of {key}, {now['settings'].get(key)}, has changed")
    if wrong:
        more = f"; and {len(wrong) - MOST_TOLD} more" if len(wrong) > MOST_TOLD else ""
        raise InputError(
            f"this is not the run that the checkpoint was made in: {'; '.join(wrong[:MOST_TOLD])}{more}",
            where=where,
            likely="resolved.json or an input file was changed after the run had begun",
            do="put back what it was, or start a new run: hpckit run DIR/run.toml",
        )
    return told


def _leaves(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """(key, value) of every setting; lists are values."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
