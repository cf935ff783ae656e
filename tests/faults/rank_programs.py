"""Fault cases that are MPI programs: started, ended in time, and their rows read, whatever became of the program."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hpckit.launch import mpiexec
from hpckit.launch.scratch import scratch
from tests.faults.jobs import job
from tests.faults.taken_out import NONE

ROWS = "rows.json"
START_SECONDS, CASE_SECONDS = 300.0, 120.0  # a start and a case take a few, where nothing is held up or compiled


def rows_of(
    program: str, what: str, ranks: int, seed: str, names: Sequence[str], without: str = NONE
) -> Iterator[dict[str, Any]]:
    """`python -m hpckit.bench.fault_cases.PROGRAM FOLDER SEED WITHOUT NAMES` on MPI ranks: the rows that it wrote to
    FOLDER/rows.json, and one that tells how it ended for each name that has none.
    """
    with scratch("hpckit-faults-") as folder:
        with job(
            mpiexec.command(ranks, ["-m", f"{__package__}.{program}", folder, seed, without, *names]),
            env=mpiexec.rank_environment(ranks),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as started:
            try:
                said = started.communicate(timeout=START_SECONDS + CASE_SECONDS * len(names))[1]
            except subprocess.TimeoutExpired:
                said = "it did not end"
        path = Path(folder, ROWS)
        rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    for row in rows:
        yield {"what": what, "passed": not row["problem"], **row}
    told = {row["app"] for row in rows}
    lines = [line for line in said.strip().splitlines() if "Error" in line] or said.strip().splitlines()[-1:]
    problem = f"the job ended with {started.returncode}: {' '.join(lines[:1])[:300]}"
    for name in names:
        if name not in told:
            yield {"what": what, "app": name, "case": name, "passed": False, "problem": problem}
