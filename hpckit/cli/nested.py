"""Runs inside a run: another app, started on the same ranks, in a folder of its own below that of the outer run."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from hpckit.comm.agree import plain, share_json, wait_for_ranks
from hpckit.errors import BlowUpError, InputError
from hpckit.launch.failure import failure_file, failure_record
from hpckit.run.context import Run
from hpckit.run.directory import RunDirectory
from hpckit.run.settings import CheckSettings
from hpckit.settings.apps import App, find_preset
from hpckit.settings.config import check
from hpckit.settings.identity import inputs
from hpckit.settings.run_file import run_file_text

CASES = "cases"


def start_nested(outer: Run, target: str, settings: Mapping[str, Any], name: str) -> RunDirectory:
    """Collective: run APP or APP/PRESET with `settings` over it in `cases/NAME` of `outer`; returns its directory.

    The folder is a run directory like any other: `hpckit report` shows it and its `run.toml` runs again. When `outer`
    is resumed, a nested run that had ended is kept, and one that had not starts anew. Raises `InputError` for invalid
    settings, and what the app raises, on every rank; a blow-up leaves its `failure.json`.
    """
    app, preset = find_preset(target)
    below = {"app": app.name, **_checks(outer, app), **(app.presets[preset][1] if preset else {})}
    tree = _laid_over(below, settings)
    try:
        config = check(app.config, tree)
    except ValidationError as error:
        raise InputError(f"settings of the nested run {name}: {error}") from None
    found = None
    if outer.rank == 0:
        folder = outer.directory.path / CASES / name
        values = config.model_dump(mode="json")
        record = {"values": plain(values), "inputs": inputs(app, values)}
        kept = outer.directory.attempt_number > 0 and _has_ended(folder, record)
        if not kept:
            if outer.directory.attempt_number > 0:
                shutil.rmtree(folder, ignore_errors=True)
            _make(outer, folder, app, config, record)
        found = {"path": str(folder), "kept": kept}
    found = share_json(outer.comm, found)
    directory = RunDirectory(found["path"])
    if found["kept"]:
        outer.say(f"{name}: has ended before, kept")
        return directory
    run = Run(
        outer.comm,
        directory,
        app=app.name,
        title=name,
        lines=False,
        device=outer.device,
        parent=outer,
        start=start_nested,
        replay=outer.replay,
    )
    try:
        importlib.import_module(f"{app.package}.run").run(config, run)
    except BlowUpError as error:  # the one failure that all ranks raise together in the middle of a run
        _keep_failure(run, error)
        raise
    if run.status == "running":
        run.finish({})
    wait_for_ranks(outer.comm)  # rank 0 has written its records
    return directory


def _checks(outer: Run, app: App) -> dict[str, Any]:
    """The section `checks` of `outer`, which applies to all its nested runs."""
    if app.config.model_fields["checks"].annotation is not CheckSettings:
        return {}  # a section of the app's own
    return {"checks": {"replay": outer.replay, "messages": outer.observer.checks_messages}}


def _has_ended(folder: Path, record: Mapping[str, Any]) -> bool:
    """Whether the run in `folder` was begun with these settings and input files, and is complete."""
    if not folder.exists():
        return False
    directory = RunDirectory(folder)
    before = directory.read_json("resolved.json") or {}
    return directory.is_done() and all(before.get(key) == value for key, value in record.items())


def _make(outer: Run, folder: Path, app: App, config: BaseModel, decides: Mapping[str, Any]) -> None:
    """Make the directory of a nested run, with its settings."""
    directory = RunDirectory.create(folder)
    directory.write_text("run.toml", run_file_text(app, config))
    record = {
        "app": app.name,
        "package": app.package,
        "title": folder.name,
        "ranks": outer.size,
        "units": app.units,
        **decides,
        "origins": {},
    }
    directory.write_json("resolved.json", record)
    directory.write_json("provenance.json", outer.directory.read_json("provenance.json") or {})


def _keep_failure(run: Run, error: BlowUpError) -> None:
    if run.rank == 0:
        record = failure_record(error, run.rank, run.size, run.step, run.directory.path / failure_file(run.directory))
        run.directory.create_json(failure_file(run.directory), record)
        summary = {"app": run.app, "title": run.title, "ranks": run.size, "status": "failed"}
        run.directory.write_json("summary.json", {**summary, "exit_code": error.exit_code, "error": error.to_dict()})


def _laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables, values of `above` in place of those of `below`."""
    both = dict(below)
    for key, value in above.items():
        inner = both.get(key)
        both[key] = _laid_over(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return both
