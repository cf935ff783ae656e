"""`hpckit compare A B`: what two runs differ in: settings, figures, time per phase, fields."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np

from hpckit.cli.verbs.compare.fields import differences, is_file_of_numbers, outputs
from hpckit.cli.verbs.compare.report import write_comparison
from hpckit.cli.verbs.ls import records_of, run_directories, status_of
from hpckit.comm.agree import plain
from hpckit.errors import InputError, visible
from hpckit.plan.inputs.text import parse_json
from hpckit.report.units import counted
from hpckit.run.directory import METRICS, RunDirectory
from hpckit.settings.table import Parser, print_table

SIGNIFICANT = 0.05  # the chance below which a difference of times is called one
MOST_SHUFFLES = 10_000
MOST_METRICS = 1 << 30  # bytes
# Columns of metrics that are not compared: where the line stands, and how fast the machine was.
NO_METRICS = {"step", "samples_per_second", "tokens_per_second", "mfu", "communication"}
# Keys of resolved.json and summary.json that say nothing about what was computed.
ASIDE = {"ranks", "phases", "decomposition", "blocks", "checkpoints", "attempt", "wall_seconds", "headline", "titles"}


def main(arguments: list[str]) -> int:
    """The verb `compare`; returns 0 where both have the same fields with the same bits, 1 where not, or no fields."""
    it = Parser(
        prog="hpckit compare",
        description="What two runs differ in. Give folders of repeated runs to compare times with more certainty.",
    )
    it.add_argument(
        "a", type=Path, metavar="A", help="a run directory, a folder of runs that are repeats, or an HDF5 file"
    )
    it.add_argument("b", type=Path, metavar="B", help="what to compare it with, of the same kind")
    it.add_argument("more", type=Path, nargs="*", default=[], metavar="C", help="more runs, for --report")
    it.add_argument(
        "--report", type=Path, metavar="PAGE.html", help="write a page with the metrics of all runs in one chart each"
    )
    it.add_argument("--json", action="store_true", help="print one JSON object")
    options = it.parse_args(arguments)
    if options.report is not None:
        print(
            write_comparison(
                [run.path for path in (options.a, options.b, *options.more) for run in _runs(path)], options.report
            )
        )
        return 0
    if options.more:
        raise InputError(f"{2 + len(options.more)} runs", do="compare two, or all of them with --report PAGE.html")
    found = compare(options.a, options.b)
    if options.json:
        print(json.dumps(plain(found)))
    else:
        _print(found)
    return 0 if found["same"] else 1


def compare(a: Path, b: Path) -> dict[str, Any]:
    """Settings, figures, metrics, phases and fields in which A and B differ; of folders of repeats the first runs'
    fields. Of two HDF5 files, their arrays.

    Raises `InputError` where there is nothing to compare, `CorruptDataError` for a file that cannot be read.
    """
    files = [is_file_of_numbers(path) for path in (a, b)]
    if any(files):
        if not all(files):
            raise InputError(
                f"{b if files[0] else a} is not an HDF5 file", do="hpckit compare FILE.h5 FILE.h5, or DIR DIR"
            )
        return {"a": [str(a)], "b": [str(b)], **_fields(a, b)}
    left, right = _runs(a), _runs(b)
    first, other = left[0], right[0]
    states = []
    for run in (first, other):
        with records_of(run.path):
            states.append(_state(run))
    with records_of(f"{first.path} or {other.path}"):
        records = {
            "state": states,
            "settings": _settings(first, other),
            "figures": _figures(first, other),
            "metrics": metric_differences(first, other) if _app(first) == _app(other) else [],
            "phases": phase_differences(left, right),
        }
    names = {"a": [str(run.path) for run in left], "b": [str(run.path) for run in right]}
    return {**names, **records, **_fields(first.path, other.path)}


def _fields(a: Path, b: Path) -> dict[str, Any]:
    with contextlib.ExitStack() as files:
        ours, theirs = (outputs(path, files) for path in (a, b))
        fields = differences(ours, theirs)
    alike = all(
        row["verdict"] == "same bits" and row.get("frames_a") == row.get("frames_b") == row.get("frames")
        for row in fields
    )
    only = sorted(ours.keys() ^ theirs.keys())
    return {"fields": fields, "only": only, "same": bool(fields) and alike and not only}


def metric_differences(a: RunDirectory, b: RunDirectory) -> list[dict[str, Any]]:
    """Of each metric at the steps that both runs have: the first step at which they differ, and the largest difference.

    Rates, which tell of the machine, are left out.
    """
    ours, theirs = ({row["step"]: row for row in _metric_lines(run)} for run in (a, b))
    steps = sorted(ours.keys() & theirs.keys())
    rows = []
    for name in dict.fromkeys(name for step in steps for name in ours[step] if name not in NO_METRICS):
        pairs = [(step, ours[step].get(name), theirs[step].get(name)) for step in steps]
        apart = [
            (step, one, two)
            for step, one, two in pairs
            if isinstance(one, (int, float)) and isinstance(two, (int, float)) and one != two
        ]
        if apart:
            step, one, two = max(apart, key=lambda each: abs(each[1] - each[2]))
            gap = {"a": one, "b": two, "relative": abs(one - two) / max(abs(one), abs(two))}
            rows.append({"metric": name, "first_step": apart[0][0], "largest_at": step, **gap})
    return rows


def _metric_lines(run: RunDirectory) -> list[dict[str, Any]]:
    lines = []
    try:
        content = run.read(METRICS, MOST_METRICS)
    except OSError:
        return []
    for line in content.splitlines():
        if line[:1] != b"{":  # none of ours: a million refusals take seconds
            continue
        with contextlib.suppress(ValueError):  # the last line of a run that is going on
            lines.append(parse_json(line))
    return [line for line in lines if isinstance(line, dict) and isinstance(line.get("step"), int)]


def phase_differences(left: list[RunDirectory], right: list[RunDirectory]) -> list[dict[str, Any]]:
    """Mean seconds per phase, B over A, and the chance of such a difference if there were none.

    The samples are the runs where both sides have two or more, else the ranks of the one run on each side.
    """
    rows = []
    ours, theirs = (_phase_samples(runs, min(len(left), len(right)) > 1) for runs in (left, right))
    for name in dict.fromkeys([*ours, *theirs]):
        a, b = ours.get(name, []), theirs.get(name, [])
        mean_a, mean_b = (float(np.mean(part)) if part else None for part in (a, b))
        chance = chance_of(a, b) if len(a) > 1 and len(b) > 1 else None
        rows.append(
            {
                "phase": name,
                "a_seconds": mean_a,
                "b_seconds": mean_b,
                "b_over_a": mean_b / mean_a if mean_a and mean_b is not None else None,
                "chance": chance,
                "significant": None if chance is None else chance < SIGNIFICANT,
            }
        )
    return rows


def chance_of(a: list[float], b: list[float]) -> float:
    """The chance that a split of all samples at random has means as far apart as these: a permutation test.

    Over all splits where they are at most 10,000, else over so many random ones.
    """
    every = np.array([*a, *b])
    gap = abs(np.mean(a) - np.mean(b)) * (1 - 1e-12)
    total = every.sum()

    def far(chosen: tuple[int, ...]) -> bool:
        part = every[list(chosen)].sum()
        return bool(abs(part / len(a) - (total - part) / len(b)) >= gap)

    places = range(len(every))
    if math.comb(len(every), len(a)) <= MOST_SHUFFLES:
        hits = [far(chosen) for chosen in itertools.combinations(places, len(a))]
        return sum(hits) / len(hits)
    generator = random.Random(1)
    hits = [far(tuple(generator.sample(places, len(a)))) for _ in range(MOST_SHUFFLES)]
    return (1 + sum(hits)) / (1 + len(hits))


def _runs(path: Path) -> list[RunDirectory]:
    if not path.is_dir():
        raise InputError(f"no folder {path}", do="hpckit ls lists runs")
    found = run_directories(path)
    if not found:
        raise InputError(f"no run in {path}", do="hpckit compare DIR DIR")
    return [RunDirectory(found[0])] if found[0] == path else [RunDirectory(run) for run in found]


def _app(run: RunDirectory) -> str:
    return str((run.read_json("resolved.json") or {}).get("app", ""))


def _state(run: RunDirectory) -> str:
    resolved = run.read_json("resolved.json") or {}
    progress = run.read_json("progress.json") or {}
    done = f" at {100 * progress['fraction']:.0f} %" if progress.get("fraction", 1) < 1 else ""
    return f"{resolved.get('app', '')} on {counted(resolved.get('ranks', 0), 'rank')}, {status_of(run, None)}{done}"


def _settings(a: RunDirectory, b: RunDirectory) -> list[dict[str, Any]]:
    ours, theirs = (_leaves({**(run.read_json("resolved.json") or {}).get("values", {})}) for run in (a, b))
    ours["ranks"], theirs["ranks"] = ((run.read_json("resolved.json") or {}).get("ranks") for run in (a, b))
    return _differing(ours, theirs, "setting")


def _figures(a: RunDirectory, b: RunDirectory) -> list[dict[str, Any]]:
    ours, theirs = (
        _leaves({key: value for key, value in (run.read_json("summary.json") or {}).items() if key not in ASIDE})
        for run in (a, b)
    )
    return _differing(ours, theirs, "figure")


def _differing(ours: dict[str, Any], theirs: dict[str, Any], title: str) -> list[dict[str, Any]]:
    """What both have and is not the same, and what only one has; of different apps the former only."""
    names = list(dict.fromkeys([*ours, *theirs]))
    if ours.get("app") != theirs.get("app"):
        names = [name for name in names if name in ours and name in theirs]
    return [
        {title: name, "a": ours.get(name), "b": theirs.get(name)}
        for name in names
        if ours.get(name) != theirs.get(name)
    ]


def _leaves(tree: Any, above: str = "") -> dict[str, Any]:
    if not isinstance(tree, dict):
        return {above: tree}
    return {
        key: value for name, item in tree.items() for key, value in _leaves(item, f"{above}.{name}".strip(".")).items()
    }


def _phase_samples(runs: list[RunDirectory], repeats: bool) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {}
    for run in runs if repeats else runs[:1]:
        for name, seconds in ((run.read_json("summary.json") or {}).get("phases") or {}).items():
            samples.setdefault(name, []).extend([float(np.mean(seconds))] if repeats else seconds)
    return samples


def _print(found: dict[str, Any]) -> None:
    for side, state in zip("ab", found.get("state", ["", ""]), strict=True):
        print(visible(f"{side.upper()} {found[side][0]}{'  ' + state if state else ''}"))
    for key in ("settings", "figures", "metrics"):
        if found.get(key):
            columns = [name.replace("_", " ") for name in found[key][0]]
            print_table(columns, [list(row.values()) for row in found[key]], key)
    if found.get("phases"):
        rows = [
            (
                row["phase"],
                row["a_seconds"],
                row["b_seconds"],
                row["b_over_a"],
                row["chance"],
                {None: "one sample", True: "yes", False: "no"}[row["significant"]],
            )
            for row in found["phases"]
        ]
        print_table(("phase", "A, s", "B, s", "B/A", "chance", "significant"), rows)
    columns = ["bits", "ulp", "largest", "rms", "rms_over_deviation"]
    if found["fields"]:
        rows = [
            (row["field"], row["verdict"], _frames(row), *(row.get(column) for column in columns))
            for row in found["fields"]
        ]
        print_table(("field", "verdict", "frames", "values", "ulp", "largest", "rms", "rms/deviation"), rows)
    for name in found["only"]:
        print(visible(f"only one of them has {name}"))
    if not found["fields"]:
        print("no fields to compare: they have none in common")


def _frames(row: dict[str, Any]) -> str:
    """How many frames were compared: `3`, or `2 (of 3 and 5)` where one has more."""
    if "frames" not in row:
        return ""
    whole = row["frames"] == row["frames_a"] == row["frames_b"]
    return f"{row['frames']}" if whole else f"{row['frames']} (of {row['frames_a']} and {row['frames_b']})"
