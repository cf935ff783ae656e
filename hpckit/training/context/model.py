"""A transformer with layers that compute this rank's tokens only."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from hpckit.errors import InputError
from hpckit.kernels.device_array import placed
from hpckit.kernels.nn import dispatch
from hpckit.kernels.nn.memory import empty, empty_like
from hpckit.nn.cuts import context_misfits
from hpckit.nn.dropout import Dropout, drop_tokens
from hpckit.nn.embedding import Embedding
from hpckit.nn.layer import Sequential
from hpckit.nn.linear import rows
from hpckit.nn.transformer.attention import Attention
from hpckit.nn.transformer.block import Recompute, Residual
from hpckit.training.context.gather import Gather
from hpckit.training.context.ring import Ring
from hpckit.training.context.ulysses import Ulysses

if TYPE_CHECKING:
    from hpckit.nn.layer import Pass
    from hpckit.training.context.ranks import ContextRanks


def context_parallel(model: Sequential, ranks: ContextRanks, tp: int = 1) -> Sequential:
    """The model for this rank's tokens, with the same parameters; the given model is not changed.

    tp: ranks that share each layer besides. Raises `InputError` for a layer that has no such form.
    """
    if wrong := context_misfits(model, ranks.size, ranks.kind, tp):
        raise InputError("; ".join(wrong))

    ways = {"gather": Gather(ranks), "ring": Ring(ranks), "ulysses": Ulysses(ranks), "plain_ring": Ring(ranks)}

    def of(layer: Any) -> Any:
        if isinstance(layer, Sequential):
            return Sequential([of(each) for each in layer.layers], layer.names)
        if isinstance(layer, Recompute):
            return Recompute(of(layer.layer))
        if isinstance(layer, Residual):
            return Residual(layer.norm, of(layer.branch), layer.dropout and of(layer.dropout))
        if isinstance(layer, Attention | Embedding | Dropout):
            new: Any = copy.copy(layer)
            kinds = {Attention: ContextAttention, Embedding: ContextEmbedding, Dropout: ContextDropout}
            new.__class__ = kinds[type(layer)]
            new.ranks, new.ways = ranks, ways
            return new
        return layer

    return of(model)


class ContextEmbedding(Embedding):
    """An `Embedding` of a rank's tokens, whose positions are those in the whole sample."""

    ranks: ContextRanks

    def places(self, tokens: int, step: Pass) -> Any:
        """The numbers of a pass's tokens in their sample."""
        return self.ranks.places(step.length)

    def forward(self, tokens: Any, step: Pass) -> tuple[Any, Any]:
        """`saved` is the tokens and their places. Raises `InputError` as `Embedding` does."""
        table, places = self.token.value, self.places(tokens.shape[1], step)
        tokens = placed(self.checked(tokens, step), table)
        y = empty((*tokens.shape, table.shape[1]), table)
        dispatch.embed(tokens, table, table[:0] if self.position is None else self.position.value[places], y)
        return y, (tokens, places)

    def backward_weight(self, saved: Any, dy: Any) -> None:
        """W: add dy to the rows of its tokens and positions."""
        tokens, places = saved
        dispatch.embed_gradient(tokens, dy, self.token.grad, self.token.grad[:0])
        if self.position is not None:
            self.position.grad[places] += dy.sum(axis=0)


class ContextDropout(Dropout):
    """`Dropout` of a rank's tokens: it drops the numbers that it would drop of all tokens."""

    ranks: ContextRanks

    def runs(self, own: slice, step: Pass) -> list[tuple[slice, int]]:
        """The pieces of chunks of samples that some rows of this rank's tokens are."""
        length, found = step.length, []
        each = self.ranks.count(length, self.ranks.rank)
        for sample in range(own.start // max(1, each), -(-own.stop // max(1, each))):
            for chunk in self.ranks.chunks(length):
                at = sample * each + chunk.at
                first, end = max(at, own.start), min(at + chunk.end - chunk.start, own.stop)
                if first < end:
                    start = sample * length + chunk.start + first - at
                    found.append((slice(first - own.start, end - own.start), start))
        return found

    def _drop(self, x: Any, step: Pass) -> Any:
        if not self.rate or not step.training:
            return x
        y = empty_like(x)
        given, made = rows(x), rows(y)
        for run, start in self.runs(slice(0, len(given)), step):
            made[run] = drop_tokens(given[run], start, step, self.name, self.rate)
        return y


class ContextAttention(Attention):
    """Attention of a rank's tokens over those of all ranks that come before them, in one of several ways."""

    ranks: ContextRanks
    ways: dict[str, Gather | Ring | Ulysses]

    def _places(self, tokens: int, step: Pass) -> Any:
        return self.ranks.places(step.length), step.length

    def _mix(self, qkv: Any, mixed: Any, drop: tuple[int, int, int, float], step: Pass) -> Any:
        if step.shapes:
            mixed[...] = 0
            return None
        way = self.ways[self.ranks.kind_for(self, len(qkv), step.length, qkv.itemsize)]
        return way, way.forward(self, qkv, mixed, drop, step)

    def _mix_gradient(self, saved: Any, dmixed: Any) -> Any:
        way, core = saved.pop("core")
        return way.backward(self, core, saved["mixed"], dmixed, saved["drop"], saved["pass"])
