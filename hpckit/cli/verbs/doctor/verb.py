"""`hpckit doctor`: tests what a run will need, and says in one line how to mend what fails."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from hpckit.cli.verbs.doctor import node
from hpckit.cli.verbs.doctor.node import Outcome
from hpckit.cli.verbs.doctor.probes import PROBES, Probe, ProbeFolder
from hpckit.errors import InputError, SetupError
from hpckit.launch.launcher import joined
from hpckit.settings.table import Parser

LIMIT_SECONDS = 120.0  # for a probe whose own limits have failed
COLORS = {"ok": "32", "warn": "33", "fail": "31", "skipped": "90"}


@dataclass(frozen=True)
class ProbeResult:
    """What a probe found: `status` is ok, warn, fail or skipped; `do` is how to mend it."""

    name: str
    status: str
    text: str
    do: str
    seconds: float


def main(arguments: list[str]) -> int:
    """The verb `doctor`: exit code 0 when nothing fails, else 3."""
    it = Parser(prog="hpckit doctor", description="Test MPI, HDF5, GPU, file system and Slurm.")
    it.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    it.add_argument(
        "--directory",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="where output will go (default: the current folder)",
    )
    it.add_argument("--clean", action="store_true", help="only remove what killed jobs left in memory, and list MPI's")
    options = it.parse_args(arguments)
    above = joined(os.environ)
    if above is not None and above.rank:
        return 0  # one doctor is enough
    if options.clean:
        print("\n".join(node.clean()))
        return 0
    found = []
    with _Scratch(options.directory) as place:
        for finding in examine(place):
            found.append(finding)
            if not options.json:
                _print(finding)
    failed = sum(finding.status == "fail" for finding in found)
    if options.json:
        print(json.dumps({"status": "fail" if failed else "ok", "probes": [asdict(finding) for finding in found]}))
    else:
        warned = sum(finding.status == "warn" for finding in found)
        print(f"{len(found)} probes: {failed} failed, {warned} with a warning")
    return SetupError.exit_code if failed else 0


def examine(
    place: ProbeFolder, probes: dict[str, Probe] | None = None, limit: float = LIMIT_SECONDS
) -> Iterator[ProbeResult]:
    """Run the probes one after another; none can end or hold up the others."""
    for name, probe in (PROBES if probes is None else probes).items():
        begin = time.perf_counter()
        outcome = _guarded(probe, place, limit)
        yield ProbeResult(name, outcome.status, outcome.text, outcome.do, round(time.perf_counter() - begin, 2))


def _guarded(probe: Probe, place: ProbeFolder, limit: float) -> Outcome:
    """The outcome of a probe; one that raises or hangs has failed, with the reason."""
    outcomes: list[Outcome] = []

    def run() -> None:
        try:
            outcomes.append(probe(place))
        except Exception as problem:
            outcomes.append(Outcome("fail", f"{type(problem).__name__}: {problem}", "tell the administrator"))

    thread = threading.Thread(target=run, daemon=True)  # a daemon: a call that hangs does not keep us from ending
    thread.start()
    thread.join(limit)
    return outcomes[0] if outcomes else Outcome("fail", f"no answer within {limit:g} s", "tell the administrator")


class _Scratch:
    """A folder of our own below the directory to be tested, removed afterwards; none where it cannot be made."""

    def __init__(self, directory: Path) -> None:
        if not directory.exists() and not directory.parent.exists():
            raise InputError(f"there is no folder {directory.parent}", do="hpckit doctor --directory DIR")
        self.directory = directory
        self.made: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> ProbeFolder:
        reason = ""
        try:
            self.directory.mkdir(exist_ok=True)
            self.made = tempfile.TemporaryDirectory(prefix=".hpckit-doctor-", dir=self.directory)
        except OSError as problem:
            reason = f"{self.directory} cannot be written: {problem.strerror}"
        return ProbeFolder(self.directory, Path(self.made.name) if self.made else None, reason)

    def __exit__(self, *unused: object) -> None:
        if self.made is not None:
            self.made.cleanup()


def _print(finding: ProbeResult) -> None:
    """One line for the finding, and one to mend it."""
    status = f"{finding.status:8s}"
    if sys.stdout.isatty():
        status = f"\033[{COLORS[finding.status]}m{status}\033[0m"
    print(f"{status}{finding.name:18s}{finding.text}", flush=True)
    if finding.do and finding.status in ("warn", "fail"):
        print(f"{'':26s}mend: {finding.do}", flush=True)
