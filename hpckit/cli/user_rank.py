"""A rank of the user's own program: `python -m hpckit.cli.user_rank FOLDER WATCH PROGRAM.py …`, announced in FOLDER."""

from __future__ import annotations

import array
import contextlib
import faulthandler
import fcntl
import hashlib
import json
import os
import re
import signal
import stat
import sys
import termios
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import mpi4py

import hpckit
from hpckit.errors import HpckitError, RankLostError
from hpckit.launch.first_exit import END, FirstExit, announce
from hpckit.launch.launcher import joined

READ_SECONDS = 5.0  # a launcher's pipe is read within milliseconds, on a loaded machine too
TELL_SECONDS = 30.0  # from the end of one rank's program to the warning that others still run
# Frames around the user's lines in a traceback: this package, mpi4py's runner, Python's.
FOREIGN = (os.path.dirname(os.path.abspath(hpckit.__file__)) + os.sep, os.path.dirname(mpi4py.__file__), "<frozen ")
SAID = "said"  # the folder for texts, within the front end's
ENDS = "ends.json"  # there, too: what the program's checkpoints and runs leave to the front end


def main(arguments: list[str]) -> None:
    """Announce this rank, and run the program under mpi4py's hook, which ends the job on an exception."""
    folder, watch, *words = arguments
    faulthandler.enable()  # prints the program's line on a crash in compiled code
    announce(folder, os.environ)
    start_watch(json.loads(watch))
    tell_own_lines(words[0], folder)
    try:
        run_words(words, folder)
    finally:
        if Path(folder).is_dir() and (ends := program_ends()):
            own = Path(folder, f"{ENDS}.{os.getpid()}")  # ranks may be killed while they write
            own.write_text(json.dumps(ends), "utf-8")
            own.replace(Path(folder, ENDS))  # the same on every rank


def start_watch(options: dict[str, Any] | None) -> None:
    """Watch the ranks of the program; `options` are the arguments of `hpckit.Watch`, None for no watch."""
    if options is not None:
        from mpi4py import MPI

        from hpckit.comm.observe.watch import Watch
        from hpckit.comm.observe.watched_comm import Requests, WatchedComm

        setattr(MPI, "COMM_WORLD", WatchedComm(MPI.COMM_WORLD))  # noqa: B010  (final for mypy; the program's calls are seen)
        setattr(MPI, "Request", Requests)  # noqa: B010  (its waits for several requests)
        MPI.COMM_WORLD.Set_name("world")
        Watch(MPI.COMM_WORLD, **options)


def run_words(words: list[str], folder: str = "") -> None:
    """Run a program and its arguments in this process; its folder replaces the first entry of `sys.path`.

    `sys.exit` with a code other than 0, which ends the ranks that go on, is told as an exception is.
    """
    from mpi4py import run

    sys.argv = ["mpi4py", *words]
    try:
        run.main()
    except SystemExit as error:
        here = joined(os.environ)
        if error.code not in (None, 0) and here and here.size > 1:
            _tell(f"{user_lines(error)}sys.exit({error.code!r})\n", exit_code_of(error), folder)
        raise


def exit_code_of(error: SystemExit) -> int:
    """The exit code of a process that ends so: 1 for a text."""
    return (error.code & 255 or 1) if isinstance(error.code, int) else int(bool(error.code))


def program_ends() -> dict[str, Any]:
    """{"stopped": {folder of checkpoints: step}, "runs": folders} of this process's program; {} if it has none."""
    checkpoints, runs = (sys.modules.get(f"hpckit.{name}") for name in ("run.checkpoints", "launch.program_run"))
    stopped = {str(path): step for path, step in checkpoints.stopped_at.items()} if checkpoints else {}
    made = [str(path) for path in runs.runs_here] if runs else []
    return {"stopped": stopped, "runs": made} if stopped or made else {}


