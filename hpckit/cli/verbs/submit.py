"""`hpckit submit`: from a run file, preset, program or benchmark to a job in Slurm's queue, or to a script for it."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import secrets
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hpckit.cli.job import JOB, has_begun
from hpckit.cli.verbs import run
from hpckit.errors import InputError, Mistakes, SetupError
from hpckit.io.files import utc_now
from hpckit.jobs import slurm
from hpckit.jobs.script import RUN, SETTINGS, Job, job_script, seconds
from hpckit.jobs.site import Site, load_site, read_toml_file
from hpckit.launch import mpiexec
from hpckit.launch.launcher import OPEN_MPI, PMI
from hpckit.run.directory import RunDirectory, run_name, safe_name
from hpckit.settings.apps import find_preset
from hpckit.settings.config import is_run_file
from hpckit.settings.layers import read_toml, refuse_dashes
from hpckit.settings.table import Parser

SITE_FILE = Path("~/.config/hpckit/site.toml")
MOST_TASKS = 1000  # of an array
_COMMA = re.compile(r",(?![^\[\]]*\])")  # not one inside [ ]
USAGE = """hpckit submit FILE|PRESET [key=value …] --nodes N --time T [options, and those of hpckit run]
       hpckit submit PROGRAM.py|bench|graph --nodes N --time T [options] [-- arguments]
       hpckit submit serve|generate MODEL … --nodes N --time T [options, and those of the verb]
       hpckit submit DIR --nodes N --time T        go on with a run that stopped
       hpckit submit --list JOBS.toml --into DIR   write the ready scripts of a list"""
SERVERS = ("serve", "generate")
RESUME = ("hpckit", "resume", RUN)


def parser() -> argparse.ArgumentParser:
    """The options of `hpckit submit`; unknown ones are passed on to `hpckit run`."""
    it = Parser(
        prog="hpckit submit",
        usage=USAGE,
        description="Write a Slurm script for a run and submit it. The run directory is made now, with its settings.",
        allow_abbrev=False,
    )
    it.add_argument("--nodes", type=int, default=1, metavar="N", help="nodes (1)")
    it.add_argument("--time", metavar="T", help="time limit: minutes, HH:MM:SS or D-HH:MM:SS")
    it.add_argument("--ranks-per-node", type=int, metavar="R", help="MPI ranks a node (the site file's)")
    it.add_argument(
        "--array",
        action="append",
        default=[],
        metavar="KEY=V1,V2,…",
        help="a run for each value; more than once: each with each",
    )
    it.add_argument("--array-limit", type=int, metavar="K", help="at most K runs of the array at once")
    it.add_argument("--after", default="", metavar="JOB", help="wait for a job: 1234, or afterany:1234")
    it.add_argument("--name", metavar="NAME", help="the job's name; behind serve: the model's, as without submit")
    it.add_argument("--site", type=Path, metavar="FILE", help=f"the site file (HPCKIT_SITE, else {SITE_FILE})")
    it.add_argument("--dry-run", action="store_true", help="print the script, make and submit nothing")
    it.add_argument("--script", type=Path, metavar="FILE", help="write a script for sbatch, submit nothing")
    it.add_argument("--list", type=Path, metavar="JOBS.toml", help="write a script for each entry, submit nothing")
    it.add_argument(
        "--into", type=Path, default=Path("jobscripts"), metavar="DIR", help="folder for --list (jobscripts)"
    )
    it.add_argument("--directory", metavar="DIR", help="the run directory to make (a new one in runs/)")
    return it


def main(arguments: list[str]) -> int:
    """The verb `submit`."""
    options, words = _parse(arguments)
    site = find_site(options.site)
    if options.list is not None:
        return _write_list(options.list, options.into, site)
    if not words:
        raise InputError("nothing to submit", do="hpckit submit FILE|PRESET|PROGRAM.py|DIR --nodes N --time T")
    if options.script is not None:
        _write_script(options.script, job_script(ready_job(options, words, site), site))
        print(f"wrote {options.script}; submit it:  sbatch {shlex.quote(str(options.script))}")
        return 0
    return _submit(options, words, arguments, site)


def _require_target(words: list[str]) -> None:
    """Raise `InputError` if there is no program, app or model of this name."""
    word = words[0]
    if word in SERVERS:
        _require_model(words)
    elif word in ("bench", "graph"):
        return
    elif word.endswith(".py"):
        if not Path(word).is_file():
            raise InputError(f"there is no file {word}")
    elif not is_run_file(word):
        find_preset(word)
    elif not Path(word).is_dir():  # else possibly a run directory
        read_toml(Path(word), word)


def _require_time(text: str | None) -> None:
    """Raise `InputError` for a time limit that is missing, or is none."""
    if text is None:
        raise InputError("no time limit", do="--time 01:00:00")
    seconds(text)


def find_site(given: Path | None) -> Site:
    """The given site file, else that of the environment or the user, else a site of defaults.

    If it does not set the PMI between srun and the ranks, that of this environment's MPI is used.
    """
    path = given or (Path(os.environ["HPCKIT_SITE"]) if os.environ.get("HPCKIT_SITE") else SITE_FILE.expanduser())
    is_default = given is None and not os.environ.get("HPCKIT_SITE") and not path.exists()
    site = Site() if is_default else load_site(path)
    if "pmi" in site.mpi.model_fields_set or not _is_open_mpi():
        return site
    return site.model_copy(update={"mpi": site.mpi.model_copy(update={"pmi": PMI[OPEN_MPI]})})


def _is_open_mpi() -> bool:
    try:
        return mpiexec.is_open_mpi(mpiexec.find_mpiexec())
    except SetupError:  # a login node may have no MPI
        return False


def ready_job(options: argparse.Namespace, words: list[str], site: Site) -> Job:
    """A job that makes its run directory when it starts, so that its script can be submitted many times."""
    tried = Mistakes()
    job = _shape(options, words, site, tried)
    array = [] if job.start else tried(lambda: _tasks(options.array))
    tried.tell()
    if job.start:
        return job
    settings = [SETTINGS] if array else []
    start = ["hpckit", "run", *words, *settings, "--directory", RUN]
    return replace(job, start=start, resume=RESUME, array=array, output=f"slurm-%x-{'%A_%a' if array else '%j'}.out")


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our options, and all other words; words after `--` are never our options, nor is a `--name` behind `serve`."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    refuse_dashes(arguments[:cut])
    options, words = parser().parse_known_args(arguments[:cut])
    if words[:1] != ["serve"]:
        return options, words + arguments[cut + 1 :]
    ours, names = _without_names(arguments[:cut])
    options, words = parser().parse_known_args(ours)
    return options, words + names + arguments[cut + 1 :]


def _without_names(words: list[str]) -> tuple[list[str], list[str]]:
    """Words with the target `serve`, without the names that the model is to have; and these names."""
    before = ["", *words]
    target = next(
        i
        for i, word in enumerate(words)
        if word == "serve" and (not before[i].startswith("--") or "=" in before[i] or before[i] == "--dry-run")
    )
    ours, rest, names = words[:target], iter(words[target:]), list[str]()
    for word in rest:
        if word == "--name":
            names += [word, *itertools.islice(rest, 1)]
        elif word.startswith("--name="):
            names.append(word)
        else:
            ours.append(word)
    return ours, names


def _shape(options: argparse.Namespace, words: list[str], site: Site, tried: Mistakes) -> Job:
    """The part common to all kinds of jobs; `start` is empty for an app, whose run directory is not known here.

    Mistakes of the target and of the options go to `tried`, whose owner tells them with those that it finds.
    """
    gpu = "--gpu" in words
    serial, serves = words[0] in ("bench", "graph"), words[0] in SERVERS
    program = words[0].endswith(".py")
    tried(lambda: _require_target(words))
    tried(lambda: _require_time(options.time))
    ranks = options.ranks_per_node or (site.gpu.gpus_per_node if gpu else site.cpu.ranks_per_node)
    tried.found += _misused(options, words, ranks)
    subject = _subject(words) if serial or serves else Path(words[0]).stem or words[0]
    title = safe_name(options.name or ("-".join([words[0], subject]) if serial or serves else subject))
    start: list[str] = []
    if serial or serves or program:
        start = ["hpckit", *([] if serial or serves else ["run"]), *words, *_launcher(words, site)]
    return Job(
        name=title,
        nodes=options.nodes,
        time=options.time or "60",  # one that is missing is a mistake already
        ranks_per_node=ranks or 1,
        gpu=gpu,
        serial=serial,
        start=start,
        array_limit=options.array_limit or 0,
        after=options.after,
        about=shlex.join(["hpckit", *start[1:]] if start else ["hpckit", "run", *words]),
    )


def _misused(options: argparse.Namespace, words: list[str], ranks: int | None) -> Iterator[InputError]:
    """Options that do not go with this target, with one another, or are missing."""
    serial, program = words[0] in ("bench", "graph"), words[0].endswith(".py")
    if options.array_limit is not None and (options.array_limit < 1 or not options.array):
        yield InputError(
            f"--array-limit {options.array_limit}" + ("" if options.array else " without --array"),
            do="give 1 or more, with --array KEY=V1,V2,…",
        )
    if options.array and (serial or program or words[0] in SERVERS):
        yield InputError("--array is for settings of apps; a program has none", do="submit it once for each")
    if {"-n", "--ranks"} & set(words) and not serial and not program:
        yield InputError("-n is for hpckit run", do="--nodes N --ranks-per-node R: the job has N x R ranks")
    if not ranks:
        yield InputError(
            "the number of ranks per node is missing: no site file says it",
            do="--ranks-per-node R, or ranks_per_node under [cpu] in ~/.config/hpckit/site.toml",
        )


def _launcher(words: list[str], site: Site) -> list[str]:
    """The launcher option of a scaling study, which starts its ranks itself."""
    if words[:2] != ["bench", "scaling"] or "--launcher" in words:
        return []
    if site.mpi.launcher == "mpiexec":
        return ["--launcher", shlex.join(["mpiexec", *site.mpi.options])] if site.mpi.options else []
    pmi, bind = site.mpi.pmi, site.gpu.bind if "--gpu" in words else ""
    options = [f"--mpi={pmi}" if pmi else "", "--kill-on-bad-exit=1", "--cpu-bind=cores"]
    options += [f"--gpu-bind={bind}" if bind else "", *site.mpi.options]
    return ["--launcher", shlex.join(["srun", *filter(None, options)])]


def _subject(words: list[str]) -> str:
    """The subject of a benchmark, graph or server: its name, or that of the file or model."""
    if words[0] in SERVERS:
        return Path(words[-1] if len(words) < 2 else words[1]).name
    return words[1] if words[0] == "bench" and len(words) > 1 else Path(words[-1]).stem


def _require_model(words: list[str]) -> None:
    """Raise `InputError` unless a model follows the verb."""
    if len(words) < 2 or words[1].startswith("-"):
        raise InputError(f"{words[0]} what?", do=f"hpckit submit {words[0]} MODEL --time T, options of the verb behind")
    if not Path(words[1]).exists():
        raise InputError(f"there is no model {words[1]}", do="give a folder or a .gguf file that the job sees, too")


def _submit(options: argparse.Namespace, words: list[str], arguments: list[str], site: Site) -> int:
    """Make the run directories, submit the script, and note the job in them; on failure remove them."""
    tried = Mistakes()
    job = _shape(options, words, site, tried)
    if not site.environment.venv and sys.prefix != sys.base_prefix:
        site = site.model_copy(update={"environment": site.environment.model_copy(update={"venv": sys.prefix})})
    if job.start:
        text = tried(lambda: job_script(job, site))
        tried.tell()
        if options.dry_run:
            print(text, end="")
            return 0
        script = Path(f"{job.name}-{secrets.token_hex(3)}.sh")
        _write_script(script, text)
        print(f"job {slurm.submit(script)}: {script}")
        return 0
    if has_begun(words[0]):
        tried.tell()
        return _go_on(RunDirectory(words[0]), replace(job, start=RESUME, resume=RESUME), site, options.dry_run)
    return _submit_app(options, words, arguments, job, site, tried)


def _submit_app(
    options: argparse.Namespace, words: list[str], arguments: list[str], job: Job, site: Site, tried: Mistakes
) -> int:
    """Submit an app: a run directory, or a folder of them for an array, with all settings in it."""
    array = tried(lambda: _tasks(options.array)) or []
    ranks = job.nodes * job.ranks_per_node
    folder = Path(options.directory or Path("runs", run_name(job.name, "array" if array else "", ranks))).absolute()
    runs = [folder / f"{task:03d}" for task in range(len(array))] or [folder]
    output = (folder / "%3a" / "attempts/000/job-%A.out") if array else folder / "attempts/000/job-%j.out"
    plain = ("--no-report",) if "--no-report" in words else ()
    start, resume = ("hpckit", "run", RUN, *plain), (*RESUME, *plain)
    job = replace(job, array=array, runs=[str(path) for path in runs], output=str(output), start=start, resume=resume)
    text = tried(lambda: job_script(job, site))
    # Checks every setting before anything is made.
    tasks = [run.parser().parse_intermixed_args([*words, *settings]) for settings in array or [()]]
    for one in tasks:
        tried(partial(run.load_checked, one, max(1, ranks)))
    tried.tell()
    if options.dry_run:
        print(text, end="")
        return 0
    made = [] if folder.exists() else [folder]
    try:
        for path, one in zip(runs, tasks, strict=True):
            one.directory = str(path)
            run.prepare(one, ["submit", *arguments], ranks, elsewhere=True)
        first = RunDirectory(runs[0])
        first.write_text("attempts/000/job.sh", text)
        number = slurm.submit(first.path / "attempts/000/job.sh")
    except BaseException:
        for path in made:
            shutil.rmtree(path, ignore_errors=True)
        raise
    for task, path in enumerate(runs):
        name = f"{number}_{task}" if array else str(number)
        _note(RunDirectory(path), name, job)
    print(f"job {number}: {folder}")
    print(f"hpckit watch {shlex.quote(os.path.relpath(folder))}")
    return 0


def _go_on(directory: RunDirectory, job: Job, site: Site, dry: bool) -> int:
    """Submit a job that goes on with a run."""
    if directory.is_done():
        raise InputError(f"the run in {directory.path} is done: nothing is left to submit", do="hpckit report DIR")
    resolved = directory.read_json("resolved.json") or {}
    output = str(directory.path / "attempts/000/job-%j.out")
    job = replace(job, name=safe_name(str(resolved.get("title", "run"))), runs=[str(directory.path)], output=output)
    text = job_script(job, site)
    if dry:
        print(text, end="")
        return 0
    directory.write_text("attempts/000/job.sh", text)
    number = slurm.submit(directory.path / "attempts/000/job.sh")
    _note(directory, str(number), job)
    print(f"job {number}: {directory.path}")
    return 0


def _note(directory: RunDirectory, name: str, job: Job) -> None:
    """Record the job that works on this run."""
    record: dict[str, Any] = {"job": name, "submitted": utc_now(), "nodes": job.nodes, "time": job.time}
    directory.write_json(JOB, {**record, "submitted_seconds": time.time()})


def _tasks(arrays: list[str]) -> list[tuple[str, ...]]:
    """`["grid.nx=1,2", "a=3,4"]` as the settings of each task: all combinations."""
    columns = []
    for text in arrays:
        key, _, values = text.partition("=")
        parts = [value.strip() for value in _COMMA.split(values)]
        if not key or not all(parts):
            raise InputError(f"--array {text!r} is not a list of settings", do="--array grid.nx=200,400,800")
        columns.append([f"{key}={value}" for value in parts])
    tasks = list(itertools.product(*columns)) if columns else []
    if len(tasks) > MOST_TASKS:
        raise InputError(f"an array of {len(tasks)} runs; at most {MOST_TASKS}", do="submit it in parts")
    return tasks


def _write_list(path: Path, folder: Path, site: Site) -> int:
    """Write the ready script of each entry of the list: file name = words of `hpckit submit`."""
    entries = read_toml_file(path, "the list")
    if not entries:
        raise InputError(f"{path} lists no jobs", do='"job.sh" = "thermal --nodes 2 --time 01:00:00"')
    for name, text in entries.items():
        if not isinstance(text, str) or safe_name(name) != name:
            raise InputError(
                f"{path}: {name} is not a file name, or its words are not text", do='"job.sh" = "thermal --nodes 2"'
            )
        options, words = _parse(shlex.split(text))
        if options.time is None or not words:
            raise InputError(f"{path}: {name} lacks the target to run, or --time")
        _write_script(folder / name, job_script(ready_job(options, words, site), site))
        print(folder / name)
    return 0


def _write_script(path: Path, text: str) -> None:
    """Write an executable script; it replaces only a script that hpckit made."""
    try:
        if path.exists() and "Made by hpckit submit" not in path.read_text(encoding="utf-8", errors="replace"):
            raise InputError(f"{path} exists and was not made by hpckit submit", do="give another file name")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
    except OSError as error:
        raise SetupError(f"{path} cannot be written: {error.strerror}", do="give a file in a folder of yours") from None
