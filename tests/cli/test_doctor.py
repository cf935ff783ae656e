"""The doctor on a sound machine, and on ones that were broken on purpose."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Outcome as Ended
from conftest import mpiexec, run_limited, wait_until

from hpckit.cli.verbs.doctor import probes as doctor_probes
from hpckit.cli.verbs.doctor import verb
from hpckit.cli.verbs.doctor.node import Outcome
from hpckit.cli.verbs.doctor.probes import PROBES, ProbeFolder
from hpckit.comm.observe import table as watch_table
from hpckit.errors import SetupError
from hpckit.launch import leftovers
from hpckit.launch.scratch import scratch

FAKE_CUPY = """
import numpy as np
from types import SimpleNamespace
arange, ones, zeros, asnumpy = np.arange, np.ones, np.zeros, np.asarray
class RawKernel:
    def __init__(self, source, name): pass
    def __call__(self, grid, block, arguments):
        a, x, y, n = arguments
        y[:n] += {factor} * a * x[:n]
def count():
    {count}
runtime = SimpleNamespace(getDeviceCount=count, getDeviceProperties=lambda i: {{"name": b"pretended"}},
                          deviceSynchronize=lambda: None)
cuda = SimpleNamespace(runtime=runtime)
"""


@pytest.fixture
def place(tmp_path: Path) -> ProbeFolder:
    return ProbeFolder(tmp_path, tmp_path)


def put_module(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, text: str) -> None:
    """A package that children of the doctor find before the real one."""
    (folder / f"{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def put_program(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, text: str) -> Path:
    """A program that stands first on PATH."""
    program = folder / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return program


def use_launcher(monkeypatch: pytest.MonkeyPatch, program: Path) -> None:
    """Take this program for mpiexec."""
    for module in ("hpckit.cli.verbs.doctor.probes", "hpckit.launch.mpiexec"):
        monkeypatch.setattr(f"{module}.find_mpiexec", lambda: str(program))


def test_sound_machine(tmp_path: Path) -> None:
    if mpiexec() is None:
        pytest.skip("no mpiexec here")
    done = subprocess.run(
        [sys.executable, "-m", "hpckit.cli.main", "doctor", "--json", "--directory", str(tmp_path)],
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    record = json.loads(done.stdout)
    probes = {probe["name"]: probe for probe in record["probes"]}
    assert list(probes) == list(PROBES)
    failed = [probe for probe in probes.values() if probe["status"] == "fail"]
    assert (record["status"], done.returncode, failed) == ("ok", 0, [])
    for name in (
        "MPI library",
        "MPI launch",
        "two-rank ring",
        "halo exchange",
        "HDF5 round trip",
        "file locks",
        "Numba",
    ):
        assert probes[name]["status"] == "ok", probes[name]
    assert "noalias is active" in probes["Numba"]["text"]
    assert not list(tmp_path.iterdir())  # nothing is left behind


@pytest.mark.nightly
def test_no_mpiexec(tmp_path: Path) -> None:
    """The same Python reached through a folder that has no mpiexec beside it, with nothing else on PATH."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(sys.executable)
    environment = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [tmp_path / "bin/python", "-m", "hpckit.cli.verbs.doctor.child", "nothing"],
        env=environment, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert "KeyError" in done.stderr  # this Python works; now the doctor with it
    done = subprocess.run(
        [tmp_path / "bin/python", "-m", "hpckit.cli.main", "doctor", "--directory", str(tmp_path)],
        env=environment, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == SetupError.exit_code
    assert re.search(
        r"fail\s+MPI launch\s+two ranks did not start: no mpiexec\n\s+mend: pip install 'hpckit\[mpi\]'", done.stdout
    )
    assert "Traceback" not in done.stdout + done.stderr


FOREIGN_LAUNCHER = """[ "$1" = --version ] && echo "mpirun (Open MPI) 4.1" && exit
while [ "$1" != -n ]; do shift; done
shift 2; exec "$@"
"""


def test_launcher_of_another_mpi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: ProbeFolder) -> None:
    program = put_program(monkeypatch, tmp_path, "mpiexec", FOREIGN_LAUNCHER)
    use_launcher(monkeypatch, program)
    assert "worlds of 1 rank" in PROBES["MPI launch"](place).text
    assert PROBES["MPI launch"](place).status == "fail"
    assert PROBES["two-rank ring"](place).status == "fail"
    outcome = PROBES["MPI kinds"](place)
    if "found MPICH" in outcome.text:
        assert outcome.status == "fail"
        assert "mpiexec is Open MPI" in outcome.text


