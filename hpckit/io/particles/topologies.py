"""Topologies of AMBER (prmtop, parm7) and GROMACS (top), with the coordinates beside them, through ParmEd.

The force field comes as LAMMPS has it in units `real`: kcal/mol, angstrom, degrees; masses and charges as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.errors import InputError, SetupError
from hpckit.plan.particles.snapshot import Snapshot

COORDINATES = {
    **dict.fromkeys((".prmtop", ".parm7"), (".inpcrd", ".rst7", ".ncrst", ".crd", ".pdb")),
    ".top": (".gro", ".pdb"),
}
SAME = 1e-4  # of a factor between particles three bonds apart
SQUARE = 1e-4  # degrees


@dataclass(frozen=True, eq=False)
class ForceField:
    """Particles with their terms and coefficients, and what a snapshot has no place for.

    epsilon, sigma: of each type. geometric: whether sigma is mixed by the geometric mean. pairs, charges: the share of
    Lennard-Jones and Coulomb between particles three bonds apart. waters: types of angles, from 1, of rigid water.
    """

    snapshot: Snapshot
    epsilon: tuple[float, ...]
    sigma: tuple[float, ...]
    geometric: bool
    pairs: float
    charges: float
    waters: tuple[int, ...] = ()


def is_topology(path: Path) -> bool:
    """Whether a file is a topology, by the end of its name."""
    return path.suffix.lower() in COORDINATES


def read_topology(path: str | Path) -> ForceField:
    """The particles and the force field of a topology, with the coordinates of the file beside it of the same name.

    Rigid water comes with two bonds and an angle, whatever the file has. Raises `SetupError` without ParmEd,
    `InputError` for what cannot be read, and for what is not known here.
    """
    path = Path(path)
    given = _structure(path)
    for what, there in (
        ("CMAP terms", bool(given.cmaps)),
        ("Urey-Bradley terms", any(each.type.k for each in given.urey_bradleys)),
        ("sites without mass", any(not atom.mass > 0 for atom in given.atoms)),
    ):
        if there:
            raise InputError(f"{path.name} has {what}, which are not known here", where=str(path))
    if given.has_NBFIX():
        raise InputError(f"{path.name} has parameters of single pairs of types (NBFIX)", where=str(path))
    if given.box is None or any(abs(angle - 90.0) > SQUARE for angle in given.box[3:]):
        raise InputError(
            f"{path.name} needs a rectangular box, but has {None if given.box is None else list(given.box)}",
            where=str(path),
            do="give coordinates with a box whose angles are 90 degrees",
        )
    kinds: dict[tuple[Any, ...], int] = {}
    types = [
        kinds.setdefault((str(atom.type), atom.mass, atom.epsilon, atom.sigma), len(kinds)) for atom in given.atoms
    ]
    edges, places = np.array(given.box[:3], float), np.array(given.coordinates, float).reshape(-1, 3)
    velocities = None if given.velocities is None else np.array(given.velocities, float).reshape(-1, 3) * 1e-3
    pairs, charges = _shares(given, path)
    bonds, angles, waters = _bonds_and_angles(given)
    found = Snapshot(
        lower=np.zeros(3),
        upper=edges,
        periodic=(True, True, True),
        ids=np.arange(1, len(places) + 1),
        types=np.array(types, np.int64),
        positions=places - np.floor(places / edges) * edges,
        images=np.floor(places / edges).astype(np.int32),
        velocities=velocities,
        masses=np.array([kind[1] for kind in kinds], float),
        charges=np.array([atom.charge for atom in given.atoms], float),
        names=tuple(kind[0] for kind in kinds),
        units="real",
    )
    return ForceField(
        _with_terms(found, bonds=bonds, angles=angles, dihedrals=_dihedrals(given), impropers=_impropers(given)),
        tuple(float(kind[2]) for kind in kinds),
        tuple(float(kind[3]) for kind in kinds),
        given.combining_rule == "geometric",
        pairs,
        charges,
        waters,
    )


def _structure(path: Path) -> Any:
    try:
        import parmed
    except ImportError as error:
        raise SetupError(f"{path.name} is read by ParmEd, which is not installed", do="pip install parmed") from error
    beside = [path.with_suffix(end) for end in COORDINATES[path.suffix.lower()]]
    coordinates = next((each for each in beside if each.is_file()), None)
    if coordinates is None:
        raise InputError(
            f"there are no coordinates beside {path.name}",
            where=str(path),
            do=f"put {' or '.join(each.name for each in beside[:2])} there",
        )
    try:
        found: Any = parmed.load_file(str(path))
        more: Any = parmed.load_file(str(coordinates))
        found.coordinates = np.array(more.coordinates, float).reshape(-1, len(found.atoms), 3)[-1]
        if getattr(more, "box", None) is not None:
            found.box = more.box
        velocities = getattr(more, "velocities", None)
        if velocities is not None:
            found.velocities = np.array(velocities, float).reshape(-1, len(found.atoms), 3)[-1]
    except Exception as error:  # ParmEd has many of its own
        raise InputError(
            f"{path.name} with {coordinates.name} cannot be read by ParmEd: {error}", where=str(path)
        ) from error
    return found


class _Rows:
    """Terms and their coefficients, each of which is a type once."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, ...]] = []
        self.kinds: dict[tuple[float, ...], int] = {}

    def add(self, numbers: Iterable[float], *atoms: int) -> None:
        kind = self.kinds.setdefault(tuple(map(float, numbers)), len(self.kinds))
        self.rows.append((kind, *atoms))


