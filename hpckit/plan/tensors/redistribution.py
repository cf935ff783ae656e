"""Changes of layout: ways from one layout to another, proved and priced; the quickest is chosen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from hpckit.errors import InputError, PlanError
from hpckit.plan.machine.machine import Machine, machine_of
from hpckit.plan.pricing import price, traffic
from hpckit.plan.protocol import Claim, Factors, Plan, Step
from hpckit.plan.proving import prove
from hpckit.plan.tensors.hop import Hop
from hpckit.plan.tensors.layout import Layout, Partial, Replicate, Shard
from hpckit.plan.topology import Topology

MACHINE = "infiniband"  # whose prices choose, if no other is given
MOST_PRICED = 200_000  # boxes; if a way has more, all are compared by the traffic of their busiest rank
MOST_LISTED = 4_000_000  # boxes; ways of more are chosen only if there is no other


@dataclass(frozen=True, eq=False)
class RedistributionPlan:
    """One change of layout, or several in a row; each starts when the one before it is over.

    ends: the layouts before and after, where those of the hops are of a mesh on which an axis is two. Raises
    `PlanError` for no hops.
    """

    hops: tuple[Hop, ...]
    ends: tuple[Layout, Layout] | None = None

    def __post_init__(self) -> None:
        if not self.hops:
            raise PlanError("a redistribution has at least one change of layout")

    @property
    def ranks(self) -> int:
        """How many ranks."""
        return self.hops[0].ranks

    @property
    def exchanges(self) -> int:
        """How many there are, one after the other."""
        return len(self.hops)

    @property
    def source(self) -> Layout:
        """The layout before."""
        return self.ends[0] if self.ends else self.hops[0].source

    @property
    def target(self) -> Layout:
        """The layout after."""
        return self.ends[1] if self.ends else self.hops[-1].target

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
        messages, sent = traffic(self)
        return int(messages.max(initial=0)), float(sent.max(initial=0))


def ways(source: Layout, target: Layout, itemsize: float = 8) -> list[RedistributionPlan]:
    """All ways that are considered, none twice.

    Summands are added along one axis after the other, the last axis of the mesh first: by doubling, or scattered over
    the dim that the target cuts along the axis, or over the longest. What remains goes in one exchange, or axis by
    axis, in either order; an exchange of very many messages on one axis also in two of few each. Raises `InputError`
    for layouts of other shapes or meshes.
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
        halves = [] if hops else _in_two(source, target, itemsize)
        if halves:
            found[()] = RedistributionPlan(tuple(halves), (source, target))
    return list(found.values())


def listed(plans: Sequence[RedistributionPlan]) -> list[RedistributionPlan]:
    """Those of the ways whose boxes can be listed; the smallest one if none can."""
    most = max(MOST_LISTED, min(map(_boxes, plans)))
    return [plan for plan in plans if _boxes(plan) <= most]


def _boxes(plan: RedistributionPlan) -> int:
    return sum(hop.size for hop in plan.hops)


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


def _in_two(source: Layout, target: Layout, itemsize: float) -> list[Hop]:
    """The exchange on one long axis as two, each among few of its ranks: a message of one carries what later goes to
    several ranks. No hop where the axis, or a dim, does not divide.

    An axis of p = q r ranks is taken as q times r neighbors; r, then q, messages a rank take the place of p.
    """
    differ = _differ(source, target)
    if len(differ) != 1 or Hop(source, target, itemsize=itemsize).size <= MOST_LISTED:
        return []
    (axis,) = differ
    before, after, ranks = source.placements[axis], target.placements[axis], source.axes.sizes[axis]
    inner = max(n for n in range(1, math.isqrt(ranks) + 1) if ranks % n == 0)
    if inner == 1 or not isinstance(before, Shard) or isinstance(after, Partial):
        return []
    first, last = _refined(source, axis, inner), _refined(target, axis, inner)
    if first is None or last is None:
        return []
    middle = last.placed(**{last.axes.names[axis]: before})
    return [Hop(first, middle, itemsize=itemsize), Hop(middle, last, itemsize=itemsize)]


def _refined(layout: Layout, axis: int, inner: int) -> Layout | None:
    """The same parts on the same ranks, with an axis as two, the second of `inner` neighbors; None if they differ."""
    axes: dict[str, int] = {}
    two: dict[str, tuple[str, ...]] = {}
    for number, (name, size) in enumerate(zip(layout.axes.names, layout.axes.sizes, strict=True)):
        two[name] = (f"{name}_outer", f"{name}_inner") if number == axis else (name,)
        axes |= dict(zip(two[name], (size // inner, inner) if number == axis else (size,), strict=True))
    if len(axes) != len(layout.axes.names) + 1:
        return None
    order = [layout.axes.names[cutting] for cut in layout.cuts for cutting in cut]
    named = dict(zip(layout.axes.names, layout.placements, strict=True))
    placed = {name: named[old] for old in [*order, *(n for n in named if n not in order)] for name in two[old]}
    found = Layout(layout.shape, Topology(tuple(axes), tuple(axes.values())), placed)
    return found if np.array_equal(found.bounds(), layout.bounds()) else None


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
    likely = listed(plans)
    if len(likely) == 1:
        return likely[0]
    exact = max(map(_boxes, plans)) <= MOST_PRICED

    def seconds(plan: RedistributionPlan) -> float:
        if exact:
            return price(plan, machine).seconds
        messages, sent = plan.traffic()
        return messages * (machine.overhead + machine.levels[-1].latency) + sent / machine.levels[-1].bandwidth

    return min(likely, key=lambda plan: (seconds(plan), len(plan.hops)))
