"""Seeded hangs: whether the watch names the rank, the operation and the line, and ends the job in time."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from hpckit.launch import mpiexec
from hpckit.launch.scratch import scratch
from tests.faults.jobs import at_once, job
from tests.faults.programs.hanging import STEPS

PROGRAM = Path(__file__).with_name("programs") / "hanging.py"
KINDS = (
    "mismatch",
    "missing",
    "root",
    "communicator",
    "loop",
    "sleep",
    "compiled",
    "exit",
    "send",
    "swallowed",
)
ANSWERED = ("loop", "sleep", "compiled")  # the stack names the line
LIMIT, END = 1.0, 1.5  # s until the report, until the end of the job
LONGER = 10.0  # times as long are the limits of a second try
PATIENCE = 120.0  # s until a job counts as not ended


def hangs(random: Random, positions: int) -> Iterator[dict[str, Any]]:
    """Each kind on 2 and 4 ranks with the culprit at so many random places (rank and step); a row each."""
    places = [
        (kind, ranks, random.randrange(ranks), random.randrange(STEPS // 2))
        for ranks in (2, 4)
        for kind in KINDS
        for _ in range(positions)
    ]
    yield from at_once(partial(hang, *place) for place in places)


def hang(kind: str, ranks: int, who: int, when: int) -> dict[str, Any]:
    """One hang of a kind on so many ranks, by rank `who` in step `when`: a row.

    What is wrong is tried again with longer limits: a rank that this machine holds up for LIMIT s is late too, and told
    in place of the hang. `at_first`: what was wrong then.
    """
    first = _hang(kind, ranks, who, when, LIMIT, END)
    if first["passed"]:
        return first
    return {**_hang(kind, ranks, who, when, LONGER * LIMIT, LONGER * END), "at_first": first["problem"]}


def _hang(kind: str, ranks: int, who: int, when: int, limit: float, end: float) -> dict[str, Any]:
    watch = {"limit": limit, "end": end}
    with scratch("hpckit-faults-") as folder:
        told = Path(folder, "watch")
        unwatched = str(told / "nobody")  # no folder: no front end would see that a rank has come
        words = [unwatched, json.dumps({**watch, "folder": str(told)}), str(PROGRAM), kind, str(who), str(when)]
        begin = time.monotonic()
        with job(
            mpiexec.command(ranks, words, module="hpckit.cli.user_rank"),
            env=mpiexec.rank_environment(ranks),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as started:
            code: int | None = None
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = started.wait(PATIENCE)
        seconds = time.monotonic() - begin
        reports = [json.loads(path.read_text(encoding="utf-8")) for path in told.glob("node-*/stall.json")]
    problem = named(kind, ranks, who, when, reports[0] if reports else None)
    if not problem and code is None:
        problem = "the job was not ended"
    late = reports[0]["seconds"] - limit if reports else None
    if not problem and late is not None and late > end - limit + 2.0:
        problem = f"told {late:.1f} s after the limit"
    return {
        "what": "hang",
        "case": f"{kind}, {ranks} ranks, rank {who}, step {when}",
        "passed": not problem,
        "problem": problem,
        "seconds": round(seconds, 1),
    }


def named(kind: str, ranks: int, who: int, when: int, report: dict[str, Any] | None) -> str:
    """What the report lacks: it must name the rank that does wrong and no other, what it called where, and what it
    should have called; in the first step of 2 ranks, which have no habits yet, both are named. '' for nothing.
    """
    if report is None:
        return "no report"
    culprits = set(report["culprits"])
    said = "told: " + re.sub(r"\s+", " ", report["text"])[:300]
    if kind == "send":
        calls = {(it["last"]["operation"], it["last"]["line"]) for it in report["ranks"]}
        good = culprits == set(range(ranks)) and calls == {("Send", line_of("SEND"))}
        return "" if good else said
    pair = ranks == 2 and when == 0 and culprits == {0, 1}
    if culprits != {who} and not pair:
        return said
    last = next(it for it in report["ranks"] if it["rank"] == who)
    called = report["calls"].get(str(who)) or last["last"]
    did = (called["operation"], called["line"])
    due = None if report["due"] is None else (report["due"]["operation"], report["due"]["line"])
    total, broadcast, halo = ("Allreduce", line_of("SUM")), ("Bcast", line_of("BCAST")), ("Sendrecv", line_of("HALO"))
    if kind in ANSWERED:
        line = line_of(kind.upper())
        lines = {int(match[1]) for frame in last["stack"] if (match := re.match(r"hanging\.py:(\d+) ", frame))}
        # The endless loop is in a function that this line calls; the stack may be of inside that.
        return "" if line in lines else f"line {line} is not in {last['stack']}: {said}"
    if kind == "exit":
        return "" if report["kind"] == "left" and due in (halo, total) else said
    expected = {"mismatch": ("Reduce", line_of("REDUCE")), "communicator": total}.get(kind, broadcast)
    dues = {"root": (broadcast,), "swallowed": (total, halo)}.get(kind, (total,))
    if kind == "communicator":
        apart = len({it["last"]["group"] for it in report["ranks"]}) > 1
        return "" if did == expected and apart else said
    return "" if did == expected and (pair or due in dues) else f"did {did}, due {due}: {said}"


def line_of(mark: str) -> int:
    """The line of the program that ends with a mark."""
    lines = PROGRAM.read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))
