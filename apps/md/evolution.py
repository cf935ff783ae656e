"""The evolution of particles in time: steps, stages, lines of the thermo table, and what is kept of them."""

from __future__ import annotations

import math
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from hpckit.apps.common.loop import Due, Evolution
from hpckit.apps.md.config import Config
from hpckit.apps.md.free_energy.record import Record
from hpckit.apps.md.free_energy.replicas import OfReplica, by_temperature, together
from hpckit.apps.md.molecules.electrostatics import charge_lines
from hpckit.apps.md.motion.dynamics import at_temperature, dynamics_of, give_flow, proper_of
from hpckit.apps.md.motion.groups import ALL
from hpckit.apps.md.motion.stages import Stages
from hpckit.apps.md.output.analysis import Analysis
from hpckit.apps.md.output.averages import AverageFiles
from hpckit.apps.md.output.columns import TableColumns
from hpckit.apps.md.output.trajectory import BOX, HEADER, ROLL, Trajectory, row
from hpckit.comm.agree import least_of_ranks
from hpckit.errors import BlowUpError
from hpckit.io.checkpoint.state import Restored, State
from hpckit.kernels.particles.integrate.dispatch import dilate
from hpckit.md.external.coupling import Coupling
from hpckit.md.motion.barostats import MTK
from hpckit.md.motion.fire import Fire
from hpckit.md.motion.replicas import TemperatureReplicas
from hpckit.md.observables.elastic import elastic_constants
from hpckit.md.saved import pieces_of, restore, values_of
from hpckit.md.system import System
from hpckit.md.thermo import Thermo, freedom, mass_density, measure, totals
from hpckit.run.context import Run

BEYOND = 100  # times all energy at the start: no motion makes more
LEAST_MISS = 0.02  # of the temperature: less is not a finding


