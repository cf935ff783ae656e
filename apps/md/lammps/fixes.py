"""The fixes of LAMMPS input scripts that move particles, as settings of the dynamics and the barostat."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from hpckit.apps.md.settings.formulas import is_number
from hpckit.md.motion.deformation import EDGES, STYLES
from hpckit.plan.particles.cell import TILTS

HOOVER = {
    "nvt": "temp T T DAMPING, tchain N and drag D",
    "nvt/sllod": "temp T T DAMPING, tchain N, drag D and psllod no",
    "npt": "temp T T DAMPING, iso, aniso, tri, x, y or z P P DAMPING, xy, xz or yz 0 0 DAMPING, couple, tchain N,"
    " pchain N, drag D, dilate all and mtk",
    "nph": "iso, aniso, tri, x, y or z P P DAMPING, xy, xz or yz 0 0 DAMPING, couple, pchain N, drag D, dilate all"
    " and mtk",
}
MOVERS = (*HOOVER, "langevin", "temp/csvr")  # with a state of their own
STREAMING = "nvt/sllod"
LIMITED = "nve/limit"
FIXES = ("nve", LIMITED, "nve/noforce", *MOVERS)
PLAIN = ("nve", LIMITED, "nve/sphere", "nve/noforce")  # velocity Verlet alone
THERMAL = ("nvt", "langevin", "temp/csvr")  # hold a temperature, each of a group
HELD = {"temp", "iso", "aniso", "tri", *EDGES, *TILTS}  # two values, and a damping
OPTIONS = {"nvt": {"tchain", "drag"}, "nph": {"couple", "mtk", "pchain", "drag", "dilate"}}
OPTIONS["npt"] = OPTIONS["nvt"] | OPTIONS["nph"]
OPTIONS[STREAMING] = OPTIONS["nvt"] | {"psllod"}
RELAX = "box/relax"
HOLDS = ("shake", "rattle")
GRAVITY = "gravity"
WALLS = {"wall/lj93": "lj93", "wall/lj126": "lj126", "wall/harmonic": "harmonic"}
REFLECTS = "wall/reflect"
OUTSIDE = (GRAVITY, *WALLS, REFLECTS)  # act from outside
PUSHES = (  # on groups
    *("setforce", "addforce", "aveforce", "spring", "spring/self", "viscous", "efield", "indent", "enforce2d"),
)
UNMOVED, DRIVEN = "nve/noforce", "move"  # particles that move whatever their forces
WEAK = "press/berendsen"
SHIFTS = "recenter"
SAMPLING = {"ave/time": 3, "ave/chunk": 3, "ave/correlate": 3, "vector": 1}  # and their numbers before what they take
ADAPTS = "adapt"
MEASURES = ("ave/", "balance", "print", "store/")  # fixes that measure, print, or balance ranks
RIGID = ("rigid", "rigid/small", "rigid/nve", "rigid/nve/small")
CORRECTIONS = {
    "temp/rescale": "N T T WINDOW FRACTION",
    "temp/berendsen": "T T DAMPING",
    "momentum": "N and linear X Y Z, angular, rescale",
    "heat": "N FLUX, and region of a block",
    "thermal/conductivity": "N AXIS NBIN, and swap",
    "viscosity": "N DIM AXIS NBIN, swap, and vtarget",
}
SWAPS = ("thermal/conductivity", "viscosity")  # which count what they exchange
OF_GROUPS = ("nve", LIMITED, UNMOVED, DRIVEN, "nvt", "langevin", "temp/csvr", *CORRECTIONS)

Settings = Iterator[tuple[str, Any, int]]  # key, value, line


class Fix(NamedTuple):
    """A fix: its line, its style with the words behind it, and a number of its own: it may come again in a loop."""

    line: int
    words: list[str]
    number: int
    group: str = "all"
    counted: dict[str, Any] | None = None  # by the temperature of fix_modify


class SoftRamp(NamedTuple):
    """A fix adapt of soft pairs: steps between two changes, and the strength: at both ends of a run, or at step 0 and
    how much it grows in a step.
    """

    every: int
    first: float
    last: float
    by_step: bool

    def of(self, given: dict[str, Any], steps: int, now: int | None) -> dict[str, Any]:
        """The settings of pairs that are changed over so many steps from now on. Raises `ValueError`."""
        pairs = [dict(pair) for pair in given.get("pairs", [])]
        reaches = {pair.pop("parameters", given.get("parameters", [0.0]))[-1] for pair in pairs}
        if given.get("kind") != "soft" or len(reaches) > 1:
            raise ValueError(f"fix {ADAPTS}: known of pair_style soft with one cutoff")
        first, last = self.first, self.last
        if self.by_step:
            if now is None:
                raise ValueError(f"fix {ADAPTS}: the step is not known after a minimization")
            first, last = self.first + self.last * now, self.first + self.last * (now + steps)
        reach = reaches.pop()
        apart = [pair for pair in pairs if pair.keys() > {"types"}]
        ends = {"parameters": [first, reach], "ramp_to": [last, reach], "ramp_every": self.every}
        return {**given, **ends, "pairs": apart}


def ramp_of(words: Sequence[str]) -> SoftRamp:
    """A fix adapt from its words, in which a variable is A..B, A:B or a number. Raises `ValueError`."""
    every, what, value, more = "".join(words[:1]), list(words[1:6]), "".join(words[6:7]), [*words[7:]]
    ends = value.split("..") if ".." in value else value.split(":")
    sound = every.isdigit() and int(every) > 0 and what == ["pair", "soft", "a", "*", "*"]
    if not sound or more not in ([], ["reset", "no"], ["scale", "no"]) or not all(map(is_number, ends)):
        known = "N pair soft a * * v_NAME, of a variable ramp(A,B) or one that grows evenly with the step"
        raise ValueError(f"fix {ADAPTS} {' '.join(words)}: known is {known}")
    first, last = (*map(float, ends), 0.0)[:2]
    return SoftRamp(int(every), first, last, ".." not in value)


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
        tuple(_eased(words))
    elif style not in (*FIXES, RELAX, *RIGID):
        moving = (*FIXES, DRIVEN, RELAX, WEAK, *RIGID, "deform", *HOLDS)
        every = ", ".join((*moving, *OUTSIDE, *PUSHES, *CORRECTIONS))
        raise ValueError(f"fix {name} all {style}: known are {every}")
    else:
        tuple(_relaxed(words) if style == RELAX else _moved(style, words))


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
        for key, value in _relaxed(words) if words else ():
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
    for key, value in _eased(words) if words else ():
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
        yield "dynamics.corrections", [_correction(*one) for one in each.items()], max(e.line for e in each.values())


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


def is_counted(fix: Fix) -> bool:
    """Whether a fix counts what it gives, or exchanges."""
    return fix.words[0] in SWAPS or (fix.words[0] == "langevin" and fix.words[-2:] == ["tally", "yes"])


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


def _eased(words: list[str]) -> Iterator[tuple[str, Any]]:
    """What `fix press/berendsen` does with the box."""
    given = _options(words)
    held = given.keys() & {"iso", "aniso", *EDGES}
    values = [given[key] for key in sorted(held)]
    sound = given.keys() <= {*held, "couple", "modulus", "dilate"} and bool(held)
    sound = sound and (len(held) == 1 or held <= {*EDGES}) and given.get("dilate", ["all"]) == ["all"]
    if not sound or any(len(each) != 3 or each != values[0] for each in values):
        raise ValueError(
            f"fix {WEAK} {' '.join(words)}: known are iso, aniso, or x, y, z with one P P DAMPING, couple, modulus,"
            " dilate all"
        )
    coupled = given.get("couple", ["none"])[0]
    yield "barostat.kind", "berendsen"
    yield from _ramp("barostat", "pressure", values[0])
    yield "barostat.damping", float(values[0][2])
    yield "barostat.dims", sorted(held) if held <= {*EDGES} else ["x", "y", "z"]
    yield "barostat.coupled", "all" if "iso" in held or coupled == "xyz" else coupled
    yield "barostat.modulus", float(given.get("modulus", ["10.0"])[0])


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
    if style == "heat":
        if len(words) not in (2, 9) or not all(map(is_number, words[:2] + words[3:])):
            raise known
        found = {"kind": "heat", "every": int(words[0]), "power": float(words[1])}
        return {**found, "within": [*map(float, words[3:])]} if words[2:] else found
    if style in SWAPS:
        axes = 1 if style == "thermal/conductivity" else 2
        options = dict(zip(words[axes + 2 :: 2], words[axes + 3 :: 2], strict=False))
        numbers = [words[0], words[axes + 1], options.get("swap", "1")] if len(words) > axes + 1 else [""]
        sound = all(map(str.isdigit, numbers)) and {*words[1 : axes + 1]} <= {"x", "y", "z"}
        if not sound or not options.keys() <= {"swap", "vtarget"} or len(words) % 2 != axes % 2:
            raise known
        found = {"kind": "swap_energy" if axes == 1 else "swap_momentum", "every": int(words[0]), "across": words[axes]}
        found |= {"bins": int(numbers[1]), "pairs": int(numbers[2])}
        if axes == 2:
            found["dim"] = words[1]
        if options.get("vtarget", "INF") != "INF":
            found["speed"] = float(options["vtarget"])
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


def _correction(name: str, fix: Fix) -> dict[str, Any]:
    style, *words = fix.words
    found = {**corrected(style, words), "group": fix.group, **({"name": name} if style in SWAPS else {})}
    return found if fix.counted is None else {**found, "counted": fix.counted}


def _moved(style: str, words: list[str]) -> Iterator[tuple[str, Any]]:
    """What a fix says that moves the particles, or holds their temperature."""
    if style in RIGID:
        if words != ["molecule"]:
            raise ValueError(f"fix {style} {' '.join(words)}: known is molecule alone")
        yield "constraints.bodies", "molecules"
    elif style in HOOVER:
        yield from _hoover(style, words)
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


def _relaxed(words: list[str]) -> Iterator[tuple[str, Any]]:
    """What `fix box/relax` does with the box."""
    given = _options(words)
    whole, tilts = given.keys() & {"iso", "aniso", "tri"}, sorted(given.keys() & {*TILTS})
    named = sorted(given.keys() & {"iso", "aniso", "tri", *EDGES})
    sound = given.keys() <= {*named, *tilts, "couple", "nreset", "vmax"} and {*map(len, given.values())} == {1}
    if not sound or not named or (whole and len(named) > 1) or (tilts and whole):
        raise ValueError(
            f"fix {RELAX} {' '.join(words)}: known are iso, aniso, tri, or x, y, z with one P, and xy, xz, yz 0,"
            " couple, vmax, nreset"
        )
    pressures = {float(given[key][0]) for key in named}
    if len(pressures) > 1 or any(float(given[key][0]) for key in tilts):
        raise ValueError(f"fix {RELAX}: one pressure for all dims, and 0 for tilts here")
    coupled = given.get("couple", ["none"])[0]
    yield "barostat.kind", "relax"
    yield "barostat.pressure", pressures.pop()
    yield "barostat.dims", ["x", "y", "z"] if whole else named
    yield "barostat.coupled", "all" if "iso" in whole or coupled == "xyz" else coupled
    if tilts or "tri" in whole:
        yield "barostat.tilts", tilts or [*TILTS]


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


def deformed(words: list[str], unit: float) -> dict[str, Any]:
    """The section deform of what `fix deform` changes; unit: the length of a lattice cell. Raises `ValueError`."""
    options = {"remap": ("x", "v"), "flip": ("yes",), "units": ("box", "lattice")}
    every, left, found, remap = int(words[0]), words[1:], list[dict[str, Any]](), "x"
    while left:
        name = left.pop(0)
        if name in options:
            if not left or left[0] not in options[name]:
                known = " or ".join(options[name])
                raise ValueError(f"fix deform … {name} {' '.join(left[:1])}: known is {name} {known}")
            value = left.pop(0)
            unit, remap = 1.0 if value == "box" else unit, value if name == "remap" else remap
            continue
        style = left.pop(0) if left else ""
        if name not in (*EDGES, *TILTS) or style not in STYLES:
            raise ValueError(f"fix deform … {name} {style}: known are x, y, z, xy, xz, yz by {', '.join(STYLES)}")
        count = STYLES[style][name in TILTS]
        if len(left) < count or not all(map(is_number, left[:count])):
            raise ValueError(f"fix deform … {name} {style}: {count} numbers follow")
        found.append({"of": name, "style": style, "values": [float(word) for word in left[:count]]})
        del left[:count]
    for each in found:
        lengths = {"final": 2, "delta": 2, "vel": 1, "wiggle": 1}.get(each["style"], 0)  # the others are pure numbers
        each["values"] = [v * unit if k < lengths else v for k, v in enumerate(each["values"])]
    return {"every": every, "changes": found} | ({} if remap == "x" else {"remap": remap})


def _thermostat(style: str, words: list[str]) -> Iterator[tuple[str, Any]]:
    if len(words) != 4 and words[4:] not in (["zero", "no"], ["tally", "yes"], ["tally", "no"]):
        raise ValueError(f"fix {style} {' '.join(words)}: known are T T DAMPING SEED, and tally")
    yield "dynamics.seed", int(words[3])
    yield "dynamics.kind", {"langevin": "langevin", "temp/csvr": "bussi"}[style]
    yield from _ramp("dynamics", "temperature", words)
    yield "dynamics.damping", float(words[2])


def _hoover(style: str, words: list[str]) -> Iterator[tuple[str, Any]]:
    """The chains of Nosé and Hoover; a damping of LAMMPS times 2 pi is the period that hpckit takes."""
    given = _options(words)
    held = HELD & given.keys()
    boxless = style in ("nvt", STREAMING)
    allowed = OPTIONS[style] | (HELD if style == "npt" else {"temp"} if boxless else HELD - {"temp"})
    sizes = all(len(values) == (3 if key in HELD else 1) for key, values in given.items())
    sizes = sizes and given.get("dilate", ["all"]) == ["all"]
    drag = float(given.get("drag", ["0"])[0]) if sizes else 0.0
    sizes = sizes and given.get("psllod", ["no"]) == ["no"]
    if not (given.keys() <= allowed and sizes and held) or ("temp" in held) == (style == "nph"):
        raise ValueError(f"fix {style} {' '.join(words)}: known are {HOOVER[style]}")
    if "temp" in held:
        yield "dynamics.kind", "nose_hoover"
        yield from _ramp("dynamics", "temperature", given["temp"])
        yield "dynamics.damping", 2 * math.pi * float(given["temp"][2])
        yield "dynamics.chain", int(given.get("tchain", ["1" if style == STREAMING else "3"])[0])
        if drag:
            yield "dynamics.drag", drag
    if style == STREAMING:
        yield "dynamics.sllod", True
    if not boxless:
        yield from _barostat(style, given, held - {"temp"})


def _barostat(style: str, given: dict[str, list[str]], held: set[str]) -> Iterator[tuple[str, Any]]:
    tilts = sorted(held & {*TILTS})
    held = held - {*TILTS}
    whole, values = held & {"iso", "aniso", "tri"}, [given[key] for key in sorted(held)]
    if any(not float(s) == float(e) == 0.0 or (values and d != values[0][2]) for s, e, d in map(given.get, tilts)):  # type: ignore[misc]
        raise ValueError(f"fix {style}: {', '.join(tilts)} 0 0 and the damping of the edges are known")
    if not held or (tilts and whole) or (whole and len(held) > 1) or any(each != values[0] for each in values):
        raise ValueError(f"fix {style}: one pressure and one damping for all dims here, by iso, aniso, or x, y, z")
    coupled = given.get("couple", ["none"])[0]
    dims = {"x", "y", "z"} if whole else held
    if coupled not in ("none", "xyz", "xy", "xz", "yz") or not (coupled == "none" or {*coupled} <= dims):
        raise ValueError(f"fix {style}: couple {coupled} does not go with {' '.join(sorted(held))}")
    yield "barostat.kind", "mtk"
    yield from _ramp("barostat", "pressure", values[0])
    yield "barostat.damping", 2 * math.pi * float(values[0][2])
    yield "barostat.dims", sorted(dims)
    yield "barostat.coupled", "all" if "iso" in held or coupled == "xyz" else coupled
    if tilts or "tri" in whole:
        yield "barostat.tilts", tilts or [*TILTS]
    if "drag" in given:
        yield "barostat.drag", float(given["drag"][0])
    yield "barostat.chain", int(given.get("pchain", ["3"])[0])
    yield "barostat.correction", given.get("mtk", ["yes"])[0] == "yes"


def _options(words: list[str]) -> dict[str, list[str]]:
    """The keywords of a fix, each with the values that follow it."""
    found: dict[str, list[str]] = {}
    last: list[str] = []
    for word in words:
        if is_number(word) or (found and [*found][-1] in ("couple", "mtk", "psllod") and not last):
            last.append(word)
        else:
            last = found[word] = []
    return found


def _ramp(section: str, name: str, words: list[str]) -> Iterator[tuple[str, Any]]:
    """The first of two numbers, and the second where the one leads to the other."""
    first, last = map(float, words[:2])
    yield f"{section}.{name}", first
    if last != first:
        yield f"{section}.ramp_to", last
