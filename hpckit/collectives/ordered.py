"""Reductions in the order of the ranks: the same bits on every rank, whatever the buffer is cut into.

Every element is ((x0 + x1) + x2) + … of the ranks' values, wherever it stands. The owner of a block takes that block
of all ranks, adds them up in their order, and all gather the sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.collectives.axis import Axis
from hpckit.collectives.column import column
from hpckit.collectives.reduction import Reduction
from hpckit.collectives.runner import Runner
from hpckit.collectives.slots import PairedSlots, Slots, counted_slots, even_slots, flat_like
from hpckit.collectives.work import Steps

# Bytes of a piece: what a rank takes of it from the others stays in its cache.
PIECE = 1 << 20


def all_reduce_in_order(axis: Axis, tag: int, values: Any, reduction: Reduction, weights: np.ndarray) -> Steps:
    """All-reduce of flat values in place."""
    length = max(1, PIECE // values.itemsize)
    gather = column("all_gather", "ring", axis.size, axis.rank)
    for start in range(0, values.size, length):
        slots = even_slots(values[start : start + length], axis.size)
        yield from reduce_scatter_in_order(axis, tag, slots, reduction, weights)
        yield from Runner(axis, tag, gather, slots).steps()


def reduce_scatter_in_order(axis: Axis, tag: int, slots: Slots, reduction: Reduction, weights: np.ndarray) -> Steps:
    """Reduce-scatter of a slot a rank: the own slot ends with the result."""
    own = slots.view(axis.rank, axis.rank + 1)
    incoming = flat_like(own, axis.size * own.size)
    taken = counted_slots(incoming, np.full(axis.size, own.size))
    incoming = incoming.reshape(axis.size, own.size)
    plan = column("all_to_all", "pairwise", axis.size, axis.rank)
    yield from Runner(axis, tag, plan, PairedSlots(slots, taken)).steps()
    total = reduction.weighed(reduction.widened(incoming[0]), weights[0])
    for rank in range(1, axis.size):
        reduction.combine(total, reduction.weighed(reduction.widened(incoming[rank]), weights[rank]))
    reduction.finish(total, weights)
    if total.dtype == own.dtype and not reduction.is_brain:
        own[...] = total
    else:
        reduction.narrow(total, own)
