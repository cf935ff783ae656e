"""Attention of a rank's tokens over the keys and values of all, gathered first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpckit.kernels.nn.attention import dispatch
from hpckit.kernels.nn.attention.reference import Part
from hpckit.kernels.nn.memory import copied, empty, zeros_like

if TYPE_CHECKING:
    from hpckit.nn.layer import Pass
    from hpckit.nn.transformer.attention import Attention
    from hpckit.training.context.ranks import ContextRanks

Drop = tuple[int, int, int, float]


def part_of(layer: Attention, length: int, query: int, key: int = 0, head: int = 0) -> Part:
    """The part of a whole attention that has some of a layer's heads, from `head` on, and queries and keys from these
    places on. The layer may have a share of the heads itself.
    """
    share, shares = layer.share
    return Part(layer.heads * shares, layer.heads * share + head, length, query, key)


class Gather:
    """Gathers keys and values, forward and again backward; a reduce-scatter sums their gradients."""

    def __init__(self, ranks: ContextRanks) -> None:
        self._ranks = ranks

    def forward(self, layer: Attention, qkv: Any, mixed: Any, drop: Drop, step: Pass) -> tuple[Any, Any]:
        """Set mixed; returns what `backward` needs."""
        heads, length = layer.heads, step.length
        keys = self._ranks.gather(copied(qkv[:, :, heads:]), length)
        logs = empty((len(qkv), heads, qkv.shape[1]), qkv)
        for chunk in self._ranks.chunks(length):
            queries = copied(qkv[:, chunk.own, :heads])
            out, sums = empty(queries.shape, qkv), empty((len(qkv), heads, queries.shape[1]), qkv)
            part = part_of(layer, length, chunk.start)
            dispatch.partial_attention(queries, keys, part, out, sums, *drop)
            mixed[:, chunk.own], logs[:, :, chunk.own] = out, sums
        return qkv, logs

    def backward(self, layer: Attention, core: Any, mixed: Any, dmixed: Any, drop: Drop, step: Pass) -> Any:
        """The gradient of qkv."""
        (qkv, logs), heads, length = core, layer.heads, step.length
        keys = self._ranks.gather(copied(qkv[:, :, heads:]), length)
        dqkv, dkeys = empty(qkv.shape, qkv), zeros_like(keys)
        for chunk in self._ranks.chunks(length):
            queries, out, dout = (copied(array[:, chunk.own, :heads]) for array in (qkv, mixed, dmixed))
            dqueries, sums, part = (
                zeros_like(queries),
                copied(logs[:, :, chunk.own]),
                part_of(layer, length, chunk.start),
            )
            dispatch.partial_attention_gradient(queries, keys, part, out, sums, dout, dqueries, dkeys, *drop)
            dqkv[:, chunk.own, :heads] = dqueries
        dqkv[:, :, heads:] = self._ranks.scatter(dkeys)
        return dqkv
