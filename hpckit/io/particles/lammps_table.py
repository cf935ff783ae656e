"""LAMMPS table files: pair potentials as numbers (LAMMPS manual, pair_style table)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpckit.errors import InputError
from hpckit.io.files import write_file
from hpckit.io.particles.text import NumberedLines
from hpckit.plan.particles.snapshot import Floats

SPACINGS = ("R", "RSQ")
KEYWORDS = "N, R, RSQ, FPRIME"


@dataclass(frozen=True, eq=False)
class PairTable:
    """A pair potential at some distances: r, energy and force = -dE/dr, each [n]; slopes: of the force at both ends.

    Raises `InputError` for arrays that are not alike, of less than two points, not finite, or whose distances do not
    grow from above 0.
    """

    r: Floats
    energy: Floats
    force: Floats
    slopes: tuple[float, float] | None = None
    name: str = "table"

    def __post_init__(self) -> None:
        arrays = [np.asarray(each, np.float64) for each in (self.r, self.energy, self.force)]
        shapes = [each.shape for each in arrays]
        if arrays[0].ndim != 1 or len(set(shapes)) > 1 or len(arrays[0]) < 2:
            raise InputError(
                f"{self.name} needs r, energy and force of one length, 2 or more, not of shapes"
                f" {', '.join(map(str, shapes))}"
            )
        if not all(np.isfinite(each).all() for each in arrays):
            raise InputError(f"{self.name} holds numbers that are not finite")
        if arrays[0][0] <= 0 or (np.diff(arrays[0]) <= 0).any():
            raise InputError(f"the distances of {self.name} must grow, from above 0")
        for field, each in zip(("r", "energy", "force"), arrays, strict=True):
            object.__setattr__(self, field, each)


def read_lammps_table(path: str | Path, keyword: str = "") -> PairTable:
    """The section `keyword` of a table file; without a keyword the only one there is.

    Distances come from the file, or from its R or RSQ, as LAMMPS takes them. Raises `InputError` with the line, what
    was expected there and what was found.
    """
    lines = NumberedLines(Path(path))
    try:
        found: PairTable | None = None
        names: list[str] = []
        while (line := _content(lines)) is not None:
            names.append(line.split()[0])
            wanted = names[-1] == keyword if keyword else True
            if wanted and found is not None:
                raise lines.fault("one section, where no keyword says which", repr(names[-1]))
            section = _section(lines, names[-1])
            if wanted:
                found = section
            if found is not None and keyword:
                return found
    finally:
        lines.close()
    if found is None:
        there = ", ".join(names) or "none"
        raise InputError(f"{Path(path).name} has no section {keyword!r}", where=str(path), likely=f"it has {there}")
    return found


def write_lammps_table(path: str | Path, table: PairTable) -> None:
    """Write a table as the only section of a file, under its name; numbers come back to the last bit."""
    name = table.name.split()[0] if table.name.split() else "table"
    slopes = "" if table.slopes is None else f" FPRIME {table.slopes[0]!r} {table.slopes[1]!r}"
    head = ["# written by hpckit", "", name, f"N {len(table.r)}{slopes}", ""]
    each = zip(table.r, table.energy, table.force, strict=True)
    body = [f"{number} {float(r)!r} {float(e)!r} {float(f)!r}" for number, (r, e, f) in enumerate(each, 1)]
    write_file(Path(path), "\n".join([*head, *body, ""]).encode())


def _content(lines: NumberedLines) -> str | None:
    """The next line that is neither blank nor a comment."""
    while (line := lines.next()) is not None:
        if line.partition("#")[0].strip():
            return line.partition("#")[0]
    return None


def _section(lines: NumberedLines, name: str) -> PairTable:
    line = _content(lines)
    if line is None:
        raise lines.fault(f"the parameters of {name} (N …)", "the end of the file")
    count, spacing, ends, slopes = _parameters(lines, line.split())
    what = f"{name} (number, r, energy, force)"
    values, numbers = lines.table(count, what, lambda line: line.strip()[:1].isalpha(), (4,))
    r = values[:, 1]
    if spacing:
        share = np.arange(count) / (count - 1)
        low, high = ends if spacing == "R" else (ends[0] ** 2, ends[1] ** 2)
        r = low + (high - low) * share
        r = r if spacing == "R" else np.sqrt(r)
    wrong = np.flatnonzero(np.diff(r, prepend=0.0) <= 0)
    if wrong.size:
        raise lines.fault("distances that grow, from above 0", f"{r[wrong[0]]:.9g}", numbers[wrong[0]])
    return PairTable(r, values[:, 2], values[:, 3], slopes, name)


def _parameters(
    lines: NumberedLines, words: list[str]
) -> tuple[int, str, tuple[float, float], tuple[float, float] | None]:
    """N, R or RSQ or nothing, its ends, the slopes of FPRIME."""
    count, spacing, ends, slopes = 0, "", (0.0, 0.0), None
    at = 0
    while at < len(words):
        word = words[at]
        if word == "N":
            given = words[at + 1] if at + 1 < len(words) else "nothing"
            if not given.isdigit() or int(given) < 2:
                raise lines.fault("N and a whole number, 2 or more", given)
            count, at = int(given), at + 2
        elif word in (*SPACINGS, "FP", "FPRIME"):
            pair = _two_numbers(lines, word, words[at + 1 : at + 3])
            if word in SPACINGS:
                spacing, ends = word, pair
                if not 0 < pair[0] < pair[1]:
                    raise lines.fault(f"{word} and two distances that grow, from above 0", f"{pair[0]:g} {pair[1]:g}")
            else:
                slopes = pair
            at += 3
        elif word == "BITMAP":
            raise lines.fault(f"one of {KEYWORDS}: bitmapped tables are not read here", "'BITMAP'")
        else:
            raise lines.fault(f"one of {KEYWORDS}", repr(word))
    if not count:
        raise lines.fault("N and a whole number, 2 or more", repr(" ".join(words)))
    return count, spacing, ends, slopes


def _two_numbers(lines: NumberedLines, word: str, given: list[str]) -> tuple[float, float]:
    try:
        low, high = (float(each) for each in given)
    except ValueError:
        raise lines.fault(f"{word} and two numbers", " ".join(given) or "nothing") from None
    if not np.isfinite([low, high]).all():
        raise lines.fault(f"{word} and two finite numbers", " ".join(given))
    return low, high
