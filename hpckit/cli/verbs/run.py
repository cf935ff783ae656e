"""`hpckit run`: check the settings, make the run directory, and run in it."""

from __future__ import annotations

import argparse
import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpckit.cli.job import of_the_job, require_ranks, run_joined, run_launched
from hpckit.comm.gpu import missing, no_gpu
from hpckit.errors import InputError
from hpckit.jobs.process import cores
from hpckit.launch import mpiexec
from hpckit.launch.launcher import Joined, check_plan, joined
from hpckit.launch.lock import locked
from hpckit.launch.memory import lacking
from hpckit.report.units import counted
from hpckit.run.directory import RunDirectory, run_name
from hpckit.run.settings import WatchSettings
from hpckit.settings.apps import App, apps
from hpckit.settings.identity import inputs
from hpckit.settings.layers import refuse_dashes
from hpckit.settings.table import Parser, bytes_text, print_table

if TYPE_CHECKING:
    from hpckit.settings.config import Configuration

FLAGS = ("--check", "--no-watch")  # options without a value that may follow a program's name
USAGE = """hpckit run FILE|PRESET [key=value …] [-n RANKS] [--dry-run] [--show-config] [--to-toml]
       hpckit run PROGRAM.py [-n RANKS] [--watch SECONDS] [--check] [arguments of the program …]"""


def parser() -> argparse.ArgumentParser:
    """The options of `hpckit run`."""
    it = Parser(
        prog="hpckit run",
        usage=USAGE,
        description="Run an app from a run file, a preset or a LAMMPS input script, or a Python program of your own, on"
        " MPI ranks.",
        epilog="Under mpiexec or srun it joins the ranks that are there. Exit codes: hpckit explain.",
        allow_abbrev=False,
    )
    it.add_argument(
        "words",
        nargs="*",
        metavar="FILE|PRESET|PROGRAM.py [key=value …]",
        help="what to run (`hpckit init` lists presets), and settings on top of it: grid.nx=400",
    )
    it.add_argument("-n", "--ranks", type=positive, metavar="RANKS", help="MPI ranks to start (1)")
    it.add_argument("--dry-run", action="store_true", help="print what the run would need, start nothing")
    it.add_argument("--show-config", action="store_true", help="print every setting with its origin, start nothing")
    it.add_argument("--to-toml", action="store_true", help="print the settings as a run file, start nothing")
    it.add_argument(
        "--repro", action="store_true", help="the same bits on any number of ranks, for apps with a setting `repro`"
    )
    it.add_argument("--gpu", action="store_true", help="compute on GPUs; ranks may share one")
    it.add_argument(
        "--gpu-mpi",
        choices=("auto", "direct", "staged"),
        help="whether MPI gets device memory or copies in host memory (auto: ask the MPI library)",
    )
    it.add_argument(
        "--watch",
        type=_seconds,
        metavar="SECONDS",
        help="report ranks that others have waited for this long (60): rank, source line and operation",
    )
    it.add_argument(
        "--watch-end", type=_seconds, metavar="SECONDS", help="end a run that has stalled for this long (600)"
    )
    it.add_argument(
        "--trace", action="store_true", help="keep a timeline of all ranks in trace.json, for Perfetto, and draw it"
    )
    it.add_argument("--no-watch", action="store_true", help="start no watcher")
    it.add_argument("--check", action="store_true", help="compare every collective operation over its ranks first")
    it.add_argument("--directory", metavar="DIR", help="the run directory to make (a new one in runs/)")
    it.add_argument("--no-report", action="store_true", help="do not build the report at the end")
    return it


def main(arguments: list[str]) -> int:
    """The verb `run`; returns the exit code of the job."""
    return of_the_job(partial(_main, arguments))


