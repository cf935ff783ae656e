"""The way of tokens to experts on other ranks and back: all-to-alls with counts (`hpckit.plan.training.dispatch`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hpckit.collectives import all_gather, all_to_all, reduce_scatter
from hpckit.collectives.axis import axis_of
from hpckit.kernels.device_array import contiguous
from hpckit.kernels.nn.memory import empty_like
from hpckit.nn.feedforward import AtHome
from hpckit.nn.layer import Turns
from hpckit.plan.blocks import block_starts

if TYPE_CHECKING:
    from hpckit.comm.mesh import Mesh
    from hpckit.nn.feedforward import Experts

FEW = 64  # rows: products of fewer are worth a copy that puts the tokens of all ranks together


class ExpertRanks:
    """The ranks that have all experts of a model among them, the axes "ep" and "etp" of a mesh.

    Ranks of ep have experts of their own; those of etp, neighbors, have the same ones, of which each holds some of the
    hidden numbers. line: all of them.

    apart: products take the tokens of each rank by themselves, so that each has the bits that it has on that rank
    alone, and W adds the gradients of each rank's tokens apart. Where the ranks are on several nodes with several of
    them each, a token goes to a node once. Collective.
    """

    def __init__(self, mesh: Mesh, apart: bool = False, deterministic: bool = True) -> None:
        axis, within = axis_of(mesh["ep"]), axis_of(mesh["etp"])
        self.within, self.columns, self.deterministic = within.given, within.size, deterministic
        self.part = axis.rank * within.size + within.rank
        both = axis.size * within.size
        self.line = mesh.fold(("ep", "etp"), line=both)["line"] if within.size > 1 else axis.given
        self.comm, self.rank, self.size, self.apart = axis.given, axis.rank, axis.size, apart
        node = axis.node_size
        two = 1 < node < self.size and self.size % node == 0
        self.levels = mesh.fold(("ep",), node=self.size // node, local=node) if two else None

    def starts(self, experts: int) -> list[int]:
        """The first expert of each rank, and their number."""
        return block_starts(experts, self.size).tolist()

    def ways(self, layer: Experts) -> Callable[[np.ndarray], AtHome]:
        """How the tokens of a layer travel."""
        starts, levels = self.starts(layer.experts), self.levels

        def to_experts(counts: np.ndarray) -> AtHome:
            if self.size == 1:
                return AtHome(counts)
            return OverRanks(self, starts, counts) if levels is None else OverNodes(self, levels, starts, counts)

        return to_experts if self.columns == 1 else lambda counts: OverColumns(self, to_experts(counts))


class OverRanks(AtHome):
    """One journey of the tokens of a microbatch to their experts and back, and again in its backward pass. Collective.

    counts: rows of this rank for each expert. Rows leave in the order of the experts, which is that of their ranks, and
    arrive by the rank from which they come, each in the order of its batch. Where products of single ranks would be
    small, the rows of an expert are put together, in the order of the ranks.
    """

    def __init__(self, ranks: ExpertRanks, starts: list[int], counts: np.ndarray) -> None:
        self._ranks, self._starts, self._given, self._known = ranks, starts, counts, False

    def _find(self, tokens: np.ndarray) -> Turns[None]:
        """Find the rows that go from rank to rank; the backward pass has the same. tokens: of the rows, in order."""
        self._known, ranks, starts = True, self._ranks, self._starts
        table = yield from _gathered(self._given, ranks.comm)
        self.counts = np.add.reduceat(table, starts[:-1], axis=1)  # rows from rank to rank
        here = table[:, starts[ranks.rank] : starts[ranks.rank + 1]]  # by source and own expert
        source, expert = np.indices(here.shape)
        self._arrange(expert.reshape(-1), source.reshape(-1), here.reshape(-1))

    def _arrange(self, experts: np.ndarray, sources: np.ndarray, counts: np.ndarray) -> None:
        """Rows arrive in runs, each of an expert and of a source: make `groups` of them."""
        starts, used = np.cumsum(counts) - counts, np.count_nonzero(counts)
        self._moved: np.ndarray | None = None  # where the rows that have been put together come from
        if self._ranks.apart or counts.sum() >= FEW * used:
            runs = zip(experts.tolist(), starts.tolist(), counts.tolist(), sources.tolist(), strict=True)
            self.groups = [(e, a, a + n, source) for e, a, n, source in runs if n]
            return
        order = np.lexsort((sources, experts))
        parts = [np.arange(starts[run], starts[run] + counts[run]) for run in order]
        self._moved = np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)
        ends = np.cumsum(np.bincount(experts, counts)).astype(int).tolist()
        self.groups = [(e, a, b, 0) for e, (a, b) in enumerate(zip([0, *ends], ends, strict=False)) if b > a]

    def there(self, x: Any, tokens: Any, weights: Any = None) -> Turns[Any]:
        """Rows x[tokens], times their weights if these are given, where their experts are."""
        if not self._known:
            yield from self._find(tokens)
        leaving = yield from super().there(x, tokens, weights)
        return self._put_together((yield from _sent(leaving, self._ranks.comm, self.counts)))

    def back(self, found: Any) -> Turns[Any]:
        """The experts' results, one for each row that was sent, in the order of `there`."""
        return (yield from _sent(self._as_they_came(found), self._ranks.comm, self.counts.T))

    def _put_together(self, came: Any) -> Any:
        return came if self._moved is None else came[self._moved]

    def _as_they_came(self, found: Any) -> Any:
        if self._moved is None:
            return found
        apart = empty_like(found)
        apart[self._moved] = found
        return apart


