"""Write frames until killed: `io_forever.py DIRECTORY`; goes on after frames that are there."""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpckit.io import FieldWriter
from hpckit.mesh import Mesh
from hpckit.plan.decomposition import Decomposition

with Mesh(MPI.COMM_WORLD, z=1, x=0) as mesh:
    cells = Decomposition((31, 47), mesh.topology)
    coords = {"z": np.arange(31.0), "x": np.arange(47.0)}
    writer = FieldWriter(Path(sys.argv[1]), mesh, cells, coords, {}, {"q": {}}, driver="shards", append=True)
    whole = np.arange(31.0 * 47.0).reshape(31, 47)
    block = whole[cells.global_slices(mesh.rank)]
    begin = float(sys.argv[2])
    for step in range(10_000):
        time = begin + step
        writer.write(time, {"q": block + 1e4 * time})
