"""Streams of a simulated GPU: work is put off until something waits for it, so that a missing wait shows.

Work given to the default stream is done at once. In any other stream it lies until an event after it is waited for, by
the host or by a stream that then does work: of all the orders that a GPU may choose, the latest.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self


class SimulatedStream:
    """A queue of calls; `with stream:` makes it the one that work is given to."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], object]] = []
        self.given = self.done = 0
        _streams.append(self)

    def give(self, call: Callable[[], object]) -> None:
        """Do the call in its turn."""
        self._waiting.append(call)
        self.given += 1
        if self is _streams[0]:
            self.run()

    def run(self, stop: int | None = None) -> None:
        """Do what it was given, or the first `stop` calls of it."""
        while self._waiting and (stop is None or self.done < stop):
            self.done += 1
            self._waiting.pop(0)()

    def wait_event(self, event: SimulatedEvent) -> None:
        """What is given to it from now on comes after what the event marks now."""
        stream, stop = event.stream, event.stop
        self.give(lambda: stream.run(stop))

    def __enter__(self) -> Self:
        _current.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.pop()


class SimulatedEvent:
    """A mark behind what a stream was given."""

    def __init__(self) -> None:
        self.stream, self.stop = _streams[0], 0

    def record(self, stream: SimulatedStream) -> None:
        """Mark this place."""
        self.stream, self.stop = stream, stream.given

    def synchronize(self) -> None:
        """Return when all before the mark is done."""
        self.stream.run(self.stop)

    @property
    def done(self) -> bool:
        """Whether all before the mark is done."""
        return self.stream.done >= self.stop


_streams: list[SimulatedStream] = []
_current: list[SimulatedStream] = [SimulatedStream()]


def current_stream() -> SimulatedStream:
    """The stream that work is given to."""
    return _current[-1]


def wait_for_all() -> None:
    """Do all work of all streams."""
    for stream in _streams:
        stream.run()
