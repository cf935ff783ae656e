"""Files of Tersoff's potential (LAMMPS manual, pair_style tersoff)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np

from hpckit.errors import InputError
from hpckit.io.particles.lammps_sw import entries_of
from hpckit.kernels.particles.many_body.tersoff.reference import PAIR, TRIPLE, Tersoff

NAMES = ("m", "gamma", "lambda3", "c", "d", "costheta0", "n", "beta", "lambda2", "B", "R", "D", "lambda1", "A")

SHARP = 1e-12  # what D is at least: f then falls within the last digits of R


def read_tersoff(path: str | Path, elements: Sequence[str]) -> Tersoff:
    """The parameters of types that are these elements, of the entries for all three of them.

    Raises `InputError` with the line for an entry that is not whole or makes no potential, and for elements without
    one.
    """
    entries = entries_of(path, NAMES, elements)
    types = len(elements)
    pairs, triples = np.zeros((types, types, PAIR)), np.zeros((types, types, types, TRIPLE))
    for (i, a), (j, b), (k, c) in product(enumerate(elements), repeat=3):
        number, values = entries[a, b, c]
        it = dict(zip(NAMES, values, strict=True))
        _require_sound(it, f"{path}, line {number}", b == c)
        it["D"] = max(it["D"], SHARP)
        square = (it["c"] / it["d"]) ** 2
        bend = it["costheta0"], it["d"] ** 2, it["gamma"], it["gamma"] * square
        triples[i, j, k] = *bend, it["lambda3"], float(it["m"] == 3), it["R"], it["D"]
        if j == k:
            pairs[i, j] = [it[key] for key in ("A", "lambda1", "B", "lambda2", "beta", "n", "R", "D")]
    reaches = triples[..., 6] + triples[..., 7]
    shared = bool((triples[..., 6:] == pairs[:, None, :, 6:]).all())
    return Tersoff(pairs, triples, float(reaches.max()), shared, bool(triples[..., 4].any()))


def _require_sound(it: dict[str, float], where: str, pair: bool) -> None:
    wrong = [f"m = {it['m']:g}: it is 1 or 3"] if it["m"] not in (1, 3) else []
    wrong += [f"{key} = {it[key]:g}: it is above 0" for key in ("R", "d") if it[key] <= 0]
    wrong += [f"D = {it['D']:g}: it is at least 0"] if it["D"] < 0 else []
    wrong += [f"D = {it['D']:g}: it is at most R"] if it["D"] > it["R"] else []
    if pair:
        wrong += [f"{key} = {it[key]:g}: it is at least 0" for key in ("beta", "A", "B") if it[key] < 0]
        wrong += [f"n = {it['n']:g}: it is above 0"] if it["n"] <= 0 else []
    if wrong or not np.isfinite(list(it.values())).all():
        raise InputError(f"not a potential of Tersoff: {'; '.join(wrong) or 'a number is not finite'}", where=where)
