"""Files of Stillinger and Weber's potential (LAMMPS manual, pair_style sw)."""

from __future__ import annotations

import math
from pathlib import Path

from hpckit.errors import InputError
from hpckit.kernels.particles.stillinger_weber.reference import Silicon
from hpckit.plan.text import read_text

NAMES = ("epsilon", "sigma", "a", "lambda", "gamma", "costheta0", "A", "B", "p", "q", "tol")
MOST_BYTES = 1 << 24
WORDS = 3 + len(NAMES)


def read_sw(path: str | Path, element: str) -> Silicon:
    """The parameters of one element, of the entry that names it three times.

    Raises `InputError` with the line for an entry that is not whole, and for an element without one.
    """
    words: list[tuple[int, str]] = []
    text = read_text(Path(path), "the file of the potential", MOST_BYTES, "give a file of pair_style sw")
    for number, line in enumerate(text.splitlines(), 1):
        words += [(number, word) for word in line.partition("#")[0].split()]
    if not words or len(words) % WORDS:
        where = f"{path}, line {words[-1][0]}" if words else str(path)
        raise InputError(f"an entry has three elements and {', '.join(NAMES)}: {WORDS} words", where=where)
    there = []
    for k in range(0, len(words), WORDS):
        entry = [word for _, word in words[k : k + WORDS]]
        there.append(" ".join(entry[:3]))
        if entry[:3] != [element] * 3:
            continue
        try:
            values = [float(word) for word in entry[3:]]
        except ValueError:
            where = f"{path}, line {words[k][0]}"
            raise InputError(f"expected {', '.join(NAMES)}, found {' '.join(entry[3:])}", where=where) from None
        return parameters(*values)
    raise InputError(f"{path} has no entry {element} {element} {element}", likely=f"it has {', '.join(there)}")


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
