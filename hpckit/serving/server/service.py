"""An engine behind an event loop: requests come from many clients, and a thread of its own runs the steps."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from hpckit.errors import HpckitError
from hpckit.serving.engine import Engine
from hpckit.serving.events import Event
from hpckit.serving.sampler import Sampling

LOOK = 0.25  # s between looks whether a client that waits is still there, or the ranks of an idle engine
BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Overload(Exception):
    """No room for another request; `seconds` is when to ask again."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no room for another request; ask again in {seconds:.0f} s")
        self.seconds = seconds


class Failed(Exception):
    """The engine has ended."""


class Histogram:
    """A histogram of seconds in BUCKETS, as Prometheus takes it."""

    def __init__(self) -> None:
        self.counts, self.total, self.count = [0] * len(BUCKETS), 0.0, 0

    def add(self, seconds: float) -> None:
        """One more."""
        self.count += 1
        self.total += seconds
        for n, limit in enumerate(BUCKETS):
            self.counts[n] += seconds <= limit


class Service:
    """Runs the steps of an engine in a thread, from `start` until `stop`.

    waiting: most requests that wait; more are refused (`Overload`). `failed`: why the engine has ended by itself, and
    `problem` the exception; `on_failure` is called then.
    """

    def __init__(self, engine: Engine, waiting: int = 256) -> None:
        self.engine, self._most = engine, waiting
        self.failed = ""
        self.problem: BaseException | None = None
        self.on_failure: Callable[[], object] = lambda: None
        self.draining = False
        self.first, self.whole = Histogram(), Histogram()  # seconds to the first token, and to the last
        self.refused = 0
        self._changed = threading.Condition()
        self._inbox: list[Callable[[], object]] = []
        self._stopping = False
        self._queues: dict[str, asyncio.Queue[Event | None]] = {}
        self._thread = threading.Thread(target=self._run, name="hpckit engine", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Start the thread; called in the event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """Stop once nothing is under way, on all ranks."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    @property
    def waiting(self) -> int:
        """Texts that wait for their first step."""
        return len(self.engine.scheduler.waiting) + len(self._inbox)

    def require_room(self) -> None:
        """Raise `Overload` if too many requests wait, `Failed` if the engine has ended or ends."""
        if self.failed or self.draining:
            raise Failed(self.failed or "the server is shutting down")
        if self.waiting >= self._most:
            self.refused += 1
            each = self.whole.total / self.whole.count if self.whole.count else 1.0
            raise Overload(max(1.0, each * self.waiting / self.engine.scheduler.texts))

    async def ask(
        self,
        name: str,
        prompts: Sequence[Sequence[int]],
        way: Sequence[Sampling],
        gone: Callable[[], Awaitable[bool]],
        *,
        priority: int = 0,
        salt: str = "",
    ) -> AsyncIterator[tuple[int, Event]]:
        """(number of the prompt, what a step brought) until all samples end. `gone`: whether the client hung up.

        A request that is left before its end frees its blocks.
        """
        begin, seen = time.monotonic(), False
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        names = {f"{name}-{n}": n for n in range(len(prompts))}
        left = {(each, sample) for each, n in names.items() for sample in range(way[n].n)}
        self._queues |= dict.fromkeys(names, queue)

        def add() -> None:
            for each, n in names.items():
                self.engine.add(prompts[n], way[n], name=each, priority=priority, salt=salt)

        def abort() -> None:
            for each in names:
                self.engine.abort(each)

        self._do(add)
        try:
            while left:
                try:
                    event = await asyncio.wait_for(queue.get(), LOOK)
                except TimeoutError:
                    if await gone():
                        return
                    continue
                if event is None:
                    raise Failed(self.failed)
                if not seen:
                    seen = True
                    self.first.add(time.monotonic() - begin)
                if event.reason:
                    left.discard((event.request, event.sample))
                yield names[event.request], event
            self.whole.add(time.monotonic() - begin)
        finally:
            for each in names:
                self._queues.pop(each, None)
            if left:
                self._do(abort)

    def _do(self, action: Callable[[], object]) -> None:
        with self._changed:
            self._inbox.append(action)
            self._changed.notify()

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    while not self._inbox and self.engine.idle and not self._stopping:
                        self._changed.wait(LOOK)
                        self.engine.team.check()
                    actions, self._inbox = self._inbox, []
                    if self._stopping and not actions and self.engine.idle:
                        break
                for action in actions:
                    action()
                events = self.engine.step()
                if events:
                    self._tell(events)
            self.engine.close()
        except BaseException as problem:  # the thread is all there is: who waits must hear of it
            told = problem.message if isinstance(problem, HpckitError) else f"{type(problem).__name__}: {problem}"
            self.failed, self.problem = f"the engine has ended: {told}", problem
            self._tell([None])
            self.on_failure()

    def _tell(self, events: Sequence[Event | None]) -> None:
        def deliver() -> None:
            for event in events:
                for queue in list(self._queues.values()) if event is None else [self._queues.get(event.request)]:
                    if queue is not None:
                        queue.put_nowait(event)

        assert self._loop is not None
        self._loop.call_soon_threadsafe(deliver)


def metrics(service: Service) -> str:
    """The state of a service in the text format of Prometheus."""
    engine, counters = service.engine, service.engine.counters
    gauges = {
        "requests_running": ("texts in the last step", len(engine.scheduler.running)),
        "requests_waiting": ("texts that wait", service.waiting),
        "blocks_used": ("blocks of keys and values with an owner", engine.blocks.used),
        "blocks": ("blocks of keys and values", engine.blocks.count),
        "blocks_known": ("blocks that other texts may find", engine.blocks.known),
    }
    totals = {
        "steps": ("steps", counters.steps),
        "step_seconds": ("seconds in steps", counters.seconds),
        "prompt_tokens": ("tokens of prompts that were computed", counters.prompt_tokens),
        "prompt_tokens_found": ("tokens of prompts that were there already", counters.found_tokens),
        "generation_tokens": ("tokens that were written", counters.written_tokens),
        "guesses": ("tokens that were guessed", counters.drafts),
        "guesses_accepted": ("guesses that were right", counters.accepted),
        "preemptions": ("texts that lost their blocks", engine.scheduler.preemptions),
        "moves": ("texts that went on at another replica", engine.scheduler.moves),
        "requests_finished": ("samples that came to their end", counters.finished),
        "requests_aborted": ("samples whose client hung up", counters.aborted),
        "requests_refused": ("requests that found no room", service.refused),
    }
    lines = []
    for kind, named in (("gauge", gauges), ("counter", totals)):
        for name, (told, value) in named.items():
            full = f"hpckit_{name}{'_total' if kind == 'counter' else ''}"
            lines += [f"# HELP {full} {told}", f"# TYPE {full} {kind}", f"{full} {value:.10g}"]
    for name, times in (("first_token_seconds", service.first), ("request_seconds", service.whole)):
        lines += [f"# HELP hpckit_{name} seconds", f"# TYPE hpckit_{name} histogram"]
        pairs = [*zip(map(str, BUCKETS), times.counts, strict=True), ("+Inf", times.count)]
        lines += [f'hpckit_{name}_bucket{{le="{limit}"}} {count}' for limit, count in pairs]
        lines += [f"hpckit_{name}_sum {times.total:.10g}", f"hpckit_{name}_count {times.count}"]
    return "\n".join(lines) + "\n"
