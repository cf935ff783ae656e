"""Two stages in one pass over memory, between walls: the second follows the first by a few slabs.

What is between them lies in a window of slabs of the first dim, which stays in the cache. Beside walls the window is
filled as a field is, beside other ranks the first stage is computed there, too, from a halo that is as much deeper.
Large slabs are taken in strips of rows, and what is beside a strip is computed for it, too. The kernels are those of
the stages one after the other, and so are the bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from hpckit.adjoint.program.between import window_of
from hpckit.adjoint.program.place import Place
from hpckit.adjoint.program.stages import SweepPass, walls_of
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
    owned, wide = place.owned(), place.program.widest(between)
    rows, slabs, _ = window_of(owned, wide, math.prod(place.members) * len(between))
    depth = wide[0]
    slab = [n + 2 * w for n, w in zip((rows, *owned[2:]), wide[1:], strict=True)]
    step = min(slabs, owned[0] + 2 * depth)
    windows = [np.zeros((step + 3 * depth, *slab, *place.members)) for _ in between]
    slots = [tape.own(each) for each in windows]
    past = [options(each, owned, math.prod(place.members)).streams or None for each in (first, second)]
    for low in range(0, owned[1], rows):
        strip = low, min(low + rows, owned[1])
        sides = [list(each) for each in place.sides]
        sides[1] = [sides[1][0] and low == 0, sides[1][1] and strip[1] == owned[1]]
        starts, ends = [0, low, *(0 for _ in owned[2:])], [owned[0], strip[1], *owned[2:]]
        begin = [a - (0 if side[0] else w) for a, side, w in zip(starts, sides, wide, strict=True)]
        end = [b + (0 if side[1] else w) for b, side, w in zip(ends, sides, wide, strict=True)]
        done = 0  # slabs of the second
        for start in range(begin[0], end[0], step):
            stop = min(start + step, end[0])
            last, lowest = stop == end[0], start - 2 * depth  # the first slab of the window
            origin = -lowest, wide[1] - low, *wide[2:]
            here = [Block(each, origin) for each in windows]
            box = (start, *begin[1:]), (stop, *end[1:])
            leaves = [taped(leaf) for leaf in first.leaves]
            blocks = [*here, *(block for _, block in leaves)]
            dispatch.require(first, blocks, box)
            tape.sweep(first, [*slots, *(slot for slot, _ in leaves)], blocks, box, streams=False if past[0] else None)
            for node, slot, window in zip(between, slots, windows, strict=True):
                for dim, fills in enumerate(walls_of(node)):
                    for high, fill in enumerate(fills or ()):
                        edge = (owned[dim] - 1 if high else 0) + origin[dim]
                        reached = dim > 0 or (last if high else start == begin[0])
                        if reached and wide[dim] and sides[dim][high]:
                            tape.fill(slot, window, dim, wide[dim], edge, bool(high), fill, False)
            until = owned[0] if last else stop - depth
            known = dict(zip(between, zip(slots, here, strict=True), strict=True))
            leaves = [known[leaf] if leaf in known else taped(leaf) for leaf in second.leaves]
            box = (done, *starts[1:]), (until, *ends[1:])
            blocks = [block for _, block in (*made, *leaves)]
            if done < until:
                dispatch.require(second, blocks, box)
                tape.sweep(second, [slot for slot, _ in (*made, *leaves)], blocks, box, streams=past[1])
                done = until
            for slot, window in () if last else zip(slots, windows, strict=True):
                corner = (0,) * len(owned)
                pair = Block(window, (stop - start, *corner[1:])), Block(window, corner)
                if depth:
                    tape.move(slot, slot, pair, (2 * depth, *slab))


__all__ = ["add_joined"]
