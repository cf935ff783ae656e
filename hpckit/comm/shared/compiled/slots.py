"""Where the data of a rank of a node lie on their way, and the reduction of what lies there."""

from __future__ import annotations

from hpckit.comm.shared.compiled.atomics import call_reducer
from hpckit.comm.shared.compiled.constants import (
    FACTORS,
    FLAT,
    FLAT_BYTES,
    PART_BYTES,
    REDUCER,
    SCRATCH,
    SIZE,
    SLOTS,
    SOURCES,
    STAGE,
    STAGE_STRIDE,
    TARGETS,
)
from hpckit.kernels.compile.jit import jit


@jit
def flat_slot(group, rank, sequence):
    """The address of the slot in which a rank shows its data to all in collective number `sequence`."""
    return group[FLAT] + rank * group[PART_BYTES] + (sequence & 1) * group[FLAT_BYTES]


@jit
def slot_of(group, rank, piece):
    """The address of the staging slot of a rank for a piece."""
    return group[STAGE] + rank * group[PART_BYTES] + piece % SLOTS * group[STAGE_STRIDE]


@jit
def reduce_sources(call, group, copies, count):
    """Reduce `count` elements at the addresses in SOURCES into `copies` places, at those in TARGETS."""
    call_reducer(
        call[REDUCER],
        group[SOURCES],
        group[SIZE],
        group[TARGETS],
        copies,
        count,
        group[FACTORS],
        group[SCRATCH],
    )
