"""Processes started by mpiexec or srun: how many ranks the launcher meant, and whether MPI agrees; and the plan of a
run, made before ranks start.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpckit.errors import InputError, SetupError
from hpckit.settings.apps import App
from hpckit.settings.config import BEYOND
from hpckit.settings.table import bytes_text

# (variable with the number of ranks, variable with this rank, name of the launcher), the most certain first.
LAUNCHERS = (
    ("PMI_SIZE", "PMI_RANK", "mpiexec"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "mpirun"),
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "mpirun"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun"),
)
MOST_MEMORY = 1 << 50  # bytes of a rank: 1 PiB
MPICH, OPEN_MPI = "MPICH", "Open MPI"
PMI = {MPICH: "pmi2", OPEN_MPI: "pmix"}


@dataclass(frozen=True)
class Joined:
    """The launcher that started this process, with the number of ranks it meant and which of them this is."""

    size: int
    rank: int
    launcher: str


def joined(environment: Mapping[str, str]) -> Joined | None:
    """The launcher that started this process; None without one: `hpckit` then starts mpiexec itself.

    A Slurm step of one task does not count: the shell of an interactive allocation looks the same.
    """
    for size_name, rank_name, launcher in LAUNCHERS:
        size, rank = environment.get(size_name, ""), environment.get(rank_name, "0")
        if size.isdigit() and rank.isdigit() and not (launcher == "srun" and int(size) == 1):
            return Joined(int(size), int(rank), launcher)
    return None


def check_world(above: Joined, world_size: int) -> None:
    """Refuse the trap of N worlds of one rank each: the launcher speaks another dialect than this MPI library.

    Raises `SetupError` with the command to type.
    """
    if above.size == world_size:
        return
    in_slurm = "SLURM_STEP_NUM_TASKS" in os.environ
    beside = Path(sys.executable).parent / "mpiexec"
    mpiexec = beside if beside.exists() else "the mpiexec of the MPI that mpi4py uses:  mpiexec"
    do = f"srun --mpi={_pmi()} -n {above.size} …" if in_slurm else f"{mpiexec} -n {above.size} …"
    raise SetupError(
        f"{above.launcher} started {above.size} ranks, but MPI sees a world of {world_size}",
        likely="the launcher belongs to another MPI library, and each rank would do the whole job alone",
        do=f"{do}   or without a launcher:  hpckit run … -n {above.size}",
    )


def _pmi() -> str:
    """The PMI that srun must speak for the loaded MPI library."""
    from mpi4py import MPI

    return PMI.get(mpi_kind(MPI.Get_library_version()), "pmi2")


def leave(above: Joined | None, code: int) -> int:
    """The exit code of this process. Under a launcher only rank 0 returns a code other than 0, and it ends last: a
    launcher kills the other ranks at the first failure, and mixes their codes.
    """
    if above is None:
        return code
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.Finalize()
    if above.rank:
        return 0
    if code:
        time.sleep(0.3)
    return code


def mpi_kind(text: str) -> str:
    """MPICH or Open MPI, from the self-description of a library, module or launcher; else "unknown"."""
    lower = text.lower()
    if "open mpi" in lower or "openmpi" in lower or "openrte" in lower or "prte" in lower:
        return OPEN_MPI
    # Intel MPI and MVAPICH speak MPICH's ABI and PMI.
    return MPICH if any(name in lower for name in ("mpich", "hydra", "intel", "mvapich")) else "unknown"


def check_plan(app: App, config: Any, ranks: int) -> Any:
    """The dry run of an app. Importing it may import MPI's binding, which must not start MPI in the front end.

    Raises `InputError` if the settings do not fit this number of ranks, or need more memory than any node has.
    """
    import mpi4py

    before = mpi4py.rc.initialize
    if joined(os.environ) is None:
        mpi4py.rc.initialize = False
    try:
        plan = app.dry_run(config, ranks)
    except ArithmeticError as error:
        raise InputError(
            f"{BEYOND}: {error}",
            likely="a length, time or count that is far too large or too small",
            do="look at the settings that are not defaults: hpckit run … --show-config",
        ) from None
    finally:
        mpi4py.rc.initialize = before
    if plan.memory_per_rank > MOST_MEMORY:
        raise InputError(
            f"the run takes {bytes_text(plan.memory_per_rank)} of memory a rank: no node has that",
            likely="a length or count that is far too large",
            do="look at the settings that are not defaults: hpckit run … --show-config",
        )
    return plan
