"""On a real GPU, where there is one: every kernel against the CPU, exchanges, runs against the CPU, and figures."""

from __future__ import annotations

import json

import numpy as np
import pytest
from test_simulated import SMALL, hpckit, temperature

from hpckit.comm.gpu import first_gpu, missing
from hpckit.kernels.compile.cuda.jit import kernels
from tests.gpu.checks import checks

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(missing() != "", reason=missing())]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_exchanges_on_a_device_equal_those_on_the_host(mpirun, ranks):
    assert "all good 24" in mpirun(ranks, "device_exchange.py", timeout=250).stdout


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_on_gpus_has_the_fields_of_one_on_cores(tmp_path, ranks):
    assert hpckit("run", "heat", *SMALL, "--directory", "cores", cwd=tmp_path).code == 0
    done = hpckit("run", "heat", *SMALL, "--gpu", "-n", ranks, "--directory", "gpus", cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert "GPU: " in done.stdout
    np.testing.assert_allclose(temperature(tmp_path / "gpus"), temperature(tmp_path / "cores"), rtol=1e-12)


@pytest.mark.parametrize("check", checks(), ids=lambda check: check.name)
def test_kernels_agree_with_the_cpu(check):
    assert [row for row in check.rows(first_gpu()) if not row["passed"]] == []


def test_the_driver_launches_what_numba_has_launched():
    for check in checks():
        if check.name == "numbers of 16 bits":
            assert all(row["passed"] for _ in range(2) for row in check.rows(first_gpu()))
    assert sum(kernel.direct for kernel in kernels() if "narrow" in kernel.function.__module__) > 0


def test_the_benchmark_has_figures(tmp_path):
    outcome = hpckit("bench", "gpu", "--quick", "--json", cwd=tmp_path, timeout=280)
    assert outcome.code == 0, outcome.stderr
    assert all(ratio["median"] > 0 for ratio in json.loads(outcome.stdout)["ratios"].values())


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_training_on_a_device_follows_the_host(mpirun, ranks):
    assert "all good" in mpirun(ranks, "device_training.py", "all", timeout=280).stdout
