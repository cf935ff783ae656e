"""Two stages in one pass over memory, between walls: the second follows the first by a few slabs.

What is between them lies in a window of slabs of the first dim, which stays in the cache. Beside walls the window is
filled as a field is, beside other ranks the first stage is computed there, too, from a halo that is as much deeper. The
kernels are those of the stages one after the other, and so are the bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from hpckit.adjoint.program.place import Place
from hpckit.adjoint.program.stages import SweepPass, slabs_of_window, walls_of
from hpckit.kernels.graph import dispatch
from hpckit.kernels.graph.nodes import Node
from hpckit.kernels.graph.region import Block
from hpckit.kernels.graph.simd import options
from hpckit.kernels.graph.tape import Tape

Taped = Callable[[Node], tuple[int, Block]]
"""The slot on a tape, and the block, of an array that is read or made."""


def add_joined(
    tape: Tape, place: Place, passes: tuple[SweepPass, SweepPass], between: Sequence[Node], made: Sequence, taped: Taped
) -> None:
    """Put two passes on a tape. between: what the first makes. made: slots and blocks of what the second makes."""
    first, second = (each.sweep for each in passes)
    dims, owned = range(place.grid.dims), place.owned()
    wide = place.program.widest(between)
    begin = [0 if side[0] else -w for side, w in zip(place.sides, wide, strict=True)]
    end = [n + (0 if side[1] else w) for n, side, w in zip(owned, place.sides, wide, strict=True)]
    slab = [n + 2 * w for n, w in zip(owned[1:], wide[1:], strict=True)]
    depth = wide[0]
    step = slabs_of_window(8 * math.prod(slab) * math.prod(place.members) * len(between), depth)
    step = min(max(step, 2 * depth, 1), end[0] - begin[0])
    windows = [np.zeros((step + 3 * depth, *slab, *place.members)) for _ in between]
    slots = [tape.own(each) for each in windows]
    streams = options(second, owned, math.prod(place.members)).streams
    done = 0  # slabs of the second
    for start in range(begin[0], end[0], step):
        stop = min(start + step, end[0])
        last, lowest = stop == end[0], start - 2 * depth  # the first slab of the window
        here = [Block(each, (-lowest, *wide[1:])) for each in windows]
        box = (start, *begin[1:]), (stop, *end[1:])
        leaves = [taped(leaf) for leaf in first.leaves]
        blocks = [*here, *(block for _, block in leaves)]
        dispatch.require(first, blocks, box)
        tape.sweep(first, [*slots, *(slot for slot, _ in leaves)], blocks, box, streams=False)
        for node, slot, window in zip(between, slots, windows, strict=True):
            for dim, fills in zip(dims, walls_of(node), strict=True):
                for high, fill in enumerate(fills or ()):
                    edge = (owned[dim] - 1 if high else 0) + (wide[dim] if dim else -lowest)
                    reached = dim > 0 or (last if high else start == begin[0])
                    if reached and wide[dim] and place.sides[dim][high]:
                        tape.fill(slot, window, dim, wide[dim], edge, bool(high), fill, False)
        until = owned[0] if last else stop - depth
        known = dict(zip(between, zip(slots, here, strict=True), strict=True))
        leaves = [known[leaf] if leaf in known else taped(leaf) for leaf in second.leaves]
        box = (done, *(0 for _ in slab)), (until, *owned[1:])
        blocks = [block for _, block in (*made, *leaves)]
        if done < until:
            dispatch.require(second, blocks, box)
            tape.sweep(second, [slot for slot, _ in (*made, *leaves)], blocks, box, streams=streams)
            done = until
        for slot, window in () if last else zip(slots, windows, strict=True):
            origin = (0,) * (len(slab) + 1)
            pair = Block(window, (stop - start, *origin[1:])), Block(window, origin)
            if depth:
                tape.move(slot, slot, pair, (2 * depth, *slab))


__all__ = ["add_joined"]
