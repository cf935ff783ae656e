"""The doctor on a sound machine, and on ones that were broken on purpose."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import mpiexec

from hpckit.cli.verbs.doctor import probes as doctor_probes
from hpckit.cli.verbs.doctor import verb
from hpckit.cli.verbs.doctor.probes import PROBES, Outcome, Place
from hpckit.errors import SetupError

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
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, tmp_path)


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


def test_launcher_of_another_mpi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: Place) -> None:
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
    place = Place(tmp_path, tmp_path, limit=0.5)
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


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    assert PROBES["rename and fsync"](place).status in ("ok", "warn")
    monkeypatch.setattr(doctor_probes, "FEW_BYTES", 1 << 62)
    outcome = PROBES["rename and fsync"](place)
    assert (outcome.status, "are free" in outcome.text) == ("warn", True)


def test_file_system_without_locks(monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
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


def test_crash_and_broken_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: Place) -> None:
    put_module(monkeypatch, tmp_path, "h5py", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    outcome = PROBES["HDF5 round trip"](place)
    assert (outcome.status, outcome.text) == ("fail", "crashed with SIGKILL")
    put_module(monkeypatch, tmp_path, "numba", "raise ImportError('numba needs an older NumPy')")
    outcome = PROBES["Numba"](place)
    assert (outcome.status, outcome.text) == ("fail", "ImportError: numba needs an older NumPy")
    assert outcome.do


def test_threads_beyond_cores(monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    place.job = ({"start": {"cores": [[0], [0]]}}, "")
    monkeypatch.setenv("OMP_NUM_THREADS", "512")
    outcome = PROBES["cores and threads"](place)
    assert (outcome.status, "OMP_NUM_THREADS=" in outcome.do) == ("warn", True)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(doctor_probes, "cores", lambda: 4)
    outcome = PROBES["cores and threads"](place)
    assert (outcome.status, "core 0" in outcome.text) == ("fail", True)


def test_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: Place) -> None:
    put_program(monkeypatch, tmp_path, "sinfo", "echo connection refused >&2; exit 1")
    assert PROBES["Slurm"](place).status == "warn"
    put_program(monkeypatch, tmp_path, "sinfo", "echo 'debug*'")
    put_program(monkeypatch, tmp_path, "srun", "echo 'cray_shasta none pmi2 pmix' >&2")
    outcome = PROBES["Slurm"](place)
    assert (outcome.status, "debug*" in outcome.text, "pmi2, pmix" in outcome.text) == ("ok", True, True)
    put_program(monkeypatch, tmp_path, "srun", "echo 'none cray' >&2")
    assert "needs" in PROBES["Slurm"](place).text


def test_a_probe_cannot_end_or_hold_up_the_others(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging, over = [], threading.Event()

    class Thread(threading.Thread):
        """One for which the limit is over as soon as its probe hangs, and not before."""

        def join(self, timeout: float | None = None) -> None:
            assert timeout == 0.2
            while self.is_alive() and self not in hanging:
                super().join(0.01)

    def raises(place: Place) -> Outcome:
        raise ValueError("odd")

    def hangs(place: Place) -> Outcome:
        hanging.append(threading.current_thread())
        over.wait()
        return Outcome("ok", "")

    monkeypatch.setattr(verb, "threading", SimpleNamespace(Thread=Thread))
    probes = {"a": raises, "b": hangs, "c": lambda place: Outcome("ok", "fine")}
    found = list(verb.examine(place, probes, limit=0.2))
    over.set()
    assert [finding.status for finding in found] == ["fail", "fail", "ok"]
    assert (found[0].text, found[1].text) == ("ValueError: odd", "no answer within 0.2 s")
