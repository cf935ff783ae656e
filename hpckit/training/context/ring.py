"""Attention of a rank's tokens over blocks of keys and values that go round from rank to rank while it computes.

Liu et al., "Ring attention with blockwise transformers", 2023, arXiv:2310.01889. What queries find in one block after
the other is put together by the logarithms of the softmax's sums, in the dtype of the layer (float32 or float64).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpckit.kernels.nn.attention import dispatch
from hpckit.kernels.nn.memory import copied, empty, empty_like, zeros_like
from hpckit.training.context.gather import part_of
from hpckit.training.messages import Messages

if TYPE_CHECKING:
    from hpckit.nn.layer import Pass
    from hpckit.nn.transformer.attention import Attention
    from hpckit.plan.training.context import Chunk
    from hpckit.training.context.gather import Drop
    from hpckit.training.context.ranks import ContextRanks


class Ring:
    """Keys and values go from each rank to the next; backward their gradients follow them, and end at their owner.

    Blocks are met in the order own, that of the rank before, and so on: the same bits in every run.
    """

    def __init__(self, ranks: ContextRanks) -> None:
        self._ranks, self._messages = ranks, Messages(ranks.comm)
        self._before, self._after = (ranks.rank - 1) % ranks.size, (ranks.rank + 1) % ranks.size

    def forward(self, layer: Attention, qkv: Any, mixed: Any, drop: Drop, step: Pass) -> tuple[Any, Any]:
        """Set mixed; returns what `backward` needs."""
        heads, length, ranks = layer.heads, step.length, self._ranks
        logs = empty((len(qkv), heads, qkv.shape[1]), qkv)
        own = ranks.chunks(length)
        queries = [copied(qkv[:, chunk.own, :heads]) for chunk in own]
        found: dict[Chunk, tuple[Any, Any]] = {}
        keys = copied(qkv[:, :, heads:])
        for turn in range(ranks.size):
            source = (ranks.rank - turn) % ranks.size
            coming = self._pass_on(keys, length, source) if turn + 1 < ranks.size else None
            for chunk, query in zip(own, queries, strict=True):
                for there in ranks.seen(chunk, length, source):
                    out, sums = empty_like(query), empty((len(query), heads, query.shape[1]), query)
                    part = part_of(layer, length, chunk.start, there.start)
                    dispatch.partial_attention(query, copied(keys[:, there.own]), part, out, sums, *drop)
                    if chunk in found:
                        dispatch.join(*found[chunk], out, sums)
                    else:
                        found[chunk] = out, sums
                    self._messages.move()
            if coming is not None:
                keys = self._messages.wait(coming, "keys and values of the ring")
        for chunk, (out, sums) in found.items():
            mixed[:, chunk.own], logs[:, :, chunk.own] = out, sums
        self._finish()
        return qkv, logs

    def backward(self, layer: Attention, core: Any, mixed: Any, dmixed: Any, drop: Drop, step: Pass) -> Any:
        """The gradient of qkv."""
        (qkv, logs), heads, length, ranks = core, layer.heads, step.length, self._ranks
        own, dqkv = ranks.chunks(length), empty(qkv.shape, qkv)
        given = [[copied(array[:, chunk.own, :heads]) for array in (qkv, mixed, dmixed)] for chunk in own]
        sums, dqueries = [copied(logs[:, :, chunk.own]) for chunk in own], [zeros_like(each[0]) for each in given]
        keys, behind = copied(qkv[:, :, heads:]), None
        for turn in range(ranks.size):
            source = (ranks.rank - turn) % ranks.size
            coming = self._pass_on(keys, length, source) if turn + 1 < ranks.size else None
            dkeys = zeros_like(keys)
            for chunk, (query, out, dout), log, dquery in zip(own, given, sums, dqueries, strict=True):
                for there in ranks.seen(chunk, length, source):
                    some = copied(keys[:, there.own])
                    dsome, part = zeros_like(some), part_of(layer, length, chunk.start, there.start)
                    dispatch.partial_attention_gradient(query, some, part, out, log, dout, dquery, dsome, *drop)
                    dkeys[:, there.own] += dsome
                    self._messages.move()
            if behind is not None:
                dkeys += self._messages.wait(behind, "gradients of the ring")
            self._messages.send(self._after, dkeys)
            shape = (len(qkv), ranks.count(length, (source - 1) % ranks.size), *keys.shape[2:])
            behind = self._messages.post(self._before, shape, qkv.dtype)
            if coming is not None:
                keys = self._messages.wait(coming, "keys and values of the ring")
        for chunk, dquery in zip(own, dqueries, strict=True):
            dqkv[:, chunk.own, :heads] = dquery
        assert behind is not None, "a ring has a turn"
        dqkv[:, :, heads:] = self._messages.wait(behind, "gradients of the ring")
        self._finish()
        return dqkv

    def _pass_on(self, keys: Any, length: int, source: int) -> Any:
        """Send a block on, and post the receive of the one behind it."""
        shape = (len(keys), self._ranks.count(length, (source - 1) % self._ranks.size), *keys.shape[2:])
        coming = self._messages.post(self._before, shape, keys.dtype)
        self._messages.send(self._after, keys)
        return coming

    def _finish(self) -> None:
        self._messages.finish()
        self._messages.sent.clear()
