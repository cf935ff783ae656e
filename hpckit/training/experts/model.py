"""A model with only the experts that this rank holds."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from hpckit.nn.block import Recompute, Residual
from hpckit.nn.cuts import expert_cut, own_part, parts_of
from hpckit.nn.feedforward import Experts
from hpckit.nn.layer import Sequential
from hpckit.nn.parameters import Parameter
from hpckit.training.experts.way import ExpertRanks


def experts_of(model: Any) -> Iterator[Experts]:
    """The mixtures of experts of a model, in their order."""
    return (part for part in parts_of(model) if isinstance(part, Experts))


def expert_parallel(model: Sequential, ranks: ExpertRanks) -> Sequential:
    """The model with this rank's experts only, to which tokens travel; the given model is not changed."""

    def of(layer: Any) -> Any:
        if isinstance(layer, Sequential):
            return Sequential([of(each) for each in layer.layers], layer.names)
        if isinstance(layer, Recompute):
            return Recompute(of(layer.layer))
        if isinstance(layer, Residual) and isinstance(layer.branch, Experts):
            new = copy.copy(layer)
            new.branch = own_experts(layer.branch, ranks)
            return new
        return layer

    return Sequential([of(layer) for layer in model.layers], model.names)


def own_experts(layer: Experts, ranks: ExpertRanks) -> Experts:
    """The layer with the experts of this rank, whose tokens travel."""
    new = copy.copy(layer)
    new.gate, new.up, new.down = (
        own_part(p, expert_cut(p, ranks.size), ranks.rank) for p in (layer.gate, layer.up, layer.down)
    )
    for parameter in (new.gate, new.up, new.down):
        parameter.partial = False  # their gradients are those of all tokens of the line
    new.way, new.chosen = ranks.ways(layer), layer.chosen.copy()
    return new


def every_part(parameters: Sequence[Parameter], ranks: int) -> list[Parameter]:
    """All parameters, and in place of those of experts the parts of all ranks."""
    return [
        part
        for p in parameters
        for part in ([own_part(p, expert_cut(p, ranks), n) for n in range(ranks)] if p.experts and ranks > 1 else [p])
    ]
