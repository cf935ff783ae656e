"""Text files of numbers: every fault is reported with its line, and no header is trusted blindly."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from hpckit.errors import InputError
from hpckit.plan.inputs.text import open_regular
from hpckit.plan.particles.snapshot import Floats

# A longer line is not a line of numbers; it is not read into memory.
LONGEST_LINE = 1 << 20
# Lines that are turned into numbers at a time: as text they take ten times the memory.
BLOCK = 1 << 15


class NumberedLines:
    """The lines of a text file one by one, numbered; one can be put back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = 0
        self._back: str | None = None
        self._file = io.TextIOWrapper(open_regular(path, "the file"), encoding="utf-8")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def next(self) -> str | None:
        """The next line without its end, None after the last. Raises `InputError` for bytes that are not text."""
        if self._back is not None:
            line, self._back = self._back, None
            self.number += 1
            return line
        try:
            line = self._file.readline(LONGEST_LINE)
        except OSError as error:
            raise InputError(f"the file {self.path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise self.fault("text", "bytes that are not UTF-8", self.number + 1) from error
        if not line:
            return None
        self.number += 1
        if len(line) >= LONGEST_LINE:
            raise self.fault(f"lines of less than {LONGEST_LINE} characters", "a longer one")
        return line.rstrip("\n")

    def put_back(self, line: str) -> None:
        """Let `next` give this line once more."""
        self._back = line
        self.number -= 1

    def needed(self, what: str) -> str:
        """The next line, which must be there."""
        line = self.next()
        if line is None:
            raise self.fault(what, "the end of the file", self.number + 1)
        return line

    def fault(self, expected: str, found: str, number: int | None = None) -> InputError:
        """The error for a line (the last one by default) that is not what it should be."""
        at = max(self.number, 1) if number is None else number
        shown = found if len(found) <= 80 else found[:77] + "..."
        return InputError(f"{self.path.name}: expected {expected}, found {shown}", where=f"{self.path}, line {at}")

    def table(
        self,
        rows: int,
        what: str,
        until: Callable[[str], bool],
        columns: Sequence[int],
        words_at: Sequence[int] = (),
        change: Callable[[list[str]], list[str]] | None = None,
    ) -> tuple[Floats, list[int]]:
        """`rows` lines of numbers, all of equal length, as float64[rows, columns], with their line numbers.

        columns: allowed lengths. words_at: columns of words, which are left out. change: gives the fields of a line as
        they are turned into numbers. Blank lines are passed over, text after # is left out; `until` tells the lines
        that cannot belong to the table. Memory grows with what is in the file, not with what its header promises.
        """
        blocks: list[Floats] = []
        words: list[list[str]] = []
        numbers: list[int] = []
        width = 0
        while len(numbers) < rows:
            line = self.next()
            if line is None or until(line):
                found = "the end of the file" if line is None else repr(line.strip())
                count = len(numbers)
                raise self.fault(f"{rows} lines of {what}", f"{found} after {count}", self.number + (line is None))
            fields = line.partition("#")[0].split()
            if not fields:
                continue
            if len(fields) not in columns:
                allowed = " or ".join(map(str, columns))
                raise self.fault(f"{allowed} columns of {what}", f"{len(fields)}: {line.strip()!r}")
            width = width or len(fields)
            if len(fields) != width:
                raise self.fault(f"{width} columns of {what} as before", f"{len(fields)}: {line.strip()!r}")
            fields = change(fields) if change else fields
            words.append(
                [field for column, field in enumerate(fields) if column not in words_at] if words_at else fields
            )
            numbers.append(self.number)
            if len(words) == BLOCK:
                blocks.append(self._numbers(words, numbers[-BLOCK:], what))
                words = []
        if words:
            blocks.append(self._numbers(words, numbers[-len(words) :], what))
        return np.concatenate(blocks) if blocks else np.zeros((0, 0)), numbers

    def _numbers(self, words: list[list[str]], numbers: list[int], what: str) -> Floats:
        try:
            values = np.array(words, np.float64)
        except ValueError:
            for fields, number in zip(words, numbers, strict=True):
                for field in fields:
                    if not _is_number(field):
                        raise self.fault(f"a number in {what}", repr(field), number) from None
            raise
        broken = np.argwhere(~np.isfinite(values))
        if broken.size:
            row, column = broken[0]
            raise self.fault(f"a finite number in {what}", repr(words[row][column]), numbers[row])
        return values

    def whole(self, values: Floats, numbers: list[int], what: str, least: int, most: int | None = None) -> np.ndarray:
        """A column as whole numbers from `least` to `most`; a fault names its line."""
        wrong = (values != np.rint(values)) | (values < least) | (np.abs(values) > 2**53)
        if most is not None:
            wrong |= values > most
        if wrong.any():
            row = int(np.argmax(wrong))
            upper = f" to {most}" if most is not None else " or more"
            raise self.fault(f"{what}, a whole number, {least}{upper}", f"{values[row]:.17g}", numbers[row])
        return values.astype(np.int64)

    def unique(self, ids: np.ndarray, numbers: list[int], what: str) -> None:
        """Raise for the first number that comes a second time."""
        order = np.argsort(ids, kind="stable")
        again = np.flatnonzero(ids[order][1:] == ids[order][:-1])
        if again.size:
            first, second = order[again[0]], order[again[0] + 1]
            raise self.fault(f"every {what} once", f"{ids[second]} as in line {numbers[first]}", numbers[second])


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
