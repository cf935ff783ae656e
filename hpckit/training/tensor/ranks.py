"""The ranks that share layers: what moves between them, and the sums over the parts of a layer."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hpckit.collectives import all_gather, all_reduce, reduce_scatter
from hpckit.collectives.axis import axis_of
from hpckit.errors import InputError
from hpckit.kernels.device_array import placed
from hpckit.kernels.nn.memory import empty
from hpckit.nn.cuts import cuts, held_parts, own_part, token_bounds
from hpckit.nn.linear import rows
from hpckit.plan.blocks import block_starts
from hpckit.plan.pipeline.parts import PartialSum, subtrees, tree_sum
from hpckit.training.replicas import start_scatter_tree

if TYPE_CHECKING:
    from hpckit.nn.layer import Sequential
    from hpckit.nn.parameters import Parameter

Chunk = tuple[int, int]  # its number, and how many there are
WHOLE: Chunk = (0, 1)


class Ranks:
    """The ranks of a tensor-parallel group, `mesh["tp"]`, and what moves between them.

    parts: into which each layer is cut, by default one for each rank; else a power of two, of which a rank holds those
    of a node of their tree, and sums are those of the tree, with the same bits on any number of ranks. deterministic:
    sums are otherwise added in the order of the ranks. chunks: in so many pieces tokens go through a block's
    products, and the messages of one travel while another is multiplied. Raises `InputError` for less than one.
    """

    def __init__(self, mesh_axis: Any, parts: int = 0, deterministic: bool = True, chunks: int = 1) -> None:
        if chunks < 1:
            raise InputError(f"tokens in {chunks} chunks", do="give 1 or more")
        self.chunks = chunks
        axis = axis_of(mesh_axis)
        self.comm, self.rank, self.size, self.deterministic = axis.given, axis.rank, axis.size, deterministic
        self.parts = parts or self.size
        self._held = held_parts(self.parts, self.size)
        self.held = self._held[self.rank]
        self._nodes = subtrees(parts, self.size) if parts else []
        self._by_tree = bool(parts) and self.size > 2  # of two ranks the order is that of the tree

    def every_part(self, model: Sequential) -> list[Parameter]:
        """All parameters of a whole model, and in place of those that are cut all of their parts."""
        made = cuts(model, self.parts) if self.parts > 1 else {}
        return [
            part
            for p in model.parameters()
            for part in ([own_part(p, made[p.name], n) for n in range(self.parts)] if p.name in made else [p])
        ]

    def blocks(self, tokens: tuple[int, int]) -> list[slice]:
        """The rows of each of this rank's parts among those of this rank."""
        bounds = token_bounds(tokens, self.parts)
        first = bounds[self.held[0]][0]
        return [slice(bounds[part][0] - first, bounds[part][1] - first) for part in self.held]

    def own(self, tokens: tuple[int, int]) -> slice:
        """The rows of this rank among those of a microbatch's tokens."""
        bounds = token_bounds(tokens, self.parts)
        return slice(bounds[self.held[0]][0], bounds[self.held[-1]][1])

    def piece(self, tokens: tuple[int, int], chunk: Chunk, like: Any) -> Any:
        """The rows of this rank's tokens in a chunk: it has a piece of each part, whatever the ranks.

        Numbers of rows are where `like` is.
        """
        if chunk == WHOLE:
            return slice(None)
        return _rows(self.blocks(tokens), chunk, like)

    def every_piece(self, tokens: tuple[int, int], chunk: Chunk, like: Any) -> Any:
        """The rows of a chunk's tokens of all ranks among those of a microbatch, in the order in which they come."""
        return _rows([slice(*bounds) for bounds in token_bounds(tokens, self.parts)], chunk, like)

    def _counts(self, tokens: tuple[int, int], chunk: Chunk) -> np.ndarray:
        """The tokens of each rank in a chunk."""
        number, chunks = chunk
        sizes = np.array([block_starts(end - start, chunks) for start, end in token_bounds(tokens, self.parts)])
        each = sizes[:, number + 1] - sizes[:, number]
        return np.array([each[held.start : held.stop].sum() for held in self._held])

    def start_gather(self, own: Any, tokens: tuple[int, int], chunk: Chunk = WHOLE) -> Callable[[], Any]:
        """Start to gather all tokens [samples, tokens, d] from those of each rank [n, d]; a call of what it returns
        waits for them, and gives them. Those of a chunk come as one sample, from its `piece` on each rank.
        """
        width = own.shape[-1]
        if self.size == 1:
            return lambda: own.reshape(*(tokens if chunk == WHOLE else (1, len(own))), width)
        counts = self._counts(tokens, chunk)
        whole = empty((*(tokens if chunk == WHOLE else (1, int(counts.sum()))), width), own)
        request = all_gather(own.reshape(-1), self.comm, whole.reshape(-1), counts=counts * width)

        def finish() -> Any:
            request.wait()
            return whole

        return finish

    def start_scatter(self, summands: list[Any], tokens: tuple[int, int], chunk: Chunk = WHOLE) -> Callable[[], Any]:
        """Start to sum all parts' arrays [samples, tokens, d], which are used up; a call of what it returns waits, and
        gives the tokens [n, d] of this rank, or its `piece` of a chunk.

        summands: of this rank's parts.
        """
        total = self.added(summands, self.held[0])
        if self.size == 1:
            return lambda: rows(total)
        width, flat = total.shape[-1], total.reshape(-1)
        counts = self._counts(tokens, chunk)
        if self._by_tree:
            scattered = start_scatter_tree(flat, self.comm, self.rank, self._nodes, counts * width)
            return lambda: scattered().reshape(-1, width)
        request = reduce_scatter(flat, self.comm, "sum", counts=counts * width, deterministic=self.deterministic)
        first = int(counts[: self.rank].sum())

        def finish() -> Any:
            request.wait()
            return rows(total)[first : first + int(counts[self.rank])]

        return finish

    def gather(self, own: Any, tokens: tuple[int, int]) -> Any:
        """`start_gather` of all tokens, waited for."""
        return self.start_gather(own, tokens)()

    def scatter(self, summands: list[Any], tokens: tuple[int, int]) -> Any:
        """`start_scatter` of all tokens, waited for."""
        return self.start_scatter(summands, tokens)()

    def added(self, summands: Sequence[Any], first: int = 0) -> Any:
        """The sum over parts from part `first` on, as their tree where they have one; uses them up."""
        if not self._nodes:
            return functools.reduce(operator.iadd, summands)
        leaves = [PartialSum(0, first + number) for number in range(len(summands))]
        return tree_sum(leaves, summands, operator.iadd)

    def sum(self, values: Any) -> Any:
        """The sum of all ranks' arrays, in place."""
        if self._by_tree:
            every = all_gather(values.reshape(-1), self.comm, counts=[values.size] * self.size).wait()
            values.reshape(-1)[...] = tree_sum(self._nodes, list(every.reshape(self.size, -1)), operator.iadd)
        elif self.size > 1:
            all_reduce(values, self.comm, "sum", deterministic=self.deterministic).wait()
        return values

    def of_parts(self, own: np.ndarray) -> np.ndarray:
        """The numbers [parts, n] of all parts, from those of this rank's parts."""
        if self.size == 1:
            return own
        counts = [len(held) * own.shape[1] for held in self._held]
        return all_gather(own.reshape(-1), self.comm, counts=counts).wait().reshape(self.parts, -1)

    def largest(self, values: Any) -> Any:
        """The largest numbers of all ranks, element by element, in place."""
        if self.size > 1:
            all_reduce(values, self.comm, "max").wait()
        return values

    def add_up(self, parameters: Iterable[Parameter]) -> None:
        """Add the gradients of parameters that each rank has from its own tokens only."""
        partial = [p.grad for p in parameters if p.partial and p.grad is not None]
        if partial and self.size > 1:
            starts = np.cumsum([0, *(grad.size for grad in partial)]).tolist()
            total = empty((starts[-1],), partial[0])
            own = [total[start:end] for start, end in pairwise(starts)]
            for part, grad in zip(own, partial, strict=True):
                part[...] = grad.reshape(-1)
            self.sum(total)
            for part, grad in zip(own, partial, strict=True):
                grad.reshape(-1)[...] = part


def _rows(blocks: Sequence[slice], chunk: Chunk, like: Any) -> Any:
    """The rows of a chunk, which has a piece of each block; numbers of rows are where `like` is."""
    number, chunks = chunk
    found = []
    for block in blocks:
        low, high = block_starts(block.stop - block.start, chunks)[number : number + 2].tolist()
        found.append(slice(block.start + low, block.start + high))
    if len(found) == 1:
        return found[0]
    return placed(np.concatenate([np.arange(each.start, each.stop) for each in found]), like)
