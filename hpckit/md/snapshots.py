"""All particles of a system at one instant: on rank 0 for files, on every rank for observables; and back."""

from __future__ import annotations

import numpy as np

from hpckit.collectives.whole import rows_of_ranks
from hpckit.comm.device import HOST
from hpckit.comm.mesh import Mesh
from hpckit.kernels.particles.records.dispatch import types_of
from hpckit.md.granular.contacts import SphereForces
from hpckit.md.system import System
from hpckit.particles.flow import wrap_within
from hpckit.particles.migration import exchange
from hpckit.particles.particles import PACKED, pack_particles
from hpckit.plan.particles.snapshot import Snapshot

WITH_FORCE = np.dtype([("particle", PACKED), ("force", "f8", 4)])
WITH_SPIN = np.dtype([*WITH_FORCE.descr, ("spin", "f8", 3)])  # of spheres


def snapshot(
    system: System, step: int = 0, time: float = 0.0, forces: bool = False, within: tuple[Mesh, bool] | None = None
) -> Snapshot | None:
    """Collective: all particles in the order of their ids, on rank 0; None elsewhere.

    Positions are wrapped into the box, with image flags that count the crossings; ids count from 1. within: a mesh of
    several systems, on whose rank 0 the particles are, and whether this system is the one that is meant.
    """
    mesh, chosen = within or (system.mesh, True)
    each = _own_particles(system)
    each = each if chosen else each[:0]
    counts = np.zeros(mesh.size, np.int64)
    counts[0] = len(each)
    every = exchange(mesh, each, counts)
    return None if mesh.rank else _snapshot_of(system, every, step, time, forces)


def frame(system: System, step: int = 0, time: float = 0.0) -> Snapshot:
    """Collective: a `snapshot` on every rank, for observables. Each rank needs at least 88 bytes per particle."""
    every = np.concatenate(rows_of_ranks(_own_particles(system), system.mesh))
    return _snapshot_of(system, every, step, time, forces=False)


def load_snapshot(system: System, given: Snapshot | None) -> None:
    """Collective: load the particles of a snapshot given by rank 0 (None elsewhere). Ids become 0, 1, ….

    Raises the errors of `System.load`.
    """
    packed = np.zeros(0, PACKED)
    if given is not None:
        n = given.count
        velocities = np.zeros((n, 3)) if given.velocities is None else given.velocities
        packed = pack_particles(np.arange(n), given.positions, velocities, given.types, given.images, given.charges)
    system.load(packed)


def _own_particles(system: System) -> np.ndarray:
    """The particles of this rank with their forces, to send."""
    particles = system.particles.on_host()
    slots = particles.own
    spheres = isinstance(system.forces, SphereForces)
    each = np.zeros(len(slots), WITH_SPIN if spheres else WITH_FORCE)
    each["particle"], each["force"] = particles.packed(slots), particles.forces[slots]
    if isinstance(system.forces, SphereForces):
        each["spin"] = system.forces.spins[slots, :3]
    return each


def _snapshot_of(system: System, every: np.ndarray, step: int, time: float, forces: bool) -> Snapshot:
    domains, every = system.domains, every[np.argsort(every["particle"]["id"])]
    packed, terms = every["particle"], {each.name: each.topology for each in system.terms}
    x, y, z = map(bool, domains.periodic)
    positions, images = np.ascontiguousarray(packed["position"]), np.ascontiguousarray(packed["image"])
    spheres = None
    if isinstance(system.forces, SphereForces):
        spheres = system.forces.interaction.sizes[types_of(positions)]
    velocities = np.array(packed["velocity"])
    wrap_within(system.flow, domains, positions, velocities, images, HOST)
    return Snapshot(
        lower=domains.lower,
        upper=domains.upper,
        tilt=np.array(domains.tilt),
        periodic=(x, y, z),
        ids=packed["id"] + 1,
        types=types_of(positions),
        positions=np.ascontiguousarray(positions[:, :3]),
        images=images,
        velocities=np.ascontiguousarray(velocities[:, :3]),
        forces=np.ascontiguousarray(every["force"][:, :3]) if forces else None,
        masses=system.masses,
        charges=np.ascontiguousarray(packed["charge"]) if system.charged else None,
        bonds=None if system.bonds is None else system.bonds.topology,
        angles=terms.get("angles"),
        dihedrals=terms.get("dihedrals"),
        impropers=terms.get("impropers"),
        spheres=spheres,
        spins=None if spheres is None else np.ascontiguousarray(every["spin"]),
        step=step,
        time=time,
    )
