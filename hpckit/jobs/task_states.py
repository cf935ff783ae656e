"""Where each task of a graph stands, by what is on disk."""

from __future__ import annotations

import os
import time
from pathlib import Path

from hpckit.jobs.graph.graph import Graph
from hpckit.jobs.graph.state import ATTEMPT, FAILED, GraphState, read_json


def task_states(graph: Graph, state: GraphState) -> dict[str, str]:
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


def stragglers(graph: Graph, state: GraphState, known: dict[str, str]) -> list[str]:
    """The running tasks that have taken longer than they may before a second copy is started."""
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
    """An attempt that may be at work: not one that failed, and not one of a process of this machine that is gone."""
    about = read_json(work / ATTEMPT)
    if about is None or (work / FAILED).exists():
        return False
    try:
        os.kill(int(about["pid"]), 0)
    except ProcessLookupError:
        return about["host"] != os.uname().nodename
    except OSError:
        pass
    return True
