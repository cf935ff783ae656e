"""The ranks of a run, started by us or by a launcher above us: their output and their end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hpckit.errors import HpckitError, InputError
from hpckit.launch import mpiexec
from hpckit.launch.first_exit import FirstExit
from hpckit.launch.launcher import Joined, check_world, joined, leave
from hpckit.launch.leftovers import sweep
from hpckit.launch.lock import locked
from hpckit.launch.provenance import provenance
from hpckit.launch.scratch import scratch
from hpckit.run.directory import RunDirectory
from hpckit.settings.apps import find_app
from hpckit.settings.identity import inputs
from hpckit.settings.table import LiveBar, display

START_SECONDS = 20.0  # for the ranks to report where they run, before the user learns that some did not
JOB = "job.json"  # the batch system's job of the run
BEGUN = ("progress.json", "summary.json", "ckpt", "attempts/000/failure.json")


def run_launched(directory: RunDirectory, ranks: int, lock: int, *, report: bool) -> int:
    """Start mpiexec, show its lines, and report the end. The ranks share our lock of the directory."""
    from hpckit.cli.ending import end_of_run

    mpiexec.warn_if_crowded(ranks)
    with display() as screen, scratch() as folder:
        words = ["-m", "hpckit.cli.worker", str(directory.path), "--marks", folder]
        if isinstance(screen, LiveBar):
            words.append("--bar")

        def on_stop(times: int, process: subprocess.Popen) -> None:
            if times == 1:
                _request_stop(directory)
                screen.line("stopping at the next check, with complete files; once more ends it at once", True)
            else:
                screen.line("ending the ranks now", True)

        first = FirstExit(Path(folder), ranks)
        patience = time.monotonic() + START_SECONDS

        def on_tick() -> None:
            nonlocal patience
            if not first.watching and time.monotonic() > patience:
                patience = float("inf")
                if "placement" not in (directory.read_json("provenance.json") or {}):  # nor on other hosts
                    screen.line(
                        "mpiexec has not started the ranks yet; hpckit doctor tests it, Ctrl-C twice ends it", True
                    )
            if isinstance(screen, LiveBar):
                screen.update(directory.read_json("progress.json"))

        screen.line(f"{directory.path}")
        end = mpiexec.run_job(
            mpiexec.command(ranks, words, "-P"),  # the ranks must not import files of the current folder
            mpiexec.rank_environment(ranks),
            screen.line,
            on_stop,
            on_tick,
            first,
            keep=(lock,),
        )
        screen.update(directory.read_json("progress.json"))
    return end_of_run(directory, end, report=report)


def _request_stop(directory: RunDirectory) -> None:
    """Ask the ranks to stop by a file; if it cannot be written, by a signal to those on this host."""
    try:
        directory.request_stop()
    except OSError:
        for place in (directory.read_json("provenance.json") or {}).get("placement", []):
            if place["host"] == socket.gethostname():
                with contextlib.suppress(OSError):
                    os.kill(place["pid"], signal.SIGUSR1)


def run_joined(
    directory: RunDirectory | None, prepare: Callable[[int], RunDirectory], above: Joined, *, report: bool, verb: str
) -> int:
    """Rank 0 prepares while the others wait; then all ranks run, in the processes that the launcher started.

    `directory` is an existing run directory, if any: it is locked before it is prepared.
    """
    from mpi4py import MPI

    from hpckit.cli.ending import end_of_run
    from hpckit.cli.worker import execute
    from hpckit.comm.agree import share_json

    comm = MPI.COMM_WORLD
    check_world(above, comm.size)
    message: dict[str, Any] = {}
    with contextlib.ExitStack() as held:  # the lock, until the end
        if comm.rank == 0:
            sweep()
            try:
                if directory is not None:
                    held.enter_context(locked(directory, verb))
                made = prepare(comm.size)
                if directory is None:
                    held.enter_context(locked(made, verb))
                message["directory"] = str(made.path)
            except HpckitError as error:
                print(error.report(), file=sys.stderr, flush=True)
                message["exit_code"] = error.exit_code
            except BaseException:
                sys.excepthook(*sys.exc_info())
                comm.Abort(1)
        message = share_json(comm, message)
        if "exit_code" in message:
            return message["exit_code"]
        directory = RunDirectory(message["directory"])
        if comm.rank == 0:
            print(directory.path, flush=True)
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        execute(directory, comm, announce=True)
        MPI.Finalize()
        return end_of_run(directory, mpiexec.JobEnd(0), report=report) if above.rank == 0 else 0


def of_the_job(verb: Callable[[Joined | None], int]) -> int:
    """The exit code of a verb that starts ranks, or that a launcher has started on all of them; errors are printed
    once.
    """
    above = joined(os.environ)
    with _only_root_speaks(above):
        try:
            return leave(above, verb(above))
        except HpckitError as error:
            print(error.report(), file=sys.stderr, flush=True)
            return leave(above, error.exit_code)
        except SystemExit as error:  # argparse has said what is wrong
            return leave(above, error.code if isinstance(error.code, int) else 2)


def require_ranks(asked: int | None, above: Joined | None) -> None:
    """Raises `InputError` if `-n` differs from the number of ranks that the launcher has started."""
    if asked and above and asked != above.size:
        raise InputError(
            f"-n {asked}, but {above.launcher} has started {above.size} ranks",
            do=f"leave -n out, or start without {above.launcher}",
        )


@contextlib.contextmanager
def _only_root_speaks(above: Joined | None) -> Iterator[None]:
    """Under a launcher all ranks run the front end, but only rank 0 prints."""
    if above is None or above.rank == 0:
        yield
        return
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        yield


def is_run(target: str) -> bool:
    """Whether `target` is a run directory."""
    return os.path.isfile(Path(target, "resolved.json"))


def has_begun(target: str) -> bool:
    """Whether `target` is the directory of a run that was started at least once."""
    return is_run(target) and any(os.path.lexists(Path(target, name)) for name in BEGUN)


def prepared(target: str, ranks: int) -> RunDirectory:
    """The prepared run directory `target`, for its first start on `ranks` ranks.

    Raises `InputError` if the run was started before, or was prepared for another number of ranks.
    """
    directory = RunDirectory(target)
    if has_begun(target):
        raise InputError(
            f"the run in {directory.path} has been started before",
            do=f"hpckit resume {target}, or start it anew: hpckit run {Path(target) / 'run.toml'}",
        )
    record = directory.read_json("resolved.json")
    meant = record["ranks"]
    if meant != ranks:
        raise InputError(f"{directory.path} was prepared for {meant} ranks, not {ranks}", do=f"start {meant} ranks")
    directory.write_json("resolved.json", {**record, "inputs": inputs(find_app(record["app"]), record["values"])})
    before = directory.read_json("provenance.json") or {}
    now = provenance(["run", target], ranks, mpiexec.rank_environment(ranks))
    command = before.get("command", now["command"])
    directory.write_json("provenance.json", {**before, **now, "command": command})
    return directory
