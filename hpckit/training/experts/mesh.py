"""The mesh of experts, folded over the ranks of a pipeline's stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hpckit.plan.pipeline.parts import PartialSum, joined
from hpckit.training.experts.way import ExpertRanks
from hpckit.training.replicas import Replicas

if TYPE_CHECKING:
    from hpckit.comm.device import Device
    from hpckit.comm.mesh import Mesh
    from hpckit.plan.pipeline.training import TrainingPlan

TOKENS = ("dp", "cp", "tp")  # axes whose ranks hold different tokens


class ExpertMesh:
    """The ranks of a stage, dp x cp x tp, laid out as edp x ep x etp: neighbors have all experts among them.

    ranks: of this rank's lines ep and etp. replicas: edp, which have the same experts. every: all of them. Collective.
    """

    def __init__(self, mesh: Mesh, plan: TrainingPlan, deterministic: bool, device: Device) -> None:
        count = 1
        for name, size in zip(mesh.topology.names, mesh.topology.sizes, strict=True):
            count *= size if name in TOKENS else 1
        folded = mesh.fold(TOKENS, edp=count // (plan.ep * plan.etp), ep=plan.ep, etp=plan.etp)
        self.ranks = ExpertRanks(folded, apart=plan.parts > 0, deterministic=deterministic)
        self.replicas = Replicas(folded["edp"], deterministic, device)
        self.every = Replicas(folded.comm, deterministic, device)

    def nodes(self, nodes: Sequence[PartialSum]) -> tuple[list[PartialSum], list[PartialSum]]:
        """The nodes of the batch's tree that the copies of the experts add up, and those of the ranks of this line.

        nodes: of all ranks, in their order.
        """
        size, found = self.ranks.size, []
        for first in range(0, len(nodes), size):
            done: list[tuple[PartialSum, None]] = []
            for node in nodes[first : first + size]:
                joined(done, node, None, lambda left, right: None)
            found.append(done[0][0])
        own = self.replicas.rank * size
        return found, list(nodes[own : own + size])
