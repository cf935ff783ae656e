"""The findings at the top of the page, each with the measured loss and advice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from hpckit.report.numbers import compute_imbalance
from hpckit.report.run_data import is_number
from hpckit.report.units import number, percent

Record = dict[str, Any]
IMBALANCE = 0.10  # of the mean compute time
WAIT = 0.15  # of the wall time
LATE = 0.05  # of the wall time, for one rank
WRITING = ("output", "sample")  # phases in which other ranks wait for rank 0 by design
OUTPUT = 0.20
MASS = 1e-12
SHORT = 2.0  # s of wall time; shares of a shorter one mean little


@dataclass(frozen=True)
class Finding:
    """`level`: "error", "warning" or "note"; one sentence, and what to do ('' for nothing)."""

    level: str
    text: str
    do: str = ""

    def to_dict(self) -> dict[str, str]:
        """Convert to plain values for JSON."""
        return asdict(self)


def find(numbers: Record) -> list[Finding]:
    """All findings, the most serious first."""
    every = [*_numerics(numbers), *_speed(numbers), *_records(numbers)]
    return sorted(every, key=lambda finding: ("error", "warning", "note").index(finding.level))


def _numerics(numbers: Record) -> Iterator[Finding]:
    for name, field in numbers["fields"].items():
        if not field["finite"]:
            yield Finding("error", f"{name} holds values that are not finite", "look at the first frame that has them")
    cfl, limit = numbers["cfl"], numbers.get("cfl_limit")
    if cfl and limit and cfl["max"] > limit:
        yield Finding(
            "warning",
            f"the CFL number reached {number(cfl['max'], 3)}, above the limit of {number(limit, 3)}",
            "lower the time step or its safety factor",
        )
    for told in numbers["told"]:  # by the app
        yield Finding("warning", str(told["text"]), str(told.get("do", "")))
    mass = numbers["conserved"].get("mass")
    if mass and abs(mass.get("relative_change") or 0.0) > MASS:
        yield Finding(
            "note",
            f"mass changed by {number(mass['relative_change'], 3)} relative: right only for open walls",
        )


def _speed(numbers: Record) -> Iterator[Finding]:
    crowded = list(_cores(numbers))
    yield from crowded
    rows = numbers["phases"]
    share = {name: row["share"] or 0.0 for name, row in rows.items()}
    imbalance = compute_imbalance(rows)
    if imbalance > IMBALANCE:
        lost = imbalance / (1 + imbalance)
        yield Finding(
            "warning",
            f"the slowest rank computes {percent(imbalance)} longer than the mean: {percent(lost)} of the time is lost",
            "spread the work more evenly (other numbers of ranks, another mesh), and leave other jobs off these cores",
        )
    wall = numbers.get("wall_seconds")
    if isinstance(wall, (int, float)) and wall < SHORT:
        return
    if share.get("wait", 0.0) > WAIT and not crowded:
        yield Finding(
            "warning",
            f"ranks wait {percent(share['wait'])} of the time for their neighbors",
            "use fewer ranks or give each more work, and leave other jobs off these cores",
        )
    output = share.get("output", 0.0)
    yield from _late(numbers, wall, bool(crowded))
    if output > OUTPUT:
        yield Finding(
            "warning",
            f"output takes {percent(share['output'])} of the time",
            "write frames less often, or to a faster disk",
        )


def _late(numbers: Record, wall: Any, crowded: bool) -> Iterator[Finding]:
    """The rank that the others wait for most, apart from phases in which rank 0 writes output or samples text."""
    waits = numbers.get("waits")
    if not waits or waits["worst"] is None or not is_number(wall) or crowded:
        return
    others = len(waits["ranks"]["seconds"]) - 1
    lost = waits["by_worst"] / (others * wall)
    alone = (numbers["phases"][name]["ranks"][0] for name in WRITING if name in numbers["phases"])
    known = sum(alone) / wall if waits["worst"] == 0 else 0.0
    if lost > LATE + known:
        yield Finding(
            "warning",
            f"the other ranks wait {percent(lost)} of the time for rank {waits['worst']}",
            "look at what else runs on its cores, or give it less to do",
        )


def _cores(numbers: Record) -> Iterator[Finding]:
    """More threads than cores on some host."""
    places = (numbers["provenance"] or {}).get("placement") or []
    hosts: dict[str, list[Record]] = {}
    for place in places:
        hosts.setdefault(str(place.get("host")), []).append(place)
    for here in hosts.values():
        cores = {core for place in here for core in place.get("cores", [])}
        threads = sum(max(1, int(place.get("threads") or 1)) for place in here)
        if cores and threads > len(cores):
            yield Finding(
                "warning",
                f"{len(here)} ranks with {threads} threads in all share {len(cores)} cores of a host",
                f"use at most {len(cores)} ranks a host with one thread each (hpckit run … -n {len(cores)})",
            )
            return


def _records(numbers: Record) -> Iterator[Finding]:
    if numbers["status"] == "stopped":
        yield Finding("note", "the run was ended early on purpose; its files are complete", "hpckit resume DIR goes on")
    if numbers["status"] in ("running", "unknown"):
        yield Finding("note", "the run has not ended, or was killed before it could record its end")
    git = (numbers["provenance"] or {}).get("git")
    if isinstance(git, dict) and git.get("dirty"):
        yield Finding("note", "the code had uncommitted changes", "commit before runs that must be repeatable")
    for problem in numbers["unreadable"]:
        yield Finding("warning", problem)
