"""Text files that grow, and that a resumed run cuts back to where its state was saved."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from hpckit.errors import CorruptDataError, write_error

BLOCK_BYTES = 8 << 20  # read at once


class AppendedText:
    """A text file to which pieces are appended, each in one write that is forced to disk.

    `resume` goes on where a writer was whose `kept` said so, and forgets what came later; {} or None forgets all.
    Raises `SetupError` where it cannot be written, `CorruptDataError` where what to go on after is gone or has changed.
    """

    def __init__(self, path: str | Path, resume: Mapping[str, Any] | None = None) -> None:
        self.path = Path(path)
        size = (resume or {}).get("bytes", 0)
        self._hash = hashlib.sha256()
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
            found = os.fstat(self._file).st_size
            for start in range(0, min(size, found), BLOCK_BYTES):
                self._hash.update(os.pread(self._file, min(BLOCK_BYTES, size - start), start))
            problem = f"has {found} bytes, and had {size}" if found < size else "has changed since it was written"
            if size and self._hash.hexdigest() != (resume or {}).get("hash"):
                raise CorruptDataError(
                    f"{self.path.name} {problem}",
                    where=str(self.path),
                    do="put the file back, or start the run again: hpckit run DIR/run.toml",
                )
            if found > size:
                os.ftruncate(self._file, size)
        except OSError as error:
            raise write_error(error, self.path) from error

    def append(self, text: str) -> None:
        """Append a piece."""
        content = memoryview(text.encode())
        self._hash.update(content)
        try:
            while content:
                content = content[os.write(self._file, content) :]  # short writes are legal
            os.fsync(self._file)
        except OSError as error:
            raise write_error(error, self.path) from error

    def kept(self) -> dict[str, Any]:
        """What a resumed run needs to go on here."""
        return {"bytes": os.fstat(self._file).st_size, "hash": self._hash.hexdigest()}

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()
