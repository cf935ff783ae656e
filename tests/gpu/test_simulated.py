"""CUDA kernels, exchanges and runs, in processes of their own, against the forms for the CPU: on a GPU where there is
one, else in Numba's simulator.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import by_day, run_limited

from hpckit.comm.gpu import gpu_of, missing
from tests.gpu.checks import PRECISIONS, checks

REAL = missing() == ""
ON_GPU = {} if REAL else {"NUMBA_ENABLE_CUDASIM": "1"}  # the environment of a process that is to use one
SMALL = ("grid.shape=[9,13]", "time.steps=6", "time.monitor=3", "output.frames=2", "output.single=false", "--no-report")


def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes of a test use a GPU."""
    for name, value in ON_GPU.items():
        monkeypatch.setenv(name, value)


def hpckit(*words: object, cwd: Path, timeout: float = 120, **more: str):
    command = [sys.executable, "-m", "hpckit.cli.main", *map(str, words)]
    return run_limited(command, timeout, cwd=cwd, env={**os.environ, "HPCKIT_CONFIG": os.devnull, **more})


@pytest.mark.parametrize(
    ("ranks", "count", "expected"),
    [
        (1, 4, [0]),
        (3, 4, [0, 1, 2]),
        (4, 2, [0, 0, 1, 1]),
        (3, 2, [0, 0, 1]),
        (5, 1, [0] * 5),
        (7, 3, [0, 0, 0, 1, 1, 2, 2]),
    ],
)
def test_ranks_are_dealt_to_the_gpus_of_a_node_in_blocks(ranks, count, expected):
    assert [gpu_of(rank, ranks, count) for rank in range(ranks)] == expected


def temperature(directory: Path) -> np.ndarray:
    with h5py.File(directory / "output" / "fields.h5") as file:
        return file["temperature"][()]


@pytest.mark.parametrize("ranks", [1, *(pytest.param(n, marks=pytest.mark.nightly) for n in (2, 4))])
def test_exchanges_on_a_device_equal_those_on_the_host(mpirun, monkeypatch, ranks):
    on_gpu(monkeypatch)
    outcome = mpirun(ranks, "device_exchange.py", timeout=200)
    assert "all good 24" in outcome.stdout
    assert "persistent" not in outcome.stderr.lower(), "requests were left at the end"


@pytest.mark.nightly
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_traced_steps_on_a_device_are_those_on_the_host(mpirun, monkeypatch, ranks):
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    assert "alike" in mpirun(ranks, "device_traced.py", timeout=200).stdout


