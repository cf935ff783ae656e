"""The provenance of a run: versions, commit, command line and a whitelist of environment variables."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hpckit
from hpckit.comm.agree import gather_json
from hpckit.run.context import utc_now
from hpckit.run.directory import RunDirectory

if TYPE_CHECKING:
    from mpi4py import MPI

PACKAGES = ("numpy", "numba", "mpi4py", "h5py", "cupy-cuda13x", "numba-cuda")
# Nothing else of the environment is kept: it may hold secrets.
VARIABLES = (
    "OMP_NUM_THREADS",
    "OMP_PROC_BIND",
    "OMP_PLACES",
    "NUMBA_NUM_THREADS",
    "NUMBA_CPU_NAME",
    "NUMBA_DISABLE_JIT",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "MPI4PY_LIBMPI",
    "MPI4PY_MPIABI",
    "CUDA_VISIBLE_DEVICES",
    "NUMBA_ENABLE_CUDASIM",
    "SLURM_JOB_ID",
    "SLURM_JOB_NUM_NODES",
    "SLURM_NTASKS",
    "SLURM_CPUS_PER_TASK",
    "SLURM_JOB_PARTITION",
)


def provenance(arguments: list[str], ranks: int, environment: dict[str, str]) -> dict[str, Any]:
    """The record before the ranks start; they add hosts and placement, and the end adds its time."""
    return {
        "hpckit": hpckit.__version__,
        "git": git_state(Path(__file__).parents[2]),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "ranks": ranks,
        "command": shlex.join(["hpckit", *arguments]),
        "folder": os.getcwd(),
        "environment": {name: environment[name] for name in VARIABLES if name in environment},
        "started": utc_now(),
        "front_end": {"host": socket.gethostname(), "pid": os.getpid()},
    }


def record_places(directory: RunDirectory, comm: MPI.Intracomm) -> None:
    """Collective: add host, process, cores and threads of every rank, and the MPI library, to `provenance.json`."""
    from mpi4py import MPI

    own = {
        "rank": comm.rank,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "cores": sorted(os.sched_getaffinity(0)),
        "threads": int(os.environ.get("OMP_NUM_THREADS", "0") or 0),
    }
    places = gather_json(comm, own)
    if places is not None:
        record = directory.read_json("provenance.json") or {}
        record["mpi"] = {
            "library": " ".join(MPI.Get_library_version().split("\n")[0].split()),
            "standard": MPI.Get_version(),
        }
        record["hosts"] = list(dict.fromkeys(place["host"] for place in places))
        record["placement"] = places
        directory.write_json("provenance.json", record)


def git_state(root: Path) -> dict[str, Any] | None:
    """Commit of the checkout at `root`, and whether tracked files differ from it; None if it is not a checkout."""
    if not (root / ".git").exists():
        return None
    commit = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": bool(changed)} if commit is not None else None


def _git(root: Path, *words: str) -> str | None:
    """The output of git; None without git or if it fails."""
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
