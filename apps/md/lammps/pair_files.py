"""Pair coefficients that come from files: metals, silicon, and potentials that were fitted."""

from __future__ import annotations

from hpckit.apps.md.lammps.state import ScriptState
from hpckit.io.particles.lammps_eam import read_eam

EAM = ("eam", "eam/alloy", "eam/fs")
OF_FILES = {**dict.fromkeys(EAM, "eam"), "sw": "stillinger_weber", "tersoff": "tersoff", "snap": "snap"}


def pair_file(script: ScriptState, style: str, first: str, second: str, rest: tuple[str, ...], is_later: bool) -> None:
    """The settings of a pair_coeff that names a file; is_later: after a run. Raises `ValueError` where it cannot."""
    if not rest or "file" in script.tree["interaction"]:
        raise ValueError(f"pair_coeff of {style}: one file, of eam one of one element here")
    script.set("interaction.file", str(script.file(rest[0])))
    if style == "eam":
        _masses_of_file(script, style, rest[0], (), is_later)
        if script.types > 1:
            name = read_eam(script.file(rest[0])).elements[0]
            script.set("interaction.elements", [name] * script.types)
        return
    if style == "snap":
        if len(rest) < 3:
            raise ValueError("pair_coeff of snap: * * FILE.snapcoeff FILE.snapparam and an element for each type")
        script.set("interaction.parameters_file", str(script.file(rest[1])))
        rest = (rest[0], *rest[2:])
    if (first, second) != ("*", "*") or len(rest) < 2 or "NULL" in rest:
        raise ValueError(f"pair_coeff of {style}: * * FILE and an element for each type")
    script.set("interaction.elements", list(rest[1:]))
    _masses_of_file(script, style, rest[0], rest[1:], is_later)


def _masses_of_file(script: ScriptState, style: str, name: str, elements: tuple[str, ...], is_later: bool) -> None:
    """Masses in a file of the embedded-atom method stand for those before it, of the script or of its data file."""
    if style not in EAM:
        return
    if is_later:
        _require_masses(script, name, elements)
        return
    script.masses.clear()
    if "file" not in script.section("system"):
        return  # settings without masses take them from there
    script.masses |= _masses_in(script, name, elements, 1)
    script.lines["system", "masses"] = script.number


def _require_masses(script: ScriptState, name: str, elements: tuple[str, ...]) -> None:
    """Raise `ValueError` for a file after a run whose masses are others than those of before."""
    for kind, mass in _masses_in(script, name, elements, script.types).items():
        known = script.masses.get(kind, mass)
        if abs(mass / known - 1) > 1e-9:
            raise ValueError(f"pair_coeff of {name} after a run: it has the mass {mass:g}, not {known:g}")


def _masses_in(script: ScriptState, name: str, elements: tuple[str, ...], alone: int) -> dict[int, float]:
    """The masses of types by a file of metals, of its elements, or of its first for so many types without."""
    file = read_eam(script.file(name))
    rows = [file.elements.index(each) for each in elements if each in file.elements] if elements else [0] * alone
    return {kind: float(file.masses[row]) for kind, row in enumerate(rows, 1)}
