"""A system of particles in checkpoints: by id, independent of the ranks, with the positions of the last rebuild.

Lists are made, and particles wrapped into the box, only at rebuilds. A run that resumes with the lists of its last
rebuild rebuilds at the same steps as one that never stopped, so with reproducible forces it has the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.comm.agree import all_of_ranks
from hpckit.comm.mesh import Mesh
from hpckit.io.checkpoint.state import Piece, Restored
from hpckit.kernels.particles.records.dispatch import types_of
from hpckit.md.granular.contacts import SIDE, SphereForces
from hpckit.md.system import System
from hpckit.particles.migration import send_to
from hpckit.particles.particles import pack_particles
from hpckit.plan.blocks import block
from hpckit.plan.particles.cell import Cell
from hpckit.plan.particles.domain import DomainDecomposition

PARTICLE = np.dtype(
    [
        *(("id", "i8"), ("position", "f8", 3), ("built", "f8", 3), ("velocity", "f8", 3)),
        *(("image", "i4", 3), ("type", "i4"), ("charge", "f8"), ("force", "f8", 3)),
    ]
)
ARRAYS = ("position", "built", "velocity", "image", "type")
NUMBERED = np.dtype([("id", "i8"), ("row", "f8", 3)])
QUESTION = np.dtype([("id", "i8"), ("rank", "i8")])


def pieces_of(system: System) -> list[Piece]:
    """Collective: the arrays of all particles in the order of their ids, an even share of the rows on each rank.

    position, velocity: float64 [particles, 3]; built: the positions at the last rebuild, in the box; image: int32
    [particles, 3], box lengths gone until then; type: int32 [particles], from 0; charge: float64 [particles]; force:
    float64 [particles, 3], with constraints, whose forces depend on the velocities of half a step before, and where a
    box or places that have changed since make them differ from those of the positions, and of spheres. Of these also
    spin, torque: float64 [particles, 3]; and of the contacts that remember something sides: int64 [n, 2], the ids of
    both, and slid: float64 [n, 3].
    """
    particles = system.particles.on_host()
    slots = particles.own
    each = np.zeros(len(slots), PARTICLE)
    each["id"], each["type"] = particles.ids[slots], types_of(particles.positions[slots])
    each["position"], each["velocity"] = particles.positions[slots, :3], particles.velocities[slots, :3]
    each["built"] = system.device.to_host(system.neighbors.built)[slots, :3]
    each["image"], each["charge"] = particles.images[slots], particles.charges[slots]
    each["force"] = particles.forces[slots, :3]
    came = send_to(system.mesh, each, _homes(system, each["id"]))
    came = came[np.argsort(came["id"])]
    first, count = rows_block(system)
    if not np.array_equal(came["id"], np.arange(first, first + count)):
        raise AssertionError("particles of a checkpoint are lost or doubled")
    pieces = [
        Piece(name, (system.count, *came[name].shape[1:]), (first, *(0 for _ in came[name].shape[1:])), came[name])
        for name in _arrays(system)
    ]
    forces = system.forces
    if isinstance(forces, SphereForces):
        for name, values in (("spin", forces.spins), ("torque", forces.torques)):
            pieces.append(Piece(name, (system.count, 3), (first, 0), rows_by_id(system, values)))
        pieces += _sides(system, forces)
    return pieces


def _sides(system: System, forces: SphereForces) -> list[Piece]:
    """Collective: what contacts remember, in the order of the ids; none where none does."""
    sides = forces.sides(system.particles)
    sides = send_to(system.mesh, sides, _homes(system, sides["id"]))
    sides = sides[np.lexsort((sides["other"], sides["id"]))]
    counts = all_of_ranks(system.mesh.comm, np.array(len(sides), np.int64)).astype(np.int64)
    total, before = int(counts.sum()), int(counts[: system.mesh.rank].sum())
    if not total:
        return []
    ids = np.stack([sides["id"], sides["other"]], axis=1)
    slid = np.ascontiguousarray(sides["slid"])
    return [Piece("sides", (total, 2), (before, 0), ids), Piece("slid", (total, 3), (before, 0), slid)]


def _take_sides(system: System, forces: SphereForces, restored: Restored) -> None:
    """Collective: give contacts what they remember, on the ranks that have their particles now."""
    if "sides" not in restored.names:
        return
    mesh, particles = system.mesh, system.particles
    start, count = block(restored.shape("sides")[0], mesh.size, mesh.rank)
    sides = np.zeros(count, SIDE)
    ids = restored.read("sides", (start, 0), (count, 2))
    sides["id"], sides["other"] = ids[:, 0], ids[:, 1]
    sides["slid"] = restored.read("slid", (start, 0), (count, 3))
    own = np.zeros(particles.count, QUESTION)
    own["id"], own["rank"] = particles.ids[particles.own], mesh.rank
    known = send_to(mesh, own, _homes(system, own["id"]))
    sides = send_to(mesh, sides, _homes(system, sides["id"]))
    ranks = np.zeros(len(known), np.int64)
    first, _ = rows_block(system)
    ranks[known["id"] - first] = known["rank"]
    forces.place_sides(particles, system.neighbors, send_to(mesh, sides, ranks[sides["id"] - first]))


def values_of(system: System) -> dict[str, Any]:
    """The box, and the counters of a system, which determine its next rebuild."""
    neighbors, domains = system.neighbors, system.domains
    counters = {"builds": neighbors.builds, "missed": neighbors.missed, "since": neighbors.since}
    box = {"lower": domains.lower.tolist(), "upper": domains.upper.tolist(), "tilt": list(domains.tilt)}
    return {
        **counters,
        **box,
        "stretch": neighbors.stretch.tolist(),
        "skin": neighbors.skin,
        "steps": system.steps,
        "reshaped": system.reshaped,
        "given": dict(system.given),
    }


def restore(system: System, restored: Restored, measure: bool) -> None:
    """Collective: replace the particles of the system by those of a checkpoint.

    Forces are computed as in the saved step, with energies or without: the two kernels may round differently.
    """
    values, neighbors = restored.values["system"], system.neighbors
    if "lower" in values:
        cell = Cell.of(values["lower"], values["upper"], values.get("tilt", (0.0, 0.0, 0.0)))
        if cell != system.domains.cell:
            ends = cell.lower, cell.upper, cell.tilt
            system.domains = DomainDecomposition.even(system.mesh.topology, *ends)
    first, count = rows_block(system)
    ids = np.arange(first, first + count)
    rows: dict[str, np.ndarray] = {}
    system.reshaped, system.given = bool(values.get("reshaped")), dict(values.get("given", {}))
    for name in _arrays(system):
        rest = restored.shape(name)[1:]
        rows[name] = restored.read(name, (first, *(0 for _ in rest)), (count, *rest))
    given = rows["built"], rows["velocity"], rows["type"].astype(np.int64), rows["image"], rows.get("charge")
    system.load(pack_particles(ids, *given))
    neighbors.next_skin = values.get("skin")
    system.rebuild()
    particles, device = system.particles, system.device
    slots = particles.own
    places = _asked(system, device.to_host(particles.ids[slots]), rows["position"], first)
    particles.positions[slots, :3] = device.to_device(places)
    neighbors.builds, neighbors.missed, neighbors.since = (values[name] for name in ("builds", "missed", "since"))
    neighbors.stretch, system.steps = np.array(values.get("stretch", [1.0] * 3)), values["steps"]
    system.refresh(measure)
    if "force" in rows:
        forces = _asked(system, device.to_host(particles.ids[slots]), rows["force"], first)
        particles.forces[slots, :3] = device.to_device(forces)
        system.reshaped = bool(values.get("reshaped"))
    if isinstance(system.forces, SphereForces):
        for name, array in (("spin", system.forces.spins), ("torque", system.forces.torques)):
            take_rows(system, restored.read(name, (first, 0), (count, 3)), array)
        _take_sides(system, system.forces, restored)


def _arrays(system: System) -> tuple[str, ...]:
    """What a checkpoint holds: charges of those that have them, and forces that do not follow from the positions."""
    forces = system.constraints is not None or system.reshaped or isinstance(system.forces, SphereForces)
    forces = forces or (system.external is not None and system.external.sees_velocities)
    return (*ARRAYS, *["charge"] * system.charged, *["force"] * forces)


def rows_block(system: System) -> tuple[int, int]:
    """The rows of a checkpoint that this rank writes and reads: the first, and their number."""
    return block(system.count, system.mesh.size, system.mesh.rank)


def rows_by_id(system: System, values: Any) -> np.ndarray:
    """Collective: three numbers of each particle, [slots, 3 or more], in the order of ids: the rows of this rank."""
    slots, to_host = system.particles.own, system.device.to_host
    each = np.zeros(len(slots), NUMBERED)
    each["id"], each["row"] = to_host(system.particles.ids[slots]), to_host(values[slots])[:, :3]
    came = send_to(system.mesh, each, _homes(system, each["id"]))
    return np.ascontiguousarray(came[np.argsort(came["id"])]["row"])


def take_rows(system: System, rows: np.ndarray, values: Any) -> None:
    """Collective: set the first three numbers of each particle, [slots, 3 or more], to those of `rows_by_id`."""
    slots = system.particles.own
    ids = system.device.to_host(system.particles.ids[slots])
    values[slots, :3] = system.device.to_device(_asked(system, ids, rows, rows_block(system)[0]))


def _homes(system: System, ids: np.ndarray) -> np.ndarray:
    """The ranks that have the rows of these ids."""
    firsts = [block(system.count, system.mesh.size, rank)[0] for rank in range(system.mesh.size)]
    return np.searchsorted(firsts, ids, side="right") - 1


def _asked(system: System, ids: np.ndarray, rows: np.ndarray, first: int) -> np.ndarray:
    """Collective: fetch the rows of these ids; `rows` are the rows on this rank, from id `first` on."""
    mesh: Mesh = system.mesh
    homes = _homes(system, ids)
    order = np.argsort(homes, kind="stable")
    questions = np.zeros(len(ids), QUESTION)
    questions["id"], questions["rank"] = ids[order], mesh.rank
    came = send_to(mesh, questions, homes[order])
    answers = np.zeros(len(came), np.dtype([("row", "f8", 3)]))
    answers["row"] = rows[came["id"] - first]
    back = send_to(mesh, answers, came["rank"])
    found = np.empty((len(ids), 3))
    found[order] = back["row"]
    return found
