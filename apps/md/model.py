"""The system of a run: decomposed box, interaction, particles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.apps.md.config import Config
from hpckit.apps.md.free_energy.model import biases_of
from hpckit.apps.md.molecules.electrostatics import charged, fineness_of, long_range
from hpckit.apps.md.molecules.topology import bonds_of, constraints_of, exclusions_of, terms_of
from hpckit.apps.md.motion.dynamics import bind_groups
from hpckit.apps.md.motion.velocities import change_velocities
from hpckit.apps.md.potentials import interaction_of, reaches
from hpckit.apps.md.start import Start
from hpckit.comm.device import HOST, Device
from hpckit.comm.mesh import Mesh
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.errors import DecompositionError, InputError
from hpckit.kernels.compile import vectors as simd
from hpckit.md.granular.contacts import SphereForces
from hpckit.md.molecules.charges import CLUSTERED
from hpckit.md.molecules.contributions import span
from hpckit.md.motion.deformation import Deformation, changed
from hpckit.md.motion.dynamics import NVE, warm_up
from hpckit.md.neighbors import Rebuilds
from hpckit.md.saved import rows_block, take_rows
from hpckit.md.system import System
from hpckit.md.units import UNITS
from hpckit.plan.grid.factor import best_factorization
from hpckit.plan.particles.cell import TILTS, Cell
from hpckit.plan.particles.domain import DomainDecomposition
from hpckit.plan.particles.uniform import FORCE, MdPlans, md_plans
from hpckit.plan.topology import Topology

AXES = ("x", "y", "z")
FINE = 5040  # units per longest edge, in which a split is chosen


def topology_of(config: Config, lengths: np.ndarray, ranks: int) -> Topology:
    """The ranks along each dim: those of the settings, else such that domains have little surface.

    Raises `DecompositionError` if the ranks do not fit the settings.
    """
    shape = tuple(max(1, round(FINE * float(length / lengths.max()))) for length in lengths)
    wanted = (config.ranks.x, config.ranks.y, config.ranks.z)
    given, free = math.prod(n for n in wanted if n), 0 in wanted
    if ranks % given or not (free or ranks == given):
        raise DecompositionError(
            f"{ranks} ranks cannot be laid over ranks.x, y, z = {', '.join(map(str, wanted))} (0: automatic)",
            do=f"start {given} ranks{' or a multiple of them' if free else ''}, or set ranks.x, ranks.y, ranks.z",
        )
    closed = [axis in config.system.periodic for axis in AXES]
    return Topology(AXES, best_factorization(ranks, shape, wanted, closed), config.system.periodic)


def started(config: Config, start: Start) -> Cell:
    """The cell in which a run begins: that of the file or lattice, after the changes before the run."""
    changes = [each.change for each in config.deform.start]
    return changed(start.cell, changes) if changes else start.cell


def _leans(config: Config) -> bool:
    """Whether a tilt changes during the run."""
    held = config.barostat
    return (held.kind != "none" and bool(held.tilts)) or any(len(each.of) == 2 for each in config.deform.changes)


def require_fit(config: Config, start: Start) -> None:
    """Raise `InputError` for settings that do not go with a tilted box."""
    cell = started(config, start)
    if config.deform.changes:
        changes, closed = [each.change for each in config.deform.changes], [x in config.system.periodic for x in AXES]
        duration = (config.time.steps - config.dynamics.equilibrate) * config.time.dt
        Deformation(NVE(), changes, duration).require_sound(cell, closed)
    if not (start.tilt.any() or config.tilts):
        return
    wrong = {
        "coulomb.kind = 'ewald' with tilts that change": config.coulomb.kind == "ewald" and _leans(config),
        "dynamics.walls": bool(config.dynamics.walls),
        "a variable of kind position": any(each.kind == "position" for each in config.variables),
    }
    named = [name for name, there in wrong.items() if there]
    if named:
        tilt = ", ".join(f"{name} = {value:g}" for name, value in zip(TILTS, cell.tilt, strict=True))
        raise InputError(
            f"the box is tilted or becomes so ({tilt} at the start), and {' and '.join(named)} cannot be used then",
            do="omit what is named, or start from an upright box",
        )


def make_system(config: Config, start: Start, comm: MPI.Intracomm, timer: PhaseTimer, device: Device = HOST) -> System:
    """Collective: the initial system, with forces. The caller closes `system.mesh`.

    Raises `InputError` for settings that a GPU does not support.
    """
    require_fit(config, start)
    topology = topology_of(config, start.upper - start.lower, comm.size)
    x, y, z = topology.sizes
    mesh = Mesh(comm, periodic=config.system.periodic, x=x, y=y, z=z)
    neighbors = config.neighbors
    pairs, cell = interaction_of(config, len(start.masses)), started(config, start)
    system = System(
        mesh,
        DomainDecomposition.even(mesh.topology, start.lower, start.upper, start.tilt),
        start.masses,
        charged(config, start, pairs, cell),
        skin=neighbors.skin,
        units=UNITS[config.system.units],
        rebuilds=Rebuilds(neighbors.every, neighbors.delay, neighbors.check),
        precision=config.precision,
        repro=config.repro,
        balance_every=config.ranks.balance,
        timer=timer,
        device=device,
        bonds=bonds_of(config, start),
        terms=terms_of(config, start),
        exclusions=exclusions_of(config, start),
        constraints=constraints_of(config, start),
        long_range=long_range(config, start, cell),
        inner=config.dynamics.inner,
    )
    system.dims, system.margins = config.system.dims, start.margins
    system.neighbors.keeps_skin = bool(system.margins)  # the volume is that of LAMMPS, with its lists
    bind_groups(system, config, start)
    system.biases = biases_of(config, start)
    system.load(start.packed(comm))
    if config.deform.start:
        system.reshape(cell)
    system.rebuild()
    set_spins(system, start)
    for each in config.system.changes:
        change_velocities(system, start, each, at_start=True)
    system.compute(measure=True)
    warm_up(system)
    system.settle()
    return system


def set_spins(system: System, start: Start) -> None:
    """Collective, after a rebuild: give spheres the spins of their file, and those that do not move no velocity."""
    if not isinstance(system.forces, SphereForces):
        return
    system.particles.velocities[: system.particles.slots][system.inverse_masses == 0.0] = 0.0
    if start.file is None or start.file.spins is None:
        return
    first, count = rows_block(system)
    take_rows(system, start.file.spins[first : first + count], system.forces.spins)


def plans_of(config: Config, start: Start, ranks: int) -> MdPlans:
    """The plans of a run on that many ranks, for particles spread evenly over the box."""
    lengths, reach = start.upper - start.lower, reach_of(config, start)
    density = start.count / float(np.prod(lengths))
    more: dict[str, Any] = {"returned": returned(config)}
    if config.coulomb.kind == "pppm":
        fineness = fineness_of(config, start, started(config, start))
        more |= {"mesh": fineness.mesh, "order": fineness.order}
    topology = topology_of(config, lengths, ranks)
    return md_plans(lengths, density, reach, config.neighbors.skin, topology, **more)


def reach_of(config: Config, start: Start) -> float:
    """From how far ghosts come at least, beside the skin: that of pairs, and of partners in a molecule."""
    return max(*reaches(config), span(bonds_of(config, start), terms_of(config, start), exclusions_of(config, start)))


def returned(config: Config) -> float:
    """Bytes of each ghost that go back to its owner in a step, 0 where owners compute all forces by themselves."""
    if config.interaction.kind in ("tersoff", "snap"):
        return FORCE * (1 + config.repro)  # multiples of two scales
    once = config.coulomb.kind != "none" and not config.repro and simd.available()[0] in CLUSTERED
    return FORCE * once


def domain_lines(domains: DomainDecomposition, names: Sequence[str] = AXES) -> list[str]:
    """The split as text."""
    sizes = " x ".join(map(str, domains.topology.sizes))
    edges = " x ".join(f"{length:g}" for length in domains.lengths)
    closed = ", ".join(domains.topology.periodic) or "no dim"
    tilt = f", tilted by {', '.join(f'{each:g}' for each in domains.tilt)}" if any(domains.tilt) else ""
    return [f"a box of {edges}{tilt}, periodic in {closed}", f"{sizes} ranks along {', '.join(names)}"]
