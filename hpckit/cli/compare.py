"""`hpckit compare A B`: what two runs differ in: settings, figures, time per phase, fields."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hpckit.cli.run_jobs import run_directories
from hpckit.cli.terminal import print_table
from hpckit.errors import InputError
from hpckit.io.probe import require_sound
from hpckit.run_directory import RunDirectory, plain

SIGNIFICANT = 0.05  # the chance below which a difference of times is called one
MOST_SHUFFLES = 10_000
ROUNDING_ULP = 16  # up to so many units in the last place two fields are called equal but for rounding
# Keys of resolved.json and summary.json that say nothing about what was computed.
ASIDE = {"ranks", "phases", "decomposition", "blocks", "checkpoints", "attempt", "wall_seconds"}


def main(arguments: list[str]) -> int:
    """The verb `compare`; returns 0 where all fields have the same bits, 1 where they differ."""
    it = argparse.ArgumentParser(
        prog="hpckit compare",
        description="What two runs differ in. Give folders of repeated runs to compare times with more certainty.",
    )
    it.add_argument("a", type=Path, metavar="A", help="a run directory, or a folder of runs that are repeats")
    it.add_argument("b", type=Path, metavar="B")
    it.add_argument("--json", action="store_true", help="print one JSON object")
    options = it.parse_args(arguments)
    found = compare(options.a, options.b)
    if options.json:
        print(json.dumps(plain(found)))
    else:
        _print(found)
    return int(any(row["bits"] for row in found["fields"]) or bool(found["only"]))


def compare(a: Path, b: Path) -> dict[str, Any]:
    """Settings, figures, phases and fields in which A and B differ; of folders of repeats the first runs' fields."""
    left, right = _runs(a), _runs(b)
    first, other = left[0], right[0]
    fields = field_differences(first.path, other.path)
    names = [set(_datasets(run.path)) for run in (first, other)]
    return {
        "a": [str(run.path) for run in left],
        "b": [str(run.path) for run in right],
        "settings": _settings(first, other),
        "figures": _figures(first, other),
        "phases": phase_differences(left, right),
        "fields": fields,
        "only": sorted(names[0] ^ names[1]),
    }


def field_differences(a: Path, b: Path) -> list[dict[str, Any]]:
    """For each dataset of numbers that both runs have in `output/`: values that differ in their bits, largest distance
    in units in the last place (ulp), largest and root-mean-square difference, that relative to the field's own
    deviation. Frames are compared one after the other.
    """
    rows = []
    ours, theirs = _datasets(a), _datasets(b)
    for name in sorted(ours.keys() & theirs.keys()):
        with h5py.File(ours[name][0]) as one, h5py.File(theirs[name][0]) as two:
            rows.append({"field": name, **_difference(one[ours[name][1]], two[theirs[name][1]])})
    return rows


