"""A halo exchange as lines of ranks: what is alike along all lines of an axis needs a look at one of them.

Where the peers of each step differ from a rank in one coordinate only, and peers and extents depend on that coordinate
only, the phases act on the dims one by one: the cell (i, j) of a rank at (a, b) ends with the value of the owned cell
that i leads to on the line of a, and j on the line of b. So the halo of all ranks is right where it is on one line of
each axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.halo import HaloStep, Ints
from hpckit.plan.topology import Topology

Phases = list[tuple[HaloStep, ...]]


def lines_of(dec: Decomposition, phases: Sequence[Sequence[HaloStep]]) -> list[tuple[Decomposition, Phases]] | None:
    """One line of ranks for each dim, with its part of the phases; None where not all lines of an axis are alike."""
    dims = [{step.dim for step in steps} for steps in phases]
    if any(len(each) != 1 for each in dims) or len(set().union(*dims)) < len(dims):
        return None
    coords, lines = dec.topology.all_coords(), []
    for dim, (name, size) in enumerate(zip(dec.topology.names, dec.topology.sizes, strict=True)):
        stride = math.prod(dec.topology.sizes[dim + 1 :])
        own: Phases = []
        for steps in phases:
            if steps[0].dim == dim:
                made = [_on_line(step, coords[dim], size, stride) for step in steps]
                if None in made:
                    return None
                own.append(tuple(step for step in made if step is not None))
        closed = (name,) if dec.periodic[dim] else ()
        line = Decomposition((dec.shape[dim],), Topology((name,), (size,), closed), dec.halo[dim], dec.location[dim])
        lines.append((line, own))
    return lines


def _on_line(step: HaloStep, coord: Ints, size: int, stride: int) -> HaloStep | None:
    """The step on the first line of its axis; None where another line does something else."""
    first = np.arange(size) * stride  # the ranks of that line
    ranks = np.arange(len(coord))
    peers = []
    for there in (step.send_to, step.recv_from):
        peer = there[first]
        to = np.where(peer >= 0, peer // stride, -1)
        alike = np.where(to[coord] >= 0, ranks + (to[coord] - coord) * stride, -1)
        if (to >= size).any() or (there != alike).any():
            return None
        peers.append(to)
    ends = [end for bounds in (step.send, step.recv) for end in bounds]
    if any((end != end[first][coord]).any() for end in ends):
        return None
    low, high, into, until = (end[first] for end in ends)
    return HaloStep(0, step.side, step.tag, peers[0], peers[1], (low, high), (into, until))
