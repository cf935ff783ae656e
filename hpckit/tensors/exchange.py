"""Runs a change of layout: the messages of its plan, each a box of the tensor, and the additions in their order."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from hpckit.comm.checksums import End, Seals
from hpckit.comm.mesh import Mesh
from hpckit.kernels.device_array import contiguous, empty, is_device_array, placed, to_host, zeros
from hpckit.plan.protocol import NOBODY
from hpckit.plan.tensors.hop import Hop
from hpckit.plan.tensors.redistribution import RedistributionPlan

__communicates__ = True  # its frames are not call sites
Box = tuple[slice, ...]


class MessageBox(NamedTuple):
    """A message of a rank: its peer, and the box within the local array before, or within a summand after."""

    peer: int
    box: Box
    summand: int = 0


class HopProgram(NamedTuple):
    """What a rank does in a hop. filled: of each summand whether what is received fills it; doubled: in each step those
    it sends to, and the one it takes from (NOBODY: none).
    """

    sends: tuple[MessageBox, ...]
    receives: tuple[MessageBox, ...]
    shape: tuple[int, ...]
    filled: tuple[bool, ...]
    doubled: tuple[tuple[tuple[int, ...], int], ...]


@lru_cache(maxsize=256)
def program(hop: Hop, rank: int) -> HopProgram:
    """The part of a rank in the steps of a hop."""
    before, after = hop.source.bounds(), hop.target.bounds()
    shape = tuple((after[rank, :, 1] - after[rank, :, 0]).tolist())
    steps = list(hop.steps())
    if hop.doubling:
        doubled = []
        for step in steps:
            gives, takes = (each.peer[each.of(rank)].tolist() for each in (step.sends, step.receives))
            doubled.append((tuple(gives), takes[0] if takes else NOBODY))
        return HopProgram((), (), shape, (), tuple(doubled))
    ends = steps[0].sends, steps[0].receives
    gives, takes = (each.peer[each.of(rank)].tolist() for each in ends)

    def box(sender: int, receiver: int, origin: np.ndarray) -> Box:
        start = np.maximum(before[sender, :, 0], after[receiver, :, 0]) - origin[:, 0]
        stop = np.minimum(before[sender, :, 1], after[receiver, :, 1]) - origin[:, 0]
        return tuple(slice(int(a), int(b)) for a, b in zip(start, stop, strict=True))

    coords = hop.source.axes.all_coords()
    receives = tuple(
        MessageBox(peer, box(peer, rank, after[rank]), int(coords[hop.axis, peer]) if hop.axis >= 0 else 0)
        for peer in takes
    )
    covered = [0] * hop.summands
    for part in receives:
        covered[part.summand] += math.prod(each.stop - each.start for each in part.box)
    return HopProgram(
        tuple(MessageBox(peer, box(rank, peer, before[rank])) for peer in gives),
        receives,
        shape,
        tuple(each == math.prod(shape) for each in covered),
        (),
    )


def redistribute(mesh: Mesh, plan: RedistributionPlan, local: Any) -> Any:
    """Collective: the local array in the plan's target layout; a new array. What was given is unchanged. Messages of
    arrays on a GPU go through the host.
    """
    with mesh.observer.operation(mesh.comm, "redistribution", local.dtype.str):
        for hop in plan.hops:
            its = program(hop, mesh.rank)
            local = _doubled(mesh, its, local) if hop.doubling else _exchanged(mesh, hop, its, local)
    return local


def _exchanged(mesh: Mesh, hop: Hop, its: HopProgram, local: Any) -> Any:
    """The boxes that arrive, and the sums of their summands as a tree."""
    slots = slots_for(its.shape, its.filled, local)
    kept = [part for part in its.sends if part.peer == mesh.rank]
    for part in its.receives:
        if part.peer == mesh.rank:
            slots[part.summand][part.box] = local[kept[0].box]
    arriving = [part for part in its.receives if part.peer != mesh.rank]
    targets = [slots[part.summand][(*part.box, ...)] for part in arriving]  # views, of a number too
    # What has no gaps in the new array arrives in its place.
    direct = [not is_device_array(target) and target.flags.c_contiguous for target in targets]
    taken = [
        (part.peer, target if at_once else np.empty(target.shape, local.dtype))
        for part, target, at_once in zip(arriving, targets, direct, strict=True)
    ]
    away = [(part.peer, local[part.box]) for part in its.sends if part.peer != mesh.rank]
    leaving = [(peer, to_host(contiguous(box, box.dtype))) for peer, box in away]
    _send(mesh, leaving, taken)
    for target, at_once, (_, came) in zip(targets, direct, taken, strict=True):
        if not at_once:
            target[...] = placed(came, local)
    return added(slots)


def slots_for(shape: tuple[int, ...], filled: tuple[bool, ...], like: Any) -> list[Any]:
    """Arrays for the summands of a hop, of the kind of `like`: zeros where what is received does not fill them."""
    return [(empty if whole else zeros)(shape, like) for whole in filled]


def added(summands: list[Any]) -> Any:
    """The sum of arrays by a tree over their places in the list, however they arrived; they are overwritten."""
    step = 1
    while step < len(summands):
        for place in range(0, len(summands) - step, 2 * step):
            summands[place] += summands[place + step]
        step *= 2
    return summands[0]


def _doubled(mesh: Mesh, its: HopProgram, local: Any) -> Any:
    """The sum over the axis, of blocks twice as large in each step."""
    total = to_host(local).copy()
    for gives, taker in its.doubled:
        taken = [(taker, np.empty_like(total))] if taker != NOBODY else []
        _send(mesh, [(peer, total) for peer in gives], taken)
        for _, came in taken:
            total += came
    return placed(total, local)


def _send(mesh: Mesh, leaving: list[tuple[int, np.ndarray]], arriving: list[tuple[int, np.ndarray]]) -> None:
    """Messages to and from other ranks, by their peers; checksums follow where they are on."""
    tag = mesh.tags(2)
    requests = [mesh.comm.Irecv(_message(came), peer, tag) for peer, came in arriving]
    requests += [mesh.comm.Isend(_message(sent), peer, tag) for peer, sent in leaving]
    MPI.Request.Waitall(requests)
    if mesh.observer.checks_messages:
        seals = Seals(mesh.comm)
        seals.start(
            [End(peer, tag + 1, "part of a tensor", [sent]) for peer, sent in leaving],
            [(peer, tag + 1) for peer, _ in arriving],
        )
        seals.finish([End(peer, tag + 1, "part of a tensor", [came]) for peer, came in arriving])


def _message(array: np.ndarray) -> list[Any]:
    return [array.reshape(-1).view(np.uint8), MPI.BYTE]
