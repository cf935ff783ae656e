"""Of the processes that need a kernel at once, one compiles it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numba.core.compiler_lock import global_compiler_lock

from hpckit.kernels.compile.compile_lock import HEAD_START, POLL, CompileLock
from hpckit.kernels.compile.jit import jit

PROGRAM = """
import sys
import numpy as np
from hpckit.kernels.compile.jit import jit

@jit
def inner(a, i):
    return np.sin(a[i]) + np.cos(a[i]) ** 2

@jit
def outer(a):
    total = 0.0
    for i in range(a.size):
        total += inner(a, i) * np.exp(-a[i]) + np.log1p(a[i])
    return total

if sys.argv[1:] == ["fail"]:
    @jit
    def broken(a):
        return a.no_such_thing
    for kernel in (broken, broken, outer):
        try:
            kernel(np.ones(3))
        except Exception as error:
            print(type(error).__name__)
else:
    print("ready", flush=True)
    sys.stdin.readline()
    outer(np.ones(3))
    print(sum(outer.stats.cache_misses.values()), sum(inner.stats.cache_hits.values()))
"""


@pytest.fixture
def start(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def it(*words: object) -> subprocess.Popen:
        command = [sys.executable, program, *map(str, words)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return subprocess.Popen(command, env=environment, text=True, **pipes)

    return it


def counts_of(processes: list[subprocess.Popen]) -> list[list[str]]:
    """What they compile when all of them begin at once."""
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    return [process.communicate(timeout=360)[0].split() for process in processes]


def test_one_of_four_processes_compiles(start):
    processes = [start() for _ in range(4)]
    compiled = counts_of(processes)
    kept = list(Path(processes[0].args[1]).parent.glob("cache/*/*.nbc"))
    assert len(kept) == 1  # the kernel that is called is a part of it
    # A process that waited looks into the cache once more; Numba counts a miss only where it compiles.
    assert sorted(outer for outer, _ in compiled) == ["0", "0", "0", "1"]


def test_a_kernel_that_does_not_compile_leaves_no_lock(start):
    assert start("fail").communicate(timeout=360)[0].split() == ["TypingError", "TypingError"]
    assert counts_of([start()]) == [["0", "0"]]


def test_the_lock_is_held_by_one_and_free_when_its_holder_is_gone(tmp_path):
    path = tmp_path / "folder" / "kernel.lock"
    code = f"""
import sys, time
from pathlib import Path
from hpckit.kernels.compile.compile_lock import HEAD_START, POLL, CompileLock
lock = CompileLock(Path({str(path)!r}))
print(lock.take(), lock.take(), flush=True)
time.sleep(600)
"""
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline().split() == ["True", "True"]
    lock = CompileLock(path)
    assert not lock.take(patience=0.1)
    holder.kill()
    holder.wait()
    assert lock.take(patience=5)
    lock.release()
    os.remove(path)
    path.symlink_to("elsewhere")
    assert not lock.take()


def test_who_compiled_the_last_kernel_goes_first(tmp_path, monkeypatch):
    """It has at hand what kernels call. A process that waited comes a moment later to the next; then they are even."""
    slept, meanwhile = [], []

    def sleep(seconds):
        slept.append(seconds)
        meanwhile.pop(0)()

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(CompileLock, "follows", False)
    own = [CompileLock(tmp_path / name) for name in "abc"]
    others = [open(lock.path, "w") for lock in own]  # noqa: SIM115 - another process closes them
    fcntl.flock(others[0], fcntl.LOCK_EX)
    meanwhile += [others[0].close, lambda: fcntl.flock(others[1], fcntl.LOCK_EX), others[1].close, others[2].close]
    assert [lock.take() for lock in own] == [True] * 3
    assert slept == [POLL, HEAD_START, POLL, HEAD_START]
    own[0].release()
    assert own[0].take()
    assert len(slept) == 4
    for lock in own:
        lock.release()


def test_a_thread_releases_the_lock_before_another_may_take_it(monkeypatch):
    held = []
    monkeypatch.setattr(CompileLock, "release", lambda self: held.append(global_compiler_lock.is_locked()))

    @jit
    def doubled(a):
        return 2 * a[0]

    assert doubled(np.ones(1)) == 2
    assert held
    assert all(held)
