"""Granular matter in LAMMPS input scripts: pair styles gran/…, and the spheres of a data file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hpckit.apps.md.settings.formulas import is_number

STYLES = {"gran/hooke": ("hooke", False), "gran/hooke/history": ("hooke", True), "gran/hertz/history": ("hertz", True)}
FREEZE, ROLLING = FIXES = ("freeze", "nve/sphere")  # of groups made of types


def contact_of(style: str, words: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The settings of a pair_style. Raises `ValueError`."""
    numbers = all(is_number(word) or (word == "NULL" and k in (1, 3)) for k, word in enumerate(words))
    if len(words) != 6 or not numbers or words[5] not in ("0", "1"):
        raise ValueError(f"pair_style {style} {' '.join(words)}: known are Kn Kt gamma_n gamma_t xmu and 0 or 1")
    law, memory = STYLES[style]
    normal, damper = float(words[0]), float(words[2])
    tangent = 2.0 / 7.0 * normal if words[1] == "NULL" else float(words[1])
    along = 0.5 * damper if words[3] == "NULL" else float(words[3])
    yield "interaction.kind", "granular"
    yield "granular.law", law
    yield "granular.memory", memory
    yield "granular.stiffness", [normal, tangent]
    yield "granular.damping", [damper, along if words[5] == "1" else 0.0]
    yield "granular.friction", float(words[4])


def spheres_of(file: Path, types: int) -> tuple[list[float], list[float]]:
    """Diameter and density of the first particle of each type in a data file of style sphere; 1 for types of none."""
    found: dict[int, tuple[float, float]] = {}
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.split("#")[0].strip() == "Atoms":
                break
        for line in lines:
            words = line.split()
            if words and not is_number(words[0]):
                break
            if len(words) >= 7 and words[1].isdigit() and all(map(is_number, words[2:4])):
                found.setdefault(int(words[1]), (float(words[2]), float(words[3])))
                if len(found) == types:
                    break
    each = [found.get(kind, (1.0, 1.0)) for kind in range(1, types + 1)]
    return [diameter for diameter, _ in each], [density for _, density in each]
