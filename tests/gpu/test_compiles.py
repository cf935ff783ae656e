"""Every CUDA kernel of the package compiles for compute capability 9.0, in both precisions, without a GPU."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[2] / "kernels"
CUDA_FILES = sorted(KERNELS.rglob("cuda.py"))
PROGRAM = """
import json, re
import numpy as np
from tests.gpu.checks import checks
from hpckit.comm.simulated_gpu import SimulatedGpu
from hpckit.kernels.compile.cuda import jit as cuda_jit

device = SimulatedGpu()
with cuda_jit.compile_only((9, 0)) as compiled:
    for check in checks():
        for dtype in (np.float64, np.float32):
            check.case(device, np.dtype(dtype))
reached = {kernel for kernel, _ in compiled}
print(json.dumps({
    "missed": [f"{k.__module__}.{k.__qualname__}" for k in cuda_jit.kernels() if k not in reached],
    "modules": sorted({k.__module__ for k in reached}),
    "types": sorted(set(re.findall(r"array\\((float\\d+)", " ".join(str(t) for _, ts in compiled for t in ts)))),
    "targets": sorted({re.search(r"\\.target (\\w+)", ptx).group(1) for ptx in compiled.values()}),
    "count": len(compiled),
}))
"""


def test_every_kernel_compiles_for_sm_90():
    if importlib.util.find_spec("numba_cuda") is None:
        pytest.skip("no numba-cuda here (200 MB): pip install 'hpckit[cuda]'; .ci/run does")
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=KERNELS.parent, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    packages = {".".join(("hpckit.kernels", *path.parent.relative_to(KERNELS).parts)) for path in CUDA_FILES}
    shared = {"hpckit.kernels.compile.cuda", "hpckit.kernels.euler.sweeps"}  # kernels that several operations use
    reached = {name.rpartition(".")[0] for name in found["modules"]} - shared
    assert reached == packages, "an operation without a check in tests/gpu"
    assert found["missed"] == [], "kernels that no check reaches"
    assert found["types"] == ["float32", "float64"]
    assert found["targets"] == ["sm_90"]
    assert found["count"] >= 2 * len(packages)
