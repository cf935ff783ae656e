"""All sections together, and what follows from them; `together` has the rules between them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from hpckit.apps.md.free_energy.settings import Coupling, Metadynamics, Replicas, Restraint, Variable
from hpckit.apps.md.molecules.settings import Angles, Bonds, Constraints, Coulomb, Dihedrals, Impropers
from hpckit.apps.md.motion.groups import ALL, GroupOf
from hpckit.apps.md.motion.settings import Barostat, Deform, Dynamics, Stage
from hpckit.apps.md.settings.analysis import Analysis
from hpckit.apps.md.settings.interaction import NOT_OF_PAIRS, Granular, Interaction
from hpckit.apps.md.settings.system import System
from hpckit.apps.md.settings.table import Table
from hpckit.io.settings import LIMIT, OptionalSpan, Section
from hpckit.report.settings import Report


class Neighbors(Section):
    """Neighbor lists."""

    skin: float = Field(0.3, gt=0, description="reach of the lists beyond the cutoff, at least")
    every: int = Field(1, ge=1, description="steps between checks whether lists must be rebuilt")
    delay: int = Field(0, ge=0, description="steps between a rebuild and the next check")
    check: bool = Field(True, description="rebuild only after a move of over half the skin; false: at every check")


class Time(Section):
    """Duration and time step."""

    steps: int = Field(1000, ge=0, description="time steps")
    dt: float = Field(0.005, gt=0, description="time step, in the units of the system")
    thermo: int = Field(100, ge=1, description="steps between lines of the thermo table, at multiples of it")
    limit: OptionalSpan = Field("", description=LIMIT)


class Output(Section):
    """Output files."""

    every: int = Field(0, ge=0, description="steps between frames of the trajectory; 0: only the last")
    format: Literal["h5md", "dump"] = Field("h5md", description="trajectory as an H5MD file, or as a LAMMPS dump")
    variables: int = Field(0, ge=0, description="steps between rows of output/variables.csv; 0: time.thermo")


class Ranks(Section):
    """Decomposition of the box over the ranks."""

    x: int = Field(0, ge=0, description="ranks along x; 0: automatic")
    y: int = Field(0, ge=0, description="ranks along y; 0: automatic")
    z: int = Field(0, ge=0, description="ranks along z; 0: automatic")
    balance: int = Field(0, ge=0, description="steps between load balancings by measured force time; 0: none")


class Settings(Section):
    """All settings of a run, each section checked by itself."""

    app: Literal["md"] = "md"
    precision: Literal["double", "mixed"] = Field(
        "double", description="mixed: pair forces in single precision, sums and motion in double"
    )
    repro: bool = Field(False, description="add forces without rounding: the same bits on any number of ranks")
    system: System = Field(default_factory=System, description="the particles")
    interaction: Interaction = Field(default_factory=Interaction, description="forces between pairs")
    granular: Granular = Field(default_factory=Granular, description="spheres that touch")
    bonds: Bonds = Field(default_factory=Bonds, description="bonds between particles")
    angles: Angles = Field(default_factory=Angles, description="angles between bonds")
    dihedrals: Dihedrals = Field(default_factory=Dihedrals, description="turns around bonds")
    impropers: Impropers = Field(default_factory=Impropers, description="what keeps four particles in a plane")
    constraints: Constraints = Field(default_factory=Constraints, description="distances that stay")
    coulomb: Coulomb = Field(default_factory=Coulomb, description="forces between charges")
    neighbors: Neighbors = Field(default_factory=Neighbors, description="neighbor lists")
    groups: tuple[GroupOf, ...] = Field((), description="groups of particles, on which something acts")
    dynamics: Dynamics = Field(default_factory=Dynamics, description="how the particles move")
    barostat: Barostat = Field(default_factory=Barostat, description="the pressure that is held")
    deform: Deform = Field(default_factory=Deform, description="a box that changes by a program")
    stages: tuple[Stage, ...] = Field((), description="what follows the steps above, one stage after the other")
    variables: tuple[Variable, ...] = Field((), description="collective variables, numbers of some particles")
    restraints: tuple[Restraint, ...] = Field((), description="springs on variables, still or moving")
    metadynamics: Metadynamics = Field(default_factory=Metadynamics, description="hills where variables have been")
    coupling: Coupling = Field(default_factory=Coupling, description="pairs or restraints switched on step by step")
    replicas: Replicas = Field(default_factory=Replicas, description="copies that swap their temperatures")
    time: Time = Field(default_factory=Time, description="duration and time step")
    table: Table = Field(default_factory=Table, description="columns of the thermo table")
    output: Output = Field(default_factory=Output, description="output files")
    analysis: Analysis = Field(default_factory=Analysis, description="observables measured during the run")
    ranks: Ranks = Field(default_factory=Ranks, description="decomposition of the box over the ranks")
    report: Report = Field(default_factory=Report, description="contents of the report")

    @property
    def staged(self) -> list[Any]:
        """The settings of each stage, as those of a run of its own; the last one has the analysis."""
        found = [self.model_copy(update={"stages": ()})]
        for stage in self.stages:
            found.append(stage.after(found[-1]))
        return [*(each.model_copy(update={"analysis": Analysis()}) for each in found[:-1]), found[-1]]

    @property
    def settled(self) -> int:
        """The first step that counts in means and observables: after the equilibration, or later (analysis.after)."""
        return max(self.analysis.after, self.dynamics.equilibrate)

    @property
    def averaged_from(self) -> int:
        """The first step of the means: `settled`, else after a fifth of the steps."""
        return self.settled or self.time.steps // 5

    @property
    def is_of_pairs(self) -> bool:
        """Whether all forces are those of pairs, or of embedded atoms, without charges and bonds."""
        molecular = self.coulomb.kind != "none" or self.bonds.kind != "none"
        return not molecular and self.interaction.kind not in NOT_OF_PAIRS

    @property
    def resizes(self) -> bool:
        """Whether the box changes during the run."""
        return self.barostat.kind != "none" or bool(self.deform.changes)

    @property
    def tilts(self) -> bool:
        """Whether the box may lean, also where its file or its lattice does not."""
        changes = [*self.deform.changes, *self.deform.start]
        leans = self.barostat.kind != "none" and bool(self.barostat.tilts)
        return leans or any(self.system.tilt) or any(len(each.of) == 2 for each in changes)

    @property
    def mover(self) -> str:
        """What moves particles and box: one can go on from the state of another of the same name."""
        given, held = self.dynamics, self.barostat
        chain = f" of {given.chain}" if given.kind == "nose_hoover" else ""
        chain += "".join(f", {each.kind} of {each.group}, {each.chain}" for each in given.also)
        edges = f" of {held.chain} along {', '.join((*held.dims, *held.tilts))}" if held.kind == "mtk" else ""
        return f"{given.kind}{chain}" + (f" with {held.kind}{edges}" if held.kind != "none" else "")

    @property
    def target(self) -> float | None:
        """The temperature that the run is asked to have after `settled`; None where it is whatever follows."""
        given = self.dynamics
        held = given.kind in ("langevin", "bussi", "nose_hoover") or given.equilibrate
        held = held and given.group == given.counted.group == ALL and not given.also
        return given.temperature if held and given.ramp_to is None else None
