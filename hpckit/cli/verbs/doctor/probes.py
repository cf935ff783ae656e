"""The probes of `hpckit doctor`: each a small function that tries one thing that a run will need.

What may crash or hang is tried in a child process (`hpckit.cli.verbs.doctor.child`), so that the doctor survives it.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hpckit.cli.verbs.doctor import node
from hpckit.cli.verbs.doctor.node import Outcome
from hpckit.errors import HpckitError
from hpckit.io.files import replace_file, sync_directory
from hpckit.jobs.process import cores
from hpckit.launch.launcher import PMI, mpi_kind
from hpckit.launch.mpiexec import THREAD_VARIABLES, command, find_mpiexec, rank_environment

CHILD_SECONDS = 45.0  # for what takes 2 s on a quiet machine and compiles what a new one has not yet
FEW_BYTES = 1 << 30  # free space below which a run may end early
LAUNCHER_VARIABLES = ("PMI_", "PMIX_", "HYDI_", "OMPI_", "MPI_LOCAL")
INSTALL_MPI = "pip install 'hpckit[mpi]', or load the cluster's MPI module"


@dataclass
class ProbeFolder:
    """Where the probes work: the directory to be tested and a scratch folder in it, None with the reason if absent.

    Answers of the two-rank job are kept here, for the probes that share it.
    """

    directory: Path
    scratch: Path | None
    reason: str = ""
    limit: float = CHILD_SECONDS
    answers: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def memory(self) -> Outcome:
        """The shared memory of this node, without which no MPI starts."""
        return node.shared_memory()

    @cached_property
    def job(self) -> tuple[dict[str, dict[str, Any]], str]:
        """What two ranks said, by stage, and what went wrong with the job as a whole ('' for nothing)."""
        try:
            words = command(2, ["-m", "hpckit.cli.verbs.doctor.child", "ranks"])
        except HpckitError as problem:
            return {}, problem.message
        return _run(words, {**_clean(os.environ), **_threads()}, self.limit)


Probe = Callable[[ProbeFolder], Outcome]


def mpi_library(place: ProbeFolder) -> Outcome:
    """MPI starts in a process of its own, with threads."""
    return _for_want_of_memory(place, _child("mpi", place, INSTALL_MPI))


def mpi_matches(place: ProbeFolder) -> Outcome:
    """The MPI that mpi4py was built for, the library it loaded and the launcher are of one kind."""
    stages, problem = _run_child("abi", place)
    answer = stages.get("abi")
    if answer is None:
        return _for_want_of_memory(place, Outcome("fail", f"mpi4py does not load: {problem}", INSTALL_MPI))
    try:
        launcher = find_mpiexec()
    except HpckitError as error:
        return Outcome("fail", error.message, error.do)
    said = subprocess.run([launcher, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    kinds = {"wanted": answer["wanted"], "found": answer["found"], "launcher": mpi_kind(said)}
    text = "mpi4py wants {wanted}, found {found}, mpiexec is {launcher}".format(**kinds)
    if len({kind for kind in kinds.values() if kind != "unknown"}) > 1:
        return Outcome("fail", text, f"put the mpiexec of {answer['found']} first on PATH, or {INSTALL_MPI}")
    if os.environ.get("MPI4PY_MPIABI"):
        return Outcome("warn", f"{text}; MPI4PY_MPIABI keeps mpi4py from looking for itself", "unset MPI4PY_MPIABI")
    return Outcome("ok", text)


def mpi_launch(place: ProbeFolder) -> Outcome:
    """The launcher starts two ranks of one world."""
    stages, problem = place.job
    start = stages.get("start")
    if start is None:
        return _for_want_of_memory(place, Outcome("fail", f"two ranks did not start: {problem}", INSTALL_MPI))
    if start["size"] != 2:
        return Outcome(
            "fail",
            f"mpiexec -n 2 made worlds of {start['size']} rank each",
            "use the mpiexec that belongs to the MPI library of mpi4py",
        )
    return Outcome("ok", f"{find_mpiexec()} started 2 ranks in one world")


def mpi_ring(place: ProbeFolder) -> Outcome:
    """Data sent around a ring of two ranks arrive as they were."""
    return _stage(place, "ring", "unset variables that choose a network (UCX_*, FI_*, MPICH_*), or another MPI")


def halo(place: ProbeFolder) -> Outcome:
    """A halo exchange on two ranks puts every value where it belongs."""
    return _stage(place, "halo", "reinstall hpckit and clear its Numba cache (find . -name '*.nb?' -delete)")


def binding(place: ProbeFolder) -> Outcome:
    """Ranks have cores of their own, and no more threads than cores."""
    available = cores()
    told = {name: os.environ[name] for name in THREAD_VARIABLES if os.environ.get(name, "").isdigit()}
    threads = max((int(value) for value in told.values()), default=1)
    if threads > available:
        names = " ".join(f"{name}={available}" for name in told)
        return Outcome("warn", f"{threads} threads a rank on {available} cores", f"export {names}")
    places = place.job[0].get("start", {}).get("cores")
    if places and available > 1 and len(places) == 2 and places[0] == places[1] and len(places[0]) == 1:
        return Outcome(
            "fail", f"both ranks are bound to core {places[0][0]}", "mpiexec -bind-to none, or --bind-to core"
        )
    other = os.cpu_count() or available
    whole = f" of {other}" if other != available else ""
    return Outcome("ok", f"{available}{whole} cores may be used; {threads} thread{'s' * (threads > 1)} a rank")


def hdf5(place: ProbeFolder) -> Outcome:
    """A compressed, checked file comes back as it was, and a damaged one is refused."""
    if place.scratch is None:
        return Outcome("fail", place.reason, "choose a directory you may write to (--directory DIR)")
    return _child("hdf5", place, "pip install --force-reinstall h5py", str(place.scratch))


def hdf5_parallel(place: ProbeFolder) -> Outcome:
    """Whether h5py can write one file from all ranks."""
    return _child("hdf5_parallel", place, "pip install --force-reinstall h5py")


def file_locks(place: ProbeFolder) -> Outcome:
    """Files in the output directory can be locked, which HDF5 wants."""
    if place.scratch is None:
        return Outcome("fail", place.reason, "choose a directory you may write to (--directory DIR)")
    with (place.scratch / "lock").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            return Outcome("fail", f"files cannot be locked: {problem.strerror}", "export HDF5_USE_FILE_LOCKING=FALSE")
    return Outcome("ok", "files in the output directory can be locked")


def file_rename(place: ProbeFolder) -> Outcome:
    """A file is replaced in one step and forced to disk; there is room."""
    if place.scratch is None:
        return Outcome("fail", place.reason, "choose a directory you may write to (--directory DIR)")
    path = place.scratch / "state"
    for content in (b"first", b"second"):
        replace_file(path, content)
    sync_directory(place.scratch)
    if path.read_bytes() != b"second":
        return Outcome("fail", "a file that was replaced still shows its old content", "choose another file system")
    free = shutil.disk_usage(place.scratch).free
    if free < FEW_BYTES:
        return Outcome("warn", f"only {free / 1e9:.2f} GB are free", "free some space, or choose another directory")
    return Outcome("ok", f"files are replaced in one step and forced to disk; {free / 1e9:.0f} GB free")


def numba(place: ProbeFolder) -> Outcome:
    """Numba compiles a kernel, with the promise that arrays do not overlap."""
    return _child("numba", place, "pip install --upgrade numba llvmlite")


def gpu(place: ProbeFolder) -> Outcome:
    """A GPU is found, and a kernel on it computes what it should."""
    return _child("gpu", place, "pip install 'hpckit[gpu]', and check the driver with nvidia-smi")


def gpu_mpi(place: ProbeFolder) -> Outcome:
    """Whether MPI takes device memory; tried in a child, for it may crash."""
    outcome = _child("gpu_mpi", place, "")
    if outcome.status == "fail":  # a crash here is an answer: copies go through the host
        text = f"MPI cannot be given device memory ({outcome.text}); hpckit copies through the host"
        return Outcome("warn", text, "a CUDA-aware MPI is faster where the cluster has one")
    return outcome


def slurm(place: ProbeFolder) -> Outcome:
    """Slurm answers, and its srun speaks the dialect of this MPI."""
    if not shutil.which("sinfo"):
        return Outcome("skipped", "no Slurm here (no sinfo on PATH)")
    try:
        seen = subprocess.run(["sinfo", "-h", "-o", "%P"], capture_output=True, text=True, timeout=20, check=False)
        if seen.returncode:
            return Outcome(
                "warn", f"sinfo fails: {_last_line(seen.stderr)}", "ask the administrator whether slurmctld runs"
            )
        listed = subprocess.run(["srun", "--mpi=list"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return Outcome("warn", f"Slurm does not answer: {problem}", "ask the administrator whether slurmctld runs")
    offered = sorted(set(re.findall(r"\bpmi\w*", listed.stdout + listed.stderr)))
    text = f"partitions {', '.join(seen.stdout.split()) or 'none'}; srun offers {', '.join(offered) or 'no PMI'}"
    kind = mpi_kind(_run_child("abi", place)[0].get("abi", {}).get("found", ""))
    needed = PMI.get(kind, "pmix")
    if not any(name.startswith(needed) for name in offered):
        return Outcome("warn", f"{text}, but {kind} needs {needed}", "start ranks with mpiexec inside the allocation")
    return Outcome("ok", f"{text}: use srun --mpi={needed}")


def analysis(place: ProbeFolder) -> Outcome:
    """The packages that draw the report and read fields."""
    missing = [name for name in ("matplotlib", "xarray", "h5netcdf") if importlib.util.find_spec(name) is None]
    if missing:
        return Outcome("warn", f"no reports or readers: {', '.join(missing)} missing", "pip install 'hpckit[analysis]'")
    return Outcome("ok", "reports and open_fields have what they need")


def _for_want_of_memory(place: ProbeFolder, outcome: Outcome) -> Outcome:
    """The outcome of a start of MPI; where it failed and this node lacks shared memory, that is named."""
    if outcome.status != "fail" or place.memory.status != "fail":
        return outcome
    return Outcome("fail", f"MPI does not start: {place.memory.text}")


PROBES: dict[str, Probe] = {
    "shared memory": lambda place: place.memory,
    "variables": lambda place: node.variables(),
    "MPI library": mpi_library,
    "MPI kinds": mpi_matches,
    "MPI launch": mpi_launch,
    "two-rank ring": mpi_ring,
    "halo exchange": halo,
    "cores and threads": binding,
    "HDF5 round trip": hdf5,
    "parallel HDF5": hdf5_parallel,
    "file locks": file_locks,
    "rename and fsync": file_rename,
    "Numba": numba,
    "GPU": gpu,
    "GPU-aware MPI": gpu_mpi,
    "Slurm": slurm,
    "analysis": analysis,
    "leftovers": lambda place: node.remains(),
}


def _stage(place: ProbeFolder, name: str, do: str) -> Outcome:
    """The outcome of a stage of the two-rank job."""
    stages, problem = place.job
    if "start" not in stages:
        return Outcome("skipped", "two ranks did not start")
    if name not in stages:
        return Outcome("fail", f"no answer: {problem or 'the job ended before'}", do)
    return Outcome(stages[name]["status"], stages[name]["text"], do)


def _child(name: str, place: ProbeFolder, do: str, *arguments: str) -> Outcome:
    """The outcome of a probe in a process of its own."""
    stages, problem = _run_child(name, place, *arguments)
    if name not in stages:
        return Outcome("fail", problem, do)
    answer = stages[name]
    return Outcome(answer["status"], answer["text"], answer.get("do", do))


def _run_child(name: str, place: ProbeFolder, *arguments: str) -> tuple[dict[str, dict[str, Any]], str]:
    words = [sys.executable, "-m", "hpckit.cli.verbs.doctor.child", name, *arguments]
    return _run(words, _clean(os.environ), place.limit)


def _run(words: list[str], environment: Mapping[str, str], limit: float) -> tuple[dict[str, dict[str, Any]], str]:
    """Run a program in a session of its own until its end or the limit; its JSON lines by stage, and its fault."""
    with subprocess.Popen(
        words, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=limit)
            problem = _fault(process.returncode, stderr)
        except subprocess.TimeoutExpired:
            process.terminate()  # mpiexec passes it on to its ranks, which may sit in groups of their own
            try:
                stdout, stderr = process.communicate(timeout=2)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                stdout, stderr = process.communicate()
            problem = f"no answer within {limit:g} s"
    stages = {}
    for line in stdout.splitlines():
        if line.startswith('{"stage"'):
            answer = json.loads(line)
            stages[answer["stage"]] = answer
    return stages, problem


def _fault(code: int, stderr: str) -> str:
    if code == 0:
        return ""
    if code < 0:
        return f"crashed with {signal.Signals(-code).name}"
    return _last_line(stderr) or f"ended with exit code {code}"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


def _clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Without the variables of a launcher above us: a child would take itself for one of its ranks."""
    return {name: value for name, value in environment.items() if not name.startswith(LAUNCHER_VARIABLES)}


def _threads() -> dict[str, str]:
    ours = rank_environment(2)
    return {name: ours[name] for name in THREAD_VARIABLES}
