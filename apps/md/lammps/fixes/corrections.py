"""The fixes that change velocities after a step, or drive particles, as settings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hpckit.apps.md.lammps.fixes.styles import CORRECTIONS, DRIVEN, HEATS, SWAPS, Fix
from hpckit.apps.md.settings.formulas import is_number


def corrected(style: str, words: list[str]) -> dict[str, Any]:
    """What a fix does to velocities after a step, as settings. Raises `ValueError`."""
    known = ValueError(f"fix {style} {' '.join(words)}: known is {CORRECTIONS[style]}")
    if style == "momentum":
        found: dict[str, Any] = {"kind": "momentum", "every": int(words[0])}
        left = words[1:]
        while left:
            key = left.pop(0)
            if key == "linear" and len(left) > 2 and {*left[:3]} <= {"0", "1"}:
                found["linear"] = [axis for axis, flag in zip("xyz", left, strict=False) if flag == "1"]
                del left[:3]
            elif key in ("angular", "rescale"):
                found["angular" if key == "angular" else "energy"] = True
            else:
                raise known
        return found
    if style in HEATS:
        shifts = style == "ehex" and words[-1:] != ["hex"]
        words = words[:-1] if style == "ehex" and not shifts else words
        if len(words) not in (2, 9) or not words[0].isdigit() or not all(map(is_number, words[1:2] + words[3:])):
            raise known
        found = {"kind": "heat", "every": int(words[0]), "power": float(words[1])}
        found |= {"shifts": True} if shifts else {}
        return {**found, "within": [*map(float, words[3:])]} if words[2:] else found
    if style in SWAPS:
        axes = 1 if style == "thermal/conductivity" else 2
        options = dict(zip(words[axes + 2 :: 2], words[axes + 3 :: 2], strict=False))
        numbers = [words[0], words[axes + 1], options.get("swap", "1")] if len(words) > axes + 1 else [""]
        sound = all(map(str.isdigit, numbers)) and {*words[1 : axes + 1]} <= {"x", "y", "z"}
        target = options.get("vtarget", "INF")
        sound = sound and options.keys() <= {"swap", *["vtarget"] * (axes - 1)} and len(words) % 2 == axes % 2
        if not sound or not (target == "INF" or is_number(target)):
            raise known
        found = {"kind": "swap_energy" if axes == 1 else "swap_momentum", "every": int(words[0]), "across": words[axes]}
        found |= {"bins": int(numbers[1]), "pairs": int(numbers[2])}
        if axes == 2:
            found["dim"] = words[1]
        if target != "INF":
            found["speed"] = float(target)
        return found
    rescales = style == "temp/rescale"
    if len(words) != (5 if rescales else 3) or not all(map(is_number, words)):
        raise known
    first, last, *rest = map(float, words[1:] if rescales else words)
    found = {"kind": "rescale" if rescales else "berendsen", "temperature": first}
    if rescales:
        found |= {"every": int(words[0]), "window": rest[0], "fraction": rest[1]}
    else:
        found["damping"] = rest[0]
    return found if last == first else {**found, "ramp_to": last}


def correction(name: str, fix: Fix) -> dict[str, Any]:
    """A fix that changes velocities after a step, as settings."""
    style, *words = fix.words
    found = {**corrected(style, words), "group": fix.group, **({"name": name} if style in SWAPS else {})}
    return found if fix.counted is None else {**found, "counted": fix.counted}


def is_counted(fix: Fix) -> bool:
    """Whether a fix counts what it gives, or exchanges."""
    return fix.words[0] in SWAPS or (fix.words[0] == "langevin" and ("tally", "yes") in pairwise(fix.words[5:]))


def driven(words: list[str], spacing: Sequence[float]) -> dict[str, Any]:
    """What `fix move` drives, as settings. Raises `ValueError`."""
    style, *rest = words or [""]
    values, options = rest[:3], rest[3:]
    steps = (1.0, 1.0, 1.0) if options == ["units", "box"] else spacing
    sound = style == "linear" and len(values) == 3 and options in ([], ["units", "box"], ["units", "lattice"])
    if not sound or not all(word == "NULL" or is_number(word) for word in values) or {*values} == {"NULL"}:
        raise ValueError(f"fix {DRIVEN} {' '.join(words)}: known is linear VX VY VZ, numbers or NULL, and units")
    along = [axis for axis, word in zip("xyz", values, strict=True) if word != "NULL"]
    each = [0.0 if word == "NULL" else float(word) * float(s) for word, s in zip(values, steps, strict=True)]
    return {"velocity": each, "along": along}
