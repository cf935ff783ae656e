"""Lines of ranks: a collective runs along one line of all ranks, or along many lines side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpckit.plan.protocol import Ints


@dataclass(frozen=True)
class Lines:
    """The place of each rank on its line; a rank with `size` 0 is on none.

    position, size: int64[ranks], the place of a rank on its line, and the length of that line. first, stride, wrap: the
    ranks of a line are (first + stride * q) % wrap for q = 0 … size - 1.
    """

    position: Ints
    size: Ints
    first: Ints
    stride: int
    wrap: int

    @property
    def ranks(self) -> int:
        """Ranks in all, on lines or not."""
        return len(self.position)

    def member(self, q: Ints) -> Ints:
        """The rank at place q[r] of the line of each rank r; meaningless where q is beyond its ends."""
        return (self.first + self.stride * q) % self.wrap

    def longest(self) -> int:
        """The length of the longest line."""
        return int(self.size.max(initial=0))


def one_line(ranks: int, root: int = 0) -> Lines:
    """All ranks on one line that starts with `root`."""
    rank = np.arange(ranks)
    return Lines((rank - root) % ranks, np.full(ranks, ranks), np.full(ranks, root), 1, ranks)


def node_lines(ranks: int, node_size: int) -> Lines:
    """One line for each node of `node_size` ranks, its leader first; the last node may be smaller."""
    rank = np.arange(ranks)
    first = rank - rank % node_size
    return Lines(rank % node_size, np.minimum(node_size, ranks - first), first, 1, ranks)


def leader_line(ranks: int, node_size: int) -> Lines:
    """The first ranks of all nodes on one line; other ranks are on none."""
    rank = np.arange(ranks)
    nodes = -(-ranks // node_size)
    size = np.where(rank % node_size == 0, nodes, 0)
    return Lines(rank // node_size, size, np.zeros(ranks, np.int64), node_size, nodes * node_size)


def rows(shape: tuple[int, int]) -> Lines:
    """The rows of a torus of shape[0] x shape[1] ranks, numbered row by row."""
    rank = np.arange(shape[0] * shape[1])
    return Lines(rank % shape[1], np.full(len(rank), shape[1]), rank - rank % shape[1], 1, len(rank))


def columns(shape: tuple[int, int]) -> Lines:
    """The columns of a torus of shape[0] x shape[1] ranks."""
    rank = np.arange(shape[0] * shape[1])
    return Lines(rank // shape[1], np.full(len(rank), shape[0]), rank % shape[1], shape[1], len(rank) + shape[1])
