"""Settings of molecules and charges."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from hpckit.io.settings import Section

Rows = tuple[tuple[float, ...], ...]
IN_WAVES = ("ewald", "pppm")  # kinds of `Coulomb` over all images


class Bonds(Section):
    """Bonds between particles, which a data file names."""

    kind: Literal["none", "zero", "harmonic", "morse", "fene"] = Field(
        "none", description="energy of a bond, as in LAMMPS; zero: bonds without forces, as of rigid molecules"
    )
    parameters: Rows = Field(
        (),
        description="of each type of bonds, empty: those of the data file: harmonic: K, r0; morse: D, alpha, r0; fene:"
        " K, R0, epsilon, sigma",
    )
    pair_shares: tuple[float, float, float] = Field(
        (0.0, 1.0, 1.0),
        description="share of pair forces between particles one, two and three bonds apart (special_bonds lj)",
    )
    charge_shares: tuple[float, float, float] = Field(
        (0.0, 1.0, 1.0), description="share of the forces of charges between these (special_bonds coul)"
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not all(0 <= share <= 1 for share in (*self.pair_shares, *self.charge_shares)):
            raise ValueError("bonds.pair_shares and charge_shares are numbers from 0 to 1")
        return self


class Angles(Section):
    """Angles between bonds, which a data file names."""

    kind: Literal["none", "zero", "harmonic", "charmm", "cosine"] = Field(
        "none", description="energy of an angle, as in LAMMPS; zero: angles without forces"
    )
    parameters: Rows = Field(
        (),
        description="of each type of angles, empty: those of the data file: harmonic: K, theta0 (degrees); charmm: K,"
        " theta0, K_ub, r_ub; cosine: K",
    )


class Dihedrals(Section):
    """Turns around bonds, which a data file names."""

    kind: Literal["none", "zero", "harmonic", "charmm", "opls"] = Field(
        "none", description="energy of a dihedral, as in LAMMPS; zero: dihedrals without forces"
    )
    parameters: Rows = Field(
        (),
        description="of each type of dihedrals, empty: those of the data file: harmonic: K, d, n; charmm: K, n, d"
        " (degrees), weight of the pair at its ends (interaction.epsilon_14); opls: K1, K2, K3, K4",
    )


class Impropers(Section):
    """Four particles that stay in a plane, or out of it, which a data file names."""

    kind: Literal["none", "zero", "harmonic"] = Field(
        "none", description="energy of an improper, as in LAMMPS; zero: impropers without forces"
    )
    parameters: Rows = Field(
        (), description="of each type of impropers, empty: those of the data file: K, chi0 (degrees)"
    )


class Constraints(Section):
    """Distances that stay: SHAKE, as `fix shake` of LAMMPS, or RATTLE."""

    bonds: tuple[int, ...] = Field((), description="types of bonds, from 1, that keep their length r0")
    masses: tuple[float, ...] = Field(
        (), description="bonds of particles with one of these masses, within 0.1, keep it, too: 1.0 for hydrogen"
    )
    types: tuple[int, ...] = Field((), description="bonds of particles of these types, from 1, keep it, too")
    angles: tuple[int, ...] = Field(
        (), description="types of angles, from 1, between two such bonds, that keep theta0: rigid water"
    )
    foresee: bool = Field(
        True,
        description="allow for what a barostat will do to box and velocities in the next step; false: as fix shake of"
        " LAMMPS, whose conserved quantity falls",
    )
    velocities: bool = Field(
        False,
        description="take what is along the distances from the velocities at the end of each step, too (RATTLE, as fix"
        " rattle of LAMMPS); at constant volume",
    )
    stiffness: float = Field(
        0.0,
        ge=0,
        description="K of the springs K (r - r0)^2 that stand for held distances in a minimization, as kbond of fix"
        " shake; 0: 1e9 k_B",
    )
    bodies: Literal["", "molecules"] = Field(
        "", description="molecules: each, what bonds and the like join, is a rigid body of its shape at the start"
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.bodies and (self.some or self.angles or self.velocities):
            raise ValueError("constraints.bodies hold all distances: omit bonds, angles, masses, types and velocities")
        return self

    @property
    def some(self) -> bool:
        """Whether anything is held."""
        return bool(self.bonds or self.masses or self.types)


class Coulomb(Section):
    """Forces between charges, which a file of particles has, or each type."""

    kind: Literal["none", "cut", "reaction_field", "dsf", "debye", "ewald", "pppm"] = Field(
        "none",
        description="within the cutoff: cut, reaction_field, dsf (damped and shifted), debye (screened); over all"
        " images: ewald, waves; pppm, a mesh",
    )
    charges: tuple[float, ...] = Field((), description="charge of each type, where a file does not say it")
    cutoff: float = Field(0.0, ge=0, description="of pairs of charges; 0: interaction.cutoff")
    permittivity: float = Field(1.0, gt=0, description="relative, of what is between all charges, which divides forces")
    damping: float = Field(0.2, gt=0, description="for dsf: inverse length over which charges fade")
    screening: float = Field(0.0, ge=0, description="for debye: inverse length over which mobile ions screen charges")
    dielectric: float = Field(
        78.5, ge=1, description="for reaction_field: relative permittivity beyond the cutoff; inf: a conductor"
    )
    accuracy: float = Field(
        1e-4, gt=0, lt=1, description="of forces by ewald and pppm, relative to two unit charges at unit distance"
    )
    splitting: float = Field(0.0, ge=0, description="g of erfc(g r), inverse length; 0: by the accuracy")
    waves: tuple[int, int, int] = Field((0, 0, 0), description="largest waves of ewald; 0: by the accuracy")
    squares: int = Field(
        0, ge=0, description="largest nx^2 + ny^2 + nz^2 of the waves of ewald; 0: the sphere that `waves` touches"
    )
    mesh: tuple[int, int, int] = Field((0, 0, 0), description="points of the mesh of pppm; 0: by the accuracy")
    order: int = Field(5, ge=2, le=7, description="points of the mesh along each dim over which pppm spreads a charge")
    erfc: Literal["exact", "lammps", "table"] = Field(
        "exact",
        description="to compare digits with LAMMPS: lammps: its formula of dsf and of pair_modify table 0, within"
        " 1.5e-7; table: as with its tables, by that formula between partners nearer than sqrt(2), exact beyond",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.kind == "none" and self.charges:
            raise ValueError("coulomb.charges is given, but coulomb.kind is none")
        if (self.kind == "debye") != bool(self.screening):
            raise ValueError("coulomb.kind = 'debye' and coulomb.screening, above 0, go together")
        return self
