"""What every timeline must be, for the tests that make one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

ROUNDING = 2e-3  # µs


def check_trace(trace: dict[str, Any], ranks: int) -> None:
    """A row a rank; spans of a rank come in order and nest or are apart; each message has two ends, goes forward, from
    one rank to another, and both its ends lie in spans.
    """
    events = trace["traceEvents"]
    assert {event["pid"] for event in events if event["ph"] == "X"} == set(range(ranks))
    assert {event["tid"] for event in events} == {0}
    spans = {rank: [e for e in events if e["ph"] == "X" and e["pid"] == rank] for rank in range(ranks)}
    for own in spans.values():
        _check_nesting(own)
    sent = {event["id"]: event for event in events if event["ph"] == "s"}
    got = {event["id"]: event for event in events if event["ph"] == "f"}
    assert sent
    assert set(sent) == set(got)
    assert len(sent) + len(got) == sum(event["ph"] in "sf" for event in events), "an id stands for two messages"
    for number, start in sent.items():
        end = got[number]
        assert start["name"] == end["name"]
        assert start["ts"] <= end["ts"]
        assert start["pid"] != end["pid"]
    for event in [*sent.values(), *got.values()]:
        assert any(_holds(span, event["ts"]) for span in spans[event["pid"]]), event


def _check_nesting(spans: list[dict[str, Any]]) -> None:
    assert spans == sorted(spans, key=lambda span: (span["ts"], -span["dur"]))
    open_ends: list[float] = []
    for span in spans:
        assert span["dur"] >= 0
        end = span["ts"] + span["dur"]
        while open_ends and open_ends[-1] <= span["ts"] + 1e-6:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1] + ROUNDING, span
        open_ends.append(end)


def _holds(span: dict[str, Any], moment: float) -> bool:
    return span["ts"] - 1e-6 <= moment < span["ts"] + span["dur"] - 1e-6


def arrows(trace: dict[str, Any], name: str) -> Iterator[tuple[int, int]]:
    """Sender and receiver of each message of a name that begins so."""
    got = {event["id"]: event for event in trace["traceEvents"] if event["ph"] == "f"}
    for event in trace["traceEvents"]:
        if event["ph"] == "s" and event["name"].startswith(name):
            yield event["pid"], got[event["id"]]["pid"]
