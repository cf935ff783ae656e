"""The all-reduce algorithms, each a few lines over the plans that spread data.

Bandwidth terms for n bytes on p ranks, latency terms in steps: Thakur, Rabenseifner and Gropp 2005.
"""

from __future__ import annotations

from dataclasses import replace
from math import isqrt

import numpy as np

from hpckit.errors import InputError
from hpckit.plan.collective.plan import CollectivePlan, backward, joined, messages, segmented
from hpckit.plan.collective.rows import columns, leader_line, node_lines, one_line, rows
from hpckit.plan.collective.spreading import from_root, ring_gather, tree
from hpckit.plan.protocol import NOBODY, Step


def ring(ranks: int, segments: int = 1) -> CollectivePlan:
    """Ring: reduce-scatter, then all-gather, 2 (p - 1) steps of n / p (Patarasuk and Yuan 2009)."""
    gather = flat_ring(ranks)
    plan = joined("all_reduce", "ring", backward(gather, "reduce_scatter"), gather)
    return segmented(plan, segments)


def flat_ring(ranks: int) -> CollectivePlan:
    """The all-gather of all ranks by a ring, a slot a rank."""
    rank = np.arange(ranks)
    return ring_gather(one_line(ranks), ranks, np.zeros_like(rank), np.ones_like(rank))


def recursive_doubling(ranks: int) -> CollectivePlan:
    """Recursive doubling: log2(p) steps of n. Ranks beyond the largest power of two send their data to another rank
    first, and receive the sum last.
    """
    core = _power_below(ranks)
    rank = np.arange(ranks)
    none, all_slots = np.zeros(ranks, np.int64), np.ones(ranks, np.int64)

    def step(k: int) -> Step:
        return messages(np.where(rank < core, rank ^ 2**k, NOBODY), none, all_slots, reduce=True)

    exchange = CollectivePlan("all_reduce", "recursive_doubling", ranks, 1, core.bit_length() - 1, step)
    return _folded(exchange, core)


def halving_doubling(ranks: int) -> CollectivePlan:
    """Recursive halving, then doubling: 2 log2(p) steps that move 2 n (p - 1) / p (Rabenseifner 2004)."""
    core = _power_below(ranks)
    rank = np.arange(ranks)

    def step(k: int) -> Step:
        # Ranks that differ in bit k exchange the 2^k slots that they hold, from the slot whose low k bits are zero.
        low = rank & ~(2**k - 1)
        return messages(np.where(rank < core, rank ^ 2**k, NOBODY), low, low + 2**k)

    doubling = CollectivePlan("all_gather", "doubling", ranks, core, core.bit_length() - 1, step)
    both = joined("all_reduce", "halving_doubling", backward(doubling, "reduce_scatter"), doubling)
    return _folded(both, core)


def binomial_tree(ranks: int, segments: int = 1) -> CollectivePlan:
    """Reduce to rank 0 by a binomial tree, then broadcast: 2 log2(p) steps of n."""
    down = tree(one_line(ranks), 1)
    return segmented(joined("all_reduce", "tree", backward(down, "reduce"), down), segments)


def naive(ranks: int) -> CollectivePlan:
    """All ranks send to one root, which adds and sends the sum back: 2 (p - 1) steps of n through one link."""
    out = from_root(one_line(ranks), 1)
    return joined("all_reduce", "naive", backward(out, "reduce"), out)


def parameter_server(ranks: int, servers: int | None = None) -> CollectivePlan:
    """Each of k servers (ranks 0 … k - 1) sums a part of the buffer: all ranks push to them, then pull from them.

    servers: k, 1 … p; by default about the square root of p. Each server takes one push a step.
    """
    k = max(1, round(ranks**0.5)) if servers is None else servers
    if not 1 <= k <= ranks:
        raise InputError(f"{servers} parameter servers on {ranks} ranks", do=f"choose 1 to {ranks}")
    rank = np.arange(ranks)

    def pull(turn: int) -> Step:
        # Server s sends its part to the rank turn + 1 places on.
        return messages(np.where(rank < k, (rank + turn + 1) % ranks, NOBODY), rank, rank + 1)

    pulls = CollectivePlan("broadcast", "parameter_server", ranks, k, ranks - 1, pull)
    return joined("all_reduce", "parameter_server", backward(pulls, "reduce"), pulls)


