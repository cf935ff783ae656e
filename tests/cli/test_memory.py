"""Runs that cannot fit into memory: refused before anything of them is made."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from cli_command import hpckit, probe_app  # noqa: F401  (a fixture)
from conftest import mpiexec

from hpckit.cli.main import main
from hpckit.launch import memory
from hpckit.launch import mpiexec as launch
from hpckit.launch.one_node import SEVERAL_NODES

LARGE = ["thermal", "grid.nx=1000000", "grid.nz=1000000"]


def here_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SEVERAL_NODES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("probe_app")
@pytest.mark.parametrize("words", [["heat3d"], ["heat3d", "-n", "2"], LARGE], ids=" ".join)
def test_a_run_that_cannot_fit_is_refused(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here_alone(monkeypatch)
    monkeypatch.setattr(launch, "run_job", None)
    monkeypatch.setattr(memory, "available_bytes", lambda: 1 << 20)
    assert main(["run", *words]) == 2
    said = capsys.readouterr().err
    assert "of memory a rank" in said
    assert "1 MiB are free" in said
    assert ("on 2 ranks" in said) == ("-n" in words)
    assert not Path("runs").exists()
    assert main(["run", *words[:3], "--dry-run"]) == 0
    assert "too large for this machine" in capsys.readouterr().out
    launch.require_memory_here(1 << 20, 1)
    monkeypatch.setenv("PBS_JOBID", "3")
    launch.require_memory_here(1 << 60, 1)  # maybe on another node


@pytest.mark.parametrize("ranks", ["1", "512", pytest.param("4096", marks=pytest.mark.nightly)])
def test_what_no_node_has_is_refused_without_a_start(ranks: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "melt", "system.cells=[1000000, 1000000, 1000000]", "--dry-run", "-n", ranks]) == 2
    assert "of memory a rank: no node has that" in capsys.readouterr().err


@pytest.mark.skipif(mpiexec() is None, reason="no mpiexec: install the extra `mpi`")
@pytest.mark.parametrize("under", [0, 2])
def test_ranks_look_at_their_nodes(under: int, tmp_path: Path) -> None:
    words = ["run", "heat3d", "grid.shape=[40000, 40000, 40000]", *([] if under else ["-n", 2])]
    outcome = hpckit(*words, cwd=tmp_path, under=under, PBS_JOBID="3")
    assert outcome.code == 2, outcome.stderr
    assert outcome.stderr.count("the run takes 466 TiB of memory a rank, 932 TiB on 2 ranks") == 1, outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_what_cgroups_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(folder: Path, **files: object) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / f"memory.{name}").write_text(f"{text}\n")

    assert memory._left(tmp_path) is None
    write(tmp_path, max="max", current=7, stat="inactive_file 3")
    assert memory._left(tmp_path) is None
    write(tmp_path, max=1000, current=900, stat="anon 5\ninactive_file 200\nactive_file 30")
    assert memory._left(tmp_path) == 330
    old = tmp_path / "job/step"
    write(old, limit_in_bytes=500, usage_in_bytes=400, stat="total_inactive_file 50\ntotal_active_file 1")
    assert memory._left(old) == 151
    real, cgroups = Path.read_text, "0::/job/step\n"
    monkeypatch.setattr(memory, "CGROUPS", tmp_path)
    monkeypatch.setattr(Path, "read_text", lambda path: cgroups if str(path) == "/proc/self/cgroup" else real(path))
    assert sorted(memory._cgroup_bytes()) == [151, 330]
    assert memory.available_bytes() == 151


def test_ulimit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: 1 << 50)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (1 << 50, 1 << 50))
    assert memory.lacking(1 << 48, 3) == ""
    assert "ulimit -v leaves it" in memory.lacking(1 << 50, 1)
    monkeypatch.setattr(resource, "getrlimit", lambda what: (resource.RLIM_INFINITY,) * 2)
    assert memory.lacking(1 << 50, 1) == ""
