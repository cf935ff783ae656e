"""`hpckit run program.py`: a Python program of the user's own, started the same way as an app."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hpckit.cli import launch
from hpckit.cli.ending import lost_rank
from hpckit.cli.joined import Joined, check_world
from hpckit.cli.terminal import PlainLines
from hpckit.errors import InputError, RankLostError


def run_program(words: list[str], ranks: int, above: Joined | None) -> int:
    """Run `words` (a program and its arguments) on `ranks` ranks, or on those of the launcher above.

    Returns the program's exit code: an exception on any rank ends all of them with 1, a lost rank with 7.
    """
    program = Path(words[0])
    if not program.is_file():
        raise InputError(f"there is no program {program}")
    if above is not None:
        return _run_here(words, above)
    launch.warn_if_crowded(ranks)
    screen = PlainLines()

    def on_stop(times: int, process: subprocess.Popen) -> None:
        """The program gets SIGTERM from its launcher; it has no run directory to look at."""
        process.terminate()

    end = launch.run_job(launch.command(ranks, words), launch.rank_environment(ranks), screen.line, on_stop)
    if end.stops:
        return 128 + 2
    if "how" in end.lost:
        raise RankLostError(f"{program}: {lost_rank(end.lost)}", do="hpckit explain HPK-700")
    return end.code


def _run_here(words: list[str], above: Joined) -> int:
    """Under a launcher: run the program in this process, with mpi4py's hook that ends the job at an exception."""
    from mpi4py import MPI
    from mpi4py import run as mpi4py_run

    check_world(above, MPI.COMM_WORLD.size)
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    sys.argv = ["mpi4py", *words]
    sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
    mpi4py_run.main()
    return 0
