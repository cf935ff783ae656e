"""Streams of a simulated GPU: work is deferred until something waits for it, so that a missing wait shows.

The default stream works at once. Any other stream defers its work until the host, or a stream that then works, waits
for a later event: of all the orders that a GPU may choose, the latest.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self


class SimulatedStream:
    """A queue of calls; `with stream:` makes it the current stream."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], object]] = []
        self.given = self.done = 0
        _streams.append(self)

    def give(self, call: Callable[[], object]) -> None:
        """Queue a call; the default stream runs it at once."""
        self._waiting.append(call)
        self.given += 1
        if self is _streams[0]:
            self.run()

    def run(self, stop: int | None = None) -> None:
        """Run the queued calls, or the first `stop` of them."""
        while self._waiting and (stop is None or self.done < stop):
            self.done += 1
            self._waiting.pop(0)()

    def wait_event(self, event: SimulatedEvent) -> None:
        """Make later work of this stream wait for the work that the event marks now."""
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
    """A mark after the work queued in a stream."""

    def __init__(self) -> None:
        self.stream, self.stop = _streams[0], 0

    def record(self, stream: SimulatedStream) -> None:
        """Mark this place."""
        self.stream, self.stop = stream, stream.given

    def synchronize(self) -> None:
        """Return when all work before the mark is done."""
        self.stream.run(self.stop)

    @property
    def done(self) -> bool:
        """Whether all work before the mark is done."""
        return self.stream.done >= self.stop


_streams: list[SimulatedStream] = []
_current: list[SimulatedStream] = [SimulatedStream()]


def current_stream() -> SimulatedStream:
    """The current stream."""
    return _current[-1]


def wait_for_all() -> None:
    """Do all work of all streams."""
    for stream in _streams:
        stream.run()
