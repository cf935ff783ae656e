"""A fit on these ranks: all digits of what it found."""

import json

import numpy as np
from mpi4py import MPI

from hpckit.adjoint import fit_potential
from hpckit.md.bridges.fit import ReferenceFrame


def energy(r2, p):
    return p[0] * (p[1] * p[1] / r2) ** 6 - p[2] / (r2 * r2 * r2)


rng = np.random.default_rng(3)
frames = [
    ReferenceFrame(rng.uniform(0, 5, (n, 3)), [5.0, 5.5, 6.0], rng.standard_normal((n, 3)), float(n) if n % 2 else None)
    for n in (11, 17, 8, 23, 14)
]
found = fit_potential(energy, [0.01, 0.9, 0.5], frames, 2.4, switch=1.9, offset=True, iterations=6)
if MPI.COMM_WORLD.rank == 0:
    print(json.dumps([*found.parameters, *found.errors, found.offset, found.force_error, found.energy_error]))
