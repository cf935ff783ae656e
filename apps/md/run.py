"""The molecular dynamics app: its run from settings to the summary, and what a run would cost."""

from __future__ import annotations

import time as clock
from typing import Any

import numpy as np

from hpckit.apps.common.loop import conserved, time_loop
from hpckit.apps.md.config import Config
from hpckit.apps.md.evolution import MolecularDynamics
from hpckit.apps.md.free_energy.model import coupling_of
from hpckit.apps.md.free_energy.replicas import replicas_of, require_dealt, settings_of, told
from hpckit.apps.md.model import (
    domain_lines,
    make_system,
    plans_of,
    reach_of,
    require_fit,
    returned,
    started,
    topology_of,
)
from hpckit.apps.md.molecules.electrostatics import charge_lines
from hpckit.apps.md.motion.stages import Stages
from hpckit.apps.md.output.analysis import measured
from hpckit.apps.md.output.trajectory import Trajectory, performance
from hpckit.apps.md.potentials import interaction_of, reaches
from hpckit.apps.md.start import Start
from hpckit.comm.mesh import axis_comm
from hpckit.md.external.biases import Biases
from hpckit.md.motion.replicas import DOMAIN
from hpckit.md.system import System
from hpckit.plan.particles.domain import DomainDecomposition
from hpckit.plan.particles.ghosts import POSITION
from hpckit.plan.pricing import traffic
from hpckit.run.context import DryRun, Run

WARMER = (
    "equilibrate longer, with a shorter dynamics.damping, or start hotter (system.temperature): a lattice that melts"
    " takes half of its kinetic energy"
)
MOST_PLANNED = 4096  # ranks of a dry run whose ghosts are planned: more take seconds
BYTES_PER_SLOT = 4 * 32 + 8 + 12 + 100 * 4  # records, their spares, ids, images, a list of about 100 neighbors


def run(config: Config, run: Run) -> None:
    """Do the run on all ranks of `run.comm`.

    Raises `InputError` for invalid settings, `BlowUpError` if positions are no longer finite.
    """
    begin = clock.perf_counter()
    replicas, asked = replicas_of(config, run.comm), config.staged[-1]
    if replicas is not None:
        config = settings_of(config, replicas)
    whole, config = config, config.staged[0]
    start, comm = Start(config), run.comm if replicas is None else axis_comm(replicas.mesh[DOMAIN])
    with run.compiling():
        system = make_system(config, start, comm, run.timer, run.device)
    notes = [*start.notes, *_notes(whole.staged[-1]), *_image_notes(config, system.domains)]
    charges = charge_lines(config, start, system.domains.cell)
    for line in (*(f"note: {note}" for note in notes), *domain_lines(system.domains), *charges):
        run.say(line)
    run.say(f"{system.count} particles and kernels ready in {clock.perf_counter() - begin:.1f} s")
    biases = system.biases if isinstance(system.biases, Biases) else None
    with Trajectory(whole, run, system, replicas, start.file) as trajectory:
        coupling = coupling_of(config, start, biases)
        it = MolecularDynamics(whole, run, system, Stages(whole, start, system), trajectory, coupling, replicas)
        ran = time_loop(it)
    for line in performance(system.count, ran.steps, ran.seconds, config.time.dt, run.size, config.system.units):
        run.say(line)
    temperature, findings = it.temperature(asked), []
    if replicas is not None:
        shares = ", ".join(f"{share:.0%}" for share in told(replicas)["acceptance"])
        run.say(f"{replicas.number} attempts to swap temperatures; of neighbor pairs {shares} were accepted")
    if temperature.get("missed"):
        text = f"the run is at T = {temperature['mean']:.4g}, and you asked for {temperature['asked']:g}"
        findings.append({"text": text, "do": WARMER})
        run.say(f"note: {text}; {WARMER}")
    energy: dict[str, Any] = conserved(energy=(it.start.total, it.last.total)) if it.start else {}
    for record in energy.values():
        record["since"] = it.stages.times[-1] + it.config.dynamics.equilibrate * it.config.time.dt
    run.finish(
        {
            "steps": it.step,
            "particles": system.count,
            "wall_seconds": ran.seconds,
            "simulated_time": it.time,
            "atom_steps_per_second": system.count * ran.steps / ran.seconds,
            "rebuilds": system.neighbors.builds,
            "units": system.units.names | dict.fromkeys(("kinetic", "potential"), system.units.names["energy"]),
            "conserved": energy,
            "temperature": temperature,
            "findings": findings,
            "domains": _domains(system),
            "stages": {"begins": it.stages.begins, "times": it.stages.times},
            **({"replicas": told(replicas)} if replicas is not None else {}),
        },
        status="done" if ran.complete else "stopped",
    )
    system.mesh.close()
    if replicas is not None:
        replicas.mesh.close()


