"""Changes of layout: ways from one layout to another, proved and priced; the quickest is chosen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from hpckit.errors import InputError, PlanError
from hpckit.plan.machine.machine import Machine, machine_of
from hpckit.plan.price import price
from hpckit.plan.protocol import NOBODY, Claim, Factors, Plan, Step
from hpckit.plan.prove import prove
from hpckit.plan.tensors.hop import Hop
from hpckit.plan.tensors.layout import Layout, Partial, Replicate, Shard

MACHINE = "infiniband"  # whose prices choose, if no other is given
MOST_PRICED = 200_000  # boxes; if a way has more, all are compared by the traffic of their busiest rank
MOST_LISTED = 4_000_000  # boxes; ways of more are chosen only if there is no other


@dataclass(frozen=True, eq=False)
class RedistributionPlan:
    """One change of layout, or several in a row; each starts when the one before it is over."""

    hops: tuple[Hop, ...]

    @property
    def ranks(self) -> int:
        """How many ranks."""
        return self.hops[0].ranks

    @property
    def source(self) -> Layout:
        """The layout before."""
        return self.hops[0].source

    @property
    def target(self) -> Layout:
        """The layout after."""
        return self.hops[-1].target

    @property
    def name(self) -> str:
        """The collectives that it amounts to: `reduce-scatter, all-gather`."""
        return ", ".join(hop.name for hop in self.hops)

    def title(self) -> str:
        """What it is, in a few words."""
        shape = " x ".join(map(str, self.source.shape))
        return f"redistribution of {shape} by {self.name}: {self.source.text()} to {self.target.text()}"

    def steps(self) -> Iterator[Step]:
        """The steps of all changes; cells count anew in each."""
        for hop in self.hops:
            yield from hop.steps()

    def claim(self) -> Claim | Factors:
        """That of each change; the layout after one is the layout before the next."""
        for one, other in pairwise(self.hops):
            if one.target != other.source:
                raise PlanError(f"{self.title()}: after {one.target} comes a change of {other.source}")
        return self.hops[0].claim() if len(self.hops) == 1 else Factors(self.hops, self._at_fault)

    def _at_fault(self) -> Plan:
        """The first change that cannot be proved."""
        for hop in self.hops:
            try:
                prove(hop)
            except PlanError:
                return hop
        return self.hops[0]

    def traffic(self) -> tuple[int, float]:
        """The most messages, and the most bytes, that a rank sends to others."""
        messages, sent = np.zeros(self.ranks, np.int64), np.zeros(self.ranks)
        for step in self.steps():
            ends = step.sends
            rank, away = ends.ranks(), (ends.peer != NOBODY) & (ends.peer != ends.ranks())
            np.add.at(messages, rank[away], 1)
            if ends.amount is not None:
                np.add.at(sent, rank[away], ends.amount[away] * step.itemsize)
        return int(messages.max(initial=0)), float(sent.max(initial=0))


def ways(source: Layout, target: Layout, itemsize: float = 8) -> list[RedistributionPlan]:
    """All ways that are considered, none twice.

    Summands are added along one axis after the other, the last axis of the mesh first: by doubling, or scattered over
    the dim that the target cuts along the axis, or over the longest. What remains goes in one exchange, or axis by
    axis, in either order. Raises `InputError` for layouts of other shapes or meshes.
    """
    if source.shape != target.shape or source.axes != target.axes:
        raise InputError(
            f"a tensor {source} cannot become {target}", do="give two layouts of one shape on the same mesh axes"
        )
    summed = [
        axis
        for axis, (before, after) in enumerate(zip(source.placements, target.placements, strict=True))
        if before == Partial() and after != Partial()
    ]
    found: dict[tuple, RedistributionPlan] = {}
    for doubling in (True, False) if summed else (False,):
        at, hops = source, []
        for axis in reversed(summed):
            wanted = Replicate() if doubling else _scattered(at, target, axis)
            after = at.placed(**{source.axes.names[axis]: wanted})
            if isinstance(wanted, Shard) and not _differ(after, target):
                after = target  # cut in the target's order
            hops.append(Hop(at, after, axis, doubling, itemsize))
            at = after
        for rest in _exchanges(at, target, itemsize):
            made = [*hops, *rest] or [Hop(at, target, itemsize=itemsize)]
            key = tuple((hop.source, hop.target, hop.axis, hop.doubling) for hop in made)
            found.setdefault(key, RedistributionPlan(tuple(made)))
    return list(found.values())


def _scattered(at: Layout, target: Layout, axis: int) -> Shard | Replicate:
    """Over which dim the sums of an axis are scattered."""
    after = target.placements[axis]
    if isinstance(after, Shard):
        return after
    lengths = [length for length in (at.bounds()[0, :, 1] - at.bounds()[0, :, 0]).tolist()]
    return Shard(int(np.argmax(lengths))) if lengths else Replicate()


def _differ(one: Layout, other: Layout) -> list[int]:
    """The axes whose placements differ."""
    pairs = zip(one.placements, other.placements, strict=True)
    return [axis for axis, (before, after) in enumerate(pairs) if before != after]


def _exchanges(source: Layout, target: Layout, itemsize: float) -> Iterator[list[Hop]]:
    """The ways without sums: at once, and axis by axis."""
    if source == target:
        yield []
        return
    yield [Hop(source, target, itemsize=itemsize)]
    differ = _differ(source, target)
    for order in (differ, differ[::-1]) if len(differ) > 1 else ():
        at, hops = source, []
        for axis in order:
            after = at.placed(**{at.axes.names[axis]: target.placements[axis]})
            after = target if axis == order[-1] else after
            hops.append(Hop(at, after, itemsize=itemsize))
            at = after
        yield hops


def redistribution(
    source: Layout, target: Layout, itemsize: float = 8, machine: Machine | None = None
) -> RedistributionPlan:
    """The plan that takes a tensor from one layout to another, the quickest by price.

    itemsize: bytes of an element. machine: whose prices choose. The sums have the same bits whichever is chosen. The
    gradient takes `redistribution(target.gradient, source.gradient)`: `transposed` of a plan of copies. Raises
    `InputError` for layouts of other shapes or meshes.
    """
    return _quickest(source, target, itemsize, machine or machine_of(MACHINE))


@lru_cache(maxsize=256)
def _quickest(source: Layout, target: Layout, itemsize: float, machine: Machine) -> RedistributionPlan:
    plans = ways(source, target, itemsize)
    sizes = [sum(hop.size for hop in plan.hops) for plan in plans]
    likely = [plan for plan, size in zip(plans, sizes, strict=True) if size <= max(MOST_LISTED, min(sizes))]
    if len(likely) == 1:
        return likely[0]
    exact = max(sizes) <= MOST_PRICED

    def seconds(plan: RedistributionPlan) -> float:
        if exact:
            return price(plan, machine).seconds
        messages, sent = plan.traffic()
        return messages * (machine.overhead + machine.levels[-1].latency) + sent / machine.levels[-1].bandwidth

    return min(likely, key=lambda plan: (seconds(plan), len(plan.hops)))
