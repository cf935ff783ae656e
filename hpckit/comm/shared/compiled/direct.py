"""All-reduce of large private buffers: each rank reads what it needs straight from the memory of the other processes.

Linux copies between processes once (process_vm_readv), where a rank may look into another. Through slots there are two
copies, and the lines of the slots travel between the caches of the cores back and forth.
"""

from __future__ import annotations

from hpckit.comm.shared.compiled.all_reduce import share
from hpckit.comm.shared.compiled.atomics import process_vm_readv
from hpckit.comm.shared.compiled.constants import (
    AT,
    COUNT,
    GROUP,
    ITEM,
    LOST,
    PROCESSES,
    RANK,
    READ_BYTES,
    READS,
    SEND,
    SEQUENCE,
    SHARED,
    SIZE,
    SOURCES,
    TARGETS,
    VECTORS,
)
from hpckit.comm.shared.compiled.slots import reduce_sources
from hpckit.comm.shared.compiled.waiting import (
    count_to,
    counter_of,
    enter,
    give_up,
    integers,
    leave,
    offset_of,
    ready_of,
    record_at,
    wait,
)
from hpckit.kernels.compile.jit import jit


@jit
def read_from(group, rank, source, target, nbytes):
    """Copy from the memory of another rank; whether all of it came."""
    vectors = integers(group[VECTORS], 4)
    process = integers(group[PROCESSES], group[SIZE])[rank]
    done = 0
    while done < nbytes:
        vectors[0], vectors[1] = target + done, nbytes - done
        vectors[2], vectors[3] = source + done, nbytes - done
        got = process_vm_readv(process, group[VECTORS], 1, group[VECTORS] + 16, 1, 0)
        if got <= 0:
            return False
        done += got
    return True


@jit
def all_reduce(call):
    """Reduce the own share piece by piece, as read from the others, then read the shares that they have reduced."""
    group = record_at(call[GROUP])
    status = enter(call, group)
    if status:
        return status
    ranks, mine, item = group[SIZE], group[RANK], call[ITEM]
    first, end = share(call[COUNT], item, ranks, mine)
    most = group[READ_BYTES] // item
    sources, targets = integers(group[SOURCES], ranks), integers(group[TARGETS], 1)
    for start in range(first, end if not group[AT] else first, most):
        count = min(most, end - start)
        for rank in range(ranks):
            sources[rank] = group[READS] + rank * group[READ_BYTES]
            if rank == mine:
                sources[rank] = call[SEND] + start * item
            elif not read_from(group, rank, offset_of(group, rank) + start * item, sources[rank], count * item):
                return give_up(group, rank, LOST)
        targets[0] = call[SEND] + start * item
        reduce_sources(call, group, 1, count)
    count_to(group, SHARED, group[SEQUENCE])
    group[AT] = max(group[AT], 1)
    for step in range(group[AT], ranks):
        rank = (mine + step) % ranks
        group[AT] = step
        status = ready_of(call, group, rank, SHARED, group[SEQUENCE])
        if not status:
            status = wait(group, counter_of(group, rank, SHARED), group[SEQUENCE], rank)
        if status:
            return status
        first, end = share(call[COUNT], item, ranks, rank)
        source = offset_of(group, rank) + first * item
        if not read_from(group, rank, source, call[SEND] + first * item, (end - first) * item):
            return give_up(group, rank, LOST)
    group[AT] = ranks
    return leave(call, group)
