"""The molecular dynamics app's run: time loop, thermo table, trajectory, summary."""

from __future__ import annotations

import math
import time as clock
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from hpckit.apps.md.analysis import Analysis, measured
from hpckit.apps.md.config import Config
from hpckit.apps.md.model import domain_lines, make_system, plans_of, topology_of
from hpckit.apps.md.motion import dynamics_of
from hpckit.apps.md.potentials import interaction_of
from hpckit.apps.md.start import Start
from hpckit.apps.md.table import HEADER, performance, row
from hpckit.apps.md.trajectory import Trajectory
from hpckit.errors import BlowUpError
from hpckit.io.checkpoint.state import Restored, State
from hpckit.md.dynamics import Dynamics
from hpckit.md.fire import Fire
from hpckit.md.saved import pieces_of, restore, values_of
from hpckit.md.system import System
from hpckit.md.thermo import Thermo, measure
from hpckit.plan.particles.domain import DomainDecomposition
from hpckit.run.context import DryRun, Run

BYTES_PER_SLOT = 4 * 32 + 8 + 12 + 100 * 4  # records, their spares, ids, images, a list of some 100 neighbors


def run(config: Config, run: Run) -> None:
    """Do the run on all ranks of `run.comm`.

    Raises `InputError` for settings that cannot be, `BlowUpError` where particles are no longer anywhere.
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
        first, last, steps, steps_now, seconds = _loop(config, run, system, trajectory)
    for line in performance(system.count, steps_now, seconds, config.time.dt, run.size, config.system.units):
        run.say(line)
    run.finish(
        {
            "steps": steps,
            "particles": system.count,
            "wall_seconds": seconds,
            "simulated_time": steps * config.time.dt,
            "atom_steps_per_second": system.count * steps_now / seconds if seconds > 0 else 0.0,
            "rebuilds": system.neighbors.builds,
            "units": system.units.names | dict.fromkeys(("kinetic", "potential"), system.units.names["energy"]),
            "conserved": _conserved(first, last)
            if config.dynamics.kind == "nve" and not config.dynamics.equilibrate
            else {},
            "domains": _domains(system),
        },
        status="stopped" if trajectory.stopped else "done",
    )
    system.mesh.close()


def _loop(config: Config, run: Run, system: System, trajectory: Trajectory) -> tuple[Thermo, Thermo, int, int, float]:
    """From the start, or a checkpoint, to the end or to an early stop: first and last thermo, steps in all and of this
    attempt, wall seconds.
    """
    dynamics, times, analysis = dynamics_of(config), config.time, Analysis(config, run, system)
    run.say(HEADER)
    done = 0

    def back(kept: Restored) -> None:
        restore(system, kept, kept.step % times.thermo == 0)
        dynamics.restore(kept.values["dynamics"])

    if run.restored is None:
        first = last = _report(config, run, system, 0)
        trajectory.write(0, 0.0)
        analysis.add(0, 0.0)
    else:
        done = run.restored.step
        back(run.restored)
        first = last = thermo_of(run.restored.values["first"])
        if config.analysis.measures:
            run.say(f"observables of this run are those of the steps after {done}")
    run.timer.reset()
    begin, before = clock.perf_counter(), done
    for step in range(done + 1, times.steps + 1):
        wanted = step % times.thermo == 0 or step == times.steps
        once = partial(dynamics.step, system, times.dt, wanted)
        run.advance(step, once, lambda: _saved(system, dynamics, first), back)
        analysis.add(step, step * times.dt)
        ended = isinstance(dynamics, Fire) and dynamics.largest_force < config.dynamics.largest_force
        done = step
        if ended:
            run.say(f"no force is larger than {config.dynamics.largest_force:g}: a minimum after {step} steps")
            system.compute(measure=True)
        if wanted or ended:
            with run.timer("thermo"):
                last = _report(config, run, system, step)
            rate = system.count * (step - before) / (clock.perf_counter() - begin) / 1e6
            run.progress(step, step * times.dt, times.steps * times.dt, f"{rate:.3g} million atom-steps/s")
        if ended or trajectory.is_due(step):
            with run.timer("output"):
                trajectory.write(step, step * times.dt)
        if ended:
            break
        if step < times.steps and run.edge(step, lambda: _saved(system, dynamics, first)):
            if not wanted:
                system.refresh(measure=True)
                last = measure(system)
            trajectory.write_end(step, step * times.dt)
            break
    with run.timer("analysis"):
        analysis.finish()
    seconds = clock.perf_counter() - begin
    run.timer.seconds["wait"] = system.ghosts.wait_seconds
    run.timer.seconds["exchange"] = max(0.0, run.timer.seconds.get("exchange", 0.0) - system.ghosts.wait_seconds)
    return first, last, done, done - before, seconds


def _saved(system: System, dynamics: Dynamics, first: Thermo) -> State:
    """Collective: what a checkpoint holds: particles, counters, thermostat, and the figures at the start."""
    values = {"system": values_of(system), "dynamics": dynamics.saved(), "first": asdict(first)}
    return State(pieces_of(system), values)


def thermo_of(values: dict[str, Any]) -> Thermo:
    """The figures that were saved."""
    return Thermo(**{**values, "tensor": tuple(values["tensor"])})


def _report(config: Config, run: Run, system: System, step: int) -> Thermo:
    """Collective: measure, print a line of the table, write metrics; refuse what is not finite."""
    thermo = measure(system)
    _require_sound(system, thermo, step)
    run.say(row(step, thermo, system.count, config.system.units == "lj"))
    run.metric(
        step=step,
        time=step * config.time.dt,
        temperature=thermo.temperature,
        potential=thermo.potential,
        kinetic=thermo.kinetic,
        energy=thermo.total,
        pressure=thermo.pressure,
        **{
            f"pressure_{name}": value
            for name, value in zip(("xx", "yy", "zz", "xy", "xz", "yz"), thermo.tensor, strict=True)
        },
        rebuilds=system.neighbors.builds,
        **({"imbalance": system.balance.imbalance} if config.ranks.balance else {}),
    )
    return thermo


def _require_sound(system: System, thermo: Thermo, step: int) -> None:
    """Collective, since all ranks have the same figures: raise `BlowUpError` naming a particle that is lost."""
    if math.isfinite(thermo.total) and math.isfinite(thermo.pressure):
        return
    particles = system.particles.on_host()
    slots = particles.own
    lost = slots[~np.isfinite(particles.forces[slots, :3] + particles.velocities[slots, :3]).all(axis=1)]
    own = np.array([0 if len(lost) else 1, particles.ids[lost[0]] + 1 if len(lost) else 0], np.int64)
    every = np.empty((system.mesh.size, 2), np.int64)
    system.mesh.comm.Allgather(own, every)
    rank = int(every[:, 0].argmin())
    raise BlowUpError(
        "forces or velocities are no longer finite",
        where=f"rank {rank}, step {step}, particle {every[rank, 1]}",
        likely="two particles that came too close: a time step too long, or overlaps at the start",
        do="lower time.dt, or start from particles that do not overlap",
    )


def _conserved(first: Thermo, last: Thermo) -> dict[str, dict[str, float]]:
    """The total energy."""
    change = (last.total - first.total) / abs(first.total) if first.total else 0.0
    return {"energy": {"initial": first.total, "final": last.total, "relative_change": change}}


def _domains(system: System) -> dict[str, Any]:
    return {
        "axes": list(system.domains.topology.names),
        "sizes": list(system.domains.topology.sizes),
        "cuts": [list(cuts) for cuts in system.domains.cuts],
    }


def dry_run(config: Config, ranks: int) -> DryRun:
    """What `run` would take on that many ranks; raises what it would raise before its start."""
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
            "domains are thinner than the reach of the lists: ghosts come from beyond the next rank, which is slow"
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
    """That particles meet images of themselves and of one another, which is allowed, where the box is as small."""
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
