"""The record of a serving run: what the engine did in each stretch of time, as lines of JSON, for the report page."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.errors import write_error
from hpckit.io.files import replace_file, utc_now
from hpckit.serving.engine import Engine
from hpckit.serving.events import Event
from hpckit.serving.step import ServingStep

FILE, ABOUT = "serving.jsonl", "serving.json"
SHORTEST, STRETCHES = 0.1, 1000  # a stretch of time is 0.1 s, or a thousandth of the run so far
MOST_LATENCIES = 100_000  # the last ones, of which percentiles of the whole run are made
COUNTS = ("prompt_tokens", "found_tokens", "written_tokens", "drafts", "accepted", "finished", "aborted")
LATENCIES = {
    "ttft": "from the arrival to the first token",
    "tpot": "of a token behind the first",
    "e2el": "from the arrival to the last token",
}


class ServingRecord:
    """Listens to an engine and writes `serving.jsonl` in a folder; `close` adds `serving.json`, the run in all.

    about: what the page says of the run. A line has the time of its end in seconds, the texts that wait and run then,
    blocks with an owner, means over its steps and sums over its time. Raises `SetupError` where nothing can be written.
    """

    def __init__(self, folder: Path, engine: Engine, about: dict[str, Any]) -> None:
        self._engine, self._folder = engine, folder
        self._about = {**about, "started": utc_now(), "blocks": engine.blocks.count, "texts": engine.scheduler.texts}
        self._about |= {"rows": engine.scheduler.rows * engine.team.replicas, "replicas": engine.team.replicas}
        self._about |= {"ranks": engine.team.size, "weights": engine.weights.kind}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = (folder / FILE).open("w", encoding="utf-8")
        except OSError as problem:
            raise write_error(problem, folder) from problem
        self._begin = self._last = self._worked = time.perf_counter()
        self._arrived: dict[str, float] = {}
        self._left: dict[str, int] = {}  # samples of a request that have not ended
        self._first: dict[tuple[str, int], tuple[float, int]] = {}  # when, and tokens since then
        self._all: dict[str, deque[float]] = {name: deque(maxlen=MOST_LATENCIES) for name in LATENCIES}
        self._counts = self._now()
        self._write_about()
        self._clear()
        engine.listener = self

    def added(self, name: str, samples: int) -> None:
        """A request has come."""
        now = time.perf_counter()
        if not self._arrived:
            self._rested(now)
        self._arrived[name], self._left[name] = now, samples

    def aborted(self, name: str) -> None:
        """A request is gone."""
        self._arrived.pop(name, None)
        self._left.pop(name, None)
        for key in [key for key in self._first if key[0] == name]:
            del self._first[key]

    def stepped(self, step: ServingStep, events: Sequence[Event], seconds: float) -> None:
        """A step is done."""
        now = time.perf_counter()
        self._steps += 1
        self._rows += step.rows
        self._pieces += len(step.pieces)
        self._seconds += seconds
        self._worked = now
        for event in events:
            if event.request in self._arrived:
                self._heard(event, now)
        if now - self._last >= self._stretch(now):
            self._flush(now)

    def close(self) -> None:
        """Write the last line and the summary of the run."""
        now = time.perf_counter()
        if not self._arrived:
            self._rested(now)
        self._flush(now)
        self._file.close()
        self._about["seconds"] = time.perf_counter() - self._begin
        self._about |= {name: getattr(self._engine.counters, name) for name in ("steps", *COUNTS)}
        self._about |= {"preemptions": self._engine.scheduler.preemptions, "moves": self._engine.scheduler.moves}
        self._about["latencies"] = {
            name: {f"p{q}": float(np.percentile(times, q)) for q in (50, 95, 99)} | {"count": len(times)}
            for name, times in self._all.items()
            if times
        }
        self._engine.listener = None
        self._write_about()

    def _stretch(self, now: float) -> float:
        return max(SHORTEST, (now - self._begin) / STRETCHES)

    def _rested(self, now: float) -> None:
        """Nothing was done since the last step: if that is long ago, the stretch ends with it, and one of rest here."""
        if now - self._worked > self._stretch(now):
            if self._steps:
                self._flush(self._worked, rests=True)
            self._flush(now, rests=True)

    def _heard(self, event: Event, now: float) -> None:
        """What a step brought to a sample."""
        key, waited = (event.request, event.sample), now - self._arrived[event.request]
        if event.token is not None:
            if key not in self._first:
                self._latency("ttft", waited)
            first, count = self._first.get(key, (now, -1))
            self._first[key] = first, count + 1
        if event.reason:
            first, count = self._first.pop(key, (now, 0))
            self._latency("e2el", waited)
            if count:
                self._latency("tpot", (now - first) / count)
            self._left[event.request] -= 1
            if not self._left[event.request]:
                del self._left[event.request], self._arrived[event.request]

    def _latency(self, name: str, seconds: float) -> None:
        self._all[name].append(seconds)
        self._own[name].append(seconds)

    def _now(self) -> dict[str, int]:
        counters, scheduler = self._engine.counters, self._engine.scheduler
        return {name: getattr(counters, name) for name in COUNTS} | {
            "preemptions": scheduler.preemptions,
            "moves": scheduler.moves,
        }

    def _clear(self) -> None:
        self._steps = self._rows = self._pieces = 0
        self._seconds = 0.0
        self._own: dict[str, list[float]] = {name: [] for name in LATENCIES}

    def _flush(self, now: float, rests: bool = False) -> None:
        """A line; rests: no text waits or runs at its end but one that has just come."""
        scheduler, counts, steps = self._engine.scheduler, self._now(), max(1, self._steps)
        line: dict[str, Any] = {
            "time": now - self._begin,
            "seconds": now - self._last,
            "waiting": 0 if rests else len(scheduler.waiting),
            "running": 0 if rests else len(scheduler.running),
            "blocks_used": 0 if rests else self._engine.blocks.used,
            "blocks_known": self._engine.blocks.known,
            "steps": self._steps,
            "rows": self._rows / steps,
            "texts": self._pieces / steps,
            "step_seconds": self._seconds / steps,
        }
        line |= {name: counts[name] - self._counts[name] for name in counts}
        for name, times in self._own.items():
            if times:
                line |= {f"{name}_p{q}": float(np.percentile(times, q)) for q in (50, 95)}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        self._counts, self._last = counts, now
        self._clear()

    def _write_about(self) -> None:
        replace_file(self._folder / ABOUT, json.dumps(self._about, indent=1).encode())