def _domains(system: System) -> dict[str, Any]:
    return {
        "axes": list(system.domains.topology.names),
        "sizes": list(system.domains.topology.sizes),
        "cuts": [list(cuts) for cuts in system.domains.cuts],
    }


def _halo_bytes(config: Config, start: Start, ranks: int, shell: float) -> int:
    """What a rank sends at each step, at most: by the plans, of very many ranks what `shell` ghosts take."""
    if ranks > MOST_PLANNED:
        return round(shell * (POSITION + returned(config)))
    each = [traffic(plan)[1] for plan in plans_of(config, start, ranks).of_a_step()] if ranks > 1 else []
    return round(float(np.sum(each, axis=0).max())) if each else 0


def dry_run(config: Config, ranks: int) -> DryRun:
    """The cost of `run` on that many ranks; raises the errors that it would raise before its start."""
    require_dealt(config, ranks)
    whole, config = config, config.staged[0]
    start, ranks = Start(config), ranks // max(1, len(config.replicas.temperatures))
    for each in whole.staged:
        require_fit(each, start)
        interaction_of(each, len(start.masses))
    topology = topology_of(config, start.upper - start.lower, ranks)
    domains = DomainDecomposition.even(topology, start.lower, start.upper, start.tilt)
    reach = max(reach_of(each, start) for each in whole.staged) + config.neighbors.skin
    lengths = domains.lengths / np.array(domains.topology.sizes)
    density = start.count / float(np.prod(domains.lengths))
    own = density * float(np.prod(lengths))
    shell = density * float(np.prod(lengths + 2 * domains.cell.reaches(reach))) - own
    measured(whole.staged[-1], domains.cell.widths, domains.periodic)
    frames = sum(map(Trajectory.frames, whole.staged))
    charges = charge_lines(config, start, started(config, start))
    notes = [
        *start.notes,
        *_notes(whole.staged[-1]),
        *_image_notes(config, domains),
        f"{own:.0f} particles and {shell:.0f} ghosts a rank, from as far as {reach:g}",
    ]
    if ranks > 1 and (lengths < domains.cell.reaches(reach)).any():
        notes.append("domains are thinner than that: ghosts come from beyond the neighbor rank, which is slow")
    return DryRun(
        ranks=ranks,
        decomposition=[f"{start.count} particles", *domain_lines(domains), *charges],
        halo_bytes=_halo_bytes(config, start, ranks, shell),
        memory_per_rank=round((own + shell) * BYTES_PER_SLOT),
        output_bytes=frames * start.count * (3 * 8 * 2 + 3 * 4 + 8),
        frames=frames,
        steps=sum(each.time.steps for each in whole.staged),
        notes=notes,
    )


def _notes(config: Config) -> list[str]:
    """Settings that are allowed, and hardly meant."""
    notes, pair, steps = [], config.interaction, config.time.steps
    if pair.kind == "lennard_jones" and max(reaches(config)) <= min(pair.sigma):
        notes.append(f"interaction.cutoff {pair.cutoff:g} is within the core of the particles: they hardly interact")
    if config.analysis.measures and config.settled > steps:
        notes.append(f"nothing is measured: analysis begins at step {config.settled}, and the run has {steps} steps")
    return notes


def _image_notes(config: Config, domains: DomainDecomposition) -> list[str]:
    """A note if the box is so small that particles interact with several images, which is allowed."""
    lengths = [float(n) for n, wraps in zip(domains.cell.widths, domains.periodic, strict=True) if wraps]
    most = 2 * max(reaches(config))
    if not lengths or min(lengths) >= most:
        return []
    return [
        f"a periodic box of {min(lengths):g} is shorter than twice the cutoff, {most:g}: particles meet several images"
        " of one another, and maybe their own; all are counted"
    ]
