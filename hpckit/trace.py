"""The timeline of a run: phases, waits and messages of all ranks in one file that Perfetto and chrome://tracing open.

Chrome's trace-event format: a process a rank; phases and, within them, what was sent and waited for as complete events
("X"), nested strictly; a message as a flow ("s" to "f") from the sender's send to the receiver's wait; the end of each
step as an instant ("i") of rank 0. Times in µs from the first event.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hpckit.json_bytes import gather_json
from hpckit.timing import PhaseTimer
from hpckit.waits import Log

if TYPE_CHECKING:
    from mpi4py import MPI

FILE = "trace.json"
EVENTS = 400_000  # of all ranks together, about
Event = dict[str, Any]


def events_of_a_rank(ranks: int) -> int:
    """How many phases a rank keeps, and how many calls of each of its exchanges."""
    return max(500, EVENTS // (4 * ranks))


def gather_timelines(comm: MPI.Intracomm, timer: PhaseTimer, offset: float) -> list[dict[str, Any]] | None:
    """Collective: spans and steps of all ranks on rank 0's clock, on rank 0; None elsewhere."""
    names = sorted({name for name, _, _ in timer.spans})
    place = {name: number for number, name in enumerate(names)}
    own = {
        "names": names,
        "spans": [(place[name], begin + offset, end + offset) for name, begin, end in timer.spans],
        "steps": [(step, moment + offset) for step, moment in timer.steps],
    }
    return gather_json(comm, own)


def merge(timelines: Sequence[dict[str, Any]], logs: Sequence[Sequence[Log]], title: str) -> dict[str, Any]:
    """The whole trace, as the object of its JSON file."""
    begins = [span[1] for line in timelines for span in line["spans"]]
    begins += [float(log.samples[0, 0]) for channels in logs for log in channels if len(log.samples)]
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
    """The events of a rank: longer before shorter where they begin together, as viewers nest them."""
    yield {"name": "process_name", "ph": "M", "pid": rank, "tid": 0, "args": {"name": f"rank {rank}"}}
    yield {"name": "process_sort_index", "ph": "M", "pid": rank, "tid": 0, "args": {"sort_index": rank}}
    spans = [(begin, end, line["names"][name], "phase") for name, begin, end in line["spans"]]
    for log in channels:
        for begun, posted, entered, left, _ in log.samples.tolist():
            spans.append((begun, posted, f"send {log.name}", "message"))
            spans.append((entered, left, f"wait {log.name}", "message"))
    spans.sort(key=lambda span: (span[0], -span[1]))
    for begin, end, name, category in spans:
        # Both ends are rounded alike, so that what lies within another span still does.
        start = _us(begin - zero)
        length = round(_us(end - zero) - start, 3)
        yield {"name": name, "cat": category, "ph": "X", "pid": rank, "tid": 0, "ts": start, "dur": length}


def _messages(logs: Sequence[Sequence[Log]], zero: float) -> Iterator[Event]:
    """An arrow for each message: from when the peer's had left to when this rank had it."""
    by_name = [{log.name: log for log in channels} for channels in logs]
    number = 0
    for rank, channels in enumerate(logs):
        for log in channels:
            for peer in log.peers:
                other = by_name[peer].get(log.name)
                if peer == rank or other is None or other.stride != log.stride:
                    continue
                for sent, got in zip(other.samples.tolist(), log.samples.tolist(), strict=False):
                    number += 1
                    common = {"name": log.name, "cat": "message", "id": number, "tid": 0}
                    yield {**common, "ph": "s", "pid": peer, "ts": _us(sent[1] - zero)}
                    yield {**common, "ph": "f", "bp": "e", "pid": rank, "ts": _us(max(got[3], sent[1]) - zero)}


def _us(seconds: float) -> float:
    return round(1e6 * seconds, 3)
