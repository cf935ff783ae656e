"""Start of MPI ranks: the right mpiexec, its environment, its output line by line, and its end."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpckit.errors import InputError, SetupError
from hpckit.jobs.process import cores, with_parent
from hpckit.launch import memory
from hpckit.launch.first_exit import FirstExit
from hpckit.launch.launcher import OPEN_MPI, mpi_kind
from hpckit.launch.memory import available_bytes
from hpckit.launch.one_node import is_alone, keep_to_loopback, own_launcher, several_nodes, without_network

HEAVY_YIELD = "MPIR_CVAR_ENABLE_HEAVY_YIELD"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
# For Open MPI's launcher only: more ranks than cores are intended, and ranks are not bound to cores.
SHARED_CORES = ("--map-by", ":OVERSUBSCRIBE", "--bind-to", "none")
RANK_BYTES = 32 << 20  # of a rank without data: Python, NumPy, MPI
KILL_SECONDS = 1.0  # between asking mpiexec to end its ranks and killing it
PORTS_SECONDS = 3.0  # that a launcher may take from its first port to its last
ALONE_SECONDS = 3.0  # that a job may go on after the first of its ranks has ended
# Words of MPICH and Open MPI about a failed job: kept in launcher.log, and reported in our own words.
NOISE = re.compile(
    r"=   |={20}|YOUR APPLICATION TERMINATED WITH|This typically refers to a problem|Please see the FAQ page for debug"
    r"|Abort\(\d+\) on node|application called MPI_Abort|\[proxy:|\[mpiexec@|-{20}|MPI_ABORT was invoked"
    r"|\S+ noticed that process rank"
)
NO_START = re.compile(
    r"Fatal error in internal_Init|MPI_INIT has failed|MPI_Init_thread"
)  # in MPICH's, Open MPI's words
ABORTED = re.compile(r"application called MPI_Abort|MPI_ABORT was invoked")
# MPICH names the process of any rank, after it has killed all: we take only the signal from its message.
LOST = (
    re.compile(r"EXIT STRING: (?P<how>.+\(signal \d+\))"),
    re.compile(r"rank (?P<rank>\d+) with PID \d+ on node \S+ exited on (?P<how>signal .+)\."),
)


@dataclass
class JobEnd:
    """How a job ended: mpiexec's exit code, facts about a lost rank, the number of the user's stop requests, the
    launcher's output, whether a rank called MPI_Abort, whether MPI failed to start on one, and the irregular ends of
    ranks on this host in their order.
    """

    code: int
    lost: dict[str, str] = field(default_factory=dict)
    stops: int = 0
    noise: list[str] = field(default_factory=list)
    aborted: bool = False
    unstarted: bool = False
    irregular: list[tuple[int | None, str]] = field(default_factory=list)

    def before(self, rank: int) -> dict[str, str]:
        """Facts about the rank that was lost first, if that was before this one ended; else empty."""
        first, how = self.irregular[0] if self.irregular else (None, "")
        return {} if first in (None, rank) else {"rank": str(first), "host": socket.gethostname(), "how": how}


def find_mpiexec() -> str:
    """The launcher of this Python's environment, else the first on PATH.

    Raises `SetupError` where there is none.
    """
    beside = own_launcher()
    found = str(beside) if beside.exists() else shutil.which("mpiexec") or shutil.which("mpirun")
    if found is None:
        raise SetupError(
            "no mpiexec",
            likely="no MPI is installed in this environment, and none is on PATH",
            do="pip install 'hpckit[mpi]', or load the cluster's MPI module",
        )
    return found


def command(ranks: int, words: list[str], *python_options: str, module: str = "mpi4py") -> list[str]:
    """The command line that runs `python [python_options] -m MODULE WORDS` on `ranks` ranks.

    Ranks are not bound to cores: two jobs on one machine would both be bound to its first cores; a batch system binds
    by itself. Under `-m mpi4py` an exception on one rank ends all of them.
    """
    return [*on_ranks(ranks), sys.executable, *python_options, "-m", module, *words]


def on_ranks(ranks: int) -> list[str]:
    """The launcher's words that precede a program on `ranks` ranks."""
    mpiexec = find_mpiexec()
    options = []
    if is_open_mpi(mpiexec):
        options = list(SHARED_CORES)
        if os.geteuid() == 0:
            options.append("--allow-run-as-root")
    return [mpiexec, *options, "-n", str(ranks)]


