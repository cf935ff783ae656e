"""The state of a graph on disk: records of done tasks, attempts, failures. Every file appears whole or not at all.

.hpckit-graph/NAME/
  lock                      held by the driver and by every task that it started
  records/TASK.json         key of a done task, hashes of its outputs, seconds, attempt
  failures/TASK.json        key, exit code and log of a task that failed for good
  journal.jsonl             a line for each attempt that has ended: when and where it ran, and how it ended
  work/TASK-001/            the folder of an attempt; attempt.json, log; done.json once all outputs are complete
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hpckit.errors import InputError
from hpckit.jobs.graph.graph import TaskGraph, sha256_of
from hpckit.plan.inputs.text import parse_json, read_bytes

FOLDER, JOURNAL = ".hpckit-graph", "journal.jsonl"
LOG, ATTEMPT, DONE, FAILED = "log", "attempt.json", "done.json", "failed"  # FAILED keeps an attempt for its log
LOCK_SECONDS = 10.0  # for the tasks of a killed driver to end


class GraphState:
    """The folder with the state of one graph."""

    def __init__(self, graph: TaskGraph) -> None:
        self.graph = graph
        self.folder = graph.folder / FOLDER / graph.name
        self._known: dict[Path, tuple[tuple[int, int, int], str]] = {}

    def make(self) -> None:
        """Make the folders. Raises `InputError` if one of them is a link: it is deleted from."""
        own = [self.folder / name for name in ("records", "failures", "work")]
        for path in (self.folder.parent, self.folder, *own):
            if path.is_symlink():
                raise InputError(f"{path} is a link", do="put the folder itself here")
        for path in own:
            path.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def locked(self, seconds: float = LOCK_SECONDS) -> Iterator[int]:
        """Hold the lock of the graph's only driver; yields its descriptor, which the tasks inherit.

        Raises `InputError` if another driver, or a task of a killed one, still holds it.
        """
        self.make()
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            deadline = time.monotonic() + seconds
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise InputError(
                            f"the graph {self.graph.name} is being run already",
                            do="hpckit graph status FILE; wait for it, or end that hpckit graph run",
                        ) from None
                    time.sleep(0.05)
            yield lock
        finally:
            os.close(lock)

    def record(self, name: str) -> dict[str, Any] | None:
        """The record of a task that was done, or None."""
        return read_json(self.folder / "records" / f"{name}.json")

    def failure(self, name: str) -> dict[str, Any] | None:
        """The record of a task's final failure, or None."""
        return read_json(self.folder / "failures" / f"{name}.json")

    def is_done(self, name: str, key: str) -> bool:
        """Whether the task was done with this key, and its outputs are unchanged."""
        record = self.record(name)
        return record is not None and record["key"] == key and self._outputs_are(record["outputs"])

    def forget_failure(self, name: str) -> None:
        """Remove the leftovers of a task's failed attempts, before a new try."""
        for work in self.attempts(name):
            if (work / FAILED).exists():
                self.clear(work)
        (self.folder / "failures" / f"{name}.json").unlink(missing_ok=True)

    def fail(self, name: str, key: str, code: int, work: Path) -> None:
        """Record the final failure of a task."""
        (work / FAILED).touch()
        write_json(
            self.folder / "failures" / f"{name}.json",
            {"key": key, "exit_code": code, "log": str(work / LOG), "time": time.time()},
        )

    def note(self, about: Mapping[str, Any], how: str, **more: Any) -> None:
        """Write down the end of an attempt in the journal: what is known of it, `how` it ended, and more facts."""
        told = {name: about[name] for name in ("task", "host", "started")}
        told |= {"slots": self.graph.tasks[about["task"]].slots, "ended": about.get("ended", time.time()), "how": how}
        line = json.dumps({**told, **more})
        with open(self.folder / JOURNAL, "a", encoding="utf-8") as file:  # one write a line: jobs may write at once
            file.write(line + "\n")

    def journal(self) -> list[dict[str, Any]]:
        """The attempts that have ended, in this order."""
        try:
            lines = (self.folder / JOURNAL).read_text(encoding="utf-8").splitlines()
        except OSError:
            return []
        found = []
        for line in lines:
            with contextlib.suppress(ValueError):  # a line that a full disk cut
                found.append(json.loads(line))
        return found

    def bytes_of(self, path: str) -> int:
        """The size of a file or folder of the graph; that of the last time where it is not there, 0 if not known."""
        try:
            return _bytes(self.graph.folder / path)
        except OSError:
            maker = self.graph.maker.get(path, "")
            return int(((self.record(maker) or {}).get("bytes") or {}).get(path, 0))

    def home(self, name: str) -> str:
        """The task that made most bytes of the inputs of a task, by known sizes; '' if no task did."""
        made = {parent: 0 for parent in self.graph.parents[name] if parent not in self.graph.tasks[name].after}
        for path in self.graph.tasks[name].reads:
            if (maker := self.graph.maker.get(path)) in made:
                made[maker] += self.bytes_of(path)
        return max(made, key=made.__getitem__, default="")

    def begin(self, name: str, key: str, host: str = "") -> Path:
        """A new folder for an attempt on a host (this one), with links to the inputs at their places."""
        number = 1 + max((int(path.name.rpartition("-")[2]) for path in self.attempts(name)), default=0)
        while True:
            work = self.folder / "work" / f"{name}-{number:03d}"
            try:
                work.mkdir()
                break
            except FileExistsError:
                number += 1
        task = self.graph.tasks[name]
        made_by_run = tuple(path for path in task.outputs if task.run and path.startswith(f"{name}/"))
        for path in (*task.reads, *(path for path in task.outputs if path not in made_by_run)):
            (work / path).parent.mkdir(parents=True, exist_ok=True)
        for path in task.reads:
            (work / path).symlink_to(self.graph.folder / path)
        about = {
            "task": name,
            "key": key,
            "host": host or socket.gethostname(),
            "driver": socket.gethostname(),
            "pid": os.getpid(),
            "started": time.time(),
        }
        write_json(work / ATTEMPT, about)
        return work

    def attempts(self, name: str) -> list[Path]:
        """The folders of the attempts of a task, the newest last."""
        found = self.folder.glob(f"work/{name}-*")
        return sorted(path for path in found if path.name[len(name) + 1 :].isdigit())

    def complete(self, work: Path, seconds: float) -> list[str]:
        """Mark the attempt's folder as complete; if outputs are missing, return them instead."""
        about = read_json(work / ATTEMPT) or {}
        outputs = self.graph.tasks[about["task"]].outputs
        missing = [path for path in outputs if not (work / path).exists() or (work / path).is_symlink()]
        if not missing:
            hashes = {path: sha256_of(work / path) for path in outputs}
            sizes = {path: _bytes(work / path) for path in outputs}
            write_json(
                work / DONE, {**about, "outputs": hashes, "bytes": sizes, "seconds": seconds, "ended": time.time()}
            )
        return missing

    def publish(self, work: Path) -> None:
        """Move the outputs of a complete attempt to their places, and put the task on record.

        It may be interrupted anywhere and repeated. If another copy of the task was first, that copy's outputs stay.
        """
        done = read_json(work / DONE)
        assert done is not None, work
        name = done["task"]
        with self._one_at_a_time(name):
            if not self.is_done(name, done["key"]):
                for path in self._moved(name):
                    if (work / path).exists():
                        target = self.graph.folder / path
                        target.parent.mkdir(parents=True, exist_ok=True)
                        if target.is_dir() and not target.is_symlink():
                            os.rename(target, work / f"old-{secrets.token_hex(4)}")
                        os.replace(work / path, target)
                if self._outputs_are(done["outputs"]):
                    write_json(self.folder / "records" / f"{name}.json", {**done, "attempt": work.name})
                    self.forget_failure(name)
        self.clear(work)

    def recover(self, name: str, key: str) -> bool:
        """Publish an attempt that was complete when its driver was killed, if there is one; clear all others."""
        for work in self.attempts(name):
            done = read_json(work / DONE)
            if done is not None and done["key"] == key and not self.is_done(name, key):
                self.publish(work)
                self.note(done, "done")
        for work in self.attempts(name):
            if not (work / FAILED).exists():
                self.clear(work)
        return self.is_done(name, key)

    def clear(self, work: Path) -> None:
        """Remove the folder of an attempt."""
        shutil.rmtree(work, ignore_errors=True)

    def _moved(self, name: str) -> list[str]:
        """The names to move out of an attempt's folder: its outputs, or the run's folder with outputs in it."""
        task = self.graph.tasks[name]
        if not task.run:
            return list(task.outputs)
        return [name, *(path for path in task.outputs if path != name and not path.startswith(f"{name}/"))]

    def _outputs_are(self, hashes: dict[str, str]) -> bool:
        return all(self._hash(self.graph.folder / path) == digest for path, digest in hashes.items())

    def _hash(self, path: Path) -> str | None:
        """The hash of a file's content, recomputed only if the file looks changed; None without the file."""
        try:
            if path.is_dir():
                return sha256_of(path)
            status = path.stat()
            look = (status.st_ino, status.st_size, status.st_mtime_ns)
            if self._known.get(path, ((), ""))[0] != look:
                self._known[path] = (look, sha256_of(path))
            return self._known[path][1]
        except OSError:
            return None

    @contextlib.contextmanager
    def _one_at_a_time(self, name: str) -> Iterator[None]:
        lock = os.open(self.folder / "records" / f".{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _bytes(path: Path) -> int:
    """The size of a file, or of all files in a folder; raises `OSError` if there is none."""
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if there is no complete one."""
    try:
        value = parse_json(read_bytes(path, "the record"))
    except (InputError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Replace a file by an object, on disk when this returns."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def task_states(graph: TaskGraph, state: GraphState) -> dict[str, str]:
    """done, changed (done once, from other inputs), running, failed, ready, waiting or skipped, for each task."""
    found: dict[str, str] = {}
    for name in graph.order:
        if any(found[parent] != "done" for parent in graph.parents[name]):
            failed = any(found[parent] in ("failed", "skipped") for parent in graph.parents[name])
            found[name] = "skipped" if failed else "waiting"
            continue
        key = graph.key(name)
        if state.is_done(name, key):
            found[name] = "done"
        elif (state.failure(name) or {}).get("key") == key:
            found[name] = "failed"
        elif any(_is_alive(work) for work in state.attempts(name)):
            found[name] = "running"
        else:
            found[name] = "ready" if state.record(name) is None else "changed"
    return found


def stragglers(graph: TaskGraph, state: GraphState, known: dict[str, str]) -> list[str]:
    """The running tasks that have passed their time limit for starting a second copy."""
    found = []
    for name in graph.order:
        most = graph.tasks[name].twice_after
        if known[name] == "running" and most:
            works = [read_json(work / ATTEMPT) for work in state.attempts(name) if _is_alive(work)]
            begun = max((work["started"] for work in works if work), default=time.time())
            if time.time() - begun > most:
                found.append(name)
    return found


def _is_alive(work: Path) -> bool:
    """Whether an attempt may be running: it has not failed, and its driver, if on this machine, is alive."""
    about = read_json(work / ATTEMPT)
    if about is None or (work / FAILED).exists():
        return False
    try:
        os.kill(int(about["pid"]), 0)
    except ProcessLookupError:
        return about["driver"] != socket.gethostname()
    except OSError:
        pass
    return True