def _with_terms(snapshot: Snapshot, **terms: _Rows) -> Snapshot:
    rows: dict[str, Any] = {name: np.array(each.rows, np.int64) for name, each in terms.items() if each.rows}
    return replace(snapshot, **rows, coefficients={name: list(each.kinds) for name, each in terms.items() if each.rows})


def _bonds_and_angles(given: Any) -> tuple[_Rows, _Rows, tuple[int, ...]]:
    bonds, angles = _Rows(), _Rows()
    waters = set()
    for bond in given.bonds:
        one, other = bond.atom1, bond.atom2
        apex = _apex(one, other)
        if apex is None:
            bonds.add((bond.type.k, bond.type.req), one.idx, other.idx)
            continue
        arms = [next(float(each.type.req) for each in apex.bonds if end in each) for end in (one, other)]
        cosine = (arms[0] ** 2 + arms[1] ** 2 - bond.type.req**2) / (2 * arms[0] * arms[1])
        # A spring as stiff as that of the bond, for water that is not held.
        stiff = bond.type.k * (arms[0] * arms[1] * np.sqrt(1.0 - cosine**2) / bond.type.req) ** 2
        angles.add((stiff, np.degrees(np.arccos(cosine))), one.idx, apex.idx, other.idx)
        waters.add(angles.rows[-1][0] + 1)
    for angle in given.angles:
        if angle.type is not None:
            ends = angle.atom1.idx, angle.atom2.idx, angle.atom3.idx
            angles.add((angle.type.k, angle.type.theteq), *ends)
    return bonds, angles, tuple(sorted(waters))


def _apex(one: Any, other: Any) -> Any:
    """The oxygen of a water whose hydrogens these are, as a bond between them would make a ring of three."""
    if one.residue is not other.residue or len(one.residue.atoms) != 3 or {one.element, other.element} != {1}:
        return None
    return next((atom for atom in one.residue.atoms if atom.element != 1), None)


def _dihedrals(given: Any) -> _Rows:
    """As the kind charmm: K (1 + cos(n phi - d)); powers of cosines (Ryckaert and Bellemans) as such sums."""
    found = _Rows()
    for each in given.dihedrals:
        ends = each.atom1.idx, each.atom2.idx, each.atom3.idx, each.atom4.idx
        for kind in each.type if isinstance(each.type, list) else [each.type]:
            if kind is not None and kind.phi_k:
                found.add((kind.phi_k, kind.per, kind.phase % 360.0, 0.0), *ends)
    for each in given.rb_torsions:
        ends, c = (each.atom1.idx, each.atom2.idx, each.atom3.idx, each.atom4.idx), each.type
        powers = (
            c.c1 + 0.75 * c.c3 + 0.625 * c.c5,
            0.5 * c.c2 + 0.5 * c.c4,
            0.25 * c.c3 + 0.3125 * c.c5,
            0.125 * c.c4,
            0.0625 * c.c5,
        )
        for n, strength in enumerate(powers, 1):
            if strength:
                found.add((strength, n, 180.0 * (n % 2), 0.0), *ends)
    return found


def _impropers(given: Any) -> _Rows:
    found = _Rows()
    for each in given.impropers:
        found.add((each.type.psi_k, each.type.psi_eq), each.atom1.idx, each.atom2.idx, each.atom3.idx, each.atom4.idx)
    return found


def _shares(given: Any, path: Path) -> tuple[float, float]:
    """What particles three bonds apart have of their pairs. Raises `InputError` where that is not the same for all."""
    found = set()
    for each in given.adjusts:
        one, other, kind = each.atom1, each.atom2, each.type
        geometric = given.combining_rule == "geometric"
        depth = np.sqrt(one.epsilon * other.epsilon)
        width = np.sqrt(one.sigma * other.sigma) if geometric else 0.5 * (one.sigma + other.sigma)
        if depth > 0 and abs(kind.sigma - width) > SAME * width:
            raise InputError(
                f"{path.name} has diameters of their own for pairs three bonds apart, which are not known here",
                where=str(path),
            )
        found.add((float(kind.epsilon / depth) if depth > 0 else None, float(kind.chgscale)))
    if not given.adjusts and hasattr(given, "parm_data"):  # AMBER has them with its dihedrals
        for each in given.dihedrals:
            for kind in each.type if isinstance(each.type, list) else [each.type]:
                if kind is not None and not each.ignore_end and not each.improper and kind.scnb and kind.scee:
                    found.add((1 / kind.scnb, 1 / kind.scee))
    pairs = sorted(share for share, _ in found if share is not None) or [0.0]
    charges = sorted(share for _, share in found) or [0.0]
    if pairs[-1] - pairs[0] > SAME or charges[-1] - charges[0] > SAME:
        raise InputError(
            f"{path.name} has several shares of pairs three bonds apart: {pairs[0]:g} to {pairs[-1]:g} of"
            f" Lennard-Jones, {charges[0]:g} to {charges[-1]:g} of charges",
            where=str(path),
            do="give one of each in the force field",
        )
    return pairs[0], charges[0]
