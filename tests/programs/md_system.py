"""Systems of particles on these ranks: `md_system.py FOLDER`, with cases.json in it; trajectories and figures."""

import json
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

import hpckit as hp
from hpckit.apps.md.config import Config
from hpckit.apps.md.potentials import interaction_of
from hpckit.io.particles.lammps_data import read_lammps_data
from hpckit.kernels.particles.lennard_jones.dispatch import POTENTIAL, parameters
from hpckit.md.interaction import Interaction
from hpckit.md.molecules.bonds import Bonds
from hpckit.md.motion.dynamics import NVE
from hpckit.md.neighbors import Rebuilds
from hpckit.md.snapshots import load_snapshot, snapshot
from hpckit.md.system import System
from hpckit.md.thermo import measure
from hpckit.md.units import UNITS
from hpckit.particles.migration import audit
from hpckit.plan.particles.domain import DomainDecomposition

comm = MPI.COMM_WORLD
folder = Path(sys.argv[1])


def system_of(case: dict) -> System:
    """The system of a case: particles from a LAMMPS data file, Lennard-Jones between them or what it names."""
    data = read_lammps_data(folder / case["data"], periodic=tuple(case.get("periodic", (True,) * 3)))
    names = tuple(axis for axis, closed in zip("xyz", data.periodic, strict=True) if closed)
    mesh = hp.Mesh(comm, periodic=names, **dict(zip("xyz", case.get("split", (0, 0, 0)), strict=True)))
    domains = DomainDecomposition.even(mesh.topology, data.lower, data.upper)
    if "cuts" in case:  # fractions of the box along each dim that is cut
        cuts = [list(each) for each in domains.cuts]
        for d, fractions in enumerate(case["cuts"]):
            if len(fractions) == mesh.topology.sizes[d] - 1:
                cuts[d][1:-1] = [data.lower[d] + f * (data.upper[d] - data.lower[d]) for f in fractions]
        domains = DomainDecomposition(mesh.topology, tuple(tuple(each) for each in cuts))
    if "interaction" in case:  # as in a run file
        config = Config.model_validate({"system": {"file": __file__}, "interaction": case["interaction"]})
        interaction = interaction_of(config, len(data.masses))
    else:
        epsilon, sigma, cutoff = (np.array(case[key], float) for key in ("epsilon", "sigma", "cutoff"))
        interaction = Interaction(POTENTIAL, parameters(epsilon, sigma, cutoff, case.get("shift", False)))
    options = {key: case[key] for key in ("skin", "precision", "repro", "isa") if key in case}
    options["units"] = UNITS[case.get("units", "lj")]
    if "bonds" in case:
        options["bonds"] = Bonds(data.bonds, data.count, *case["bonds"])
    rebuilds = Rebuilds(**case.get("rebuilds", {}))
    system = System(mesh, domains, data.masses, interaction, rebuilds=rebuilds, **options)
    load_snapshot(system, data if comm.rank == 0 else None)
    return system


for name, case in json.loads((folder / "cases.json").read_text()).items():
    system = system_of(case)
    system.rebuild()
    system.compute(measure=True)
    rows = []
    dynamics = NVE()
    for step in range(case["steps"] + 1):
        wanted = step in case["measured"]
        if step:
            dynamics.step(system, case["dt"], wanted)
        if wanted:
            it = measure(system)
            rows.append([step, it.temperature, it.potential, it.total, it.pressure, *it.tensor])
    audit(system.mesh, system.particles, system.count)
    found = snapshot(system, forces=True)
    counts = np.zeros(comm.size, np.int64)
    comm.Allgather(np.array([system.particles.count]), counts)
    if found is not None:
        np.savez(
            folder / f"{name}-{comm.size}.npz",
            rows=rows,
            positions=found.positions,
            velocities=found.velocities,
            images=found.images,
            types=found.types,
            forces=found.forces,
            counts=counts,
            builds=system.neighbors.builds,
        )
    system.mesh.close()
