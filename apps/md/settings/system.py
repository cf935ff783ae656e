"""Settings of the particles: a lattice, or a file."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hpckit.apps.md.motion.groups import Axis, VelocityOf
from hpckit.apps.md.motion.settings import Draw, Removed
from hpckit.io.settings import InputFile, Section


class System(Section):
    """The particles: a lattice, of water too, or a file."""

    units: Literal["lj", "metal", "real"] = Field("lj", description="system of units, as in LAMMPS")
    kind: Literal["particles", "water"] = Field(
        "particles",
        description="on each site of the lattice: a particle; or water, rigid and turned at random: oxygen, type 1, and"
        " two hydrogens, type 2, of the length and angle in bonds.parameters and angles.parameters",
    )
    file: InputFile | None = Field(
        None,
        description="initial particles: LAMMPS data, or .dump, .lammpstrj, .xyz, .extxyz, .h5, .h5md, or a LAMMPS"
        " script that makes them; none: a lattice",
    )
    style: str = Field("", description="atom style of a LAMMPS data file; empty: the one that it names, else atomic")
    replicate: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] = Field(
        (1, 1, 1), description="copies of the file's particles and box along x, y, z"
    )
    frame: int = Field(-1, description="frame of a trajectory file, from 0; negative numbers count from the end")
    velocities: Literal["file", "draw"] = Field(
        "file", description="of particles from a file: the file's (at rest if it has none), or drawn at `temperature`"
    )
    lattice: Literal["fcc", "bcc", "sc", "diamond"] = Field("fcc", description="initial lattice")
    cells: tuple[int, int, int] = Field((20, 20, 20), description="lattice cells along x, y, z")
    density: float = Field(0.8442, gt=0, description="number density of the lattice, of molecules for water")
    tilt: tuple[float, float, float] = Field(
        (0.0, 0.0, 0.0), description="xy, xz, yz of a tilted box around a lattice, lengths; a file has its own"
    )
    edge: float = Field(0.0, ge=0, description="edge of a lattice cell, in place of the density; 0: by `density`")
    droplet: float = Field(
        0.0,
        ge=0,
        description="radius of a droplet at the center, surrounded by vapor of density `vapor`; 0: no droplet",
    )
    vapor: float = Field(0.02, gt=0, description="number density outside the droplet")
    periodic: tuple[Axis, ...] = Field(("x", "y", "z"), description="periodic dims; the others are open")
    follows: tuple[Axis, ...] = Field(
        (), description="open dims whose ends are those of the particles, as the pressure takes the volume"
    )
    masses: tuple[float, ...] = Field(
        (), description="mass of each type; empty: those of the file of particles or of the potential, else 1"
    )
    dims: Literal[2, 3] = Field(
        3, description="2: all particles are in a plane of constant z, which is open; pressure is per length"
    )
    fractions: tuple[float, ...] = Field((1.0,), min_length=1, description="share of each type in a lattice")
    temperature: float = Field(
        1.44, ge=0, description="temperature of drawn velocities: of a lattice, or of a file with velocities = draw"
    )
    seed: int = Field(87287, ge=0, description="random seed of velocities and types")
    draw: Draw = Field(
        "normal",
        description="drawn velocities; lammps, lammps_geom: those of `velocity create` of LAMMPS, loop all or geom;"
        " with _gaussian of its dist gaussian",
    )
    remove: Removed = Field(("momentum",), description="what all particles together have not of drawn velocities")
    changes: tuple[VelocityOf, ...] = Field(
        (), description="changes of velocities of groups after that, in their order, as stages.changes"
    )
    all_freedom: bool = Field(
        False,
        description="`temperature` counts degrees of freedom that constraints take away, too, as that of a `velocity`"
        " before `fix shake` of LAMMPS does",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if min(self.cells) < 1:
            raise ValueError(f"cells are {list(self.cells)}: at least 1 along each dim")
        if self.dims == 2 and "z" in self.periodic:
            raise ValueError("system.dims = 2 has an open z: set system.periodic to dims of x and y")
        if {*self.follows} & {*self.periodic}:
            raise ValueError(f"follows {list(self.follows)} are open dims, and periodic is {list(self.periodic)}")
        if any(self.tilt) and (self.file or self.droplet or self.kind == "water"):
            raise ValueError("system.tilt is for lattices of single particles: omit it with file, droplet or water")
        if min(self.masses, default=1.0) <= 0:
            raise ValueError(f"masses are {list(self.masses)}: all must be above 0")
        if self.kind == "water" and (self.file or self.droplet or len(self.masses) != 2 or len(self.fractions) != 1):
            raise ValueError("system.kind = 'water' needs two masses: omit file, droplet and fractions")
        if not self.file and self.kind != "water" and self.masses and len(self.fractions) != len(self.masses):
            raise ValueError(f"{len(self.fractions)} fractions for {len(self.masses)} masses: give both for each type")
        if min(self.fractions) < 0 or abs(sum(self.fractions) - 1) > 1e-9:
            raise ValueError(f"fractions are {list(self.fractions)}: they must be at least 0 and add up to 1")
        return self
