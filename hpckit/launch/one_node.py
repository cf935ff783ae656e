"""A job on this node alone: its ranks speak through shared memory, and nothing listens to the network."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

# If one of these is set, mpiexec may start ranks on other nodes too.
SEVERAL_NODES = (
    "SLURM_JOB_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "COBALT_JOBID",
    "LOADL_HOSTFILE",
    "PE_HOSTFILE",
    "HYDRA_HOST_FILE",
    "HYDRA_CONFIG_FILE",
    "OMPI_MCA_orte_default_hostfile",
    "PRTE_MCA_prte_default_hostfile",
)
# The user's own choice of a network, which is left alone.
NETWORKS = ("UCX_TLS", "UCX_NET_DEVICES", "MPIR_CVAR_CH4_NETMOD", "OMPI_MCA_btl", "OMPI_MCA_pml")
# UCX, MPICH's way between nodes, and Open MPI would open ports of each rank on all interfaces. Memory and GPUs remain.
NO_NETWORK = {"UCX_TLS": "^tcp,ib", "OMPI_MCA_btl": "^tcp"}
PIDFD_GETFD = 438  # the number of the system call, the same on all architectures


def several_nodes() -> bool:
    """Whether a batch system or a host file places the ranks."""
    return any(name in os.environ for name in SEVERAL_NODES)


def own_launcher() -> Path:
    """The mpiexec of this Python's environment, which may not exist."""
    return Path(sys.executable).parent / "mpiexec"


def is_alone() -> bool:
    """Whether a job of this environment's own mpiexec stays on this node: that of a site may know of others."""
    return not several_nodes() and own_launcher().exists()


def without_network(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that keep the ranks of a job on this node from opening ports, unless the user has chosen."""
    return {} if not is_alone() or any(name in environment for name in NETWORKS) else dict(NO_NETWORK)


def keep_to_loopback(pid: int) -> bool:
    """Bind the ports on which a process of ours listens to the loopback device; True once there was one.

    The launchers of MPICH and Open MPI listen on all interfaces for their helpers on other nodes, and no option changes
    it. Needs Linux 5.7 and the right to trace the process; without them nothing happens.
    """
    if sys.platform != "linux":
        return False
    found = False
    with contextlib.suppress(OSError, AttributeError):  # it has ended; no pidfd here
        handle = os.pidfd_open(pid)
        try:
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                        found |= _bind_listener(handle, int(name))
        finally:
            os.close(handle)
    return found


def _bind_listener(process: int, number: int) -> bool:
    """Bind the socket with this descriptor in a process, if it listens on the network; False if it does not."""
    descriptor = ctypes.CDLL(None).syscall(PIDFD_GETFD, process, number, 0)
    if descriptor < 0:
        return False
    with socket.socket(fileno=descriptor) as it:  # the same socket, not a copy
        network = it.family in (socket.AF_INET, socket.AF_INET6)
        if not network or not it.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return False
        it.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
    return True
