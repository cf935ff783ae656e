"""The fixes that change the box: pressures, programs, and boxes that relax, as settings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from hpckit.apps.md.lammps.fixes.styles import HELD, HOOVER, OPTIONS, RELAX, STREAMING, WEAK
from hpckit.apps.md.settings.formulas import is_number
from hpckit.md.motion.deformation import EDGES, STYLES
from hpckit.plan.particles.cell import TILTS


def hoover(style: str, words: list[str]) -> Iterator[tuple[str, Any]]:
    """The chains of Nosé and Hoover; a damping of LAMMPS times 2 pi is the period that hpckit takes."""
    given = options(words)
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
        yield from ramped("dynamics", "temperature", given["temp"])
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
    yield from ramped("barostat", "pressure", values[0])
    yield "barostat.damping", 2 * math.pi * float(values[0][2])
    yield "barostat.dims", sorted(dims)
    yield "barostat.coupled", "all" if "iso" in held or coupled == "xyz" else coupled
    if tilts or "tri" in whole:
        yield "barostat.tilts", tilts or [*TILTS]
    if "drag" in given:
        yield "barostat.drag", float(given["drag"][0])
    yield "barostat.chain", int(given.get("pchain", ["3"])[0])
    yield "barostat.correction", given.get("mtk", ["yes"])[0] == "yes"


def eased(words: list[str]) -> Iterator[tuple[str, Any]]:
    """What `fix press/berendsen` does with the box."""
    given = options(words)
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
    yield from ramped("barostat", "pressure", values[0])
    yield "barostat.damping", float(values[0][2])
    yield "barostat.dims", sorted(held) if held <= {*EDGES} else ["x", "y", "z"]
    yield "barostat.coupled", "all" if "iso" in held or coupled == "xyz" else coupled
    yield "barostat.modulus", float(given.get("modulus", ["10.0"])[0])


def relaxed(words: list[str]) -> Iterator[tuple[str, Any]]:
    """What `fix box/relax` does with the box."""
    given = options(words)
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


def options(words: list[str]) -> dict[str, list[str]]:
    """The keywords of a fix, each with the values that follow it."""
    found: dict[str, list[str]] = {}
    last: list[str] = []
    for word in words:
        if is_number(word) or (found and [*found][-1] in ("couple", "mtk", "psllod") and not last):
            last.append(word)
        else:
            last = found[word] = []
    return found


def ramped(section: str, name: str, words: list[str]) -> Iterator[tuple[str, Any]]:
    """The first of two numbers, and the second where the one leads to the other."""
    first, last = map(float, words[:2])
    yield f"{section}.{name}", first
    if last != first:
        yield f"{section}.ramp_to", last
