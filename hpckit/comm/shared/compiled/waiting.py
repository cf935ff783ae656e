"""Flags of the ranks of a node: entering a collective together, and counters that are waited for.

A rank that waits looks at the flag for a while, then gives its core away between looks (there may be more ranks than
cores). From then on every wait also looks at the clock, at the word that another rank sets when it gives up, and now
and then whether the processes of all are still there.
"""

from __future__ import annotations

from hpckit.comm.shared.compiled.atomics import (
    clock_gettime,
    kill,
    load_acquire,
    pause,
    sched_yield,
    store_release,
    usleep,
)
from hpckit.comm.shared.compiled.constants import (
    ABORT,
    ABORTED,
    AT,
    AVERAGED,
    BEGUN,
    CLOCK,
    COUNT,
    COUNTERS,
    COUNTERS_OF_RANK,
    DEADLINE,
    DONE,
    FACTORS,
    GOOD,
    GROUP_FIELDS,
    INLINE,
    LATE,
    LINE,
    LINES,
    LOST,
    MISMATCH,
    NO_WEIGHT,
    NOT_YET,
    OFFSET,
    PATIENCE,
    PIECE,
    PROCESSES,
    RANK,
    SEEN,
    SELF,
    SEQUENCE,
    SHOWN,
    SIGNATURE,
    SIZE,
    SLOTS,
    SPINS,
    STALLED,
    SYMMETRIC,
    WEIGHT,
)
from hpckit.kernels.compile.addresses import values_at
from hpckit.kernels.compile.jit import jit

MONOTONIC = 1
LOOKS = 64  # at a flag between looks at the clock
QUICK_LOOKS = 1000  # that a rank yields its core, before it sleeps; none where ranks outnumber cores
NAP = 20  # microseconds
LIFE_SIGN = 50_000_000  # ns between looks at the processes

integers = values_at("int64")
doubles = values_at("float64")


@jit
def record_at(address):
    """The group record at an address."""
    return integers(address, GROUP_FIELDS)


@jit
def line_of(group, rank, sequence):
    """The address of the line by which a rank enters collective number `sequence`."""
    return group[LINES] + (2 * rank + (sequence & 1)) * LINE


@jit
def counter_of(group, rank, which):
    """The address of a counter of a rank."""
    return group[COUNTERS] + (COUNTERS_OF_RANK * rank + which) * LINE


@jit
def count_to(group, which, value):
    """Set a counter of this rank."""
    store_release(counter_of(group, group[RANK], which), value)


@jit
def _now(group):
    clock_gettime(MONOTONIC, group[SELF] + 8 * CLOCK)
    return group[CLOCK] * 1_000_000_000 + group[CLOCK + 1]


@jit
def give_up(group, rank, status):
    """Tell all ranks to stop waiting, and return the status."""
    group[LATE] = rank
    store_release(group[ABORT], 1 + group[RANK])
    return status


@jit
def gone(group):
    """The first rank whose process has ended, -1 where all are there."""
    processes = integers(group[PROCESSES], group[SIZE])
    for rank in range(group[SIZE]):
        if kill(processes[rank], 0):
            return rank
    return -1


@jit
def _trouble(group, rank, begin):
    """A status other than GOOD if waiting for `rank` since `begin` is pointless."""
    if load_acquire(group[ABORT]):
        return ABORTED
    now = _now(group)
    if now - begin > group[DEADLINE]:
        return give_up(group, rank, STALLED)
    if now - group[SEEN] > LIFE_SIGN and group[PROCESSES]:
        group[SEEN] = now
        lost = gone(group)
        if lost >= 0:
            return give_up(group, lost, LOST)
    return GOOD


@jit
def _wait_long(group, flag, value, rank):
    begin = _now(group)
    looks = 0
    quick = QUICK_LOOKS if group[SPINS] > LOOKS else 0
    while load_acquire(flag) < value:
        looks += 1
        if looks > quick:  # a core that is only yielded comes back at once, and the other rank does not run
            usleep(NAP)
        else:
            sched_yield()
        if looks % LOOKS == 0:
            status = _trouble(group, rank, begin)
            if status and load_acquire(flag) < value:
                return status
    return GOOD


@jit
def wait(group, flag, value, rank):
    """Wait until the flag at an address, which `rank` sets, has reached a value; a status."""
    for _ in range(group[SPINS]):
        if load_acquire(flag) >= value:
            return GOOD
        pause()
    return _wait_long(group, flag, value, rank)


@jit
def wait_all(group, which, value):
    """Wait until a counter of every rank has reached a value; a status."""
    for rank in range(group[SIZE]):
        status = wait(group, counter_of(group, rank, which), value, rank)
        if status:
            return status
    return GOOD


