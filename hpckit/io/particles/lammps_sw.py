"""Files of Stillinger and Weber's potential (LAMMPS manual, pair_style sw)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from hpckit.errors import InputError
from hpckit.kernels.particles.many_body.stillinger_weber.reference import Silicon
from hpckit.plan.inputs.text import read_text

NAMES = ("epsilon", "sigma", "a", "lambda", "gamma", "costheta0", "A", "B", "p", "q", "tol")
MOST_BYTES = 1 << 24


def read_sw(path: str | Path, element: str) -> Silicon:
    """The parameters of one element, of the entry that names it three times.

    Raises `InputError` with the line for an entry that is not whole, and for an element without one.
    """
    entries = read_entries(path, NAMES)
    if (element,) * 3 in entries:
        return parameters(*entries[(element,) * 3][1])
    there = ", ".join(" ".join(key) for key in entries)
    raise InputError(f"{path} has no entry {element} {element} {element}", likely=f"it has {there}")


def read_entries(path: str | Path, names: Sequence[str]) -> dict[tuple[str, ...], tuple[int, list[float]]]:
    """The entries of a file for three elements each: its line and the numbers of these names.

    The first entry of three elements counts. Raises `InputError` with the line for an entry that is not whole.
    """
    words: list[tuple[int, str]] = []
    text = read_text(Path(path), "the file of the potential", MOST_BYTES, "give a file of LAMMPS's potentials")
    for number, line in enumerate(text.splitlines(), 1):
        words += [(number, word) for word in line.partition("#")[0].split()]
    each = 3 + len(names)
    if not words or len(words) % each:
        where = f"{path}, line {words[-1][0]}" if words else str(path)
        raise InputError(f"an entry has three elements and {', '.join(names)}: {each} words", where=where)
    found: dict[tuple[str, ...], tuple[int, list[float]]] = {}
    for k in range(0, len(words), each):
        entry, number = [word for _, word in words[k : k + each]], words[k][0]
        try:
            values = [float(word) for word in entry[3:]]
        except ValueError:
            given = f"expected {', '.join(names)}, found {' '.join(entry[3:])}"
            raise InputError(given, where=f"{path}, line {number}") from None
        found.setdefault(tuple(entry[:3]), (number, values))
    return found


def parameters(
    epsilon: float,
    sigma: float,
    a: float,
    strength: float,
    gamma: float,
    cosine: float,
    big_a: float,
    big_b: float,
    p: float,
    q: float,
    tolerance: float = 0.0,
) -> Silicon:
    """The parameters of the kernels from those of the paper, in its order; `strength` is lambda.

    tolerance: the energy relative to epsilon below which pairs do not count, as `tol` of LAMMPS: a shorter cutoff.
    """
    reach = sigma * a
    cutoff = reach
    if tolerance > 0:
        cutoff += min(gamma, 1.0) * sigma / math.log(min(tolerance, 0.01))
    both = epsilon * big_a
    return Silicon(
        strength * epsilon, cosine, both * big_b * sigma**p, both * sigma**q, p, q, sigma, reach, gamma * sigma, cutoff
    )
