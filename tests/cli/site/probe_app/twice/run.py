"""The outer run."""

from __future__ import annotations

import json

from hpckit.apps.common.validation import VALIDATION, near
from hpckit.errors import BlowUpError
from hpckit.run.context import DryRun, Run
from probe_app.twice.config import Config


def dry_run(config: Config, ranks: int) -> DryRun:
    return DryRun(ranks, ["two runs"], 0, 0, 0, 0, 2)


def run(config: Config, run: Run) -> None:
    first = run.nested("probe/short", {"grid": {"nx": 41}}, "first")
    settings = {"time": {"steps": config.steps}}
    if config.fail:
        settings["failure"] = {"kind": "everywhere", "step": 1}
    if config.wrong:
        settings["grid"] = {"nq": 3}
    try:
        second = run.nested("probe", settings, "second")
        steps = [json.loads((one.path / "summary.json").read_text())["steps"] for one in (first, second)]
    except BlowUpError:
        steps = [3, float("nan")]
    check = near("second", "steps", steps[1], steps[0], 0.5, "the first run")
    if run.rank == 0:
        run.directory.write_json(VALIDATION, {"checks": [check.to_dict()], "curves": [], "pictures": []})
    run.finish({"steps": 2}, "done" if check.passed else "missed")