@pytest.mark.parametrize("ranks", by_day([1, 2], 2))
def test_the_program_of_the_docs_runs(mpirun, monkeypatch, tmp_path, ranks):
    on_gpu(monkeypatch)
    text = (Path(__file__).parents[2] / "docs" / "gpu.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"<!-- program: gpu -->\n```python\n(.*?)```", text, re.S)
    program = tmp_path / "gpu.py"
    program.write_text(found)
    mpirun(ranks, program)


def test_the_kernel_of_the_docs_damps(tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "gpu.md").read_text(encoding="utf-8")
    kernel = text.split("```python\n")[2].split("```")[0]
    check = """
from hpckit.comm.gpu import first_gpu
device = first_gpu()
values = device.to_device(np.arange(11.0))
damp(values, 0.25)
np.testing.assert_allclose(device.to_host(values), np.arange(11.0) * math.exp(-0.25), rtol=1e-15)
"""
    program = tmp_path / "damp.py"
    program.write_text(kernel + check)
    done = run_limited([sys.executable, str(program)], 60, env={**os.environ, **ON_GPU})
    assert done.code == 0, done.stderr


@pytest.mark.parametrize("brief", by_day([True, False], True), ids=["brief", "every"])
def test_kernels_agree_with_the_cpu(brief):
    if REAL:
        pytest.skip("`test_device` takes the kernels one by one")
    command = [sys.executable, "-m", "tests.gpu", *["--brief"] * brief]
    environment = {**os.environ, **ON_GPU}
    outcome = run_limited(command, 280, cwd=Path(__file__).parents[2], env=environment)
    assert outcome.code == 0, outcome.stderr
    result = json.loads(outcome.stdout)
    assert result["checks"] == {"passed": len(result["results"]), "failed": 0}
    assert {(row["check"], row["dtype"]) for row in result["results"]} == {
        (check.name, dtype) for check in checks(brief) for dtype in (PRECISIONS[:1] if brief else PRECISIONS)
    }


@pytest.mark.nightly
def test_the_figures_are_measured_and_mean_nothing_in_the_simulator(tmp_path):
    if REAL:
        pytest.skip("a GPU's figures mean something")
    outcome = hpckit("bench", "gpu", "--json", cwd=tmp_path, timeout=280, **ON_GPU)
    assert outcome.code == 0, outcome.stderr
    result = json.loads(outcome.stdout)
    assert all(row["simulated"] for row in result["results"])
    assert {row.get("ranks") for row in result["results"]} == {None, 1, 2}
    assert result["ratios"] == {}, "the simulator's times are no figures"


@pytest.mark.parametrize("counts", by_day([((2,),), ((1, 3),)], ((2,),)), ids=str)
def test_a_run_on_gpus_has_the_fields_of_one_on_cores_and_says_where_it_ran(tmp_path, counts):
    assert hpckit("run", "heat", *SMALL, "--directory", "cores", cwd=tmp_path).code == 0
    for ranks in counts:
        name = f"gpu{ranks}"
        done = hpckit("run", "heat", *SMALL, "--gpu", "-n", ranks, "--directory", name, cwd=tmp_path, **ON_GPU)
        assert done.code == 0, done.stderr
        assert re.search(rf"GPU: {'' if REAL else 'simulated GPU .*'}.*, {ranks} rank", done.stdout)
        assert "MPI staged through the host" in done.stdout or REAL
        np.testing.assert_allclose(
            temperature(tmp_path / name), temperature(tmp_path / "cores"), rtol=1e-12 if REAL else 0
        )
        summary = json.loads((tmp_path / name / "summary.json").read_text())
        assert summary["device"]["ranks"] == ranks
        provenance = json.loads((tmp_path / name / "provenance.json").read_text())
        assert provenance["gpu"]["mpi"] == "staged" or REAL
        assert len(provenance["placement"]) == ranks


@pytest.mark.nightly
def test_a_run_on_gpus_that_blows_up_says_where(tmp_path):
    done = hpckit("run", "heat", *SMALL, "time.safety=40", "--gpu", cwd=tmp_path, **ON_GPU)
    assert done.code == 4
    assert "HPK-400" in done.stderr
    assert "rank 0, step 3, cell" in done.stderr


@pytest.mark.nightly
def test_what_cannot_run_on_a_gpu_is_refused(tmp_path):
    without = hpckit("run", "heat", "--gpu", cwd=tmp_path, CUDA_VISIBLE_DEVICES="")
    assert without.code == 3
    assert "HPK-300 bad environment: no GPU can be used" in without.stderr
    assert "pip install 'hpckit[gpu]'" in without.stderr
    assert not (tmp_path / "runs").exists()
    bench = hpckit("bench", "gpu", cwd=tmp_path, CUDA_VISIBLE_DEVICES="")
    assert bench.code == 3
    assert "HPK-300" in bench.stderr
    alone = hpckit("run", "heat", "--gpu-mpi", "staged", cwd=tmp_path)
    assert alone.code == 2
    assert "--gpu-mpi is given without --gpu" in alone.stderr


SLOW_ARRAYS = """
import time, types
import numpy as np
from numba.cuda.simulator import kernelapi
from hpckit.comm.gpu import first_gpu
from hpckit.kernels.nn import dispatch

def empty(*arguments):
    made = np.empty(*arguments)
    time.sleep(0.01)  # another thread of the block is on its way to the same array
    return made

kernelapi.np = types.SimpleNamespace(**{**vars(np), "empty": empty})
values = np.arange(1.0, 14.0)
assert dispatch.squared_sum(first_gpu().to_device(values)) == np.square(values).sum()
"""


def test_threads_that_ask_for_a_shared_array_at_once_get_the_same_one():
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    done = run_limited([sys.executable, "-c", SLOW_ARRAYS], 60, env=environment)
    assert done.code == 0, done.stderr