def test_launcher_that_hangs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = put_program(monkeypatch, tmp_path, "mpiexec", '[ "$1" = --version ] && exit\nsleep 900')
    use_launcher(monkeypatch, program)
    place = ProbeFolder(tmp_path, tmp_path, limit=0.5)
    outcome = PROBES["MPI launch"](place)
    assert (outcome.status, "no answer within 0.5 s" in outcome.text) == ("fail", True)
    assert PROBES["two-rank ring"](place).status == "skipped"


def test_file_in_place_of_the_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = tmp_path / "taken"
    taken.write_text("")
    chosen = {name: PROBES[name] for name in ("HDF5 round trip", "file locks", "rename and fsync")}
    monkeypatch.setattr(verb, "PROBES", chosen)
    assert verb.main(["--directory", str(taken), "--json"]) == 3
    for probe in json.loads(capsys.readouterr().out)["probes"]:
        assert probe["status"] == "fail"
        assert "taken" in probe["text"]
        assert "--directory" in probe["do"]


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch, place: ProbeFolder) -> None:
    assert PROBES["rename and fsync"](place).status in ("ok", "warn")
    monkeypatch.setattr(doctor_probes, "FEW_BYTES", 1 << 62)
    outcome = PROBES["rename and fsync"](place)
    assert (outcome.status, "are free" in outcome.text) == ("warn", True)


