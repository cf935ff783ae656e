"""What binds the particles of a run: terms of the file, with parameters of the settings or of the file."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.apps.md.config import Config
from hpckit.apps.md.potentials import fourth_parameters
from hpckit.apps.md.start import Start
from hpckit.errors import InputError
from hpckit.md.molecules.bonds import Bonds
from hpckit.md.molecules.constraints import Constraints, Springs, clusters_of
from hpckit.md.molecules.exclusions import Exclusions, Fourths
from hpckit.md.molecules.rigid import RigidBodies
from hpckit.md.molecules.terms import Terms
from hpckit.md.units import UNITS

TERMS = ("angles", "dihedrals", "impropers")
STIFF = 1e9  # K of springs in place of constraints, over k_B at 1, as LAMMPS has it


def bonds_of(config: Config, start: Start) -> Bonds | None:
    """The bonds of the settings and the file; None without them, or without forces."""
    rows, kind = start.bound("bonds"), config.bonds.kind
    if rows is None or kind == "zero":
        return None
    return Bonds(rows, start.count, kind, _parameters(config, start, "bonds"), start.held_bonds())


def terms_of(config: Config, start: Start) -> list[Terms]:
    """The angles, dihedrals and impropers of the settings and the file that have forces."""
    found = []
    for name in TERMS:
        rows, kind = start.bound(name), getattr(config, name).kind
        if rows is not None and kind != "zero":
            held = start.held_angles() if name == "angles" else None
            found.append(Terms(name, rows, start.count, kind, _parameters(config, start, name), held))
    return found


def constraints_of(config: Config, start: Start) -> Constraints | Springs | RigidBodies | None:
    """The distances or shapes that the settings hold, by springs in a minimization; None without. Raises `InputError`
    for unknown types.
    """
    if config.constraints.bodies:
        return _bodies(config, start)
    given, bonds, angles = config.constraints, start.bound("bonds"), start.bound("angles")
    if not given.some or bonds is None:
        return None
    of_bonds = np.array(_parameters(config, start, "bonds"))
    corners, of_angles = np.zeros((0, 4), np.int64), np.zeros((1, 2))
    if given.angles and angles is not None:
        of_angles = np.array([row[:2] for row in _parameters(config, start, "angles")])
        corners = angles[start.held_angles()]
    for name, chosen, known in (("bonds", given.bonds, of_bonds), ("angles", given.angles, of_angles)):
        if any(not 1 <= kind <= len(known) for kind in chosen):
            raise InputError(f"constraints.{name} is {list(chosen)}, but there are types 1 to {len(known)}")
    held = bonds[start.held_bonds()]
    cosines = np.cos(np.radians(of_angles[corners[:, 0], 1]))
    clusters = clusters_of(held[:, 1:], of_bonds[held[:, 0], 1], corners[:, 1:], cosines, start.count)
    if config.dynamics.kind == "fire" and clusters:
        stiffness = given.stiffness or STIFF * UNITS[config.system.units].boltzmann
        return Springs(clusters, start.count, stiffness)
    return Constraints(clusters, start.count, config.time.dt, given.foresee, given.velocities)


def _bodies(config: Config, start: Start) -> RigidBodies:
    """The molecules as rigid bodies, and what is in none by itself."""
    file = start.file
    if file is None or not file.molecules.any():
        raise InputError(
            "constraints.bodies are molecules, and the particles have none",
            do="give a file with molecules or bonds (system.file), or system.kind = 'water'",
        )
    body = file.molecules.copy()
    alone = body == 0
    body[alone] = body.max(initial=0) + 1 + np.arange(int(alone.sum()))
    _, body = np.unique(body, return_inverse=True)
    # In one piece: each particle where it is nearest to the first of its body.
    _, first = np.unique(body, return_index=True)
    middle = file.positions[first][body]
    arms = file.cell.nearest(file.positions - middle, [axis in config.system.periodic for axis in "xyz"])
    return RigidBodies(body, middle + arms, start.masses[file.types], config.time.dt)


def exclusions_of(config: Config, start: Start) -> Exclusions | None:
    """What partners in molecules have of pairs and charges; None where that is all, or without bonds."""
    given, bonds = config.bonds, start.bound("bonds")
    shares = given.pair_shares, given.charge_shares if config.coulomb.kind != "none" else given.pair_shares
    fourths = _fourths(config, start)
    if bonds is None or (set(shares[0] + shares[1]) == {1.0} and fourths is None):
        return None
    return Exclusions(bonds[:, 1:], start.count, *shares, fourths)


def _fourths(config: Config, start: Start) -> Fourths | None:
    """The pairs at the ends of CHARMM's dihedrals; None where no weight asks for them."""
    rows, given = start.bound("dihedrals"), config.interaction
    if rows is None or config.dihedrals.kind != "charmm":
        return None
    weights = np.array([row[3] for row in _parameters(config, start, "dihedrals")])[rows[:, 0]]
    if not weights.any():
        return None
    if given.kind != "lennard_jones":
        raise InputError(
            f"weights of dihedrals.kind = 'charmm' scale Lennard-Jones pairs, but interaction.kind is {given.kind!r}",
            do="set the weights to 0, and the share of pairs three bonds apart (bonds.pair_shares)",
        )
    chosen = weights != 0.0
    return Fourths(rows[chosen][:, [1, 4]], weights[chosen], fourth_parameters(config))


def _parameters(config: Config, start: Start, name: str) -> Any:
    """Those of the settings, else of the file. Raises `InputError` for none."""
    given = getattr(config, name)
    assert start.file is not None  # it has the rows
    found = given.parameters or start.file.coefficients.get(name)
    if not found:
        raise InputError(
            f"{name}.kind = {given.kind!r} needs parameters for each type, but {config.system.file} has none",
            do=f"give {name}.parameters",
        )
    return found
