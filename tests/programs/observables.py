"""Observables of frames that all ranks have: each measures its block; what is counted has the same bits."""

import hashlib

import numpy as np
from mpi4py import MPI

from hpckit.md.observables import (
    DensityProfile,
    RadialDistribution,
    SpeedDistribution,
    StructureFactor,
    TimeCorrelation,
)
from hpckit.plan.particles.snapshot import Snapshot

comm = MPI.COMM_WORLD
rng = np.random.default_rng(11)
n, edges = 157, np.array([6.0, 7.0, 8.0])
radial, structure, profile = RadialDistribution(2.9, 30, types=2), StructureFactor(5.0, 20), DensityProfile("y", 13)
speeds, moved = SpeedDistribution(1.0), TimeCorrelation(4)
types = rng.integers(0, 2, n)
for number in range(6):
    frame = Snapshot(
        np.zeros(3), edges, (True,) * 3, np.arange(1, n + 1), types, edges * rng.random((n, 3)),
        rng.integers(-1, 2, (n, 3)).astype(np.int32), rng.normal(size=(n, 3)), time=0.5 * number,
    )  # fmt: skip
    for observable in (radial, structure, profile, speeds, moved):
        observable.add(frame, comm)
results = radial.result(comm), profile.result(comm), speeds.result(comm)
exact = [results[0].g, results[0].partial, results[1].density, results[2].density]
s, correlation = structure.result(comm).s, moved.result(comm)
if comm.rank == 0:
    print([hashlib.sha256(values.tobytes()).hexdigest() for values in exact])
    print([f"{value:.10g}" for value in (*s, *correlation.msd, *correlation.vacf, correlation.diffusion()[0])])
