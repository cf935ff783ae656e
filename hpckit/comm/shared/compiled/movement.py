"""All-gather and broadcast on shared memory, and the barrier. Each takes a call record and returns a status."""

from __future__ import annotations

from hpckit.comm.shared.compiled.atomics import copy_bytes
from hpckit.comm.shared.compiled.constants import (
    AT,
    BASES,
    CALL_FIELDS,
    COPIED,
    COUNT,
    FILLED,
    GOOD,
    GROUP,
    ITEM,
    RANK,
    RECV,
    REDUCED,
    ROOT,
    SEND,
    SIZE,
    STAGE_BYTES,
    STARTS,
)
from hpckit.comm.shared.compiled.slots import slot_of
from hpckit.comm.shared.compiled.waiting import (
    begin_pieces,
    count_to,
    counter_of,
    enter,
    integers,
    leave,
    offset_of,
    ready,
    ready_of,
    ready_slot,
    record_at,
    wait,
)
from hpckit.kernels.compile.jit import jit


@jit
def part_of(count, k, most):
    """How many of `count` elements are in piece k of `most`."""
    return max(0, min(most, count - k * most))


@jit
def longest_of(starts, blocks):
    """The size of the longest block."""
    longest = 0
    for block in range(blocks):
        longest = max(longest, starts[block + 1] - starts[block])
    return longest


@jit
def pass_piece(group, piece):
    """A piece is done with by this rank: there is nothing in it to be reduced or collected any more."""
    count_to(group, REDUCED, piece + 1)
    count_to(group, COPIED, piece + 1)


@jit
def barrier(call):
    """Wait for all ranks."""
    return enter(call, record_at(call[GROUP]))


@jit(by_address=True)
def barrier_at(address):
    """`barrier` for a call record at an address."""
    return barrier(integers(address, CALL_FIELDS))


@jit
def symmetric_all_gather(call):
    """Every rank copies the blocks of all from where they are."""
    group = record_at(call[GROUP])
    status = enter(call, group)
    if status:
        return status
    if not group[AT]:
        ranks, item = group[SIZE], call[ITEM]
        starts, bases = integers(call[STARTS], ranks + 1), integers(call[BASES], ranks)
        for step in range(ranks):
            rank = (group[RANK] + step) % ranks
            source, target = bases[rank] + offset_of(group, rank), call[RECV] + starts[rank] * item
            if source != target:
                copy_bytes(target, source, (starts[rank + 1] - starts[rank]) * item)
    return leave(call, group)


@jit
def staged_all_gather(call):
    """Through slots in shared memory: stage piece k of the own block, collect piece k - 1 of the others."""
    group = record_at(call[GROUP])
    status = enter(call, group)
    if status:
        return status
    ranks, mine, item = group[SIZE], group[RANK], call[ITEM]
    starts = integers(call[STARTS], ranks + 1)
    own = starts[mine + 1] - starts[mine]
    if not group[AT] and call[SEND] != call[RECV] + starts[mine] * item:
        copy_bytes(call[RECV] + starts[mine] * item, call[SEND], own * item)
    most = group[STAGE_BYTES] // item
    pieces = (longest_of(starts, ranks) + most - 1) // most
    before = begin_pieces(group, pieces)
    for part in range(group[AT] - 1, 2 * (pieces + 1)):
        k, what = part // 2, part % 2
        group[AT] = part + 1
        if what == 0 and k < pieces:
            status = ready_slot(call, group, COPIED, before + k)
            if status:
                return status
            copy_bytes(slot_of(group, mine, before + k), call[SEND] + k * most * item, part_of(own, k, most) * item)
            count_to(group, FILLED, before + k + 1)
        elif what == 1 and k >= 1:
            status = collect(call, group, starts, k - 1, before + k - 1, most, 0)
            if status:
                return status
    group[AT] = 0
    return GOOD


@jit
def collect(call, group, starts, k, piece, most, offset):
    """Copy piece k of the blocks of the others, which stand behind so many bytes of their slots; a status."""
    ranks, mine, item = group[SIZE], group[RANK], call[ITEM]
    status = ready(call, group, FILLED, piece + 1)
    if status:
        return status
    for step in range(1, ranks):
        rank = (mine + step) % ranks
        status = wait(group, counter_of(group, rank, FILLED), piece + 1, rank)
        if status:
            return status
        count = part_of(starts[rank + 1] - starts[rank], k, most)
        copy_bytes(call[RECV] + (starts[rank] + k * most) * item, slot_of(group, rank, piece) + offset, count * item)
    pass_piece(group, piece)
    return GOOD


@jit
def symmetric_broadcast(call):
    """Every rank copies the data of the root from where they are."""
    group = record_at(call[GROUP])
    status = enter(call, group)
    if status:
        return status
    root = call[ROOT]
    if group[RANK] != root and not group[AT]:
        source = integers(call[BASES], group[SIZE])[root] + offset_of(group, root)
        copy_bytes(call[SEND], source, call[COUNT] * call[ITEM])
    return leave(call, group)


@jit
def staged_broadcast(call):
    """The root stages piece after piece, as far as the others have collected them."""
    group = record_at(call[GROUP])
    status = enter(call, group)
    if status:
        return status
    mine, root, item = group[RANK], call[ROOT], call[ITEM]
    most = group[STAGE_BYTES] // item
    pieces = (call[COUNT] + most - 1) // most
    before = begin_pieces(group, pieces)
    for k in range(group[AT] - 1, pieces):
        piece = before + k
        group[AT] = k + 1
        slot, data = slot_of(group, root, piece), call[SEND] + k * most * item
        nbytes = part_of(call[COUNT], k, most) * item
        if mine == root:
            status = ready_slot(call, group, COPIED, piece)
            if not status:
                copy_bytes(slot, data, nbytes)
        else:
            status = ready_of(call, group, root, FILLED, piece + 1)
            if not status:
                status = wait(group, counter_of(group, root, FILLED), piece + 1, root)
            if not status:
                copy_bytes(data, slot, nbytes)
        if status:
            return status
        count_to(group, FILLED, piece + 1)
        pass_piece(group, piece)
    group[AT] = 0
    return GOOD
