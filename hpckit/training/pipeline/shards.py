"""What a rank holds of the parameters of its stages: their units, shards, and the trees of a batch's parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hpckit.nn.parameters import SLOT, Parameter, Parameters
from hpckit.plan.pipeline.parts import subtrees
from hpckit.plan.pipeline.schedule import Action
from hpckit.training.experts.shards import JoinedParts, JoinedShards
from hpckit.training.parts import Parts
from hpckit.training.pipeline.stage import nothing
from hpckit.training.sharded.shards import Shards
from hpckit.training.sharded.units import lifetimes

if TYPE_CHECKING:
    from hpckit.nn.layer import Layer
    from hpckit.plan.pipeline.training import TrainingPlan
    from hpckit.training.pipeline.roles import Roles
    from hpckit.training.replicas import Replicas


def shards_of_stages(
    layers: Mapping[int, Sequence[Layer]],
    program: Sequence[Action],
    roles: Roles,
    sharding: int,
    dtype: Any,
    gradients: str,
) -> Shards | JoinedShards:
    """The parameters of a rank's stages, a unit each; those of experts over replicas of their own. Collective.

    layers: of each stage, by its number. program: this rank's. sharding, dtype, gradients: see `Pipeline`.
    """
    stages = list(layers.values())
    held = [parameter for own in stages for layer in own for parameter in layer.parameters()]

    def shards(replicas: Replicas, held: Sequence[Parameter], partners: Mapping[int, int], *groups: Replicas) -> Shards:
        return Shards(
            replicas,
            sharding,
            held,
            dtype,
            lambda parameters: _spans(parameters, stages),
            _lives(program, list(layers)),
            partners,
            *groups,
            kind=gradients,
        )

    experts = roles.experts
    common = shards(roles.replicas, [p for p in held if not (experts and p.experts)], _partners(stages), *roles.groups)
    if experts is None:
        return common
    return JoinedShards(common, shards(experts.replicas, [p for p in held if p.experts], {}), experts.every)


def trees_of_parts(plan: TrainingPlan, roles: Roles, shards: Shards | JoinedShards) -> Parts | JoinedParts:
    """The trees by which gradients are added over the plan's fixed parts of a batch."""
    nodes = subtrees(plan.parts, plan.dp)
    common = shards.common if isinstance(shards, JoinedShards) else shards
    common.nodes = nodes
    shared = [parameter for parameter in shards.parameters.list if parameter.shared]
    complete = roles.tensor.add_up if plan.tp > 1 else nothing
    found = Parts(nodes, common, shared, complete, plan.grouped)
    if roles.experts is None or not isinstance(shards, JoinedShards):
        return found
    shards.experts.nodes, sources = roles.experts.nodes(nodes)
    return JoinedParts(found, shards.experts, sources)


def _spans(parameters: Parameters, stages: Sequence[Sequence[Any]]) -> list[tuple[int, int]]:
    """Where the parameters of each stage stand; a weight shared with an earlier stage is left to that stage."""
    ends = {p.name: parameters.offsets[p.name] + -(-p.size // SLOT) * SLOT for p in parameters.list}
    earlier, found = set[str](), []
    for layers in stages:
        own = [p.name for layer in layers for p in layer.parameters() if p.name in ends and p.name not in earlier]
        earlier.update(own)
        start = min((parameters.offsets[name] for name in own), default=0)
        found.append((start, max((ends[name] for name in own), default=start)))
    return found


def _partners(stages: Sequence[Sequence[Any]]) -> dict[int, int]:
    """For a stage of this rank an earlier one that holds a weight of both."""
    home: dict[str, int] = {}
    found = {}
    for number, layers in enumerate(stages):
        for name in (p.name for layer in layers for p in layer.parameters()):
            if home.setdefault(name, number) != number:
                found[number] = home[name]
    return found


def _lives(program: Sequence[Action], stages: Sequence[int]) -> list[int]:
    """The buffer of each stage's gradients, from its first backward pass to its sum over the replicas."""
    events = [(stages.index(a.stage), a.kind == "REDUCE") for a in program if a.kind in ("B", "W", "REDUCE")]
    return lifetimes(events, len(stages))
