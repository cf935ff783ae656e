"""The use of a run's time: useful steps, checkpoints, steps lost to failures; and the best checkpoint interval."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

from hpckit.errors import InputError
from hpckit.plan.inputs.text import parse_json, read_bytes
from hpckit.report.page import caption, section, table
from hpckit.report.run_data import ATTEMPTS, RunData
from hpckit.report.units import duration, number, percent

Record = dict[str, Any]
DAY = 86400.0
FAILED_SECONDS = DAY  # between failures, where none has been seen


def daly_interval(cost: float, between_failures: float) -> float:
    """Elapsed time between the ends of two checkpoints that loses least, s.

    cost: of a checkpoint, s; between_failures: mean time between failures, s. Daly, Future Generation Computer Systems
    22 (2006) 303, eq. 37, which begins with Young's sqrt(2 cost M) (Communications of the ACM 17 (1974) 530):

        W = sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + (C / 2M) / 9) - C   for C < 2M, else M
    """
    if cost >= 2 * between_failures:
        return between_failures
    part = cost / (2 * between_failures)
    return math.sqrt(2 * cost * between_failures) * (1 + math.sqrt(part) / 3 + part / 9) - cost


def goodput(run: RunData) -> Record | None:
    """Seconds of all attempts: `useful`, `checkpoints`, `lost` and their `total`; `goodput` is useful over total.

    Lost are the steps that an attempt had reported and the next one repeated, at the attempt's speed. None for a run
    without a time loop or checkpoints.
    """
    attempts = [_attempt(path) for path in sorted(run.directory.glob(ATTEMPTS))]
    if not attempts:
        return None
    attempts[-1] |= {key: run.summary[key] for key in ("wall_seconds", "steps", "checkpoints") if key in run.summary}
    if "wall_seconds" not in attempts[-1] and run.progress:
        attempts[-1] |= _told(run.progress)
    total = sum(it.get("wall_seconds") or 0.0 for it in attempts)
    written = [it["checkpoints"] for it in attempts if it.get("checkpoints")]
    if total <= 0 or not written:
        return None
    lost = sum(_lost(before, after) for before, after in pairwise(attempts))
    stall, count = sum(it["stall_seconds"] for it in written), sum(it["count"] for it in written)
    failures = sum(it["failed"] for it in attempts)
    cost, between = stall / count if count else None, total / failures if failures else FAILED_SECONDS
    useful = max(0.0, total - stall - lost)
    return {
        "total": total,
        "useful": useful,
        "checkpoints": stall,
        "lost": lost,
        "goodput": useful / total,
        "attempts": len(attempts),
        "failures": failures,
        "count": count,
        "cost": cost,
        "between_failures": between,
        "interval": daly_interval(cost, between) if cost else None,
    }


def goodput_section(record: Record | None) -> str:
    """The goodput as a table, with the advice below; '' for none."""
    if not record:
        return ""
    names = (("steps that count", "useful"), ("waiting for checkpoints", "checkpoints"), ("steps done again", "lost"))
    rows = [(name, number(record[key], 3), percent(record[key] / record["total"])) for name, key in names]
    seen = f"failures: {record['failures']}, starts: {record['attempts']}"
    text = f"Checkpoints: {record['count']}, {seen}."
    if record["interval"]:
        basis = "seen here" if record["failures"] else "assumed, as none was seen"
        cost, between = number(record["cost"], 2), duration(record["between_failures"])
        every = record["interval"]
        text += (
            f" With {cost} s a checkpoint and a failure every {between} ({basis}), least is lost with a checkpoint"
            f' every {duration(every)} (Daly 2006): checkpoint.every = "{math.ceil(every)} s".'
        )
    return section("Goodput", table(("elapsed time", "seconds", "share"), rows, (1, 2)) + caption(text))


def _attempt(path: Path) -> Record:
    """The record of one start: its seconds, steps, checkpoints, failure, and the step that it restarted from."""
    found: Record = {"failed": (path / "failure.json").is_file()}
    summary, progress, resumed = (_read(path / f"{name}.json") for name in ("summary", "progress", "resumed"))
    found |= _told(progress)
    found |= {key: summary[key] for key in ("wall_seconds", "steps", "checkpoints") if key in summary}
    return {**found, "from": resumed.get("step", 0)}


def _told(progress: Record) -> Record:
    given = {"wall_seconds": progress.get("elapsed_seconds"), "steps": progress.get("step")}
    return {key: value for key, value in given.items() if value is not None}


def _lost(before: Record, after: Record) -> float:
    """Seconds of an attempt's steps that the next one repeated."""
    done = (before.get("steps") or 0) - before["from"]
    again = (before.get("steps") or 0) - after["from"]
    seconds = before.get("wall_seconds") or 0.0
    return seconds * min(1.0, max(0, again) / done) if done > 0 else seconds


def _read(path: Path) -> Record:
    try:
        found = parse_json(read_bytes(path, "the record"))
    except (InputError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