class MolecularDynamics(Evolution):
    """The run of the particles; times are in the system of units."""

    waits_in = "exchange"

    def __init__(
        self,
        config: Config,
        run: Run,
        system: System,
        stages: Stages,
        trajectory: Trajectory,
        coupling: Coupling | None = None,
        replicas: TemperatureReplicas | None = None,
    ) -> None:
        super().__init__(run)
        self.replicas = replicas
        self.system, self.stages, self.trajectory = system, stages, trajectory
        self.record = Record(config, run, system, coupling)
        self.dynamics = dynamics_of(self.config, 0, stages.start)
        give_flow(self.dynamics, system, self.config.time.dt)
        self.analysis = Analysis(config.staged[-1], run, system)
        self.end = sum(each.time.steps * each.time.dt for each in stages.configs)
        self.is_at_minimum = False
        self.first: Thermo
        self.last: Thermo
        self.start: Thermo | None = None  # where the dynamics proper begins, from which energy is conserved
        self.seen = [0, 0.0]  # temperatures that count: how many, and their sum
        self.resizes = any(each.resizes for each in stages.configs)
        self.rolls = config.interaction.kind == "granular"  # no energy is kept, and what turns has a part of it
        self.columns = TableColumns(self.config, stages.start, system)
        self.files = AverageFiles(run, [each.table for each in stages.configs])
        self._say_header()

    def _say_header(self) -> None:
        """The titles of the table."""
        usual = HEADER + BOX * self._has_volume + ROLL * self.rolls
        self.run.say(self.columns.header if self.config.table.columns else usual)

    @property
    def _has_volume(self) -> bool:
        """Whether the table shows the volume, since the box changes or follows the particles."""
        return self.resizes or bool(self.config.system.follows)

    @property
    def config(self) -> Config:
        """The settings of the stage."""
        found: Config = self.stages.config
        return found

    @property
    def is_over(self) -> bool:
        """Whether all steps are done, or the particles are at a minimum, and no stage follows."""
        return self.stages.is_last and self._stage_is_over

    @property
    def _stage_is_over(self) -> bool:
        return self.is_at_minimum or self._done >= self.config.time.steps

    @property
    def _done(self) -> int:
        """The steps done in this stage."""
        return self.stages.steps_in(self.step)

    @property
    def wait_seconds(self) -> float:
        """Seconds this rank has waited for ghosts so far."""
        return self.system.ghosts.wait_seconds

    def begin(self) -> None:
        """Collective: metrics and frame of the initial state."""
        self._average()
        self.look()
        self.write()
        self._sample()

    def restore(self, kept: Restored) -> None:
        """Collective: continue from a checkpoint."""
        self.step = kept.step
        with self.run.compiling():
            self.stages.restore(kept)
        self.dynamics = dynamics_of(self.config, self.stages.begins[-1], self.stages.start)
        self.trajectory.every = self.config.output.every
        self.is_at_minimum = bool(kept.values.get("is_at_minimum"))
        self.time = self.stages.time_at(self.step)
        self.columns.restore(kept, self.config, kept.step)
        self._back(kept)
        kept = self._own(kept)
        self.first = self.last = thermo_of(kept.values["first"])
        self.start = thermo_of(kept.values["start"]) if kept.values["start"] else None
        self.seen = list(kept.values["seen"])
        if self.config.analysis.measures:
            self.run.say(f"observables of this run are those of the steps after {self.step}")

    def _own(self, kept: Restored) -> Restored:
        """Of several replicas the part of this one."""
        return kept if self.replicas is None else OfReplica(kept, self.replicas.own)

    def _back(self, kept: Restored) -> None:
        if self.replicas is not None:
            self.replicas.restore(kept.values["exchange"])
            kept = self._own(kept)
            at_temperature(self.dynamics, self.replicas.temperature)
        self.record.restore(kept.values["record"], kept.step)
        held = self.config.barostat.kind != "none"
        done = self.stages.steps_in(kept.step)
        settled = held and done > self.config.dynamics.equilibrate  # a barostat measures every step
        measures = self.stages.prints(kept.step) or self._samples(kept.step)
        self.stages.ramp(kept.step, anew=True)
        restore(self.system, kept, settled or measures or self._exchanges(kept.step))
        self.dynamics.restore(kept.values["dynamics"])

    def saved(self) -> State:
        """Collective: the content of a checkpoint: particles, counters, thermostat, and what is held against."""
        values = {
            "system": values_of(self.system),
            "dynamics": self.dynamics.saved(),
            "first": asdict(self.first),
            "start": asdict(self.start) if self.start else None,
            "seen": self.seen,
            "record": self.record.saved(),
            "columns": self.columns.saved(),
            "is_at_minimum": self.is_at_minimum,
        }
        state = self.stages.saved(State([*pieces_of(self.system), *self.columns.pieces()], values))
        return state if self.replicas is None else together(state, self.replicas)

    def advance(self) -> Due:
        """Collective: do the next step, of the next stage where this one is over."""
        if self._stage_is_over:
            self._enter_next_stage()
            if self._stage_is_over:
                return Due(False, self.trajectory.is_due(self.step, self.is_over))
        step, dynamics = self.step + 1, self.dynamics
        wanted = self.stages.prints(step)
        self.record.select(step)
        try:
            self.run.advance(step, partial(self._move, step, wanted), self.saved, self._back)
        except BlowUpError as error:
            error.where += f", step {step}"
            raise
        self.step, self.time = step, self.stages.time_at(step)
        self._average()
        self._sample()
        enough = self.config.dynamics.largest_force
        if isinstance(dynamics, Fire) and dynamics.largest_force < enough:
            self.is_at_minimum = True
            self.run.say(f"no force is larger than {enough:g}: a minimum after {step} steps")
            dilate(self.system.particles.velocities, self.system.particles.slots, np.zeros(3))
            self.system.compute(measure=True)
        return Due(wanted or self.is_at_minimum, self.trajectory.is_due(step, self.is_over))

    def _enter_next_stage(self) -> None:
        """Collective: begin the next stage."""
        before = self.stages.cell
        with self.run.compiling():
            self.dynamics = self.stages.enter_next(self.step, self.dynamics)
        self.is_at_minimum, self.start, self.seen = False, None, [0, 0.0]
        self.trajectory.every = self.config.output.every
        kind, steps = self.config.dynamics.kind, self.config.time.steps
        self.run.say(f"stage {self.stages.number + 1} of {len(self.stages.configs)}: {steps} steps of {kind}")
        titles = self.columns.header
        self.columns.enter(self.config, self.step)
        if self.columns.header != titles:
            self._say_header()
        if self.stages.cell != before:
            for line in charge_lines(self.config, self.stages.start, self.stages.cell):
                self.run.say(line)
        self._average()
        self.look()
        self._sample()

    def _sample(self) -> None:
        """Collective: the observables and rows that are due."""
        if self.stages.is_last:
            self.analysis.add(self._done, self.time)
        self.record.add(self.step, self.time)

    def _average(self) -> None:
        """Collective: the samples of means that are due, before the line of the table that has the means."""
        if self._samples(self.step):
            with self.run.timer("thermo"):
                new = list(self.columns.sample(measure(self.system), self.step, self._done, self.time))
            number = self.config.table.number(self.step, self._done)
            for given in new:
                self.files.write(given, number, *self.columns.result(given))

    def _move(self, step: int, wanted: bool) -> None:
        """Collective: the motion of a step, and an exchange of temperatures if one is due."""
        due, replicas = self._exchanges(step), self.replicas
        self.stages.ramp(step)
        self.dynamics.step(self.system, self.config.time.dt, wanted or due or self._samples(step))
        if due and replicas is not None:
            factor = replicas.attempt(totals(self.system).potential, self.system.units.boltzmann)
            at_temperature(self.dynamics, replicas.temperature)
            if factor != 1.0:
                dilate(self.system.particles.velocities, self.system.particles.slots, np.full(3, factor))

    def _exchanges(self, step: int) -> bool:
        """Whether replicas try to swap temperatures after this step."""
        given = self.config.dynamics.equilibrate  # replicas have one stage
        return self.replicas is not None and step > given and step % self.config.replicas.every == 0

    def _samples(self, step: int) -> bool:
        """Whether means of the table have a sample after this step; a minimization has no time."""
        return self.config.dynamics.kind != "fire" and self.columns.samples(step, self.stages.steps_in(step))

    def look(self) -> None:
        """Collective: measure, print a table line, write metrics. Raises `BlowUpError` if a value is beyond reason."""
        with self.run.timer("thermo"):
            self.last = thermo = measure(self.system)
            if self._done == 0:
                self.first = thermo
            self._require_sound()
            exchanged = {}
            if self.replicas is not None:
                every = by_temperature(thermo, self.replicas)
                self.last = thermo = every[0]
                exchanged = {f"potential_{k}": each.potential for k, each in enumerate(every, 1)}
                holders = np.argsort(self.replicas.which).tolist()
                exchanged |= {f"replica_{k}": float(holder + 1) for k, holder in enumerate(holders, 1)}
            if self._done >= self.config.averaged_from:
                self.seen = [self.seen[0] + 1, self.seen[1] + thermo.temperature]
            box = (thermo.volume, mass_density(self.system)) if self._has_volume else ()
            if self.rolls:
                box = (thermo.kinetic, thermo.rotational)
            asked = self.columns.values(thermo, self.step, self._done, self.time)
            number, reduced = self.stages.numbered(self.step), self.config.system.units == "lj"
            usual = row(number, thermo, self.system.count, reduced, box)
            self.run.say(self.columns.row(asked) if asked else usual)
            tensor = zip(("xx", "yy", "zz", "xy", "xz", "yz"), thermo.tensor, strict=True)
            self.run.metric(
                step=self.step,
                time=self.time,
                temperature=thermo.temperature,
                potential=thermo.potential,
                kinetic=thermo.kinetic,
                energy=thermo.total,
                pressure=thermo.pressure,
                **{f"pressure_{name}": value for name, value in tensor},
                rebuilds=self.system.neighbors.builds,
                **self._parts(),
                **self._box(),
                **({"rotational": thermo.rotational} if self.rolls else {}),
                **self.record.metrics(),
                **{name: value for name, value in asked.items() if name[:2] in ("c_", "v_", "f_")},
                **exchanged,
                **({"imbalance": self.system.balance.imbalance} if self.config.ranks.balance else {}),
            )
        given = self.config.dynamics
        kept = given.kind == "nve" and not (given.pushes or given.corrections or given.drives)
        kept = kept and not (self.resizes or self.rolls)
        if self._done == given.equilibrate and kept and given.counted.group == ALL:
            self.start = thermo
        if self._done == given.equilibrate > 0:
            self.run.say(f"equilibrated: T = {thermo.temperature:.4g} after {self._done} steps; now {given.kind}")

    def _parts(self) -> dict[str, float]:
        """Metrics of the parts of the potential energy that this system has."""
        names = ("bonded", *(each.name for each in self.system.terms))
        found = {name: getattr(self.last, name) for name in names if self.system.bonds or self.system.terms}
        if self.system.charged:
            found |= {"coulomb": self.last.coulomb, "long_range": self.last.long_range}
        return found

    def _box(self) -> dict[str, float]:
        """Metrics of a box that changes, and the quantity that its barostat conserves."""
        if not self.resizes:
            return {}
        found = dict(zip(("length_x", "length_y", "length_z"), map(float, self.system.domains.lengths), strict=True))
        if any(self.system.domains.tilt) or self.config.tilts:
            found |= dict(zip(("tilt_xy", "tilt_xz", "tilt_yz"), self.system.domains.tilt, strict=True))
        found |= {"volume": self.last.volume, "density": self.system.count / self.last.volume}
        found["mass_density"] = mass_density(self.system)
        moving = proper_of(self.dynamics)
        given = self.config
        kept = isinstance(moving, MTK) and not (given.deform.changes or given.dynamics.drag or given.barostat.drag)
        if kept and self._done >= given.dynamics.equilibrate:
            found["conserved"] = moving.conserved(self.system, self.last.total)
        return found

    def _require_sound(self) -> None:
        """Collective: raise `BlowUpError` if energy or pressure are not finite, or energy came from nowhere."""
        thermo, first, system = self.last, self.first, self.system
        wanted = self.config.target or self.config.dynamics.ramp_to or 0.0
        asked = 1.5 * system.count * system.units.boltzmann * wanted
        most = BEYOND * (first.kinetic + abs(first.potential) + asked)
        if not (math.isfinite(thermo.total) and math.isfinite(thermo.pressure)):
            raise _blow_up(system, self.step, "forces or velocities are no longer finite")
        if abs(thermo.total - first.total) > most:
            each = [energy / system.count for energy in (first.total, thermo.total)]
            raise _blow_up(system, self.step, "the energy of a particle has jumped from {:.4g} to {:.4g}".format(*each))

    def temperature(self, config: Config) -> dict[str, Any]:
        """The mean temperature beside the one asked for, and whether it misses that beyond chance; {} if none is."""
        asked, count = config.target, self.seen[0]
        if not (asked and count):
            return {}
        mean = self.seen[1] / count
        chance = max(LEAST_MISS, 4 * math.sqrt(2 / freedom(self.system)))
        return {"asked": asked, "mean": mean, "missed": abs(mean / asked - 1) > chance}

    def rate(self, steps: int, seconds: float) -> str:
        """Particle-steps per second."""
        return f"{self.system.count * steps / seconds / 1e6:.3g} million atom-steps/s"

    def write(self) -> None:
        """Collective: write a frame of the trajectory."""
        self.trajectory.write(self.step, self.time, self.is_over)

    def stop(self, due: Due) -> None:
        """Collective: measure and write the last step."""
        if not due.look:
            self.system.refresh(measure=True)
            self.last = measure(self.system)
        self.trajectory.write_end(self.step, self.time)

    def close(self) -> None:
        """Collective: write the observables."""
        with self.run.timer("analysis"):
            self.analysis.finish()
            self.record.finish()
            self.files.finish(self.columns.averages)
            if self.config.analysis.elastic:
                self._measure_elastic()

    def _measure_elastic(self) -> None:
        """Collective: write the elastic constants at the minimum, if it was found."""
        if not self.is_at_minimum:
            self.run.say("note: no elastic constants, since the particles are not at a minimum; raise time.steps")
            return
        given, unit = self.config.dynamics, self.system.units.names["pressure"]
        found = elastic_constants(
            self.system,
            self.config.analysis.elastic,
            dt=self.config.time.dt,
            largest_force=given.largest_force,
            longest=given.longest_of_fire,
        )
        self.run.say(f"elastic constants in {unit or 'units of the pressure'}, xx, yy, zz, yz, xz, xy:")
        for constants in found:
            self.run.say(" ".join(f"{value:14.6g}" for value in constants))
        values = {"strain": self.config.analysis.elastic, "units": unit, "constants": found.tolist()}
        if self.run.rank == 0:
            self.run.directory.write_json("output/elastic.json", values)


def thermo_of(values: dict[str, Any]) -> Thermo:
    """The saved metrics."""
    return Thermo(**{**values, "tensor": tuple(values["tensor"])})


def _blow_up(system: System, step: int, message: str) -> BlowUpError:
    """Collective: the error, the same on all ranks, with the particle whose motion is least sound."""
    particles = system.particles.on_host()
    slots = particles.own
    with np.errstate(over="ignore", invalid="ignore"):
        wild = np.abs(particles.velocities[slots, :3] + particles.forces[slots, :3]).max(axis=1, initial=0.0)
    wild[~np.isfinite(wild)] = np.inf
    worst = int(wild.argmax()) if len(slots) else -1
    own = (float(-wild[worst]), int(particles.ids[slots[worst]]) + 1) if len(slots) else (math.inf, 0)
    rank, particle = least_of_ranks(system.mesh.comm, *own)
    return BlowUpError(
        message,
        where=f"rank {rank}, particle {particle}, step {step}",
        likely="two particles that came too close: a time step too long, or overlaps at the start",
        do="lower time.dt, start from particles that do not overlap, or minimize first (dynamics.kind=fire)",
    )
