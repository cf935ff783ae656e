"""Potentials from elsewhere on these ranks: `md_bridges.py FOLDER`; energies, forces and steps of a copper crystal.

A network of two layers, whose second sees what the first found at the neighbors, one of hp.nn, and ASE's calculators.
"""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

import hpckit as hp
from hpckit.md.bridges.ase_potential import AsePotential
from hpckit.md.bridges.brick import Brick, BrickPotential
from hpckit.md.bridges.network import MessagePassing
from hpckit.md.motion.dynamics import NVE
from hpckit.md.snapshots import load_snapshot, snapshot
from hpckit.md.system import System
from hpckit.md.thermo import measure
from hpckit.md.units import UNITS
from hpckit.plan.particles.domain import DomainDecomposition
from hpckit.plan.particles.snapshot import Snapshot

comm, folder = MPI.COMM_WORLD, Path(sys.argv[1])
CUTOFF, WIDTH, EDGE, CELLS = 3.2, 19, 3.7, (5, 4, 3)
rng = np.random.default_rng(3)
OWN, HEARD, OUT = (
    rng.normal(size=(2, WIDTH)),
    0.3 * rng.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5,
    rng.normal(size=WIDTH) / WIDTH,
)
GIVEN = {"epsilon": 0.3, "sigma": 2.3, "rc": 2.9}
CENTERS = np.linspace(1.5, 3.0, WIDTH)


def network(brick: Brick) -> tuple[np.ndarray, np.ndarray]:
    """Energies of own particles and their slopes: a sum over pairs, a layer, a sum of what neighbors have, a layer."""
    n, first, second = brick.own, brick.first, brick.second
    r = np.sqrt((brick.vectors**2).sum(axis=1))
    fade, drop = (1 - (r / CUTOFF) ** 2) ** 2, -4 * r / CUTOFF**2 * (1 - (r / CUTOFF) ** 2)
    waves = np.exp(-((r[:, None] - CENTERS) ** 2))
    bumps = fade[:, None] * waves
    slopes_of_bumps = drop[:, None] * waves - 2 * (r[:, None] - CENTERS) * bumps
    strength = 1.0 + 0.2 * brick.types[second][:, None]
    seen = np.zeros((n, WIDTH))
    np.add.at(seen, first, bumps * strength)
    features = np.tanh(seen - OWN[brick.types[:n]])
    every = brick.forward(features)
    heard = np.zeros((n, WIDTH))
    np.add.at(heard, first, fade[:, None] * every[second])
    inner = np.tanh(np.einsum("iw,wv->iv", heard, HEARD) + features)
    energies = (inner * OUT).sum(axis=1)
    # Backward.
    d_inner = OUT * (1 - inner**2)
    d_heard = np.einsum("iv,wv->iw", d_inner, HEARD)
    d_r = drop * (d_heard[first] * every[second]).sum(axis=1)
    d_every = np.zeros_like(every)
    np.add.at(d_every, second, fade[:, None] * d_heard[first])
    d_features = brick.back(d_every) + d_inner
    d_seen = d_features * (1 - features**2)
    d_r += (d_seen[first] * strength * slopes_of_bumps).sum(axis=1)
    return energies, (d_r / r)[:, None] * brick.vectors


def springs(brick: Brick) -> tuple[np.ndarray, np.ndarray]:
    """Pairs that repel each other, more strongly with more of them about: nothing comes back from ghosts."""
    r = np.sqrt((brick.vectors**2).sum(axis=1))
    each, slopes = (1 - r / CUTOFF) ** 2, -2 / CUTOFF * (1 - r / CUTOFF)
    sums = np.bincount(brick.first, each, brick.own)
    return sums + 0.1 * sums**2, ((1 + 0.2 * sums[brick.first]) * slopes / r)[:, None] * brick.vectors


def pairs() -> object:
    """A calculator of ASE that tells energies and stresses of each atom."""
    from ase.calculators.lj import LennardJones

    return LennardJones(**GIVEN)


def plain() -> object:
    """The same without stresses."""
    found = pairs()
    found.implemented_properties = ["energy", "energies", "forces"]
    return found


def crystal() -> Snapshot:
    """Shaken copper and gold in a periodic box, atoms across its sides."""
    grid = np.stack(np.meshgrid(*map(np.arange, CELLS), indexing="ij"), -1).reshape(-1, 1, 3)
    basis = np.array([[0, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]])
    places = ((grid + basis).reshape(-1, 3) + 0.02) * EDGE + rng.uniform(-0.15, 0.15, (len(grid) * 4, 3))
    count, box = len(places), np.array(CELLS) * EDGE
    turns = np.floor(places / box)
    return Snapshot(
        lower=np.zeros(3),
        upper=box,
        periodic=(True, True, True),
        ids=np.arange(1, count + 1),
        types=rng.integers(0, 2, count),
        positions=places - turns * box,
        images=turns.astype(np.int32),
        velocities=rng.normal(0, 4.0, (count, 3)),
        masses=np.array([63.5, 197.0]),
    )


given = crystal()
for name, potential in (
    ("network", BrickPotential(network, CUTOFF, 2)),
    ("springs", BrickPotential(springs, CUTOFF, 2)),
    ("layers", MessagePassing(2, CUTOFF, width=18, waves=5, seed=1).potential()),
    ("pairs", AsePotential(pairs, ("Cu", "Au"), GIVEN["rc"])),
    ("plain", AsePotential(plain, ("Cu", "Au"), GIVEN["rc"])),
):
    for repro in (name == "springs",):
        mesh = hp.Mesh(comm, periodic=("x", "y", "z"), x=0, y=0, z=0)
        domains = DomainDecomposition.even(mesh.topology, given.lower, given.upper)
        system = System(mesh, domains, given.masses, potential, skin=0.4, units=UNITS["metal"], repro=repro)
        load_snapshot(system, given if comm.rank == 0 else None)
        system.rebuild()
        system.compute(measure=True)
        rows, first = [], snapshot(system, forces=True)
        dynamics = NVE()
        for step in range(21 if name in ("network", "springs") else 3):
            if step:
                dynamics.step(system, 0.002, True)
            it = measure(system)
            rows.append([it.potential, it.total, *it.tensor])
        last = snapshot(system)
        if first is not None:
            key = f"{name}{'-exact' if repro else ''}-{comm.size}.npz"
            places = {"positions": first.positions, "types": first.types, "box": given.upper}
            np.savez(folder / key, rows=rows, forces=first.forces, ended=last.positions, **places)
        mesh.close()
