"""The molecular dynamics app's run: time loop, thermo table, trajectory, summary."""

from __future__ import annotations

import math
import time as clock
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from hpckit.apps.common.loop import Due, Evolution, conserved, time_loop
from hpckit.apps.md.analysis import Analysis, measured
from hpckit.apps.md.config import Config
from hpckit.apps.md.model import domain_lines, make_system, plans_of, topology_of
from hpckit.apps.md.motion import dynamics_of
from hpckit.apps.md.potentials import interaction_of
from hpckit.apps.md.start import Start
from hpckit.apps.md.table import HEADER, performance, row
from hpckit.apps.md.trajectory import Trajectory
from hpckit.comm.agree import first_of_ranks
from hpckit.errors import BlowUpError
from hpckit.io.checkpoint.state import Restored, State
from hpckit.md.fire import Fire
from hpckit.md.saved import pieces_of, restore, values_of
from hpckit.md.system import System
from hpckit.md.thermo import Thermo, measure
from hpckit.plan.particles.domain import DomainDecomposition
from hpckit.run.context import DryRun, Run

BYTES_PER_SLOT = 4 * 32 + 8 + 12 + 100 * 4  # records, their spares, ids, images, a list of about 100 neighbors


class MolecularDynamics(Evolution):
    """The run of the particles; times are in the system of units."""

    waits_in = "exchange"

    def __init__(self, config: Config, run: Run, system: System, trajectory: Trajectory) -> None:
        super().__init__(run)
        self.config, self.system, self.trajectory = config, system, trajectory
        self.dynamics, self.analysis = dynamics_of(config), Analysis(config, run, system)
        self.end = config.time.steps * config.time.dt
        self.is_at_minimum = False
        self.first: Thermo
        self.last: Thermo
        run.say(HEADER)

    @property
    def is_over(self) -> bool:
        """Whether all steps are done, or the particles are at a minimum."""
        return self.is_at_minimum or self.step >= self.config.time.steps

    @property
    def wait_seconds(self) -> float:
        """Seconds this rank has waited for ghosts so far."""
        return self.system.ghosts.wait_seconds

    def begin(self) -> None:
        """Collective: metrics and frame of the initial state."""
        self.look()
        self.first = self.last
        self.write()
        self.analysis.add(0, 0.0)

    def restore(self, kept: Restored) -> None:
        """Collective: continue from a checkpoint."""
        self.step, self.time = kept.step, kept.step * self.config.time.dt
        self._back(kept)
        self.first = self.last = thermo_of(kept.values["first"])
        if self.config.analysis.measures:
            self.run.say(f"observables of this run are those of the steps after {self.step}")

    def _back(self, kept: Restored) -> None:
        restore(self.system, kept, kept.step % self.config.time.thermo == 0)
        self.dynamics.restore(kept.values["dynamics"])

    def saved(self) -> State:
        """Collective: the content of a checkpoint: particles, counters, thermostat, and initial metrics."""
        values = {"system": values_of(self.system), "dynamics": self.dynamics.saved(), "first": asdict(self.first)}
        return State(pieces_of(self.system), values)

    def advance(self) -> Due:
        """Collective: do the next step."""
        times, step, dynamics = self.config.time, self.step + 1, self.dynamics
        wanted = step % times.thermo == 0 or step == times.steps
        self.run.advance(step, partial(dynamics.step, self.system, times.dt, wanted), self.saved, self._back)
        self.step, self.time = step, step * times.dt
        self.analysis.add(step, self.time)
        enough = self.config.dynamics.largest_force
        if isinstance(dynamics, Fire) and dynamics.largest_force < enough:
            self.is_at_minimum = True
            self.run.say(f"no force is larger than {enough:g}: a minimum after {step} steps")
            self.system.compute(measure=True)
        return Due(wanted or self.is_at_minimum, self.is_at_minimum or self.trajectory.is_due(step))

    def look(self) -> None:
        """Collective: measure, print a table line, write metrics. Raises `BlowUpError` if a value is not finite."""
        with self.run.timer("thermo"):
            self.last = thermo = measure(self.system)
            _require_sound(self.system, thermo, self.step)
            self.run.say(row(self.step, thermo, self.system.count, self.config.system.units == "lj"))
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
                **({"imbalance": self.system.balance.imbalance} if self.config.ranks.balance else {}),
            )

    def rate(self, steps: int, seconds: float) -> str:
        """Particle-steps per second."""
        return f"{self.system.count * steps / seconds / 1e6:.3g} million atom-steps/s"

    def write(self) -> None:
        """Collective: write a frame of the trajectory."""
        self.trajectory.write(self.step, self.time)

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


