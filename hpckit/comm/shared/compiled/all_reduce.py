"""All-reduce on shared memory: flat, staged and symmetric. Each takes a call record and returns a status."""

from __future__ import annotations

from hpckit.comm.shared.compiled.atomics import copy_bytes
from hpckit.comm.shared.compiled.constants import (
    AT,
    BASES,
    CACHE_LINE,
    COPIED,
    COUNT,
    FILLED,
    GOOD,
    GROUP,
    INLINE,
    ITEM,
    LINE,
    RANK,
    REDUCED,
    SEND,
    SEQUENCE,
    SHOWN,
    SIZE,
    SLOTS,
    SOURCES,
    STAGE_BYTES,
    TARGETS,
)
from hpckit.comm.shared.compiled.slots import flat_slot, reduce_sources, slot_of
from hpckit.comm.shared.compiled.waiting import (
    begin_pieces,
    count_to,
    counter_of,
    enter,
    integers,
    leave,
    line_of,
    offset_of,
    ready,
    ready_slot,
    record_at,
    wait,
    wait_all,
)
from hpckit.kernels.compile.jit import jit


@jit
def share(count, item, ranks, rank):
    """The first element and the end of the part of `count` elements that a rank reduces, cut at cache lines."""
    line = max(CACHE_LINE // item, 1)
    size = ((count + ranks - 1) // ranks + line - 1) // line * line
    return min(rank * size, count), min((rank + 1) * size, count)


@jit
def _shown(group, rank, sequence, nbytes):
    """Where a rank shows its data: behind its line where there is room, else in its flat slot."""
    if nbytes <= LINE - INLINE:
        return line_of(group, rank, sequence) + INLINE
    return flat_slot(group, rank, sequence)


@jit
def flat(call):
    """Every rank shows its data and reduces that of all: one flag a rank, for small data.

    Two slots per rank suffice: a rank in collective t + 2 has seen all ranks in t + 1, which have finished t.
    """
    group = record_at(call[GROUP])
    nbytes = call[COUNT] * call[ITEM]
    sequence = group[SEQUENCE] + 1
    if not group[SHOWN]:
        copy_bytes(_shown(group, group[RANK], sequence, nbytes), call[SEND], nbytes)
    status = enter(call, group)
    if status:
        return status
    sources = integers(group[SOURCES], group[SIZE])
    for rank in range(group[SIZE]):
        sources[rank] = _shown(group, rank, sequence, nbytes)
    integers(group[TARGETS], 1)[0] = call[SEND]
    reduce_sources(call, group, 1, call[COUNT])
    return GOOD


@jit
def symmetric(call):
    """Every rank reduces its share of all parts, where they are, into all parts: no copy."""
    group = record_at(call[GROUP])
    status = enter(call, group)
    if status:
        return status
    if not group[AT]:
        ranks = group[SIZE]
        first, end = share(call[COUNT], call[ITEM], ranks, group[RANK])
        sources, targets = integers(group[SOURCES], ranks), integers(group[TARGETS], ranks)
        bases = integers(call[BASES], ranks)
        for rank in range(ranks):
            sources[rank] = bases[rank] + offset_of(group, rank) + first * call[ITEM]
            targets[rank] = sources[rank]
        reduce_sources(call, group, ranks, end - first)
    return leave(call, group)


@jit
def staged(call):
    """Through slots in shared memory, piece by piece: stage piece k, reduce piece k - 1, collect piece k - 2.

    A piece is staged whole but for the rank's own share, each rank reduces its share of it into its own buffer and a
    place behind its slot, and collects the other shares from there.
    """
    group = record_at(call[GROUP])
    status = enter(call, group)
    if status:
        return status
    most = group[STAGE_BYTES] // call[ITEM]
    pieces = (call[COUNT] + most - 1) // most
    before = begin_pieces(group, pieces)
    for part in range(group[AT] - 1, 3 * (pieces + 2)):
        k, what = part // 3, part % 3
        group[AT] = part + 1
        if what == 0 and k < pieces:
            status = _stage(call, group, k, before + k, most)
        elif what == 1 and 1 <= k <= pieces:
            status = _reduce_share(call, group, k - 1, before + k - 1, most)
        elif what == 2 and k >= 2:
            status = _collect(call, group, k - 2, before + k - 2, most)
        if status:
            return status
    group[AT] = 0
    return GOOD


@jit
def _stage(call, group, k, piece, most):
    status = ready_slot(call, group, REDUCED, piece)
    if status:
        return status
    item, start, count = call[ITEM], k * most, min(most, call[COUNT] - k * most)
    first, end = share(count, item, group[SIZE], group[RANK])
    slot, data = slot_of(group, group[RANK], piece), call[SEND] + start * item
    copy_bytes(slot, data, first * item)
    copy_bytes(slot + end * item, data + end * item, (count - end) * item)
    count_to(group, FILLED, piece + 1)
    return GOOD


@jit
def _reduce_share(call, group, k, piece, most):
    item, start, count = call[ITEM], k * most, min(most, call[COUNT] - k * most)
    ranks, mine = group[SIZE], group[RANK]
    status = ready(call, group, FILLED, piece + 1)
    if not status:
        status = ready(call, group, COPIED, piece - SLOTS + 1)
    if status:
        return status
    first, end = share(count, item, ranks, mine)
    sources, targets = integers(group[SOURCES], ranks), integers(group[TARGETS], 2)
    for rank in range(ranks):
        status = wait(group, counter_of(group, rank, FILLED), piece + 1, rank)
        if status:
            return status
        sources[rank] = slot_of(group, rank, piece) + first * item
    status = wait_all(group, COPIED, piece - SLOTS + 1)
    if status:
        return status
    sources[mine] = call[SEND] + (start + first) * item
    targets[0] = sources[mine]
    targets[1] = slot_of(group, mine, piece) + group[STAGE_BYTES]
    reduce_sources(call, group, 2, end - first)
    count_to(group, REDUCED, piece + 1)
    return GOOD


@jit
def _collect(call, group, k, piece, most):
    item, start, count = call[ITEM], k * most, min(most, call[COUNT] - k * most)
    ranks, mine = group[SIZE], group[RANK]
    status = ready(call, group, REDUCED, piece + 1)
    if status:
        return status
    for step in range(1, ranks):
        rank = (mine + step) % ranks
        status = wait(group, counter_of(group, rank, REDUCED), piece + 1, rank)
        if status:
            return status
        first, end = share(count, item, ranks, rank)
        reduced = slot_of(group, rank, piece) + group[STAGE_BYTES]
        copy_bytes(call[SEND] + (start + first) * item, reduced, (end - first) * item)
    count_to(group, COPIED, piece + 1)
    return GOOD
