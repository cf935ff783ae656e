"""The fixes of LAMMPS input scripts that move particles, as settings of the dynamics and the barostat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hpckit.apps.md.lammps.fixes.boxes import deformed, eased, hoover, ramped, relaxed
from hpckit.apps.md.lammps.fixes.corrections import corrected, correction, driven, is_counted
from hpckit.apps.md.lammps.fixes.styles import (
    CORRECTIONS,
    DRIVEN,
    FIXES,
    HOLDS,
    HOOVER,
    LIMITED,
    OUTSIDE,
    PLAIN,
    PUSHES,
    RELAX,
    RIGID,
    THERMAL,
    WEAK,
    Fix,
    Settings,
)
from hpckit.apps.md.settings.formulas import is_number


def require_known(name: str, style: str, words: list[str]) -> None:
    """Raise `ValueError` for a fix that hpckit has not, or words of one that it cannot read."""
    if style in HOLDS:
        shaken(words, style)
    elif style == "deform":
        deformed(words, 1.0)
    elif style in CORRECTIONS:
        corrected(style, words)
    elif style == DRIVEN:
        driven(words, (1.0, 1.0, 1.0))
    elif style == WEAK:
        tuple(eased(words))
    elif style not in (*FIXES, RELAX, *RIGID):
        moving = (*FIXES, DRIVEN, RELAX, WEAK, *RIGID, "deform", *HOLDS)
        every = ", ".join((*moving, *OUTSIDE, *PUSHES, *CORRECTIONS))
        raise ValueError(f"fix {name} all {style}: known are {every}")
    else:
        tuple(relaxed(words) if style == RELAX else _moved(style, words))


def motion_of(given: dict[str, Fix], minimizes: bool, unit: float, spacing: Sequence[float]) -> Settings:
    """The settings of a script's fixes, given by name with their lines and words; where it minimizes, those of the
    box alone, since no other fix has an effect there. unit: the length of a lattice cell; spacing: what counts as one
    along x, y and z. Raises `ValueError`.
    """
    fixes: dict[str, tuple[int, list[str]]] = {}
    for fix in given.values():
        style, *rest = fix.words
        if style in (*CORRECTIONS, DRIVEN):
            continue
        if style in fixes and style not in (*PLAIN, *THERMAL):
            raise ValueError(f"fix {style} comes twice, in lines {fixes[style][0]} and {fix.line}: give one")
        fixes[style] = fix.line, rest
    line, words = fixes.pop(RELAX, (0, []))
    if minimizes:
        for key, value in relaxed(words) if words else ():
            yield key, value, line
        yield from _held(fixes)
        return
    if words:
        raise ValueError(f"fix {RELAX} goes with minimize: unfix it before a run")
    yield from _held(fixes)
    line, words = fixes.pop("deform", (0, []))
    if words:
        for key, value in deformed(words, unit).items():
            yield f"deform.{key}", value, line
    line, words = fixes.pop(WEAK, (0, []))
    for key, value in eased(words) if words else ():
        yield key, value, line
    alone = [style for style in fixes if style in (*HOOVER, *RIGID)]
    beside = fixes.keys() - {*PLAIN, *THERMAL} if "nvt" in alone else fixes.keys() - {*alone[:1]}
    beside -= {"langevin"} if "nph" in alone else set()
    if alone and beside:
        raise ValueError(f"fix {alone[0]} moves the particles by itself: no other fix may move them")
    yield from _groups(given)
    if LIMITED in fixes and len([style for style in (*PLAIN, *HOOVER, *RIGID) if style in fixes]) > 1:
        raise ValueError(f"fix {LIMITED}: no other fix may move particles beside it")
    driving = [fix for fix in given.values() if fix.words[0] == DRIVEN]
    if not alone and not driving and not {*PLAIN} & fixes.keys():
        raise ValueError(f"no fix moves the particles: fix {', '.join(('nve', *HOOVER, *RIGID))}")
    thermal = [(name, fix) for name, fix in given.items() if fix.words[0] in THERMAL]
    for style, (line, words) in fixes.items():
        if style not in THERMAL:
            for key, value in _moved(style, words):
                yield key, value, line
    for name, fix in thermal[:1]:
        for key, value in (*_moved(fix.words[0], fix.words[1:]), *_held_part(name, fix)):
            yield key, value, fix.line
    if thermal[1:]:
        yield "dynamics.also", [_bath(name, fix) for name, fix in thermal[1:]], thermal[-1][1].line
    if driving:
        each_driven = [{**driven(fix.words[1:], spacing), "group": fix.group} for fix in driving]
        yield "dynamics.drives", each_driven, driving[-1].line
    each = {name: fix for name, fix in given.items() if fix.words[0] in CORRECTIONS}
    if each:
        yield "dynamics.corrections", [correction(*one) for one in each.items()], max(e.line for e in each.values())


def _groups(given: dict[str, Fix]) -> Settings:
    """The groups that move, and the one whose temperature is held."""
    moving = [fix for fix in given.values() if fix.words[0] in (*PLAIN, DRIVEN, *HOOVER)]
    names = [fix.group for fix in moving]
    if len(moving) > 1 and ("all" in names or len({*names}) < len(names)):
        where = f"in lines {' and '.join(str(fix.line) for fix in moving)}"
        raise ValueError(f"fix {moving[-1].words[0]}: particles of {', '.join(names)} would be moved twice, {where}")
    if "all" not in names and names:
        yield "dynamics.moves", names, moving[0].line
    holding = [fix for fix in given.values() if fix.words[0] in THERMAL]
    if holding and holding[0].group != "all":
        yield "dynamics.group", holding[0].group, holding[0].line


def _held_part(name: str, fix: Fix) -> Iterator[tuple[str, Any]]:
    """The block in which a bath acts, and its name where it counts what it gives."""
    if fix.counted is not None:
        yield "dynamics.within", fix.counted["within"]
    if is_counted(fix):
        yield "dynamics.name", name


def _bath(name: str, fix: Fix) -> dict[str, Any]:
    """A thermostat beside the first one, as settings."""
    found = [*_moved(fix.words[0], fix.words[1:]), *_held_part(name, fix)]
    return {**{key.removeprefix("dynamics."): value for key, value in found}, "group": fix.group}


def _moved(style: str, words: list[str]) -> Iterator[tuple[str, Any]]:
    """What a fix says that moves the particles, or holds their temperature."""
    if style in RIGID:
        if words != ["molecule"]:
            raise ValueError(f"fix {style} {' '.join(words)}: known is molecule alone")
        yield "constraints.bodies", "molecules"
    elif style in HOOVER:
        yield from hoover(style, words)
    elif style == LIMITED:
        if len(words) != 1 or not is_number(words[0]):
            raise ValueError(f"fix {style} {' '.join(words)}: known is a length")
        yield "dynamics.longest", float(words[0])
    elif style not in PLAIN:
        yield from _thermostat(style, words)


def _held(fixes: dict[str, tuple[int, list[str]]]) -> Settings:
    """Take out the fixes that hold distances: their settings. In a minimization springs stand for them."""
    for style in HOLDS:
        line, words = fixes.pop(style, (0, []))
        for key, kinds in shaken(words, style).items() if words else ():
            yield f"constraints.{key}", kinds, line
        if words:
            yield "constraints.foresee", False, line
            if style == "rattle":
                yield "constraints.velocities", True, line


def shaken(words: list[str], style: str = "shake") -> dict[str, Any]:
    """What `fix shake` or `fix rattle` holds, as settings; tolerance and iterations are our own. Raises
    `ValueError`.
    """
    found: dict[str, Any] = {}
    keys, key = {"b": "bonds", "a": "angles", "t": "types", "m": "masses"}, ""
    for word in words[3:]:
        if word in keys:
            key = word
            found[keys[key]] = []
        elif key in keys and word.isdigit() and key != "m":
            found[keys[key]].append(int(word))
        elif key == "m" and is_number(word):
            found["masses"].append(float(word))
        elif word == "kbond":
            key = word
        elif key == "kbond" and is_number(word) and "stiffness" not in found:
            found["stiffness"] = float(word)
        else:
            known = "bonds (b), angles (a), types (t), masses (m) and kbond K"
            raise ValueError(f"fix {style} … {word}: known are TOLERANCE ITERATIONS N, {known}")
    if len(words) < 5 or not any(found.get(name) for name in ("bonds", "types", "masses")):
        raise ValueError(
            f"fix {style} {' '.join(words)}: known are TOLERANCE ITERATIONS N b TYPES a TYPES t TYPES m MASSES"
        )
    return found


def _thermostat(style: str, words: list[str]) -> Iterator[tuple[str, Any]]:
    options = dict(zip(words[4::2], words[5::2], strict=False))
    known = () if style == "temp/csvr" else ("zero", "tally")
    if len(words) < 4 or len(words) % 2 or not {*options} <= {*known} or not {*options.values()} <= {"yes", "no"}:
        raise ValueError(f"fix {style} {' '.join(words)}: known are T T DAMPING SEED{', zero, tally' if known else ''}")
    if options.get("zero") == "yes":
        yield "dynamics.balanced", True
    yield "dynamics.seed", int(words[3])
    yield "dynamics.kind", {"langevin": "langevin", "temp/csvr": "bussi"}[style]
    yield from ramped("dynamics", "temperature", words)
    yield "dynamics.damping", float(words[2])