def _main(arguments: list[str], above: Joined | None) -> int:
    words, program = _split_program(arguments)
    refuse_dashes(words)
    options = parser().parse_intermixed_args(words)
    if not options.words or not options.words[0]:
        raise InputError("nothing to run", do="hpckit run FILE|PRESET|PROGRAM.py; hpckit init lists presets")
    require_ranks(options.ranks, above)
    if program is not None:
        from hpckit.cli.program import run_program

        watch = _watch(options, WatchSettings())
        asked = _asks_to_watch(options)
        return run_program([*options.words, *program], options.ranks or 1, above, watch, asked=asked)
    ranks = above.size if above else options.ranks or 1
    if options.show_config or options.dry_run or options.to_toml:
        configuration = _load(options)
        if options.to_toml:
            print(configuration.run_file, end="")
        if options.show_config:
            show_config(configuration)
        if options.dry_run:
            plan = dry_run(configuration, ranks)
            here = not options.gpu and ranks <= cores()  # does not judge runs that are meant for another machine
            if here and (problem := lacking(plan.memory_per_rank, ranks)):
                print(f"note: too large for this machine: {problem}")
        return 0
    if above:
        return _run_joined(options, arguments, above)
    return _run_launched(options, arguments, ranks)


def show_config(configuration: Configuration) -> None:
    """Print every setting with its value and origin."""
    from hpckit.settings.schema import repr_toml

    rows = [(key, "" if value is None else repr_toml(value), origin) for key, value, origin in configuration.leaves()]
    print_table(("key", "value", "origin"), rows)


def dry_run(configuration: Configuration, ranks: int) -> Any:
    """Print what the run would need, and return it."""
    plan = _plan(configuration, ranks)
    print(
        f"{configuration.app.name} {configuration.title}".rstrip()
        + f" on {counted(ranks, 'rank')}: {plan.steps} steps, nothing started"
    )
    for line in plan.decomposition:
        print(f"  {line}")
    print_table(
        (f"{plan.moved} per rank and step", "memory per rank", "output", "frames"),
        [(bytes_text(plan.halo_bytes), bytes_text(plan.memory_per_rank), bytes_text(plan.output_bytes), plan.frames)],
    )
    for note in plan.notes:
        print(f"note: {note}")
    return plan


def prepare(options: argparse.Namespace, arguments: list[str], ranks: int, *, elsewhere: bool = False) -> RunDirectory:
    """Check everything that needs no MPI, and make the run directory with the files that the ranks need.

    `elsewhere`: another machine starts the ranks, so that this one needs no GPU.
    """
    from hpckit.cli.job import is_run, prepared
    from hpckit.launch.provenance import provenance

    if len(options.words) == 1 and is_run(options.words[0]):
        return prepared(options.words[0], ranks)
    if options.directory is not None:
        _check_directory(options.directory)
    configuration, plan = load_checked(options, ranks)
    name = configuration.app.name
    gpu = _gpu(options, elsewhere)
    memory = 0 if gpu else plan.memory_per_rank  # GPU fields are in device memory
    if not elsewhere and joined(os.environ) is None:
        mpiexec.require_memory_here(memory, ranks)
    directory = RunDirectory.create(options.directory or Path("runs", run_name(name, configuration.title, ranks)))
    directory.write_text("run.toml", configuration.run_file)
    values = configuration.values()
    record = {
        "app": name,
        "package": configuration.app.package,
        "home": configuration.app.home,
        "title": configuration.title or name,
        "ranks": ranks,
        "steps": plan.steps,
        "memory": memory,
        "gpu": gpu,
        "watch": _watch(options, getattr(configuration.config, "watch", WatchSettings())),
        "trace": options.trace,
        "units": configuration.app.units,
        "values": values,
        "inputs": inputs(configuration.app, values),
        "origins": configuration.origins,
    }
    directory.write_json("resolved.json", record)
    directory.write_json("provenance.json", provenance(["run", *arguments], ranks, mpiexec.rank_environment(ranks)))
    return directory


def _run_launched(options: argparse.Namespace, arguments: list[str], ranks: int) -> int:
    """Make the run directory and run in it."""
    mpiexec.find_mpiexec()
    mpiexec.require_room(ranks)
    directory = prepare(options, arguments, ranks)
    with locked(directory, "run") as lock:
        return run_launched(directory, ranks, lock, report=not options.no_report)


def _run_joined(options: argparse.Namespace, arguments: list[str], above: Joined) -> int:
    """Run in a new run directory; see `run_joined` for the contract."""
    return run_joined(
        None, lambda size: prepare(options, arguments, size), above, report=not options.no_report, verb="run"
    )


def load_checked(options: argparse.Namespace, ranks: int) -> tuple[Configuration, Any]:
    """The checked settings and the app's dry run on `ranks` ranks; raises `InputError` for every mistake in them."""
    configuration = _load(options)
    return configuration, _plan(configuration, ranks)


