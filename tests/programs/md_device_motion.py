"""Every kind of motion on these ranks, on the host and on a (simulated) GPU: the same particles after some steps.

A thermostat, walls and a field act at once where they can; one case moves its cuts.
"""

import numpy as np
from mpi4py import MPI

import hpckit as hp
from hpckit.comm.gpu import find_gpu
from hpckit.errors import BlowUpError
from hpckit.kernels.particles.lennard_jones.dispatch import POTENTIAL, parameters
from hpckit.md.external.fields import ExternalFields, Wall
from hpckit.md.external.groups import Within
from hpckit.md.interaction import Interaction
from hpckit.md.motion.barostats import MTK, CellRescaling
from hpckit.md.motion.corrections import Corrected, HeatSource, SlabSwap
from hpckit.md.motion.deformation import Change, Deformation
from hpckit.md.motion.dynamics import NVE
from hpckit.md.motion.fire import Fire
from hpckit.md.motion.thermostats import Bussi, Langevin, NoseHoover, Sllod
from hpckit.md.snapshots import snapshot
from hpckit.md.system import System
from hpckit.md.thermo import measure
from hpckit.particles.particles import pack_particles
from hpckit.plan.particles.domain import DomainDecomposition

comm = MPI.COMM_WORLD
device = find_gpu(comm)
CELLS, EDGE, STEPS = (3, 2, 3), 1.2, 3
OUTSIDE = ExternalFields((0.3, -0.2, 0.5), [Wall(2, True, 1.5, 0.5, 2.0), Wall(2, False, 1.0, 0.6, 2.0)])
BLOCK = Within(None, (-np.inf, 0.2, -np.inf), (np.inf, 2.0, 2.1))
SWAPS = SlabSwap("energy", None, 2, 2, pairs=2), SlabSwap("momentum", None, 0, 2, along=1)
CASES = {  # dynamics; what acts from outside; steps between two moves of the cuts
    "langevin between walls": (lambda: Langevin(2.0, 0.5, 9), OUTSIDE, 0),
    "bussi": (lambda: Bussi(2.0, 0.1, 9), None, 0),
    "nose_hoover": (lambda: NoseHoover(2.0, 0.1), None, 0),
    "npt": (lambda: MTK(NoseHoover(2.0, 0.1), 3.0, 2.0, dims="xz", coupled="xz"), None, 0),
    "cell rescaling": (lambda: CellRescaling(Bussi(2.0, 0.1, 9), 3.0, 2.0, 0.02), None, 0),
    "fire between walls": (lambda: Fire(0.05), OUTSIDE, 0),
    "nve, balanced": (NVE, None, 2),
    "heated": (lambda: Corrected(NVE(), [HeatSource(BLOCK, 5.0, shifts=True), *SWAPS], STEPS), None, 0),
    "bath in a block": (lambda: Langevin(2.0, 0.5, 9, group=BLOCK, name="bath"), None, 0),
    "sheared": (lambda: Deformation(Sllod(2.0, 0.1), [Change("xz", "erate", (20.0,))], 1.0, carries=False), None, 0),
}


def packed() -> np.ndarray:
    """Particles on a shaken simple lattice, most of them low in x, all on rank 0, fast."""
    rng = np.random.default_rng(8)
    sites = np.stack(np.meshgrid(*map(np.arange, CELLS), indexing="ij"), axis=-1).reshape(-1, 3)
    n = len(sites) if comm.rank == 0 else 0
    places = (sites[:n] + 0.5) * EDGE + rng.uniform(-0.1, 0.1, (n, 3))
    return pack_particles(np.arange(n), places, rng.normal(0, 3, (n, 3)), np.zeros(n, np.int64))


def outcome(case: tuple, **options: object) -> tuple:
    """Thermo and the last frame (on rank 0) of a system, and its cuts along x."""
    make, external, balance = case
    periodic = ("x", "y") if external else ("x", "y", "z")
    mesh = hp.Mesh(comm, periodic=periodic, x=0, y=1, z=1)
    one = np.ones((1, 1))
    domains = DomainDecomposition.even(mesh.topology, np.zeros(3), EDGE * np.array(CELLS))
    interaction = Interaction(POTENTIAL, parameters(one, one, 1.3 * one))
    system = System(mesh, domains, np.array([1.5]), interaction, balance_every=balance, **options)
    system.external = external
    system.load(packed())
    system.rebuild()
    system.compute(measure=True)
    dynamics = make()
    for step in range(STEPS):
        dynamics.step(system, 0.01, step == STEPS - 1)
    found = (
        measure(system),
        snapshot(system, forces=True),
        getattr(dynamics, "largest_force", 0.0),
        system.domains.cuts,
        system.given,
    )
    mesh.close()
    return found


good = 0
for name, case in CASES.items():
    host, there = outcome(case), outcome(case, device=device)
    for what in ("temperature", "potential", "pressure", "tensor"):
        expected, got = getattr(host[0], what), getattr(there[0], what)
        assert np.allclose(got, expected, rtol=1e-10, atol=1e-10), (name, what, got, expected)
    assert np.isclose(there[2], host[2], rtol=1e-10), name
    assert (
        there[4].keys()
        == host[4].keys()
        == {"heated": {"energy", "momentum"}, "bath in a block": {"bath"}}.get(name, set())
    )
    assert all(np.isclose(there[4][key], value, rtol=1e-9) and value for key, value in host[4].items()), name
    if comm.rank == 0:
        np.testing.assert_allclose(there[1].unwrapped, host[1].unwrapped, rtol=0, atol=1e-11)
        np.testing.assert_allclose(there[1].velocities, host[1].velocities, rtol=0, atol=1e-10)
        assert np.ptp(host[1].forces) > 0
    ends = [[(cuts[0], cuts[-1]) for cuts in each[3]] for each in (there, host)]
    np.testing.assert_allclose(*ends, rtol=1e-12)
    assert (there[3][2][1] != EDGE * CELLS[2]) == (name in ("npt", "cell rescaling"))
    if case[2] and comm.size > 1:
        even = np.linspace(0, EDGE * CELLS[0], comm.size + 1)
        assert not np.allclose(there[3][0], even), "the cuts stay where they were"
    good += 1
thrown = ExternalFields((0.0, 0.0, 1e5), [Wall(2, False)])  # through the wall, on every rank
try:
    outcome((NVE, thrown, 0), device=device)
except BlowUpError as problem:
    assert "behind the upper wall along z" in problem.report(), problem.report()
    good += 1
if comm.rank == 0:
    print("all good", good)
