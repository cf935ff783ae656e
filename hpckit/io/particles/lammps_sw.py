"""Files of Stillinger and Weber's potential (LAMMPS manual, pair_style sw)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.particles.many_body.stillinger_weber.reference import PAIR, TRIPLE, Tetrahedra
from hpckit.plan.inputs.text import read_text

NAMES = ("epsilon", "sigma", "a", "lambda", "gamma", "costheta0", "A", "B", "p", "q", "tol")
MOST_BYTES = 1 << 24


def read_sw(path: str | Path, elements: Sequence[str]) -> Tetrahedra:
    """The parameters of types that are these elements, of the entries for all three of them; those of a pair i, j are
    of the entry i j j. Types of one element are one kind.

    Raises `InputError` with the line for an entry that is not whole or makes no potential, and for elements without
    one.
    """
    if len(set(elements)) == 1:
        elements = elements[:1]
    entries = entries_of(path, NAMES, elements)
    kinds = len(elements)
    pairs, triples = np.zeros((kinds, kinds, PAIR)), np.zeros((kinds, kinds, kinds, TRIPLE))
    for (i, a), (j, b), (k, c) in product(enumerate(elements), repeat=3):
        number, values = entries[a, b, c]
        it = dict(zip(NAMES, values, strict=True))
        _require_sound(it, f"{path}, line {number}", b == c)
        strength, cosine = it["lambda"] * it["epsilon"], it["costheta0"]
        triples[i, j, k] = strength, strength * cosine, strength * cosine**2
        if j == k:
            pairs[i, j, :8] = pair_parameters(it)
    _require_alike(pairs, pairs.swapaxes(0, 1), "i j j and j i i", "pairs", path, elements)
    _require_alike(triples, triples.swapaxes(1, 2), "i j k and i k j", "lambda epsilon and costheta0", path, elements)
    triples = 0.5 * (triples + triples.swapaxes(1, 2))  # files have them rounded
    pairs[:, :, :8] = 0.5 * (pairs + pairs.swapaxes(0, 1))[:, :, :8]
    pairs[..., 9] = np.einsum("ijjk,k->ij", triples, [1.0, -2.0, 1.0])  # L (1 - c)^2
    pairs[..., 8] = pairs[..., 9] + pairs[..., 9].T
    powers = {(float(p), float(q)) for p, q in pairs[pairs[..., 7] > 0][:, 2:4]}
    return Tetrahedra(pairs, triples, powers.pop() if len(powers) == 1 else None)


def pair_parameters(it: dict[str, float]) -> list[float]:
    """The parameters of a pair for the kernels from those of the paper.

    tol: the energy relative to epsilon below which pairs do not count: a shorter cutoff.
    """
    sigma, tolerance, reach = it["sigma"], it["tol"], it["sigma"] * it["a"]
    cutoff = reach
    if tolerance > 0 and sigma > 0:
        cutoff += min(it["gamma"], 1.0) * sigma / math.log(min(tolerance, 0.01))
    both, p, q = it["epsilon"] * it["A"], it["p"], it["q"]
    return [both * it["B"] * sigma**p, both * sigma**q, p, q, sigma, reach, it["gamma"] * sigma, cutoff]


def _require_sound(it: dict[str, float], where: str, pair: bool) -> None:
    wrong = []
    if pair:
        wrong = [f"{key} = {it[key]:g}: it is at least 0" for key in ("sigma", "a", "gamma") if it[key] < 0]
        wrong += ["tol leaves no cutoff"] if not wrong and pair_parameters(it)[7] < 0 else []
    if wrong or not np.isfinite(list(it.values())).all():
        given = "; ".join(wrong) or "a number is not finite"
        raise InputError(f"not a potential of Stillinger and Weber: {given}", where=where)


def _require_alike(
    these: np.ndarray, others: np.ndarray, which: str, what: str, path: str | Path, elements: Sequence[str]
) -> None:
    apart = np.argwhere(np.abs(these - others) > 1e-4 * np.abs(these).max(axis=-1, keepdims=True))
    if len(apart):
        named = " ".join(elements[int(k)] for k in apart[0][:-1])
        raise InputError(
            f"{path}: entries {which} differ in {what}: of {named}",
            likely="an energy that depends on the order of the particles",
            do="give both the same parameters",
        )


def entries_of(
    path: str | Path, names: Sequence[str], elements: Sequence[str]
) -> dict[tuple[str, ...], tuple[int, list[float]]]:
    """`read_entries`, which must have all three-fold products of these elements. Raises `InputError`."""
    entries = read_entries(path, names)
    missing = [" ".join(key) for key in product(dict.fromkeys(elements), repeat=3) if key not in entries]
    if missing:
        raise InputError(
            f"{path} has no entry {missing[0]}{f' and {len(missing) - 1} others' if missing[1:] else ''}",
            likely=f"it has {', '.join(' '.join(key) for key in entries)}",
        )
    return entries


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
