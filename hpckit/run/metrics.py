"""`metrics.jsonl`: the lines of a run, which its checkpoints hold packed, so that a resumed run can mend the file."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping
from typing import Any

from hpckit.comm.agree import plain
from hpckit.errors import CorruptDataError, SetupError
from hpckit.run.directory import METRICS, RunDirectory

MOST_PACKED = 1 << 20  # bytes of packed lines in a checkpoint, about 10 MB of lines; beyond, only their hash


class Metrics:
    """The metrics of the run in `directory`, written and known by rank 0."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._size = 0
        self._hash = hashlib.sha256()
        self._packer = zlib.compressobj(6)
        self._packed: bytes | None = b""

    def append(self, values: Mapping[str, Any]) -> None:
        """Add one line. Raises `OSError`."""
        line = json.dumps(plain(values)).encode() + b"\n"
        self._directory.append(METRICS, line)
        self._add(line)

    def kept(self) -> dict[str, Any]:
        """What a checkpoint holds of the lines so far."""
        packed = None if self._packed is None else self._packed + self._packer.copy().flush()
        return {
            "bytes": self._size,
            "hash": self._hash.hexdigest(),
            "packed": None if packed is None else base64.b64encode(packed).decode(),
        }

    def go_on(self, kept: Mapping[str, Any]) -> str:
        """Drop the lines after a checkpoint, {} for all; returns what was mended, in words, '' for nothing.

        Raises `CorruptDataError` if lines are lost that the checkpoint does not hold.
        """
        size = int(kept.get("bytes", 0))
        is_gone = False
        try:
            there = self._directory.read(METRICS, size)
        except OSError as error:  # no such file, or no regular one: a link, a pipe
            there, is_gone = b"", isinstance(error, FileNotFoundError)
        if hashlib.sha256(there).hexdigest() == kept.get("hash", hashlib.sha256().hexdigest()):
            self._directory.cut(METRICS, size)
            self._add(there)
            return ""
        if kept["packed"] is None:
            self._packed = None
            if is_gone:
                return f"{METRICS} is gone: its lines begin anew"
            raise CorruptDataError(
                f"{METRICS} has changed before its byte {size}, and has too many lines for a checkpoint to hold them",
                where=str(self._directory.path / METRICS),
                do="put the file back, or remove it to go on without the lines until now",
            )
        lines = zlib.decompress(base64.b64decode(kept["packed"]))
        try:
            self._directory.write_text(METRICS, lines.decode())
        except OSError as error:
            raise SetupError(
                f"{METRICS} cannot be restored: {error.strerror}", where=str(self._directory.path)
            ) from None
        self._add(lines)
        count = len(lines.splitlines())
        return f"{METRICS} had been changed: its {count} lines until then are restored from the checkpoint"

    def _add(self, lines: bytes) -> None:
        """Count lines that are in the file."""
        self._size += len(lines)
        self._hash.update(lines)
        if self._packed is not None:
            self._packed += self._packer.compress(lines)
            if len(self._packed) > MOST_PACKED:
                self._packed = None
