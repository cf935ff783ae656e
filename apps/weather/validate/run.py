"""The run of the suite: each case is a few runs of the apps, then a comparison; verdicts go to `validation.json`."""

from __future__ import annotations

import time as clock
from pathlib import Path
from typing import Any

from hpckit.apps.common.validation import VALIDATION, Found, near
from hpckit.apps.weather.validate import (
    bryan_fritsch,
    clouds,
    density_current,
    floods,
    globe,
    linear_waves,
    mountains,
    rest,
    rising_bubble,
    rotating,
    split,
)
from hpckit.apps.weather.validate.case import Case
from hpckit.apps.weather.validate.config import Config
from hpckit.comm.agree import share_json, wait_for_ranks
from hpckit.errors import BlowUpError
from hpckit.run.context import DryRun, Run

SUITE: dict[str, Case] = {
    "straka": density_current.CASE,
    "rising_bubble": rising_bubble.CASE,
    "linear_waves": linear_waves.CASE,
    "rest": rest.CASE,
    "split": split.CASE,
    "bryan_fritsch": bryan_fritsch.CASE,
    "mountains": mountains.CASE,
    "orographic_rain": mountains.RAIN,
    "bomex": clouds.BOMEX,
    "dycoms": clouds.DYCOMS,
    "storms": clouds.STORMS,
    "adjustment": rotating.ADJUSTMENT,
    "geostrophic_jet": rotating.JET,
    "kelvin": rotating.KELVIN,
    "poincare": rotating.POINCARE,
    "sphere": globe.CASE,
    "dam_breaks": floods.DAMS,
    "lakes": floods.LAKES,
}


def run(config: Config, run: Run) -> None:
    """Do the chosen cases on all ranks of `run.comm`; ends "missed" if a number is out of its range."""
    begin, folder = clock.perf_counter(), run.directory.path
    wanted = {name: SUITE[name].runs(config, folder) for name in config.cases}
    total, done, found, status = sum(len(runs) for runs in wanted.values()), 0, Found(), "done"
    for name, runs in wanted.items():
        if run.rank == 0:
            SUITE[name].prepare(folder)
        wait_for_ranks(run.comm)  # the files are there
        folders: dict[str, Path] = {}
        lost = []
        with run.timer(name):
            for label, nested in runs.items():
                try:
                    folders[label] = run.nested(nested.target, nested.settings, label).path
                except BlowUpError as error:
                    lost.append(near(label, "runs to its end", float("nan"), 1.0, 0.0, error.message))
                if run.stop_requested():
                    status = "stopped"
                    break
                done += 1
                run.progress(done, done, total, label)
        if status == "stopped":
            break
        if run.rank == 0:
            _add(found, Found(lost) if lost else SUITE[name].compare(folders))
            run.directory.write_json(VALIDATION, _record(found))
    missed = share_json(run.comm, sum(not check.passed for check in found.checks))
    if status == "done" and missed:
        status = "missed"
    seconds = clock.perf_counter() - begin
    numbers = share_json(run.comm, len(found.checks))
    result = f"{numbers - missed} of {numbers} numbers are what they should be, after {done} runs."
    counts = {"wall_seconds": seconds, "runs": done, "numbers": numbers, "missed": missed, "result": result}
    run.finish(counts, status=status)


def dry_run(config: Config, ranks: int) -> DryRun:
    """The cost of `run` on that many ranks: its cases, each of which has its own dry run."""
    folder = Path("CASES")
    lines = [f"{name}: {', '.join(SUITE[name].runs(config, folder))}" for name in config.cases]
    return DryRun(
        ranks=ranks,
        decomposition=lines,
        halo_bytes=0,
        memory_per_rank=0,
        output_bytes=0,
        frames=0,
        steps=sum(len(SUITE[name].runs(config, folder)) for name in config.cases),
        notes=["a step is a whole run; memory and output are those of the runs, tens of MB"],
    )


def _add(found: Found, more: Found) -> None:
    found.checks.extend(more.checks)
    found.curves.extend(more.curves)
    found.pictures.extend(more.pictures)


def _record(found: Found) -> dict[str, Any]:
    """The content of `validation.json`."""
    return {
        "checks": [check.to_dict() for check in found.checks],
        "curves": [curves.to_dict() for curves in found.curves],
        "pictures": [{"run": run, "field": field, "title": title} for run, field, title in found.pictures],
    }
