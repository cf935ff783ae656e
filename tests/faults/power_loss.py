"""The power fails: every prefix of the operations on the files of checkpoints, without what was not forced to disk.

SIGKILL cannot test a missing fsync, since the system keeps what a dead process wrote. So the operations are recorded,
and replayed on a model of a disk: bytes of a file last from its fsync on, names of a folder from that of the folder on.
What was not forced may be there or not: nothing of it, all of it, or names without their bytes.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.errors import CorruptDataError
from hpckit.io import failpoints
from hpckit.io.checkpoint.choose import choose
from hpckit.io.checkpoint.writer import Writer
from hpckit.io.failpoints import FileOperation
from tests.faults.stepping import INTERVAL, SHAPE, state_of, values

SAVES = 4
VARIANTS = ("nothing that was not forced", "everything", "names without their bytes")


@dataclass
class File:
    """Bytes of a file: as written, and as they last."""

    data: bytearray = field(default_factory=bytearray)
    lasting: bytes = b""


@dataclass
class Disk:
    """Names of files and folders: as they are, and as they last."""

    files: dict[Path, File] = field(default_factory=dict)
    folders: set[Path] = field(default_factory=set)
    lasting_files: dict[Path, File] = field(default_factory=dict)
    lasting_folders: set[Path] = field(default_factory=set)

    def do(self, it: FileOperation) -> None:
        """One operation of the log."""
        if it.kind == "mkdir":
            self.folders.add(it.path)
        elif it.kind == "create":
            self.files[it.path] = File()
        elif it.kind == "write":
            assert it.data is not None
            data = self.files[it.path].data
            data.extend(bytes(max(0, it.offset + len(it.data) - len(data))))
            data[it.offset : it.offset + len(it.data)] = it.data
        elif it.kind == "fsync":
            self.files[it.path].lasting = bytes(self.files[it.path].data)
        elif it.kind == "rename":
            assert it.target is not None
            self.files[it.target] = self.files.pop(it.path)
        elif it.kind == "unlink":
            self.files.pop(it.path, None)
        else:
            inside = {path: file for path, file in self.files.items() if path.parent == it.path}
            kept = {path: file for path, file in self.lasting_files.items() if path.parent != it.path}
            self.lasting_files = {**kept, **inside}
            self.lasting_folders |= {path for path in self.folders if path.parent == it.path}

    def put(self, old: Path, new: Path, variant: str) -> None:
        """Make the files that are there after the power failed, below `new` in place of `old`."""
        unforced = variant != VARIANTS[0]
        folders = self.folders if unforced else self.lasting_folders
        for path in sorted({old, *folders}):
            (new / path.relative_to(old)).mkdir(parents=True, exist_ok=True)
        for path, file in (self.files if unforced else self.lasting_files).items():
            data = bytes(file.data) if variant == VARIANTS[1] else file.lasting
            place = new / path.relative_to(old)
            if place.parent.exists():
                place.write_bytes(data)


def power_loss(most: int) -> Iterator[dict[str, Any]]:
    """Prefixes of the operations of some checkpoints in each variant, all or about so many; a row each."""
    with tempfile.TemporaryDirectory(prefix="hpckit-faults-") as folder:
        log, saved = _recorded(Path(folder, "ckpt"))
        states = [(end, variant) for end in range(len(log) + 1) for variant in VARIANTS]
        for end, variant in states[:: max(1, len(states) // most)]:
            disk = Disk()
            for operation in log[:end]:
                disk.do(operation)
            after = Path(folder, f"after-{end}-{VARIANTS.index(variant)}")
            after.mkdir()
            disk.put(Path(folder, "ckpt"), after, variant)
            begin = time.monotonic()
            problem = _problem(after, max((step for at, step in saved if at <= end), default=0))
            case = f"{end} of {len(log)} operations, {variant}"
            seconds = round(time.monotonic() - begin, 2)
            yield {"what": "power loss", "case": case, "passed": not problem, "problem": problem, "seconds": seconds}


def _recorded(root: Path) -> tuple[list[FileOperation], list[tuple[int, int]]]:
    """The operations of some saves, and (operations until then, step) of each that was said to count."""
    log: list[FileOperation] = []
    saved: list[tuple[int, int]] = []

    def hook(operation: FileOperation) -> int | None:
        copied = None if operation.data is None else memoryview(bytes(operation.data))
        log.append(replace(operation, data=copied))
        return None

    failpoints.install(hook)
    try:
        root.mkdir()
        writer = Writer(MPI.COMM_SELF, root, keep=2)
        for number in range(1, SAVES + 1):
            step = number * INTERVAL
            writer.save(step, state_of(values(step), step))
            saved.append((len(log), step))
        writer.close()
    finally:
        failpoints.install(None)
    return log, saved


def _problem(root: Path, step: int) -> str:
    """What is lost or wrong after the power failed; at least `step` counted before."""
    try:
        generation, _ = choose(MPI.COMM_SELF, root)
        found = 0 if generation is None else generation.values["step"]
        if found < step:
            return f"step {step} is lost, {found} is left"
        if generation is not None and not np.array_equal(generation.read("field", (0, 0), SHAPE), values(found)):
            return f"step {found} is silently wrong"
    except CorruptDataError as error:
        return f"step {step} is lost: {error}" if step else f"what never counted is in the way: {error}"
    return ""
