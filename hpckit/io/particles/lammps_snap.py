"""Files of SNAP (LAMMPS manual, pair_style snap): coefficients and parameters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.particles.many_body.snap.reference import DECAYS, SHARES, ZBL, Snap, tables
from hpckit.plan.inputs.text import read_text

MOST_BYTES = 1 << 24
KNOWN = {  # keyword of the parameters: what is taken where it is not given; None: it must be
    "rcutfac": None,
    "twojmax": None,
    "rfac0": 0.99363,
    "rmin0": 0.0,
    "switchflag": 1.0,
    "bzeroflag": 1.0,
    "quadraticflag": 0.0,
    "chemflag": 0.0,
    "bnormflag": 0.0,
    "wselfallflag": 0.0,
}
PLAIN = {"switchinnerflag": 0.0}  # other values are not known
MOST_J = 20  # twice J
RADIUS, POWER, CHARGE2 = 0.46850, 0.23, 14.399645  # of Ziegler, Biersack and Littmark; eV Å, as LAMMPS has it


def read_snap(
    coefficients: str | Path, parameters: str | Path, elements: Sequence[str], zbl: tuple[float, float] | None = None,
    numbers: Sequence[float] = (),
) -> Snap:  # fmt: skip
    """The potential of types that are these elements.

    zbl: cutoffs from and to which a repulsion of nuclei of the charges `numbers`, one for each type, fades (eV, Å).
    Raises `InputError` with the line for files that are not whole, or that ask for what is not known here.
    """
    given = _parameters(Path(parameters))
    found = _coefficients(Path(coefficients))
    missing = [name for name in elements if name not in found]
    if missing:
        raise InputError(f"{coefficients} has no element {', '.join(missing)}", likely=f"it has {', '.join(found)}")
    twice_j, quadratic, chemical = int(given["twojmax"]), given["quadraticflag"] != 0, given["chemflag"] != 0
    if quadratic and chemical:
        raise InputError(f"{parameters}: quadraticflag with chemflag is not known here", do="set one of them to 0")
    densities = len(found) if chemical else 1
    norms = np.tile((tables(twice_j).triples[:, 2] + 1.0) ** (given["bnormflag"] != 0), densities**3)
    n = len(norms)
    wanted = 1 + n + (n * (n + 1) // 2 if quadratic else 0)
    there = len(next(iter(found.values()))[2])
    if there != wanted:
        raise InputError(
            f"{coefficients} has {there} coefficients of an element, but twojmax = {twice_j}"
            f"{f' and chemflag with {densities} elements need' if chemical else ' needs'} {wanted}"
        )
    each = [found[name] for name in elements]
    norms = np.concatenate([[1.0], norms, np.outer(norms, norms)[np.triu_indices(n)] if quadratic else []])
    return Snap(
        twice_j,
        np.array([values for _, _, values in each]) / norms,
        np.array([radius * given["rcutfac"] for radius, _, _ in each]),
        np.array([weight for _, weight, _ in each]),
        given["rfac0"],
        given["rmin0"],
        given["switchflag"] != 0,
        given["bzeroflag"] != 0,
        _repulsions(zbl, numbers) if zbl else np.zeros((len(each), len(each), ZBL)),
        densities,
        np.array([list(found).index(name) if chemical else 0 for name in elements]),
        given["wselfallflag"] != 0,
    )


def _parameters(path: Path) -> dict[str, float]:
    found: dict[str, float] = {}
    text = read_text(path, "the parameters of SNAP", MOST_BYTES, "give a file .snapparam of pair_style snap")
    for number, line in enumerate(text.splitlines(), 1):
        words, where = line.partition("#")[0].split(), f"{path}, line {number}"
        if not words:
            continue
        if words[0] not in KNOWN | PLAIN:
            raise InputError(f"{words[0]} is not known here", likely=f"known are {', '.join(KNOWN)}", where=where)
        try:
            (value,) = map(float, words[1:])
        except ValueError:
            raise InputError(f"{words[0]} has one number, found {' '.join(words[1:])}", where=where) from None
        if words[0] in PLAIN and value != PLAIN[words[0]]:
            raise InputError(f"{words[0]} = {value:g} is not known here, only {PLAIN[words[0]]:g}", where=where)
        found[words[0]] = value
    absent = [name for name, value in KNOWN.items() if value is None and name not in found]
    if absent:
        raise InputError(f"{path} has no {' and no '.join(absent)}")
    it = {name: value for name, value in KNOWN.items() if value is not None} | found
    if not (0 <= it["twojmax"] <= MOST_J and it["twojmax"] == int(it["twojmax"])) or it["rcutfac"] <= 0:
        raise InputError(f"{path}: rcutfac is above 0 and twojmax a whole number up to {MOST_J}")
    return it


def _coefficients(path: Path) -> dict[str, tuple[float, float, list[float]]]:
    """Radius, weight and coefficients of each element."""
    text = read_text(path, "the coefficients of SNAP", MOST_BYTES, "give a file .snapcoeff of pair_style snap")
    lines = [(k, words) for k, line in enumerate(text.splitlines(), 1) if (words := line.partition("#")[0].split())]
    found: dict[str, tuple[float, float, list[float]]] = {}
    number = lines[0][0] if lines else 1
    try:
        elements, count = map(int, lines[0][1])
        for k in range(elements):
            block = lines[1 + k * (count + 1) : 1 + (k + 1) * (count + 1)]
            if len(block) <= count:
                raise InputError(
                    f"element {k + 1} of {elements} has {max(0, len(block) - 1)} of {count} coefficients",
                    where=f"{path}, line {lines[-1][0]}",
                )
            number = block[0][0]
            name, radius, weight = block[0][1]
            values = []
            for line, words in block[1:]:
                number = line
                (value,) = map(float, words)
                values.append(value)
            found[name] = float(radius), float(weight), values
    except (ValueError, IndexError):
        raise InputError(
            "expected numbers of elements and coefficients, then of each element name, radius and weight, and one"
            " coefficient a line",
            where=f"{path}, line {number}",
        ) from None
    return found


def _repulsions(zbl: tuple[float, float], numbers: Sequence[float]) -> np.ndarray:
    """The numbers of all pairs (`ZBL`), with a switch of which two derivatives end at 0."""
    inner, outer = zbl
    found, span = np.zeros((len(numbers), len(numbers), ZBL)), outer - inner
    for (i, a), (j, b) in ((x, y) for x in enumerate(numbers) for y in enumerate(numbers)):
        decays = np.array(DECAYS) * (a**POWER + b**POWER) / RADIUS
        strength, each = a * b * CHARGE2, np.array(SHARES) * np.exp(-decays * outer)
        value, slope, bend = each.sum(), -(decays * each).sum(), (decays**2 * each).sum()
        edge = strength * value / outer
        fall = strength / outer * (slope - value / outer)
        curve = strength / outer * (bend - 2 * slope / outer + 2 * value / outer**2)
        second, third = (-3 * fall + span * curve) / span**2, (2 * fall - span * curve) / span**3
        shift = -edge + 0.5 * span * fall - span * span / 12 * curve
        found[i, j] = strength, *decays, inner, outer, second, third, second / 3, third / 4, shift
    return found
