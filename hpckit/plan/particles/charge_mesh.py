"""A mesh of charges as a plan: what ranks send so that each has the potential where its particles are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hpckit.errors import DecompositionError, PlanError
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.halo import HaloField, halo_plan
from hpckit.plan.machine.machine import Machine, machine_of
from hpckit.plan.pricing import price
from hpckit.plan.protocol import Claim, Factors, Floats, Plan, Step, transposed
from hpckit.plan.proving import prove
from hpckit.plan.tensors.fourier import FourierPlan
from hpckit.plan.tensors.layout import Layout, Partial, Shard
from hpckit.plan.tensors.redistribution import MACHINE, RedistributionPlan, redistribution
from hpckit.plan.topology import Topology

REAL = 8  # bytes of a number
DIMS = 3  # components of the field
RANKS = "ranks"  # the axis of slabs
# What a rank takes beside what its messages do, in s; measured on meshes of 25 x 32 x 32 to 64 x 64 x 64 points.
EXCHANGE = 0.4e-3  # of blocks: to pack and unpack them, and to wait for the slower rank
SHARE = 0.07e-3  # of slabs
POINT = 0.7e-9  # a point and doubling of their number, in a transform of real values


@dataclass(frozen=True, eq=False)
class ChargeMeshPlan:
    """One step of a mesh of charges of `shape`, that the axes of a topology cut as they cut the box.

    A rank spreads its charges over its block and a halo of some points beyond it. whole: the ranks add up the whole
    mesh, which is under way while they compute pairs, and each transforms all of it; or they are `sharing`: each gets
    the sums of a slab, and when the transform is back all get the field of all slabs. Else each keeps its block:
    charges in halos go home and are added, the transform changes its layouts on the way there, and on the way back with
    all three components of the field together, whose halos are then filled. Raises `DecompositionError` for blocks
    thinner than the halo, unless `whole`.
    """

    shape: tuple[int, ...]
    topology: Topology
    halo: tuple[int, ...]
    whole: bool
    sharing: bool = False

    @property
    def ranks(self) -> int:
        """How many ranks."""
        return self.topology.size

    def title(self) -> str:
        """What it is, in a few words."""
        points, how = " x ".join(map(str, self.shape)), "whole on each rank" if self.whole else "in blocks"
        how = "in slabs" if self.sharing else how
        return f"mesh of charges of {points} points, transformed {how}"

    @cached_property
    def cells(self) -> Decomposition:
        """The blocks with their halos; of a whole mesh without."""
        return Decomposition(self.shape, self.topology, 0 if self.whole else self.halo)

    @cached_property
    def layout(self) -> Layout:
        """Of the charges that are transformed."""
        if self.sharing:
            return Layout(self.shape, self._everyone, {RANKS: Shard(0)})
        names = self.topology.names
        return Layout(
            self.shape, self.topology, {} if self.whole else {name: Shard(dim) for dim, name in enumerate(names)}
        )

    @property
    def _everyone(self) -> Topology:
        """The ranks in a row, as their sums have the same bits in any order."""
        return Topology((RANKS,), (self.ranks,))

    @cached_property
    def total(self) -> RedistributionPlan | None:
        """How the ranks add up the whole mesh; None in blocks, and on one rank."""
        if not self.whole or self.ranks == 1:
            return None
        summands = Layout(self.shape, self._everyone, {RANKS: Partial()})
        return redistribution(summands, self.layout if self.sharing else Layout(self.shape, self._everyone))

    @cached_property
    def gathering(self) -> RedistributionPlan | None:
        """How all get the field of all slabs, its three components together; None where there are no slabs."""
        if not self.sharing:
            return None
        shape = DIMS, *self.shape
        return redistribution(Layout(shape, self._everyone, {RANKS: Shard(1)}), Layout(shape, self._everyone))

    @cached_property
    def parts(self) -> tuple[Plan, ...]:
        """The exchanges in their order."""
        if self.whole and not self.sharing:
            return () if self.total is None else (self.total,)
        fourier = FourierPlan(self.layout)
        back = (each for each in fourier.each_change(DIMS, back=True) if each is not None)
        if self.total is not None and self.gathering is not None:
            return (self.total, fourier, *back, self.gathering)
        field = HaloField(self.cells, (), REAL)
        return (transposed(halo_plan(field)), fourier, *back, halo_plan([field] * DIMS))

    @property
    def exchanges(self) -> int:
        """How many there are, one after the other."""
        return sum(getattr(part, "exchanges", 1) for part in self.parts)

    def steps(self) -> Iterator[Step]:
        """The steps of all exchanges; cells count anew in each."""
        for part in self.parts:
            yield from part.steps()

    def claim(self) -> Claim | Factors:
        """That of each exchange."""
        if not self.parts:
            nothing = np.zeros((1, 0), np.int64)
            return Claim(nothing, nothing)
        return Factors(self.parts, self._at_fault)

    def _at_fault(self) -> Plan:
        """The first exchange that cannot be proved."""
        for part in self.parts:
            try:
                prove(part)
            except PlanError:
                return part
        return self.parts[0]

    def seconds(self, machine: Machine) -> float:
        """Of a step: what its messages take on a machine, and what ranks do around them and to transform."""
        points = math.prod(self.shape)
        alone = self.whole and not self.sharing
        transforms = (1 + DIMS) * POINT * points * math.log2(points) / (1 if alone else self.ranks)
        around = 0.0 if alone else (SHARE if self.sharing else EXCHANGE) * self.exchanges
        return transforms + around + sum(price(part, machine).seconds for part in self.parts)


def charge_halo(mesh: Sequence[int], order: int, reaches: Floats, lengths: Floats) -> tuple[int, ...]:
    """How many points beyond its block a rank spreads charges over, whose particles leave their domain by up to half a
    skin, which spans `reaches` along the dims; a domain and its block of points differ by less than a step.
    """
    moves = np.ceil(0.75 * reaches * np.array(mesh) / lengths).astype(int)
    return tuple(int(order // 2 + 2 + move) for move in moves)


def charge_mesh_plan(
    shape: tuple[int, ...],
    topology: Topology,
    halo: tuple[int, ...],
    whole: bool | None = None,
    machine: Machine | None = None,
    shares: bool = True,
) -> ChargeMeshPlan:
    """The plan of a mesh of charges. whole: whether each rank transforms all of it, without slabs; None: the quicker
    way by price, as one rank and blocks thinner than their halo leave no choice; where that is the whole, in slabs if
    that is quicker still, each rank has one, and it `shares`. machine: whose prices choose.
    """
    if whole is not None:
        return ChargeMeshPlan(shape, topology, halo, whole)
    plans = ChargeMeshPlan(shape, topology, halo, True), ChargeMeshPlan(shape, topology, halo, False)
    if topology.size == 1:
        return plans[0]
    priced = machine or machine_of(MACHINE)
    found = plans[0]
    with suppress(DecompositionError):
        found = min(plans, key=lambda plan: plan.seconds(priced))
    if not (found.whole and shares and topology.size <= min(shape[:2])):
        return found
    return min(found, ChargeMeshPlan(shape, topology, halo, True, True), key=lambda plan: plan.seconds(priced))
