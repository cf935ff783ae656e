"""The charges of the settings: what pairs have of them, the sum over all images, and how fine that is."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.apps.md.config import Config
from hpckit.apps.md.molecules.settings import IN_WAVES
from hpckit.apps.md.start import Start
from hpckit.kernels.particles.charged.screening import (
    ENOUGH,
    Screening,
    cut,
    damped_shifted,
    debye,
    halved,
    near_part,
    reaction_field,
    tabulated,
)
from hpckit.md.interaction import Interaction
from hpckit.md.molecules.charges import Charged
from hpckit.md.molecules.estimates import Charges, Fineness, ewald_fineness, mesh_fineness
from hpckit.md.molecules.ewald import Ewald
from hpckit.md.molecules.mesh_ewald import MeshEwald
from hpckit.md.units import UNITS
from hpckit.plan.particles.cell import Cell

MESH_SHARE = 1e-6  # what the near part may be off, over the relative accuracy of forces by a mesh


def fineness_of(config: Config, start: Start, cell: Cell | None = None) -> Fineness:
    """The splitting, and waves or mesh, of a sum over all images in a cell; None: that of the file or lattice. Raises
    `InputError` without charges.
    """
    cell = cell or start.cell
    given, units, charges = config.coulomb, UNITS[config.system.units], start.charges()
    assert charges is not None  # the kind asks for them
    squares = _strength(config) * float((charges * charges).sum())
    lengths = tuple(cell.lengths.tolist())
    tilt = cell.tilt if given.kind == "pppm" else (0.0, 0.0, 0.0)
    what = Charges(start.count, squares, lengths, _cutoff(config), given.accuracy * units.coulomb, tilt)
    if given.kind == "ewald":
        return ewald_fineness(what, given.splitting, given.waves, given.squares)
    return mesh_fineness(what, given.order, given.splitting, given.mesh)


def charged(config: Config, start: Start, pairs: Any, cell: Cell) -> Any:
    """The interaction with charges in a cell; `pairs` as they are without."""
    if config.coulomb.kind == "none":
        return pairs
    assert isinstance(pairs, Interaction)  # the settings guarantee it
    given, screening = config.coulomb, _screening(config, start, cell)
    partners = tabulated(screening) if given.kind in IN_WAVES and given.erfc == "table" else None
    return Charged(pairs, screening, _strength(config), partners)


def long_range(config: Config, start: Start, cell: Cell) -> Ewald | MeshEwald | None:
    """The sum over all images in a cell; None without."""
    if config.coulomb.kind not in IN_WAVES:
        return None
    fineness = fineness_of(config, start, cell)
    return Ewald(fineness, cell) if config.coulomb.kind == "ewald" else MeshEwald(fineness)


def charge_lines(config: Config, start: Start, cell: Cell) -> list[str]:
    """What is said of charges before a run, or before a stage that begins in another cell."""
    charges = start.charges()
    if charges is None:
        return []
    total, units = float(charges.sum()), UNITS[config.system.units]
    lines = []
    if abs(total) > 1e-9 * float(np.abs(charges).sum()):
        lines.append(f"note: the total charge is {total:.6g}, not 0: a background of the opposite one is assumed")
    if config.coulomb.kind in IN_WAVES:
        it = fineness_of(config, start, cell)
        what = f"waves up to {' x '.join(map(str, it.waves))}"
        if config.coulomb.kind == "pppm":
            what = f"a mesh of {' x '.join(map(str, it.mesh))}, order {it.order}"
        lines += [
            f"charges over all images: G = {it.splitting:.9g}, {what}",
            f"estimated error of forces {it.error:.8g}, relative {it.error / units.coulomb:.8g}",
        ]
    return lines


def _cutoff(config: Config) -> float:
    return config.coulomb.cutoff or config.interaction.cutoff


def _strength(config: Config) -> float:
    """The energy of two unit charges at unit distance."""
    return UNITS[config.system.units].coulomb / config.coulomb.permittivity


def _screening(config: Config, start: Start, cell: Cell) -> Screening:
    given, cutoff = config.coulomb, _cutoff(config)
    if given.kind == "cut":
        return cut(cutoff)
    if given.kind == "debye":
        return debye(cutoff, given.screening)
    if given.kind == "reaction_field":
        return reaction_field(cutoff, given.dielectric)
    as_lammps = given.erfc == "lammps"
    if given.kind == "dsf":
        return damped_shifted(cutoff, given.damping, as_lammps)
    error = max(MESH_SHARE * given.accuracy if given.kind == "pppm" else ENOUGH, ENOUGH)
    found = near_part(cutoff, fineness_of(config, start, cell).splitting, as_lammps, error)
    return found if config.precision == "mixed" else halved(found, error)
