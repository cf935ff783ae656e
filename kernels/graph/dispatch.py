"""The form of a sweep for its arrays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from hpckit.kernels.forms import form_for
from hpckit.kernels.graph.nodes import Node
from hpckit.kernels.graph.region import Block, Box
from hpckit.kernels.graph.sweep import GraphSweep

__all__ = ["bind", "require"]


def bind(
    sweep: GraphSweep, outs: Sequence[Block], ins: Sequence[Block], box: Box, own: Collection[Node] = ()
) -> Callable[[Sequence[Any]], None]:
    """The function (numbers) that writes the targets of a sweep in the cells of a box to `outs`.

    outs, ins: C-contiguous arrays of float64 that do not overlap, for `sweep.targets` and `sweep.leaves`. numbers: the
    values of `sweep.numbers`. own: those of them that each member of an ensemble has of its own, float64[members].
    Raises `TypeError` for other arrays, `ValueError` for those that lack cells.
    """
    fits = ("fits", tuple((block.array.shape, block.origin) for block in (*outs, *ins)), box)
    if fits not in sweep.kernels:
        require(sweep, (*outs, *ins), box)
        sweep.kernels[fits] = True
    for block in (*outs, *ins):
        if block.array.dtype != np.float64 or not block.array.flags.c_contiguous:
            raise TypeError(f"a sweep takes C-contiguous arrays of float64, not {block.array.dtype}")
    return form_for(__package__, outs[0].array).bind(sweep, outs, ins, box, own)


def require(sweep: GraphSweep, blocks: Sequence[Block], box: Box) -> None:
    """Raise `ValueError` for blocks, of targets and then leaves, that lack cells of a box or within reach."""
    for block in blocks[: len(sweep.targets)]:
        block.require(box, ((0, 0),) * sweep.dims)
    for block, leaf in zip(blocks[len(sweep.targets) :], sweep.leaves, strict=True):
        block.require(box, sweep.reach[leaf])
