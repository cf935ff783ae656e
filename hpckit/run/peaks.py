"""The peaks of this node, measured: bytes/s from memory and from each cache, and floating-point operations/s.

Compiled loops run on one thread per measured core, each on its own arrays; the best of several rounds counts. It takes
about a second in all, and never runs while something else is timed.
"""

from __future__ import annotations

import contextlib
import functools
import json
import platform
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.io.files import replace_file
from hpckit.jobs.process import cores
from hpckit.kernels.peaks.reference import CHAIN_FLOPS, COPY_BYTES, TRIAD_BYTES
from hpckit.run.directory import RunDirectory

Record = dict[str, Any]
SCHEMA = 1
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
MEMORY_BYTES = 192 << 20  # of all arrays together, at least; and at least four times the last cache
MOST_BYTES = 1 << 30
ROUNDS = 5
OWN_CORE = 0.9  # share of the time: a thread below it shared its core
TRIES = 3  # measurements, of which the best counts, on a host that other processes never leave alone
SHORT = 2e-3  # s that a round in a cache lasts
CHAIN_ELEMENTS = 1024  # 8 KiB: the chain stays in the first cache
KEPT = "machine.json"  # in the run directory


def measure(threads: int) -> Record:
    """Peaks of `threads` cores that work at once.

    `copy` and `triad`: GB/s from memory, counted as STREAM does; `caches`: GB/s of the triad by level, as far as the
    system reports their sizes; `flops`: GFLOP/s of multiply-adds in double precision; `undisturbed`: no other process
    used these cores in the rounds that count; `tries`: the measurements of which these are the best.
    """
    from hpckit.kernels.peaks.simd import multiply_add

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
        own = nbytes if level in ("L1", "L2") else nbytes // threads  # cores share larger caches
        record["caches"][level] = _in_cache(threads, own // 2, shares)
    elements = [np.ones(CHAIN_ELEMENTS) for _ in range(threads)]
    repeats = 200
    work = [functools.partial(multiply_add, x, 0.999999, 1e-6, repeats) for x in elements]
    record["flops"] = _rate(CHAIN_FLOPS * CHAIN_ELEMENTS * repeats, work, shares)
    return {**record, "undisturbed": min(shares) > OWN_CORE, "tries": 1}


def best_of(one: Record, other: Record) -> Record:
    """The higher of each peak of two measurements of the same cores."""
    levels = {**one["caches"], **other["caches"]}
    return {
        **one,
        **{name: max(one[name], other[name]) for name in ("copy", "triad", "flops")},
        "caches": {level: max(it["caches"].get(level, 0.0) for it in (one, other)) for level in levels},
        "undisturbed": one["undisturbed"] or other["undisturbed"],
        "tries": one.get("tries", 1) + other.get("tries", 1),
    }


def cache_sizes(folder: Path = CACHES) -> dict[str, int]:
    """Bytes of a core's data caches, `L1` first; {} if the system does not report them."""
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
    _triads(arrays[0], 100)()
    once = (time.perf_counter() - begin) / 100
    repeats = max(1, int(SHORT / max(once, 1e-9)))
    return _rate(TRIAD_BYTES * n * repeats, [_triads(a, repeats) for a in arrays], shares)


def _copying(arrays: Sequence[np.ndarray]) -> Callable[[], None]:
    from hpckit.kernels.peaks.simd import copy

    return lambda: copy(arrays[0], arrays[1], 1)


def _triads(arrays: Sequence[np.ndarray], repeats: int) -> Callable[[], None]:
    from hpckit.kernels.peaks.simd import triad

    return lambda: triad(arrays[0], arrays[1], arrays[2], 0.5, repeats)


def _rate(amount: int, work: Sequence[Callable[[], None]], shares: list[float]) -> float:
    """The best rate of all rounds, in 1e9/s: `amount` per thread, all threads at once.

    Appends to `shares` the fraction of that round in which its slowest thread had a core.
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
    """Compile the loops, or load them. Numba is imported when something is measured: few reports do."""
    from hpckit.kernels.peaks.simd import copy, multiply_add, triad

    a = np.ones(8)
    copy(a.copy(), a, 1)
    triad(a.copy(), a, a.copy(), 1.0, 1)
    multiply_add(a, 1.0, 0.0, 1)


def peaks_of_run(directory: RunDirectory, cache: Path) -> Record:
    """The peaks of the cores that the run used on each node, `{"host", "nodes", "peaks"}`, or `{"reason"}`.

    cache: the folder with the peaks of hosts, `hpckit.settings.config.user_cache`. The result is kept in the run
    directory. A measurement takes about a second, once per host and number of cores, and is repeated by the next
    reports if other processes disturbed it, up to `TRIES` in all.
    """
    kept = directory.read_json(KEPT)
    if isinstance(kept, dict) and kept.get("peaks", {}).get("schema") == SCHEMA:
        return kept
    wanted = cores_of(directory.read_json("provenance.json") or {}, directory.read_json("summary.json") or {})
    if "reason" in wanted:
        return wanted
    peaks = find_peaks(wanted["host"], wanted["threads"], cache)
    if "reason" in peaks:
        return peaks
    record = {"host": wanted["host"], "nodes": wanted["nodes"], "peaks": peaks}
    if peaks["undisturbed"]:
        with contextlib.suppress(OSError):  # a read-only run directory has a roofline too
            directory.write_json(KEPT, record)
    return record


def cores_of(provenance: Record, summary: Record) -> Record:
    """Host, cores in use on it and number of nodes of a run, or the reason why peaks do not apply to it."""
    places = provenance.get("placement") or []
    if not places:
        return {"reason": "the run has not recorded where its ranks were"}
    if str(summary.get("device") or "cpu").lower() not in ("cpu", "none"):
        return {"reason": "the run was on a GPU, and the peaks are those of the processor"}
    hosts: dict[str, list[Record]] = {}
    for place in places:
        hosts.setdefault(str(place.get("host")), []).append(place)
    host, here = next(iter(hosts.items()))
    threads = sum(max(1, int(place.get("threads") or 1)) for place in here)
    allowed = {core for place in here for core in place.get("cores") or []}
    if allowed and threads > len(allowed):
        count = len(here)
        ranks = f"{count} ranks with {threads} threads share" if count > 1 else f"1 rank with {threads} threads shares"
        return {"reason": f"{ranks} {len(allowed)} cores, and a peak is that of a core for each thread"}
    if len({len(group) for group in hosts.values()}) > 1:
        return {"reason": "the nodes of the run had different numbers of ranks"}
    return {"host": host, "threads": threads, "nodes": len(hosts)}


def find_peaks(host: str, threads: int, cache: Path) -> Record:
    """The peaks of `threads` cores of a host: from the cache, or measured if this is the host."""
    known = read_cache(host, cache).get(str(threads))
    here = host == socket.gethostname()
    sound = known if isinstance(known, dict) and known.get("schema") == SCHEMA else {}
    enough = sound and (sound["undisturbed"] or sound.get("tries", 1) >= TRIES)
    if sound and (not here or (sound["cpu"] == cpu_name() and enough)):
        return sound
    if not here:
        return {"reason": f"the run was on {host}; measure there with: hpckit bench machine"}
    if threads > cores():
        return {"reason": f"the run had {threads} cores of this host, and {cores()} may be used now"}
    return keep(host, measure(threads), cache)


def cache_file(host: str, cache: Path) -> Path:
    """The file that keeps the peaks of a host."""
    return cache / f"machine-{re.sub(r'[^A-Za-z0-9.-]', '_', host)}.json"


def read_cache(host: str, cache: Path) -> Record:
    """The kept peaks of a host by number of threads; {} if there are none or the file cannot be read."""
    try:
        record = json.loads(cache_file(host, cache).read_text())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def keep(host: str, peaks: Record, cache: Path) -> Record:
    """Put peaks into the cache if it can be written; returns the best known value of each."""
    path, number = cache_file(host, cache), str(peaks["threads"])
    known = read_cache(host, cache)
    before = known.get(number)
    if isinstance(before, dict) and all(before.get(name) == peaks[name] for name in ("schema", "cpu")):
        peaks = best_of(peaks, before)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps({**known, number: peaks}, indent=1).encode())
    return peaks
