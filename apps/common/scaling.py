"""The model of an app in a scaling study: the work and the traffic of its ranks in a step.

An app that can be studied has a module `scaling` with `UNIT` (the unit of its work), `stepped(config, steps)` (the
settings of a run of that many steps with the least output), `grown(config, ranks)` (the settings of a problem with the
work of `config` on each rank) and `load(config, ranks)`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hpckit.plan.collective.algorithms import collective_plan
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.plan.grid.factor import best_factorization
from hpckit.plan.grid.halo import halo_plan
from hpckit.plan.machine.machine import Machine
from hpckit.plan.pricing import price
from hpckit.plan.protocol import Plan

SHORT = 65536  # bytes of an all-reduce above which a ring can be the fastest


@dataclass(frozen=True)
class Traffic:
    """An exchange that a step makes `calls` times, by any of these plans: of a buffer of `nbytes` (collectives), or of
    items of `itemsize` bytes (halos).
    """

    plans: tuple[Plan, ...]
    nbytes: float = 0.0
    itemsize: int = 8
    calls: float = 1.0

    def seconds(self, machine: Machine) -> float:
        """Seconds of a step on a machine, by the fastest plan there."""
        return self.calls * min(price(plan, machine, self.nbytes, self.itemsize).seconds for plan in self.plans)


@dataclass(frozen=True)
class Load:
    """A step on some ranks. work: the largest of all ranks (cells, particles, samples); traffic: all exchanges."""

    work: float
    traffic: tuple[Traffic, ...] = ()

    def seconds(self, machine: Machine) -> float:
        """Seconds of a step's exchanges on a machine."""
        return sum(each.seconds(machine) for each in self.traffic)


def most_cells(decomposition: Decomposition) -> float:
    """Cells of the largest block."""
    return float(decomposition.all_owned().prod(axis=0).max())


def halos(decompositions: Iterable[Decomposition], itemsize: int, calls: float = 1.0) -> tuple[Traffic, ...]:
    """Halo exchanges of cells of `itemsize` bytes, one for each decomposition; none on one rank."""
    return tuple(
        Traffic((halo_plan(each),), itemsize=itemsize, calls=calls) for each in decompositions if each.topology.size > 1
    )


def sums(ranks: int, nbytes: float, calls: float = 1.0) -> tuple[Traffic, ...]:
    """All-reduces of a buffer over that many ranks; none on one rank."""
    if ranks == 1:
        return ()
    names = ["tree"] if nbytes < SHORT else ["ring", "tree"]
    if math.log2(ranks).is_integer():
        names += ["recursive_doubling", "halving_doubling"]
    return (Traffic(tuple(collective_plan("all_reduce", name, ranks) for name in names), nbytes, calls=calls),)


def growth(ranks: int, shape: Sequence[int], closed: Sequence[bool], fixed: Sequence[int] | None = None) -> list[int]:
    """The factors by which a grid grows along each dim, so that each rank has the work of the whole grid before.

    closed: periodic dims. fixed: ranks along a dim, 0 if free.
    """
    return list(best_factorization(ranks, [n * ranks for n in shape], fixed, closed))


def plane_growth(ranks: int, grid: Any, axes: Sequence[str]) -> dict[str, Any]:
    """The settings of a plane that grows along x and y, so that each rank has the work of the whole plane before."""
    y, x = growth(ranks, (grid.ny, grid.nx), [axis in grid.periodic for axis in axes])
    return {
        "grid.nx": grid.nx * x,
        "grid.width": grid.width * x,
        "grid.ny": grid.ny * y,
        "grid.height": grid.height * y,
    }