def run(config: Config, run: Run) -> None:
    """Do the run on all ranks of `run.comm`.

    Raises `InputError` for invalid settings, `BlowUpError` if positions are no longer finite.
    """
    begin = clock.perf_counter()
    start = Start(config)
    with run.compiling():
        system = make_system(config, start, run.comm, run.timer, run.device)
    notes = [*start.notes, *_image_notes(config, system.domains)]
    for line in (*(f"note: {note}" for note in notes), *domain_lines(system.domains)):
        run.say(line)
    run.say(f"{system.count} particles and kernels ready in {clock.perf_counter() - begin:.1f} s")
    with Trajectory(config, run, system) as trajectory:
        it = MolecularDynamics(config, run, system, trajectory)
        ran = time_loop(it)
    for line in performance(system.count, ran.steps, ran.seconds, config.time.dt, run.size, config.system.units):
        run.say(line)
    steady = config.dynamics.kind == "nve" and not config.dynamics.equilibrate
    run.finish(
        {
            "steps": it.step,
            "particles": system.count,
            "wall_seconds": ran.seconds,
            "simulated_time": it.time,
            "atom_steps_per_second": system.count * ran.steps / ran.seconds,
            "rebuilds": system.neighbors.builds,
            "units": system.units.names | dict.fromkeys(("kinetic", "potential"), system.units.names["energy"]),
            "conserved": conserved(energy=(it.first.total, it.last.total)) if steady else {},
            "domains": _domains(system),
        },
        status="done" if ran.complete else "stopped",
    )
    system.mesh.close()


def thermo_of(values: dict[str, Any]) -> Thermo:
    """The saved metrics."""
    return Thermo(**{**values, "tensor": tuple(values["tensor"])})


def _require_sound(system: System, thermo: Thermo, step: int) -> None:
    """Collective: raise `BlowUpError` with a lost particle, on metrics that all ranks share."""
    if math.isfinite(thermo.total) and math.isfinite(thermo.pressure):
        return
    particles = system.particles.on_host()
    slots = particles.own
    lost = slots[~np.isfinite(particles.forces[slots, :3] + particles.velocities[slots, :3]).all(axis=1)]
    rank, particle = first_of_ranks(system.mesh.comm, int(particles.ids[lost[0]]) + 1 if len(lost) else None) or (0, 0)
    raise BlowUpError(
        "forces or velocities are no longer finite",
        where=f"rank {rank}, step {step}, particle {particle}",
        likely="two particles that came too close: a time step too long, or overlaps at the start",
        do="lower time.dt, or start from particles that do not overlap",
    )


def _domains(system: System) -> dict[str, Any]:
    return {
        "axes": list(system.domains.topology.names),
        "sizes": list(system.domains.topology.sizes),
        "cuts": [list(cuts) for cuts in system.domains.cuts],
    }


def dry_run(config: Config, ranks: int) -> DryRun:
    """The cost of `run` on that many ranks; raises the errors that it would raise before its start."""
    start = Start(config)
    domains = DomainDecomposition.even(topology_of(config, start.upper - start.lower, ranks), start.lower, start.upper)
    reach = max(_cutoffs(config)) + config.neighbors.skin
    lengths = domains.lengths / np.array(domains.topology.sizes)
    density = start.count / float(np.prod(domains.lengths))
    own = density * float(np.prod(lengths))
    shell = density * float(np.prod(lengths + 2 * reach)) - own
    measured(config, domains.lengths, domains.periodic)
    interaction_of(config, len(start.masses))
    frames = Trajectory.frames(config)
    notes = [
        *start.notes,
        *_image_notes(config, domains),
        f"{own:.0f} particles and {shell:.0f} ghosts a rank, lists reach {reach:g}",
    ]
    if ranks > 1 and lengths.min() < reach:
        notes.append(
            "domains are thinner than the reach of the lists: ghosts come from beyond the neighbor rank, which is slow"
        )
    return DryRun(
        ranks=ranks,
        decomposition=[f"{start.count} particles", *domain_lines(domains)],
        halo_bytes=int(plans_of(config, start, ranks).ghosts.bytes_sent.max()) if ranks > 1 else 0,
        memory_per_rank=round((own + shell) * BYTES_PER_SLOT),
        output_bytes=frames * start.count * (3 * 8 * 2 + 3 * 4 + 8),
        frames=frames,
        steps=config.time.steps,
        notes=notes,
    )


def _image_notes(config: Config, domains: DomainDecomposition) -> list[str]:
    """A note if the box is so small that particles interact with several images, which is allowed."""
    lengths = [float(n) for n, wraps in zip(domains.lengths, domains.periodic, strict=True) if wraps]
    most = 2 * max(_cutoffs(config))
    if not lengths or min(lengths) >= most:
        return []
    return [
        f"a periodic box of {min(lengths):g} is shorter than twice the cutoff, {most:g}: particles meet several images"
        " of one another, and maybe their own; all are counted"
    ]


def _cutoffs(config: Config) -> list[float]:
    given = config.interaction
    return [given.cutoff, *(pair.cutoff for pair in given.pairs if pair.cutoff is not None)]
