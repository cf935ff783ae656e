"""The fixes of LAMMPS input scripts that act from outside, gravity, walls and forces on groups, as settings of the
dynamics.

LAMMPS leaves their energy out of the potential energy unless `fix_modify … energy yes` counts it; here that of gravity
and walls always counts, and that of others never.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from hpckit.apps.md.lammps.fixes.styles import GRAVITY, PUSHES, REFLECTS, UNMOVED, WALLS, Fix, Settings
from hpckit.apps.md.settings.formulas import is_number

FACES = {
    "xlo": ("x", "low"),
    "xhi": ("x", "high"),
    "ylo": ("y", "low"),
    "yhi": ("y", "high"),
    "zlo": ("z", "low"),
    "zhi": ("z", "high"),
}
OPTIONS = {"units": ("lattice", "box"), "fld": ("no",), "pbc": ("no",)}  # of walls
AXES = ("xyz", "xy", "yz", "xz", "x", "y", "z")  # of a spring/self
ANGLES = {"vector": 3, "chute": 1, "spherical": 2}  # numbers of a direction


class Scales(NamedTuple):
    """What the numbers of a script mean: what counts as one along x, y and z, the time step, how many types there are,
    the energy of mass times velocity squared, and the force of a unit of `efield` on a unit charge.
    """

    spacing: np.ndarray = np.ones(3)
    dt: float = 1.0
    types: int = 1
    energy: float = 1.0
    pull: float = 1.0


def outside_of(given: Iterable[Fix], minimizes: bool, scales: Scales) -> Settings:
    """The settings of all such fixes; a minimization has no gravity, mirrors and friction."""
    spacing = scales.spacing
    given = [*given]
    fields = [fix for fix in given if fix.words[0] == GRAVITY and not minimizes]
    walls = [fix for fix in given if fix.words[0] in WALLS]
    mirrors = [fix for fix in given if fix.words[0] == REFLECTS and not minimizes]
    if fields:
        each = [acceleration(fix.words[1:]) for fix in fields]
        yield (
            "dynamics.field",
            [math.fsum(values) / scales.energy for values in zip(*each, strict=True)],
            fields[-1].line,
        )
    if walls:
        found = [_of_group(wall, fix.group) for fix in walls for wall in walls_of(fix.words, spacing)]
        yield "dynamics.walls", found, walls[-1].line
    if mirrors:
        found = [_of_group(each, fix.group) for fix in mirrors for each in mirrors_of(fix.words[1:], spacing)]
        yield "dynamics.mirrors", found, mirrors[-1].line
    pushes = [fix for fix in given if fix.words[0] in PUSHES and fix.words[0] != "enforce2d"]
    pushes = [fix for fix in pushes if not (minimizes and fix.words[0] == "viscous")]
    free = [fix for fix in given if fix.words[0] == UNMOVED and not minimizes]
    if pushes or free:
        first = next((fix.number for fix in pushes if fix.words[0] in ("setforce", "aveforce")), math.inf)
        late = [fix.words[0] for fix in (*fields, *walls) if fix.number > first]
        if late:
            raise ValueError(f"fix {late[0]}: give it before fix setforce and aveforce")
        acting = [{**pushed(fix.words[0], fix.words[1:], scales), "group": fix.group} for fix in pushes]
        acting += [{"kind": "set", "group": fix.group} for fix in free]
        yield "dynamics.pushes", acting, [*pushes, *free][-1].line


def _of_group(found: dict[str, Any], group: str) -> dict[str, Any]:
    return found if group == "all" else {**found, "group": group}


def require_readable(style: str, words: list[str]) -> None:
    """Raise `ValueError` for words of such a fix that hpckit cannot read."""
    if style in PUSHES:
        pushed(style, words, Scales())
    elif style == GRAVITY:
        acceleration(words)
    elif style == REFLECTS:
        mirrors_of(words, np.ones(3))
    else:
        walls_of([style, *words], np.ones(3))


def indenter(words: list[str], spacing: np.ndarray, dt: float) -> dict[str, Any]:
    """What `fix indent` says, as settings: a place that is a variable has its value and what it grows by in a step, as
    A:B, which are lengths. Raises `ValueError`.
    """
    known = "K and sphere X Y Z R, cylinder DIM A B R, plane DIM PLACE lo or hi; side in or out; units"
    refused = ValueError(f"fix indent {' '.join(words)}: known are {known}, with variables that grow evenly with step")
    stiffness, shape, *rest = words
    options = dict(zip(rest[4 if shape != "plane" else 3 :: 2], rest[5 if shape != "plane" else 4 :: 2], strict=False))
    given, left = (rest[:3], rest[3:]) if shape == "plane" else (rest[:4], rest[4:])
    axis = given.pop(0) if shape in ("cylinder", "plane") and given else "z"
    side = given.pop() if shape == "plane" and given else ""
    sound = is_number(stiffness) and axis in ("x", "y", "z") and len(left) == 2 * len(options)
    sound = sound and len(given) == {"sphere": 4, "cylinder": 3, "plane": 1}.get(shape, -1)
    sound = sound and (shape != "plane" or side in ("lo", "hi")) and options.keys() <= {"side", "units"}
    sound = sound and options.get("side", "out") in ("in", "out") and options.get("units", "box") in ("box", "lattice")
    if not sound or not all(is_number(part) for word in given for part in word.split(":")):
        raise refused
    steps = np.ones(3) if options.get("units") == "box" else spacing
    dims = {"sphere": [0, 1, 2], "plane": ["xyz".index(axis)]}.get(shape, [k for k in range(3) if "xyz"[k] != axis])
    place, moving = [0.0] * 3, [0.0] * 3
    for dim, word in zip(dims, given, strict=False):
        value, _, growth = word.partition(":")
        place[dim] = float(value) * (1.0 if growth else float(steps[dim]))
        moving[dim] = float(growth or 0.0) / dt
    found: dict[str, Any] = {"kind": shape, "stiffness": float(stiffness), "place": place, "moving": moving}
    if shape != "plane":
        radius, _, growth = given[-1].partition(":")
        if growth and float(growth):
            raise refused
        found["length"] = float(radius) * (1.0 if growth else float(steps[0]))
    return {**found, "axis": axis, "inside": options.get("side") == "in" or side == "hi"}


def pushed(style: str, words: list[str], scales: Scales) -> dict[str, Any]:
    """What a fix says that acts on a group, as settings. Raises `ValueError`."""
    if style == "viscous":
        return _friction(words, scales.types)
    if style == "spring/self":
        if not words or not is_number(words[0]) or words[1:] not in ([], *([each] for each in AXES)):
            raise ValueError(f"fix {style} {' '.join(words)}: known are K and {', '.join(AXES)}")
        return {"kind": "leash", "stiffness": float(words[0]), "along": [*(words[1] if words[1:] else "xyz")]}
    if style == "efield":
        if len(words) != 3 or not all(map(is_number, words)):
            raise ValueError(f"fix {style} {' '.join(words)}: known are EX EY EZ, numbers")
        return {"kind": "charges", "force": [scales.pull * float(word) for word in words]}
    if style == "enforce2d" and not words:
        return {}
    if style == "indent":
        return indenter(words, scales.spacing, scales.dt)
    first, numbers = (words[:2], words[2:]) if style == "spring" else ([], words)
    if style == "addforce" and numbers[3:] == ["every", "1"]:
        numbers = numbers[:3]
    free = [word == "NULL" and style != "addforce" and k < 3 for k, word in enumerate(numbers)]
    sound = len(numbers) == (4 if first else 3)
    sound = sound and all(none or is_number(word) for none, word in zip(free, numbers, strict=True))
    sound = sound and (not first or (first[0] == "tether" and is_number(first[-1])))
    if style == "enforce2d" or not sound:
        known = {
            "enforce2d": "no words",
            "addforce": "FX FY FZ, numbers",
            "spring": "tether K X Y Z R0, with NULL for a dim that is free",
        }.get(style, "FX FY FZ, numbers or NULL")
        raise ValueError(f"fix {style} {' '.join(words)}: known are {known}")
    values = [0.0 if none else float(word) for none, word in zip(free, numbers, strict=True)]
    along = [axis for axis, none in zip("xyz", free, strict=False) if not none]
    if style == "spring":
        spring = {"kind": "tether", "stiffness": float(first[1]), "along": along}
        return {**spring, "place": values[:3], "length": values[3]}
    kind = {"setforce": "set", "addforce": "add", "aveforce": "average"}[style]
    return {"kind": kind, "force": values, "along": along}


def _friction(words: list[str], types: int) -> dict[str, Any]:
    """What `fix viscous` says, as settings."""
    left, scales = words[1:], [1.0] * types
    while left[:1] == ["scale"] and len(left) > 2 and left[1].isdigit() and is_number(left[2]):
        if types >= int(left[1]) > 0:
            scales[int(left[1]) - 1] = float(left[2])
        left = left[3:]
    if left or not words or not is_number(words[0]):
        raise ValueError(f"fix viscous {' '.join(words)}: known are GAMMA and scale TYPE RATIO")
    return {"kind": "friction", "strengths": [float(words[0]) * each for each in scales]}


def acceleration(words: list[str]) -> list[float]:
    """What `fix gravity` says, in force per mass. Raises `ValueError`."""
    size, style, *rest = words if len(words) > 1 else ("", "")
    if not all(map(is_number, (size, *rest))) or len(rest) != ANGLES.get(style):
        raise ValueError(
            f"fix {GRAVITY} {' '.join(words)}: known are SIZE and vector X Y Z, chute ANGLE, spherical PHI THETA"
        )
    numbers = [float(word) for word in rest]
    if style == "vector":
        length = math.hypot(*numbers)
        if not length:
            raise ValueError(f"fix {GRAVITY} {' '.join(words)}: the direction has no length")
        toward = [number / length for number in numbers]
    elif style == "chute":
        angle = math.radians(numbers[0])
        toward = [math.sin(angle), 0.0, -math.cos(angle)]
    else:
        phi, theta = map(math.radians, numbers)
        toward = [math.sin(theta) * math.cos(phi), math.sin(theta) * math.sin(phi), math.cos(theta)]
    return [float(size) * part for part in toward]


def walls_of(words: list[str], spacing: np.ndarray) -> list[dict[str, Any]]:
    """What a fix of a wall says, its style and its words, as settings. Raises `ValueError`."""
    style, *left = words
    found = list[dict[str, Any]]()
    box, left = _without_options(left)
    while left:
        name = left.pop(0)
        if name not in FACES or len(left) < 4 or not all(map(is_number, left[1:4])) or not _is_place(left[0]):
            known = f"{', '.join(FACES)} with EDGE or a place, EPSILON SIGMA CUTOFF; units; fld no; pbc no"
            raise ValueError(f"fix {style} … {' '.join([name, *left[:4]])}: known are {known}")
        (dim, end), values = FACES[name], [float(word) for word in left[1:4]]
        law = {} if style == "wall/lj93" else {"law": WALLS[style]}
        where = _place(left[0], dim, np.ones(3) if box else spacing)
        if style == "wall/harmonic":
            values[1] = 1.0  # it has no diameter
        numbers = dict(zip(("epsilon", "sigma", "cutoff"), values, strict=True))
        found.append({"dim": dim, "end": end, **law, **where, **numbers})
        del left[:4]
    if not found:
        raise ValueError(f"fix {style}: no wall is named; known are {', '.join(FACES)}")
    return found


def mirrors_of(words: list[str], spacing: np.ndarray) -> list[dict[str, Any]]:
    """What `fix wall/reflect` says, as settings. Raises `ValueError`."""
    box, left = _without_options(words)
    if not left or len(left) % 2 or not {*left[::2]} <= {*FACES} or not all(map(_is_place, left[1::2])):
        known = f"{', '.join(FACES)} with EDGE or a place; units"
        raise ValueError(f"fix {REFLECTS} {' '.join(words)}: known are {known}")
    steps = np.ones(3) if box else spacing
    ends = ((*FACES[name], word) for name, word in zip(left[::2], left[1::2], strict=True))
    return [{"dim": dim, "end": end, **_place(word, dim, steps)} for dim, end, word in ends]


def _is_place(word: str) -> bool:
    return word == "EDGE" or is_number(word)


def _place(word: str, dim: str, steps: np.ndarray) -> dict[str, float]:
    return {} if word == "EDGE" else {"place": float(word) * float(steps["xyz".index(dim)])}


def _without_options(words: list[str]) -> tuple[bool, list[str]]:
    """Whether lengths are in units of the box, and the words without options."""
    left, box, found = list(words), False, list[str]()
    while left:
        name = left.pop(0)
        if name in OPTIONS and left and left[0] in OPTIONS[name]:
            box = left.pop(0) == "box" or (box and name != "units")
        else:
            found.append(name)
    return box, found
