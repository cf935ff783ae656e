"""A step of the pipeline as the run directory keeps it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpckit.plan.inputs.text import parse_json, read_bytes
from hpckit.plan.pipeline.price import Interval, MeasuredStep, SchedulePrice
from hpckit.plan.pipeline.schedule import Action, Schedule
from hpckit.plan.pipeline.times import StageTimes

TIMELINE = "timeline.json"  # in the run's output


def record_of(step: MeasuredStep) -> dict[str, Any]:
    """A step as plain values."""
    schedule, times = step.schedule, step.times
    return {
        "name": schedule.name,
        "microbatches": schedule.microbatches,
        "rank_of": list(schedule.rank_of),
        "actions": [[str(action) for action in actions] for actions in schedule.actions],
        "times": [times.forward, times.backward_input, times.backward_weight],
        "step": [[it.rank, str(it.action), it.begin, it.end] for it in step.price.intervals],
        "busy": list(step.price.busy),
        "sent": list(step.price.sent),
        "messages": step.price.messages,
    }


def read_timeline(path: Path) -> MeasuredStep:
    """The step that `record_of` made plain."""
    record = parse_json(read_bytes(path, "the timeline"))
    actions = tuple(tuple(map(Action.parse, actions)) for actions in record["actions"])
    intervals = (Interval(rank, Action.parse(action), begin, end) for rank, action, begin, end in record["step"])
    return MeasuredStep(
        Schedule(record["name"], record["microbatches"], tuple(record["rank_of"]), actions),
        SchedulePrice(tuple(intervals), tuple(record["busy"]), tuple(record["sent"]), record["messages"]),
        StageTimes(*record["times"]),
    )
