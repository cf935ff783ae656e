"""`hpckit run program.py`: a Python program of the user's own, started the same way as an app."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from hpckit.cli.ending import build_report_of, likely, lost_rank, stall_that_ended
from hpckit.cli.user_rank import (
    ENDS,
    Guests,
    OwnLines,
    exit_code_of,
    program_ends,
    run_words,
    start_watch,
    tell_own_lines,
    user_lines,
)
from hpckit.errors import EXIT_STOPPED, HpckitError, InputError, RankLostError, StallError
from hpckit.launch import mpiexec
from hpckit.launch.launcher import Joined, check_world
from hpckit.launch.scratch import scratch
from hpckit.run.directory import RunDirectory
from hpckit.run.settings import ABORT_SECONDS, WARN_SECONDS
from hpckit.settings.table import PlainLines

WATCHED = {"limit": WARN_SECONDS, "check": False, "end": ABORT_SECONDS}  # the default watch
OWN_START = re.compile(rb"mpi4py\.rc|\brc\.initialize|MPI\.Init")  # a program that starts MPI in its own way


def run_program(
    words: list[str], ranks: int, above: Joined | None, watch: dict[str, Any] | None = None, *, asked: bool = False
) -> int:
    """Run `words` (a program and its arguments) on `ranks` ranks, or on those of the launcher above.

    watch: arguments of `hpckit.Watch`, None for none. The default watch skips programs that start MPI in their own
    way or have one rank, gives way to a watch of the program's own, and ends no rank that computes.

    Returns the program's exit code: an exception on any rank ends all of them with 1, an error of hpckit with its
    own code, a lost rank with 7; a program whose checkpoints were asked to stop early ends with 75.
    """
    program = Path(words[0])
    if not program.is_file():
        raise InputError(f"there is no program {program}")
    if watch is not None and not asked:
        alone = (above.size if above else ranks) == 1 or OWN_START.search(program.read_bytes()) is not None
        watch = None if alone else {**watch, "spare_computing": True, "gives_way": True}
    if above is not None:
        return _run_here(words, above, watch)
    mpiexec.require_room(ranks)
    mpiexec.warn_if_crowded(ranks)
    screen = PlainLines()

    with scratch() as folder:

        def on_stop(times: int, process: subprocess.Popen) -> None:
            """SIGTERM to the ranks themselves, since the launcher would not wait for their checkpoint."""
            if times > 1 or not guests.ask_to_stop():
                process.terminate()

        guests, failed = Guests(Path(folder), ranks), OwnLines(Path(folder))

        def on_tick() -> None:
            for text in failed.new():
                screen.line(text.rstrip("\n"), True)
            if text := guests.watch():
                screen.line(text, True)

        if watch is not None:
            watch = {**watch, "folder": str(Path(folder, "watch"))}
        command = mpiexec.command(ranks, [folder, json.dumps(watch), *words], module="hpckit.cli.user_rank")
        end = mpiexec.run_job(command, mpiexec.rank_environment(ranks), screen.line, on_stop, on_tick, guests.first)
        on_tick()
        stall, code = stall_that_ended(Path(folder, "watch")), failed.code
        first = end.before(failed.rank) if code == RankLostError.exit_code else {}
        ends = json.loads(Path(folder, ENDS).read_text("utf-8")) if Path(folder, ENDS).exists() else {}
    if not end.code and ends:
        return tell_ends(ends, words, ranks)
    if end.stops:
        return 128 + 2
    if end.code and stall:
        raise StallError(stall, where=f"{program}; reported by the watch", do="look at the lines named")
    if end.code and end.unstarted:
        raise mpiexec.no_start()
    if first:  # the exception was that of a survivor, whose peer had gone
        raise RankLostError(f"{program}: {lost_rank(first)}", likely=likely(first), do="hpckit explain HPK-700")
    if code:  # an exception; how the launcher and the other ranks ended follows from it
        return code
    left = guests.first.when is not None and not end.aborted and not guests.first.all_well
    if left:
        end.lost.setdefault("how", "its process left before the program was over")
    if left or ("how" in end.lost and not end.aborted):
        raise RankLostError(f"{program}: {lost_rank(end.lost)}", likely=likely(end.lost), do="hpckit explain HPK-700")
    return end.code


def tell_ends(ends: dict[str, Any], words: list[str], ranks: int) -> int:
    """Draw the reports of the program's runs, and say where it stopped early; returns 75 if it did, else 0."""
    runs, stopped = ends.get("runs", []), ends.get("stopped", {})
    for path in runs:
        build_report_of(RunDirectory(path))
    for path, step in stopped.items():
        again = f"run {shlex.join(words)} -n {ranks}"
        if (own := str(Path(path).parent)) in runs:
            path, again = own, f"resume {own}"
        print(f"stopped early after step {step}, files complete in {path}; to go on: hpckit {again}", flush=True)
    return EXIT_STOPPED if stopped else 0


def _run_here(words: list[str], above: Joined, watch: dict[str, Any] | None) -> int:
    """Under a launcher: run the program in this process, with mpi4py's hook that ends the job at an exception."""
    from mpi4py import MPI

    check_world(above, MPI.COMM_WORLD.size)
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    sys.path.insert(0, "")
    start_watch(watch)
    tell_own_lines(words[0])
    try:
        run_words(words)
    except HpckitError as error:
        print(user_lines(error), end="", file=sys.stderr)  # the front end says the rest
        raise
    except SystemExit as error:
        if code := exit_code_of(error):  # the other ranks may wait for this one
            print(end="", flush=True)
            MPI.COMM_WORLD.Abort(code)
    ends = program_ends()
    return tell_ends(ends, words, above.size) if above.rank == 0 else EXIT_STOPPED if ends.get("stopped") else 0