def ulp_distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How many floating-point numbers lie between `a` and `b` (float32 or float64, one shape); 0 for +0 and -0.

    As float64, exact up to 2**53; inf where just one of them is not a number.
    """
    kind: Any = np.int32 if a.dtype.itemsize == 4 else np.int64
    lowest = np.iinfo(kind).min

    def ordered(values: np.ndarray) -> np.ndarray:
        bits = np.ascontiguousarray(values).view(kind)
        return np.where(bits < 0, lowest - bits, bits)

    first, second = ordered(a), ordered(b)
    high, low = np.maximum(first, second), np.minimum(first, second)
    # The difference of two int64 may need 65 bits.
    distance = np.where((high >= 0) == (low >= 0), high - low, 0).astype(np.float64)
    apart = (high >= 0) != (low >= 0)
    distance[apart] = high[apart].astype(np.float64) - low[apart].astype(np.float64)
    lost = np.isnan(a) | np.isnan(b)
    return np.where(lost, np.where(np.isnan(a) & np.isnan(b), 0.0, math.inf), distance)


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


def _difference(a: h5py.Dataset, b: h5py.Dataset) -> dict[str, Any]:
    """Compare two datasets, a slab of the first dim at a time."""
    if a.shape != b.shape:
        return {"verdict": f"shape {list(a.shape)} and {list(b.shape)}", "bits": max(a.size, b.size)}
    bits, ulp, largest, squares, own, own_squares = 0, 0.0, 0.0, 0.0, 0.0, 0.0
    for place in range(a.shape[0]) if a.ndim else [()]:
        one, two = np.asarray(a[place]), np.asarray(b[place])
        kind = np.result_type(one, two)
        if kind.kind == "f":
            kind = np.dtype(np.float32 if kind.itemsize <= 4 else np.float64)
            distance = ulp_distance(np.atleast_1d(one.astype(kind)), np.atleast_1d(two.astype(kind)))
            ulp = max(ulp, float(distance.max(initial=0.0)))
        bits += int((one.astype(kind) != two.astype(kind)).sum() - (np.isnan(one) & np.isnan(two)).sum())
        with np.errstate(invalid="ignore"):
            gap = np.abs(one.astype(np.float64) - two.astype(np.float64))
        largest = max(largest, float(np.nanmax(gap, initial=0.0)))
        squares += float(np.nansum(gap**2))
        own += float(np.nansum(one))
        own_squares += float(np.nansum(one.astype(np.float64) ** 2))
    count = max(a.size, 1)
    deviation = math.sqrt(max(0.0, own_squares / count - (own / count) ** 2))
    rms = math.sqrt(squares / count)
    verdict = "same bits" if not bits else "rounding" if ulp <= ROUNDING_ULP else "differs"
    return {
        "verdict": verdict,
        "bits": bits,
        "ulp": ulp,
        "largest": largest,
        "rms": rms,
        "rms_over_deviation": rms / deviation if deviation else None,
    }


def _datasets(directory: Path) -> dict[str, tuple[Path, str]]:
    """Name -> file and path of every dataset of numbers in `output/`; a dataset that has several names once."""
    found: dict[str, tuple[Path, str]] = {}
    files = sorted((directory / "output").glob("*.h5"))
    require_sound(files)
    for path in files:
        seen: set[Any] = set()
        with h5py.File(path) as file:
            for name, dataset in _numbers(file):
                place = (dataset.file.filename, h5py.h5o.get_info(dataset.id).addr)
                if place not in seen:
                    seen.add(place)
                    found[f"{path.name}:{name}"] = (path, name)
    return found


def _numbers(group: h5py.Group, above: str = "", within: tuple[int, ...] = ()) -> Iterator[tuple[str, h5py.Dataset]]:
    """Datasets of numbers with their names. Links by name, which may lead anywhere, and links back up are left out."""
    within = (*within, h5py.h5o.get_info(group.id).addr)
    for name in sorted(group):
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            continue
        item = group[name]
        if isinstance(item, h5py.Group) and h5py.h5o.get_info(item.id).addr not in within:
            yield from _numbers(item, f"{above}{name}/", within)
        elif isinstance(item, h5py.Dataset) and item.dtype.kind in "fiu":
            yield f"{above}{name}", item


def _runs(path: Path) -> list[RunDirectory]:
    if not path.is_dir():
        raise InputError(f"no folder {path}", do="hpckit ls lists runs")
    found = run_directories(path)
    if not found:
        raise InputError(f"no run in {path}", do="hpckit compare DIR DIR")
    return [RunDirectory(found[0])] if found[0] == path else [RunDirectory(run) for run in found]


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
    names = dict.fromkeys([*ours, *theirs])
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
    print(f"A {found['a'][0]}\nB {found['b'][0]}")
    for title, key in (("settings", "settings"), ("figures", "figures")):
        if found[key]:
            print_table(list(found[key][0]), [list(row.values()) for row in found[key]], title)
    if found["phases"]:
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
    columns = ("verdict", "bits", "ulp", "largest", "rms", "rms_over_deviation")
    if found["fields"]:
        rows = [(row["field"], *(row.get(column) for column in columns)) for row in found["fields"]]
        print_table(("field", "verdict", "values", "ulp", "largest", "rms", "rms/deviation"), rows)
    for name in found["only"]:
        print(f"only one of them has {name}")
