"""Text files of rows that grow while a run goes on, and are cut back when it resumes; on rank 0."""

from __future__ import annotations

from typing import Any

from hpckit.io.appended import AppendedText
from hpckit.run.context import Run

TOGETHER = 200  # rows in a write


class TextTable:
    """A file of the run's output folder with a head and rows, each a line with its end."""

    def __init__(self, run: Run, name: str, head: str) -> None:
        kept = run.kept(name)
        self._file = AppendedText(run.directory.output / name, resume=kept)
        self._wait: list[str] = [] if kept else [head]
        run.keep(name, self.kept)

    def add(self, row: str) -> None:
        """Add a row, written with others or with the next checkpoint."""
        self._wait.append(row)
        if len(self._wait) >= TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait."""
        if self._wait:
            self._file.append("".join(self._wait))
            self._wait = []

    def kept(self) -> dict[str, Any]:
        """What a resumed run needs to go on here."""
        self.flush()
        return self._file.kept()

    def close(self) -> None:
        """Write what waits, and close the file."""
        self.flush()
        self._file.close()


class CsvTable(TextTable):
    """A table in CSV."""

    def __init__(self, run: Run, name: str, columns: list[str]) -> None:
        super().__init__(run, name, ",".join(columns) + "\n")

    def add_numbers(self, values: list[float | int]) -> None:
        """Add a row of these numbers."""
        words = [str(value) if isinstance(value, int) else repr(float(value)) for value in values]
        self.add(",".join(words) + "\n")
