"""The progress of a run: lines for people, and `progress.json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from hpckit.io.files import utc_now

if TYPE_CHECKING:
    from hpckit.run.directory import RunDirectory

LINE_SECONDS = 5.0  # between two lines
FILE_SECONDS = 0.5  # between two writes of progress.json


class Progress:
    """Reports from rank 0 how far a run is: in `progress.json`, and in lines through `say`, if given."""

    def __init__(self, directory: RunDirectory, say: Callable[[str], None] | None) -> None:
        self._directory, self._say = directory, say
        self._start: tuple[float, int, float] | None = None
        self._next_line = self._next_file = 0.0

    def tell(self, step: int, time: float, end: float, rate: str) -> None:
        """A plain line early, then one every few seconds and one at `time` >= `end`; the file more often."""
        now = monotonic()
        last = time >= end
        if self._start is None:
            # The rate counts from the second call on, since the first step compiles kernels.
            self._start = (now, step, time)
            self._next_line = now + 1.0
        elif not (last or now >= self._next_file or now >= self._next_line):
            return
        state = self._state(now, step, time, end, rate)
        if last or now >= self._next_file:
            self._next_file = now + FILE_SECONDS
            self._directory.write_json("progress.json", state)
        if self._say is not None and (last or now >= self._next_line):
            self._next_line = now + LINE_SECONDS
            self._say(progress_line(state))

    def _state(self, now: float, step: int, time: float, end: float, rate: str) -> dict[str, Any]:
        """The content of `progress.json`; `eta_seconds` is None until there are two calls at different times."""
        assert self._start is not None
        began, first_step, first_time = self._start
        elapsed = now - began
        gone = time - first_time
        return {
            "status": "running",
            "step": step,
            "time": time,
            "end": end,
            "fraction": min(1.0, time / end) if end > 0 else 1.0,
            "steps_per_second": (step - first_step) / elapsed if elapsed > 0 and step > first_step else None,
            "eta_seconds": max(0.0, end - time) * elapsed / gone if gone > 0 else None,
            "elapsed_seconds": elapsed,
            "rate": rate,
            "updated": utc_now(),
        }


def progress_line(state: Mapping[str, Any]) -> str:
    """One plain line: percent, step, time, rates and the time that is left."""
    parts = [
        f"{100 * state['fraction']:5.1f} %",
        f"step {state['step']}",
        f"t {state['time']:.6g} of {state['end']:.6g}",
    ]
    if state["steps_per_second"]:
        parts.append(f"{state['steps_per_second']:.3g} steps/s")
    if state["rate"]:
        parts.append(state["rate"])
    if state["eta_seconds"] is not None and state["fraction"] < 1:
        parts.append(f"{clock_text(state['eta_seconds'])} left")
    return "  ".join(parts)


def clock_text(seconds: float) -> str:
    """Seconds as `0:42`, `12:05` or `3:07:30`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