def hierarchical(ranks: int, node_size: int, segments: int = 1) -> CollectivePlan:
    """A tree to the leader of each node, a ring of the leaders, and a tree back; the last node may be smaller."""
    node_size = _checked_node_size(ranks, node_size)
    nodes = -(-ranks // node_size)
    leaders = leader_line(ranks, node_size)
    rank = np.arange(ranks)
    inside = tree(node_lines(ranks, node_size), nodes)
    between = ring_gather(leaders, nodes, np.zeros_like(rank), np.ones_like(rank))
    plans = (backward(inside, "reduce"), backward(between, "reduce_scatter"), between, inside)
    return segmented(joined("all_reduce", "hierarchical", *plans), segments)


def torus(ranks: int, shape: tuple[int, int] | None = None) -> CollectivePlan:
    """2-D torus: rings along the rows, then along the columns, and back: 2 (rows + columns - 2) steps.

    shape: rows and columns, as square as the number of ranks allows by default (Mikami et al. 2018). With the ranks of
    a node as a row it is the two-level ring in which all ranks of a node talk to their like in the other nodes.
    """
    shape = _checked_torus(ranks, shape)
    along, across = rows(shape), columns(shape)
    rank = np.arange(ranks)
    in_rows = ring_gather(along, ranks, np.zeros_like(rank), np.full(ranks, shape[0]))
    in_columns = ring_gather(across, ranks, along.position * shape[0], np.ones_like(rank))
    plans = (backward(in_rows, "reduce_scatter"), backward(in_columns, "reduce_scatter"), in_columns, in_rows)
    # The next place in a row, whose block begins shape[0] slots on; the next row, whose slot of each block is the next.
    slot, (high, wide) = rank, shape
    turns = (
        (rank - rank % wide + (rank + 1) % wide, (slot + high) % ranks),
        ((rank + wide) % ranks, slot - slot % high + (slot + 1) % high),
    )
    return replace(joined("all_reduce", "torus", *plans), symmetries=turns)


def _folded(plan: CollectivePlan, core: int) -> CollectivePlan:
    """A plan of the first `core` ranks, for all ranks: each other rank sends its data to one of these, and receives the
    sum at the end.
    """
    rank, extra = np.arange(plan.ranks), plan.ranks - core
    if extra == 0:
        return plan
    none, all_slots = np.zeros_like(rank), np.full_like(rank, plan.slots)
    back = messages(np.where(rank < extra, rank + core, NOBODY), none, all_slots)
    unfold = CollectivePlan("broadcast", "fold", plan.ranks, plan.slots, 1, lambda _: back)
    return joined("all_reduce", plan.algorithm, backward(unfold, "reduce"), plan, unfold)


def _power_below(n: int) -> int:
    """The largest power of two that is not above n."""
    return 1 << (n.bit_length() - 1)


def _checked_node_size(ranks: int, node_size: int) -> int:
    if node_size < 1:
        raise InputError(f"a node holds {node_size} ranks", do="give the ranks of a node, 1 or more")
    return min(node_size, ranks)


def _checked_torus(ranks: int, shape: tuple[int, int] | None) -> tuple[int, int]:
    if shape is None:
        wide = max(n for n in range(1, isqrt(ranks) + 1) if ranks % n == 0)
        return ranks // wide, wide
    if shape[0] < 1 or shape[0] * shape[1] != ranks:
        legal = [f"{a} x {ranks // a}" for a in range(1, ranks + 1) if ranks % a == 0]
        raise InputError(
            f"a torus of {shape[0]} x {shape[1]} does not hold {ranks} ranks", do=f"choose {', '.join(legal)}"
        )
    return shape
