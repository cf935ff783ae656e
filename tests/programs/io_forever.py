"""Write frames until killed: `io_forever.py DIRECTORY BEGIN LOCK`; goes on after frames that are there.

Every rank holds LOCK as long as it lives.
"""

import fcntl
import itertools
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpckit.comm.mesh import Mesh
from hpckit.io import FieldWriter
from hpckit.plan.grid.decomposition import Decomposition

held = open(sys.argv[3], "w")  # noqa: SIM115
fcntl.flock(held, fcntl.LOCK_SH)
with Mesh(MPI.COMM_WORLD, z=1, x=0) as mesh:
    cells = Decomposition((31, 47), mesh.topology)
    coords = {"z": np.arange(31.0), "x": np.arange(47.0)}
    writer = FieldWriter(mesh, Path(sys.argv[1]), cells, coords, {}, {"q": {}}, driver="shards", append=True)
    whole = np.arange(31.0 * 47.0).reshape(31, 47)
    block = whole[cells.global_slices(mesh.rank)]
    for time in itertools.count(float(sys.argv[2])):
        writer.write(time, {"q": block + 1e4 * time})
