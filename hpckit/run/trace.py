"""The timeline of a run: phases, waits and messages of all ranks in one file that Perfetto and chrome://tracing open.

Chrome's trace-event format: one process per rank; phases and, within them, pipeline actions, sends and waits as
complete events ("X"), strictly nested; a message as a flow ("s" to "f") from the sender's send to the receiver's wait,
a collective as flows from the last rank to arrive; the end of each step as an instant ("i") of rank 0.
Times in µs from the first event.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hpckit.comm.agree import gather_json
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.comm.observe.waits import Log

if TYPE_CHECKING:
    from mpi4py import MPI

FILE = "trace.json"
RESOLUTION = 1e-3  # µs of what is written
EVENTS = 400_000  # of all ranks together, about
Event = dict[str, Any]


def events_of_a_rank(ranks: int) -> int:
    """The most phases that a rank keeps, and the most calls of each of its exchanges."""
    return max(500, EVENTS // (4 * ranks))


def gather_timelines(comm: MPI.Intracomm, timer: PhaseTimer, offset: float) -> list[dict[str, Any]] | None:
    """Collective: spans and steps of all ranks on rank 0's clock, on rank 0; None elsewhere."""
    actions = timer.waits.actions if timer.waits is not None else []
    names = sorted({name for name, _, _ in [*timer.spans, *actions]})
    place = {name: number for number, name in enumerate(names)}
    own = {
        "names": names,
        "spans": [(place[name], begin + offset, end + offset) for name, begin, end in timer.spans],
        "actions": [(place[name], begin + offset, end + offset) for name, begin, end in actions],
        "steps": [(step, moment + offset) for step, moment in timer.steps],
    }
    return gather_json(comm, own)


def merge(timelines: Sequence[dict[str, Any]], logs: Sequence[Sequence[Log]], title: str) -> dict[str, Any]:
    """The whole trace, as the object of its JSON file."""
    begins = [span[1] for line in timelines for span in [*line["spans"], *line["actions"]]]
    begins += [float(log.samples[:, 0].min()) for channels in logs for log in channels if len(log.samples)]
    zero = min(begins, default=0.0)
    events = [event for rank, line in enumerate(timelines) for event in _rank(rank, line, logs[rank], zero)]
    events += _messages(logs, zero)
    if timelines:
        events += [
            {"name": f"step {step}", "ph": "i", "s": "g", "pid": 0, "tid": 0, "ts": _us(moment - zero)}
            for step, moment in timelines[0]["steps"]
        ]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"title": title, "ranks": len(timelines)}}


def text(trace: dict[str, Any]) -> str:
    """The text of the file: an event a line."""
    events = ",\n".join(json.dumps(event, separators=(",", ":")) for event in trace["traceEvents"])
    rest = json.dumps({key: value for key, value in trace.items() if key != "traceEvents"})
    return f'{{"traceEvents":[\n{events}\n],{rest[1:]}\n'


def _rank(rank: int, line: dict[str, Any], channels: Sequence[Log], zero: float) -> Iterator[Event]:
    """The events of a rank; of those that begin together the longer first, as viewers nest them."""
    yield {"name": "process_name", "ph": "M", "pid": rank, "tid": 0, "args": {"name": f"rank {rank}"}}
    yield {"name": "process_sort_index", "ph": "M", "pid": rank, "tid": 0, "args": {"sort_index": rank}}
    spans = [(begin, end, line["names"][name], "phase") for name, begin, end in line["spans"]]
    spans += [(begin, end, line["names"][name], "action") for name, begin, end in line["actions"]]
    for log in channels:
        for begun, posted, entered, left, _ in log.samples.tolist():
            if posted > begun:
                spans.append((begun, posted, f"send {log.name}", "message"))
            if left > entered:
                spans.append((entered, left, f"wait {log.name}", "message"))
    spans.sort(key=lambda span: (span[0], -span[1]))
    for begin, end, name, category in spans:
        # Both ends are rounded in the same way, so that nested spans stay nested.
        start = _us(begin - zero)
        length = round(_us(end - zero) - start, 3)
        yield {"name": name, "cat": category, "ph": "X", "pid": rank, "tid": 0, "ts": start, "dur": length}


def _messages(logs: Sequence[Sequence[Log]], zero: float) -> Iterator[Event]:
    """An arrow for each message, from its departure at the peer to its arrival at this rank. A collective has one
    arrow to each rank, from the last rank to arrive.
    """
    by_name = [{log.name: log for log in channels} for channels in logs]
    number = 0
    for rank, channels in enumerate(logs):
        for log in channels:
            others = [(peer, by_name[peer].get(log.name)) for peer in log.peers if peer != rank]
            known = [(peer, other) for peer, other in others if other is not None and other.stride == log.stride]
            for peer, (begun, posted, *_), left in _arrows(rank, log, known):
                # It may arrive before the call that sent it returns.
                sent = _within(_us(begun - zero), _us(max(begun, min(posted, left)) - zero))
                number += 1
                common = {"name": log.name, "cat": "message", "id": number, "tid": 0}
                yield {**common, "ph": "s", "pid": peer, "ts": sent}
                yield {**common, "ph": "f", "bp": "e", "pid": rank, "ts": _within(sent, _us(left - zero))}


def _arrows(rank: int, log: Log, known: Sequence[tuple[int, Log]]) -> Iterator[tuple[int, list[float], float]]:
    """The arrows to a rank: the sender, the sample of its call there, and the arrival time."""
    if not log.together:
        for peer, other in known:
            for sent, got in zip(other.samples.tolist(), log.samples.tolist(), strict=False):
                yield peer, sent, got[3]
        return
    every = [(rank, log), *known]
    count = min(len(each.samples) for _, each in every)
    last = np.array([each.samples[:count, 1] for _, each in every]).argmax(axis=0)
    for call in np.flatnonzero(last > 0).tolist():
        peer, other = every[last[call]]
        yield peer, other.samples[call].tolist(), float(log.samples[call, 3])


def _within(begin: float, end: float) -> float:
    """The last moment before `end`, not before `begin`: a viewer ties an arrow to the bar around its moment, and a bar
    has ended at its end.
    """
    return max(begin, round(end - RESOLUTION, 3))


def _us(seconds: float) -> float:
    return round(1e6 * seconds, 3)  # RESOLUTION
