"""A Fourier transform in several dims as a plan: local transforms of whole dims, and changes of layout between them.

A rank transforms the lines of a dim that it holds whole, from the last dim to the first. Where the next dim is cut, its
cuts move to dims that are done: slabs take one change of layout, pencils two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hpckit.errors import InputError, PlanError
from hpckit.plan.protocol import Claim, Factors, Plan, Step
from hpckit.plan.proving import prove
from hpckit.plan.tensors.layout import Layout, Partial, Replicate, Shard
from hpckit.plan.tensors.redistribution import RedistributionPlan, redistribution


@dataclass(frozen=True)
class TransformStage:
    """A change of layout (None: none is needed), then transforms along `dims` in their order, whole in `layout`.

    layout: with the shape before the transforms; the first transform of real values leaves n // 2 + 1 of its dim.
    """

    change: RedistributionPlan | None
    layout: Layout
    dims: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class FourierPlan:
    """The forward transform of values in a layout; `real`: of real values, halved along the last dim.

    itemsize: bytes of a complex number. Ranks that hold copies transform each its own. Without work to do for messages
    (one rank, or copies alone) it has no steps. Raises `InputError` if some dim cannot become whole, or if ranks hold
    summands.
    """

    source: Layout
    real: bool = True
    itemsize: float = 16.0

    def __post_init__(self) -> None:
        pairs = zip(self.source.axes.names, self.source.axes.sizes, self.source.placements, strict=True)
        wrong = [f"{name} adds" for name, size, each in pairs if size > 1 and each == Partial()]
        if wrong or not self.source.shape or min(self.source.shape) < 1:
            raise InputError(
                f"a Fourier transform of {self.source}: {', '.join(wrong) or 'no values'}",
                do="give a layout that cuts a dim along an axis, as {'y': Shard(0), 'x': Shard(1)}, or copies",
            )
        if len(self.source.shape) == 1 and self._cutting(self.source, 0):
            raise InputError(
                f"a Fourier transform in one dim of {self.source.shape[0]} values on {self.ranks} ranks",
                do="give each rank whole lines: a further dim that the ranks cut",
            )

    @property
    def ranks(self) -> int:
        """How many ranks."""
        return self.source.ranks

    @property
    def exchanges(self) -> int:
        """How many there are, one after the other."""
        return sum(change.exchanges for change in self.changes)

    def title(self) -> str:
        """What it is, in a few words."""
        shape = " x ".join(map(str, self.source.shape))
        return f"Fourier transform of {shape} {'real' if self.real else 'complex'} values: {self.source.text()}"

    @cached_property
    def stages(self) -> tuple[TransformStage, ...]:
        """What happens, in its order: dims from the last to the first, whatever is cut, so that bits are the same."""
        found, at, left = [], self.source, list(reversed(range(len(self.source.shape))))
        itemsize = self.itemsize / 2 if self.real else self.itemsize
        while left:
            change = None
            if self._cutting(at, left[0]):
                after = self._freed(at, left[0], left)
                change, at = redistribution(at, after, itemsize), after
            cut = [bool(self._cutting(at, dim)) for dim in left]
            whole = tuple(left[: cut.index(True)] if any(cut) else left)
            found.append(TransformStage(change, at, whole))
            if self.real and len(left) == len(at.shape):
                at, itemsize = replace(at, shape=(*at.shape[:-1], at.shape[-1] // 2 + 1)), self.itemsize
            left = left[len(whole) :]
        return tuple(found)

    @property
    def target(self) -> Layout:
        """The layout of the spectrum."""
        end = self.stages[-1].layout
        only = self.real and len(self.stages) == 1
        return replace(end, shape=(*end.shape[:-1], end.shape[-1] // 2 + 1)) if only else end

    @staticmethod
    def _cutting(layout: Layout, dim: int) -> list[int]:
        """The axes of several ranks that cut a dim."""
        return [axis for axis in layout.cuts[dim] if layout.axes.sizes[axis] > 1]

    def _freed(self, at: Layout, dim: int, left: Sequence[int]) -> Layout:
        """The layout after the cuts of a dim have moved: to dims that are done, else to the one that comes last; to the
        longest pieces.
        """
        for axis in self._cutting(at, dim):
            others = [d for d in range(len(at.shape)) if d != dim and (d not in left or d == left[-1])]
            parts = {d: int(np.prod([at.axes.sizes[a] for a in at.cuts[d]], dtype=int)) for d in others}
            rated = [(d not in left, at.shape[d] / parts[d], d) for d in others]
            into = max(rated)[2]
            at = at.placed(**{at.axes.names[axis]: Shard(into)})
        for axis in at.cuts[dim]:  # of one rank: they cut nothing
            at = at.placed(**{at.axes.names[axis]: Replicate()})
        return at

    @property
    def changes(self) -> tuple[RedistributionPlan, ...]:
        """The changes of layout."""
        return tuple(stage.change for stage in self.stages if stage.change is not None)

    def each_change(self, fields: int = 0, back: bool = False) -> list[RedistributionPlan | None]:
        """The change of layout of each stage, None where there is none; of so many fields together, that lie one after
        the other in a further dim in front (0: without one). back: those of the inverse transform.
        """
        found: list[RedistributionPlan | None] = []
        for change in (stage.change for stage in self.stages):
            if change is None or not (fields or back):
                found.append(change)
                continue
            before, after = (change.target, change.source) if back else (change.source, change.target)
            if fields:
                before, after = _in_front(before, fields), _in_front(after, fields)
            found.append(redistribution(before, after, change.hops[0].itemsize))
        return found[::-1] if back else found

    def steps(self) -> Iterator[Step]:
        """The steps of all changes of layout; cells count anew in each."""
        for change in self.changes:
            yield from change.steps()

    def claim(self) -> Claim | Factors:
        """That of each change of layout; every dim is transformed once, where it is whole.

        Raises `PlanError` for stages that do not follow on each other.
        """
        at, left = self.source, set(range(len(self.source.shape)))
        for number, stage in enumerate(self.stages):
            if stage.change is not None:
                self._require(stage.change.source == at, number, f"comes a change of {stage.change.source}, not {at}")
                at = stage.change.target
            self._require(stage.layout == at, number, f"are transforms of {stage.layout}, not {at}")
            for dim in stage.dims:
                self._require(dim in left, number, f"dim {dim} does not exist, or is transformed twice")
                self._require(not self._cutting(at, dim), number, f"dim {dim} is transformed while it is cut")
                first = len(left) == len(at.shape)
                self._require(
                    not (self.real and first) or dim == len(at.shape) - 1,
                    number,
                    f"dim {dim} of real values is transformed before the last one",
                )
                left.discard(dim)
                if self.real and first:
                    at = replace(at, shape=(*at.shape[:-1], at.shape[-1] // 2 + 1))
        self._require(not left, len(self.stages), f"dims {sorted(left)} are not transformed")
        if not self.changes:
            nothing = np.zeros((1, 0), np.int64)
            return Claim(nothing, nothing)
        return Factors(self.changes, self._at_fault)

    def _require(self, good: bool, stage: int, what: str) -> None:
        if not good:
            raise PlanError(f"{self.title()}: in stage {stage} {what}")

    def _at_fault(self) -> Plan:
        """The first change that cannot be proved."""
        for change in self.changes:
            try:
                prove(change)
            except PlanError:
                return change
        return self.changes[0]


def _in_front(layout: Layout, fields: int) -> Layout:
    """The layout of so many such arrays one after the other."""
    order = [axis for cut in layout.cuts for axis in cut]
    moved = {layout.axes.names[axis]: Shard(layout.placements[axis].dim + 1) for axis in order}
    return Layout((fields, *layout.shape), layout.axes, moved)


def fourier_plan(source: Layout, real: bool = True, single: bool = False) -> FourierPlan:
    """The plan of a Fourier transform; see `FourierPlan`. single: of numbers in single precision."""
    return FourierPlan(source, real, 8.0 if single else 16.0)
