"""A model with only the experts that this rank holds."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hpckit.errors import InputError
from hpckit.nn.cuts import expert_cut, expert_misfits, own_part, parts_of
from hpckit.nn.feedforward import Experts
from hpckit.nn.layer import Pass, Sequential
from hpckit.nn.linear import rows
from hpckit.nn.parameters import Parameter
from hpckit.nn.transformer.block import Recompute, Residual
from hpckit.training.experts.way import ExpertRanks

if TYPE_CHECKING:
    from hpckit.training.context.ranks import ContextRanks
    from hpckit.training.tensor.ranks import Ranks


def experts_of(model: Any) -> Iterator[Experts]:
    """The mixtures of experts of a model, in their order."""
    return (part for part in parts_of(model) if isinstance(part, Experts))


def expert_parallel(model: Sequential, ranks: ExpertRanks) -> Sequential:
    """The model with this rank's experts only, to which tokens travel; the given model is not changed.

    Raises `InputError` for experts that do not divide.
    """
    if wrong := expert_misfits(model, ranks.size, ranks.columns):
        raise InputError("; ".join(wrong))
    return _with_experts(model, lambda layer: own_experts(layer, ranks))


def sample_parallel(model: Sequential, tensor: Ranks, context: ContextRanks) -> Sequential:
    """The model on ranks that share the tokens of each sample, whose experts' capacity is that of whole samples."""
    samples = SharedSamples(tensor, context)

    def of(layer: Experts) -> Experts:
        new = copy.copy(layer)
        new.whole, new.chosen = samples, layer.chosen.copy()
        return new

    return _with_experts(model, of)


def _with_experts(model: Sequential, change: Callable[[Experts], Experts]) -> Sequential:
    """The model with other mixtures of experts."""

    def of(layer: Any) -> Any:
        if isinstance(layer, Sequential):
            return Sequential([of(each) for each in layer.layers], layer.names)
        if isinstance(layer, Recompute):
            return Recompute(of(layer.layer))
        if isinstance(layer, Residual) and isinstance(layer.branch, Experts):
            new = copy.copy(layer)
            new.branch = change(layer.branch)
            return new
        return layer

    return of(model)


class SharedSamples:
    """The tokens of samples on ranks of tp, of cp, or of both. Collective."""

    def __init__(self, tensor: Ranks, context: ContextRanks) -> None:
        self._tensor, self._context = tensor, context

    def gather(self, own: Any, step: Pass) -> Any:
        """An array [samples, tokens, n] of all tokens from the rows [own tokens, n] of each rank."""
        found = self._tensor.gather(own, step.tokens)
        return found if self._context.size == 1 else self._context.gather(np.ascontiguousarray(found), step.length)

    def own(self, whole: Any, step: Pass) -> Any:
        """The rows of this rank's tokens."""
        return rows(self._context.own(whole))[self._tensor.own(step.tokens)]


def own_experts(layer: Experts, ranks: ExpertRanks) -> Experts:
    """The layer with the experts of this rank, whose tokens travel."""
    new = copy.copy(layer)
    new.gate, new.up, new.down = (
        own_part(p, expert_cut(p, ranks.size, ranks.columns), ranks.part) for p in (layer.gate, layer.up, layer.down)
    )
    for parameter in (new.gate, new.up, new.down):
        parameter.partial = False  # their gradients are those of all tokens of the line
    new.way, new.chosen = ranks.ways(layer), layer.chosen.copy()
    return new


def every_part(parameters: Sequence[Parameter], ranks: int, columns: int = 1) -> list[Parameter]:
    """All parameters, and in place of those of experts the parts of all ranks."""
    count = ranks * columns
    return [
        part
        for p in parameters
        for part in (
            [own_part(p, expert_cut(p, ranks, columns), n) for n in range(count)] if p.experts and count > 1 else [p]
        )
    ]
