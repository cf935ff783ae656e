"""Safeguards taken out one at a time: each must make a case of the tests above fail, or they test nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from hpckit.io import disk
from hpckit.io.checkpoint import choose, manifest, reader
from tests.faults.corruptions import corruptions
from tests.faults.jobs import at_once, rows_of
from tests.faults.power_loss import power_loss
from tests.faults.taken_out import SAFEGUARDS, nothing, replaced

Rows = Iterable[dict[str, Any]]


class _Any(str):
    """A hash that equals every other."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


def _no_commit_needed(root: Path) -> list[int]:
    """`committed`, where a manifest is enough."""
    found = manifest.generations(root)
    return [each for each in found if (manifest.folder(root, each) / manifest.MANIFEST).is_file()]


def _manifest_alone(root: Path, generation: int) -> bytes:
    """`read_manifest` without its COMMIT."""
    return disk.read_whole(manifest.folder(root, generation) / manifest.MANIFEST, manifest.MOST_MANIFEST)


def _any_generation(content: bytes, generation: int) -> dict[str, Any]:
    """`parse` that believes a manifest of another generation."""
    return json.loads(content)


def _mutants() -> dict[str, tuple[Any, Callable[[], Rows]]]:
    """Name -> (what takes the safeguard out, the cases that must notice)."""

    def changed() -> Rows:
        return corruptions(Random(5), 120)

    def lost() -> Rows:
        return power_loss(200)

    return {
        "fsync of files": (replaced((disk, "sync", nothing)), lost),
        "fsync of folders": (replaced((disk, "sync_names", nothing)), lost),
        "hash of the values": (replaced((reader, "hash_named", lambda name: lambda data: _Any(""))), changed),
        "COMMIT": (
            replaced((choose, "committed", _no_commit_needed), (choose, "read_manifest", _manifest_alone)),
            lambda: corruptions(Random(5), 60, ("digit",)),
        ),
        "number of the generation": (replaced((choose, "parse", _any_generation)), changed),
    }


# Safeguard of running jobs -> (program, ranks, the case that must notice).
NOTICED_BY = {
    "face tag": ("resizing", 4, "diffusion"),
    "keys of random numbers": ("resizing", 4, "md"),
    "NaN gate": ("injecting", 2, "gate:diffusion"),
    "finite check of a model": ("injecting", 2, "nan:weather"),
    "comparison of replayed steps": ("injecting", 2, "flip:diffusion"),
    "comparison of checksums": ("injecting", 2, "message:diffusion"),
}


def mutants(seed: str) -> Iterator[dict[str, Any]]:
    """Each safeguard taken out; a row each, passed where a case noticed."""
    for name, (taken_out, cases) in _mutants().items():
        with taken_out:
            yield _judged(name, cases())
    yield from at_once(partial(_judged_job, name, seed) for name in SAFEGUARDS)


def _judged_job(name: str, seed: str) -> dict[str, Any]:
    program, ranks, case = NOTICED_BY[name]
    return _judged(name, rows_of(program, case, ranks, seed, [case], without=name))


def _judged(name: str, rows: Rows) -> dict[str, Any]:
    noticed = next((row for row in rows if not row["passed"]), None)
    return {
        "what": "mutant",
        "case": f"without {name}",
        "passed": noticed is not None,
        "problem": "" if noticed is not None else "no case noticed",
        "noticed": "" if noticed is None else f"{noticed['what']}: {noticed['case']}: {noticed['problem']}"[:200],
    }
