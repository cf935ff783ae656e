"""The ranks that share the tokens of each sample, and what moves between them."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hpckit.collectives import all_gather, reduce_scatter
from hpckit.collectives.axis import axis_of
from hpckit.errors import InputError
from hpckit.kernels.nn.memory import empty
from hpckit.plan.training.context import CORES, KINDS, PLAIN, Chunk, chunks_of, quickest

if TYPE_CHECKING:
    from hpckit.nn.transformer.attention import Attention
    from hpckit.plan.machine.machine import Machine


class ContextRanks:
    """The ranks of a context-parallel group, `mesh["cp"]`. Collective, as are `gather` and `scatter`.

    deterministic: sums are added in the order of the ranks. kind: how attention meets the keys of other ranks, one of
    `hpckit.plan.training.context.KINDS`, or "auto": which `quickest` finds for a length. machine: by whose numbers.
    """

    def __init__(self, mesh_axis: Any, deterministic: bool = True, kind: str = "auto", machine: Machine = CORES):
        axis = axis_of(mesh_axis)
        self.comm, self.rank, self.size, self.deterministic = axis.given, axis.rank, axis.size, deterministic
        self.kind, self._machine = kind, machine
        self.every = functools.lru_cache(maxsize=16)(lambda length: chunks_of(length, self.size, kind != PLAIN))
        if kind not in (*KINDS, "auto"):
            raise InputError(f"context is {kind!r}", do=f"take auto, {', '.join(KINDS)}")

    def kind_for(self, layer: Attention, samples: int, length: int, itemsize: int) -> str:
        """How a layer's attention meets the keys of samples of so many tokens."""
        if self.kind != "auto":
            return self.kind
        heads = layer.heads, layer.kv_heads, layer.head_width
        return quickest(self._machine, self.size, samples, length, heads, itemsize)

    def chunks(self, length: int) -> list[Chunk]:
        """The chunks of this rank, those that have tokens."""
        return [chunk for chunk in self.every(length)[self.rank] if chunk.start < chunk.end]

    def count(self, length: int, rank: int) -> int:
        """Tokens of a sample on a rank."""
        return sum(chunk.end - chunk.start for chunk in self.every(length)[rank])

    def seen(self, chunk: Chunk, length: int, source: int) -> list[Chunk]:
        """The chunks of rank `source` whose keys queries of a chunk see."""
        return [each for each in self.every(length)[source] if each.start <= chunk.start and each.start < each.end]

    def places(self, length: int) -> np.ndarray:
        """The numbers of this rank's tokens in a sample, in their order, int64[n]."""
        return np.concatenate([np.arange(chunk.start, chunk.end) for chunk in self.every(length)[self.rank]])

    def own(self, array: Any) -> Any:
        """The tokens of this rank, of an array [samples, tokens, …] of all."""
        return array if self.size == 1 else np.ascontiguousarray(array[:, self.places(array.shape[1])])

    def gather(self, own: Any, length: int) -> Any:
        """Those of all tokens [samples, length, …], from those of each rank."""
        samples, rest = own.shape[0], own.shape[2:]
        flat, each = own.reshape(-1), samples * math.prod(rest)
        came = empty((each * length,), own)
        all_gather(flat, self.comm, came, counts=self._counts(length, each)).wait()
        whole, at = empty((samples, length, *rest), own), 0
        for source, chunks in enumerate(self.every(length)):
            count = self.count(length, source)
            part = came[at * each : (at + count) * each].reshape(samples, count, *rest)
            for chunk in chunks:
                whole[:, chunk.start : chunk.end] = part[:, chunk.own]
            at += count
        return whole

    def scatter(self, whole: Any) -> Any:
        """The tokens of this rank in the sum of all ranks' arrays [samples, length, …]."""
        samples, length, *rest = whole.shape
        each, at = samples * math.prod(rest), 0
        leaving = empty((each * length,), whole)
        for source, chunks in enumerate(self.every(length)):
            count = self.count(length, source)
            part = leaving[at * each : (at + count) * each].reshape(samples, count, *rest)
            for chunk in chunks:
                part[:, chunk.own] = whole[:, chunk.start : chunk.end]
            at += count
        counts = self._counts(length, each)
        came = reduce_scatter(leaving, self.comm, "sum", counts=counts, deterministic=self.deterministic).wait()
        return came.reshape(samples, len(self.places(length)), *rest)

    def _counts(self, length: int, each: int) -> np.ndarray:
        """Numbers of each rank, where a token of all samples has `each`."""
        return np.array([self.count(length, rank) for rank in range(self.size)]) * each
