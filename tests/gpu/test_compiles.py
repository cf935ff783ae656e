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
# Two processes take check after check: of the kernels that both have, one must reach each; of those that a process made
# for itself, all must be reached there.
PROGRAM = """
import importlib, json, multiprocessing, os, re, sys
import numpy as np
from tests.gpu.checks import checks
from hpckit.comm.simulated_gpu import SimulatedGpu
from hpckit.kernels.compile.cuda import jit as cuda_jit

ALL = checks()
for module in sys.argv[1:]:
    importlib.import_module(module)
SHARED = cuda_jit.kernels()

def name(kernel):
    return f"{kernel.__module__}.{kernel.__qualname__}"

def done(number):
    for dtype in (np.float64, np.float32):
        ALL[number].case(SimulatedGpu(), np.dtype(dtype))
    reached = {kernel for kernel, _ in compiled}
    types = re.findall(r"array\\((float\\d+)", " ".join(str(t) for _, ts in compiled for t in ts))
    targets = {re.search(r"\\.target (\\w+)", ptx).group(1) for ptx in compiled.values()}
    return os.getpid(), {
        "shared": [at for at, kernel in enumerate(SHARED) if kernel in reached],
        "missed": [name(k) for k in cuda_jit.kernels() if k not in reached and k not in SHARED],
        "modules": sorted({k.__module__ for k in reached}),
        "types": sorted(set(types)),
        "targets": sorted(targets),
        "count": len(compiled),
    }

with cuda_jit.compile_only((9, 0)) as compiled, multiprocessing.get_context("fork").Pool(2) as pool:
    last = dict(pool.imap_unordered(done, range(len(ALL))))
reached = {at for each in last.values() for at in each["shared"]}
found = {key: sorted({it for each in last.values() for it in each[key]}) for key in ("modules", "types", "targets")}
found["missed"] = [name(kernel) for at, kernel in enumerate(SHARED) if at not in reached]
found["missed"] += [it for each in last.values() for it in each["missed"]]
found["count"] = sum(each["count"] for each in last.values())
print(json.dumps(found))
"""


def test_every_kernel_compiles_for_sm_90():
    if importlib.util.find_spec("numba_cuda") is None:
        pytest.skip("no numba-cuda here (200 MB): pip install 'hpckit[cuda]'; .ci/run does")
    files = sorted(path.relative_to(KERNELS).with_suffix("") for path in KERNELS.rglob("cuda*.py"))
    command = [sys.executable, "-c", PROGRAM, *(".".join(("hpckit", "kernels", *file.parts)) for file in files)]
    done = subprocess.run(command, cwd=KERNELS.parent, capture_output=True, text=True, timeout=1800, check=False)
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