def test_file_system_without_locks(monkeypatch: pytest.MonkeyPatch, place: ProbeFolder) -> None:
    def refuse(*unused: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    outcome = PROBES["file locks"](place)
    assert (outcome.status, outcome.do) == ("fail", "export HDF5_USE_FILE_LOCKING=FALSE")


@pytest.mark.parametrize(
    ("factor", "count", "status", "text"),
    [
        (1.0, "return 1", "ok", "1 x pretended"),
        (1.5, "return 1", "fail", "something else than NumPy"),
        (1.0, "raise RuntimeError('driver too old')", "skipped", "no GPU"),
        (1.0, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "fail", "crashed with SIGSEGV"),
    ],
)
def test_pretended_gpu(monkeypatch, tmp_path, place, factor, count, status, text) -> None:  # type: ignore[no-untyped-def]
    if list(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("a GPU is here: nothing to pretend")
    put_module(monkeypatch, tmp_path, "cupy", FAKE_CUPY.format(factor=factor, count=count))
    outcome = PROBES["GPU"](place)
    assert (outcome.status, text in outcome.text) == (status, True), outcome
    device_memory = PROBES["GPU-aware MPI"](place)
    if status == "ok":
        assert device_memory.status == "ok"
        assert re.search("through the host|takes device memory", device_memory.text)
    if "crashed" in text:
        assert (device_memory.status, "through the host" in device_memory.text) == ("warn", True)


def test_crash_and_broken_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: ProbeFolder) -> None:
    put_module(monkeypatch, tmp_path, "h5py", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    for name in ("HDF5 round trip", "parallel HDF5"):
        outcome = PROBES[name](place)
        assert (outcome.status, outcome.text) == ("fail", "crashed with SIGKILL")
    put_module(monkeypatch, tmp_path, "numba", "raise ImportError('numba needs an older NumPy')")
    outcome = PROBES["Numba"](place)
    assert (outcome.status, outcome.text) == ("fail", "ImportError: numba needs an older NumPy")
    assert outcome.do


# What `unshare -m` gives us instead of /dev/shm, and what is said of it.
BROKEN_MEMORY = {
    "mount -t tmpfs -o ro tmpfs /dev/shm": "is read-only",
    "mount -t tmpfs -o size=1m tmpfs /dev/shm": "has 1 MiB",
    "mount -t tmpfs -o size=8m tmpfs /dev/shm && head -c 7m /dev/zero >/dev/shm/x": "is full: 1 MiB of 8 MiB free",
}
LOOK = """
import json, pathlib
from hpckit.cli.verbs.doctor.probes import PROBES, ProbeFolder
place = ProbeFolder(pathlib.Path("."), None)
print(json.dumps([[found.status, found.text, found.do] for found in map(lambda n: PROBES[n](place), NAMES)]))
"""


def without_memory(words: str, *command: str, **options: Any) -> Ended:
    """Run a command where shared memory is as these words leave it; skips where we may not mount."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespaces for this user")
    return run_limited(["unshare", "-m", "sh", "-c", f'{words} && exec "$@"', "sh", *command], 60, **options)


@pytest.mark.parametrize("words", BROKEN_MEMORY)
def test_bad_shared_memory_is_named_and_no_install_is_advised(words: str) -> None:
    names = ["shared memory", "MPI library"] if "ro" in words else ["shared memory"]
    done = without_memory(words, sys.executable, "-c", LOOK.replace("NAMES", repr(names)))
    found = json.loads(done.stdout)
    for status, text, do in found:
        assert (status, BROKEN_MEMORY[words] in text, "pip" in do) == ("fail", True, False), text
    assert found[0][2]


def test_a_run_without_shared_memory_is_a_bad_environment(tmp_path: Path) -> None:
    if mpiexec() is None:
        pytest.skip("no mpiexec here")
    (tmp_path / "mine.py").write_text("from mpi4py import MPI\n")
    command = [sys.executable, "-m", "hpckit.cli.main", "run", "mine.py", "-n", "2"]
    done = without_memory(next(iter(BROKEN_MEMORY)), *command, cwd=tmp_path)
    assert (done.code, "MPI did not start" in done.stderr, "/dev/shm" in done.stderr) == (3, True, True), done.stderr


def test_variables_that_name_nothing_good(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: ProbeFolder) -> None:
    for name in ("TMPDIR", "TEMP", "TMP", "NUMBA_CACHE_DIR", "HDF5_USE_FILE_LOCKING"):
        monkeypatch.delenv(name, raising=False)
    assert PROBES["variables"](place).status == "ok"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "to/be/made"))
    monkeypatch.setenv("HDF5_USE_FILE_LOCKING", "BEST_EFFORT")
    assert PROBES["variables"](place).status == "ok"
    (tmp_path / "file").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file/cache"))
    monkeypatch.setenv("HDF5_USE_FILE_LOCKING", "false")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    outcome = PROBES["variables"](place)
    assert outcome.status == "warn"
    for words in ("none is not there", "file is not a folder", "HDF5_USE_FILE_LOCKING=false is ignored"):
        assert words in outcome.text


def aged(path: Path) -> Path:
    """A file or folder that has been there for an hour."""
    os.utime(path, (time.time() - 3600,) * 2)
    return path


def test_what_killed_jobs_left_is_removed_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(leftovers, "MEMORY", tmp_path)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    gone = [tmp_path / f"hpckit-{kind}-abcdef_1" for kind in ("watch", "scratch")]
    kept = [tmp_path / name for name in ("hpckit-mine", "hpckit-watch-abcdef_2", "hpckit-watch-12345678", "other")]
    for folder in (*gone, *kept):
        (folder / "inside").mkdir(parents=True)
    gone.append(tmp_path / "hpckit-memory-abcdef_1")
    gone[-1].write_bytes(b"x")
    (tmp_path / "hpckit-watch-link5678").symlink_to(kept[-1])
    for folder, pid in ((gone[0], 2**22 + 1), (kept[1], os.getpid())):  # no such process; this one
        table = watch_table.table_of(folder, 2, create=True)
        watch_table.HEAD.pack_into(table, watch_table.place(1), pid, watch_table.RUNNING, 1, 0, 0)
    held = os.open(kept[2], os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    young = tmp_path / "hpckit-watch-youngest"
    young.mkdir()
    segment = tmp_path / "mpich_shm_1f_0"
    segment.write_bytes(bytes(4096))
    for path in (*gone, *kept, segment):
        aged(path)
    text = PROBES["leftovers"](ProbeFolder(tmp_path, None)).text
    assert ("3 of hpckit (" in text, "1 of the MPI library (4 KiB)" in text) == (True, True), text
    with open(segment, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
        assert leftovers.segments() == []  # a process has it
    assert verb.main(["--clean"]) == 0
    said = capsys.readouterr().out
    assert all(f"removed {path}" in said and not path.exists() for path in gone)
    assert all(path.exists() for path in (*kept, young, segment, tmp_path / "hpckit-watch-link5678"))
    assert f"rm -f {segment}" in said
    os.close(held)
    assert leftovers.sweep() == [kept[2]]


def test_the_next_job_removes_the_records_of_a_killed_watch(tmp_path: Path) -> None:
    """Rank and watcher of a process that MPI started alone are killed; a job that begins then cleans up after them."""
    program = "from mpi4py import MPI\nimport hpckit, time\nwatch = hpckit.Watch(MPI.COMM_WORLD)\n"
    program += "print(watch._folder, watch._watcher.pid, flush=True)\ntime.sleep(900)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder, watcher = process.stdout.readline().split()
        aged(Path(folder))
        assert Path(folder) not in leftovers.leftovers()
        os.kill(int(watcher), signal.SIGKILL)
        process.kill()
    wait_until(lambda: Path(folder) in leftovers.leftovers())
    with scratch():
        assert not Path(folder).exists()


def test_threads_beyond_cores(monkeypatch: pytest.MonkeyPatch, place: ProbeFolder) -> None:
    place.job = ({"start": {"cores": [[0], [0]]}}, "")
    monkeypatch.setenv("OMP_NUM_THREADS", "512")
    outcome = PROBES["cores and threads"](place)
    assert (outcome.status, "OMP_NUM_THREADS=" in outcome.do) == ("warn", True)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(doctor_probes, "cores", lambda: 4)
    outcome = PROBES["cores and threads"](place)
    assert (outcome.status, "core 0" in outcome.text) == ("fail", True)


def test_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: ProbeFolder) -> None:
    put_program(monkeypatch, tmp_path, "sinfo", "echo connection refused >&2; exit 1")
    assert PROBES["Slurm"](place).status == "warn"
    put_program(monkeypatch, tmp_path, "sinfo", "echo 'debug*'")
    put_program(monkeypatch, tmp_path, "srun", "echo 'cray_shasta none pmi2 pmix' >&2")
    outcome = PROBES["Slurm"](place)
    assert (outcome.status, "debug*" in outcome.text, "pmi2, pmix" in outcome.text) == ("ok", True, True)
    put_program(monkeypatch, tmp_path, "srun", "echo 'none cray' >&2")
    assert "needs" in PROBES["Slurm"](place).text


def test_a_probe_cannot_end_or_hold_up_the_others(place: ProbeFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging, over = [], threading.Event()

    class Thread(threading.Thread):
        """One for which the limit is over as soon as its probe hangs, and not before."""

        def join(self, timeout: float | None = None) -> None:
            assert timeout == 0.2
            while self.is_alive() and self not in hanging:
                super().join(0.01)

    def raises(place: ProbeFolder) -> Outcome:
        raise ValueError("odd")

    def hangs(place: ProbeFolder) -> Outcome:
        hanging.append(threading.current_thread())
        over.wait()
        return Outcome("ok", "")

    monkeypatch.setattr(verb, "threading", SimpleNamespace(Thread=Thread))
    probes = {"a": raises, "b": hangs, "c": lambda place: Outcome("ok", "fine")}
    found = list(verb.examine(place, probes, limit=0.2))
    over.set()
    assert [finding.status for finding in found] == ["fail", "fail", "ok"]
    assert (found[0].text, found[1].text) == ("ValueError: odd", "no answer within 0.2 s")
