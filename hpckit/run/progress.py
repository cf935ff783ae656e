"""How far a run is, as a line of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
