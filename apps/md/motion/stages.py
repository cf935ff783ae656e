"""The stages of a run: from one to the next, with all particles, their box and their velocities."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import numpy as np

from hpckit.apps.md.config import Config
from hpckit.apps.md.molecules.electrostatics import charged, long_range
from hpckit.apps.md.molecules.topology import bonds_of, constraints_of, terms_of
from hpckit.apps.md.motion.dynamics import bind_groups, dynamics_of, give_flow, proper_of
from hpckit.apps.md.motion.velocities import change_velocities
from hpckit.apps.md.potentials import interaction_of
from hpckit.apps.md.start import Start, without_momentum
from hpckit.io.checkpoint.state import Piece, Restored, State
from hpckit.kernels.particles.pair.potential import OWN
from hpckit.kernels.particles.records.dispatch import types_of
from hpckit.md.forces import PairForces
from hpckit.md.interaction import Interaction
from hpckit.md.molecules.charges import Charged
from hpckit.md.motion.deformation import changed
from hpckit.md.motion.dynamics import Dynamics, warm_up
from hpckit.md.saved import rows_block, rows_by_id, take_rows
from hpckit.md.system import System
from hpckit.md.thermo import freedom, measure
from hpckit.plan.particles.cell import Cell

ASIDE = "velocity_aside"


class Stages:
    """Which stage a run is in, and when each began.

    begins, times: of each stage so far, its first step and the time then. A minimization takes the velocities away;
    they are kept aside for the stage after it, and so is the state of thermostats and barostats, as LAMMPS keeps them.
    cell: in which the stage began, which determines how the charges are split, as of each run of LAMMPS.
    """

    def __init__(self, config: Config, start: Start, system: System) -> None:
        self.start, self.system, self.configs, self.given = start, system, config.staged, config.stages
        self.begins, self.times, self.cell = [0], [0.0], system.domains.cell
        self._interaction = self.config.interaction  # that of the system
        for before, after in pairwise(self.configs):  # what cannot be is told before the first step
            if after.interaction != before.interaction:
                system.require_fit(interaction_of(after, len(start.masses)))
        self._aside: np.ndarray | None = None
        self._held: dict[str, Any] = {}  # the last state of thermostat and barostat, by what they are
        self._set_aside()

    @property
    def number(self) -> int:
        """The stage, from 0."""
        return len(self.begins) - 1

    @property
    def config(self) -> Any:
        """The settings of the stage, as of a run of its own."""
        return self.configs[self.number]

    @property
    def is_last(self) -> bool:
        """Whether no stage follows."""
        return len(self.begins) == len(self.configs)

    def steps_in(self, step: int) -> int:
        """The steps done in this stage."""
        return step - self.begins[-1]

    def prints(self, step: int) -> bool:
        """Whether a line of the table follows a step of this stage: multiples, as in LAMMPS, and its ends."""
        times, ends = self.config.time, (self.config.time.steps, self.config.dynamics.equilibrate)
        return self.numbered(step) % times.thermo == 0 or self.steps_in(step) in ends

    def numbered(self, step: int) -> int:
        """What the table has for a step of this stage."""
        return self.config.table.number(step, self.steps_in(step))

    def time_at(self, step: int) -> float:
        """The time after a step of this stage."""
        return float(self.times[-1] + self.steps_in(step) * self.config.time.dt)

    def enter_next(self, step: int, dynamics: Dynamics) -> Dynamics:
        """Collective: begin the next stage, with the forces of its first step; its dynamics."""
        now = self.time_at(step)
        self._held[self.config.mover] = _without_sums(proper_of(dynamics).saved())
        self.begins.append(step)
        self.times.append(now)
        stage, config, system = self.given[self.number - 1], self.config, self.system
        forces = system.forces
        self._bind()
        if config.deform.start:
            system.reshape(changed(system.domains.cell, [each.change for each in config.deform.start]))
        self._split(system.domains.cell)
        if self._aside is not None:
            take_rows(system, self._aside, system.particles.velocities)
        if stage.velocities != "keep":
            self._set_velocities(config, stage.velocities)
        for each in stage.changes:
            change_velocities(system, self.start, each)
        self._set_aside()
        system.rebuild()
        system.compute(measure=True)
        if system.forces is not forces:
            warm_up(system)
        system.settle()
        found = dynamics_of(config, step, self.start.with_settings(config))
        if not stage.is_anew:
            proper_of(found).restore(self._held[config.mover])
        give_flow(found, system, config.time.dt)
        return found

    def ramp(self, step: int, anew: bool = False) -> None:
        """Before the forces of a step: take the parameters of pairs to where they are then, if they are on their way.

        They change at the multiples of `interaction.ramp_every`, as by `fix adapt` of LAMMPS. anew: after a restart,
        those of the last change.
        """
        config, system, begin = self.config, self.system, self.begins[-1]
        given = config.interaction
        if not given.ramp_to:
            return
        last = max(begin, step - self.numbered(step) % given.ramp_every)
        if last != step and not anew:
            return
        share = (last - begin) / config.time.steps
        pairs = system.interaction
        assert isinstance(pairs, Interaction)  # the settings guarantee it
        assert isinstance(system.forces, PairForces)
        table = pairs.table.copy()
        for column, (a, b) in enumerate(zip(given.parameters, given.ramp_to, strict=True), OWN):
            table[:, :, column] = a + share * (b - a)
        system.interaction = replace(pairs, table=table)
        system.forces.set_table(system.interaction)

    def saved(self, state: State) -> State:
        """What a checkpoint holds, with the stages."""
        if len(self.configs) == 1:
            return state
        aside = self._aside is not None
        values = {"begins": self.begins, "times": self.times, "aside": aside, "held": self._held}
        values["cell"] = asdict(self.cell)
        pieces = list(state.pieces)
        if self._aside is not None:
            pieces.append(Piece(ASIDE, (self.system.count, 3), (rows_block(self.system)[0], 0), self._aside))
        return State(pieces, {**state.values, "stages": values})

    def restore(self, kept: Restored) -> None:
        """Collective, before the particles are restored: take up the stage of a checkpoint."""
        values = kept.values.get("stages")
        if values is None:
            return
        self.begins, self.times, self._held = list(values["begins"]), list(values["times"]), dict(values["held"])
        first, count = rows_block(self.system)
        self._aside = kept.read(ASIDE, (first, 0), (count, 3)) if values["aside"] else None
        self._bind()
        if "cell" in values:
            self._split(Cell.of(**values["cell"]))

    def _split(self, cell: Cell) -> None:
        """Choose how the charges are split in the cell in which the stage begins, if it is another one."""
        config, system, known = self.config, self.system, self.cell
        self.cell = cell
        far = long_range(config, self.start, cell) if cell != known else None
        if far is not None and isinstance(system.interaction, Charged):
            system.split(charged(config, self.start, system.interaction.pairs, cell), far)

    def _bind(self) -> None:
        """Give the system the forces, bonds, constraints and outside forces of the stage."""
        config, start = self.config, self.start.with_settings(self.config)
        if config.interaction != self._interaction:
            self.system.interact(interaction_of(config, len(start.masses)))
            self._interaction = config.interaction
        held = constraints_of(config, start)
        self.system.bind(bonds_of(config, start), terms_of(config, start), held, config.dynamics.inner)
        bind_groups(self.system, config, start)

    def _set_aside(self) -> None:
        """Collective: keep the velocities of a stage that minimizes."""
        minimizes = self.config.dynamics.kind == "fire" and not self.is_last
        self._aside = rows_by_id(self.system, self.system.particles.velocities) if minimizes else None

    def _set_velocities(self, config: Config, how: str) -> None:
        """Collective: velocities drawn or scaled to the temperature of the stage, without their mean, or all zero."""
        system, particles = self.system, self.system.particles
        held = particles.on_host()
        own = held.own
        types = types_of(held.positions[own])
        if how == "rest":
            found = np.zeros((len(types), 3))
        elif how == "center":
            found = without_momentum(system.mesh.comm, held.velocities[own, :3], system.masses[types], system.count)
        elif how == "draw":
            away = system.domains.cell.shifts(held.images[own])
            what = held.ids[own], held.positions[own, :3], types, away
            found = self.start.drawn_anew(config, system.mesh.comm, *what)
        else:
            now = measure(system).temperature
            if config.system.all_freedom and system.constraints is not None:
                now *= freedom(system) / (freedom(system) + system.constraints.count)
            found = held.velocities[own, :3] * np.sqrt(config.system.temperature / now if now > 0 else 0.0)
        particles.velocities[own, :3] = system.device.to_device(found)


def _without_sums(values: Any) -> Any:
    """A saved state of a dynamics without the sums of a step, which change with velocities and forces."""
    if not isinstance(values, dict):
        return values
    return {key: [] if key == "sums" else _without_sums(each) for key, each in values.items()}