def rank_environment(ranks: int, ours: bool = True) -> dict[str, str]:
    """The environment of the ranks: threads per rank such that all together fill the cores, unless the user set them;
    no network if they stay on this node; naps of MPICH's waiting ranks if ranks outnumber cores. ours: started by
    `command`, not by another launcher.

    MPIEXEC_TIMEOUT is removed: mpiexec would end the job with exit code 0.
    """
    environment = {name: value for name, value in os.environ.items() if name != "MPIEXEC_TIMEOUT"}
    if ours:
        environment |= without_network(environment)
        if ranks > cores() and not several_nodes():
            environment.setdefault(HEAVY_YIELD, "1")  # 4 ranks on 2 cores exchange messages 15 times as fast
    for name in THREAD_VARIABLES:
        environment.setdefault(name, str(max(1, cores() // ranks)))
    return environment


def run_job(
    words: list[str],
    environment: dict[str, str],
    on_line: Callable[[str, bool], None],
    on_stop: Callable[[int, subprocess.Popen], None],
    on_tick: Callable[[], None] = lambda: None,
    first: FirstExit | None = None,
    keep: Sequence[int] = (),
) -> JobEnd:
    """Run mpiexec to its end in its own session, so that Ctrl-C reaches only this process.

    `on_line(text, is_error)` gets each line of the ranks. `on_stop(n, process)` is called at the user's n-th request to
    stop (Ctrl-C, SIGTERM, SIGHUP, SIGUSR1); the second one ends the job. `on_tick` runs a few times a second. A job
    that goes on after `first` saw a rank leave is ended too. The ranks inherit the open files `keep`.
    """
    # A killed Open MPI launcher would leave its ranks behind; MPICH's proxies notice that theirs is gone.
    last = signal.SIGTERM if SHARED_CORES[1] in words else signal.SIGKILL
    words = with_parent(shutil.which(words[0]) or words[0], words[1:], last)
    end = JobEnd(0)
    asked: list[int] = []
    heard = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup stays nohup
    # Before the process starts: a signal in between is meant for this job.
    before = {number: signal.signal(number, lambda number, frame: asked.append(number)) for number in heard}
    process = None
    try:
        process = subprocess.Popen(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            pass_fds=keep,
        )
        readers = [
            threading.Thread(target=_read, args=(stream, is_error, on_line, end), daemon=True)
            for stream, is_error in ((process.stdout, False), (process.stderr, True))
        ]
        for reader in readers:
            reader.start()
        until = float("inf") if is_alone() else 0.0  # when no more ports of the launcher are expected
        while process.poll() is None:
            if time.monotonic() < until and keep_to_loopback(process.pid):
                until = min(until, time.monotonic() + PORTS_SECONDS)
            if len(asked) > end.stops:
                end.stops += 1
                on_stop(end.stops, process)
                if end.stops > 1:
                    kill(process)
            on_tick()
            if first is not None and first.when is not None and time.monotonic() - first.when > ALONE_SECONDS:
                end.lost["how"] = "its process left while the others went on"
                kill(process)
            time.sleep(0.1)
        for reader in readers:
            reader.join(timeout=5)
    finally:
        if process is not None:
            kill(process)
        for number, handler in before.items():
            signal.signal(number, handler)
    if first is not None:
        first.settle()
        end.irregular = first.irregular
        if first.rank is not None:
            end.lost |= {"rank": str(first.rank), "host": first.host}
            if first.how:  # the launcher may describe a rank that it killed itself
                end.lost["how"] = first.how
    end.aborted = any(ABORTED.search(line) for line in end.noise)
    end.code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return end


def kill(process: subprocess.Popen) -> None:
    """End mpiexec and with it all ranks: first by SIGTERM, then by SIGKILL, which its proxies pass on to the ranks."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(KILL_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def no_start() -> SetupError:
    """The error of a job in which MPI did not start; the library has said why."""
    return SetupError(
        "MPI did not start",
        likely="shared memory (/dev/shm) is full or cannot be written, or a network that MPI was to use is not there",
        do="hpckit doctor",
    )


def _read(stream: Any, is_error: bool, on_line: Callable[[str, bool], None], end: JobEnd) -> None:
    """Pass on the lines of the ranks, and keep the launcher's own lines with the empty lines before them."""
    empty = 0
    for line in stream:
        text = line.rstrip("\n")
        if NOISE.match(text):
            end.noise.append(text)
            for pattern in LOST:
                if found := pattern.search(text):
                    end.lost.update(found.groupdict())
        elif text:
            end.unstarted |= is_error and NO_START.search(text) is not None
            for _ in range(empty):
                on_line("", is_error)
            on_line(text, is_error)
        empty = 0 if text else empty + 1


def is_open_mpi(mpiexec: str) -> bool:
    """Whether the launcher is Open MPI's: it needs an option to allow more ranks than cores, and speaks PMIx."""
    try:
        said = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"{mpiexec} does not start: {error}", do="hpckit doctor") from None
    return mpi_kind(said) == OPEN_MPI


def require_room(ranks: int, where: str = "") -> None:
    """Raise `InputError` if ranks must share cores and do not fit into this machine's memory: it would swap to a
    standstill. where: the option that asks for them.
    """
    here, free = cores(), available_bytes()
    if ranks > here and not several_nodes() and ranks * RANK_BYTES > free:
        raise InputError(
            f"{ranks} ranks take {ranks * RANK_BYTES / 2**30:.3g} GiB before they have any data, and this machine has"
            f" {free / 2**30:.3g} GiB free",
            where=where,
            do=f"-n {here} fills its cores; the plan for so many ranks: hpckit run … -n {ranks} --dry-run;"
            " for a cluster: hpckit submit",
        )


def require_memory_here(each: int, ranks: int) -> None:
    """Raise `InputError` if ranks of `each` bytes must share this machine and do not fit; ranks that a batch system
    may place elsewhere are checked there (`require_memory_on_nodes`).
    """
    if not several_nodes():
        memory.require_memory(each, ranks)


def warn_if_crowded(ranks: int) -> None:
    """Warn if ranks must share cores: allowed, but slower than one rank per core."""
    here = cores()
    if ranks > here and not several_nodes():
        print(f"warning: {ranks} ranks share {here} cores; -n {here} is faster", file=sys.stderr, flush=True)
