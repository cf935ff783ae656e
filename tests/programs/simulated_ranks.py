"""A mesh, halo exchanges and a sum on ranks that SimGrid simulates: `main` of each of them.

All ranks are threads of one process, so that their messages need buffers: mpi4py's pickled ones share a lock. Rank 0
prints what it found as JSON: the simulated seconds of an exchange, and their price.
"""

import json
import os

import numpy as np
from mpi4py import MPI

import hpckit as hp
from hpckit.plan.machine.machine import Level, Machine

SIDE, EXCHANGES = 2048, 5


def main():
    comm = MPI.COMM_WORLD
    mesh = hp.Mesh(comm, y=0, x=0, periodic="x", shape=(SIDE, SIDE), halo=2)
    decomposition = hp.Decomposition((SIDE, SIDE), mesh.topology, halo=2)
    field = hp.Field.zeros(mesh, decomposition)
    halo = hp.HaloExchange(mesh, field, walls={"y": hp.bc.zero_gradient})
    first = decomposition.start(mesh.rank)
    y, x = np.indices(field.interior.shape)
    field.interior[...] = (first[0] + y) * SIDE + first[1] + x
    halo(field)
    begin = MPI.Wtime()
    for _ in range(EXCHANGES):
        halo(field)
    seconds = (MPI.Wtime() - begin) / EXCHANGES
    shape = field.interior.shape
    y, x = (start + np.arange(-2, n + 2) for start, n in zip(first, shape, strict=True))  # of each halo cell, too
    inside = (y >= 0) & (y < SIDE)
    assert (field.data[inside] == y[inside, None] * SIDE + x % SIDE).all(), comm.rank
    total = field.sum(repro=True)
    assert total == SIDE**2 * (SIDE**2 - 1) // 2, total
    if comm.rank == 0:
        machine = Machine("flat", (Level("all", 0, *map(float, os.environ["NETWORK"].split())),), 0.0, 1e15, copy=1e15)
        priced = hp.price(hp.plan.halo_plan(decomposition), machine, itemsize=8).seconds
        print(json.dumps({"ranks": comm.size, "simulated": seconds, "priced": priced}), flush=True)
