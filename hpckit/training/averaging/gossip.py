"""Averaging with neighbors, and local SGD: training that does not wait for an all-reduce at every step."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from hpckit.collectives.axis import Axis, axis_of
from hpckit.collectives.buffers import Buffer, flat_like
from hpckit.collectives.operations import all_reduce
from hpckit.collectives.rank_program import RankProgram, program_of
from hpckit.collectives.reduction import Reduction
from hpckit.collectives.request import MessageRun, Request, Steps
from hpckit.collectives.runner import Runner
from hpckit.errors import InputError
from hpckit.plan.collective.algorithms import collective_plan
from hpckit.plan.collective.gossip import GossipPlan, gossip_plan
from hpckit.plan.collective.plan import CollectivePlan
from hpckit.plan.inputs.numbers import count
from hpckit.plan.protocol import NOBODY

__communicates__ = True  # its frames are not call sites

Shape = tuple[int, int] | None


class _Neighbors:
    """The slots of a round: the buffer, then one for each neighbor's message."""

    def __init__(self, values: Any, neighbors: int) -> None:
        self.kind = values
        self.arrived = [flat_like(values, values.size) for _ in range(neighbors)]

    def view(self, first: int, last: int) -> Any:
        """The slot `first`; a message is one slot."""
        return self.kind if first == 0 else self.arrived[first - 1]


def gossip(
    buffer: Any,
    mesh_axis: Any,
    graph: str = "ring",
    turn: int = 0,
    *,
    shape: Shape = None,
    kind: str | None = None,
) -> Request:
    """One round: replace the buffer by the mean of itself and the neighbors' buffers on a graph of the ranks.

    graph, turn, shape: see `gossip_plan`; count the rounds in `turn` for the graph "exponential". The mean over all
    ranks is preserved up to rounding. kind: see `Reduction`. Raises `InputError` for integers, which have no mean.
    """
    axis = axis_of(mesh_axis)
    given = Buffer(buffer, "the buffer")
    reduction = Reduction(given.array.dtype, "mean", None, kind)
    plan, program = _round(graph, axis.size, turn, shape, axis.rank)
    neighbors = sorted({move.recv_from for move in program.moves} - {NOBODY, axis.rank})
    # On the exponential graph each round has its own neighbors.
    number = turn % max(1, (axis.size - 1).bit_length()) if graph == "exponential" else 0
    what = ("gossip", graph, f"round {number}") if number else ("gossip", graph)
    told = axis.given, what, given.array.dtype, given.size, -1, neighbors

    key = what, given.array.dtype.str, given.size, str(shape), kind

    def begin() -> MessageRun:
        return axis.run(
            told[:4], key, lambda tag: _average(axis, tag, given.flat, reduction, plan, program), given.put_back
        )

    return Request(axis.observer, told, begin).start()


class LocalSGD:
    """Averages parameters every so many steps: local SGD (Stich 2019), with a graph decentralized SGD (Lian 2017).

        averaging = hp.training.LocalSGD(mesh["dp"], every=8)            # the mean of all ranks, by an all-reduce
        averaging = hp.training.LocalSGD(mesh["dp"], graph="ring")       # with neighbors, every step
        for step in range(steps):
            parameters -= rate * gradient(parameters)
            averaging.step(parameters)

    With every=1, no graph and equal parameters at the start it is synchronous SGD. `plan` is the plan of an averaging,
    to be proved, priced and drawn. Raises `InputError` for invalid numbers and names.
    """

    def __init__(self, mesh_axis: Any, every: int = 1, graph: str | None = None, *, shape: Shape = None) -> None:
        self.every = count(every, "the number of steps between averages")
        if self.every < 1:
            raise InputError(f"averaging every {every} steps", do="give 1 or more")
        self._axis, self._graph, self._shape = mesh_axis, graph, shape
        self.steps = self.turns = 0
        self.plan  # noqa: B018 (an impossible graph is refused now)

    @property
    def plan(self) -> CollectivePlan:
        """The plan of the next averaging."""
        ranks = axis_of(self._axis).size
        if self._graph is None:
            return collective_plan("all_reduce", "ring", ranks)
        return gossip_plan(self._graph, ranks, self.turns, shape=self._shape)

    def step(self, *parameters: Any) -> bool:
        """Call after each step: average the arrays if due, and return whether it did; collective then."""
        self.steps += 1
        if self.steps % self.every:
            return False
        if self._graph is None:
            requests = [all_reduce(each, self._axis, "mean") for each in parameters]
        else:
            requests = [gossip(each, self._axis, self._graph, self.turns, shape=self._shape) for each in parameters]
        for request in requests:
            request.wait()
        self.turns += 1
        return True


@functools.lru_cache(maxsize=64)
def _round(graph: str, ranks: int, turn: int, shape: Shape, rank: int) -> tuple[GossipPlan, RankProgram]:
    plan = gossip_plan(graph, ranks, turn, shape=shape)
    return plan, program_of(plan, rank)


def _average(axis: Axis, tag: int, values: Any, reduction: Reduction, plan: GossipPlan, program: RankProgram) -> Steps:
    """The messages of a round, then the weighted mean, own buffer first and the neighbors in the order of the plan."""
    slots = _Neighbors(values, plan.length)
    yield from Runner(axis, tag, program, slots).steps()  # type: ignore[arg-type]
    shares = plan.shares[:, axis.rank].tolist()
    total = reduction.widened(values) * reduction.working.type(shares[0])
    for arrived, share in zip(slots.arrived, shares[1:], strict=True):
        total += reduction.widened(arrived) * reduction.working.type(share)
    np.divide(total, reduction.working.type(plan.parts), out=total)
    if reduction.is_brain or reduction.working != reduction.dtype:
        reduction.narrow(total, values)
    else:
        values[...] = total
