"""Collectives in the shared memory of a node, the default for ranks that share one, and their extension over nodes.

Each rank reads its data from the memory of the others. "symmetric": from shared buffers. "staged": from a copy that
each rank makes in shared memory, behind its slots in the plan. "flat": like staged, but every rank adds the whole
buffers of all, which needs one synchronization instead of two: for small buffers. Additions are made in rank order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hpckit.errors import InputError
from hpckit.plan.collective.all_reduce import halving_doubling, ring
from hpckit.plan.collective.plan import CollectivePlan, backward, joined, segmented
from hpckit.plan.collective.rows import Lines, columns, one_line, rows
from hpckit.plan.protocol import NOBODY, Ends, Ints, Step


def gather(lines: Lines, slots: int, width: int, staged: bool) -> CollectivePlan:
    """All-gather along each line: the rank at place q of a line has the slots q * width and on, `width` of them."""
    sender, receiver = _pairs(lines)
    rank = np.arange(lines.ranks)
    block = lines.position * width
    steps = [_step(sender, receiver, block[sender], block[sender], width)]
    if staged:
        behind = np.full(lines.ranks, slots)
        steps = [
            _step(rank, rank, block, behind, width),
            _step(sender, receiver, behind[sender], block[sender], width),
        ]
    return _plan("all_gather", steps, lines, slots, width if staged else 0)


def scatter(lines: Lines, slots: int, width: int, staged: bool) -> CollectivePlan:
    """Reduce-scatter along each line, of blocks as in `gather`."""
    if not staged:
        return backward(gather(lines, slots, width, staged), "reduce_scatter")
    sender, receiver = _pairs(lines)
    block = lines.position[receiver] * width
    steps = [
        _step(sender, sender, block, slots + block, width),  # all but the own block
        _step(sender, receiver, slots + block, block, width, add=True),
    ]
    return _plan("reduce_scatter", steps, lines, slots, slots)


def flat(ranks: int) -> CollectivePlan:
    """Every rank shows its buffer and adds those of all."""
    lines, rank = one_line(ranks), np.arange(ranks)
    sender, receiver = _pairs(lines)
    shown, own = np.ones(ranks, np.int64), np.zeros(ranks, np.int64)
    steps = [
        _step(rank, rank, own, shown, 1),
        _step(sender, receiver, shown[sender], own[sender], 1, add=True),
    ]
    return replace(_plan("all_reduce", steps, lines, 1, 1), algorithm="flat")


def all_reduce(ranks: int, staged: bool) -> CollectivePlan:
    """Every rank adds its block of all buffers, then takes the blocks of the others."""
    lines = one_line(ranks)
    both = scatter(lines, ranks, 1, staged), gather(lines, ranks, 1, staged)
    return joined("all_reduce", both[0].algorithm, *both)


def broadcast(ranks: int, staged: bool, root: int = 0) -> CollectivePlan:
    """All ranks take the buffer of the root."""
    receiver = np.array([rank for rank in range(ranks) if rank != root], np.int64)
    at, none = np.full(len(receiver), root), np.zeros(len(receiver), np.int64)
    steps = [_step(at, receiver, none + staged, none, 1)]
    if staged:
        steps.insert(0, _step(np.array([root]), np.array([root]), np.array([0]), np.array([1]), 1))
    return replace(_plan("broadcast", steps, one_line(ranks), 1, int(staged)), root=root)


def all_to_all(ranks: int, staged: bool) -> CollectivePlan:
    """Every rank takes its block of each; slots as of `pairwise`."""
    sender, receiver = (each.reshape(-1) for each in np.indices((ranks, ranks)))
    there = 2 * ranks * staged + receiver
    steps = [_step(sender, receiver, there, ranks + sender, 1)]
    if staged:
        steps.insert(0, _step(sender, sender, receiver, there, 1))
    return _plan("all_to_all", steps, one_line(ranks), 2 * ranks, ranks if staged else 0)


def nodes(ranks: int, node_size: int, across: str = "ring", segments: int = 1) -> CollectivePlan:
    """All-reduce over nodes of equal size: a torus whose rows are nodes and meet in shared memory.

    The ranks of a node add a block each, the ranks of the same place in their nodes all-reduce theirs by messages, all
    places at once, and each node gathers its blocks. across: "ring", or "halving_doubling", which small blocks take;
    segments: parts of each message of the ring.
    """
    if ranks % node_size:
        raise InputError(
            f"{ranks} ranks are not nodes of {node_size} ranks each", do="give node_size that divides them"
        )
    if across not in ACROSS:
        raise InputError(f"there is no way {across!r} across nodes", do=f"choose {', '.join(ACROSS)}")
    shape = ranks // node_size, node_size
    inner = segmented(ACROSS[across](shape[0]), segments)
    slots, row = node_size * inner.slots, rows(shape)
    parts = (
        scatter(row, slots, inner.slots, staged=True),
        _along(inner, columns(shape), slots, row.position * inner.slots),
        gather(row, slots, inner.slots, staged=True),
    )
    return joined("all_reduce", "nodes", *parts)


ACROSS: dict[str, Callable[[int], CollectivePlan]] = {"ring": ring, "halving_doubling": halving_doubling}
STAGED: dict[str, tuple[Callable[..., CollectivePlan], tuple[str, ...]]] = {
    "all_reduce": (all_reduce, ()),
    "reduce_scatter": (lambda ranks, staged: scatter(one_line(ranks), ranks, 1, staged), ()),
    "all_gather": (lambda ranks, staged: gather(one_line(ranks), ranks, 1, staged), ()),
    "broadcast": (broadcast, ("root",)),
    "all_to_all": (all_to_all, ()),
}


def _both(build: Callable[..., CollectivePlan], staged: bool) -> Callable[..., CollectivePlan]:
    return lambda ranks, **options: replace(
        build(ranks, staged=staged, **options), algorithm="staged" if staged else "symmetric"
    )


# As `ALGORITHMS` of the plans by messages: operation -> algorithm -> (what makes its plan, the options that it takes).
IN_MEMORY: dict[str, dict[str, tuple[Callable[..., CollectivePlan], tuple[str, ...]]]] = {
    operation: {name: (_both(build, name == "staged"), takes) for name in ("staged", "symmetric")}
    for operation, (build, takes) in STAGED.items()
}
IN_MEMORY["all_reduce"] |= {"flat": (flat, ()), "nodes": (nodes, ("node_size", "across", "segments"))}


def _pairs(lines: Lines) -> tuple[Ints, Ints]:
    """Every two ranks of a line, by receiver, then by sender's place."""
    longest = lines.longest()
    member = np.stack([lines.member(np.full(lines.ranks, q)) for q in range(longest)], axis=1)
    there = (np.arange(longest) < lines.size[:, None]) & (np.arange(longest) != lines.position[:, None])
    receiver = np.broadcast_to(np.arange(lines.ranks)[:, None], member.shape)
    return member[there].astype(np.int64), receiver[there]


