"""The measured peaks of the node that a run was on: from the run, from the user's cache, or measured now."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from pathlib import Path
from typing import Any

from hpckit.io.files import replace_file
from hpckit.run.directory import RunDirectory
from hpckit.run.peaks import SCHEMA, best_of, cores, cpu_name, measure

Record = dict[str, Any]
KEPT = "machine.json"  # in the run directory


def machine_of(directory: RunDirectory) -> Record:
    """The peaks of as many cores as the run had on each of its nodes, `{"host", "nodes", "peaks"}`, or `{"reason"}`.

    What was measured is kept in the run directory. A measurement takes about a second, once for each host and number of
    cores, and again where other processes disturbed it.
    """
    kept = directory.read_json(KEPT)
    if isinstance(kept, dict) and kept.get("peaks", {}).get("schema") == SCHEMA:
        return kept
    wanted = cores_of(directory.read_json("provenance.json") or {}, directory.read_json("summary.json") or {})
    if "reason" in wanted:
        return wanted
    peaks = find_peaks(wanted["host"], wanted["threads"])
    if "reason" in peaks:
        return peaks
    record = {"host": wanted["host"], "nodes": wanted["nodes"], "peaks": peaks}
    if peaks["undisturbed"]:
        with contextlib.suppress(OSError):  # a run directory that may only be read has a roofline too
            directory.write_json(KEPT, record)
    return record


def cores_of(provenance: Record, summary: Record) -> Record:
    """Host, cores in use on it and number of nodes of a run, or the reason why its peaks say nothing."""
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


def find_peaks(host: str, threads: int) -> Record:
    """The peaks of `threads` cores of a host: from the user's cache, or measured where this is that host."""
    known = read_cache(host).get(str(threads))
    here = host == socket.gethostname()
    sound = known if isinstance(known, dict) and known.get("schema") == SCHEMA else {}
    if sound and (not here or (sound["cpu"] == cpu_name() and sound["undisturbed"])):
        return sound
    if not here:
        return {"reason": f"the run was on {host}; measure there with: hpckit bench machine"}
    if threads > cores():
        return {"reason": f"the run had {threads} cores of this host, and {cores()} may be used now"}
    return keep(host, measure(threads))


def cache_file(host: str) -> Path:
    """Where the peaks of a host are kept: below XDG_CACHE_HOME, else ~/.cache."""
    folder = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(folder) / "hpckit" / f"machine-{re.sub(r'[^A-Za-z0-9.-]', '_', host)}.json"


def read_cache(host: str) -> Record:
    """What is kept of a host: peaks by number of threads; {} for nothing or what cannot be read."""
    try:
        record = json.loads(cache_file(host).read_text())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def keep(host: str, peaks: Record) -> Record:
    """Put peaks into the user's cache, where it can be written; returns the best known of each."""
    path, number = cache_file(host), str(peaks["threads"])
    known = read_cache(host)
    before = known.get(number)
    if isinstance(before, dict) and all(before.get(name) == peaks[name] for name in ("schema", "cpu")):
        peaks = best_of(peaks, before)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps({**known, number: peaks}, indent=1).encode())
    return peaks
