"""Any plan as messages in flight: what pricing and drawing need of halo exchanges and collectives alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpckit.plan.collective.plan import CollectivePlan, Step
from hpckit.plan.collective.rows import Ints
from hpckit.plan.grid.halo import HaloPlan, HaloStep

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Flight:
    """Messages that fly together, one entry a message; copies within a rank have sender and receiver the same.

    nbytes: of each message. reduce: the receiver adds. lag: the data was complete so many flights before.
    slot: the first slot or layer of each message, for drawings.
    """

    sender: Ints
    receiver: Ints
    nbytes: Floats
    slot: Ints
    reduce: bool
    lag: int


@dataclass(frozen=True)
class Run:
    """A stretch of flights (first, end) that are alike, `period` flights long each time."""

    first: int
    end: int
    period: int


def flights(plan: CollectivePlan | HaloPlan, nbytes: float, itemsize: int, start: int = 0) -> Iterator[Flight]:
    """The flights of a plan from number `start` on: of a collective over a buffer of `nbytes`, of a halo exchange of
    one field of items of `itemsize` bytes. Slots of a collective count as equally large unless their counts are given.
    """
    if isinstance(plan, HaloPlan):
        steps = [(step, side + 1) for pair in plan.phases() for side, step in enumerate(pair)]
        for step, lag in steps[start:]:
            yield _halo_flight(plan, step, itemsize, lag)
        return
    for number in range(start, plan.length):
        yield _flight(plan, plan.step(number), nbytes, itemsize)


def runs(plan: CollectivePlan | HaloPlan) -> list[Run]:
    """The stretches of alike flights."""
    if isinstance(plan, HaloPlan):
        return []
    return [Run(first, end, plan.lag) for first, end in plan.runs]


def depth_of(plan: CollectivePlan | HaloPlan) -> int:
    """The largest lag of its flights."""
    return 2 if isinstance(plan, HaloPlan) else plan.lag


def flight_count(plan: CollectivePlan | HaloPlan) -> int:
    """How many flights a plan has."""
    return 2 * len(plan.order) if isinstance(plan, HaloPlan) else plan.length


def ranks_of(plan: CollectivePlan | HaloPlan) -> int:
    """How many ranks a plan is for."""
    return plan.decomposition.topology.size if isinstance(plan, HaloPlan) else plan.ranks


def _flight(plan: CollectivePlan, step: Step, nbytes: float, itemsize: int) -> Flight:
    sender = np.flatnonzero(step.send_to >= 0)
    first, last = step.send[0][sender], step.send[1][sender]
    if plan.counts is None:
        units, one = last - first, nbytes / plan.blocks
    elif plan.counts.ndim == 2:
        units, one = plan.counts[sender, first], itemsize
    else:
        ends = np.concatenate([[0], np.cumsum(np.tile(plan.counts, 2))])
        units, one = ends[last] - ends[first], itemsize
    return Flight(sender, step.send_to[sender], units.astype(np.float64) * one, first, step.reduce, plan.lag)


def _halo_flight(plan: HaloPlan, step: HaloStep, itemsize: int, lag: int) -> Flight:
    sender = np.flatnonzero(step.send_to >= 0)
    owned = plan.decomposition.all_owned()
    cells = np.ones(len(sender))
    for dim, width in enumerate(plan.decomposition.halo):
        cells *= (step.send[1] - step.send[0])[sender] if dim == step.dim else owned[dim][sender] + 2 * width
    return Flight(sender, step.send_to[sender], cells * itemsize, step.send[0][sender], False, lag)
