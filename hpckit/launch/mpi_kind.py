"""Kinds of MPI libraries, and what Slurm's srun must speak with each."""

from __future__ import annotations

MPICH, OPEN_MPI = "MPICH", "Open MPI"
PMI = {MPICH: "pmi2", OPEN_MPI: "pmix"}


def mpi_kind(text: str) -> str:
    """MPICH or Open MPI, from what a library, a module or a launcher says of itself; else "unknown"."""
    lower = text.lower()
    if "open mpi" in lower or "openmpi" in lower or "openrte" in lower or "prte" in lower:
        return OPEN_MPI
    # Intel MPI and MVAPICH speak MPICH's ABI and PMI.
    return MPICH if any(name in lower for name in ("mpich", "hydra", "intel", "mvapich")) else "unknown"