class Guests:
    """The announcements of this host's ranks in `folder`; `first` is the first that left without a regular end."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self.folder = folder
        self.first = FirstExit(folder, ranks)
        self.told_at: float | None = None

    def ask_to_stop(self) -> bool:
        """Send SIGTERM to the ranks on this host that run; whether there is one."""
        running = [path.name for path in self.folder.iterdir() if path.name.replace("-", "").isdigit()]
        running = [name for name in running if not (self.folder / f"{name}{END}").exists()]
        for name in running:
            with contextlib.suppress(OSError):
                os.kill(int(name.split("-")[1]), signal.SIGTERM)
        return bool(running)

    def watch(self) -> str:
        """A warning for the user that is due now, or ''."""
        ended = [path for path in self.folder.iterdir() if path.name.endswith(END)]
        if not ended or self.told_at == 0.0:
            return ""
        if self.told_at is None:
            self.told_at = time.monotonic()
        if time.monotonic() - self.told_at < TELL_SECONDS:
            return ""
        self.told_at = 0.0
        ranks = ", ".join(sorted((path.name.split("-")[0] for path in ended), key=int)[:8])
        return f"the program has ended on rank {ranks} and still runs on others; Ctrl-C twice ends them"


def tell_own_lines(program: str, folder: str = "") -> None:
    """Make this process report exceptions as `user_text`, in a file if this host has the front end's `folder`.

    A launcher that ends a job may drop a rank's last output; a file stays.
    """
    file = os.path.abspath(program)

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        from hpckit.launch.failure import is_of_a_peer

        code = error.exit_code if isinstance(error, HpckitError) else 1
        code = RankLostError.exit_code if is_of_a_peer(error) else code
        _tell(user_text(error, trace, file), code, folder, _without_place(error, trace, file))

    sys.excepthook = hook


def _tell(text: str, code: int, folder: str, alike: str = "") -> None:
    """Report how this rank failed: in a file for the front end in `folder`, else on standard error.

    alike: what other ranks that fail so have in common with it, where that is not the whole text.
    """
    here = joined(os.environ)
    whole = f"rank {here.rank} failed:\n{text}" if here and here.size > 1 else text
    if not folder or not _leave(Path(folder, SAID), alike or text, whole, code):
        sys.stderr.write(whole)  # in one write, so that other ranks' output cannot come between
        sys.stderr.flush()
        await_reader()


def await_reader(descriptor: int = 2) -> None:
    """Wait until the launcher has read what this rank wrote to a pipe, at most READ_SECONDS.

    An abort right after a message makes launchers end the job, and drop what is left in their pipes.
    """
    until, unread = time.monotonic() + READ_SECONDS, array.array("i", [0])
    with contextlib.suppress(OSError):
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return
        while fcntl.ioctl(descriptor, termios.FIONREAD, unread) == 0 and unread[0] and time.monotonic() < until:
            time.sleep(0.005)


class OwnLines:
    """Reads the errors that ranks have left in the front end's `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / SAID
        self._folder.mkdir()
        self._read: set[Path] = set()

    @property
    def code(self) -> int:
        """The exit code of the first error, 0 without one."""
        return int(_by_time(self._read)[0].stem.rpartition("-")[2]) if self._read else 0

    @property
    def rank(self) -> int:
        """The rank of the first error, -1 if unknown."""
        found = re.match(r"rank (\d+) failed:", _by_time(self._read)[0].read_text("utf-8")) if self._read else None
        return int(found[1]) if found else -1

    def new(self) -> list[str]:
        """The texts, each once, in the order in which they were left."""
        found = [path for path in self._folder.iterdir() if path.suffix and path not in self._read]
        self._read.update(found)
        return [path.read_text("utf-8") for path in _by_time(found)]


def user_text(error: BaseException, trace: TracebackType | None, file: str) -> str:
    """The traceback from the program's lines on; for an `HpckitError` without hpckit's own lines, with its report."""
    while trace is not None and os.path.abspath(trace.tb_frame.f_code.co_filename) != file:
        trace = trace.tb_next
    if not isinstance(error, HpckitError):
        return "".join(traceback.format_exception(type(error), error, trace))
    return user_lines(error, trace) + error.report() + "\n"


def _without_place(error: BaseException, trace: TracebackType | None, file: str) -> str:
    """What ranks with the same mistake say alike: all but `where`, which may name the rank; '' for other errors."""
    if not isinstance(error, HpckitError):
        return ""
    while trace is not None and os.path.abspath(trace.tb_frame.f_code.co_filename) != file:
        trace = trace.tb_next
    return "\n".join([user_lines(error, trace), error.message, error.likely, error.do])


def user_lines(error: BaseException, trace: TracebackType | None = None) -> str:
    """The program's lines that led to an error of hpckit, without those of packages."""
    frames = traceback.extract_tb(trace or error.__traceback__)
    return "".join(traceback.format_list([frame for frame in frames if not frame.filename.startswith(FOREIGN)]))


def _by_time(paths: Iterable[Path]) -> list[Path]:
    """Files in the order in which they were written."""
    return sorted(paths, key=lambda path: path.stat().st_mtime_ns)


def _leave(folder: Path, text: str, whole: str, code: int) -> bool:
    """Leave `whole` in a file with the exit code in its name, unless a rank with the same `text` has; False if it
    cannot. The file appears whole or not at all.
    """
    own = folder / str(os.getpid())
    try:
        own.write_text(whole, "utf-8")
        with contextlib.suppress(FileExistsError):
            os.link(own, folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}-{code}.txt")
        own.unlink()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1:])
