"""What acts beside pairs or in their place, on the host and on a (simulated) GPU: the same particles after some steps.

SNAP, sums over all images of charges, collective variables with biases, inner steps of bonds, rigid bodies, a coupling.
`md_device_bound.py NAME…` takes some of the cases.
"""

import sys

import numpy as np
from mpi4py import MPI

import hpckit as hp
from hpckit.comm.gpu import find_gpu
from hpckit.errors import BlowUpError
from hpckit.kernels.particles.charged.screening import near_part
from hpckit.kernels.particles.lennard_jones.dispatch import POTENTIAL, parameters
from hpckit.kernels.particles.many_body.snap.reference import ZBL, Snap, tables
from hpckit.md.external.biases import Biases, Metadynamics, Restraint
from hpckit.md.external.coupling import Coupling, SoftPairs
from hpckit.md.external.grid import HillGrid
from hpckit.md.external.variables import CollectiveVariable
from hpckit.md.interaction import Interaction
from hpckit.md.many_body.snap import SnapPotential
from hpckit.md.molecules.bonds import Bonds
from hpckit.md.molecules.charges import Charged
from hpckit.md.molecules.estimates import Fineness
from hpckit.md.molecules.ewald import Ewald
from hpckit.md.molecules.mesh_ewald import MeshEwald
from hpckit.md.molecules.rigid import RigidBodies
from hpckit.md.motion.dynamics import NVE
from hpckit.md.snapshots import snapshot
from hpckit.md.system import System
from hpckit.md.thermo import measure
from hpckit.particles.particles import pack_particles
from hpckit.plan.particles.domain import DomainDecomposition

comm = MPI.COMM_WORLD
device = find_gpu(comm)
CELLS, EDGE, DT, MASS = (3, 2, 3), 1.2, 0.01, 1.5
COUNT = int(np.prod(CELLS))
rng = np.random.default_rng(8)
sites = np.stack(np.meshgrid(*map(np.arange, CELLS), indexing="ij"), axis=-1).reshape(-1, 3)
PLACES = (sites + 0.5) * EDGE + rng.uniform(-0.1, 0.1, (COUNT, 3))
SPEEDS, KINDS = rng.normal(0, 2, (COUNT, 3)), np.arange(COUNT) % 2
one = np.ones((2, 2))
PAIRS = Interaction(POTENTIAL, parameters(one, one, 1.3 * one))
WAVES, MESH = Fineness(1.2, waves=(2, 1, 2)), Fineness(1.2, mesh=(15, 4, 5), order=3)
SOFT = SoftPairs(one, one, 1.3 * one, np.array([True, False]))


def charged(long_range: object, tilt: float = 0.0) -> dict:
    return {"interaction": Charged(PAIRS, near_part(1.5, 1.2), 2.0), "long_range": long_range, "tilt": tilt}


def chains() -> dict:
    ids = np.arange(0, COUNT - 1)
    bonds = Bonds(np.stack([ids % 2, ids, ids + 1], axis=1), COUNT, "harmonic", [[40.0, 1.1], [30.0, 1.3]])
    return {"bonds": bonds, "inner": 3}


def biased() -> dict:
    far = CollectiveVariable("far", "distance", ((0, 3), (COUNT - 1,)))
    bent = CollectiveVariable("bent", "angle", ((1,), (6,), (9,)))
    hills = Metadynamics((1,), HillGrid([0.0], [180.0], [40], [9.0], [False]), 2.0, 2, 1.0, 5.0)
    return {"biases": Biases((far, bent), (Restraint(0, 30.0, 1.0), hills))}


def snapped() -> dict:
    count = len(tables(2).triples)
    coefficients = np.random.default_rng(2).normal(size=(2, 1 + count))
    given = Snap(
        2, coefficients, 0.7 * np.ones(2), np.array([1.0, 0.6]), 0.99, 0.1, True, True, np.zeros((2, 2, ZBL)),
        densities=1, density=np.zeros(2, int), everywhere=True,
    )  # fmt: skip
    return {"interaction": SnapPotential(given)}


CASES = {
    "snap": snapped,
    "ewald": lambda: charged(Ewald(WAVES)),
    "ewald, tilted": lambda: charged(Ewald(WAVES), 0.4),
    "pppm": lambda: charged(MeshEwald(MESH)),
    "pppm in blocks": lambda: charged(MeshEwald(MESH, whole=False)),
    "inner steps": chains,
    "biases": biased,
    "rigid bodies": lambda: {"constraints": RigidBodies(np.arange(COUNT) // 3, PLACES, np.full(COUNT, MASS), DT)},
    "coupling": lambda: {"interaction": SOFT.at(0.3), "coupled": True},
}


def made(case: dict, **options: object) -> System:
    mesh = hp.Mesh(comm, periodic=("x", "y", "z"), x=0, y=1, z=1)
    tilt = np.array([case.get("tilt", 0.0), 0.0, 0.0])
    domains = DomainDecomposition.even(mesh.topology, np.zeros(3), EDGE * np.array(CELLS), tilt)
    given = {name: case[name] for name in ("long_range", "bonds", "inner", "constraints") if name in case}
    system = System(mesh, domains, np.full(2, MASS), case.get("interaction", PAIRS), **given, **options)
    system.biases = case.get("biases")
    n = COUNT if comm.rank == 0 else 0
    charges = np.where(KINDS == 0, 0.8, -0.7)
    system.load(pack_particles(np.arange(n), PLACES[:n], SPEEDS[:n], KINDS[:n], charges=charges[:n]))
    system.rebuild()
    system.compute(measure=True)
    return system


def outcome(case: dict, **options: object) -> tuple:
    """Thermo, the last frame (on rank 0), and numbers of its own, of a system."""
    system, dynamics, own = made(case, **options), NVE(), [0.0]
    if system.constraints is not None:
        system.constraints.correct(system)
    for step in range(2):
        dynamics.step(system, DT, step == 1)
    if system.biases is not None:
        own = [system.biases.energy, *system.biases.values]
    if "coupled" in case:
        coupling = Coupling((0.3, 0.8), 4, SOFT)
        coupling.select(system, 1)
        slope, energies = coupling.energies(system, np.zeros(0))
        own = [slope, *energies]
    found = measure(system), snapshot(system, forces=True), own
    system.mesh.close()
    return found


names = sys.argv[1:] or list(CASES)
for name in names:
    host, there = outcome(CASES[name]()), outcome(CASES[name](), device=device)
    for what in ("temperature", "potential", "pressure", "tensor", "long_range", "bonded"):
        expected, got = getattr(host[0], what), getattr(there[0], what)
        assert np.allclose(got, expected, rtol=1e-11, atol=1e-11), (name, what, got, expected)
    np.testing.assert_allclose(there[2], host[2], rtol=1e-11)
    if comm.rank == 0:
        for what in ("unwrapped", "velocities", "forces"):
            expected, got = getattr(host[1], what), getattr(there[1], what)
            np.testing.assert_allclose(got, expected, rtol=0, atol=1e-11 * np.abs(expected).max(), err_msg=name)
    if name == "pppm" and comm.size == 1:
        system, thrown = made(CASES[name](), device=device), False
        system.particles.positions[:1, 0] += 9 * EDGE
        try:
            system.refresh(measure=True)
        except BlowUpError as problem:
            thrown = "beyond the mesh" in problem.report()
        assert thrown
        system.mesh.close()
if comm.rank == 0:
    print("all good", len(names))
