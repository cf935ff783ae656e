"""Gossip: averaging with neighbors on a graph of the ranks, in place of an all-reduce, as a plan.

A round replaces the buffer x_r of each rank by the sum over s of W[r, s] x_s, where W[r, s] is zero unless r and s are
neighbors. W is doubly stochastic, so the rounds keep the mean over the ranks, and all buffers converge to it; the
spectral gap of W gives the rate (Xiao and Boyd 2004). With local steps of a gradient method between the rounds it is
decentralized SGD (Lian et al. 2017).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from hpckit.errors import InputError, PlanError, did_you_mean
from hpckit.plan.collective.plan import CollectivePlan, messages
from hpckit.plan.grid.factor import best_factorization
from hpckit.plan.inputs.numbers import count as whole_number
from hpckit.plan.protocol import NOTHING, Claim, Ints, Step

# Dense matrices of more ranks take minutes.
MOST_DENSE = 4096


@dataclass(frozen=True)
class GossipPlan(CollectivePlan):
    """One round. Slot 0 is the buffer of a rank; what arrives in step i goes to slot i + 1.

    shares: int64[1 + steps, ranks], the weight that each rank gives to its own buffer and to what arrives in each step,
    in parts of `parts`: whole numbers, so that the proof is exact.
    """

    shares: Ints = field(default_factory=lambda: np.ones((1, 1), np.int64))
    parts: int = 1

    @property
    def blocks(self) -> int:
        """A slot is a whole buffer."""
        return 1

    def sizes(self, count: int) -> Ints:
        """Elements in each slot."""
        return np.full(self.slots, count)

    def claim(self) -> Claim:
        """A round keeps the mean: each rank's weights add up to 1, and so do the weights that its buffer gets on all
        ranks (exactly, in whole numbers); none is negative.
        """
        if np.shape(self.shares) != (self.slots, self.ranks) or self.shares.dtype.kind not in "iu":
            raise PlanError(f"{self.title()}: the weights are {self.slots} x {self.ranks} whole numbers")
        if (np.abs(self.shares) > self.parts).any():
            raise PlanError(f"{self.title()}: a weight is more than {self.parts}/{self.parts}")
        if (self.shares < 0).any():
            rank = int(np.argwhere(self.shares < 0)[0][1])
            raise PlanError(f"{self.title()}: rank {rank} gives a negative weight")
        self._check_fields()
        start = np.full((self.ranks, self.slots), NOTHING)
        start[:, 0] = np.arange(self.ranks)
        return Claim(
            start,
            start,
            fixed=start != NOTHING,
            also=self._check_weights,
            cell_name=lambda rank, slot: f"slot {slot}",
        )

    def _check_weights(self, held: np.ndarray) -> None:
        """held: what the slots of each rank hold after the round, slot 0 its own buffer."""
        own = np.argsort(held[:, 0])
        ordered = held[own, 0]
        at = np.minimum(np.searchsorted(ordered, held), self.ranks - 1)
        came = ordered[at] == held  # else nothing came into the slot
        if (self.shares.T[~came] != 0).any():
            rank, slot = map(int, np.argwhere(~came & (self.shares.T != 0))[0])
            raise PlanError(f"{self.title()}: rank {rank} gives a weight to slot {slot}, into which nothing comes")
        given, gotten = np.where(came, self.shares.T, 0), np.zeros(self.ranks, np.int64)
        np.add.at(gotten, own[at][came], given[came])
        for what, sums in (("the weights that it gives", given.sum(1)), ("the weights that its buffer gets", gotten)):
            if (sums != self.parts).any():
                rank = int(np.argmax(sums != self.parts))
                raise PlanError(
                    f"{self.title()}: rank {rank}: {what} add up to {sums[rank]}/{self.parts}, and the mean is not kept"
                )


def gossip_plan(graph: str, ranks: int, turn: int = 0, *, shape: tuple[int, int] | None = None) -> GossipPlan:
    """Round number `turn` on a graph.

    "ring": both neighbors. "torus": four neighbors on a torus of `shape`, rows and columns (by default as square as
    possible). "hypercube": the log2(p) ranks whose number differs in one bit. "exponential": the rank 2^k places on, k
    = turn modulo log2(p), so that for p a power of two log2(p) rounds give the exact mean (Ying et al. 2021). All
    neighbors weigh as much as the rank itself. Raises `InputError` for an unknown graph, and for numbers that the graph
    does not allow.
    """
    if graph not in GRAPHS:
        do = did_you_mean(graph, GRAPHS, f"choose {', '.join(GRAPHS)}")
        raise InputError(f"there is no graph {graph!r}", do=do)
    ranks, turn = whole_number(ranks, "the number of ranks"), whole_number(turn, "the turn")
    if ranks < 1 or turn < 0:
        raise InputError(f"round {turn} of gossip on {ranks} ranks", do="give 1 rank or more, and turns from 0 on")
    if shape is not None and graph != "torus":
        raise InputError(f"gossip on a {graph} takes no shape", do='choose graph="torus"')
    peers = GRAPHS[graph](ranks, turn, shape)
    none, one = np.zeros(ranks, np.int64), np.ones(ranks, np.int64)

    def step(i: int) -> Step:
        return messages(peers[i], none, one, into=np.full(ranks, i + 1))

    degree = len(peers)
    return GossipPlan(
        "gossip",
        graph,
        ranks,
        1 + degree,
        degree,
        step,
        lag=max(degree, 1),
        shares=np.ones((1 + degree, ranks), np.int64),
        parts=1 + degree,
    )


def mixing_matrix(plan: GossipPlan) -> np.ndarray:
    """The matrix W of a round, float64[ranks, ranks]."""
    if plan.ranks > MOST_DENSE:
        raise InputError(f"a matrix of {plan.ranks} ranks is too large", do=f"ask for at most {MOST_DENSE}")
    matrix = np.diag(plan.shares[0].astype(np.float64))
    for number, step in enumerate(plan.steps()):
        taken = np.flatnonzero(step.receives.peer >= 0)
        np.add.at(matrix, (taken, step.receives.peer[taken]), plan.shares[number + 1][taken])
    return matrix / plan.parts


def spectral_gap(*rounds: GossipPlan) -> float:
    """How fast the rounds together bring the ranks to their mean: 0 not at all, 1 exactly, in one go.

    It is 1 less the largest singular value of the product of their W, that of the mean left out: the factor by which
    the distance of the ranks from their mean shrinks at least. Ring of p > 2: 1 - max |1 + 2 cos(2 pi k / p)| / 3 over
    k = 1 … p - 1; hypercube of p > 1: 2 / (1 + log2 p).
    """
    mean = np.full((rounds[0].ranks,) * 2, 1.0 / rounds[0].ranks)
    together = np.eye(rounds[0].ranks)
    for plan in rounds:
        together = mixing_matrix(plan) @ together
    return float(1.0 - np.linalg.norm(together - mean, 2))


def _ring(ranks: int, turn: int, shape: tuple[int, int] | None) -> list[Ints]:
    return _around(np.arange(ranks), ranks)


def _torus(ranks: int, turn: int, shape: tuple[int, int] | None) -> list[Ints]:
    rows, columns = best_factorization(ranks, None, (0, 0), (True, True), (1, 1)) if shape is None else shape
    if rows * columns != ranks or rows < 1:
        raise InputError(f"a torus of {rows} x {columns} is not one of {ranks} ranks", do="give rows x columns = ranks")
    rank = np.arange(ranks)
    row, column = rank // columns, rank % columns
    along = [row * columns + place for place in _around(column, columns)]
    return along + [place * columns + column for place in _around(row, rows)]


def _around(place: Ints, size: int) -> list[Ints]:
    """The neighbors on both sides of a ring; a ring of two ranks has one, a ring of one has none."""
    return [(place + shift) % size for shift in ((1, -1) if size > 2 else (1,) if size == 2 else ())]


def _hypercube(ranks: int, turn: int, shape: tuple[int, int] | None) -> list[Ints]:
    if ranks & (ranks - 1):
        raise InputError(
            f"a hypercube has 2, 4, 8, … ranks, not {ranks}", do="take a ring, a torus or the exponential graph"
        )
    return [np.arange(ranks) ^ 2**bit for bit in range(ranks.bit_length() - 1)]


def _exponential(ranks: int, turn: int, shape: tuple[int, int] | None) -> list[Ints]:
    if ranks == 1:
        return []
    return [(np.arange(ranks) + 2 ** (turn % (ranks - 1).bit_length())) % ranks]


GRAPHS: dict[str, Callable[[int, int, tuple[int, int] | None], list[Ints]]] = {
    "ring": _ring,
    "torus": _torus,
    "hypercube": _hypercube,
    "exponential": _exponential,
}
