"""The peaks of this node, measured: bytes/s from memory and from each cache, and floating-point operations/s.

Compiled loops run on as many threads as there are cores to be measured, each on arrays of its own; the best of several
rounds counts. In all about a second, and never while something else is timed.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.kernels.peaks.reference import CHAIN_FLOPS, COPY_BYTES, TRIAD_BYTES
from hpckit.kernels.peaks.simd import copy, multiply_add, triad

Record = dict[str, Any]
SCHEMA = 1
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
MEMORY_BYTES = 192 << 20  # of all arrays together, at least; and four times the last cache
MOST_BYTES = 1 << 30
ROUNDS = 5
OWN_CORE = 0.9  # of the time: a thread that had less shared its core
SHORT = 2e-3  # s that a round in a cache lasts
CHAIN_ELEMENTS = 1024  # 8 KiB: the chain stays in the first cache


def measure(threads: int) -> Record:
    """Peaks of `threads` cores working at once.

    `copy` and `triad`: GB/s from memory, counted as STREAM does; `caches`: GB/s of the triad by level, as far as the
    system tells their sizes; `flops`: GFLOP/s of multiply-adds in double precision; `undisturbed`: no other process had
    a part of these cores in the rounds that count.
    """
    sizes, shares = cache_sizes(), list[float]()
    _warm_up()
    last = max(sizes.values(), default=32 << 20)
    each = min(max(MEMORY_BYTES, 4 * last), MOST_BYTES) // (3 * 8 * threads)
    arrays = [tuple(np.ones(each) for _ in range(3)) for _ in range(threads)]
    record: Record = {
        "schema": SCHEMA,
        "cpu": cpu_name(),
        "threads": threads,
        "copy": _rate(COPY_BYTES * each, [_copying(a) for a in arrays], shares),
        "triad": _rate(TRIAD_BYTES * each, [_triads(a, 1) for a in arrays], shares),
        "caches": {},
    }
    del arrays
    for level, nbytes in sizes.items():
        own = nbytes if level in ("L1", "L2") else nbytes // threads  # larger ones are shared by cores
        record["caches"][level] = _in_cache(threads, own // 2, shares)
    elements = [np.ones(CHAIN_ELEMENTS) for _ in range(threads)]
    repeats = 200
    work = [functools.partial(multiply_add, x, 0.999999, 1e-6, repeats) for x in elements]
    record["flops"] = _rate(CHAIN_FLOPS * CHAIN_ELEMENTS * repeats, work, shares)
    return {**record, "undisturbed": min(shares) > OWN_CORE}


def best_of(one: Record, other: Record) -> Record:
    """The higher of each peak of two measurements of the same cores."""
    levels = {**one["caches"], **other["caches"]}
    return {
        **one,
        **{name: max(one[name], other[name]) for name in ("copy", "triad", "flops")},
        "caches": {level: max(it["caches"].get(level, 0.0) for it in (one, other)) for level in levels},
        "undisturbed": one["undisturbed"] or other["undisturbed"],
    }


def cache_sizes(folder: Path = CACHES) -> dict[str, int]:
    """Bytes of the caches of a core that hold data, `L1` first; {} where the system does not tell."""
    found = {}
    for index in sorted(folder.glob("index*")):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        number = re.fullmatch(r"(\d+)([KM])", size)
        if kind != "Instruction" and number:
            found[f"L{level}"] = int(number.group(1)) << (10 if number.group(2) == "K" else 20)
    return found


def cpu_name() -> str:
    """The model of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _in_cache(threads: int, nbytes: int, shares: list[float]) -> float:
    """GB/s of the triad on arrays of `nbytes` together on each thread."""
    n = max(64, nbytes // (3 * 8) // 8 * 8)
    arrays = [tuple(np.ones(n) for _ in range(3)) for _ in range(threads)]
    begin = time.perf_counter()
    triad(*arrays[0], 1.0, 100)
    once = (time.perf_counter() - begin) / 100
    repeats = max(1, int(SHORT / max(once, 1e-9)))
    return _rate(TRIAD_BYTES * n * repeats, [_triads(a, repeats) for a in arrays], shares)


def _copying(arrays: Sequence[np.ndarray]) -> Callable[[], None]:
    return lambda: copy(arrays[0], arrays[1], 1)


def _triads(arrays: Sequence[np.ndarray], repeats: int) -> Callable[[], None]:
    return lambda: triad(arrays[0], arrays[1], arrays[2], 0.5, repeats)


def _rate(amount: int, work: Sequence[Callable[[], None]], shares: list[float]) -> float:
    """Billions a second of `amount` a thread, all threads at once; the best of the rounds.

    The part of its time in which the slowest thread of that round had a core goes to `shares`.
    """
    seconds, share = min(_together(work) for _ in range(ROUNDS))
    shares.append(share)
    return amount * len(work) / seconds / 1e9


def _together(work: Sequence[Callable[[], None]]) -> tuple[float, float]:
    """Seconds from the first start to the last end of one call on each thread, and the least share of a core."""
    barrier = threading.Barrier(len(work))
    spans: list[tuple[float, float, float]] = []

    def run(call: Callable[[], None]) -> None:
        barrier.wait()
        begin, used = time.perf_counter(), time.thread_time()
        call()
        used, end = time.thread_time() - used, time.perf_counter()
        spans.append((begin, end, used / (end - begin)))

    threads = [threading.Thread(target=run, args=(call,)) for call in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    begins, ends, shares = zip(*spans, strict=True)
    return max(ends) - min(begins), min(shares)


def _warm_up() -> None:
    """Compile the loops, or load them."""
    a = np.ones(8)
    copy(a.copy(), a, 1)
    triad(a.copy(), a, a.copy(), 1.0, 1)
    multiply_add(a, 1.0, 0.0, 1)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0))
