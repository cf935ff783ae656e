"""Time per phase of a program, on one rank, and its timeline."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpckit.waits import Waits


class Phase:
    """One phase of a timer: a context that is entered again and again, as making one each time costs more."""

    __slots__ = ("_begin", "_name", "_timer")

    def __init__(self, timer: PhaseTimer, name: str) -> None:
        self._timer, self._name = timer, name
        self._begin = 0.0

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self._timer.add(self._name, self._begin, time.perf_counter())


class PhaseTimer:
    """Seconds spent in named phases: `with timer("halo"): …`.

    Phases do not nest: time spent in an inner phase would count twice. `seconds` maps a name to the total so far, in
    the order in which the phases first ran. `waits` holds what exchanges waited meanwhile. The first `traced`
    phases are kept in `spans` as (name, begin, end), and the ends of as many steps, told by `mark`, in `steps`, both on
    the clock of `time.perf_counter`.
    """

    def __init__(self, waits: Waits | None = None, traced: int = 0) -> None:
        self.seconds: dict[str, float] = {}
        self._phases: dict[str, Phase] = {}
        self.waits = waits
        self.traced = traced
        self.spans: list[tuple[str, float, float]] = []
        self.steps: list[tuple[int, float]] = []

    def __call__(self, name: str) -> Phase:
        """Add the time of the block to the phase `name`."""
        phase = self._phases.get(name)
        if phase is None:
            phase = self._phases[name] = Phase(self, name)
        return phase

    def add(self, name: str, begin: float, end: float) -> None:
        """Add what was timed already to the phase `name`."""
        self.seconds[name] = self.seconds.get(name, 0.0) + end - begin
        if len(self.spans) < self.traced:
            self.spans.append((name, begin, end))

    def mark(self, step: int) -> None:
        """The step ends now."""
        if len(self.steps) < self.traced:
            self.steps.append((step, time.perf_counter()))

    def reset(self) -> None:
        """Forget all times, as after warm-up steps that compile the kernels."""
        self.seconds.clear()
        self.spans.clear()
        self.steps.clear()
        if self.waits is not None:
            self.waits.reset()


def t_eff(nbytes: float, seconds: float) -> float:
    """Effective memory throughput in GB/s: the bytes that must move (each input read once, each output written once)
    over the time (Räss et al. 2022, ImplicitGlobalGrid / ParallelStencil).
    """
    return nbytes / seconds / 1e9
