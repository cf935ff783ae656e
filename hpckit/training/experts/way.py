"""The way of tokens to experts on other ranks and back: an all-to-all with counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hpckit.collectives import all_gather, all_to_all
from hpckit.collectives.axis import axis_of
from hpckit.kernels.nn.memory import empty_like
from hpckit.nn.feedforward import AtHome
from hpckit.plan.blocks import block_starts

if TYPE_CHECKING:
    from hpckit.nn.feedforward import Experts

FEW = 64  # rows: products of fewer are worth a copy that puts the tokens of all ranks together


class ExpertRanks:
    """The ranks that have all experts of a model among them, `mesh["ep"]` of a folded mesh.

    apart: products take the tokens of each rank by themselves, so that each has the bits that it has on that rank
    alone, and W adds the gradients of each rank's tokens apart.
    """

    def __init__(self, mesh_axis: Any, apart: bool = False) -> None:
        axis = axis_of(mesh_axis)
        self.comm, self.rank, self.size, self.apart = axis.given, axis.rank, axis.size, apart

    def starts(self, experts: int) -> list[int]:
        """The first expert of each rank, and their number."""
        return block_starts(experts, self.size).tolist()

    def ways(self, layer: Experts) -> Callable[[np.ndarray], AtHome]:
        """How the tokens of a layer travel."""
        starts = self.starts(layer.experts)
        return lambda counts: OverRanks(self, starts, counts)


class OverRanks(AtHome):
    """One journey of the tokens of a microbatch to their experts and back, and again in its backward pass. Collective.

    counts: rows of this rank for each expert. Rows leave in the order of the experts, which is that of their ranks, and
    arrive by the rank from which they come, each in the order of its batch. Where products of single ranks would be
    small, the rows of an expert are put together, in the order of the ranks.
    """

    def __init__(self, ranks: ExpertRanks, starts: list[int], counts: np.ndarray) -> None:
        self._ranks, own = ranks, slice(starts[ranks.rank], starts[ranks.rank + 1])
        whole = np.empty(counts.size * ranks.size, np.int64)
        all_gather(np.ascontiguousarray(counts, np.int64), ranks.comm, whole).wait()
        table = whole.reshape(ranks.size, -1)
        self.counts = np.add.reduceat(table, starts[:-1], axis=1)  # rows from rank to rank
        here = table[:, own]  # by source and own expert
        first = np.cumsum(here).reshape(here.shape) - here
        self._moved: np.ndarray | None = None  # where the rows that have been put together come from
        if ranks.apart or here.sum() >= FEW * np.count_nonzero(here):
            self.groups = [
                (e, int(first[s, e]), int(first[s, e] + here[s, e]), int(s)) for s, e in np.argwhere(here).tolist()
            ]
            return
        self._moved = np.concatenate(
            [np.arange(first[s, e], first[s, e] + here[s, e]) for e in range(here.shape[1]) for s in range(len(here))]
        ).astype(np.int64)
        ends = np.cumsum(here.sum(axis=0)).tolist()
        self.groups = [(e, a, b, 0) for e, (a, b) in enumerate(zip([0, *ends], ends, strict=False)) if b > a]

    def there(self, x: Any, tokens: Any, weights: Any = None) -> Any:
        """Rows x[tokens], times their weights if these are given, where their experts are."""
        came = self._sent(super().there(x, tokens, weights), self.counts)
        return came if self._moved is None else came[self._moved]

    def back(self, found: Any) -> Any:
        """The experts' results, one for each row that was sent, in the order of `there`."""
        if self._moved is not None:
            found, moved = empty_like(found), found
            found[self._moved] = moved
        return self._sent(found, np.ascontiguousarray(self.counts.T))

    def _sent(self, rows: Any, counts: np.ndarray) -> Any:
        """The rows that come, where counts[r][q] go from rank r to rank q."""
        width = rows.shape[1]
        flat = np.ascontiguousarray(rows).reshape(-1)
        return all_to_all(flat, self._ranks.comm, counts=counts * width).wait().reshape(-1, width)