def _step(sender: Ints, receiver: Ints, first: Ints, into: Ints, width: int, add: bool = False) -> Step:
    """Slots from `first` on of senders come to slots from `into` on of receivers."""
    return Step(
        Ends(receiver, first, first + width, rank=sender),
        Ends(sender, into, into + width, rank=receiver),
        add=add,
        place="memory",
    )


def _plan(operation: str, steps: list[Step], lines: Lines, slots: int, room: int) -> CollectivePlan:
    algorithm = "staged" if room else "symmetric"
    make = steps.__getitem__
    return CollectivePlan(
        operation, algorithm, lines.ranks, slots, len(steps), make, node=lines.member(0 * lines.position), room=room
    )


def _along(plan: CollectivePlan, lines: Lines, slots: int, base: Ints) -> CollectivePlan:
    """A plan of as many ranks as lines have, on each of them, over the slots from `base` on of each rank."""
    place = lines.position

    def end(ends: Ends) -> Ends:
        peer = np.where(ends.peer[place] >= 0, lines.member(np.maximum(ends.peer[place], 0)), NOBODY)
        return Ends(peer, base + ends.first[place], base + ends.last[place])

    def step(i: int) -> Step:
        it = plan.step(i)
        return replace(it, sends=end(it.sends), receives=end(it.receives))

    return replace(plan, ranks=lines.ranks, slots=slots, step=step)
