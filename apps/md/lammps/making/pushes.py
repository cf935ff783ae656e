"""Velocities that a script gives to groups of the particles that it makes."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.apps.md.lammps.making import velocities as drawn
from hpckit.apps.md.lammps.making.made import Made, Step


def velocity_of(words: list[str], spacing: np.ndarray) -> Step:
    """What the command velocity does; spacing: what counts as one. Raises `ValueError`."""
    group, style, *rest = words
    count = {"create": 2, "set": 3, "ramp": 6, "scale": 1, "zero": 1}.get(style, 0)
    given, options = rest[:count], dict(zip(rest[count::2], rest[count + 1 :: 2], strict=False))
    allowed = {"create": ("mom", "rot", "dist", "loop", "sum", "temp"), "set": ("sum",), "ramp": ("sum",)}
    known = {
        **{key: ("yes", "no") for key in ("mom", "rot", "sum")},
        "dist": ("uniform", "gaussian"),
        "loop": ("all", "geom"),
        "units": ("box", "lattice"),
    }
    sound = bool(count) and len(given) == count and len(rest[count:]) % 2 == 0
    for key, value in options.items():
        sound = sound and key in (*allowed.get(style, ()), "units") and (key == "temp" or value in known[key])
    if style == "ramp":
        sound = sound and given[0] in ("vx", "vy", "vz") and given[3] in ("x", "y", "z")
    if style == "zero":
        sound = sound and given[0] in ("linear", "angular")
    if not sound:
        every = "create T SEED, set VX VY VZ, ramp VDIM LOW HIGH DIM LOW HIGH, scale T, zero linear or angular"
        raise ValueError(f"velocity {' '.join(words)}: known are {every}; mom, rot, dist, loop, sum, temp, units")
    steps = np.ones(3) if options.get("units") == "box" else spacing
    if style == "create":
        return lambda made: _create(made, made.group(group), float(given[0]), int(given[1]), options)
    if style == "set":
        values = [np.nan if word == "NULL" else float(word) for word in given] * steps
        return lambda made: _set(made, made.group(group), np.tile(values, (len(made.types), 1)), options)
    if style == "ramp":
        dim, other = "xyz".index(given[0][1]), "xyz".index(given[3])
        low, high = float(given[1]) * steps[dim], float(given[2]) * steps[dim]
        first, last = float(given[4]) * steps[other], float(given[5]) * steps[other]

        def ramp(made: Made) -> None:
            share = np.clip((made.positions[:, other] - first) / (last - first), 0.0, 1.0)
            values = np.full((len(share), 3), np.nan)
            values[:, dim] = low + share * (high - low)
            _set(made, made.group(group), values, options)

        return ramp
    if style == "scale":
        return lambda made: _scale(made, made.group(group), made.velocities, float(given[0]))
    away = _still if given == ["linear"] else _unturned
    return lambda made: _set(made, made.group(group), away(made, made.group(group), made.velocities), {})


def change_of(words: list[str], spacing: np.ndarray) -> dict[str, Any]:
    """What the command velocity does between two runs, as settings. Raises `ValueError`."""
    velocity_of(words, spacing)
    group, style, *rest = words
    count = {"create": 2, "set": 3, "ramp": 6, "scale": 1, "zero": 1}[style]
    given, options = rest[:count], dict(zip(rest[count::2], rest[count + 1 :: 2], strict=False))
    steps = np.ones(3) if options.get("units") == "box" else spacing
    found: dict[str, Any] = {"group": group, "add": True} if options.get("sum") == "yes" else {"group": group}
    if style == "zero":
        return {"kind": "still" if given == ["linear"] else "unturned", **found}
    if style == "scale":
        return {"kind": "scale", **found, "temperature": float(given[0])}
    if style == "create":
        drawn_as = "lammps_geom" if options.get("loop") == "geom" else "lammps"
        drawn_as += "_gaussian" if options.get("dist") == "gaussian" else ""
        flags = {"momentum": options.get("mom", "yes"), "rotation": options.get("rot", "no")}
        remove = [name for name, flag in flags.items() if flag == "yes"]
        what = {"temperature": float(given[0]), "seed": int(given[1]), "draw": drawn_as, "remove": remove}
        return {"kind": "draw", **found, **what}
    if style == "set":
        along = [axis for axis, word in zip("xyz", given, strict=True) if word != "NULL"]
        values = [0.0 if word == "NULL" else float(word) * float(s) for word, s in zip(given, steps, strict=True)]
        return {"kind": "set", **found, "velocity": values, "along": along}
    dim, across = "xyz".index(given[0][1]), "xyz".index(given[3])
    low, high = ([float(word) * float(steps[dim]) if k == dim else 0.0 for k in range(3)] for word in given[1:3])
    ends = [float(word) * float(steps[across]) for word in given[4:]]
    return {
        "kind": "ramp",
        **found,
        "velocity": low,
        "last": high,
        "along": [given[0][1]],
        "across": given[3],
        "between": ends,
    }


def _weights(made: Made, chosen: np.ndarray) -> np.ndarray:
    """The masses of the particles that are chosen, 0 of the others."""
    return np.asarray(np.where(chosen, made.masses[made.types], 0.0))


def _create(made: Made, chosen: np.ndarray, temperature: float, seed: int, options: dict[str, Any]) -> None:
    order, normal = np.arange(len(chosen)), options.get("dist") == "gaussian"
    if options.get("loop") == "geom":
        v = (drawn.normal_by_place if normal else drawn.by_place)(seed, made.positions)
    else:
        v = drawn.normal_in_order(seed, order, len(order)) if normal else drawn.in_order(seed, order)
    v = v / np.sqrt(made.masses[made.types])[:, None]
    v[:, made.dims :] = 0.0
    if options.get("mom", "yes") == "yes":
        v = _still(made, chosen, v)
    if options.get("rot") == "yes":
        v = _unturned(made, chosen, v)
    before = made.velocities.copy()
    _scale(made, chosen, v, temperature)
    if options.get("sum") == "yes":
        made.velocities = np.where(chosen[:, None], made.velocities + before, made.velocities)


def _scale(made: Made, chosen: np.ndarray, v: np.ndarray, temperature: float) -> None:
    """Give a group velocities that are scaled to its temperature."""
    twice, freedom = float((_weights(made, chosen) @ (v * v)).sum()), made.dims * (int(chosen.sum()) - 1)
    if twice <= 0 or freedom <= 0:
        raise ValueError("the group has no temperature that could be scaled")
    v = v * np.sqrt(freedom * made.boltzmann * temperature / twice)
    made.velocities = np.where(chosen[:, None], v, made.velocities)


def _still(made: Made, chosen: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Velocities without the mean one of a group."""
    m = _weights(made, chosen)
    return np.asarray(v - m @ v / m.sum())


def _unturned(made: Made, chosen: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Velocities without the rotation of a group about its center of mass."""
    m = _weights(made, chosen)
    places = made.positions + made.cell.shifts(made.images)
    arms = places - m @ places / m.sum()
    spread = (arms * m[:, None]).T @ arms
    inertia = np.trace(spread) * np.eye(3) - spread
    turn = np.linalg.lstsq(inertia, m @ np.cross(arms, v), rcond=1e-12)[0]
    return np.asarray(v - np.cross(turn, arms))


def _set(made: Made, chosen: np.ndarray, values: np.ndarray, options: dict[str, Any]) -> None:
    """Give a group velocities, those that are numbers."""
    given = chosen[:, None] & np.isfinite(values)
    old = made.velocities if options.get("sum") == "yes" else 0.0
    made.velocities = np.where(given, np.nan_to_num(values) + old, made.velocities)
