"""The plans of a uniform fluid: the messages of molecular dynamics on a number of ranks, without running it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hpckit.plan.particles.charge_mesh import ChargeMeshPlan, charge_halo, charge_mesh_plan
from hpckit.plan.particles.domain import DomainDecomposition
from hpckit.plan.particles.ghosts import GhostPlan
from hpckit.plan.particles.migration import MigrationPlan, migration_of
from hpckit.plan.protocol import Plan, transposed
from hpckit.plan.topology import Topology

MOST = 40_000  # particles that stand for all
FORCE = 32.0  # bytes: a force on a ghost, as records are
STRAY = 0.25  # of the skin: how far particles have moved at a rebuild, along each dim


class MdPlans(NamedTuple):
    """What a run of molecular dynamics sends: ghosts in each step, migration at each rebuild of its lists; and in each
    step, where there are any, the forces of ghosts on their way home and a mesh of charges.
    """

    ghosts: GhostPlan
    migration: MigrationPlan
    returns: Plan | None = None
    mesh: ChargeMeshPlan | None = None

    def of_a_step(self) -> tuple[Plan, ...]:
        """Those of each step, in their order."""
        return tuple(each for each in (self.ghosts, self.returns, self.mesh) if each is not None)

    def named(self) -> dict[str, Plan]:
        """Those that there are."""
        return {name: plan for name, plan in self._asdict().items() if plan is not None}


def md_plans(
    box: npt.ArrayLike,
    density: float,
    cutoff: float,
    skin: float,
    topology: Topology,
    node: int = 0,
    seed: int = 1,
    returned: float = 0.0,
    mesh: tuple[int, ...] = (),
    order: int = 5,
) -> MdPlans:
    """The plans of particles spread evenly over a box of these edges, cut into equal domains along `topology`'s axes.

    density: particles per volume; cutoff, skin: lists reach as far as both together. node: how many ranks, one after
    the other, share the memory of a node, 0 where all is sent by messages. returned: bytes of each ghost that go back
    to its owner, 0 where forces are computed by owners alone (`FORCE`: as of charges, Tersoff, SNAP). mesh: the points
    of a mesh of charges, each of which is spread over `order` points along each dim; () for none. At a rebuild
    particles have moved by up to a quarter of the skin along each dim. At most `MOST` particles, placed at random,
    stand for all of them.
    """
    lengths = np.broadcast_to(np.asarray(box, np.float64), 3)
    total = density * math.prod(lengths)
    count = max(1, min(MOST, round(total)))
    share = 1.0 if count == round(total) else total / count
    domains = DomainDecomposition.even(topology, np.zeros(3), lengths)
    random = np.random.default_rng(seed)
    positions = random.uniform(0.0, 1.0, (count, 3)) * lengths
    moved = positions + random.uniform(-STRAY * skin, STRAY * skin, (count, 3))
    moved = np.where(domains.periodic, np.mod(moved, lengths), moved)
    nodes = np.arange(topology.size) // node if node else None
    ghosts = GhostPlan.of(domains, cutoff + skin, positions, node=nodes, share=share)
    counts = migration_of(domains.owners(moved), domains.owners(positions), topology.size)
    home = transposed(replace(ghosts, itemsize=returned)) if returned else None
    charges = None
    if mesh:
        halo = charge_halo(mesh, order, np.full(3, skin), lengths)
        charges = charge_mesh_plan(mesh, topology, halo)
    return MdPlans(ghosts, MigrationPlan(counts, share=share), home, charges)
