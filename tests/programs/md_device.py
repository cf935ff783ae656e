"""A hot system on these ranks, on the host and on a (simulated) GPU: the same particles after some steps.

In each case particles leave their domains, lists are made anew and, at first, do not fit.
"""

import numpy as np
from mpi4py import MPI

import hpckit as hp
from hpckit.comm.gpu import find_gpu
from hpckit.kernels.particles.cells import cuda
from hpckit.kernels.particles.lennard_jones.dispatch import POTENTIAL, parameters
from hpckit.md.interaction import Interaction
from hpckit.md.motion.dynamics import NVE
from hpckit.md.neighbors import Rebuilds
from hpckit.md.snapshots import snapshot
from hpckit.md.system import System
from hpckit.md.thermo import measure
from hpckit.particles.migration import audit
from hpckit.particles.particles import pack_particles
from hpckit.plan.particles.domain import DomainDecomposition

comm = MPI.COMM_WORLD
device = find_gpu(comm)
cuda.FIRST_CAPACITY = 2  # so that the first lists do not fit
CASES = {  # cells along x, y, z; periodic; types; cutoff; precision; tolerance
    "two types": ((4, 3, 6), "xyz", 2, 1.4, "double", 1e-11),
    "open, mixed": ((4, 3, 5), "xz", 1, 1.6, "mixed", 1e-5),
    "thin domains": ((3, 3, 3), "xyz", 1, 2.2, "double", 1e-11),
}
STEPS, EDGE = 4, 1.3


def packed(cells: tuple[int, int, int], types: int) -> np.ndarray:
    """Particles on a shaken simple lattice, all of them on rank 0, fast."""
    rng = np.random.default_rng(8)
    sites = np.stack(np.meshgrid(*map(np.arange, cells), indexing="ij"), axis=-1).reshape(-1, 3)
    n = len(sites) if comm.rank == 0 else 0
    places = (sites[:n] + 0.5) * EDGE + rng.uniform(-0.1, 0.1, (n, 3))
    return pack_particles(np.arange(n), places, rng.normal(0, 8, (n, 3)), rng.integers(0, types, n))


def outcome(case: tuple, **options: object) -> tuple:
    """Thermo at the end, and the last frame (on rank 0) of a system."""
    cells, periodic, types, cutoff, precision, _ = case
    mesh = hp.Mesh(comm, periodic=tuple(periodic), x=0, y=1, z=0)
    rng = np.random.default_rng(1)
    epsilon = rng.uniform(0.9, 1.1, (types, types))
    table = parameters(epsilon + epsilon.T, np.full((types, types), 1.0), np.full((types, types), cutoff))
    domains = DomainDecomposition.even(mesh.topology, np.zeros(3), EDGE * np.array(cells))
    interaction, masses = Interaction(POTENTIAL, table), np.linspace(1, 2, types)
    rebuilds = Rebuilds(1, 0, True)
    system = System(mesh, domains, masses, interaction, rebuilds=rebuilds, precision=precision, **options)
    system.neighbors.keeps_skin = True  # as on the device, so that lists are made anew after the same steps
    system.load(packed(cells, types))
    system.rebuild()
    system.compute(measure=True)
    start = measure(system)
    dynamics = NVE()
    for step in range(STEPS):
        dynamics.step(system, 0.004, step == STEPS - 1)
    audit(mesh, system.particles, system.count)
    found = start, measure(system), snapshot(system, forces=True), system.neighbors.builds
    mesh.close()
    return found


good = 0
for name, case in CASES.items():
    tolerance = case[-1]
    host, there = outcome(case), outcome(case, device=device)
    assert there[3] == host[3] > 1, (name, "rebuilds", there[3], host[3])
    for expected, got in zip(host[:2], there[:2], strict=True):
        for what in ("temperature", "potential", "pressure", "tensor"):
            scale = abs(expected.potential) + abs(expected.pressure)
            difference = np.abs(np.subtract(getattr(got, what), getattr(expected, what))).max() / scale
            assert difference < tolerance, (name, what, difference)
    if comm.rank == 0:
        expected, got = host[2], there[2]
        np.testing.assert_array_equal(got.ids, expected.ids)
        np.testing.assert_array_equal(got.types, expected.types)
        np.testing.assert_allclose(got.unwrapped, expected.unwrapped, rtol=0, atol=tolerance)
        np.testing.assert_allclose(got.velocities, expected.velocities, rtol=0, atol=100 * tolerance)
        scale = np.abs(expected.forces).max()
        np.testing.assert_allclose(got.forces, expected.forces, rtol=0, atol=100 * tolerance * scale)
    good += 1
again = outcome(CASES["two types"], device=device)
first = outcome(CASES["two types"], device=device)
if comm.rank == 0:
    assert np.array_equal(again[2].positions, first[2].positions), "another run has other bits"
    print("all good", good)
