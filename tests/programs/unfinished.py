"""Operations that nobody waits for, when the program ends: each is named with its line, and none does any harm."""

import sys
import time

import numpy as np
from mpi4py import MPI

import hpckit as hp

comm = hp.world()
mesh = hp.Mesh(comm, y=0, x=1, periodic=("y", "x"))
field = hp.Field.zeros(mesh, hp.Decomposition((24, 20), mesh.topology, 2))
halo = hp.HaloExchange(mesh, field, within_node=False)
halo(field)
hp.all_reduce(np.ones(3), comm).wait()


def forget():
    """All buffers are let go at once."""
    hp.all_reduce(np.ones(1000), comm, algorithm="ring")  # RING
    hp.all_reduce(np.ones(100_000), comm, algorithm="mpi")  # MPI
    hp.training.gossip(np.ones(1000), comm)  # GOSSIP
    hp.broadcast(np.ones(200_000), comm)  # MEMORY


if comm.rank == comm.size - 1 and "late" in sys.argv:
    time.sleep(0.3)
if comm.rank == 0 or "one" not in sys.argv:
    forget()
    halo.start(field)  # HALO
    del halo, field
if "ended" in sys.argv:
    MPI.Finalize()
filler = [np.full(1000, -1.0) for _ in range(100)]
