"""Drives a graph under a budget of cores: starts what is ready, tries again, starts copies, stops at failures.

All state is on disk, too: a killed driver takes its tasks with it, and the next one finds the finished work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hpckit.jobs.graph.graph import TaskGraph
from hpckit.jobs.graph.state import ATTEMPT, FAILED, LOG, GraphState, read_json

POLL_SECONDS = 0.02
LOOK_SECONDS = 1.0
LONGEST_BACKOFF = 600.0  # s
TAIL_LINES = 5  # of the log of a failure


class Running(Protocol):
    """A running attempt, on any machine."""

    work: Path

    @property
    def seconds(self) -> float:
        """Its running time so far, s."""

    def poll(self) -> int | None:
        """None while it runs; 0 once its outputs are published; else the exit code of its failure."""

    def kill(self) -> None:
        """End it."""


@dataclass
class _Waiting:
    """A task that can start at `when` (monotonic seconds), after so many failures."""

    key: str
    failures: int = 0
    when: float = 0.0


class Driver:
    """One pass through a graph. `start(name, key, host)` begins an attempt; `say` gets a line for each event.

    `hosts` are the cores of each host where the driver can choose; "" stands for the only place there is. A task goes
    to the host that made most bytes of its inputs, if that has room now, and else to another. `near`: how many tasks
    with inputs of other tasks there were, and how many of them ran beside most of those bytes.

    `others`: another driver may run the same task in another job: "copied", this is the first of the two; "copy", it is
    the second, which leaves the first one's files alone, and fails without a record. The first to finish counts.
    """

    def __init__(
        self,
        graph: TaskGraph,
        state: GraphState,
        hosts: Mapping[str, int],
        start: Callable[[str, str, str], Running],
        say: Callable[[str], None] = lambda line: None,
        others: str = "",
    ) -> None:
        self.graph, self.state = graph, state
        self.hosts = {host: max(1, cores) for host, cores in hosts.items()}
        self.near = [0, 0]
        self.outcome: dict[str, str] = {}  # name -> done, kept, failed, skipped
        self._start, self._say, self._others = start, say, others
        self._waiting: dict[str, _Waiting] = {}
        self._working: dict[str, _Waiting] = {}  # the running tasks
        self._running: dict[str, list[Running]] = {}
        self._hosts: dict[Path, str] = {}  # of each attempt, by its folder
        self._begun: dict[Path, dict[str, Any]] = {}  # what was written down of it when it began
        self._homes: dict[str, str] = {}  # task -> the task that made most bytes of its inputs
        self._ended: list[str] = []  # the tasks done here, in order
        self._depth = _depths(graph)
        self._look_at = 0.0  # the time of the next look for another driver's results

    def run(self) -> Mapping[str, str]:
        """Run to the end; returns the outcome of every task: "done", "kept" (was done before), "failed", "skipped".

        If it is interrupted, all running tasks end.
        """
        try:
            self._settle()
            while self._waiting or self._running:
                self._begin()
                self._begin_copies()
                if not self._collect():
                    time.sleep(POLL_SECONDS)
            return self.outcome
        finally:
            for name in self._running:
                for attempt in self._running[name]:
                    attempt.kill()
                    self._note(name, attempt, "ended with the driver")

    def _settle(self) -> None:
        """Sort the newly ready tasks into done and to be started; skip tasks that never become ready."""
        for name in self.graph.order:
            if name in self.outcome or name in self._waiting or name in self._running:
                continue
            parents = [self.outcome.get(parent) for parent in self.graph.parents[name]]
            if any(parent in ("failed", "skipped") for parent in parents):
                self.outcome[name] = "skipped"
                self._say(f"{name}: skipped")
            elif all(parent in ("done", "kept") for parent in parents):
                key = self.graph.key(name)
                if self.state.is_done(name, key) or (self._others != "copy" and self.state.recover(name, key)):
                    self.outcome[name] = "kept"
                else:
                    if self._others != "copy":
                        self.state.forget_failure(name)
                    self._waiting[name] = _Waiting(key)
                    self._homes[name] = self.state.home(name)

    def _begin(self) -> None:
        """Start waiting tasks while cores are free: first those that are to be near a task just done, then long chains,
        and among them those whose inputs were just made.
        """
        now = time.monotonic()
        ready = [name for name, waiting in self._waiting.items() if waiting.when <= now]
        for name in sorted(ready, key=self._rank):
            host = self._host(name)
            if host is not None:
                waiting = self._waiting.pop(name)
                self._working[name] = waiting
                self._running[name] = []
                self._launch(name, host)
                if not waiting.failures and self._homes[name]:
                    self.near[0] += 1
                    self.near[1] += host == self._made_at(name)
                self._say(f"{name}: started" + (f", try {waiting.failures + 1}" if waiting.failures else ""))

    def _launch(self, name: str, host: str) -> None:
        attempt = self._start(name, self._working[name].key, host)
        self._hosts[attempt.work], self._begun[attempt.work] = host, read_json(attempt.work / ATTEMPT) or {}
        self._running[name].append(attempt)

    def _rank(self, name: str) -> tuple[int, int, int, int]:
        near, home = self.graph.tasks[name].near, self._homes[name]
        fresh, made = (-self._ended.index(task) - 1 if task in self._ended else 0 for task in (near, home))
        return (fresh, -self._depth[name], made, self.graph.order.index(name))

    def _free(self) -> dict[str, int]:
        """The idle cores of each host."""
        free = dict(self.hosts)
        for name, attempts in self._running.items():
            for attempt in attempts:
                free[self._hosts[attempt.work]] -= self.graph.tasks[name].slots
        return free

    def _made_at(self, name: str) -> str:
        """The host that made most bytes of a task's inputs; '' if it is not known, or there is only one place."""
        record = self.state.record(self.graph.tasks[name].near or self._homes[name]) or {}
        return record["host"] if record.get("host") in self.hosts else ""

    def _host(self, name: str) -> str | None:
        """Where to run a task now: beside most of its inputs, or where most cores are idle; None if it does not fit. A
        task that wants more cores than there are runs alone.
        """
        free = self._free()
        slots = self.graph.tasks[name].slots
        fitting = [host for host in free if slots <= free[host]]
        if not fitting and not self._running:
            fitting = list(free)
        home = self._made_at(name)
        return home if home in fitting else max(fitting, key=free.__getitem__, default=None)

    def _begin_copies(self) -> None:
        """Start a second copy of a task that takes too long, if cores are idle and the task allows it. Tasks that still
        wait now want more cores than are idle, or a pause.
        """
        for name, attempts in self._running.items():
            task = self.graph.tasks[name]
            late = task.twice_after and len(attempts) == 1 and attempts[0].seconds > task.twice_after
            free = self._free()
            host = max(free, key=free.__getitem__)
            if late and task.slots <= free[host]:
                self._launch(name, host)
                self._say(f"{name}: takes long, a second copy is started")

    def _collect(self) -> bool:
        """Collect ended attempts; True if there was one."""
        seen = self._others != "" and self._others_were_first()
        for name, attempts in list(self._running.items()):
            for attempt in list(attempts):
                code = attempt.poll()
                if code is None:
                    continue
                seen = True
                attempts.remove(attempt)
                if code == 0:
                    for other in attempts:
                        other.kill()
                        self._note(name, other, "another copy was first")
                        self.state.clear(other.work)
                    del self._running[name]
                    self.outcome[name] = "done"
                    self._ended.append(name)
                    self._note(name, attempt, "done")
                    self._say(f"{name}: done in {attempt.seconds:.1f} s")
                elif attempts:  # the other copy may do better
                    self._note(name, attempt, f"failed ({code})")
                    self.state.clear(attempt.work)
                    continue
                else:
                    del self._running[name]
                    self._failed(name, attempt, code)
                self._settle()
                break
        return seen

    def _others_were_first(self) -> bool:
        """End tasks that another driver has done; True if any. Looks once a second, as the disk may be slow."""
        if time.monotonic() < self._look_at:
            return False
        self._look_at = time.monotonic() + LOOK_SECONDS
        ended = [name for name in self._running if self.state.is_done(name, self._working[name].key)]
        for name in ended:
            for attempt in self._running.pop(name):
                attempt.kill()
                self._note(name, attempt, "another job was first")
                self.state.clear(attempt.work)
            self.outcome[name] = "kept"
            self._say(f"{name}: another job was first")
        return bool(ended)

    def _note(self, name: str, attempt: Running, how: str) -> None:
        """Write the end of an attempt into the journal."""
        home = self._made_at(name) if self._homes.get(name) else ""
        near = {"near": self._hosts[attempt.work] == home} if home else {}
        self.state.note(self._begun[attempt.work], how, **near)

    def _failed(self, name: str, attempt: Running, code: int) -> None:
        waiting = self._working[name]
        task = self.graph.tasks[name]
        (attempt.work / FAILED).touch()
        self._note(name, attempt, f"failed ({code})")
        if waiting.failures < task.retries:
            pause = min(LONGEST_BACKOFF, task.backoff * 2**waiting.failures)
            self._waiting[name] = _Waiting(waiting.key, waiting.failures + 1, time.monotonic() + pause)
            self._say(f"{name}: failed ({code}), tried again in {pause:g} s")
            return
        if self._others != "copy":
            self.state.fail(name, waiting.key, code, attempt.work)
        self.outcome[name] = "failed"
        self._say(failure_words(name, {"exit_code": code, "log": str(attempt.work / LOG)}))


def failure_words(name: str, failure: Mapping[str, Any]) -> str:
    """The report of a recorded failure: exit code, log and its last lines."""
    try:
        tail = Path(failure["log"]).read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
    except OSError:
        tail = []
    return "\n".join([f"{name}: failed ({failure['exit_code']}), {failure['log']}", *(f"    {line}" for line in tail)])


def _depths(graph: TaskGraph) -> dict[str, int]:
    """The length of the longest path of tasks after each one."""
    depth = dict.fromkeys(graph.order, 0)
    for name in reversed(graph.order):
        for parent in graph.parents[name]:
            depth[parent] = max(depth[parent], depth[name] + 1)
    return depth
