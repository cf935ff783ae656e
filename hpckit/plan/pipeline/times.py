"""The compute times of the stages of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from hpckit.errors import InputError
from hpckit.plan.pipeline.schedule import Schedule

Seconds = float | Sequence[float]


@dataclass(frozen=True)
class StageTimes:
    """Times of F, I and W for one microbatch, s: one number for all stages, or one for each.

    B takes as long as I and W together. Raises `InputError` for times that are negative or not finite.
    """

    forward: Seconds
    backward_input: Seconds
    backward_weight: Seconds

    def __post_init__(self) -> None:
        for kind, given in (("F", self.forward), ("I", self.backward_input), ("W", self.backward_weight)):
            for value in given if isinstance(given, Sequence) else [given]:
                if not isfinite(value) or value < 0:
                    raise InputError(f"the time of {kind} is {value}", do="give a number, 0 or more")

    def table(self, schedule: Schedule) -> dict[tuple[int, str], float]:
        """The time of each stage and kind of compute action, s.

        Raises `InputError` unless there is one number for all stages of the schedule, or one for each.
        """
        found: dict[tuple[int, str], float] = {}
        for kind, given in (("F", self.forward), ("I", self.backward_input), ("W", self.backward_weight)):
            if isinstance(given, Sequence) and len(given) != schedule.stages:
                raise InputError(
                    f"there are {len(given)} times of {kind} for {schedule.stages} stages",
                    do=f"give one time, or {schedule.stages}",
                )
            for stage in range(schedule.stages):
                found[stage, kind] = given[stage] if isinstance(given, Sequence) else given
        for stage in range(schedule.stages):
            found[stage, "B"] = found[stage, "I"] + found[stage, "W"]
        return found

    def equal(self) -> bool:
        """Whether F, I and W take the same time on all stages."""
        every = [self.forward, self.backward_input, self.backward_weight]
        flat = [x for given in every for x in (given if isinstance(given, Sequence) else [given])]
        return min(flat) == max(flat)


UNIT = StageTimes(1, 1, 1)