def _gpu(options: argparse.Namespace, elsewhere: bool) -> str | None:
    """How MPI gets GPU data ("auto", "direct", "staged"), None without GPUs.

    Raises `SetupError` if this machine starts the ranks and has no GPU.
    """
    if not options.gpu:
        return None
    if not elsewhere and joined(os.environ) is None and not os.environ.get("NUMBA_ENABLE_CUDASIM", "").strip("0"):
        problem = missing()
        if problem:
            raise no_gpu(problem)
    return options.gpu_mpi or "auto"


def _watch(options: argparse.Namespace, settings: WatchSettings) -> dict[str, Any] | None:
    """The arguments of `hpckit.Watch` for the ranks, None for no watch. Options override settings."""
    if options.no_watch or (settings.off and not _asks_to_watch(options)):
        if _asks_to_watch(options):
            raise InputError("--no-watch is given with --watch, --watch-end or --check", do="leave one of them out")
        return None
    limit = options.watch or min(settings.warn, options.watch_end or settings.warn)
    if options.watch_end is not None and options.watch_end < limit:
        raise InputError(
            f"--watch-end {options.watch_end:g} is before --watch {limit:g}", do="report a stall before it ends the run"
        )
    return {"limit": limit, "check": options.check, "end": options.watch_end or max(settings.abort, limit)}


def _asks_to_watch(options: argparse.Namespace) -> bool:
    return options.watch is not None or options.watch_end is not None or options.check


def _check_directory(given: str) -> None:
    """Raise `InputError` if no run directory can be made at this path, as far as its name tells."""
    if not given:
        raise InputError("--directory is empty", do="give the folder to make, or leave the option out")
    for above in Path(given).absolute().parents:
        if above.exists() and not above.is_dir():
            raise InputError(
                f"--directory {given}: {above} is a file, and a run directory cannot be made in it",
                do="give a folder that is not there yet",
            )


def _load(options: argparse.Namespace) -> Configuration:
    """The checked settings. Raises `InputError` also for settings that exclude --gpu or require it."""
    from hpckit.settings.config import load

    configuration = load(options.words[0], [*options.words[1:], *(["repro=true"] if options.repro else [])])
    _check_gpu_form(options, configuration.app)
    problems = configuration.app.device_problems(configuration.config, options.gpu)
    if problems:
        raise InputError("\n".join(problems), where="with --gpu" if options.gpu else "without --gpu")
    return configuration


def _check_gpu_form(options: argparse.Namespace, app: App) -> None:
    """Raise `InputError` if a GPU is asked for and the app has no GPU form."""
    if options.gpu_mpi and not options.gpu:
        raise InputError("--gpu-mpi is given without --gpu", do="add --gpu, or leave --gpu-mpi out")
    if options.gpu and not app.has_gpu_form:
        able = ", ".join(other.name for other in apps().values() if other.has_gpu_form)
        raise InputError(f"the app {app.name} has no GPU form", do=f"leave --gpu out; apps with one: {able}")


def _plan(configuration: Configuration, ranks: int) -> Any:
    """The app's dry run."""
    return check_plan(configuration.app, configuration.config, ranks)


def _split_program(arguments: list[str]) -> tuple[list[str], list[str] | None]:
    """Our words, and those for a Python program: all after its name and the options of ours that follow it."""
    index = next((i for i, word in enumerate(arguments) if word.endswith(".py") and not word.startswith("-")), None)
    numbers = re.compile(r"-.*|[0-9.e+]+")
    if index is None or not all(numbers.fullmatch(word) for word in arguments[:index]):
        return arguments, None
    after = index + 1
    while after < len(arguments) and arguments[after] in ("-n", "--ranks", "--watch", "--watch-end", *FLAGS):
        after += 1 if arguments[after] in FLAGS else 2
    rest = arguments[after:]
    return arguments[:after], rest[1:] if rest[:1] == ["--"] else rest


def _seconds(text: str) -> float:
    """A time limit."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0.01 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time limit; give seconds, 0.01 or more")
    return value


def positive(text: str) -> int:
    """A number of ranks."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of ranks; give a whole number of at least 1")
    return int(text)
