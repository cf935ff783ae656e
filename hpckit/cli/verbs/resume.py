"""`hpckit resume DIR [key=value …] [-n RANKS]`: go on with a run from its newest whole checkpoint, on any ranks."""

from __future__ import annotations

import argparse
import copy
import os
import shlex
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hpckit.cli.job import of_the_job, require_ranks, run_joined, run_launched
from hpckit.cli.program import WATCHED, run_program
from hpckit.cli.verbs.run import positive
from hpckit.errors import InputError
from hpckit.launch import mpiexec
from hpckit.launch.launcher import Joined, check_plan
from hpckit.launch.lock import locked
from hpckit.launch.provenance import provenance
from hpckit.run.directory import RunDirectory
from hpckit.settings.apps import App, app_of
from hpckit.settings.config import check, mistakes_of
from hpckit.settings.identity import CHANGEABLE, inputs, is_changeable
from hpckit.settings.layers import Mistake, Settings, SettingsLayer, command_line_layer, refuse_dashes
from hpckit.settings.schema import Schema, dotted
from hpckit.settings.table import Parser


def parser() -> argparse.ArgumentParser:
    """The options of `hpckit resume`."""
    it = Parser(
        prog="hpckit resume",
        description="Go on with a run that was stopped, killed or lost, from its newest whole checkpoint.",
        epilog="Under mpiexec or srun it joins the ranks that are there. Exit codes: hpckit explain.",
        allow_abbrev=False,
    )
    it.add_argument("directory", metavar="DIR", help="the run directory; `hpckit ls` lists them")
    it.add_argument(
        "settings",
        nargs="*",
        default=[],  # else argparse requires them
        metavar="key=value",
        help=f"settings that do not change what is computed: {', '.join(CHANGEABLE)}",
    )
    it.add_argument("-n", "--ranks", type=positive, metavar="RANKS", help="MPI ranks, any number (as many as before)")
    it.add_argument("--no-report", action="store_true", help="do not build the report at the end")
    return it


def main(arguments: list[str]) -> int:
    """The verb `resume`; returns the exit code of the job."""
    return of_the_job(partial(_main, arguments))


def _main(arguments: list[str], above: Joined | None) -> int:
    refuse_dashes(arguments)
    options = parser().parse_intermixed_args(arguments)
    require_ranks(options.ranks, above)
    directory = RunDirectory(options.directory)
    if program := (directory.read_json("resolved.json") or {}).get("program"):
        return _run_program_again(directory, program, options, above)
    record = _changed(_record(directory), options.settings)
    if directory.is_done():
        print(f"the run is done already: {directory.path}", flush=True)
        return 0
    ranks = above.size if above else options.ranks or int(record["ranks"])
    report = not options.no_report

    def prepare(size: int) -> RunDirectory:
        _prepare(directory, options.settings, arguments, size)
        return directory

    if above:
        return run_joined(directory, prepare, above, report=report, verb="resume")
    memory = _check(directory, record, ranks)
    mpiexec.find_mpiexec()
    mpiexec.require_room(ranks)
    mpiexec.require_memory_here(memory, ranks)
    with locked(directory, "resume") as lock:
        return run_launched(prepare(ranks), ranks, lock, report=report)


def _run_program_again(
    directory: RunDirectory, program: list[str], options: argparse.Namespace, above: Joined | None
) -> int:
    """Start the program of a `hp.Run` again in its folder, with its arguments: its checkpoints go on by themselves."""
    record = directory.read_json("resolved.json")
    if options.settings:
        raise InputError(
            f"{directory.path} is the run of a program, which has no settings to change: {' '.join(options.settings)}",
            do=f"hpckit run {shlex.join(program)} with other arguments",
        )
    if directory.is_done():
        print(f"the run is done already: {directory.path}", flush=True)
        return 0
    os.chdir(record["folder"])
    return run_program(program, options.ranks or int(record["ranks"]), above, WATCHED)


def _record(directory: RunDirectory) -> dict[str, Any]:
    """The record of the run, as `hpckit run` resolved it."""
    record = directory.read_json("resolved.json")
    if not isinstance(record, dict) or not {"app", "ranks", "values", "package"} <= set(record):
        raise InputError(
            f"{directory.path} is not a run of an app",
            likely="another folder was meant",
            do="give a directory that `hpckit run` made; `hpckit ls` lists them",
        )
    return record


def _changed(record: dict[str, Any], words: list[str]) -> dict[str, Any]:
    """The record with changed settings. Raises `InputError` that lists all words that are invalid or cannot change."""
    if not words:
        return record
    app = app_of(record)
    schema = Schema(app.config)
    layer, mistakes = command_line_layer(words, schema)
    settings = Settings()
    settings.add(SettingsLayer("resolved.json", copy.deepcopy(record["values"]), Path.cwd()))
    mistakes += settings.add(layer)
    origins = dict(record.get("origins") or {})
    for path, _, owner in settings.leaves():
        if owner is not layer:
            continue
        key = dotted(path)
        if not is_changeable(key):
            mistakes.append(Mistake(layer.source, f"{key}: a run goes on with the settings that it was begun with"))
        origins[key] = "command line of resume"
    if mistakes:
        raise InputError(
            "\n".join(map(str, mistakes)),
            do=f"these may be changed: {', '.join(CHANGEABLE)}; for other settings start a new run",
        )
    try:
        check(app.config, settings.tree)
    except ValidationError as error:
        raise InputError("\n".join(map(str, mistakes_of(error, schema, settings, "resolved.json")))) from None
    return {**record, "values": settings.tree, "origins": origins}


def _check(directory: RunDirectory, record: dict[str, Any], ranks: int) -> int:
    """Check that the settings are valid, also on this number of ranks; else raise `InputError`. Returns the bytes per
    rank.
    """
    app: App = app_of(record)
    try:
        config = check(app.config, record["values"])
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InputError(
            f"{'.'.join(map(str, first['loc']))}: {first['msg']}",
            where=str(directory.path / "resolved.json"),
            likely="another version of hpckit or of the app has written it",
        ) from None
    plan = check_plan(app, config, ranks)
    return 0 if record.get("gpu") else plan.memory_per_rank


def _prepare(directory: RunDirectory, settings: list[str], arguments: list[str], ranks: int) -> None:
    """Under the lock: begin another attempt, with the files that the ranks need."""
    record = _changed(_record(directory), settings)
    memory = _check(directory, record, ranks)
    now = {"ranks": ranks, "memory": memory, "inputs": inputs(app_of(record), record["values"])}
    number = directory.begin_attempt()
    directory.write_json("resolved.json", {**record, **now, "attempt": number})
    directory.write_json("provenance.json", provenance(["resume", *arguments], ranks, mpiexec.rank_environment(ranks)))