@jit
def _look(group, flag, value, rank, patience):
    """Look at a flag some times; NOT_YET where it has not reached the value, or another status."""
    for _ in range(patience):
        if load_acquire(flag) >= value:
            return GOOD
        pause()
    if not group[BEGUN]:
        group[BEGUN] = _now(group)
    status = _trouble(group, rank, group[BEGUN])
    return status if status else NOT_YET


@jit
def enter(call, group):
    """Come to a collective and wait for all; a status, the same on all ranks but for lost ones.

    A rank that has come has left the one before: its line of the collective before that may be written again. A call
    with PATIENCE returns NOT_YET where the others have not come; it is then made again, and goes on where it was. It
    does so in the midst of the collective, too (`ready`): a rank that waited there for one that waits for it in a
    collective of another group would wait for ever.
    """
    if group[AT]:
        return GOOD
    sequence = group[SEQUENCE] + 1
    line = line_of(group, group[RANK], sequence)
    mine = integers(line, INLINE // 8)
    if not group[SHOWN]:
        mine[1], mine[2], mine[3], mine[4] = call[SIGNATURE], call[COUNT], call[SYMMETRIC], call[OFFSET]
        mine[5] = call[WEIGHT]
        store_release(line, sequence)
        group[SHOWN] = 1
        group[BEGUN] = 0
    status = _meet(call, group, sequence, mine)
    if status != NOT_YET:
        group[SEQUENCE] = sequence
        group[SHOWN] = 0
    if status == GOOD and call[AVERAGED]:
        return _factors(group, sequence)
    return status


@jit
def _meet(call, group, sequence, mine):
    """Wait until all have come to a collective, and look whether all have come to the same one."""
    if load_acquire(group[ABORT]):
        return ABORTED
    differ = 0
    for rank in range(group[SIZE]):
        line = line_of(group, rank, sequence)
        if call[PATIENCE]:
            status = _look(group, line, sequence, rank, call[PATIENCE])
        else:
            status = wait(group, line, sequence, rank)
        if status:
            return status
        words = integers(line, INLINE // 8)
        differ |= (words[1] ^ mine[1]) | (words[2] ^ mine[2]) | (words[3] ^ mine[3])
    return MISMATCH if differ else GOOD


@jit
def _factors(group, sequence):
    """Turn the weights in the lines into factors that add up to 1."""
    factors = doubles(group[FACTORS], group[SIZE])
    total = 0.0
    for rank in range(group[SIZE]):
        factors[rank] = doubles(line_of(group, rank, sequence), INLINE // 8)[5]
        total += factors[rank]
    for rank in range(group[SIZE]):
        factors[rank] /= total
    return GOOD if total > 0.0 else NO_WEIGHT


@jit
def ready_of(call, group, rank, which, value):
    """Before waiting for a counter of a rank in the midst of a collective: NOT_YET where a call with PATIENCE would
    wait; its kernel then returns, and begins this part anew when it is called again.
    """
    if not call[PATIENCE]:
        return GOOD
    status = _look(group, counter_of(group, rank, which), value, rank, call[PATIENCE])
    if not status:
        group[BEGUN] = 0
    return status


@jit
def ready(call, group, which, value):
    """The same for a counter of all ranks."""
    if call[PATIENCE]:
        for rank in range(group[SIZE]):
            status = _look(group, counter_of(group, rank, which), value, rank, call[PATIENCE])
            if status:
                return status
        group[BEGUN] = 0
    return GOOD


@jit
def ready_slot(call, group, which, piece):
    """Wait until no rank needs what the slot of a piece held before: a counter of all ranks says it; a status."""
    status = ready(call, group, which, piece - SLOTS + 1)
    if status:
        return status
    return wait_all(group, which, piece - SLOTS + 1)


@jit
def leave(call, group):
    """Wait until all ranks are through the collective that this rank is through; a status."""
    count_to(group, DONE, group[SEQUENCE])
    group[AT] = max(group[AT], 1)
    status = ready(call, group, DONE, group[SEQUENCE])
    if not status:
        status = wait_all(group, DONE, group[SEQUENCE])
    if status != NOT_YET:
        group[AT] = 0
    return status


@jit
def begin_pieces(group, pieces):
    """The number of the first of so many pieces, which this rank has begun now or before."""
    if not group[AT]:
        group[PIECE] += pieces
        group[AT] = 1
    return group[PIECE] - pieces


@jit
def offset_of(group, rank):
    """The offset that a rank has come with, in the symmetric buffer."""
    return integers(line_of(group, rank, group[SEQUENCE]), INLINE // 8)[4]
