"""`fix ave/time` of LAMMPS input scripts, as settings of means over time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hpckit.apps.md.lammps.state import ScriptState

TENSOR = ("xx", "yy", "zz", "xy", "xz", "yz")
ENERGIES = {  # of the thermo table, which has them of each particle where it is normalized
    "pe": "potential", "ke": "kinetic", "etotal": "energy", "enthalpy": "enthalpy", "emol": "bonded",
    "ecoul": "coulomb", "elong": "long_range",
}  # fmt: skip
KEYWORDS = {
    "temp": "temperature", "press": "pressure", **{f"p{name}": f"pressure_{name}" for name in TENSOR},
    "vol": "volume", "density": "mass_density", **{f"l{name}": f"length_{name}" for name in "xyz"},
}  # fmt: skip
COMPUTES = {"temp": "temperature", "pe": "potential", "ke": "kinetic", "pressure": "pressure"}
OWN = {"thermo_temp": "temp", "thermo_press": "pressure", "thermo_pe": "pe"}  # computes that LAMMPS makes itself
REFERENCE = re.compile(r"c_(\w+)(?:\[(\d+)\])?")


def averaged(name: str, words: Sequence[str], script: ScriptState, normalized: bool) -> dict[str, Any]:
    """What a fix ave/time asks for, as settings. Raises `ValueError` that says what of it is not known here.

    normalized: whether the energies of the thermo table are those of a particle.
    """
    numbers, left = [int(word) for word in words[:3]], list(words[3:])
    values, columns = [], []
    while left and re.match("[cfv]_", left[0]):
        columns.append(left.pop(0))
        values.append(_value(columns[-1], script, normalized))
    given: dict[str, Any] = {}
    while left:
        key = left.pop(0)
        if key in ("title1", "title2", "title3", "format") and left:
            left.pop(0)
        elif (key, left[:1]) in (("ave", ["one"]), ("ave", ["running"]), ("mode", ["scalar"])) or key == "file":
            given[key] = left.pop(0) if left else ""
        else:
            raise ValueError(f"{key} {' '.join(left[:1])}")
    if not given.get("file") or not values or len(numbers) < 3 or min(numbers) < 1:
        raise ValueError("it takes NEVERY NREPEAT NFREQ, values, and file NAME")
    found = {"file": given["file"].rpartition("/")[2], "values": values, "columns": columns, "label": f"fix {name}"}
    found |= dict(zip(("every", "repeat", "steps"), numbers, strict=True))
    return found | ({"running": True} if given.get("ave") == "running" else {})


def _value(word: str, script: ScriptState, normalized: bool) -> str:
    """The name of a value. Raises `ValueError`."""
    if word.startswith("v_"):
        formula = script.formulas.get(word[2:], "").strip()
        if formula in ENERGIES:
            return ENERGIES[formula] + "_per_particle" * normalized
        if formula in KEYWORDS:
            return KEYWORDS[formula]
        if not formula.startswith("c_"):
            raise ValueError(f"{word}, {formula or 'no formula'}")
        word = formula
    found = REFERENCE.fullmatch(word)
    group, style, *more = script.computes.get(found[1], ("all", OWN.get(found[1], ""))) if found else ("", "")
    if (
        found is None
        or style not in COMPUTES
        or group != "all"
        or more not in ([], ["thermo_temp"], ["NULL", "virial"])
    ):
        raise ValueError(word)
    if "virial" in more or (style == "pressure") < (found[2] is not None):
        raise ValueError(word)
    if found[2] is None:
        return COMPUTES[style]
    if not 1 <= int(found[2]) <= len(TENSOR):
        raise ValueError(word)
    return f"pressure_{TENSOR[int(found[2]) - 1]}"
