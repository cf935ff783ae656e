"""A step that was run, on the time axis: drawn like the simulated one, and compared with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpckit.plan.pipeline.price import Interval, SchedulePrice
from hpckit.plan.pipeline.schedule import COMPUTE, Action, Schedule
from hpckit.plan.pipeline.times import StageTimes

Rows = npt.NDArray[np.float64]


@dataclass(frozen=True)
class MeasuredStep:
    """A step as it ran. price: its actions on the time axis, as of a simulated one, s.

    times: what the stages took for a microbatch, mean over the steps measured; goes to `price` and `draw`.
    """

    schedule: Schedule
    price: SchedulePrice
    times: StageTimes

    @classmethod
    def of(cls, schedule: Schedule, actions: list[Rows], sent: list[Rows], times: list[Rows]) -> MeasuredStep:
        """From what the ranks recorded, one array a rank.

        actions: rows of stage, kind (its place in COMPUTE), microbatch, begin and end, s, on one clock. sent: one row
        of messages and bytes. times: rows of stage, F, I and W, s.
        """
        origin = min((float(rows[:, 3].min()) for rows in actions if len(rows)), default=0.0)
        intervals = [
            Interval(rank, Action(int(stage), COMPUTE[int(kind)], int(number)), begin - origin, end - origin)
            for rank, rows in enumerate(actions)
            for stage, kind, number, begin, end in rows.tolist()
        ]
        intervals.sort(key=lambda interval: interval.begin)
        busy = tuple(float((rows[:, 4] - rows[:, 3]).sum()) for rows in actions)
        nbytes = tuple(float(rows[0, 1]) for rows in sent)
        price = SchedulePrice(tuple(intervals), busy, nbytes, int(sum(rows[0, 0] for rows in sent)))
        stages = np.concatenate(times)
        stages = stages[np.argsort(stages[:, 0])]
        forward, backward_input, backward_weight = stages[:, 1:].T.tolist()
        return cls(schedule, price, StageTimes(forward, backward_input, backward_weight))
