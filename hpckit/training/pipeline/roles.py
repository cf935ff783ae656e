"""With whom a rank of a mesh shares layers, tokens, experts and parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from hpckit.errors import InputError
from hpckit.plan.pipeline.parts import group_fault
from hpckit.training.context.model import context_parallel
from hpckit.training.context.ranks import ContextRanks
from hpckit.training.experts.mesh import ExpertMesh
from hpckit.training.experts.model import expert_parallel, sample_parallel
from hpckit.training.replicas import Replicas
from hpckit.training.tensor.model import tensor_parallel
from hpckit.training.tensor.ranks import Ranks

if TYPE_CHECKING:
    from hpckit.comm.device import Device
    from hpckit.comm.mesh import Mesh
    from hpckit.nn.layer import Sequential
    from hpckit.plan.pipeline.training import TrainingPlan


@dataclass(frozen=True)
class Roles:
    """With whom a rank shares what, on a mesh of the axes dp, pp, cp and tp, of which any may be missing.

    line: the communicator of its pipeline. replica: its number along dp: each takes samples of its own. tensor: the
    ranks that share each layer. context: those that share the tokens of a sample. replicas: those that hold the same
    parameters. groups: where the replicas hold several copies in shards, those of this rank's copy, and those that
    hold the same shards of other copies; else none. experts: the mesh over which experts are dealt, if they are.
    """

    line: Any
    replica: int
    tensor: Ranks
    context: ContextRanks
    replicas: Replicas
    groups: tuple[Replicas, ...]
    experts: ExpertMesh | None

    @classmethod
    def on(
        cls,
        mesh: Mesh,
        plan: TrainingPlan,
        *,
        deterministic: bool,
        device: Device,
        tensor_chunks: int,
        context: str,
        sharding: int,
        shard_group: int,
    ) -> Roles:
        """The roles of this rank by a plan. Arguments: see `Pipeline`. Collective. Raises `InputError`."""
        if plan.cp > 1 and device.is_gpu:
            raise InputError("context parallelism runs on the host", do="take cp=1 on GPUs")
        what, do = group_fault(shard_group, plan.replicas, plan.parts)
        if what or (shard_group and not sharding):
            raise InputError(what or f"shard_group={shard_group} without shards", do=do or "give sharding=1, 2 or 3")

        def axis(name: str, used: bool) -> Any:
            return mesh[name] if used else MPI.COMM_SELF

        names = mesh.topology.names
        own = twins = axis("dp", "dp" in names)
        if plan.cp > 1:
            twins = mesh.fold(("dp", "cp"), replicas=plan.replicas)["replicas"]
        groups: tuple[Replicas, ...] = ()
        if 0 < shard_group < plan.replicas:
            axes = mesh.fold(("dp", "cp"), copies=plan.replicas // shard_group, shards=shard_group)
            groups = tuple(Replicas(axes[name], deterministic, device) for name in ("shards", "copies"))
        return cls(
            line=axis("pp", "pp" in names),
            replica=own.rank,
            tensor=Ranks(axis("tp", plan.tp > 1), plan.layer_parts, deterministic, tensor_chunks),
            context=ContextRanks(axis("cp", plan.cp > 1), deterministic, context),
            replicas=Replicas(twins, deterministic, device),
            groups=groups,
            experts=ExpertMesh(mesh, plan, deterministic, device) if plan.ep * plan.etp > 1 else None,
        )

    def own_parts(self, model: Sequential, loss: Any) -> tuple[Sequential, Any]:
        """The model and the loss, of whose layers this rank has its part. Raises `InputError` if they cannot be cut."""
        tokens = self.context.size > 1
        if tokens:
            model = context_parallel(model, self.context, self.tensor.size)
        if self.tensor.parts > 1:
            model, loss = tensor_parallel(model, loss, self.tensor)
        if tokens or self.tensor.size > 1:
            model = sample_parallel(model, self.tensor, self.context)
        return (expert_parallel(model, self.experts.ranks) if self.experts else model), loss
