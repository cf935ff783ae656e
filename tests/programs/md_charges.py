"""Scripts on these ranks: `md_charges.py FOLDER STEPS NAME…` runs the scripts in.NAME; figures, the box and places."""

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpckit.apps.md.config import Config
from hpckit.apps.md.lammps.script import settings_of
from hpckit.apps.md.model import make_system
from hpckit.apps.md.motion.dynamics import dynamics_of
from hpckit.apps.md.start import Start
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.md.saved import pieces_of
from hpckit.md.snapshots import snapshot
from hpckit.md.system import System
from hpckit.md.thermo import measure


def run(comm: MPI.Intracomm, folder: Path, steps: int, names: list[str]) -> None:
    """Run the scripts on the ranks of `comm`; rank 0 writes NAME-RANKS.npz."""
    for name in names:
        config = Config.model_validate({**settings_of(folder / f"in.{name}").tree, "repro": True})
        start = Start(config)
        system = make_system(config, start, comm, PhaseTimer())
        if system.charged:
            compare_clusters(config, start, comm, system)
        dynamics, rows = dynamics_of(config), []
        for step in range(steps + 1):
            wanted = step % 10 == 0
            if step:
                dynamics.step(system, config.time.dt, wanted)
            if wanted:
                it = measure(system)
                box = *system.domains.upper, *system.domains.tilt
                rows.append([it.temperature, it.potential, it.coulomb, it.long_range, it.pressure, *it.tensor, *box])
        kept = {piece.name: piece for piece in pieces_of(system)}
        charges = np.concatenate(comm.allgather(kept["charge"].block)) if system.charged else None
        spins = np.concatenate(comm.allgather(kept["spin"].block)) if "spin" in kept else None
        found = snapshot(system, forces=True)
        if found is not None:
            given = {key: getattr(found, key) for key in ("positions", "images", "velocities", "forces")}
            if charges is not None:
                assert np.array_equal(charges, found.charges)
                given["charges"] = charges
            if spins is not None:
                given["spins"] = spins
            np.savez(folder / f"{name}-{comm.size}.npz", rows=rows, builds=system.neighbors.builds, **given)
        system.mesh.close()


def compare_clusters(config: Config, start: Start, comm: MPI.Intracomm, system: System) -> None:
    """Pairs by clusters, of which each is computed once, give what the lists of all neighbors of a system do."""
    other = make_system(config.model_copy(update={"repro": False}), start, comm, PhaseTimer())
    here, there = snapshot(system, forces=True), snapshot(other, forces=True)
    one, two = measure(system), measure(other)
    if here is not None and there is not None:
        np.testing.assert_allclose(there.forces, here.forces, rtol=0, atol=1e-11 * np.abs(here.forces).max())
    np.testing.assert_allclose([two.coulomb, two.total], [one.coulomb, one.total], rtol=1e-11)
    np.testing.assert_allclose(two.tensor, one.tensor, rtol=0, atol=1e-10 * np.abs(one.tensor).max())
    other.mesh.close()


if __name__ == "__main__":
    run(MPI.COMM_WORLD, Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
