"""The division of layers into the stages of a pipeline by their costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hpckit.errors import InputError
from hpckit.plan.inputs.numbers import count as whole
from hpckit.plan.inputs.text import read_text
from hpckit.plan.pipeline.schedule import MOST_FAULTS

Floats = npt.NDArray[np.float64]
# Loads within this of the best count as the best: sums of the same costs differ in their last bits.
ROUNDING = 1e-12


class TimedLayer(NamedTuple):
    """A layer with its measured times for one microbatch, s."""

    name: str
    forward: float
    backward_input: float
    backward_weight: float

    @property
    def seconds(self) -> float:
        """F, I and W together."""
        return self.forward + self.backward_input + self.backward_weight


@dataclass(frozen=True)
class Partition:
    """Stage s has the layers starts[s] to starts[s + 1] (end excluded) and costs loads[s], s a microbatch."""

    starts: tuple[int, ...]
    loads: tuple[float, ...]

    @property
    def balance(self) -> float:
        """The mean load over the largest: the share of the time that the stages compute, once the pipeline is full."""
        return sum(self.loads) / len(self.loads) / max(self.loads) if max(self.loads) else 1.0

    def layers(self, stage: int) -> range:
        """The layers of a stage."""
        return range(self.starts[stage], self.starts[stage + 1])

    def sums(self, values: Sequence[float]) -> tuple[float, ...]:
        """Any values of the layers summed over each stage, as their times of F, I or W."""
        return tuple(sum(values[layer] for layer in self.layers(stage)) for stage in range(len(self.loads)))


def partition_layers(costs: Sequence[float], stages: int, tied: float = 0.0) -> Partition:
    """The contiguous parts of the layers, one per stage, with the smallest possible largest cost.

    Among these, the one with the most equal loads (least sum of squares; then more layers on low stages). costs: of
    each layer, measured, s a microbatch (F + I + W); the first layer may be an embedding and the last one its tied
    copy. tied: the extra cost per microbatch of such a shared weight on the first and on the last stage: its gradients
    are exchanged and added, and both update it. Exact, by dynamic programming in O(stages layers^2). Raises
    `InputError` for fewer layers than stages, and for costs that are negative or not finite.
    """
    stages = whole(stages, "the number of stages")
    loads = np.asarray(costs, dtype=np.float64)
    if loads.ndim != 1 or not np.isfinite([*loads.flat, tied]).all() or (loads < 0).any() or tied < 0:
        raise InputError("the costs of layers are finite numbers, 0 or more", do="give one number a layer")
    if not 1 <= stages <= len(loads):
        raise InputError(
            f"{len(loads)} layers cannot be dealt to {stages} stages",
            do=f"take 1 to {len(loads)} stages" if len(loads) else "give layers",
        )
    ends = np.concatenate([[0.0], np.cumsum(loads)])
    between = ends[None, :] - ends[:, None]  # [first, end]: of the layers from first on
    between[np.tri(len(ends), dtype=bool)] = np.inf  # a stage has a layer or more
    outer = between + tied if stages > 1 else between
    most = _best([outer, *[between] * (stages - 2), outer][:stages], np.maximum)[0]
    bound = most * (1 + ROUNDING) + ROUNDING * ends[-1]
    outer, between = (np.where(part <= bound, part**2, np.inf) for part in (outer, between))
    starts = _best([outer, *[between] * (stages - 2), outer][:stages], np.add)[1]
    extra = np.zeros(stages)
    if stages > 1:
        extra[[0, -1]] = tied
    sizes = [float(loads[first:end].sum() + more) for first, end, more in zip(starts, starts[1:], extra, strict=False)]
    return Partition(tuple(starts), tuple(sizes))


def _best(costs: list[Floats], join: np.ufunc) -> tuple[float, list[int]]:
    """The least joined cost of all stages, and where they start; costs[stage][first, end] of the layers it may have."""
    best = costs[0][0]  # of the first stage, by its end
    choices = []
    for cost in costs[1:]:
        through = join(best[:, None], cost)
        latest = len(through) - 1 - np.argmin(through[::-1], axis=0)
        choices.append(latest)
        best = np.take_along_axis(through, latest[None], axis=0)[0]
    starts = [len(best) - 1]
    for choice in reversed(choices):
        starts.append(int(choice[starts[-1]]))
    return float(best[-1]), [0, *reversed(starts)]


def read_layers(path: str | Path) -> list[TimedLayer]:
    """Layers from a CSV file, a line each: its name, and its times of F, I and W for one microbatch, ms.

    Lines that start with # are skipped. Raises `InputError` with the first wrong lines.
    """
    lines = read_text(path, "the table of layers").splitlines()
    layers: list[TimedLayer] = []
    faults: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if len(faults) > MOST_FAULTS:
            faults[-1] = "and more"
            break
        name, *cells = (cell.strip() for cell in line.split(","))
        try:
            forward, backward_input, backward_weight = (float(cell) / 1e3 for cell in cells)
            if not all(isfinite(x) and x >= 0 for x in (forward, backward_input, backward_weight)):
                raise ValueError
            layers.append(TimedLayer(name, forward, backward_input, backward_weight))
        except ValueError:
            faults.append(f"line {number}: {line.strip()[:60]!r}")
    if faults or not layers:
        do = "write a line a layer: name, F, I, W in ms, as in block3, 2.1, 2.0, 1.9"
        raise InputError("; ".join(faults) or "there are no layers", where=str(path), do=do)
    return layers
