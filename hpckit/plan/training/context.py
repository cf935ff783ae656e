"""Which tokens of a sample the ranks of a mesh axis cp hold, and what it costs them to meet the keys of the others."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from hpckit.plan.blocks import block_starts
from hpckit.plan.machine.machine import Compute, Level, Machine
from hpckit.plan.training.links import Line, compute_of, line

KINDS = {
    "gather": "keys and values, gathered",
    "ring": "keys and values, in a ring",
    "ulysses": "all heads",
    "plain_ring": "keys and values, in a ring of uneven work",
}
PLAIN = "plain_ring"  # whole stretches of tokens in place of zigzag chunks: for comparison
# What is known of a machine that nobody has described: cores that copy messages in their node's memory.
CORES = Machine("cores of a node", (Level("node", 0, 1e-6, 5e9),), 1e-6, 5e9, compute=Compute(5e10, 4e9, 1e10))


class Chunk(NamedTuple):
    """Tokens `start` to `end` of a sample, in a rank's own tokens from `at` on."""

    start: int
    end: int
    at: int

    @property
    def own(self) -> slice:
        """Its place among the rank's own tokens."""
        return slice(self.at, self.at + self.end - self.start)


def chunks_of(length: int, ranks: int, zigzag: bool = True) -> list[list[Chunk]]:
    """The chunks of each rank: of 2 cp that a sample is cut into, sizes differing by at most 1, numbers r and
    2 cp - 1 - r, so that causal attention is as much work on each rank. Some may be empty. Without `zigzag` a rank has
    one stretch of tokens, and the last rank 2 - 1 / cp times the even work.
    """
    if not zigzag:
        starts = block_starts(length, ranks).tolist()
        return [[Chunk(first, end, 0)] for first, end in pairwise(starts)]
    starts = block_starts(length, 2 * ranks).tolist()
    found = []
    for rank in range(ranks):
        at, own = 0, []
        for number in (rank, 2 * ranks - 1 - rank):
            own.append(Chunk(starts[number], starts[number + 1], at))
            at += starts[number + 1] - starts[number]
        found.append(own)
    return found


def context_seconds(kind: str, cp: Line, keys: float, queries: float, core: float) -> tuple[tuple[float, float], float]:
    """Exposed seconds of the messages of a layer, forward and backward, and the hidden ones.

    keys, queries: bytes of a rank's keys and values, and of its queries and results. core: seconds of its attention.
    Ring: keys and values go round while the attention works (Liu et al. 2023, arXiv:2310.01889), zigzag chunks keep the
    work even; backward their gradients go with them. Plain ring: without these chunks all wait for the last rank.
    Ulysses: queries, keys, values and outputs change from tokens to heads (Jacobs et al. 2023, arXiv:2309.14509).
    Gather: all keys and values are gathered first (Llama team 2024).
    """
    if kind == "ulysses":
        one = cp.exchange(keys + queries) + cp.latency
        return (one, one), 0.0
    if kind == "gather":
        one = cp.gather(keys * cp.size)
        return (one, 2 * one), 0.0
    ring = (cp.size - 1) * cp.message(keys)
    uneven = 1 - 1 / cp.size if kind == PLAIN else 0.0  # of the last rank, beyond the even work
    work = core * (1 + uneven) * (cp.size - 1) / cp.size
    out = max(ring - work, 0.0), max(2 * ring - 2.5 * work, 0.0)
    return (out[0] + uneven * core, out[1] + 2.5 * uneven * core), 3 * ring - sum(out)


def quickest(machine: Machine, cp: int, samples: int, length: int, heads: tuple[int, int, int], itemsize: int) -> str:
    """The kind whose exposed messages take least on a machine, the first of those within a percent.

    heads: of queries, of keys, and their width.
    """
    queries, keys, width = heads
    tokens, along = samples * length / cp, line(machine, cp, 1)
    core = 2.0 * tokens * length * queries * width / (compute_of(machine).peak * compute_of(machine).efficiency)
    own = 2.0 * tokens * width * itemsize
    uneven = -(-keys // cp) * cp / keys  # the rank with most heads has so much more work with Ulysses
    found = {}
    for kind in KINDS:
        if kind == "ulysses" and keys < cp:
            continue
        exposed = sum(context_seconds(kind, along, own * keys, own * queries, core)[0])
        found[kind] = exposed + (3.5 * core * (uneven - 1) if kind == "ulysses" else 0.0)
    least = 1.01 * min(found.values())
    return next(kind for kind, seconds in found.items() if seconds <= least)