class OverNodes(OverRanks):
    """The same over several nodes: a token goes once to each node that has an expert of it.

    It goes to the rank there with this rank's number in its node, and from there to the ranks of its experts. Results
    come back as a row for each choice, so that they are added in the order of one rank.
    """

    def __init__(self, ranks: ExpertRanks, levels: Mesh, starts: list[int], counts: np.ndarray) -> None:
        super().__init__(ranks, starts, counts)
        self._across, self._within = levels["node"], levels["local"]
        self._experts = np.repeat(np.arange(len(counts)), counts)  # of each row

    def there(self, x: Any, tokens: Any, weights: Any = None) -> Turns[Any]:
        """Rows x[tokens], times their weights if these are given, where their experts are."""
        if not self._known:
            yield from self._find(tokens)
        rows = (yield from _sent(x[self._once], self._across, self._tokens))[self._relayed]
        if weights is not None:
            rows = (yield from _sent(weights[:, None], self._across, self._choices))[self._sorted] * rows
        return self._put_together((yield from _sent(rows, self._within, self._rows)))

    def back(self, found: Any) -> Turns[Any]:
        """The experts' results, one for each row that was sent, in the order of `there`."""
        rows = yield from _sent(self._as_they_came(found), self._within, self._rows.T)
        relayed = empty_like(rows)
        relayed[self._sorted] = rows
        return (yield from _sent(relayed, self._across, self._choices.T))

    def _find(self, tokens: np.ndarray) -> Turns[None]:
        """Find the messages between ranks; the backward pass has the same."""
        self._known, starts = True, self._starts
        nodes, local = self._across.size, self._within.size
        edges = np.array(starts[::local])  # the first expert of each node
        node = np.searchsorted(edges, self._experts, "right") - 1
        keys, each = np.unique(node * (int(tokens.max(initial=0)) + 1) + tokens, return_inverse=True)
        self._once = keys % (int(tokens.max(initial=0)) + 1)
        of_node = np.bincount(keys // (int(tokens.max(initial=0)) + 1), minlength=nodes)
        own = np.concatenate([of_node, np.bincount(node, minlength=nodes)])
        told = yield from _gathered(own, self._across)
        self._tokens, self._choices = told[:, :nodes], told[:, nodes:]  # from node to node
        pairs = np.stack([each - (np.cumsum(of_node) - of_node)[node], self._experts], axis=1)
        came = yield from _sent(pairs, self._across, self._choices)
        here = self._across.rank
        source = np.repeat(np.arange(nodes), self._choices[:, here])  # the node of each choice that came
        sizes = self._tokens[:, here]
        self._sorted = np.argsort(came[:, 1], kind="stable")  # by expert, then by source, then as there
        self._relayed = ((np.cumsum(sizes) - sizes)[source] + came[:, 0])[self._sorted]
        first, end = int(edges[here]), starts[(here + 1) * local]
        kinds = (came[:, 1] - first) * nodes + source
        table = yield from _gathered(np.bincount(kinds, minlength=(end - first) * nodes), self._within)
        table = table.reshape(local, end - first, nodes)
        mine = starts[here * local : (here + 1) * local + 1]
        self._rows = np.add.reduceat(table.sum(axis=2), np.array(mine[:-1]) - first, axis=1)
        number = self._within.rank
        own = table[:, mine[number] - first : mine[number + 1] - first]
        twin, expert, origin = np.indices(own.shape)
        self._arrange(expert.reshape(-1), (origin * local + twin).reshape(-1), own.reshape(-1))


class OverColumns(AtHome):
    """The same on ranks that hold some of the hidden numbers of each of their experts: each of these ranks works on the
    tokens of all of them, and what they find is added on the rank from which a token came. Collective.
    """

    def __init__(self, ranks: ExpertRanks, inner: AtHome) -> None:
        self._inner, self._comm, self._deterministic = inner, ranks.within, ranks.deterministic
        self._known = False

    def there(self, x: Any, tokens: Any, weights: Any = None) -> Turns[Any]:
        """Rows x[tokens], times their weights if these are given, where their experts are: those of all ranks."""
        own = yield from self._inner.there(x, tokens, weights)
        if not self._known:
            yield from self._find()
        width = own.shape[1]
        if not self._rows.sum():
            return own
        flat = contiguous(own, own.dtype).reshape(-1)
        return (yield from _awaited(all_gather(flat, self._comm, counts=self._rows * width))).reshape(-1, width)

    def back(self, found: Any) -> Turns[Any]:
        """The experts' results, the sum over the ranks, one for each row that was sent, in the order of `there`."""
        width = found.shape[1]
        if self._rows.sum():
            flat, counts = contiguous(found, found.dtype).reshape(-1), self._rows * width
            request = reduce_scatter(flat, self._comm, "sum", counts=counts, deterministic=self._deterministic)
            found = (yield from _awaited(request)).reshape(-1, width)
        return (yield from self._inner.back(found))

    def _find(self) -> Turns[None]:
        """Find the rows of all ranks: those of each stand together."""
        own = np.array([(expert, b - a) for expert, a, b, _ in self._inner.groups], np.int64).reshape(-1)
        told = yield from _gathered(np.array([len(own), own[1::2].sum()]), self._comm)
        sizes, self._rows, self._known = told[:, 0], told[:, 1], True
        every = own.reshape(-1, 2)
        if sizes.sum():
            every = (yield from _awaited(all_gather(own, self._comm, counts=sizes))).reshape(-1, 2)
        ends = np.cumsum(every[:, 1])
        self.groups = [(int(e), int(end - n), int(end), 0) for (e, n), end in zip(every, ends, strict=True)]


def _awaited(request: Any) -> Turns[Any]:
    """The result of what was begun: there is a turn of others before it is waited for."""
    yield
    return request.wait()


def _gathered(numbers: np.ndarray, comm: Any) -> Turns[np.ndarray]:
    """The numbers of all ranks, int64[ranks, n]."""
    whole = np.empty(numbers.size * comm.size, np.int64)
    yield from _awaited(all_gather(np.ascontiguousarray(numbers, np.int64), comm, whole))
    return whole.reshape(comm.size, -1)


def _sent(rows: Any, comm: Any, counts: np.ndarray) -> Turns[Any]:
    """The rows that come, where counts[r][q] go from rank r to rank q."""
    width = rows.shape[1]
    flat = contiguous(rows, rows.dtype).reshape(-1)
    return (yield from _awaited(all_to_all(flat, comm, counts=np.ascontiguousarray(counts) * width))).reshape(-1, width)
