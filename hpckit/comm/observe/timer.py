"""Time per phase of a program, on one rank, and its timeline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpckit.comm.observe.waits import Waits

Span = tuple[str, float, float]  # name, begin, end


class TimedPhase:
    """One phase of a timer: a reusable context, since a new one at each entry would cost more."""

    __slots__ = ("_begin", "_name", "_seconds")

    def __init__(self, name: str, seconds: dict[str, float]) -> None:
        self._name, self._seconds = name, seconds
        self._begin = 0.0

    def __enter__(self) -> None:
        self._begin = perf_counter()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._seconds[self._name] += perf_counter() - self._begin


class TracedPhase(TimedPhase):
    """A phase that also keeps its first times in `spans`."""

    __slots__ = ("_most", "_spans")

    def __init__(self, name: str, seconds: dict[str, float], spans: list[Span], most: int) -> None:
        super().__init__(name, seconds)
        self._spans, self._most = spans, most

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        end, begin = perf_counter(), self._begin
        self._seconds[self._name] += end - begin
        if len(self._spans) < self._most:
            self._spans.append((self._name, begin, end))


class PhaseTimer:
    """Seconds spent in named phases: `with timer("halo"): …`.

    For short steps with consecutive phases, laps cost half as much: after `begin()`, each `lap("halo")` adds the time
    since the previous lap. A step that computes its core while messages are under way reads the clock
    (`time.perf_counter`) itself and reports all times at once, which costs a third: `overlapped(begun, sent, computed,
    came, ended)` adds `begun` to `sent` and `computed` to `came` to `halo`, `sent` to `computed` to `core`, and `came`
    to `ended` to `rim`.

    Phases do not nest: time in an inner phase would count twice. `seconds` maps a name to its total so far, in the
    order in which the phases first ran. `waits` holds the waits of exchanges meanwhile. The first `traced` phases are
    kept in `spans` as (name, begin, end), and the ends of as many steps (`mark`) in `steps`, both on the clock of
    `time.perf_counter`.
    """

    def __init__(self, waits: Waits | None = None, traced: int = 0) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._phases: dict[str, TimedPhase] = {}
        self.waits = waits
        self.traced = traced
        self.spans: list[Span] = []
        self.steps: list[tuple[int, float]] = []
        self.begin, self.lap = self._laps()
        self.overlapped, self._fold = self._overlaps()

    @property
    def seconds(self) -> dict[str, float]:
        """Phase -> seconds so far."""
        self._fold()
        return self._seconds

    def _laps(self) -> tuple[Callable[[], None], Callable[[str], None]]:
        """Two functions: one begins the first phase of a step, the other ends a phase and begins the next.

        They are closures, since variables of this function are faster than attributes of an object.
        """
        seconds, spans, most, clock = self._seconds, self.spans, self.traced, perf_counter
        last = 0.0

        def begin() -> None:
            nonlocal last
            last = clock()

        def lap(name: str) -> None:
            nonlocal last
            now = clock()
            seconds[name] += now - last
            last = now

        def traced_lap(name: str) -> None:
            nonlocal last
            now = clock()
            seconds[name] += now - last
            if len(spans) < most:
                spans.append((name, last, now))
            last = now

        return begin, traced_lap if most else lap

    def _overlaps(self) -> tuple[Callable[[float, float, float, float, float], None], Callable[[], None]]:
        """Two functions: one notes the times of an overlapped step, the other adds the noted times to `seconds`."""
        seconds, spans, most = self._seconds, self.spans, self.traced
        halo = core = rim = 0.0

        def overlapped(begun: float, sent: float, computed: float, came: float, ended: float) -> None:
            nonlocal halo, core, rim
            halo += sent - begun + came - computed
            core += computed - sent
            rim += ended - came

        def traced_overlapped(begun: float, sent: float, computed: float, came: float, ended: float) -> None:
            overlapped(begun, sent, computed, came, ended)
            if len(spans) < most:
                spans.append(("halo", begun, sent))
                spans.append(("core", sent, computed))
                if came > computed:
                    spans.append(("halo", computed, came))
                if ended > came:
                    spans.append(("rim", came, ended))

        def fold() -> None:
            nonlocal halo, core, rim
            for name, own in (("halo", halo), ("core", core), ("rim", rim)):
                if own:
                    seconds[name] += own
            halo = core = rim = 0.0

        return traced_overlapped if most else overlapped, fold

    def __call__(self, name: str) -> TimedPhase:
        """Add the time of the block to the phase `name`."""
        try:
            return self._phases[name]
        except KeyError:
            made = (
                TracedPhase(name, self._seconds, self.spans, self.traced)
                if self.traced
                else TimedPhase(name, self._seconds)
            )
            return self._phases.setdefault(name, made)

    def mark(self, step: int) -> None:
        """Record the end of a step."""
        if len(self.steps) < self.traced:
            self.steps.append((step, perf_counter()))

    def reset(self) -> None:
        """Forget all times, as after warm-up steps that compile the kernels."""
        self._fold()
        self._seconds.clear()
        self.spans.clear()
        self.steps.clear()
        if self.waits is not None:
            self.waits.reset()


def t_eff(nbytes: float, seconds: float) -> float:
    """Effective memory throughput in GB/s: the bytes that must move (each input read once, each output written once)
    over the time (Räss et al. 2022, ImplicitGlobalGrid / ParallelStencil).
    """
    return nbytes / seconds / 1e9
