"""Attention with all tokens of some heads on each rank: tokens change to heads before it, and back behind it.

Jacobs et al., "DeepSpeed Ulysses", 2023, arXiv:2309.14509.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hpckit.collectives import all_to_all
from hpckit.kernels.nn.attention import dispatch
from hpckit.kernels.nn.memory import copied, empty, empty_like, zeros_like
from hpckit.plan.blocks import block_starts
from hpckit.training.context.gather import part_of

if TYPE_CHECKING:
    from hpckit.nn.layer import Pass
    from hpckit.nn.transformer.attention import Attention
    from hpckit.training.context.gather import Drop
    from hpckit.training.context.ranks import ContextRanks


class Ulysses:
    """Heads of keys and values are dealt to the ranks as evenly as can be, each with its group of heads of queries.

    A head's attention has the bits that it has on one rank.
    """

    def __init__(self, ranks: ContextRanks) -> None:
        self._ranks = ranks

    def forward(self, layer: Attention, qkv: Any, mixed: Any, drop: Drop, step: Pass) -> tuple[Any, ...]:
        """Set mixed; returns what `backward` needs."""
        own, columns, length = *self._dealt(layer), step.length
        whole = self._to_heads(qkv, [np.concatenate(each) for each in columns], length)
        heads = len(columns[self._ranks.rank][0])
        queries, keys = copied(whole[:, :, :heads]), copied(whole[:, :, heads:])
        out, logs = empty_like(queries), empty((len(qkv), heads, length), qkv)
        dispatch.partial_attention(queries, keys, part_of(layer, length, 0, head=own), out, logs, *drop)
        step.rounded(out)
        self._to_tokens(out, [each[0] for each in columns], mixed)
        return queries, keys, out, logs

    def backward(self, layer: Attention, core: Any, mixed: Any, dmixed: Any, drop: Drop, step: Pass) -> Any:
        """The gradient of qkv."""
        (queries, keys, out, logs), own, columns = core, *self._dealt(layer)
        length, heads = step.length, queries.shape[2]
        dout = self._to_heads(dmixed, [each[0] for each in columns], length)
        dwhole = empty((*queries.shape[:2], heads + keys.shape[2], queries.shape[3]), queries)
        dqueries, dkeys, part = zeros_like(queries), zeros_like(keys), part_of(layer, length, 0, head=own)
        dispatch.partial_attention_gradient(queries, keys, part, out, logs, dout, dqueries, dkeys, *drop)
        dwhole[:, :, :heads], dwhole[:, :, heads:] = dqueries, dkeys
        dqkv = empty((*dmixed.shape[:2], layer.heads + 2 * layer.kv_heads, dmixed.shape[3]), dmixed)
        self._to_tokens(dwhole, [np.concatenate(each) for each in columns], dqkv)
        return dqkv

    def _dealt(self, layer: Attention) -> tuple[int, list[tuple[np.ndarray, np.ndarray]]]:
        """The first head of this rank; of each rank, its heads of queries, and those of keys and of values."""
        group = layer.heads // layer.kv_heads
        starts = block_starts(layer.kv_heads, self._ranks.size).tolist()
        found = []
        for first, end in pairwise(starts):
            keys = np.arange(layer.heads + first, layer.heads + end)
            found.append((np.arange(first * group, end * group), np.concatenate([keys, keys + layer.kv_heads])))
        return starts[self._ranks.rank] * group, found

    def _counts(self, columns: list[np.ndarray], length: int, each: int) -> np.ndarray:
        """Numbers from rank to rank, where a head of a token of all samples has `each`."""
        tokens = [self._ranks.count(length, rank) for rank in range(self._ranks.size)]
        return np.outer(tokens, [len(heads) for heads in columns]) * each

    def _to_heads(self, array: Any, columns: list[np.ndarray], length: int) -> Any:
        """All tokens [samples, length, own heads, d] from this rank's tokens of all heads. columns: heads of each."""
        samples, width, rank = len(array), array.shape[3], self._ranks.rank
        leaving = np.concatenate([array[:, :, heads].reshape(-1) for heads in columns])
        counts, at = self._counts(columns, length, samples * width), 0
        came = all_to_all(leaving, self._ranks.comm, counts=counts).wait()
        whole = empty((samples, length, len(columns[rank]), width), array)
        for source, count in enumerate(counts[:, rank].tolist()):
            part = came[at : at + count].reshape(samples, self._ranks.count(length, source), *whole.shape[2:])
            for chunk in self._ranks.every(length)[source]:
                whole[:, chunk.start : chunk.end] = part[:, chunk.own]
            at += count
        return whole

    def _to_tokens(self, whole: Any, columns: list[np.ndarray], into: Any) -> None:
        """The way back: set this rank's tokens of all heads."""
        samples, length, _, width = whole.shape
        pieces = []
        for chunks in self._ranks.every(length):
            pieces += [np.concatenate([whole[:, c.start : c.end] for c in chunks], axis=1).reshape(-1)]
        counts, at = self._counts(columns, length, samples * width).T, 0
        came = all_to_all(np.concatenate(pieces), self._ranks.comm, counts=np.ascontiguousarray(counts)).wait()
        for source, count in enumerate(counts[:, self._ranks.rank].tolist()):
            into[:, :, columns[source]] = came[at : at + count].reshape(*into.shape[:2], len(columns[source]), width)
            at += count
