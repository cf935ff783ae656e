"""Ghosts that come through the memory of a node at once, as their owners have just agreed with this rank: one compiled
call packs, publishes, waits and puts into place. Each call of Python in a step costs what some thousand numbers do.
"""

from __future__ import annotations

from hpckit.comm.shared.compiled.flags import arrived, post
from hpckit.kernels.compile.addresses import values_at
from hpckit.kernels.compile.jit import jit
from hpckit.kernels.particles.records.simd import copy_all, put, take_all

WIDTH = 3  # x, y, z
numbers = values_at("float64")


@jit
def put_rows(came, positions, slots, first):
    """Put the rows of each peer into the ghosts from `first` on. came: int64[peers, 2], where rows begin, and how many
    there are.
    """
    for k in range(len(came)):
        count = came[k, 1]
        put(numbers(came[k, 0], WIDTH * count).reshape(count, WIDTH), positions, slots, first, first + count)
        first += count


@jit
def swap_places(positions, chosen, segments, shifts, sent, slots, out, posts, waits, came, number, looks):
    """Move the images of own particles, and exchange ghosts with the peers: whether all came within so many looks at
    their flags; those of others are put into place then.

    chosen, segments, shifts: of ghosts, as `take_all` takes them: sent[0] images, then sent[1] for peers, which go to
    `out`. slots: of ghosts. posts, waits: the addresses of flags, which become `number`. came: as of `put_rows`.
    """
    images, given = sent
    take_all(positions, chosen[images:], segments[images:], shifts, given, out)
    post(posts, number)
    copy_all(positions, chosen, segments, shifts, images, slots)
    if not arrived(waits, number, looks):
        return False
    put_rows(came, positions, slots, images)
    return True
