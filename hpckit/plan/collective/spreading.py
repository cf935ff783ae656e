"""The collectives that spread data, each a few lines: all-gather, broadcast and scatter; and all-to-all.

Reduce-scatter, reduce and gather are these run backward; all-reduce is a pair of them (`all_reduce.py`).
The generators take `Lines`, so that the same code runs over all ranks, within nodes, or along the rows of a torus.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpckit.plan.collective.plan import CollectivePlan, messages
from hpckit.plan.collective.rows import Lines, one_line
from hpckit.plan.protocol import NOBODY, Ints, Step


def ring_gather(lines: Lines, slots: int, base: Ints, width: Ints) -> CollectivePlan:
    """All-gather along each line by a ring (Patarasuk and Yuan 2009): size - 1 steps, each of one block.

    The block of the rank at place q of a line is its slots base + q * width and on, `width` of them.
    """
    size = np.maximum(lines.size, 1)
    right = lines.member((lines.position + 1) % size)

    def step(turn: int) -> Step:
        # No turn is longer than a line, so that the place is not far below 0.
        place = lines.position - turn
        first = base + width * np.where(place < 0, place + size, place)
        return messages(np.where(turn < lines.size - 1, right, NOBODY), first, first + width)

    length = max(lines.longest() - 1, 0)
    alike = bool((lines.size[lines.size > 0] == lines.longest()).all())
    return CollectivePlan("all_gather", "ring", lines.ranks, slots, length, step, runs=((0, length),) if alike else ())


def doubling_gather(ranks: int) -> CollectivePlan:
    """All-gather in ceil(log2 p) steps for any p: a rank sends all that it holds 2^k places on (Bruck et al. 1997)."""
    rank = np.arange(ranks)

    def step(k: int) -> Step:
        width = min(2**k, ranks - 2**k)
        # The last of these blocks is its own.
        first = (rank - width + 1) % ranks
        return messages((rank + 2**k) % ranks, first, first + width, wraps=True)

    return CollectivePlan("all_gather", "doubling", ranks, ranks, _log2(ranks), step)


def tree(lines: Lines, slots: int, operation: str = "broadcast", root: int = 0) -> CollectivePlan:
    """Broadcast of the whole buffer from the head of each line by a binomial tree: log2(size) steps."""

    def step(k: int) -> Step:
        reach = 2**k
        active = (lines.position < reach) & (lines.position + reach < lines.size)
        peer = np.where(active, lines.member(lines.position + reach), NOBODY)
        return messages(peer, np.zeros(lines.ranks, np.int64), np.full(lines.ranks, slots))

    return CollectivePlan(operation, "tree", lines.ranks, slots, _log2(lines.longest()), step, root=root)


def chain(lines: Lines, slots: int, root: int = 0) -> CollectivePlan:
    """Broadcast of the whole buffer from rank to rank along a line; only its segmented form is fast."""
    onward = lines.member(lines.position + 1)

    def step(q: int) -> Step:
        active = (lines.position == q) & (q + 1 < lines.size)
        return messages(np.where(active, onward, NOBODY), np.zeros_like(onward), np.full_like(onward, slots))

    return CollectivePlan("broadcast", "chain", lines.ranks, slots, max(lines.longest() - 1, 0), step, root=root)


def from_root(lines: Lines, slots: int, root: int = 0) -> CollectivePlan:
    """Broadcast of the whole buffer by the head of each line, which sends it to one rank after the other."""

    def step(q: int) -> Step:
        active = (lines.position == 0) & (q + 1 < lines.size)
        peer = np.where(active, lines.member(np.full(lines.ranks, q + 1)), NOBODY)
        return messages(peer, np.zeros(lines.ranks, np.int64), np.full(lines.ranks, slots))

    return CollectivePlan("broadcast", "naive", lines.ranks, slots, max(lines.longest() - 1, 0), step, root=root)


def scatter_from_root(ranks: int, root: int = 0, counts: npt.ArrayLike | None = None) -> CollectivePlan:
    """Scatter by the root alone, in p - 1 steps. counts: elements of each rank's block."""
    rank = np.arange(ranks)

    def step(q: int) -> Step:
        peer = (root + q + 1) % ranks
        block = np.full(ranks, peer)
        return messages(np.where(rank == root, peer, NOBODY), block, block + 1)

    sizes = None if counts is None else np.asarray(counts, np.int64)
    return CollectivePlan("scatter", "naive", ranks, ranks, ranks - 1, step, root=root, counts=sizes)


def scatter_tree(ranks: int, root: int = 0, counts: npt.ArrayLike | None = None) -> CollectivePlan:
    """Scatter by a binomial tree in log2(p) steps: each rank passes on the blocks of the ranks behind it."""
    lines = one_line(ranks, root)

    def step(k: int) -> Step:
        reach = 2 ** (_log2(ranks) - 1 - k)
        active = (lines.position % (2 * reach) == 0) & (lines.position + reach < ranks)
        peer = lines.member(lines.position + reach)
        behind = np.minimum(reach, ranks - lines.position - reach)
        return messages(np.where(active, peer, NOBODY), peer, peer + np.maximum(behind, 0), wraps=True)

    sizes = None if counts is None else np.asarray(counts, np.int64)
    return CollectivePlan("scatter", "tree", ranks, ranks, _log2(ranks), step, root=root, counts=sizes)


def pairwise(ranks: int, counts: npt.ArrayLike | None = None) -> CollectivePlan:
    """All-to-all in p steps: in step s every rank sends to the rank s places on; step 0 is a copy.

    Slots 0 … p - 1 hold the blocks for each rank, slots p … 2 p - 1 the blocks from each rank. counts: rank r sends
    counts[r][q] elements to rank q.
    """
    rank = np.arange(ranks)

    def step(s: int) -> Step:
        peer = (rank + s) % ranks
        return messages(peer, peer, peer + 1, into=rank + ranks)

    sizes = None
    if counts is not None:
        matrix = np.asarray(counts, np.int64).reshape(ranks, ranks)
        sizes = np.concatenate([matrix, matrix.T], axis=1)
    return CollectivePlan("all_to_all", "pairwise", ranks, 2 * ranks, ranks, step, counts=sizes)


def _log2(n: int) -> int:
    """The smallest k with 2^k >= n."""
    return max(n - 1, 0).bit_length()
