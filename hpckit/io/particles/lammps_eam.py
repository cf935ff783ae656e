"""Files of the embedded-atom method: funcfl (one element), setfl and Finnis-Sinclair (any number of elements).

As LAMMPS reads them for pair_style eam, eam/alloy and eam/fs (LAMMPS manual; Daw and Baskes' DYNAMO formats).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpckit.errors import InputError
from hpckit.io.files import write_file
from hpckit.plan.particles.snapshot import Floats


@dataclass(frozen=True, eq=False)
class EamFile:
    """The functions of a file at equal steps. form: "funcfl", "setfl" or "fs".

    elements: their names (of funcfl the file's stem); masses [elements]; embedding [elements, m] at densities 0,
    density_step, …; density [elements, elements, n]: at a particle of the first element from one of the second, at
    distances 0, step, …; pair [elements, elements, n]: r times the energy, in eV Å; of funcfl the effective charges
    Z(r) of the element, whose product with those of the other counts.
    """

    form: str
    elements: tuple[str, ...]
    masses: Floats
    embedding: Floats
    density: Floats
    pair: Floats
    density_step: float
    step: float
    cutoff: float


class _Words:
    """The lines of a file, and its words from some line on, with the places for errors."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
        self.at = 0

    def fault(self, line: int, expected: str, found: str) -> InputError:
        return InputError(f"expected {expected}, found {found}", where=f"{self.path}, line {line}")

    def line(self, expected: str) -> list[str]:
        """The words of the next line that has any."""
        while self.at < len(self.lines):
            self.at += 1
            if words := self.lines[self.at - 1].split():
                return words
        raise self.fault(len(self.lines), expected, "the end of the file")

    def numbers(self, words: list[str], kinds: tuple[type, ...], expected: str) -> list[float]:
        """The first words of the last line as numbers."""
        try:
            return [kind(_plain(word)) for kind, word in zip(kinds, words, strict=False)][: len(kinds)]
        except ValueError:
            raise self.fault(self.at, expected, repr(" ".join(words))) from None

    def values(self, count: int, expected: str) -> Floats:
        """The next `count` numbers, which end with a line."""
        found: list[float] = []
        while len(found) < count:
            words = self.line(f"{expected}: {count} numbers")
            try:
                found += [float(_plain(word)) for word in words]
            except ValueError:
                raise self.fault(self.at, f"{expected}: {count} numbers", repr(self.lines[self.at - 1][:60])) from None
        if len(found) > count:
            raise self.fault(self.at, f"{expected}: {count} numbers that end with a line", f"{len(found)}")
        values = np.array(found)
        if not np.isfinite(values).all():
            raise self.fault(self.at, f"{expected}: finite numbers", "others")
        return values

    def numbers_left(self) -> int:
        """How many words there are behind this place."""
        return sum(len(line.split()) for line in self.lines[self.at :])


def read_eam(path: str | Path) -> EamFile:
    """Read a file of whichever format; which one it is shows in its third line, and in how many numbers there are.

    Raises `InputError` with the line, what was expected there and what was found.
    """
    words = _Words(Path(path))
    head = [line.split() for line in words.lines[1:3]]
    if len(head) == 2 and len(head[0]) >= 3 and len(head[1]) == 5 and all(map(_is_number, [*head[0][:3], *head[1]])):
        return _funcfl(words)
    return _setfl(words)


def write_eam(path: str | Path, file: EamFile) -> None:
    """Write a setfl or Finnis-Sinclair file (by `file.form`); numbers come back to the last bit.

    Raises `InputError` for funcfl, whose charges are not pair energies.
    """
    if file.form not in ("setfl", "fs"):
        raise InputError(f"files of the form {file.form} are not written", do='choose "setfl" or "fs"')
    n, (many, points) = len(file.elements), (file.embedding.shape[1], file.pair.shape[2])
    steps = f"{many} {float(file.density_step)!r} {points} {float(file.step)!r} {float(file.cutoff)!r}"
    lines = ["written by hpckit", "", "", f"{n} {' '.join(file.elements)}", steps]
    for b in range(n):
        lines.append(f"0 {float(file.masses[b])!r} 0.0 none")
        lines += _column(file.embedding[b])
        for a in range(n) if file.form == "fs" else [0]:
            lines += _column(file.density[a, b])
    for a in range(n):
        for b in range(a + 1):
            lines += _column(file.pair[a, b])
    write_file(Path(path), "\n".join([*lines, ""]).encode())


def _column(values: Floats) -> list[str]:
    return [repr(value) for value in values.tolist()]


def _funcfl(words: _Words) -> EamFile:
    words.at = 1
    _, mass, *_ = words.numbers(words.line("an element"), (int, float, float), "atomic number, mass, lattice constant")
    many, density_step, points, step, cutoff = _steps(words)
    embedding = words.values(many, "the embedding function")
    charges, density = words.values(points, "effective charges"), words.values(points, "the density")
    name = words.path.name.partition(".")[0]
    shaped = embedding[None], density[None, None], charges[None, None]
    return EamFile("funcfl", (name,), np.array([mass]), *shaped, density_step, step, cutoff)


def _setfl(words: _Words) -> EamFile:
    words.at = 3
    names = words.line("the number of elements and their names")
    expected = "the number of elements and their names"
    if not names[0].isdigit() or not 0 < int(names[0]) == len(names) - 1:
        raise words.fault(words.at, expected, repr(" ".join(names)[:80]))
    n, elements = int(names[0]), tuple(names[1:])
    many, density_step, points, step, cutoff = _steps(words)
    pairs = points * n * (n + 1) // 2
    # Beside the tables each element has a line of four words.
    plain = sum((many + points, 4)) * n + pairs
    finnis_sinclair = n > 1 and words.numbers_left() > plain + (n * (n - 1) * points) // 2
    densities = n if finnis_sinclair else 1
    masses, embedding, density = np.empty(n), np.empty((n, many)), np.empty((n, n, points))
    for b, element in enumerate(elements):
        line = words.line(f"the line of {element}")
        _, masses[b] = words.numbers(line, (int, float), f"atomic number and mass of {element}")
        embedding[b] = words.values(many, f"the embedding function of {element}")
        for a in range(densities):
            density[a if finnis_sinclair else slice(None), b] = words.values(points, f"the density of {element}")
    pair = np.empty((n, n, points))
    for a in range(n):
        for b in range(a + 1):
            pair[a, b] = pair[b, a] = words.values(points, f"the pair energy of {elements[a]} and {elements[b]}")
    form = "fs" if finnis_sinclair else "setfl"
    return EamFile(form, elements, masses, embedding, density, pair, density_step, step, cutoff)


def _steps(words: _Words) -> tuple[int, float, int, float, float]:
    """The numbers of values, the steps, and the cutoff."""
    expected = "values and step of the density, values and step of the distance, cutoff"
    line = words.line(expected)
    many, density_step, points, step, cutoff = words.numbers(line, (int, float, int, float, float), expected) + [
        0.0
    ] * (5 - len(line[:5]))
    if min(many, points) < 5 or not (density_step > 0 and step > 0 and cutoff > 0):
        raise words.fault(words.at, f"{expected}: 5 values or more, and steps above 0", repr(" ".join(line)))
    return int(many), density_step, int(points), step, cutoff


def _plain(word: str) -> str:
    """A number as Fortran writes it, for Python."""
    return word.replace("D", "e").replace("d", "e")


def _is_number(word: str) -> bool:
    try:
        float(_plain(word))
    except ValueError:
        return False
    return True
