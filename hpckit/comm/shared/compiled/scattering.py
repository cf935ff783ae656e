"""Reduce-scatter and all-to-all on shared memory: every block of a buffer is for another rank.

Each takes a call record and returns a status.
"""

from __future__ import annotations

from hpckit.comm.shared.compiled.atomics import copy_bytes
from hpckit.comm.shared.compiled.constants import (
    AT,
    BASES,
    CACHE_LINE,
    FILLED,
    FROM,
    GOOD,
    GROUP,
    ITEM,
    RANK,
    RECV,
    REDUCED,
    SEND,
    SEQUENCE,
    SHOWN,
    SIZE,
    SOURCES,
    STAGE_BYTES,
    STARTS,
    TARGETS,
    UNMATCHED,
)
from hpckit.comm.shared.compiled.movement import collect, longest_of, part_of, pass_piece
from hpckit.comm.shared.compiled.slots import flat_slot, reduce_sources, slot_of
from hpckit.comm.shared.compiled.waiting import (
    begin_pieces,
    count_to,
    counter_of,
    enter,
    integers,
    leave,
    offset_of,
    ready,
    ready_slot,
    record_at,
    wait,
)
from hpckit.kernels.compile.jit import jit


@jit
def symmetric_reduce_scatter(call):
    """Every rank reduces its block of all buffers, where they are."""
    group = record_at(call[GROUP])
    status = enter(call, group)
    if status:
        return status
    if not group[AT]:
        ranks, mine = group[SIZE], group[RANK]
        starts, bases = integers(call[STARTS], ranks + 1), integers(call[BASES], ranks)
        sources = integers(group[SOURCES], ranks)
        for rank in range(ranks):
            sources[rank] = bases[rank] + offset_of(group, rank) + starts[mine] * call[ITEM]
        integers(group[TARGETS], 1)[0] = call[RECV]
        reduce_sources(call, group, 1, starts[mine + 1] - starts[mine])
    return leave(call, group)


@jit
def _most(group, item):
    """Elements of a block that are staged at a time, of the blocks for all ranks."""
    line = max(CACHE_LINE // item, 1)
    most = group[STAGE_BYTES] // (group[SIZE] * item)
    return max(most // line * line, 1)


@jit
def _stage(call, group, starts, k, piece, most):
    """Stage piece k of the blocks that are for others."""
    status = ready_slot(call, group, REDUCED, piece)
    if status:
        return status
    ranks, mine, item = group[SIZE], group[RANK], call[ITEM]
    slot = slot_of(group, mine, piece)
    for step in range(1, ranks):
        rank = (mine + step) % ranks
        count = part_of(starts[rank + 1] - starts[rank], k, most)
        copy_bytes(slot + rank * most * item, call[SEND] + (starts[rank] + k * most) * item, count * item)
    count_to(group, FILLED, piece + 1)
    return GOOD


@jit
def staged_reduce_scatter(call):
    """Through slots in shared memory: stage piece k of the blocks of the others, reduce piece k - 1 of the own one."""
    group = record_at(call[GROUP])
    status = enter(call, group)
    if status:
        return status
    ranks = group[SIZE]
    starts, most = integers(call[STARTS], ranks + 1), _most(group, call[ITEM])
    pieces = (longest_of(starts, ranks) + most - 1) // most
    before = begin_pieces(group, pieces)
    for part in range(group[AT] - 1, 2 * (pieces + 1)):
        k, what = part // 2, part % 2
        group[AT] = part + 1
        if what == 0 and k < pieces:
            status = _stage(call, group, starts, k, before + k, most)
        elif what == 1 and k >= 1:
            status = _reduce_block(call, group, starts, k - 1, before + k - 1, most)
        if status:
            return status
    group[AT] = 0
    return GOOD


@jit
def _reduce_block(call, group, starts, k, piece, most):
    ranks, mine, item = group[SIZE], group[RANK], call[ITEM]
    status = ready(call, group, FILLED, piece + 1)
    if status:
        return status
    sources = integers(group[SOURCES], ranks)
    for rank in range(ranks):
        status = wait(group, counter_of(group, rank, FILLED), piece + 1, rank)
        if status:
            return status
        sources[rank] = slot_of(group, rank, piece) + mine * most * item
    sources[mine] = call[SEND] + (starts[mine] + k * most) * item
    integers(group[TARGETS], 1)[0] = call[RECV] + k * most * item
    reduce_sources(call, group, 1, part_of(starts[mine + 1] - starts[mine], k, most))
    pass_piece(group, piece)
    return GOOD


@jit
def _tables(group, rank):
    """Where a rank's blocks for the others start, and where what it receives does: int64[2 (ranks + 1)]."""
    return integers(flat_slot(group, rank, group[SEQUENCE]), 2 * (group[SIZE] + 1))


@jit
def _enter_all_to_all(call, group):
    """Show the own tables, enter, and look whether what each rank sends is what the other one receives."""
    ranks = group[SIZE]
    table = 8 * (ranks + 1)
    if not group[SHOWN]:
        mine = flat_slot(group, group[RANK], group[SEQUENCE] + 1)
        copy_bytes(mine, call[STARTS], table)
        copy_bytes(mine + table, call[FROM], table)
    status = enter(call, group)
    if status:
        return status
    for sender in range(ranks):
        sent = _tables(group, sender)
        for taker in range(ranks):
            taken = _tables(group, taker)[ranks + 1 :]
            if sent[taker + 1] - sent[taker] != taken[sender + 1] - taken[sender]:
                return UNMATCHED
    return GOOD


@jit
def symmetric_all_to_all(call):
    """Every rank copies its blocks from where they are."""
    group = record_at(call[GROUP])
    status = _enter_all_to_all(call, group)
    if status:
        return status
    if not group[AT]:
        ranks, mine, item = group[SIZE], group[RANK], call[ITEM]
        into, bases = integers(call[FROM], ranks + 1), integers(call[BASES], ranks)
        for step in range(ranks):
            rank = (mine + step) % ranks
            source = bases[rank] + offset_of(group, rank) + _tables(group, rank)[mine] * item
            copy_bytes(call[RECV] + into[rank] * item, source, (into[rank + 1] - into[rank]) * item)
    return leave(call, group)


@jit
def staged_all_to_all(call):
    """Through slots in shared memory: stage piece k of the blocks for the others, collect piece k - 1 of theirs."""
    group = record_at(call[GROUP])
    status = _enter_all_to_all(call, group)
    if status:
        return status
    ranks, mine, item = group[SIZE], group[RANK], call[ITEM]
    starts, into, most = integers(call[STARTS], ranks + 1), integers(call[FROM], ranks + 1), _most(group, item)
    longest = 0
    for rank in range(ranks):
        longest = max(longest, longest_of(_tables(group, rank), ranks))
    if not group[AT]:
        own = starts[mine + 1] - starts[mine]
        copy_bytes(call[RECV] + into[mine] * item, call[SEND] + starts[mine] * item, own * item)
    pieces = (longest + most - 1) // most
    before = begin_pieces(group, pieces)
    for part in range(group[AT] - 1, 2 * (pieces + 1)):
        k, what = part // 2, part % 2
        group[AT] = part + 1
        if what == 0 and k < pieces:
            status = _stage(call, group, starts, k, before + k, most)
        elif what == 1 and k >= 1:
            status = collect(call, group, into, k - 1, before + k - 1, most, mine * most * item)
        if status:
            return status
    group[AT] = 0
    return GOOD
